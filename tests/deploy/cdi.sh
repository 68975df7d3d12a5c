#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs a program in a container of podman's, whose image knows nothing of gpuprof, with the devices of `gpuprof cdi generate`: both
# mount the library, and `gpuprof stat` sees the program from outside.
#
#   tests/deploy/cdi.sh BUILD_DIR
#
# The container's root is Debian's C library (tests/real/fetch).  Exits with 77 and a reason without root, podman or a mirror.
# Run: slow
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
command -v podman >/dev/null && command -v crun >/dev/null || { echo "podman and crun are not installed"; exit 77; }
[ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null || { echo "needs root"; exit 77; }
if [ -z "${GPUPROF_TEST_INSIDE:-}" ]; then
    root=$(realpath -m "${GPUPROF_REAL:-build/real}")/root-trixie
    tests/real/fetch "$root" trixie libc6 libc6-dev linux-libc-dev libcrypt1 libgcc-s1 dash || exit
    export GPUPROF_TEST_INSIDE=$root
    # Mounts of its own: /run for the specification, and cgroup v2 alone, which crun needs.
    exec unshare --mount --pid --fork --kill-child --mount-proc "$0" "$build"
fi
root=$GPUPROF_TEST_INSIDE
for link in bin lib lib64; do [ -e "$root/$link" ] || ln -s "usr/$link" "$root/$link"; done
[ -e "$root/bin/sh" ] || ln -s dash "$root/bin/sh"
mkdir -p "$root/b" "$root/opt"
work=$(mktemp -d /tmp/gpuprof-test-cdi-XXXXXX)
# A container that was killed leaves mounts below its folder.
trap 'umount -l "$work"/store/vfs-containers/*/userdata/shm 2>/dev/null; rm -rf "$work"' EXIT
mount -t tmpfs none /run && mount -t cgroup2 none /sys/fs/cgroup && mkdir -p /run/cdi || { echo "this process may not mount"; exit 77; }
passed=0 failed=0
check() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@" >"$work/out" 2>&1; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $what"; tail -n 20 "$work/out" "$work/log"; fi
}
start() { # DEVICE PROGRAM...: in a container without a network and limits
    local device=$1
    shift
    podman --root "$work/store" --runroot "$work/run" --storage-driver vfs run --rm --network=host --cgroups=disabled \
        --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 --device "gpuprof.dev/inject=$device" -v "$build:/b:ro" \
        -e LD_LIBRARY_PATH=/b/lib/gpuprof/sim --rootfs "$root" "$@" >"$work/log" 2>&1
}
seen() { # SOURCE: waits until the program is profiled from it
    for _ in $(seq 100); do
        "$build/bin/gpuprof" stat --all 2>/dev/null | grep "train_rt.*source $1" && return
        sleep 0.2
    done
    return 1
}
check "the specification is written" "$build/bin/gpuprof" cdi generate -o /run/cdi/gpuprof.json
start on /b/examples/train_rt --seconds 30 &
check "a program with the device 'on' is profiled through CUPTI" seen cupti
kill %1
wait
start hooks /bin/sh -c 'echo $LD_PRELOAD; GPUPROF_SOURCE=hooks exec /b/examples/train_rt --seconds 30' &
check "a program with the device 'hooks' is profiled through the hooks" seen hooks
check "its library is preloaded" grep -q /opt/gpuprof/lib/libgpuprof-shim.so "$work/log"
kill %2 2>/dev/null || kill %1
wait
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
