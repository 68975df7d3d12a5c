#!/bin/sh
# SPDX-License-Identifier: MIT
# Budgets and growth, on programs that were recorded on the simulated GPU: test_gate.sh BUILD_DIR
cd "$(dirname "$0")/../.."
command -v python3 >/dev/null || { echo "python3 is not installed: no program was recorded"; exit 77; }
exec python3 tests/integration/gate.py "$1"
