#!/bin/bash
# SPDX-License-Identifier: MIT
# Builds the tests of RMM, the memory library of RAPIDS, and runs them on the simulated GPU: without gpuprof, under it with CUPTI and
# with hooks, recorded, and with gpuprof's caching allocator in the place of cudaMalloc.  Every test that passes without gpuprof has
# to pass in every other mode.
#
#   tests/real/rmm.sh [BUILD]
#
# RMM's sources are no package.  GPUPROF_RMM names a git repository of RMM with the tag v25.10.00, or a folder with that version; what
# was fetched once stays in build/real/rmm/source.  Without both the test is skipped (exit status 77).  GoogleTest comes from the
# package mirror.  The first build takes 3 minutes of processor time.
# Run: slow
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
sim=$build/lib/gpuprof/sim
real=$(realpath -m "${GPUPROF_REAL:-build/real}")
home=$real/rmm version=v25.10.00
skip() { echo "tests/real/rmm.sh: $*"; exit 77; }

source=$home/source
[ ! -d "${GPUPROF_RMM:-}/cpp/tests" ] || source=$GPUPROF_RMM
if [ ! -d "$source/cpp/tests" ]; then
    [ -n "${GPUPROF_RMM:-}" ] || skip "GPUPROF_RMM names no sources of RMM $version, and $source has none"
    mkdir -p "$home"
    git archive --remote="$GPUPROF_RMM" "$version" cpp 2>"$home/log" >"$home/source.tar" ||
        git clone -q --depth 1 --branch "$version" "$GPUPROF_RMM" "$source.new" >"$home/log" 2>&1 ||
        skip "no $version in $GPUPROF_RMM: $(tail -n 1 "$home/log")"
    if [ -s "$home/source.tar" ]; then
        mkdir -p "$source.new"
        tar -x -C "$source.new" -f "$home/source.tar"
    fi
    rm -f "$home/source.tar"
    mv "$source.new" "$source"
fi
cuda=${CUDA_HOME:-/usr/local/cuda}
[ -e "$cuda/include/cccl/cuda/memory_resource" ] || skip "no CUDA toolkit with CCCL 3 in $cuda"
why=$(GPUPROF_REAL_ONLY=usr tests/real/fetch "$home/gtest" bookworm libgtest-dev libgmock-dev 2>&1) || { echo "$why" | tail -n 1; exit 77; }

work=$(mktemp -d)
mkdir "$work/here"
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
pass() { passed=$((passed + 1)); echo "ok      $1"; }
fail() { failed=$((failed + 1)); echo "FAILED  $1"; [ -z "${2:-}" ] || tail -n 30 "$2" | sed 's/^/        /'; }

make -s -f tests/real/rmm/build.mk SOURCE="$source" OUT="$home" SIM="$sim" GTEST="$home/gtest" CUDA="$cuda" -j "$(nproc)" >"$work/log" 2>&1 ||
    { fail "RMM cannot be built" "$work/log"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }

# Each program's results go into one list of "program test result", which tells modes apart by nothing but the results.
tests() { # MODE COMMAND...
    local mode=$1 program name status
    shift
    : >"$work/$mode.list"
    while read -r program; do
        name=${program#"$home/tests/"}
        [ "$mode" != recorded ] || export GPUPROF_RECORD=$work/${name//\//-}.gpuprof
        # Some tests write files where they are.
        (cd "$work/here" && timeout -k 10 120 "$@" "$program" >"$work/out" 2>"$work/error" </dev/null)
        status=$?
        sed -n "s,^\[  *\(OK\|FAILED\|SKIPPED\) \] \([^ ]*/[^ ,]*\|[^ ,]*\.[^ ,]*\) (.*ms)\$,$name \2 \1,p" "$work/out" >>"$work/$mode.list"
        [ "$status" = 0 ] || { echo "$name exit $status"; tail -n 15 "$work/out" "$work/error"; } >>"$work/$mode.failures"
    done < <(find "$home/tests" -type f -perm -u+x | sort)
    sort -o "$work/$mode.list" "$work/$mode.list"
}

same() { # MODE COMMAND...: as without gpuprof, and nothing failed
    tests "$@"
    diff "$work/bare.list" "$work/$1.list" >>"$work/$1.failures"
    if [ -s "$work/$1.failures" ]; then fail "$1" "$work/$1.failures"; else pass "$1: $(grep -c ' OK$' "$work/$1.list") tests of RMM"; fi
}

tests bare env LD_LIBRARY_PATH="$sim"
if [ "$(grep -c ' OK$' "$work/bare.list")" -lt 570 ] || [ -s "$work/bare.failures" ]; then
    touch "$work/bare.failures"
    fail "without gpuprof: $(grep -c ' OK$' "$work/bare.list") tests passed" "$work/bare.failures"
else
    pass "without gpuprof: $(grep -c ' OK$' "$work/bare.list") tests of RMM"
fi
GPUPROF_SOURCE=cupti same cupti "$build/bin/gpuprof" run --sim --
GPUPROF_SOURCE=hooks same hooks "$build/bin/gpuprof" run --sim --
same caching "$build/bin/gpuprof" run --sim --allocator=caching --
same recorded "$build/bin/gpuprof" run --sim --
# RMM's memory resources are code in headers, which is compiled into the test: it calls cudaMalloc itself, not librmm.so.
recording=$work/mr-device-mr_ref_tests.gpuprof
if "$build/bin/gpuprof" peak "$recording" >"$work/out" 2>&1 && grep -q ' 100.0 %   program$' "$work/out"; then
    pass "the recording: the memory at the peak is the program's"
else
    fail "the recording" "$work/out"
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
