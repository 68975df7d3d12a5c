#!/bin/sh
# SPDX-License-Identifier: MIT
# Compiles and runs the simulator's own tests against a built simulator.
#   run.sh [NAME...]       all of them, or those whose file name begins with a NAME; library_*.c are loaded by tests
# SIM=DIR (build/lib/gpuprof/sim), CC, CFLAGS as usual.  Status 0: every check passed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
sim=$(cd "${SIM:-$root/build/lib/gpuprof/sim}" && pwd) || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
status=0
unset GPUPROF_SIM GPUPROF_SIM_FAULTS GPUPROF_SIM_LEDGER CUDA_INJECTION64_PATH CUDA_VISIBLE_DEVICES CUDA_MODULE_LOADING
export SIM_SELFTEST_DIR="$work"
flags="-std=gnu11 -g -O1 -Wall -Wextra ${CFLAGS:-} -I$root/src/sim/include -I$root/src/sim -I$here"
# Libraries that tests load.
for source in "$here"/library_*.c; do
    # shellcheck disable=SC2086 # flags are a list
    ${CC:-cc} $flags -shared -fPIC -o "$work/$(basename "$source" .c).so" "$source" -L"$sim" -lcuda \
        -Wl,--allow-shlib-undefined || status=1
done
[ $# -gt 0 ] || set -- core cupti event graph hazard pool runtime stream vmm
for name; do
    for source in "$here/$name"*.c; do
        [ -f "$source" ] || continue
        test=$(basename "$source" .c)
        libs=-lcuda
        case $test in
        runtime* | cupti*) libs="-lcudart -lcuda -l:libcupti.so.13" ;;
        esac
        # shellcheck disable=SC2086 # flags and libraries are lists
        if ! ${CC:-cc} $flags -o "$work/$test" "$source" -L"$sim" $libs -lpthread -lm -ldl -Wl,--allow-shlib-undefined; then
            echo "$test: does not compile"
            status=1
            continue
        fi
        printf '%s: ' "$test"
        LD_LIBRARY_PATH=$sim timeout 120 "$work/$test"
        code=$?
        [ $code -eq 0 ] || { echo "$test: status $code"; status=1; }
    done
done
exit $status
