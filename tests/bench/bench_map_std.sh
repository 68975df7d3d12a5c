#!/bin/sh
# SPDX-License-Identifier: MIT
# bench_map_std.sh [BUILD [THREADS]]: the load of bench_map on std::unordered_map under a mutex.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if ! command -v "${CXX:-g++}" >/dev/null; then
    printf '# missing: unordered_map (a C++ compiler)\n'
    exit 0
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM
"${CXX:-g++}" -O2 ${BENCH_TINY:+-DBENCH_TINY} -I"$here/.." -o "$dir/bench" "$here/cxx/bench_map_std.cc" -lpthread
"$dir/bench" "${2:-2}"
