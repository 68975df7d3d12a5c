#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs the missing packages on Debian 12 and Ubuntu 22.04 or newer: to build gpuprof (`needs.sh build`), for `make wheel` and
# `make deb` (`needs.sh package`), for `make check` (`needs.sh check`), for `make check-all` and the GPU bundle (`needs.sh all`), or also for `make bench` and its peers (`needs.sh bench`). Idempotent: runs the package
# manager only if a package is missing. Without root it prints the command to run.
set -eu
cd "$(dirname "$0")/.."
build="gcc make libc6-dev pkg-config libjansson-dev libncurses-dev libzstd-dev libdw-dev libelf-dev libiberty-dev libsqlite3-dev libprotobuf-c-dev protobuf-c-compiler zlib1g-dev libmicrohttpd-dev clang libbpf-dev bpftool systemtap-sdt-dev"
package="dpkg-dev python3 liblzma-dev libbz2-dev"
check="clang-format libcriterion-dev tmux python3 binutils procps util-linux sqlite3 python3-pytest python3-pytest-xdist python3-ipython"
all="python3-yaml golang-go podman crun g++ musl-tools gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static qemu-system-x86 cpio libclang-rt-dev spin chromium libunwind8 lintian twine debootstrap python3-venv openmpi-bin mpich"
bench="lttng-tools liblttng-ust-dev heaptrack libabsl-dev robin-map-dev"
case "${1:-build}" in
build) want=$build ;;
package) want="$build $package" ;;
check) want="$build $package $check" ;;
all) want="$build $package $check $all" ;;
bench) want="$build $package $check $all $bench" ;;
*) echo "usage: needs.sh build|package|check|all|bench" >&2; exit 2 ;;
esac
if ! command -v dpkg-query >/dev/null; then
    echo "needs.sh: not a Debian or Ubuntu system: please install the equivalents of: $want" >&2
    exit 0
fi
missing=
for package in $want; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
# Unpacks Prometheus's binaries for the test of the metrics into the build tree, since the installed package would start a
# server. Without them that test is skipped.
aside() {
    [ "${1:-}" = all ] || return 0
    command -v prometheus >/dev/null && command -v promtool >/dev/null && return 0
    [ -x build/aside/usr/bin/promtool ] && return 0
    mkdir -p build/aside
    (cd build/aside && apt-get download -qq prometheus >/dev/null 2>&1 && dpkg-deb -x prometheus_*.deb . && rm -f prometheus_*.deb) ||
        echo "needs.sh: prometheus: not available here" >&2
}
[ -n "$missing" ] || { aside "${1:-build}"; exit 0; }
if [ "$(id -u)" != 0 ]; then
    echo "needs.sh: missing:$missing" >&2
    # Not apt-get itself: a release may lack one of them, and its lists may be old.
    echo "needs.sh: please run: sudo deploy/needs.sh ${1:-build}" >&2
    exit 77
fi
echo "needs.sh: installing$missing"
export DEBIAN_FRONTEND=noninteractive
# A package that this release lacks must not prevent the installation of the others.
apt-get update -qq
apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 && { aside "${1:-build}"; exit 0; }
for package in $missing; do
    apt-get install -y -qq --no-install-recommends "$package" >/dev/null || echo "needs.sh: $package: not available here" >&2
done
aside "${1:-build}"
