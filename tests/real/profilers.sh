#!/bin/bash
# SPDX-License-Identifier: MIT
# The program's own profiler has priority: Kineto in each PyTorch of tests/real/index.table that is installed, and XLA's tracer in
# each JAX, get from the simulated CUPTI under `gpuprof run` what they get without it, and gpuprof counts on.  The simulated CUPTI
# has no activities, so neither shows events of the GPU.
#
#   tests/real/profilers.sh [BUILD]
#
# Nothing is fetched; without one of them the test is skipped (exit status 77).
# Run: slow
set -u
cd "$(dirname "$0")/../.."
build=$(cd "${1:-build}" && pwd)
real=${GPUPROF_REAL:-build/real}/index
passed=0 failed=0
for name in $(tests/real/index | grep -E '^(torch|jax)-'); do
    python=$real/$name/bin/python3
    [ -x "$python" ] && [ -e "$real/$name/complete" ] || continue
    case $name in torch-*) item=2 ;; *) item=jax ;; esac
    out=$(PYTHON=$python GPUPROF_BUILD=$build python3 tests/gpu/first.py --dry-run --only=$item 2>&1)
    status=$?
    echo "$name $(echo "$out" | head -n 1)"
    if [ $status = 0 ] && [[ $out == "$item "*ok* ]]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
[ $((passed + failed)) -gt 0 ] || { echo "no PyTorch and no JAX of the index is here: make check-real fetches them"; exit 77; }
echo "$passed passed, $failed failed"
[ $failed = 0 ]
