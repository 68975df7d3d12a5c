#!/bin/bash
# SPDX-License-Identifier: MIT
# Builds RMM 26.08, the memory library of RAPIDS, against the simulated GPU's runtime, and compares what gpuprof says of its pools with
# RMM's own statistics after each of thousands of requests: with CUPTI, with hooks, and recorded.
#
#   tests/real/rmm-pools.sh [BUILD]
#
# GPUPROF_RMM and GPUPROF_CCCL name git repositories of RMM, with the tag v26.08.00a, and of NVIDIA's CCCL, with v3.4.2; what was taken
# from them once stays in build/real/rmm-pools.  Without them the test is skipped (exit status 77).  The first build takes 2 minutes of
# processor time.  If the released package is there (build/real/index/rmm), its names have to be those that gpuprof looks for.
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
sim=$build/lib/gpuprof/sim
real=$(realpath -m "${GPUPROF_REAL:-build/real}")
home=$real/rmm-pools
skip() { echo "tests/real/rmm-pools.sh: $*"; exit 77; }

take() { # FOLDER REPOSITORY TAG PATH...
    local to=$home/$1 from=$2 tag=$3
    shift 3
    [ ! -d "$to" ] || return 0
    [ -n "$from" ] || skip "$to is not there, and no repository is named"
    mkdir -p "$home"
    rm -rf "$to.new"
    if [ -d "$from" ]; then
        mkdir -p "$to.new"
        git -C "$from" archive "$tag" "$@" | tar -x -C "$to.new" || skip "no $tag in $from"
    else
        git clone -q --depth 1 --branch "$tag" "$from" "$to.new" >"$home/log" 2>&1 || skip "no $tag in $from: $(tail -n 1 "$home/log")"
    fi
    mv "$to.new" "$to"
}
take rmm "${GPUPROF_RMM:-}" v26.08.00a cpp
take cccl "${GPUPROF_CCCL:-}" v3.4.2 libcudacxx/include thrust/thrust cub/cub
cuda=${CUDA_HOME:-/usr/local/cuda}
[ -e "$cuda/include/cuda_runtime_api.h" ] || skip "no CUDA toolkit in $cuda"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
pass() { passed=$((passed + 1)); echo "ok      $1"; }
fail() { failed=$((failed + 1)); echo "FAILED  $1"; [ -z "${2:-}" ] || tail -n 30 "$2" | sed 's/^/        /'; }

make -s -f tests/real/rmm/pools/build.mk OUT="$home" SIM="$sim" CUDA="$cuda" -j "$(nproc)" >"$work/log" 2>&1 ||
    { fail "RMM cannot be built" "$work/log"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }

for kind in pool arena fixed binning nested two threads; do
    for source in cupti hooks; do
        if GPUPROF_SOURCE=$source GPUPROF_LOG=info timeout -k 10 120 "$build/bin/gpuprof" run --sim -- "$home/pools" "$kind" 1 \
            >"$work/out" 2>&1 && grep -q "their pieces are counted" "$work/out"; then
            pass "$kind, $source"
        else
            fail "$kind, $source" "$work/out"
        fi
    done
done

# In a recording the pool is no allocation, and its pieces are: they name the program's lines.
if "$build/bin/gpuprof" run --sim --record="$work/r.gpuprof" -- "$home/pools" pool 2 >"$work/out" 2>&1 &&
    "$build/bin/gpuprof" peak "$work/r.gpuprof" >"$work/out" 2>&1 && grep -q 'x linear .*pool_memory_resource' "$work/out"; then
    pass "recorded: the pool's pieces are at the peak"
else
    fail "recorded" "$work/out"
fi

# While it waits, the commands say what the pools have, and that they are seen.
mkfifo "$work/go"
POOLS_WAIT=1 "$build/bin/gpuprof" run --sim -- "$home/pools" two 3 <"$work/go" >"$work/out" 2>&1 &
run=$!
exec 3>"$work/go"
for _ in $(seq 100); do
    pid=$("$build/bin/gpuprof" stat --all --json 2>/dev/null |
        jq -r ".processes[] | select(.comm == \"pools\" and ([.devices[].frameworks[] | select(.name == \"rmm\" and .events > 2900)] | length > 0)) | .pid" | tail -n 1)
    [ -z "$pid" ] || break
    sleep 0.2
done
{ "$build/bin/gpuprof" reconcile -p "${pid:-1}" --duration 1; "$build/bin/gpuprof" doctor | grep "^pid $pid "; } >"$work/said" 2>&1
echo >&3
exec 3>&-
wait "$run"
if grep -q 'rmm  *allocated  what its pools have handed out' "$work/said" && grep -q 'rmm  *cached  *idle in its pools' "$work/said" &&
    grep -q 'what rmm hands out of its pools is counted' "$work/said"; then
    pass "reconcile and doctor"
else
    fail "reconcile and doctor" "$work/said"
fi

# The released library has all functions, under the names of its version.
released=$(find "$real/index/rmm" -name librmm.so 2>/dev/null | head -n 1)
for name in 25pool_memory_resource_impl{19allocate_from_block,10free_block,19block_from_upstream} \
    31fixed_size_memory_resource_impl{19allocate_from_block,10free_block} 26arena_memory_resource_impl{8allocate,10deallocate}; do
    [ -n "$released" ] || break
    nm -D --defined-only "$released" | grep -Eq " T _ZN3rmm([0-9]+_RMM_[0-9]+_[0-9]+)?2mr6detail$name" ||
        { fail "the released librmm.so has no $name"; released=; }
done
[ -z "$released" ] || pass "the released librmm.so has the functions"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
