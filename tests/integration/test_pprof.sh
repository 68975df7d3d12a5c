#!/bin/bash
# SPDX-License-Identifier: MIT
# `go tool pprof` reads the profile of a Python and of a C program: the commands of docs/export.md match what they name, Python's
# <module> keeps its name, and -top credits the program's own code.
#
#   tests/integration/test_pprof.sh [BUILD_DIR]
# Run: script
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
go tool pprof -h > /dev/null 2>&1 || command -v go > /dev/null || { echo "no Go: install golang-go"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PPROF_TMPDIR=$work HOME=$work
passed=0 failed=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAILED $1"; tail -n 20 "$work/out" "$work/err" | sed 's/^/        /'; }

record() { # NAME COMMAND...
    local name=$1
    shift
    "$build/bin/gpuprof" run --sim=devices=2,memory=4GiB --record="$work/$name.gpuprof" -- "$@" > "$work/out" 2> "$work/err" ||
        bad "$name does not run"
    "$build/bin/gpuprof" export "$work/$name.gpuprof" --format=pprof -o "$work/$name.gz" > "$work/out" 2> "$work/err" ||
        bad "$name: no profile"
}
pprof() { # FILE PATTERN OPTIONS...: the output has a line that matches
    local file=$1 pattern=$2
    shift 2
    go tool pprof "$@" -sample_index=peak_space "$work/$file" > "$work/out" 2> "$work/err"
    if grep -Eq -- "$pattern" "$work/out"; then ok; else bad "$file $*: no '$pattern'"; fi
}
lacks() { # FILE PATTERN OPTIONS...
    local file=$1 pattern=$2
    shift 2
    go tool pprof "$@" -sample_index=peak_space "$work/$file" > "$work/out" 2> "$work/err"
    if grep -Eq -- "$pattern" "$work/out"; then bad "$file $*: has '$pattern'"; else ok; fi
}

record python python3 examples/leak.py 60
pprof python.gz '<module>' -traces
lacks python.gz '<unknown>' -traces
pprof python.gz '^ *[1-9][^ ]*B .* forward$' -top
record c "$build/tests/programs/linear_rt"
lacks c.gz '^ *[1-9][0-9.]*[kMG]?B .* (cudaMalloc|cuMemAlloc)' -top
focus=$(sed -n 's/^go tool pprof .*\(-tagfocus=[^ ]*\).*/\1/p' docs/export.md | tr -d "'")
[ -n "$focus" ] || bad "docs/export.md has no command with -tagfocus"
pprof c.gz '^ *[1-9][0-9.]*[kMG]?B ' -top "$focus"
"$build/bin/gpuprof" export "$work/c.gpuprof" --format=pprof --full-stacks -o "$work/full.gz"
pprof full.gz 'cudaMalloc' -top
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
