#!/bin/bash
# SPDX-License-Identifier: MIT
# What people measured on real GPUs, and what the dry run says of the same programs: a real PyTorch on the simulated GPU that the
# source names gives each published figure of tests/real/published/figures.table, in all of its digits.
#
#   tests/real/published.sh [BUILD]
#
# It is the PyTorch of tests/real/standins.sh; without it the test is skipped (exit status 77).  Where a version is known to ask for
# something else than the published one, versions.table has its figure.
# Run: slow
set -u
shopt -s nullglob
# 2.15 gives cuBLAS a workspace for each call, unless this is set; earlier versions keep it, and do not know the variable.
export TORCH_CUBLAS_WORKSPACE_CACHE=1
cd "$(dirname "$0")/../.."
build=$(cd "${1:-build}" && pwd)
root=${GPUPROF_TORCH_ROOT:-}
[ -n "$root" ] || root=$(tests/real/torch-root 2>&1) || { echo "$root" | tail -n 1; exit 77; }
tests/real/inside "$root" true || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(sed -n "s/^__version__ = '\([0-9]*\.[0-9]*\).*/\1/p" "$root"/lib/python3*/site-packages/torch/version.py \
    "$root"/usr/lib/python3/dist-packages/torch/version.py 2>/dev/null)
table=$work/table
awk -v version="$version" '
    /^#/ {next}
    FILENAME ~ /versions.table$/ {if ($1 == version) other[$2, $3, $4, $5, $6] = $7; next}
    ($1, $2, $3, $4, $5) in other {$6 = other[$1, $2, $3, $4, $5]; count++}
    {print}
    END {if (count) print "        PyTorch " version ": " count " figures are those of versions.table" >"/dev/stderr"}
' tests/real/published/versions.table tests/real/published/figures.table >"$table"
failed=0
program=(tests/real/inside "$root" python3 tests/real/published/measure.py "$table")

while read -r gpu workspaces; do
    settings=()
    # PyTorch up to 1.13 did not count the workspaces, because cuBLAS took them itself.
    [ "$workspaces" = counted ] || settings=(CUBLAS_WORKSPACE_CONFIG=:0:0 DISABLE_ADDMM_CUDA_LT=1)
    env "${settings[@]}" timeout -k 10 400 "$build/bin/gpuprof" run --sim="gpu=$gpu,contents=none" -- \
        "${program[@]}" "$gpu" "$workspaces" >"$work/out" 2>&1 </dev/null
    status=$?
    if [ $status = 0 ] && ! grep -q ^FAILED "$work/out" &&
        [ "$(grep -c ^ok "$work/out")" = "$(grep -c "^$gpu $workspaces " "$table")" ]; then
        echo "ok      $gpu, workspaces $workspaces: $(grep -c ^ok "$work/out") figures"
    else
        failed=$((failed + 1))
        echo "FAILED  $gpu, workspaces $workspaces: exit $status"
        grep -v ^ok "$work/out" | tail -n 40
    fi
done < <(grep -v '^#' "$table" | cut -d' ' -f1,2 | sort -u)

# The command itself, from the recording of the driver's and the allocator's calls.
while read -r gpu case arguments; do
    timeout -k 10 300 "$build/bin/gpuprof" dryrun --json --gpu="$gpu" -- "${program[@]}" "$gpu" counted "$case" "$arguments" \
        >"$work/json" 2>"$work/error" </dev/null
    status=$?
    published=$(awk -v row="$gpu counted $case $arguments peak_mib" 'index($0, row " ") == 1 {print $6}' "$table")
    if [ $status = 0 ] && python3 -c '
import json, sys
rank = json.load(open(sys.argv[1]))["ranks"][0]
peak = rank["allocated_peak_bytes"] - rank["assumed_bytes"]
print(peak)
sys.exit(peak != float(sys.argv[2]) * 2 ** 20)' "$work/json" "$published" >"$work/out" 2>&1; then
        echo "ok      dryrun on $gpu: $case $arguments, $(cat "$work/out") bytes"
    else
        failed=$((failed + 1))
        echo "FAILED  dryrun on $gpu: $case $arguments: exit $status, published $published MiB, here $(cat "$work/out") bytes"
        tail -n 20 "$work/error"
    fi
done <<'LIST'
a100-80g cross_entropy 32768
a100-80g swiglu 8192
h100-80g layer_norm 16384
LIST
echo "$failed failed"
[ "$failed" = 0 ]
