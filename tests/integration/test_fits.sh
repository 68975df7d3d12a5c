#!/bin/sh
# SPDX-License-Identifier: MIT
# Random programs judged by `gpuprof dryrun` and `gpuprof fit`, and run in the sizes named: test_fits.sh BUILD_DIR
# Run: script
cd "$(dirname "$0")/../.."
command -v python3 >/dev/null || { echo "python3 is not installed: no program was judged"; exit 77; }
[ -n "${GPUPROF_TEST_FULL:-}" ] && exec python3 tests/integration/fits.py "$1" 300
exec python3 tests/integration/fits.py "$1" 16
