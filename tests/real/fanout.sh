#!/bin/bash
# SPDX-License-Identifier: MIT
# Ranks of one job that schedulers run, each by itself, and that `gpuprof dryrun --merge` makes one answer of: Ray's own tasks, on
# loopback; the commands of deploy/kubernetes/dryrun-ranks.yaml; and examples/fanout/slurm.sh with a stand-in for sbatch, which runs
# the tasks of an array.  All give the figures of the run that had these ranks together.
#
#   tests/real/fanout.sh [BUILD]
#
# Ray is the row "ray" of index.table, PyTorch the row "torch-newest", or in the environment $GPUPROF_TORCH_ROOT; without one of
# them the test is skipped (exit status 77).
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(cd "${1:-build}" && pwd)
tree=$PWD
root=${GPUPROF_TORCH_ROOT:-}
[ -n "$root" ] || root=$(tests/real/index torch-newest) || { echo "$root" | tail -n 1; exit 77; }
ray=$(tests/real/index ray) || { echo "$ray" | tail -n 1; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
export PATH=$build/bin:$PATH OMP_NUM_THREADS=1
job=("$root/bin/python3" "$tree/examples/fsdp.py" --layers 2 --length 512)
gpuprof dryrun --gpu=h100-80g --world=512 --ranks=0,1,511 --json -- "${job[@]}" >"$work/together.json" 2>"$work/error" </dev/null ||
    { echo "FAILED  the ranks together"; tail -n 20 "$work/error"; exit 1; }

compare() { # NAME FOLDER: the merged answer of its files, beside that of the ranks together; the page
    if gpuprof dryrun --merge --json "$2"/rank*.json 2>>"$work/error" >"$work/merged.json" &&
        python3 - "$work/together.json" "$work/merged.json" >"$work/out" 2>>"$work/error" <<'END' &&
import json
import sys
figures = []
for name in sys.argv[1:]:
    rows = json.load(open(name))["ranks"]
    figures.append({rank: (row["needed_bytes"], row["allocated_peak_bytes"], row["reserved_peak_bytes"])
                    for row in rows for rank in row["stands_for"] if rank in (0, 1, 511)})
if len(figures[0]) != 3 or figures[0] != figures[1]:
    sys.exit(f"together {figures[0]}, merged {figures[1]}")
print("ranks 0, 1 and 511 need", *(figures[1][rank][0] for rank in (0, 1, 511)))
END
        [ -s "$2/page.html" ] && grep -q '^  511 ' "$2/answer.txt"; then
        passed=$((passed + 1))
        echo "ok      $1: $(cat "$work/out")"
    else
        failed=$((failed + 1))
        echo "FAILED  $1"
        ls "$2"
        tail -n 20 "$work/error" "$2"/*.log 2>/dev/null
    fi
}

mkdir "$work/ray"
RAY_USAGE_STATS_ENABLED=0 timeout -k 10 600 "$ray/bin/python3" examples/fanout/ray_ranks.py --world=512 \
    --out="$work/ray" --ranks=0 --ranks=1 --ranks=511 -- "${job[@]}" >"$work/ray/answer.txt" 2>"$work/error" </dev/null
compare "Ray $("$ray/bin/python3" -c 'import ray; print(ray.__version__)')" "$work/ray"

# sbatch --parsable OPTION... SCRIPT ARGUMENT...: runs each task of the array at once, and a job without one.
mkdir "$work/bin" "$work/slurm"
cat >"$work/bin/sbatch" <<'END'
#!/bin/bash
array='' output=/dev/null
while [[ $1 = --* ]]; do
    case $1 in
        --array=*) array=${1#*=} ;;
        --output=*) output=${1#*=} ;;
        --parsable | --job-name=* | --ntasks=1 | --dependency=afterany:7) ;;
        *) echo "sbatch: $1?" >&2; exit 1 ;;
    esac
    shift
done
if [ -n "$array" ]; then
    for task in $(seq "${array%-*}" "${array#*-}"); do
        SLURM_ARRAY_TASK_ID=$task SLURM_NTASKS=1 SLURM_PROCID=0 "$@" >"${output//%a/$task}" 2>&1 </dev/null || exit 1
    done
else
    "$@" >"$output" 2>&1 </dev/null || exit 1
fi
echo 7
END
chmod +x "$work/bin/sbatch"
PATH=$work/bin:$PATH examples/fanout/slurm.sh 512 h100-80g "$work/slurm" 0 1 511 -- "${job[@]}" >"$work/error" 2>&1
compare "the script for Slurm" "$work/slurm"

# What the pods would run, in the order of their indices.
mkdir "$work/kubernetes"
python3 - "$work/kubernetes" "${job[*]}" >"$work/error" 2>&1 <<'END'
import os
import subprocess
import sys
import yaml
objects = list(yaml.safe_load_all(open("deploy/kubernetes/dryrun-ranks.yaml")))
jobs = {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == "Job"}
data = next(one["data"] for one in objects if one["kind"] == "ConfigMap") | {"OUT": sys.argv[1], "CMD": sys.argv[2]}
count = jobs["gpuprof-ranks"]["completions"]
assert count == len(data["RANKS"].split()), (count, data["RANKS"])
for name, index in [("gpuprof-ranks", number) for number in range(count)] + [("gpuprof-merge", 0)]:
    container = jobs[name]["template"]["spec"]["containers"][0]
    subprocess.run(container["command"] + container["args"], env=os.environ | data | {"JOB_COMPLETION_INDEX": str(index)}, check=True)
END
compare "the commands for Kubernetes" "$work/kubernetes"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
