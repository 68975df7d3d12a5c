# SPDX-License-Identifier: MIT
"""A small GPT, as it is or with one change made by hand, for tests/real/try.sh; says the peak of PyTorch's allocator."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

how = sys.argv[1] if len(sys.argv) > 1 else ""
WORDS = 32000


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 8, batch_first=True)
        self.rest = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        h = self.first(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.rest(self.second(x))


class Model(nn.Module):
    def __init__(self, width=512, layers=8):
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, width), nn.Linear(width, WORDS)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))

    def forward(self, x):
        x = self.words(x)
        for number, block in enumerate(self.blocks):
            if how == "checkpoint" or (how == "half" and number % 2 == 0):
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.head(x)


class Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, wanted):
        kept, loss = torch.empty_like(logits), 0
        for rows, want, to in zip(logits.chunk(8), wanted.chunk(8), kept.chunk(8)):
            rows = rows.detach().requires_grad_()
            with torch.enable_grad():
                part = F.cross_entropy(rows, want, reduction="sum")
            to.copy_(torch.autograd.grad(part, rows)[0])
            loss = loss + part.detach()
        ctx.save_for_backward(kept)
        return loss / len(wanted)

    @staticmethod
    def backward(ctx, outer):
        (kept,) = ctx.saved_tensors
        return kept.mul_(outer / len(kept)), None


def optimizer_of(parameters):
    if how == "8bit":
        import bitsandbytes

        return bitsandbytes.optim.AdamW8bit(parameters, lr=1e-3)
    if how == "bf16":
        return HalfState(parameters, lr=1e-3)
    options = {"fused": True} if how == "fused" else {"foreach": False} if how == "single" else {}
    return torch.optim.AdamW(parameters, lr=1e-3, **options)


class HalfState(torch.optim.AdamW):
    """Its moments are kept in bfloat16."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (beta1, beta2), rate = group["betas"], group["lr"]
            for p in (p for p in group["params"] if p.grad is not None):
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["mean"] = torch.zeros_like(p, dtype=torch.bfloat16)
                    state["square"] = torch.zeros_like(p, dtype=torch.bfloat16)
                state["step"] += 1
                p.mul_(1 - rate * group["weight_decay"])
                mean = state["mean"].float().lerp_(p.grad, 1 - beta1)
                square = state["square"].float().mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                state["mean"].copy_(mean)
                state["square"].copy_(square)
                square.sqrt_().div_((1 - beta2 ** state["step"]) ** 0.5).add_(group["eps"])
                p.sub_(mean.div_(square).mul_(rate / (1 - beta1 ** state["step"])))


def sharded(model):
    from torch.distributed.fsdp import fully_shard

    torch.distributed.init_process_group("nccl")
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


model = Model().cuda()
if how == "shard":
    sharded(model)
optimizer = optimizer_of(model.parameters())
for step in range(3):
    words = torch.zeros(8, 512, dtype=torch.long, device="cuda")
    logits, wanted = model(words).view(-1, WORDS), words.view(-1)
    loss = Chunked.apply(logits, wanted) if how == "loss" else F.cross_entropy(logits, wanted)
    del logits
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("peak", torch.cuda.max_memory_allocated(), flush=True)
