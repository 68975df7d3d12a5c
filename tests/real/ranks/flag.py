# SPDX-License-Identifier: MIT
"""Rank 0 says what all are to do, as Megatron's does: only a rank that hears it takes memory."""
import os

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
flag = torch.tensor([float(dist.get_rank() == 0)], device="cuda")
dist.broadcast(flag, 0)
if flag.item():
    torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
dist.destroy_process_group()
