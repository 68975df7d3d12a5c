#!/bin/bash
# SPDX-License-Identifier: MIT
# bench_torch.sh [BUILD [ROUNDS]]: a pair of raw_delete and raw_alloc of PyTorch's own CUDA allocator on the simulated GPU, without
# gpuprof and with it in turn, 100 blocks live.  Values: the medians of the rounds' lowest tenths and of their medians, ns a pair.
# tests/real/torch-root has to have made its folder before.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build} rounds=${2:-5}
real=${GPUPROF_REAL:-build/real}
root=$real/torch-root
if [ ! -d "$root" ]; then
    echo "# missing: PyTorch (tests/real/torch-root makes its folder)"
    exit 0
fi
why=$(tests/real/fetch "$real/torch-dev" trixie libtorch-cuda-dev 2>&1) || { echo "# missing: PyTorch (${why##*$'\n'})"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
lib=$root/usr/lib/x86_64-linux-gnu
"${CXX:-g++}" -O2 -std=c++17 -w -I "$real/torch-dev/usr/include" -I "${CUDA_HOME:-/usr/local/cuda}/include" -o "$work/bench" \
    tests/bench/cxx/bench_torch.cc "$lib/libc10_cuda.so.2.6" "$lib/libc10.so.2.6" \
    -Wl,--unresolved-symbols=ignore-all,--allow-shlib-undefined
for round in $(seq "$rounds"); do
    LD_LIBRARY_PATH=$PWD/$build/lib/gpuprof/sim tests/real/inside "$root" "$work/bench" >>"$work/without"
    "$build/bin/gpuprof" run --sim -- tests/real/inside "$root" "$work/bench" >>"$work/with"
done
for how in without with; do
    for column in 1 2; do
        name=$([ $column = 1 ] && echo p10 || echo median)
        printf 'torch %s gpuprof, %s\t1\t%s\n' "$how" "$name" \
            "$(cut -d' ' -f$column "$work/$how" | sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)], "(" all[1], "to", all[NR] ")" }')"
    done
done
echo "# load $(cut -d' ' -f1-3 /proc/loadavg), $(nproc) CPUs"
