# SPDX-License-Identifier: MIT
"""One rank of a job of several, started by torchrun: train.py CASE [ARGUMENT...].  Plain PyTorch; models are of made-up weights.
Prints what PyTorch says of the rank's memory: "peak RANK ALLOCATED RESERVED", and its host memory: "host RANK KIB"."""
import functools
import os
import resource
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

rank, ranks, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
ROUNDED = 1000 * 1000
peaks = [(0, 0)]


class Block(nn.Module):
    """A layer as of GPT: attention without biases and a wide layer with them.  Adam still holds a temporary of the parameter before
    while it works on the next: with another order than that of the model in PyTorch's test, the step needs more than its limit."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.after = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.before(x)
        q, k, v = (part(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.narrow(functional.gelu(self.wide(self.after(x))))


class Model(nn.Module):
    def __init__(self, words, length, layers, width, heads):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, words):
        x = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))
        for layer in self.layers:
            x = layer(x)
        return self.out(self.norm(x)).float()


def numbers(module):
    return sum(p.numel() for p in module.parameters())


def reset():
    """Begins new peaks; those of the whole run stay known."""
    peaks.append((torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()))
    torch.cuda.reset_peak_memory_stats()


def active(which):
    return round(torch.cuda.memory_stats()[f"active_bytes.all.{which}"] / ROUNDED)


def fsdp2_bounds(reshard, offload):
    """The limits that PyTorch's test_fully_shard_memory.py sets for FSDP2 on two ranks, in millions of bytes, stage by stage:
    name, here, limit.  That of the backward pass is of later versions of the test: earlier ones allowed three blocks instead of four."""
    line = nn.Linear(768, 768, device="cuda")  # cuBLAS takes its workspaces
    line(torch.randn(2, 768, device="cuda")).sum().backward()
    torch.cuda.empty_cache()
    base = active("peak")
    model = Model(32, 16, 3, 768, 12)
    whole, block = numbers(model) * 4 / ROUNDED, numbers(model.layers[0]) * 4 / ROUNDED
    rest, part = whole - 3 * block, whole / ranks
    shard = functools.partial(fully_shard, reshard_after_forward=reshard,
                              offload_policy=CPUOffloadPolicy() if offload else OffloadPolicy())
    for layer in model.layers:
        shard(layer)
    shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, foreach=False)
    start = 1.5 * block if offload else part + block
    yield "sharding, peak", active("peak") - base, start + 4
    yield "sharded", active("current") - base, start
    loss = model(torch.randint(0, 32, (1, 4), device="cuda"))
    held = 0 if offload else part
    # Before 2.15, wait_for_unshard keeps the all-gather before in a local variable while it copies the next one out.  The limit of
    # the first case has room for that; in PyTorch's test the second begins with the peak of the first, and meets no limit.
    before = 0 if torch.__version__ >= (2, 15) else block
    forward = held + (3 * block + rest if reshard else whole + block + before) + 16
    yield "forward, peak", active("peak") - base, forward
    loss.sum().backward()
    del loss
    backward = (2 * held + 4 * block + rest if reshard else held + whole + 1.5 * block) + 16
    yield "backward, peak", active("peak") - base, max(forward, backward)
    reset()
    optimizer.step()
    yield "step, peak", active("peak") - base, 4 * held + 16
    optimizer.zero_grad()
    reset()
    yield "after it", active("peak") - base, 3 * held + (0 if offload else 32)


def fsdp2(reshard, offload):
    over = []
    for name, here, limit in fsdp2_bounds(reshard == "reshard", offload == "offload"):
        print(f"{name}: {here} of {limit:.1f}", flush=True)
        if here > limit:
            over.append(name)
    if over:
        sys.exit(f"over the limit: {over}")


def data_parallel():
    model = nn.parallel.DistributedDataParallel(Model(32000, 512, 4, 768, 12).cuda(), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters())
    words = torch.randint(0, 32000, (2, 512), device="cuda")
    for _ in range(2):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(words).flatten(0, 1), words.flatten())
        loss.backward()
        optimizer.step()


def symmetric():
    """Symmetric memory of NVSHMEM, which later versions of PyTorch have."""
    from torch.distributed import _symmetric_memory

    if not getattr(_symmetric_memory, "is_nvshmem_available", bool)():
        print("no NVSHMEM in this PyTorch", flush=True)
        return
    _symmetric_memory.set_backend("NVSHMEM")
    if torch.__version__ < (2, 12):
        _symmetric_memory.enable_symm_mem_for_group(dist.group.WORLD.group_name)  # later ones do it themselves
    shared = _symmetric_memory.empty(1 << 20, dtype=torch.float32, device=f"cuda:{local}")
    _symmetric_memory.rendezvous(shared, group=dist.group.WORLD)
    torch.ops.symm_mem.nvshmem_broadcast(shared, 0, dist.group.WORLD.group_name)
    torch.cuda.synchronize()


class Llama(nn.Module):
    """A layer of the sizes of Llama 3."""

    def __init__(self, width, heads, pairs, wide):
        super().__init__()
        self.heads, self.pairs, size = heads, pairs, width // heads
        linear = functools.partial(nn.Linear, bias=False)
        self.before, self.after = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query, self.out = linear(width, width), linear(width, width)
        self.key, self.value = linear(width, pairs * size), linear(width, pairs * size)
        self.gate, self.up, self.down = linear(width, wide), linear(width, wide), linear(wide, width)

    def attend(self, x):
        q, k, v = (part(x).unflatten(-1, (n, -1)).transpose(1, 2)
                   for part, n in ((self.query, self.heads), (self.key, self.pairs), (self.value, self.pairs)))
        return self.out(functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attend(self.before(x))
        y = self.after(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Stack(nn.Sequential):
    """Layers of which those of Llama are computed again in the backward pass."""

    def forward(self, x):
        for layer in self:
            x = checkpoint(layer, x, use_reentrant=False) if isinstance(layer, Llama) else layer(x)
        return x


def large(layers="80"):
    """FSDP2 of 70 billion parameters in bf16 with AdamW."""
    torch.set_default_dtype(torch.bfloat16)
    width, words = 8192, 128256
    with torch.device("meta"):
        model = Stack(nn.Embedding(words, width), *(Llama(width, 64, 8, 28672) for _ in range(int(layers))), nn.RMSNorm(width),
                      nn.Linear(width, words, bias=False))
    if rank == 0:
        print("parameters", numbers(model), flush=True)
    for layer in model:
        if isinstance(layer, Llama):
            fully_shard(layer)
    fully_shard(model)
    model.to_empty(device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    x = torch.randint(0, words, (1, 2048), device="cuda")
    for _ in range(2):
        functional.cross_entropy(model(x).flatten(0, 1), x.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


def main():
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    globals()[sys.argv[1]](*sys.argv[2:])
    dist.barrier()  # it takes memory, too
    reset()
    # One write for each line, or those of other ranks come between.
    os.write(1, "peak {} {} {}\n".format(rank, *map(max, zip(*peaks))).encode())
    os.write(1, f"host {rank} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}\n".encode())
    dist.destroy_process_group()


main()
