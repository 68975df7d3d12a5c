#!/bin/bash
# SPDX-License-Identifier: MIT
# Snapshots of PyTorch whose traces lack actions, 60 of them at random, and 1000 with GPUPROF_TEST_FULL: snapshot_gaps.py.
#
#   tests/integration/test_snapshot_gaps.sh [BUILD_DIR]
#
# Run: script
set -u
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
command -v "$python" > /dev/null || { echo "no Python"; exit 77; }
exec "$python" tests/integration/snapshot_gaps.py "${1:-build}" "$([ -n "${GPUPROF_TEST_FULL:-}" ] && echo 1000 || echo 60)"
