#!/bin/bash
# SPDX-License-Identifier: MIT
# Installs the wheel and the Debian packages where nothing of gpuprof was before, uses them as a new user would, and removes them:
# the wheel in an environment without a network, from nothing to a report page within 60 s; the packages with apt.
#
#   tests/real/packages.sh BUILD_DIR [RELEASE]...
#
# A root is $GPUPROF_REAL/system-RELEASE (build/real without that variable), made once by debootstrap.  Each test sees a copy of it,
# which it may change.  Exits with 77 and a reason without debootstrap, root's rights or a mirror.
# Run: slow
set -u
cd "$(dirname "$0")/../.."
[ $# -ge 1 ] || { echo "usage: tests/real/packages.sh BUILD_DIR [RELEASE]..." >&2; exit 2; }
build=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- bullseye bookworm trixie
[ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || { echo "this process may not mount"; exit 77; }
command -v debootstrap >/dev/null || { echo "debootstrap is not here"; exit 77; }
real=$(realpath -m "${GPUPROF_REAL:-build/real}")
mirror=${GPUPROF_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(LABEL)' 'Identifier: Packages' |
    awk '$2 == "Debian" && $3 == "Debian" { print $1; exit }')}
[ -n "$mirror" ] || { echo "this system uses no Debian mirror; GPUPROF_DEBIAN_MIRROR may name one"; exit 77; }
work=$(mktemp -d /tmp/gpuprof-test-packages.XXXXXX)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
if ! env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make --no-print-directory wheel-file deb-files >"$work/out" 2>&1; then
    tail -n 20 "$work/out"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi

prepare() { # RELEASE
    local root=$real/system-$1
    [ ! -e "$root/.complete" ] || return 0
    rm -rf "$root"
    mkdir -p "$real"
    debootstrap --variant=minbase --include=python3-venv "$1" "$root" "$mirror" >"$work/out" 2>&1 && touch "$root/.complete"
}

# The root with a layer and processes of its own; /opt has the files.  A network of its own has no way out.
inside() { # RELEASE NAME online|offline SCRIPT
    local layer=$work/$2 isolate=
    mkdir -p "$layer/new/opt" "$layer/new/etc" "$layer/work" "$layer/root"
    cp tests/real/packages/* "$layer/new/opt/"
    if [ "$3" = offline ]; then
        cp "$build"/wheel/*.whl "$layer/new/opt/"
        mkdir "$layer/new/opt/tree"
        cp -r python include LICENSE "$layer/new/opt/tree/"
        isolate=-n
    else
        cp "$build"/deb/*.deb "$layer/new/opt/"
        cp /etc/resolv.conf "$layer/new/etc/"
    fi
    # shellcheck disable=SC2086,SC2016 # an option or none; the inner shell expands it
    timeout -k 5 300 unshare -m -p -f $isolate bash -c 'mount -t overlay overlay -o "lowerdir=$0,upperdir=$1/new,workdir=$1/work" "$1/root" || exit
        for folder in dev sys; do mount --rbind "/$folder" "$1/root/$folder" || exit; done
        mount -t proc proc "$1/root/proc" || exit
        exec chroot "$1/root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=xterm LC_ALL=C.UTF-8 bash "/opt/$2"' \
        "$real/system-$1" "$layer" "$4" >"$layer.out" 2>&1 </dev/null
    local status=$?
    grep '^PASSED' "$layer.out"
    passed=$((passed + $(grep -c '^PASSED' "$layer.out")))
    if [ $status != 0 ]; then
        failed=$((failed + 1))
        echo "FAILED $2: exit $status"
        tail -n 30 "$layer.out"
    fi
    rm -rf "$layer"
}

for release; do
    if ! prepare "$release"; then
        skipped=$((skipped + 1))
        echo "skipped $release: $(tail -n 1 "$work/out")"
        continue
    fi
    echo "$release"
    inside "$release" "wheel-$release" offline wheel.sh
    # The command's libraries are those of the build's release; Debian 11 lacks some.
    [ "$release" = bullseye ] || inside "$release" "deb-$release" online deb.sh
done
[ "$((passed + failed))" != 0 ] || { echo "no release could be fetched"; exit 77; }
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
