#!/bin/sh
# SPDX-License-Identifier: MIT
# Compiles and runs the simulator's own tests against a built simulator, in a temporary folder.
#   run.sh [BUILD] [NAME...]   BUILD: a build folder (build); NAME: only programs whose name begins with it
# CC and CFLAGS as usual.  Each program prints "N passed, N failed"; the last line here is their sum.  A program that
# does not compile, crashes, hangs or checks nothing is one failure; status 77 is a skip.  Status 1: something failed.
# Run: script first
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$root/build
if [ $# -gt 0 ] && [ -d "$1" ]; then
    build=$1
    shift
fi
sim=$(cd "$build/lib/gpuprof/sim" 2>/dev/null && pwd) || {
    echo "run.sh: $build: has no simulator; build it with: make sim"
    exit 1
}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
passed=0 failed=0 skipped=0
unset GPUPROF_SIM GPUPROF_SIM_FAULTS GPUPROF_SIM_LEDGER
unset CUDA_INJECTION64_PATH CUDA_VISIBLE_DEVICES CUDA_MODULE_LOADING
export SIM_SELFTEST_DIR="$work"
export LD_LIBRARY_PATH="$sim"

compile() { # NAME SOURCE [FLAG...]: $work/NAME from SOURCE
    name=$1 source=$2
    shift 2
    # shellcheck disable=SC2086 # CFLAGS is a list
    ${CC:-cc} -std=gnu11 -g -O1 -Wall -Wextra ${CFLAGS:-} -I"$root/sim/include" -I"$root/sim" -I"$here" \
        -o "$work/$name" "$source" -L"$sim" "$@" -lcuda -lpthread -lm -ldl -Wl,--allow-shlib-undefined && return 0
    echo "$name: does not compile"
    failed=$((failed + 1))
    return 1
}

tally() { # NAME STATUS: adds what the program said in $work/NAME.out
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$work/$1.out" | tail -n 1)
    if [ "$2" = 77 ]; then
        skipped=$((skipped + 1))
        echo "$1: skipped: $(tail -n 1 "$work/$1.out")"
        return
    fi
    ok=${line%% passed*} bad=${line#*passed, }
    bad=${bad%% failed*}
    passed=$((passed + ${ok:-0})) failed=$((failed + ${bad:-0}))
    if [ "$2" = 0 ] && [ "${ok:-0}" != 0 ] && [ "$bad" = 0 ]; then
        echo "$1: $line"
        return
    fi
    [ "${bad:-0}" != 0 ] || failed=$((failed + 1))
    tail -n 40 "$work/$1.out"
    echo "$1: status $2, ${line:-no result}"
}

# What tests load, and the programs that hazard.c runs.
for source in "$here"/library_*.c; do
    compile "$(basename "$source" .c).so" "$source" -shared -fPIC
done
compile serve "$root/examples/serve.c"
compile train_rt "$root/examples/train_rt.c" -lcudart
[ $# -gt 0 ] || set -- core cupti graph hazard nccl nvml nvshmem pool runtime standin stream vmm
for prefix; do
    found=
    for source in "$here/$prefix"*.c; do
        [ -f "$source" ] || continue
        found=1
        test=$(basename "$source" .c) libs=
        case $test in
        runtime* | cupti*) libs="-lcudart -l:libcupti.so.13" ;;
        esac
        # shellcheck disable=SC2086 # libraries are a list
        compile "$test" "$source" $libs || continue
        # The slowest takes 2 s; 30 s means that it hangs.
        timeout 30 "$work/$test" >"$work/$test.out" 2>&1 </dev/null
        tally "$test" $?
    done
    [ -n "$found" ] || { echo "run.sh: $prefix: no such test"; failed=$((failed + 1)); }
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
