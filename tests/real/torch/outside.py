# SPDX-License-Identifier: MIT
# Prints PyTorch's own numbers and waits for a line: torch.sh reads gpuprof's from outside meanwhile.
import inspect
import os
import pickle
import sys

import torch

held = [torch.empty((at + 1) << 20, dtype=torch.uint8, device=f"cuda:{at % 2}") for at in range(40)]
del held[3::4]
torch.cuda.empty_cache()
# The snapshot of newer versions has pinned memory, too, once it is told to.
if "record_pinned_host_memory" in inspect.signature(torch.cuda.memory._record_memory_history).parameters:
    torch.cuda.memory._record_memory_history(record_pinned_host_memory=True)
    pinned = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for size in (700, 3 << 20)]
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
