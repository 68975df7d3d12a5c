# SPDX-License-Identifier: MIT
"""alike.py OWN OURS: PyTorch's snapshot of itself and gpuprof's have the same segments and blocks, and
the same sizes, and whatever key PyTorch's has, gpuprof's has.  Prints the first difference; not a script for PyTorch."""
import pickle
import sys


def read(path):
    with open(path, "rb") as file:
        return pickle.load(file)


def keys(snapshot):
    every = snapshot["segments"] + snapshot.get("host_segments", [])
    return {("snapshot", key) for key in snapshot} | {("setting", key) for key in snapshot["allocator_settings"]} | \
        {("segment", key) for one in every for key in one} | {("block", key) for one in every for block in one["blocks"] for key in block}


def segments(snapshot):
    return sorted(
        (one["device"], one["address"], one["total_size"], one["segment_type"], bool(one["is_expandable"]),
         one["allocated_size"], [(block["address"], block["size"], block["state"]) for block in one["blocks"]])
        for one in snapshot["segments"] + snapshot.get("host_segments", []))


own, ours = read(sys.argv[1]), read(sys.argv[2])
if keys(own) - keys(ours):
    sys.exit(f"gpuprof's lacks {sorted(keys(own) - keys(ours))}")
if not own.get("host_segments"):
    ours.pop("host_segments")  # this version cannot tell
own, ours = segments(own), segments(ours)
if not own:
    sys.exit("PyTorch has no segment")
if len(own) != len(ours):
    print(f"PyTorch has {len(own)} segments, gpuprof {len(ours)}")
for one, other in zip(own, ours):
    if one != other:
        sys.exit(f"PyTorch: {one}\ngpuprof: {other}")
sys.exit(len(own) != len(ours))
