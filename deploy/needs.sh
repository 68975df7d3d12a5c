#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs what is missing to build (`needs.sh build`) or also to test (`needs.sh check`) gpuprof on Debian 12 and Ubuntu 22.04 or newer.
# Idempotent: asks the package manager only when something is missing.  Without root it prints the one command that would do it.
set -eu
build="gcc make libc6-dev pkg-config libjansson-dev libncurses-dev libzstd-dev libdw-dev libelf-dev libiberty-dev libsqlite3-dev libprotobuf-c-dev protobuf-c-compiler zlib1g-dev libbpf-dev"
check="g++ clang clang-format libclang-rt-dev libcriterion-dev tmux python3 spin binutils procps util-linux sqlite3 chromium libunwind8"
case "${1:-build}" in
build) want=$build ;;
check) want="$build $check" ;;
*) echo "usage: needs.sh build|check" >&2; exit 2 ;;
esac
if ! command -v dpkg-query >/dev/null; then
    echo "needs.sh: not a Debian or Ubuntu system: please install the equivalents of: $want" >&2
    exit 0
fi
missing=
for package in $want; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ]; then
    echo "needs.sh: missing:$missing" >&2
    echo "needs.sh: please run: sudo apt-get install -y$missing" >&2
    exit 77
fi
echo "needs.sh: installing$missing"
export DEBIAN_FRONTEND=noninteractive
# A package that this release does not have must not keep the others away.
apt-get update -qq
apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 && exit 0
for package in $missing; do
    apt-get install -y -qq --no-install-recommends "$package" >/dev/null || echo "needs.sh: $package: not available here" >&2
done
