#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs what is built, as it is, with the C libraries of other Debian releases: the programs of the catalog, compiled for that
# release, run in its root under the library, with CUPTI and with the driver hooks.  The tests stay outside: what `gpuprof` sees
# of the programs is compared with the ledger of the simulated GPU.
#
#   tests/real/roots.sh BUILD_DIR [RELEASE]...
#
# A root is $GPUPROF_REAL/root-RELEASE (build/real without that variable) and has little more than the C library.  A release that
# the mirror does not have any more is skipped.  Exits with 77 and a reason if it has none, or if this process may not mount.
# Run: slow
set -u
cd "$(dirname "$0")/../.."
[ $# -ge 1 ] || { echo "usage: tests/real/roots.sh BUILD_DIR [RELEASE]..." >&2; exit 2; }
build=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- stretch buster bullseye trixie
[ "$(uname -m)" = x86_64 ] || { echo "these roots are made for x86-64"; exit 77; }
real=$(realpath -m "${GPUPROF_REAL:-build/real}")
enter=(unshare -m)
[ "$(id -u)" = 0 ] || enter=(unshare -rm)
"${enter[@]}" true 2>/dev/null || { echo "this process may not mount"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mode=${build##*/build} # as the Makefile names its trees
mode=${mode#-}
passed=0 failed=0 skipped=0
no() { failed=$((failed + 1)); echo "FAILED $1"; tail -n 40 "$work/out"; }

prepare() { # RELEASE
    local link
    tests/real/fetch "$root" "$1" libc6 libc6-dev linux-libc-dev libcrypt1 libgcc-s1 dash || return
    for link in bin lib lib64; do # a release whose /usr has everything has these links in another package
        [ -e "$root/$link" ] || ln -s "usr/$link" "$root/$link"
    done
    [ -e "$root/bin/sh" ] || ln -s dash "$root/bin/sh"
    mkdir -p "$root/proc" "$root/dev" "$root/tmp"
}

inside() { # COMMAND...: with mounts of its own, in which the root has the build tree, and in it the programs made for the root
    "${enter[@]}" bash -c 'root=$0 build=$1
        shift
        mount --rbind /proc "$root/proc" && mount --rbind /dev "$root/dev" && mount --bind /tmp "$root/tmp" &&
            mkdir -p "$root$build" && mount --bind "$build" "$root$build" &&
            mount --bind "$root/programs" "$root$build/tests/programs" || exit 1
        exec "$@"' "$root" "$build" "$@"
}

criterion() { # WHAT TEST FILTER
    GPUPROF_TEST_ROOT=$root GPUPROF_TEST_ROOT_GLIBC=$glibc inside "$build/tests/integration/$2" --jobs "$(nproc)" --filter "$3" --tap="$work/tap" >"$work/out" 2>&1
    if [ ! -s "$work/tap" ]; then no "$1: no result"; return; fi
    local bad ok
    bad=$(grep -c '^not ok' "$work/tap") ok=$(grep '^ok' "$work/tap" | grep -vc '# SKIP')
    passed=$((passed + ok)) failed=$((failed + bad))
    echo "$1: $ok passed, $bad failed"
    [ "$ok" != 0 ] || no "$1: nothing ran"
    [ "$bad" = 0 ] || grep -A 6 '^not ok' "$work/tap" | head -n 40
}

for release; do
    root=$real/root-$release
    if ! prepare "$release" >"$work/out" 2>&1; then
        skipped=$((skipped + 1))
        echo "skipped $release: $(tail -n 1 "$work/out")"
        continue
    fi
    glibc=$(grep -aoE 'release version 2\.[0-9]+' "$root"/lib/x86_64-linux-gnu/libc.so.6 | sed 's/.*\.//')
    if ! make --no-print-directory "MODE=${mode:-release}" "ROOT=$root" root-programs >"$work/out" 2>&1; then
        no "$release: the programs"
        continue
    fi
    # A preload reaches programs that use no GPU too, and what the loader has to say it says here.
    if inside chroot "$root" /bin/sh -c "LD_PRELOAD=$build/lib/libgpuprof-shim.so /bin/sh -c 'exit 5'" >"$work/out" 2>&1; [ $? = 5 ] && [ ! -s "$work/out" ]; then
        passed=$((passed + 1))
    else
        no "$release: a shell under the preload"
    fi
    # The loader of every release hands out a stand-in for a library that is there, here without any functions.
    echo | cc -shared -nostdlib -Wl,-soname,libcublas.so.12 -x c -o "$work/libcublas.so.12" -
    found="while read -r line; do case \$line in */standin/libcublas.so.12) exit 5 ;; esac; done </proc/self/maps"
    if inside chroot "$root" /bin/sh -c "LD_AUDIT=$build/lib/gpuprof/sim/standin/libgpuprof-standin.so LD_BIND_NOW=1 LD_LIBRARY_PATH=$work LD_PRELOAD=libcublas.so.12 /bin/sh -c '$found'" >"$work/out" 2>&1; [ $? = 5 ] && [ ! -s "$work/out" ]; then
        passed=$((passed + 1))
    else
        no "$release: a stand-in for a library"
    fi
    criterion "$release, CUPTI" test_accounting 'accounting/each_program*'
    criterion "$release, hooks" test_hooks 'hooks/each_program*'
done
[ "$((passed + failed))" != 0 ] || { echo "no release could be fetched"; exit 77; }
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
