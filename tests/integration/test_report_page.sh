#!/bin/sh
# SPDX-License-Identifier: MIT
# Opens the page of `gpuprof report -o` in a real browser: test_report_page.sh BUILD_DIR
# Run: slow
cd "$(dirname "$0")/../.."
command -v python3 >/dev/null || { echo "python3 is not installed: the page was not opened"; exit 77; }
exec python3 tests/web/run.py "$1"
