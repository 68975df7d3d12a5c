#!/bin/bash
# SPDX-License-Identifier: MIT
# What `gpuprof dryrun --try` says of a change is what the change does: each is made by hand in the program, and PyTorch's own
# peak with it is compared with that of --try.
#
#   tests/real/try.sh [BUILD] [CHANGE...]      JOBS="gpt2 lora bert unet vit moe resnet": of these jobs too, checkpointing
#
# The packages come from the index (the row "frameworks" of index.table), or are in the environment $GPUPROF_TORCH_ROOT; without
# them the test is skipped (exit status 77).
set -u
cd "$(dirname "$0")/../.."
build=$(cd "${1:-build}" && pwd)
shift
root=${GPUPROF_TORCH_ROOT:-}
[ -n "$root" ] || root=$(tests/real/index frameworks) || { echo "$root" | tail -n 1; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
program=tests/real/try/gpt.py
[ $# -gt 0 ] || set -- checkpoint half loss fused single 8bit bf16 shard
timeout -k 10 1500 "$build/bin/gpuprof" dryrun --gpu=rtx-4090 --json --try -- "$root/bin/python3" $program \
    >"$work/tried.json" 2>"$work/tried.err" </dev/null || { tail -n 5 "$work/tried.err"; echo "0 passed, 1 failed"; exit 1; }
for how; do
    on=(run --sim=gpu=rtx-4090,contents=none)
    [ "$how" != shard ] || on=(dryrun --gpu=rtx-4090 --world=8 --ranks=0) # its own torch.distributed, as a rank of 8
    timeout -k 10 300 "$build/bin/gpuprof" "${on[@]}" -- "$root/bin/python3" $program "$how" \
        >"$work/hand" 2>"$work/hand.err" </dev/null
    if python3 - "$work" "$how" <<'END'
import json
import sys

folder, how = sys.argv[1:]
specs = {"checkpoint": "checkpoint=__main__:Block", "half": "checkpoint=half+__main__:Block", "loss": "loss=8",
         "shard": "shard=8+__main__:Model"}
answer = json.load(open(f"{folder}/tried.json"))
row = {row["spec"]: row for row in answer["tried"]}[specs.get(how, f"optimizer={how}")]
hand = [int(line.split()[1]) for line in open(f"{folder}/hand") if line.startswith("peak ")]
said, text = {}, ""
for line in open(f"{folder}/tried.err"):
    text = line.rstrip("\n").partition(": trying ")[2].partition(": ")[2] or text
    if line.startswith("peak "):
        said[text] = int(line.split()[1])
print(f"{row['change']}: PyTorch's peak by hand {hand[0]}, with --try {said[row['change']]}; the answer's"
      f" {row['allocated_peak_bytes']} has what libraries took beside it")
beside = row["allocated_peak_bytes"] - hand[0]
libraries = 1 << 30 if how == "shard" else 16 << 20  # NCCL's buffers
same = said[row["change"]] == hand[0] and 0 <= beside <= libraries
sys.exit(row["status"] != "ok" or not same)
END
    then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED $how"; tail -n 3 "$work/hand.err"; fi
done
for graph in "" graph; do
    words=("$root/bin/python3" tests/real/try/kept.py)
    timeout -k 10 600 "$build/bin/gpuprof" dryrun --gpu=rtx-4090 --try=outputs -- "${words[@]}" x $graph \
        >"$work/tried" 2>&1 </dev/null
    hand=$("$build/bin/gpuprof" run --sim=gpu=rtx-4090,contents=none -- "${words[@]}" host $graph 2>&1 </dev/null | sed -n 's/^peak //p')
    tried=$(sed -n 's/^peak //p' "$work/tried" | sed -n 2p)
    echo "kept outputs${graph:+ with their graph}: PyTorch's peak by hand ${hand:-none}, with --try ${tried:-none}"
    if [ -n "$hand" ] && [ "$hand" = "$tried" ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
for job in ${JOBS:-}; do
    timeout -k 10 1500 "$build/bin/gpuprof" dryrun --gpu=a100-40g --json --try=checkpoint -- "$root/bin/python3" tests/real/try/jobs.py \
        "$job" >"$work/tried.json" 2>"$work/tried.err" </dev/null
    timeout -k 10 300 "$build/bin/gpuprof" run --sim=gpu=a100-40g,contents=none -- "$root/bin/python3" tests/real/try/jobs.py "$job" \
        checkpoint >"$work/hand" 2>"$work/hand.err" </dev/null
    # Of one class, each of whose modules is checkpointed.
    hand=$(sed -n 's/^peak //p' "$work/hand")
    tried=$(awk '/: trying / {text = $0} /^peak / && text ~ /each of/ {print $2; exit}' "$work/tried.err")
    echo "$job: PyTorch's peak with checkpointing by hand ${hand:-none}, with --try ${tried:-none}"
    if [ -n "$hand" ] && [ "$hand" = "$tried" ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
