#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs what is built, and removes it.  `make install` and `make uninstall` call it.
#
#   install.sh install BUILD_DIR PREFIX DESTDIR VERSION
#   install.sh uninstall BUILD_DIR PREFIX DESTDIR
#
# PREFIX/lib/gpuprof/installed lists the folders that install made and the files that it wrote, relative to PREFIX, a line each.
# uninstall removes these files, and those of the folders that are empty then.  What was there before stays.
set -eu
cd "$(dirname "$0")/.."
what=$1 build=$2 prefix=$3 version=${5:-} top=$4$3
say() { echo "make $what: $*" >&2; }
case $prefix in /*) ;; *) say "PREFIX=$prefix: must be an absolute path"; exit 2 ;; esac
list=$top/lib/gpuprof/installed

remove() { # a path of the list must not lead out of the prefix
    while IFS= read -r line; do
        case $line in *../* | */.. | /*) say "$list: $line: not a path below PREFIX"; exit 1 ;; esac
        case $line in
        ./) rmdir -- "$top" 2>/dev/null || true ;;
        */) rmdir -- "$top/$line" 2>/dev/null || true ;;
        ?*) rm -f -- "$top/$line" ;;
        esac
    done
}

if [ "$what" = uninstall ]; then
    [ -f "$list" ] || { say "$list: missing: gpuprof is not installed under $top by make install"; exit 1; }
    order=$(mktemp)
    trap 'rm -f "$order"' EXIT
    # Files first, then folders from the deepest; PREFIX itself, if install made it, is last.
    { grep -v '/$' "$list"; grep '/$' "$list" | LC_ALL=C sort -r; } >"$order"
    remove <"$order"
    echo "removed from $top"
    exit 0
fi

new=$(mktemp)
trap 'rm -f "$new"' EXIT
umask 022
[ ! -f "$list" ] || cat "$list" >"$new"

folder() { # PATH below the prefix
    [ ! -d "$top${1:+/$1}" ] || return 0
    case $1 in
    '')
        mkdir -p "$top"
        echo ./ >>"$new"
        return 0
        ;;
    */*) folder "${1%/*}" ;;
    *) folder '' ;;
    esac
    mkdir "$top/$1"
    echo "$1/" >>"$new"
}
put() { # MODE FILE PATH: aside and into place, since a program that runs keeps the file that it mapped
    folder "${3%/*}"
    install -m "$1" "$2" "$top/$3.new"
    mv -f "$top/$3.new" "$top/$3"
    echo "$3" >>"$new"
}
filled() { # MODE TEMPLATE PATH SED...
    local mode=$1 template=$2 path=$3 made
    shift 3
    made=$(mktemp)
    sed "$@" "$template" >"$made"
    put "$mode" "$made" "$path"
    rm -f "$made"
}

put 755 "$build/bin/gpuprof" bin/gpuprof
for file in libgpuprof.so libgpuprof-shim.so; do put 755 "$build/lib/$file" "lib/$file"; done
for file in libcuda.so.1 libnvidia-ml.so.1 libcupti.so.13 libcupti.so.12 libcudart.so.13 libcudart.so.12 libgpuprof-sim.so; do put 755 "$build/lib/gpuprof/sim/$file" "lib/gpuprof/sim/$file"; done
for file in "$build"/lib/gpuprof/sim/standin/*.so*; do put 755 "$file" "lib/gpuprof/sim/standin/${file##*/}"; done
for file in sim/python/*.py; do put 644 "$build/lib/gpuprof/$file" "lib/gpuprof/$file"; done
put 755 "$build/lib/gpuprof/sim/bin/nvidia-smi" lib/gpuprof/sim/bin/nvidia-smi
put 644 "$build/lib/gpuprof/sim/libcudart_static.a" lib/gpuprof/sim/libcudart_static.a
for file in include/gpuprof/*.h; do put 644 "$file" "$file"; done
# Programs find the library by their run path, except where the dynamic loader looks anyway.
runpath=" -Wl,-rpath,$prefix/lib"
[ "$prefix" != /usr ] || runpath=
filled 644 deploy/gpuprof.pc.in lib/pkgconfig/gpuprof.pc -e "s|@PREFIX@|$prefix|; s|@VERSION@|$version|; s|@RUNPATH@|$runpath|"
put 644 "$build/man/gpuprof.1" share/man/man1/gpuprof.1
put 644 "$build/completion/bash" share/bash-completion/completions/gpuprof
put 644 "$build/completion/zsh" share/zsh/site-functions/_gpuprof
put 644 "$build/completion/fish" share/fish/vendor_completions.d/gpuprof.fish
filled 644 deploy/systemd/gpuprof-agent.service lib/systemd/system/gpuprof-agent.service -e "s|/usr/local/bin|$prefix/bin|"
put 644 deploy/systemd/gpuprof-agent-attach.conf share/doc/gpuprof/examples/gpuprof-agent-attach.conf
put 644 deploy/systemd/gpuprof-agent.default share/doc/gpuprof/examples/gpuprof-agent.default
put 644 deploy/prometheus/gpuprof.rules.yml share/doc/gpuprof/prometheus/gpuprof.rules.yml
for file in deploy/grafana/*.json; do put 644 "$file" "share/doc/gpuprof/grafana/${file##*/}"; done
for file in README.md NEWS.md SECURITY.md docs/*.md docs/understand/*.md docs/tutorials/*.md docs/schema/*.json docs/pictures/*.png; do put 644 "$file" "share/doc/gpuprof/$file"; done
echo lib/gpuprof/installed >>"$new"
LC_ALL=C sort -u "$new" >"$list.new"
chmod 644 "$list.new"
mv -f "$list.new" "$list"
echo "installed under $top: $(grep -cv '/$' "$list") files"
