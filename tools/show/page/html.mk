# SPDX-License-Identifier: MIT
# The page of `gpuprof report -o` is built from tools/show/page/web and committed there, so that a build needs no npm.
$(B)/obj/tools/show/page/html.o: tools/show/page/web/dist/report.html

.PHONY: report-page
report-page: ## rebuild the page of the report from its sources (needs npm)
	$(Q)cd tools/show/page/web && npm ci --ignore-scripts --no-audit --no-fund && node build.mjs
