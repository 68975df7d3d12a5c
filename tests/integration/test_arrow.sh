#!/bin/bash
# SPDX-License-Identifier: MIT
# The sums of allocated_change of `gpuprof export --format=arrow` have the peaks of `gpuprof report`, and the blocks of the table
# `blocks` at the peak have its bytes: of the recordings in tests/golden, and of programs with pools, graphs, mappings and more.
#
#   tests/integration/test_arrow.sh [BUILD_DIR]
# Run: script
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/run"
cp tests/golden/recordings/*.gpuprof "$work/run"
for program in graph_in_use host_rt managed multicast pool_devices pools_rt shared_handle vmm_twice vmm_unmap; do
    "$build/bin/gpuprof" run --sim=devices=2 --stacks=all --record="$work/run/now-$program.gpuprof" -- \
        "$build/tests/programs/$program" >"$work/out" 2>&1 </dev/null || { cat "$work/out"; echo "0 passed, 1 failed"; exit 1; }
done
"$build/bin/gpuprof" export "$work/run" --format=arrow -o "$work/tables" 2>"$work/out" || { cat "$work/out"; echo "0 passed, 1 failed"; exit 1; }
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/lib python3 - "$build/bin/gpuprof" "$work" <<'PY'
import collections, glob, json, os, subprocess, sys
import arrow_stream

command, work = sys.argv[1:]
passed = failed = 0


def place(row):
    return "host" if row["on_host"] else row["device"]


def judge(what, is_, wanted):
    global passed, failed
    passed, failed = passed + (is_ == wanted), failed + (is_ != wanted)
    if is_ != wanted:
        print(f"FAILED {what}: {is_}, and the report has {wanted}")


for file in sorted(glob.glob(os.path.join(work, "run", "*.gpuprof"))):
    name = os.path.basename(file)[: -len(".gpuprof")]
    said = json.loads(subprocess.run([command, "report", file, "--json"], stdout=subprocess.PIPE, check=True).stdout)
    wanted = {device["device"]: device["peak"]["bytes"] for device in said["devices"] if device["peak"]}
    tables = {}
    for table in ("events", "blocks", "devices"):
        (path,) = glob.glob(os.path.join(work, "tables", table, "job=run", "*", name + ".arrows"))
        tables[table] = arrow_stream.read(path)[1]
    held, highest = collections.Counter(), collections.Counter()
    for row in sorted(tables["events"], key=lambda row: row["event"]):
        held[place(row)] += row["allocated_change"]
        highest[place(row)] = max(highest[place(row)], held[place(row)])
    judge(name + ": the sums' peaks", {device: highest[device] for device in wanted}, wanted)
    judge(name + ": devices", {place(row): row["peak_bytes"] for row in tables["devices"] if place(row) in wanted}, wanted)
    at = {place(row): row["peak_event"] for row in tables["devices"]}
    live = collections.Counter()
    for row in tables["blocks"]:
        peak = at[place(row)]
        if row["counted"] and peak is not None and (row["from_event"] is None or row["from_event"] <= peak) and (
                row["to_event"] is None or row["to_event"] > peak):
            live[place(row)] += row["bytes"]
    judge(name + ": blocks at the peak", {device: live[device] for device in wanted}, wanted)
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
PY
