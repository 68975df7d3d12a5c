# SPDX-License-Identifier: MIT
"""What the ranks of a job exchange of the words that a router sends to experts: each collective of counts, and a mask of all words.
exchange.py, in a job of several ranks.  Prints "equal"."""
import os
import sys

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
world = dist.get_world_size()
for words in 64, 65536:  # the mask of the second is above what a collective of the simulated GPU carries
    chosen = torch.topk(torch.randn(words, 2 * world, device="cuda"), 2)[1]
    mask = torch.zeros(words, 2 * world, dtype=torch.bool, device="cuda").scatter(1, chosen, True)
    counts, each = mask.sum(dim=0), words // world
    found = {"own": counts.tolist()}
    gathered = torch.empty(world * words, 2 * world, dtype=torch.bool, device="cuda")
    dist.all_gather_into_tensor(gathered, mask)
    found["gathered"] = [n / world for n in gathered[:, :].contiguous().sum(dim=0).tolist()]
    listed = [torch.empty_like(counts) for _ in range(world)]
    dist.all_gather(listed, counts)
    found["listed"] = listed[-1].tolist()
    exchanged = torch.empty_like(counts)
    dist.all_to_all_single(exchanged, counts)
    found["exchanged"] = [n / 2 for n in exchanged.view(world, 2).sum(dim=1).tolist() for _ in range(2)]
    dist.all_reduce(counts)
    found["reduced"] = [n / world for n in counts.tolist()]
    for name, numbers in found.items():
        if numbers != [each] * (2 * world):
            sys.exit(f"{name}, {words} words: {numbers}, wanted {each} each")
print("equal", flush=True)
dist.destroy_process_group()
