#!/bin/bash
# SPDX-License-Identifier: MIT
# gpuprof's allocator under a real PyTorch: errors that PyTorch's users catch, and memory of pools that goes back.
#
#   GPUPROF_TORCH_ROOT=DIR tests/real/test_torch_allocator.sh [BUILD_DIR]
#
# DIR is a root folder with PyTorch for tests/real/inside; without the variable the test is skipped.
set -u
cd "$(dirname "$0")/../.."
build=${1:-build} root=${GPUPROF_TORCH_ROOT:-}
[ -n "$root" ] || { echo "GPUPROF_TORCH_ROOT names no folder with PyTorch"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
run() { # HOW STATUS
    PYTHONPATH=$PWD/python "$build/bin/gpuprof" run --sim=devices=1,memory=8GiB -- tests/real/inside "$root" python3 tests/real/torch_allocator.py \
        "$1" > "$work/out" 2> "$work/err"
    local status=$? good bad
    good=$(grep -c '^ok' "$work/out") bad=$(grep -c '^FAILED' "$work/out")
    [ $status = "$2" ] && [ "$good" -gt 0 ] || { bad=$((bad + 1)); echo "FAILED $1: exit $status"; }
    [ "$bad" = 0 ] || cat "$work/out" "$work/err"
    passed=$((passed + good)) failed=$((failed + bad))
}
run current 0
run pool 0
run ends 1
if grep -q "gpuprof_torch_alloc asked for 100 GiB" "$work/err" && grep -q "torch.OutOfMemoryError" "$work/err"; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
    echo "FAILED: the failure has no page"
    cat "$work/err"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
