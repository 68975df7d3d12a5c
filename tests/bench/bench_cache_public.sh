#!/bin/bash
# SPDX-License-Identifier: MIT
# The public functions of the allocator beside the mechanism below them and cub, in one process on the simulated GPU, without
# a reader of events.
set -u
cd "$(dirname "$0")/../.."
build=${1:-build}
exec "$build/bin/gpuprof" run --sim --allocator=caching -- "$build/tests/bench/bench_cache" 100000 9 public caching cub
