# SPDX-License-Identifier: MIT
# The pictures of README.md and docs/report.md, made from real runs on the simulated GPU (docs/pictures/make.py).
.PHONY: pictures
pictures: needs-all ## make the pictures of README.md again
	$(again) all
	$(Q)docs/pictures/make.py $(B)
