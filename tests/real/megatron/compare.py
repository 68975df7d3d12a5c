# SPDX-License-Identifier: MIT
"""What the last rank of a test logged, beside the golden values of each machine: compare.py FOLDER RANK LIMIT.

Called by tests/real/megatron.sh.  FOLDER has the files error, which has the log, and golden.MACHINE.  The values of steps 1 and 2
are compared, and the peak of the last step with that of the test's last.  The golden values of one test differ from machine to
machine, by the rests of segments that are not split: a value is right if it is between them, or LIMIT
percent at most beyond.
"""
import json
import os
import sys

folder, rank, limit = sys.argv[1], sys.argv[2], float(sys.argv[3]) / 100
here = {}
for line in open(folder + "/error"):
    if line.startswith(f"golden {rank} "):
        _, _, step, name, value = line.split()
        here[name, int(step)] = int(value)
if not here:
    sys.exit(f"rank {rank} logged nothing")
last = max(step for _, step in here)
machines = {}
for file in sorted(os.listdir(folder)):
    if file.startswith("golden."):
        machines[file[7:]] = json.load(open(f"{folder}/{file}"))
if not machines:
    sys.exit("no golden values")
lines = {machine: [] for machine in machines}
wrong = 0
for name, short in ("mem-allocated-bytes", "allocated"), ("mem-max-allocated-bytes", "peak"):
    for step in 1, 2, last:
        golden = {}
        for machine, values in machines.items():
            values = {int(at): int(value) for at, value in values[name]["values"].items() if value != "nan"}
            at = max(values) if step == last else step
            if at in values and (step < last or short == "peak"):
                golden[machine] = values[at]
                lines[machine].append(f"{short} {at}: {values[at]} {here[name, step] - values[at]:+d}")
        if golden and not (1 - limit) * min(golden.values()) <= here[name, step] <= (1 + limit) * max(golden.values()):
            wrong += 1
for machine, words in lines.items():
    print(f"        {machine:14}", "; ".join(words))
sys.exit(wrong > 0)
