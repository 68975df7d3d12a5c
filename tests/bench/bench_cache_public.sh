#!/bin/bash
# SPDX-License-Identifier: MIT
# The public functions of the allocator beside the mechanism below them and cub, in one process on the simulated GPU, without
# a reader of events.
set -u
cd "$(dirname "$0")/../.."
build=${1:-build}
bench=$build/tests/bench/bench_cache pairs=100000 times=9
[ -z "${BENCH_TINY:-}" ] || bench=$build/tests/tiny/bench_cache pairs=100 times=1
exec "$build/bin/gpuprof" run --sim --allocator=caching -- "$bench" $pairs $times public caching cub
