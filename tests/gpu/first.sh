#!/bin/bash
# SPDX-License-Identifier: MIT
# The first five minutes on a GPU, on the simulated one: out of a bundle, as on a machine that has nothing else.
# Run: script
set -u
cd "$(dirname "$0")/../.."
build=$(cd "${1:-build}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tests/gpu/bundle.sh "$build" "$work/bundle" >"$work/out" 2>&1 || { cat "$work/out"; exit 1; }
cd "$work/bundle" || exit
unset GPUPROF_BUILD
python3 tests/gpu/first.py --dry-run --short --seconds=240 || exit
# The device alone needs no PyTorch.
build/bin/gpuprof run --sim=gpu=h200 -- python3 tests/gpu/beside.py --case device >"$work/out" || exit
grep -q '^@value name NVIDIA H200$' "$work/out" || { echo "FAILED: beside.py says of an H200:"; cat "$work/out"; exit 1; }
# It must notice that nothing is counted.
rm build/lib/libgpuprof.so
if python3 tests/gpu/first.py --dry-run --only=1,23 >"$work/out"; then
    echo "FAILED: without the library it finds everything right:"
    cat "$work/out"
    exit 1
fi
