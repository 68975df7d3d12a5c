#!/bin/bash
# SPDX-License-Identifier: MIT
# Every function of the driver, the runtime, NVML and CUPTI that a library of the installed packages imports, or names in a string as
# dlsym wants it, is exported by the simulator's library of that name.  What is missing is printed, with a library that wants it.
#
#   tests/real/imports.sh [BUILD] [NAME...]
#
# NAME is a row of tests/real/index.table; without it, all rows that are installed in $GPUPROF_REAL/index (build/real/index) are
# read.  Nothing is fetched: without any the test is skipped (exit status 77).
set -u
cd "$(dirname "$0")/../.."
build=${1:-build}
[ $# -eq 0 ] || shift
sim=$build/lib/gpuprof/sim
home=${GPUPROF_REAL:-build/real}/index
[ $# -gt 0 ] || set -- $(tests/real/index)
folders=()
for name; do [ ! -e "$home/$name/complete" ] || folders+=("$home/$name"); done
[ ${#folders[@]} -gt 0 ] || { echo "tests/real/imports.sh: no package in $home"; exit 77; }
python3 tests/real/imports.py "$sim" "${folders[@]}"
