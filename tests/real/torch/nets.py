# SPDX-License-Identifier: MIT
"""Nets without matrix products, which the simulated GPU lacks, and what programs do with them: PROGRAMS leak nothing,
LEAKS keep more with every step.  rhythms.py runs one or all of them."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Scale(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * self.weight


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = Scale(width)
        self.down = Scale(width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Blocks(nn.Module):
    """A transformer's shape: equal blocks in a loop of forward()."""

    def __init__(self):
        super().__init__()
        self.first = Scale(256)
        self.blocks = nn.ModuleList([Block(256) for _ in range(24)])

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x


class Stages(nn.Module):
    """A pyramid's shape: stages of blocks, each with half the rows of the one before."""

    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList([nn.ModuleList([Block(256) for _ in range(6)]) for _ in range(4)])

    def forward(self, x):
        for stage in self.stages:
            for block in stage:
                x = block(x)
            x = x[::2].contiguous()
        return x


def net(name):
    chain = [layer for _ in range(20) for layer in (Scale(256), nn.Sigmoid())]
    return {"blocks": Blocks, "stages": Stages, "chain": lambda: nn.Sequential(*chain)}[name]().cuda()


class Run:
    def __init__(self, name):
        self.model = net(name)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.kept = []
        self.cache = {}

    def batch(self):
        return torch.ones(512, 256, device="cuda")

    def step(self):
        x = self.batch()
        loss = self.model(x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def train(self, steps):
        for _ in range(steps):
            self.step()

    def infer(self, steps):
        with torch.no_grad():
            for _ in range(steps):
                self.model(self.batch())

    def forward(self):
        return self.model(self.batch())

    def backward(self):
        loss = self.forward().square().mean()
        loss.backward()
        return loss

    # Leaks: each leaves in self what it keeps.

    def losses_with_graphs(self):
        for _ in range(12):
            x = self.batch()
            loss = self.model(x).square().mean()
            self.kept.append(loss)

    def cache_without_limit(self):
        def features(number):
            if number not in self.cache:
                self.cache[number] = self.model(self.batch())
            return self.cache[number]
        with torch.no_grad():
            for number in range(20):
                features(number)

    def exceptions_with_frames(self):
        def work():
            x = self.batch()
            y = self.model(x)
            raise ValueError(f"bad batch {len(y)}")
        for _ in range(12):
            try:
                work()
            except ValueError as error:
                self.kept.append(error)

    def hooks_with_activations(self):
        for module in self.model.modules():
            if isinstance(module, Scale):
                module.register_forward_hook(lambda module, given, out: self.kept.append(out.detach()))
        self.train(12)

    def growing_key_value_cache(self):
        keys = torch.zeros(0, 64, 1024, device="cuda")
        with torch.no_grad():
            for _ in range(40):
                x = self.model(self.batch())
                keys = torch.cat([keys, x[:1, :1].expand(64, 1024).reshape(1, 64, 1024)])
        self.kept.append(keys)


PROGRAMS = {"forward": Run.forward, "backward": Run.backward, "infer1": lambda run: run.infer(1),
            "infer20": lambda run: run.infer(20), "step1": lambda run: run.train(1), "step2": lambda run: run.train(2),
            "step3": lambda run: run.train(3), "step4": lambda run: run.train(4), "step5": lambda run: run.train(5),
            "step12": lambda run: run.train(12)}
LEAKS = {"losses": Run.losses_with_graphs, "cache": Run.cache_without_limit, "exceptions": Run.exceptions_with_frames,
         "hooks": Run.hooks_with_activations, "keys": Run.growing_key_value_cache}
NETS = ("blocks", "stages", "chain")
