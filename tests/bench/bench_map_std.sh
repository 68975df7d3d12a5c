#!/bin/sh
# SPDX-License-Identifier: MIT
# bench_map_std.sh [BUILD [THREADS]]: the load of bench_map on hash maps of C++ under a mutex.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if ! command -v "${CXX:-g++}" >/dev/null; then
    printf '# missing: unordered_map (a C++ compiler)\n'
    exit 0
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM
# Abseil's hash has a part in its libraries.
absl=$(pkg-config --libs absl_flat_hash_map 2>/dev/null || true)
"${CXX:-g++}" -std=c++17 -O2 ${BENCH_TINY:+-DBENCH_TINY} -I"$here/.." -o "$dir/bench" "$here/cxx/bench_map_std.cc" -lpthread $absl
"$dir/bench" "${2:-2}"
