# SPDX-License-Identifier: MIT
"""alike.py OWN OURS: PyTorch's snapshot of itself and gpuprof's have the same segments and blocks, and
the same sizes.  Prints the first difference; not a script for PyTorch."""
import pickle
import sys


def segments(path):
    with open(path, "rb") as file:
        snapshot = pickle.load(file)
    return sorted(
        (one["device"], one["address"], one["total_size"], one["segment_type"], bool(one["is_expandable"]),
         one["allocated_size"], [(block["address"], block["size"], block["state"]) for block in one["blocks"]])
        for one in snapshot["segments"])


own, ours = segments(sys.argv[1]), segments(sys.argv[2])
if not own:
    sys.exit("PyTorch has no segment")
if len(own) != len(ours):
    print(f"PyTorch has {len(own)} segments, gpuprof {len(ours)}")
for one, other in zip(own, ours):
    if one != other:
        sys.exit(f"PyTorch: {one}\ngpuprof: {other}")
sys.exit(len(own) != len(ours))
