#!/bin/sh
# SPDX-License-Identifier: MIT
# The page of `gpuprof report -o` in a real browser: test_report_page.sh BUILD_DIR
cd "$(dirname "$0")/../.."
command -v python3 >/dev/null || { echo "no python3 here: the page was not opened"; exit 77; }
exec python3 tests/web/run.py "$1"
