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

# What gpuprof reads of a profile is what it is: ours has the recording's end, and this one of JAX 0.10.2 the 24117248 bytes that
# the arrays of jax.live_arrays() had.
held() { "$build/bin/gpuprof" report --json "$1" | python3 -c 'import json, sys; print([d["allocated_end_bytes"] for d in json.load(sys.stdin)["devices"] if d["allocated_end_bytes"]])'; }
same() { if [ "$2" = "$3" ]; then ok; else bad "$1: $2, not $3"; fi; }
same "our own profile" "$(held "$work/python.gz")" "$(held "$work/python.gpuprof")"
same "a profile of JAX" "$(held tests/fuzz/corpus/recording/pprof-jax)" "[24117248]"
"$build/bin/gpuprof" diff "$work/python.gz" tests/fuzz/corpus/recording/pprof-jax > "$work/out" 2> "$work/err"
if grep -q 'make (jp.py:3)' "$work/out"; then ok; else bad "diff of two profiles lacks a line"; fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
