#!/bin/sh
# SPDX-License-Identifier: MIT
# What libraries do with memory, in report, explain and stat: test_library_notes.sh BUILD_DIR
# Run: script
cd "$(dirname "$0")/../.."
command -v python3 >/dev/null || { echo "python3 is not installed: no program was run"; exit 77; }
exec python3 tests/integration/library_notes.py "$1"
