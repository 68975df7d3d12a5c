#!/bin/bash
# SPDX-License-Identifier: MIT
# Makes the table of README.md by running each program of table/rows twice on the same simulated GPU, alone and under
# `gpuprof run --record`: does it start, are gpuprof's totals those of the framework and of the simulator's ledger, is the line that
# holds most named, are its output and its own numbers what they are without gpuprof.
#
#   tests/real/table.sh BUILD [WORD...]
#
# With WORDs, only the rows that contain one of them.  What is wrong stands below its row.  Nothing is fetched: a row whose
# environment is not there (make check-real, tests/real/torch-root, tests/real/programs.sh) is skipped.
set -u
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || { echo "usage: tests/real/table.sh BUILD [WORD...]" >&2; exit 2; }
build=$(cd "$1" && pwd)
shift
real=${GPUPROF_REAL:-build/real}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONPATH=$PWD/python:$PWD/tests/real/field
passed=0 failed=0 skipped=0

# The same simulator with and without gpuprof: what `gpuprof run --sim` sets, without gpuprof's own part. Without its Python
# part generate() would never end.
plain() {
    local sim=$build/lib/gpuprof/sim
    LD_LIBRARY_PATH=$sim LD_PRELOAD=$sim/libgpuprof-sim.so LD_AUDIT=$sim/standin/libgpuprof-standin.so GPUPROF_SIM=$spec \
        PYTHONPATH=$sim/python:$PYTHONPATH "$@"
}
under() { "$build/bin/gpuprof" run --sim="$spec" --force --record="$work/recording" -- "$@" 2> >(grep -v '^gpuprof: run: ' >&2); }

row() { # NAME VERSIONS STARTS TOTALS SITE OUTPUT
    local result=passed cell
    echo "| $1 | $2 | $3 | $4 | $5 | $6 |"
    for cell in "${@:3}"; do [ "$cell" != NO ] || result=failed; done
    declare -g $result=$((result + 1))
    [ $result = passed ] || { sed 's/^/    /' "$work/wrong"; tail -n 12 "$work/under.error" | sed 's/^/    /'; }
}

versions() { # ENVIRONMENT PACKAGE...
    tests/real/inside "$1" python3 -c '
import importlib.metadata, sys
print(", ".join(importlib.metadata.version(name) for name in sys.argv[1:]))' "${@:2}" 2>/dev/null || echo "?"
}

# The values that the simulated GPU does not compute are not under test, so `contents=none`; a program of tests/real/field reads its
# copies back.
program() { # NAME ENVIRONMENT PACKAGES PROGRAM TOP
    local name=$1 folder=$2 file=${4%% *} top=$5 spec=gpu=a100-40g,contents=none how starts=yes totals=equal site=right output=same
    local command=(timeout -k 10 600 tests/real/inside "$folder" python3 tests/real/table/run.py)
    case $4 in field/* | programs/* | frameworks/grpo.py) spec=$(sed -n 's/^# sim: //p' "tests/real/$file") ;; esac
    rm -f "$work"/*
    for how in plain under; do
        # shellcheck disable=SC2086 # the program's arguments
        $how "${command[@]}" "$work/$how" tests/real/$4 >"$work/$how.out" 2>"$work/$how.error" </dev/null || { starts=NO; break; }
    done
    if [ $starts = NO ]; then
        echo "$how: exit" >"$work/wrong"
        cp "$work/$how.error" "$work/under.error" 2>/dev/null
        row "$name" "$(versions "$folder" $3)" NO - - -
        return
    fi
    "$build/bin/gpuprof" report --json "$work/recording" >"$work/report" 2>>"$work/under.error"
    python3 tests/real/table/judge "$work/plain" "$work/under" "$work/report" "$top" "$work/under.out" >"$work/wrong" 2>&1 || echo "totals: no judgement" >>"$work/wrong"
    # Times differ in each run; a program that judges itself says what may not differ.
    for how in plain under; do
        case $4 in field/* | programs/*) grep '^out: ' "$work/$how.out" ;; *) grep -v runtime "$work/$how.out" ;; esac >"$work/$how.said"
    done
    cmp -s "$work/plain.said" "$work/under.said" || diff "$work/plain.said" "$work/under.said" | sed 's/^/output: /' >>"$work/wrong"
    grep -q '^totals' "$work/wrong" && totals=NO
    grep -q '^site' "$work/wrong" && site=NO
    grep -q '^output' "$work/wrong" && output=NO
    row "$name" "$(versions "$folder" $3)" yes "$totals: $(sed -n 's/^seen: //p' "$work/wrong")" $site $output
}

# NVIDIA's runtime inside: one sentence before it fails, and what the program prints and its exit status are its own.
refused() { # NAME ENVIRONMENT PACKAGES CODE
    local spec='' how
    rm -f "$work"/*
    for how in plain under; do
        $how timeout -k 10 300 "$2/bin/python3" -c "$4" >"$work/$how.out" 2>"$work/$how.error" </dev/null
        echo $? >>"$work/$how.out"
    done
    cmp -s "$work/plain.out" "$work/under.out" && output=same || output=NO
    [ "$(grep -c "contains NVIDIA's CUDA runtime" "$work/under.error")" = 1 ] && starts="no, and says why" || starts=NO
    echo "output: $(cat "$work/under.out")" >"$work/wrong"
    row "$1" "$(versions "$2" $3)" "$starts" - - $output
}

# A program that cannot say what it holds: a command that prints the same with gpuprof.
bare() { # NAME ENVIRONMENT PACKAGES COMMAND
    local spec='' how folder=$2 sim=$build/lib/gpuprof/sim starts=yes output=same
    rm -f "$work"/*
    for how in plain under; do
        folder=$folder sim=$sim build=$build $how timeout -k 10 300 bash -c "$4" >"$work/$how.out" 2>"$work/$how.error" </dev/null || starts=NO
    done
    [ -s "$work/under.out" ] || starts=NO
    diff "$work/plain.out" "$work/under.out" >"$work/wrong" || output=NO
    row "$1" "$3" $starts - - $output
}

while IFS='|' read -r name environment packages program top; do
    case $name in '#'* | '') continue ;; esac
    if [ $# -gt 0 ]; then
        for word; do case "$name|$environment|$program" in *"$word"*) break ;; esac done
        case "$name|$environment|$program" in *"$word"*) ;; *) continue ;; esac
    fi
    case $environment in
        debian) folder=$real/torch-root ;;
        programs) folder=$real/programs-root ;;
        *) folder=$real/index/$environment ;;
    esac
    if [ ! -d "$folder" ] || { [ "$top" != bare ] && ! tests/real/inside "$folder" true 2>/dev/null; }; then
        echo "skipped $name: there is no $folder"
        skipped=$((skipped + 1))
    elif [ "$top" = refused ]; then
        refused "$name" "$folder" "$packages" "$program"
    elif [ "$top" = bare ]; then
        bare "$name" "$folder" "$packages" "$program"
    else
        program "$name" "$folder" "$packages" "$program" "$top"
    fi
done <tests/real/table/rows
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
