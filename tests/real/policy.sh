#!/bin/bash
# SPDX-License-Identifier: MIT
# gpuprof's copy of PyTorch's allocator (the policy pytorch, in `replay` and `fit`) against PyTorch's own: random programs run in a
# real PyTorch on the simulated GPU, half of them with too little memory, and their traces through `gpuprof replay`.  Bytes
# reserved at the peak, segments taken and requests that fail have to be the same (policy_compare.py).
#
#   GPUPROF_TORCH_ROOT=DIR tests/real/policy.sh [BUILD] [COUNT]
#
# DIR is an environment of tests/real/index with PyTorch 2.13 or newer: older ones order blocks of one size otherwise.  Without the variable the test is skipped.  COUNT: programs for each
# setting (250).
# Run: slow
set -u
cd "$(dirname "$0")/../.."
build=${1:-build} count=${2:-250} root=${GPUPROF_TORCH_ROOT:-}
[ -n "$root" ] || { echo "GPUPROF_TORCH_ROOT names no folder with PyTorch"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
for conf in - expandable_segments:True max_split_size_mb:20 max_split_size_mb:64,max_non_split_rounding_mb:40 \
    roundup_power2_divisions:4 "roundup_power2_divisions:[1:8,16:2,>:1]" garbage_collection_threshold:0.5 large_segment_size_mb:64; do
    mkdir "$work/traces"
    if "$build/bin/gpuprof" run --sim=memory=8GiB,devices=1,contents=none -- tests/real/inside "$root" python3 tests/real/torch_policy.py \
        "$work/traces" "$conf" 1 "$count" >"$work/out" 2>&1 </dev/null &&
        python3 tests/real/policy_compare.py "$build/bin/gpuprof" "$work/traces" "$conf" >>"$work/out" 2>&1; then
        passed=$((passed + 1))
        echo "ok      ${conf/#-/default}: $(tail -n 1 "$work/out")"
    else
        failed=$((failed + 1))
        echo "FAILED  ${conf/#-/default}"
        tail -n 12 "$work/out" | sed 's/^/        /'
    fi
    rm -rf "$work/traces"
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
