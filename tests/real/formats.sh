#!/bin/bash
# SPDX-License-Identifier: MIT
# Traces and memory timelines of PyTorch's own profiler, of each PyTorch of tests/real/index.table that is installed: gpuprof report
# reads from them the peaks that torch.cuda says of itself.
#
#   tests/real/formats.sh [BUILD]
#
# Nothing is fetched; without any of them the test is skipped (exit status 77).
# Run: slow
set -u
cd "$(dirname "$0")/../.."
build=$(cd "${1:-build}" && pwd)
real=${GPUPROF_REAL:-build/real}/index
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
for name in $(tests/real/index | grep -E '^(torch-|frameworks$)'); do
    python=$real/$name/bin/python3
    [ -x "$python" ] && [ -e "$real/$name/complete" ] || continue
    if ! "$build/bin/gpuprof" run --sim -- "$python" tests/real/torch_profiler.py "$work/$name" >"$work/out" 2>"$work/err"; then
        tail -n 5 "$work/err"
        failed=$((failed + 1))
        continue
    fi
    for kind in trace.json timeline.json timeline.raw.json.gz; do
        [ -e "$work/$name.$kind" ] || { echo "$name: this version writes no $kind"; continue; }
        "$build/bin/gpuprof" report --json "$work/$name.$kind" >"$work/report" 2>"$work/err"
        if said=$(python3 tests/real/torch_profiler.py --check "$kind" "$work/out" "$work/report" 2>&1); then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
        fi
        echo "$name $kind: $said"
    done
done
[ $((passed + failed)) -gt 0 ] || { echo "no PyTorch of the index is here: make check-real fetches them"; exit 77; }
echo "$passed passed, $failed failed"
[ $failed = 0 ]
