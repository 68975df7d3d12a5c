#!/bin/bash
# SPDX-License-Identifier: MIT
# Builds everything for AArch64 and runs it under QEMU's emulation of one process: some programs under the library, the
# simulator's own tests and the unit tests of what a processor can break (`core`).  That is the default, which takes some
# minutes.  `unit` runs all unit tests, and `catalog` compares the numbers of all programs with the ledger: both take long.
#
#   tests/real/aarch64.sh BUILD_DIR [programs|sim|core|unit|catalog]...
#
# BUILD_DIR is this machine's release tree, whose integration tests start the programs; what they start is in build-aarch64.  The
# headers and libraries come from the Debian release of this system into $GPUPROF_REAL/sysroot-arm64 (build/real without that
# variable).  The kernel runs AArch64 programs through QEMU in a user namespace of this test only: the system stays as it is.
# Exits with 77 and a reason without the cross compiler, QEMU, the packages or such a namespace.
# Run: slow
set -u
cd "$(dirname "$0")/../.."
[ $# -ge 1 ] || { echo "usage: tests/real/aarch64.sh BUILD_DIR [programs|sim|core|unit|catalog]..." >&2; exit 2; }
build=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- programs sim core
# Locks, orders of memory, bits, layouts of shared pages and files.
core="counter map ring ringread span hash site session cache_model cache_thread policy allocator graph hooks_number recording"
cross=aarch64-linux-gnu- qemu=$(command -v qemu-aarch64-static)
command -v ${cross}gcc >/dev/null || { echo "no ${cross}gcc: install gcc-aarch64-linux-gnu"; exit 77; }
[ -n "$qemu" ] || { echo "no qemu-aarch64-static: install qemu-user-static"; exit 77; }
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
sysroot=$(realpath -m "${GPUPROF_REAL:-build/real}")/sysroot-arm64
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# An ELF file for this processor, whose type is program or library.
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
emulated() { # COMMAND...
    QEMU_LD_PREFIX=$sysroot unshare -Urm bash -c 'mount -t binfmt_misc none /proc/sys/fs/binfmt_misc &&
        echo ":gpuprof-aarch64:M::$0:$1:$2:F" >/proc/sys/fs/binfmt_misc/register && shift 2 && exec "$@"' "$magic" "$mask" "$qemu" "$@"
}
emulated true 2>/dev/null || { echo "the kernel has no binfmt_misc for user namespaces (Linux 6.7)"; exit 77; }
tests/real/fetch -d "$sysroot" "$release:arm64" libc6-dev libgcc-s1 libjansson-dev libncurses-dev libzstd-dev libdw-dev libelf-dev \
    libiberty-dev libsqlite3-dev libprotobuf-c-dev zlib1g-dev liblzma-dev libbz2-dev libmicrohttpd-dev libbpf-dev systemtap-sdt-dev libcriterion-dev ||
    exit 77
tests=()
for test in $(find tests/unit -name 'test_*.c' | sort); do
    name=$(basename "$test" .c)
    case " $* " in *" unit "*) ;; *) case " $core " in *" ${name#test_} "*) ;; *) continue ;; esac ;; esac
    tests+=("unit/$name")
done
make --no-print-directory "-j$(nproc)" CROSS=$cross SYSROOT="$sysroot" all programs "${tests[@]/#/build-aarch64/tests/}" >"$work/out" 2>&1 ||
    { tail -n 20 "$work/out"; echo "the build failed"; exit 1; }
tests/lint/check-glibc build-aarch64/lib/*.so build-aarch64/lib/gpuprof/sim/lib*.so.* && tests/lint/check-exports build-aarch64/lib/libgpuprof.so || exit 1
passed=0 failed=0 skipped=0
no() { failed=$((failed + 1)); echo "FAILED $1"; [ -z "${2:-}" ] || tail -n 20 "$2"; }

# What QEMU or such a namespace cannot do, with the reason: tests/real/aarch64.known, one case a line.
tap() { # NAME: counts the cases of $work/tap
    local line
    [ -s "$work/tap" ] || { no "$1: no result" "$work/out"; return; }
    while read -r line; do
        case $line in
        "ok - "*"# SKIP"*) skipped=$((skipped + 1)) ;;
        "ok - "*) passed=$((passed + 1)) ;;
        "not ok - "*)
            line=${line#not ok - } line=${line%% *}
            if grep -q "^$line " tests/real/aarch64.known; then
                skipped=$((skipped + 1))
            else
                no "$1: $line"
                grep -A 6 "not ok - $line" "$work/tap" | head -n 20
            fi ;;
        esac
    done <"$work/tap"
    rm -f "$work/tap"
}

for part; do
    case $part in
    core | unit)
        for name in "${tests[@]}"; do
            ! grep -q "^$name " tests/real/aarch64.known || { skipped=$((skipped + 1)); continue; }
            emulated timeout 300 "build-aarch64/tests/$name" --jobs "$(nproc)" --tap="$work/tap" >"$work/out" 2>&1
            tap "$name"
        done ;;
    sim)
        CC="${cross}gcc --sysroot=$sysroot -B$sysroot/usr/lib/aarch64-linux-gnu/ -L$sysroot/usr/lib/aarch64-linux-gnu" \
            emulated sim/tests/run.sh build-aarch64 >"$work/out" 2>&1
        # NAME: N passed, N failed, or NAME: and what went wrong
        grep -E '^[a-z_]+: ' "$work/out" | grep -E 'passed, |: (status|does)' >"$work/lines"
        [ -s "$work/lines" ] || no "sim/tests/run.sh" "$work/out"
        while IFS=: read -r name line; do
            case $line in
            *" 0 failed"*) passed=$((passed + 1)) ;;
            *) if grep -q "^$name " tests/real/aarch64.known; then skipped=$((skipped + 1)); else no "sim/$name:$line"; fi ;;
            esac
        done <"$work/lines" ;;
    programs) # with CUPTI, and with the hooks behind a preload: the output and exit status of this machine's
        for name in linear_rt linear pool_default vmm_twice; do
            "$build/bin/gpuprof" run --sim "$build/tests/programs/$name" >"$work/wanted" 2>&1
            echo "exit $?" >>"$work/wanted"
            for source in cupti hooks; do
                preload=
                [ $source = cupti ] || preload=$PWD/build-aarch64/lib/libgpuprof-shim.so
                emulated "$qemu" -E LD_LIBRARY_PATH="$PWD/build-aarch64/lib/gpuprof/sim" -E GPUPROF_SOURCE=$source \
                    -E CUDA_INJECTION64_PATH="$PWD/build-aarch64/lib/libgpuprof.so" ${preload:+-E LD_PRELOAD="$preload"} \
                    "build-aarch64/tests/programs/$name" >"$work/out" 2>&1
                echo "exit $?" >>"$work/out"
                if cmp -s "$work/wanted" "$work/out"; then passed=$((passed + 1)); else no "$name, $source" "$work/out"; fi
            done
        done ;;
    catalog) # the tests of this machine find the other machine's files in place of its own
        emulated bash -c 'build=$0
            for part in lib bin tests/programs; do
                mount --bind "build-aarch64/$part" "$build/$part" || exit 1
            done
            exec timeout 1500 "$build/tests/integration/test_accounting" "$@"' \
            "$build" --jobs "$(nproc)" --filter 'accounting/each_program*' --tap="$work/tap" >"$work/out" 2>&1
        tap test_accounting ;;
    *) echo "no part $part" >&2; exit 2 ;;
    esac
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
