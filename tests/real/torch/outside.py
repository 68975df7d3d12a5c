# SPDX-License-Identifier: MIT
# Prints PyTorch's own numbers and waits for a line: torch.sh reads gpuprof's from outside meanwhile.
import os
import pickle
import sys

import torch

held = [torch.empty((at + 1) << 20, dtype=torch.uint8, device=f"cuda:{at % 2}") for at in range(40)]
del held[3::4]
torch.cuda.empty_cache()
print("pid", os.getpid())
for device in range(torch.cuda.device_count()):
    stats = torch.cuda.memory_stats(device)
    for key in ("reserved_bytes.all.current", "reserved_bytes.all.peak", "allocated_bytes.all.current",
                "allocated_bytes.all.peak"):
        print("is", device, key, stats[key])
with open(sys.argv[1], "wb") as file:
    pickle.dump(torch.cuda.memory._snapshot(), file)
print("ready", flush=True)
input()
