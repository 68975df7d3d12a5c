#!/bin/bash
# SPDX-License-Identifier: MIT
# Snapshots of recordings of many programs, under several allocators, are sound (tests/python/check_snapshot.py).  With
# GPUPROF_TORCH_ROOT, a root folder with PyTorch, torch's own _memory_viz.py reads each of them too.
#
#   tests/integration/test_snapshot_sound.sh [BUILD_DIR]
#
# Only with GPUPROF_TEST_FULL all programs and allocators.
# Run: script first
set -u
cd "$(dirname "$0")/../.."
build=${1:-build} python=${PYTHON:-python3}
command -v "$python" > /dev/null || { echo "no Python"; exit 77; }
root=${GPUPROF_TORCH_ROOT:-} full=${GPUPROF_TEST_FULL:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
for variable in ${!GPUPROF_@} ${!CUDA_@}; do [ "$variable" = GPUPROF_TORCH_ROOT ] || unset "$variable"; done
one() { # PROGRAM ALLOCATOR
    local options=()
    [ "$2" = off ] || options=(--allocator="$2")
    # Some of the programs fail on purpose.
    timeout -k 5 60 "$build/bin/gpuprof" run --sim --force "${options[@]}" --record="$work/r" -- "$build/tests/programs/$1" > "$work/out" 2>&1
    "$build/bin/gpuprof" snapshot "$work/r" -o "$work/s" > "$work/out" 2>&1 &&
        "$python" tests/python/check_snapshot.py "$work/s" --viewer > "$work/out" 2>&1 &&
        { [ -z "$root" ] || "$python" tests/python/read_viz.py "$root" "$work/s" > "$work/out" 2>&1; } &&
        { [ "$2" != caching ] || limited; }
}
limited() { # a trace that begins in the middle
    local limit
    for limit in 1 6 17; do
        "$build/bin/gpuprof" snapshot "$work/r" -o "$work/s" --max-entries=$limit > "$work/out" 2>&1 &&
            "$python" tests/python/check_snapshot.py "$work/s" --viewer > "$work/out" 2>&1 || return 1
    done
}
programs="arrays linear mixed nvtx_mem record_walk shim_streams vmm_twice" allocators="off caching passthrough"
[ -z "$full" ] || { programs="$programs api_cached devices ipc nvtx oom pool_default vmm_unmap" allocators="$allocators pytorch auto_growth"; }
for program in $programs; do
    for allocator in $allocators; do
        if one $program $allocator; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "FAILED $program, allocator $allocator"
            head -n 5 "$work/out" | sed 's/^/        /'
        fi
        rm -f "$work/r" "$work/s"
    done
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
