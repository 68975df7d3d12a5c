#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains a language model of the sizes of Llama 3.1 8B with PyTorch's FSDP2: docs/tutorials/512-gpus.md.

    torchrun --nnodes=N --nproc-per-node=8 fsdp.py [--layers N] [--batch N] [--length N] [--steps N] [--checkpoint]"""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, GROUPS, HIDDEN, WORDS = 4096, 32, 8, 14336, 128256


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        part = WIDTH // HEADS * GROUPS
        self.norm, self.norm_hidden = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.query, self.out = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.key, self.value = nn.Linear(WIDTH, part, bias=False), nn.Linear(WIDTH, part, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, HIDDEN, bias=False), nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        y = self.norm(x)
        query, key, value = (part(y).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
                             for part in (self.query, self.key, self.value))
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        y = self.norm_hidden(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self, layers, again):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.again = again

    def forward(self, words):
        x = self.words(words)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        return self.head(self.norm(x))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--batch", type=int, default=1, help="texts of each GPU (default: %(default)s)")
    parser.add_argument("--length", type=int, default=8192, help="words of a text (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--checkpoint", action="store_true", help="compute each layer again in the backward pass")
    options = parser.parse_args()

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    with torch.device("meta"):
        model = Model(options.layers, options.checkpoint)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    for _ in range(options.steps):
        words = torch.randint(WORDS, (options.batch, options.length), device=device)
        loss = functional.cross_entropy(model(words).flatten(0, 1).float(), words.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
