#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs real programs that use the driver's interface on the simulated GPU under gpuprof: PyCUDA with its own pools, mumax3, a
# program in Go, which ends without running exit handlers, and this system's ffmpeg and hashcat, where it has them.
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

recorded() { # NAME COMMAND...: a recording of it without losses, on standard output "PEAK END" of the allocated bytes
    "$build/bin/gpuprof" run --sim=gpu=a100-40g --force --record="$work/$1" -- "${@:2}" >"$work/out" 2>&1 </dev/null
    "$build/bin/gpuprof" report --json "$work/$1" 2>>"$work/out" | python3 -c '
import json, sys
device = json.load(sys.stdin)["devices"][0]
print(device["allocated_peak_bytes"], device["allocated_end_bytes"])'
}

# A frame of 1920 x 1080 in NV12 has lines of 2048 bytes on the GPU, and each goes back into a pool of ffmpeg's.
ffmpeg_uploads() { # SOURCE
    local told
    told=$(GPUPROF_SOURCE=$1 recorded ffmpeg timeout -k 5 60 ffmpeg -nostdin -loglevel error -init_hw_device cuda=gpu -filter_hw_device gpu \
        -f lavfi -i testsrc=size=1920x1080:duration=1 -vf format=nv12,hwupload,hwdownload,format=nv12 -f null -)
    if [ "$told" = "$((2048 * 1080 * 3 / 2)) 0" ]; then pass "ffmpeg ($1): a frame, $told"; else fail "ffmpeg ($1): $told" "$work/out"; fi
}

# It compiles its kernels with NVRTC, for which an environment of tests/real/index is looked through.  4 letters, MD5: what it
# takes depends on the GPU alone.
hashcat_attacks() { # SOURCE
    local told nvrtc
    nvrtc=$(find -L "$(dirname "$root")"/index/*/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib -name 'libnvrtc.so.12' 2>/dev/null | head -n 1)
    [ -n "$nvrtc" ] || { echo "        hashcat is not run: no environment of tests/real/index has NVRTC"; return; }
    mkdir -p "$work/nvrtc"
    ln -sf "$nvrtc" "$work/nvrtc/libnvrtc.so"
    echo 00c6ee2e21a7548de6260cf72c4f4b5b >"$work/hash"
    told=$(GPUPROF_SOURCE=$1 HOME=$work LD_LIBRARY_PATH=$work/nvrtc:${nvrtc%/*} recorded hashcat timeout -k 5 300 hashcat -m 0 -a 3 -d 1 --force \
        --potfile-disable --self-test-disable "$work/hash" '?l?l?l?l')
    if [[ $told =~ ^2[0-9]{9}\ 0$ ]]; then pass "hashcat ($1): $told"; else fail "hashcat ($1): $told" "$work/out"; fi
}

prepare || { echo "tests/real/programs.sh: the stand-ins cannot be made"; exit 1; }
python cupti
python hooks
compare cupti
compare hooks
look
for program in "ffmpeg uploads" "hashcat attacks"; do
    if command -v "${program% *}" >/dev/null; then
        "${program/ /_}" cupti
        "${program/ /_}" hooks
    else
        echo "        ${program% *} is not run: this system does not have it"
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
