#!/bin/sh
# SPDX-License-Identifier: MIT
# Tests the chart and the manifests of the agent (check.py): run.sh BUILD_DIR
# Run: slow
cd "$(dirname "$0")/../.."
exec python3 tests/deploy/check.py "${1:-build}"
