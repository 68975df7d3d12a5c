# SPDX-License-Identifier: MIT
"""Trains a GPT-2 of 163 million parameters for three steps and prints the allocator's peak after each."""
import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = [part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
                 for part in self.attend(self.norm1(x)).split(width, 2)]
        y = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.widen(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, words=50304, width=768, layers=12, heads=12, length=1024):
        super().__init__()
        self.word, self.place = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, words, wanted):
        x = self.word(words) + self.place(torch.arange(words.shape[1], device=words.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), wanted.view(-1))


model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
words = torch.zeros(4, 1024, dtype=torch.long, device="cuda")
for step in range(3):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(words, words)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(step, float(loss), torch.cuda.max_memory_allocated())
