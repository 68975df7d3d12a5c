#!/bin/bash
# SPDX-License-Identifier: MIT
# Jobs of several ranks in a dry run, with PyTorch of the index and torchrun: each ends, its answer has every rank with the peaks
# that PyTorch says of itself, and FSDP2 keeps the limits that PyTorch's own test sets (ranks/train.py has the cases).  Only if it
# is named, "large" takes a model of 70 billion parameters, in ten minutes.
#
#   tests/real/ranks.sh [BUILD] [CASE...]
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
passed=0 failed=0 skipped=0
wanted=" $* "

# NAME RANKS GPU STATUS ARGUMENT...
job() {
    local name=$1 ranks=$2 gpu=$3 expected=$4 begun=$SECONDS
    shift 4
    [ "$wanted" = "  " ] || [ "${wanted/ ${name%_one} /}" != "$wanted" ] || return 0
    OMP_NUM_THREADS=1 timeout -k 10 1500 "$build/bin/gpuprof" dryrun --json --gpu="$gpu" --devices="$ranks" -- \
        "$root/bin/python3" -m torch.distributed.run --standalone --nproc-per-node="$ranks" tests/real/ranks/train.py "$@" \
        >"$work/json" 2>"$work/error" </dev/null
    local status=$?
    if [ $status = "$expected" ] && python3 - "$work/json" "$work/error" "$ranks" >"$work/out" 2>&1 <<'END'
import json
import sys
answer, count = json.load(open(sys.argv[1])), int(sys.argv[3])
own = {}
for line in open(sys.argv[2]):
    if line.startswith("peak "):
        rank, allocated, reserved = map(int, line.split()[1:])
        own[rank] = allocated, reserved  # of the last run, which is the one that is shown
here = {}
for rank in answer["ranks"]:
    here[rank["rank"]] = (rank["allocated_peak_bytes"] - rank["assumed_bytes"],
                          rank["reserved_peak_bytes"] - rank["assumed_reserved_bytes"])
print("allocated and reserved", *here.get(0, ("unknown",)))
if sorted(here) != list(range(count)) or sorted(r["device"] for r in answer["ranks"]) != list(range(count)):
    sys.exit(f"ranks and devices: {[(r['rank'], r['device']) for r in answer['ranks']]}")
refused = [note for note in answer["assumptions"] if note["kind"] == "unsupported"]
if here != own or refused:
    sys.exit(f"here {here}, PyTorch's own {own}; refused {refused}")
END
    then
        passed=$((passed + 1))
        echo "ok      $name on $ranks ranks: $(cat "$work/out") ($((SECONDS - begun)) s)"
    elif grep -q "contains NVIDIA's CUDA runtime" "$work/error"; then # libtorch_nvshmem.so of 2.10
        skipped=$((skipped + 1))
        echo "skipped $name: $(sed -n "s/^gpuprof: sim: .*\/\(.* contains NVIDIA's CUDA runtime\),.*/\1/p" "$work/error" | head -n 1)"
    else
        failed=$((failed + 1))
        echo "FAILED  $name on $ranks ranks: exit $status"
        cat "$work/out" 2>/dev/null
        grep -vE '^[WE][0-9]{4} ' "$work/error" | tail -n 30 | sed 's/^/        /'
    fi
    rm -f "$work/out"
}

job ddp 2 a100-40g 0 data_parallel
job fsdp2 2 a100-40g 0 fsdp2 reshard device
job fsdp2_keep 2 a100-40g 0 fsdp2 keep device
job fsdp2_host 2 a100-40g 0 fsdp2 reshard offload
# More ranks than the test's two: each has a smaller part, and the limits stay.
job fsdp2_eight 8 a100-40g 0 fsdp2 reshard device
job symmetric 2 h100-80g 0 symmetric
if [ "${wanted/ large /}" != "$wanted" ]; then
    # It does not fit on eight H100 of 80 GiB.  A layer of its sizes alone says what the program itself takes of the host.
    job large_one 8 h100-80g 0 large 1
    one=$(awk '/^host /{if ($3 > most) most = $3} END {print most + 0}' "$work/error")
    begun=$SECONDS
    job large 8 h100-80g 3 large
    all=$(awk '/^host /{if ($3 > most) most = $3} END {print most + 0}' "$work/error")
    if [ "$one" -gt 0 ] && [ $((all - one)) -le 65536 ] && [ $((SECONDS - begun)) -le 600 ]; then
        passed=$((passed + 1))
        echo "ok      large: $((all / 1024)) MiB of the host for each rank, $((one / 1024)) with one layer, $((SECONDS - begun)) s"
    else
        failed=$((failed + 1))
        echo "FAILED  large: $all KiB of the host for a rank, $one with one layer, $((SECONDS - begun)) s"
    fi
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
