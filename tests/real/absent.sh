#!/bin/bash
# SPDX-License-Identifier: MIT
# A rank of a job whose other ranks are absent takes as much as it does where all run, to the byte: by PyTorch's own peaks, by the
# answer of the dry run, and of the device.  For each way to divide a model, with 2 and 4 ranks.
#
#   tests/real/absent.sh [BUILD] [WAY...]        RANKS="2 4 8": other numbers of ranks
#
# The packages come from the index (the row "torch-newest" of index.table), or are in the environment $GPUPROF_TORCH_ROOT; without
# them the test is skipped (exit status 77).
set -u
cd "$(dirname "$0")/../.."
build=$(cd "${1:-build}" && pwd)
shift
root=${GPUPROF_TORCH_ROOT:-}
[ -n "$root" ] || root=$(tests/real/index torch-newest) || { echo "$root" | tail -n 1; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
[ $# -gt 0 ] || set -- ddp fsdp1 fsdp2 hsdp tp async_tp pp interleaved zero_bubble zero_bubble_v cp ep routed

one() { # NAME RANKS WHICH WAY: what it says goes to $work/NAME
    timeout -k 10 900 "$build/bin/gpuprof" dryrun --gpu=h100-80g --json --world="$2" --ranks="$3" -- \
        "$root/bin/python3" tests/real/ranks/absent.py "$4" >"$work/$1.json" 2>"$work/$1.error" </dev/null
}

# Compares what the runs "all" and "some" left in $work.  Status 3: only the reserved bytes differ.
compare() { # PRESENT [steps]
    python3 - "$work" "$@" >"$work/out" 2>&1 <<'END'
import json
import sys
folder, which = sys.argv[1], [int(rank) for rank in sys.argv[2].split(",")]
own, here = {}, {}
for name in "all", "some":
    for line in open(f"{folder}/{name}.error"):
        if line.startswith("peak "):
            rank, *numbers = map(int, line.split()[1:])
            own[name, rank] = numbers
    for row in json.load(open(f"{folder}/{name}.json"))["ranks"]:
        for rank in row["stands_for"]:
            here[name, rank] = [row[key] for key in ("allocated_peak_bytes", "reserved_peak_bytes", "needed_bytes")]
reserved = False
for rank in which:
    for of in own, here:
        if of["all", rank] != of["some", rank]:
            print(f"rank {rank}: with all ranks {of['all', rank]}, without the others {of['some', rank]}")
            if of["all", rank][0] != of["some", rank][0]:
                sys.exit(1)
            reserved = True
if reserved:
    sys.exit(3)
steps = {row["steps"] for name in ("all", "some") for row in json.load(open(f"{folder}/{name}.json"))["ranks"]}
if len(sys.argv) > 3 and steps != {3}:
    sys.exit(f"{steps} steps of 3")
print("allocated, reserved, of the device:", *own["all", which[0]])
END
}

for ranks in ${RANKS:-2 4}; do
    for way; do
        # With two ranks a pipeline has no absent one: each runs a stage.
        case $way$ranks in hsdp2 | pp2 | interleaved2 | zero_bubble2 | zero_bubble_v2) continue ;; esac
        begun=$SECONDS which=0 pipeline= tries=1 again=
        # Of a pipeline one rank of each stage runs, and its micro batches are no steps.
        case $way in pp | interleaved | zero_bubble*) which=0,$((ranks / 2)) pipeline=1 ;; esac
        # Of a zero bubble the main thread or autograd's frees a block, as either drops it last, also with all ranks present.  By the
        # order of the frees blocks lie elsewhere, and PyTorch may reserve 2 MiB more: such a pair of runs is made again.
        case $way in zero_bubble*) tries=3 ;; esac
        while :; do
            rm -f "$work"/*
            status=1
            if one all "$ranks" all "$way" && one some "$ranks" "$which" "$way"; then
                compare "$which" ${pipeline:+"steps"}
                status=$?
            fi
            if [ $status != 3 ] || [ $((--tries)) = 0 ]; then break; fi
            again+="; before: $(tail -n 1 "$work/out")"
        done
        if [ $status = 0 ]; then
            passed=$((passed + 1))
            echo "ok      $way, $ranks ranks, $which present: $(cat "$work/out") ($((SECONDS - begun)) s)$again"
        else
            failed=$((failed + 1))
            echo "FAILED  $way, $ranks ranks, $which present"
            cat "$work/out" 2>/dev/null
            grep -hE 'Error|gpuprof' "$work/all.error" "$work/some.error" 2>/dev/null | tail -n 8 | sed 's/^/        /'
        fi
        rm -f "$work"/*
    done
done
# A rank that decides by what an absent one broadcasts is not the one of the job: the answer says which to add.
if timeout -k 10 300 "$build/bin/gpuprof" dryrun --gpu=h100-80g --world=2 --ranks=1 -- "$root/bin/python3" tests/real/ranks/flag.py \
    2>&1 </dev/null | tr -s '\n ' '  ' | grep -q 'rank 1 read back what absent rank 0 broadcasts.*add 0 to --ranks'; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
    echo "FAILED  a flag of an absent rank that is read back is said"
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
