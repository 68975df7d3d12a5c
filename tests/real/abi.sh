#!/bin/bash
# SPDX-License-Identifier: MIT
# Compares our declarations of NVIDIA's interface with the headers of older versions of CUDA.  tests/lint/check-abi does
# it for the version that the declarations were made from.
#
#   tests/real/abi.sh BUILD
#
# A name that an older version does not have yet is counted.  A difference is an error unless tests/real/abi.known
# gives the reason for it.  Prints "N passed, N failed, N skipped"; exits with 77 where no headers can be had.
# Run: slow
set -u
cd "$(dirname "$0")/../.."
real=${GPUPROF_REAL:-build/real}
mkdir -p "$real"
passed=0 failed=0 skipped=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One fact a line: the numbers and sizes of the hooks, each parameter, and what abi.c has besides.
awk '/^GP_HOOK\(/ {
    line = $0; sub(/^GP_HOOK\(/, "", line); id = line; sub(/,.*/, "", id); sub(/^[^,]*, */, "", line)
    name = line; sub(/,.*/, "", name)
    printf "SAME_NUMBER(%s, CUPTI_DRIVER_TRACE_CBID_%s);\nSAME_SIZE(struct gp_params_%s, %s_params);\n", id, name, name, name
}' src/source/hooks.def >"$work/facts"
tests/lint/check-abi --fields >>"$work/facts"
awk '/^SAME_/ { line = ""; open = 1 } open { gsub(/^ +/, " "); line = line $0 } open && /;$/ { print line; open = 0 }' tests/lint/abi.c >>"$work/facts"
[ "$(grep -c . "$work/facts")" -gt 500 ] || { echo "real/abi.sh: only $(grep -c . "$work/facts") facts found"; exit 1; }
{
    sed '/^\/\* Every row of hooks.def/,$d' tests/lint/abi.c
    echo '#line 1 "facts"'
    cat "$work/facts"
} >"$work/facts.c"

# The headers of Debian's packages, and of the package index.
from() { # RELEASE
    includes=("$real/headers-$version/usr/include")
    said=$(GPUPROF_REAL_ONLY=usr/include tests/real/fetch "$real/headers-$version" "$1" nvidia-cuda-dev libcupti-dev)
}
packages() {
    said=$(tests/real/index "cupti-$version") || return
    includes=("$said"/lib/python3*/site-packages/nvidia/*/include)
    [ "$version" != newest ] || version=$(awk '$2 == "CUDA_VERSION" {print int($3 / 1000) "." $3 % 1000 / 10; exit}' \
        "$said"/lib/python3*/site-packages/nvidia/*/include/cuda.h)
}

headers() { # VERSION
    local said includes=() lacks=0 known=0 fact kind line version=$1
    case $1 in
        11.8) from bookworm ;;
        12.4) from trixie ;;
        12.5) from experimental ;;
        *) packages ;;
    esac || {
        skipped=$((skipped + 1))
        echo "skipped CUDA $1: $said"
        return
    }
    cc -std=gnu11 -fsyntax-only -w -fmax-errors=0 -ftrack-macro-expansion=0 -fno-diagnostics-show-caret -Icore -Isrc \
        "${includes[@]/#/-isystem}" "$work/facts.c" 2>"$work/said"
    # An unknown name has several errors.  A known parameter list without that parameter is a difference.
    awk -F: '$1 == "facts" && /error:/ { if (/static assertion failed|no member named/) kind[$2] = "differs"
            else if (!($2 in kind)) kind[$2] = "lacks" }
        END { for (line in kind) print line, kind[line] }' "$work/said" | sort -n >"$work/wrong"
    if [ ! -s "$work/wrong" ] && [ -s "$work/said" ] || grep -v '^facts:' "$work/said" | grep -q 'error:'; then
        failed=$((failed + 1))
        echo "FAILED CUDA $version: the headers cannot be read:"
        grep -v '^facts:' "$work/said" | head -n 5
        return
    fi
    while read -r line kind; do
        fact=$(sed -n "${line}p" "$work/facts")
        if [ "$kind" = lacks ]; then
            lacks=$((lacks + 1))
        elif grep -v '^#' tests/real/abi.known | grep -qF "$version $fact"; then
            known=$((known + 1))
        else
            failed=$((failed + 1))
            echo "FAILED CUDA $version: $fact"
        fi
    done <"$work/wrong"
    passed=$((passed + $(grep -c . "$work/facts") - $(grep -c . "$work/wrong") + known))
    echo "CUDA $version: $(grep -c . "$work/facts") facts, of which it lacks the names of $lacks; $known known differences"
}
for version in 11.8 12.4 12.5 12.9 13.4 newest; do headers $version; done
[ $((passed + failed)) -gt 0 ] || { echo "real/abi.sh: no headers could be had"; exit 77; }
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
