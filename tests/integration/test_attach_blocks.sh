#!/bin/bash
# SPDX-License-Identifier: MIT
# gpuprof attach --blocks: the blocks that a framework had before, asked for on Python's main thread (attach_blocks.py).
#
#   tests/integration/test_attach_blocks.sh [BUILD_DIR]
# Run: script
set -u
cd "$(dirname "$0")/../.."
for variable in ${!GPUPROF_@} ${!CUDA_@}; do unset "$variable"; done
[ "$(uname -m)" = x86_64 ] || { echo "attach is for x86-64"; exit 77; }
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
exec timeout -k 5 120 python3 tests/integration/attach_blocks.py "${1:-build}"
