# SPDX-License-Identifier: MIT
"""policy_compare.py GPUPROF FOLDER CONF: what PyTorch said of the programs whose traces are in the folder (torch_policy.py), and
what `gpuprof replay` says of them with the policy pytorch, or `gpuprof fit` of PyTorch's snapshot.  None may differ."""
import glob
import json
import os
import subprocess
import sys

gpuprof, folder, conf = sys.argv[1:4]
wrong, names = [], sorted(glob.glob(os.path.join(folder, "*.trace")))
tight = 0


def ask(*command):
    return json.loads(subprocess.run([gpuprof, *command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout)


for name in names:
    with open(name, encoding="ascii") as file:
        own = {words[1]: int(words[2]) for words in map(str.split, file) if words[0] == "#"}
    snapshot = name.replace(".trace", ".pickle")
    if os.path.exists(snapshot):
        said = ask("fit", snapshot, "--gpu=24GiB", f"--alloc-conf={conf}", "--allocator=pytorch")["devices"][0]
        ours = {"reserved_peak": said["peak_bytes"] - said["context_bytes"] - said["unexplained_bytes"]}
    else:
        said = ask("replay", name, "--allocator=pytorch", "--sim=memory=8GiB,devices=1", *([f"--conf={conf}"] if conf != "-" else []))
        segments = said["calls"].get("cuMemAlloc_v2", {}).get("calls", 0) - said["refused"]
        ours = {"reserved_peak": said["own_peak_reserved_bytes"], "failed": said["failed"], "segments": segments}
    tight += own["retries"] > 0
    if any(own[key] != value for key, value in ours.items()):
        wrong.append(f"{os.path.basename(name)}: PyTorch {own}, gpuprof {ours}")
print(*wrong[:10], sep="\n")
print(f"{len(names) - len(wrong)} of {len(names)} programs agree; {tight} ran out of memory")
sys.exit(bool(wrong) or not names)
