#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs real programs that use the driver's interface on the simulated GPU under gpuprof: PyCUDA with its own pools, and mumax3, a
# program in Go, which ends without running exit handlers.
#
#   tests/real/programs.sh [BUILD]
#
# The packages come from the mirror once; without it the test is skipped (exit status 77).
# Run: slow
set -u
cd "$(dirname "$0")/../.."
build=${1:-build}
root=${GPUPROF_REAL:-build/real}/programs-root
lib=$root/usr/lib/x86_64-linux-gnu
system="base-files bash coreutils libacl1 libattr1 libbz2-1.0 libc6 libcap2 libcrypt1 libexpat1 libffi8 libgcc-s1 libgfortran5 libgmp10
    liblzma5 libncursesw6 libpcre2-8-0 libpython3-stdlib libpython3.13-minimal libpython3.13-stdlib libreadline8t64 libselinux1
    libssl3t64 libstdc++6 libtinfo6 libuuid1 libzstd1 python3 python3-minimal python3.13 python3.13-minimal zlib1g"
pycuda="libblas3 libboost-python1.83.0 libboost-thread1.83.0 liblapack3 python3-mako python3-markupsafe python3-numpy
    python3-platformdirs python3-pycuda python3-pytools python3-typing-extensions"
# shellcheck disable=SC2086 # lists
why=$(tests/real/fetch "$root" trixie $system $pycuda mumax3 2>&1) || { echo "$why" | tail -n 1; exit 77; }
tests/real/inside "$root" true || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
pass() { passed=$((passed + 1)); echo "ok      $1"; }
fail() { failed=$((failed + 1)); echo "FAILED  $1"; [ -z "${2:-}" ] || tail -n 30 "$2" | sed 's/^/        /'; }

# Random numbers and Fourier transforms are not under test.
prepare() {
    local driver
    driver=$(echo "$root"/usr/lib/python3/dist-packages/pycuda/_driver.*.so)
    ln -sf blas/libblas.so.3 "$lib/libblas.so.3"
    ln -sf lapack/liblapack.so.3 "$lib/liblapack.so.3"
    tests/real/stand-in libcufft.so.11 'cufft[A-Z].*' "$lib/libcufft.so.11" "$root/usr/bin/mumax3"
    tests/real/stand-in libcurand.so.10 'curand[A-Z].*' "$lib/libcurand.so.10" "$root/usr/bin/mumax3" "$driver"
}

python() { # SOURCE
    GPUPROF_SOURCE=$1 PYTHONPATH=$PWD/python timeout -k 10 120 "$build/bin/gpuprof" run --sim -- tests/real/inside "$root" \
        python3 tests/real/programs/pycuda_memory.py >"$work/out" 2>&1 </dev/null
    local status=$?
    if [ "$status" = 0 ] && grep -q ' agree$' "$work/out"; then pass "PyCUDA ($1): $(grep ' agree$' "$work/out")"; else
        fail "PyCUDA ($1): exit $status" "$work/out"
    fi
}

# mumax3 writes a table of what it computed; with gpuprof it is the same.
mumax() { # FOLDER STEPS COMMAND...: runs it
    local folder=$work/$1
    mkdir -p "$folder"
    sed "s/LAST/$2/" tests/real/programs/field.mx3 >"$folder.mx3"
    shift 2
    "$@" tests/real/inside "$root" mumax3 -f -http= -o "$folder" "$folder.mx3" >"$folder.out" 2>&1 </dev/null
}

simulated() { LD_LIBRARY_PATH=$PWD/$build/lib/gpuprof/sim "$@"; }

compare() { # SOURCE
    mumax plain 1 simulated || { fail "mumax3 alone" "$work/plain.out"; return; }
    if GPUPROF_SOURCE=$1 mumax under 1 "$build/bin/gpuprof" run --sim -- && [ -s "$work/plain/table.txt" ] &&
        cmp -s "$work/plain/table.txt" "$work/under/table.txt"; then
        pass "mumax3 ($1): the same table as without gpuprof"
    else
        fail "mumax3 ($1)" "$work/under.out"
    fi
}

# Seen from outside while it runs: memory is held, and no event was lost.
look() {
    local pid='' text=''
    mumax seen 100000000 timeout -k 5 120 "$build/bin/gpuprof" run --sim -- &
    local job=$!
    for _ in $(seq 300); do
        pid=$(pgrep -f "^mumax3 -f -http= -o $work/seen" | head -n 1)
        text=$([ -z "$pid" ] || "$build/bin/gpuprof" stat --json -p "$pid" 2>/dev/null | python3 -c '
import json, sys
one = json.load(sys.stdin)["processes"][0]
stats = one["devices"][0]["stats"]
if stats["allocated_bytes.all.current"] > 0:
    print("lost" if any(one["lost"].values()) else "held", stats["allocated_bytes.all.current"])' 2>/dev/null)
        [ -z "$text" ] || break
        sleep 0.1
    done
    [ -z "$pid" ] || kill "$pid"
    wait "$job"
    case $text in held*) pass "mumax3 from outside: ${text#held } bytes" ;; *) fail "mumax3 from outside: ${text:-nothing seen}" "$work/seen.out" ;; esac
}

prepare || { echo "tests/real/programs.sh: the stand-ins cannot be made"; exit 1; }
python cupti
python hooks
compare cupti
compare hooks
look
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
