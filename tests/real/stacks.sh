#!/bin/bash
# SPDX-License-Identifier: MIT
# The stack that the simulated driver finds for the compiled kernels of PyTorch against what NVIDIA's cuobjdump says, which comes
# with Triton: every kernel of every EACH-th cubin of libtorch_cuda.so for compute capability 9.0 (stacks.py).
#
#   GPUPROF_TORCH_ROOT=DIR tests/real/stacks.sh [BUILD] [EACH]
#
# DIR is an environment of tests/real/index with PyTorch and Triton.  Without the variable the test is skipped.  EACH: 10.
# Run: slow
set -u
cd "$(dirname "$0")/../.."
build=$(cd "${1:-build}" && pwd) each=${2:-10} root=${GPUPROF_TORCH_ROOT:-}
[ -n "$root" ] || { echo "GPUPROF_TORCH_ROOT names no folder with PyTorch"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packages=$(dirname "$(ls -d "$root"/lib/python3*/site-packages/torch)")
tool=$packages/triton/backends/nvidia/bin/cuobjdump library=$packages/torch/lib/libtorch_cuda.so
"$tool" -arch sm_90 -lelf "$library" | sed -n 's/^ELF file .*: //p' | awk -v each="$each" 'NR % each == 0' >"$work/names"
while read -r name; do
    (cd "$work" && "$tool" -arch sm_90 -xelf "$name" "$library" >/dev/null && "$tool" -res-usage "$name" >"$name.usage") || exit 1
done <"$work/names"
if "$build/bin/gpuprof" run --sim=gpu=h100-80g -- "$root/bin/python3" tests/real/stacks.py "$work"; then
    echo "1 passed, 0 failed, 0 skipped"
else
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
