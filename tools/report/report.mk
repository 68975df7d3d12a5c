# SPDX-License-Identifier: MIT
# The page of `gpuprof report -o` is made of tools/report/web and lies beside it, so that a build needs no npm.
$(B)/obj/tools/report/shell.o: tools/report/web/dist/report.html

.PHONY: report-page
report-page: ## rebuild the page of the report from its sources (needs npm)
	$(Q)cd tools/report/web && npm ci --ignore-scripts --no-audit --no-fund && node build.mjs
