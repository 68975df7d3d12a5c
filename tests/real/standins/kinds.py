# SPDX-License-Identifier: MIT
"""kinds.py FOLDER: snapshots of the kinds that people publish, of nets with products and convolutions: one forward pass, one
step, a few, inference, and what programs do around their steps, each as NET-KIND.pickle.  Those of LEAKS keep more with
every step, and `gpuprof leaks` has to say so of them alone."""
import gc
import sys

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint


def convolutions():
    layers, before = [], 3
    for width in (16, 16, 32, 32, 64, 64):
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(1000, 128)
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(128, 4, 256, batch_first=True) for _ in range(6)])
        self.head = nn.Linear(128, 1000)

    def layer(self, layer, x):
        return layer(x)

    def forward(self, x):
        x = self.embedding(x)
        for layer in self.layers:
            x = self.layer(layer, x)
        return self.head(x)


class Checkpointed(Transformer):
    def layer(self, layer, x):
        return checkpoint(layer, x, use_reentrant=False)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(64, 128)
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        hidden = cell = torch.zeros(x.shape[0], 128, device="cuda")
        for t in range(x.shape[1]):
            hidden, cell = self.cell(x[:, t], (hidden, cell))
        return self.head(hidden)


def perceptron():
    layers = [layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.GELU(), nn.Dropout(0.1))]
    return nn.Sequential(*layers, nn.Linear(256, 10))


def tokens(size):
    return torch.zeros(size, 64, dtype=torch.long, device="cuda")


NETS = {"convolutions": (convolutions, lambda size: torch.ones(size, 3, 32, 32, device="cuda")),
        "transformer": (Transformer, tokens), "checkpointed": (Checkpointed, tokens),
        "recurrent": (Recurrent, lambda size: torch.ones(size, 30, 64, device="cuda")),
        "perceptron": (perceptron, lambda size: torch.ones(size, 256, device="cuda"))}


class Run:
    def __init__(self, net):
        make, self.batch = NETS[net]
        self.model = make().cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.kept = []

    def loss(self, size=16):
        return self.model(self.batch(size)).float().square().mean()

    def step(self, size=16):
        loss = self.loss(size)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def train(self, sizes):
        for size in sizes:
            self.kept.append(self.step(size))  # numbers, not tensors

    def infer(self, count):
        self.model.eval()
        with torch.inference_mode():
            for _ in range(count):
                self.model(self.batch(8))

    def accumulate(self):
        for i in range(12):
            self.loss().backward()
            if i % 4 == 3:
                self.optimizer.step()
                self.optimizer.zero_grad()

    def evaluate(self):
        for _ in range(4):
            self.train([16, 16])
            with torch.no_grad():
                for _ in range(3):
                    self.model(self.batch(8))

    def mixed_precision(self):
        scaler = torch.amp.GradScaler("cuda")
        for _ in range(6):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = self.loss()
            self.optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(self.optimizer)
            scaler.update()

    def moving_average(self):
        average = {name: value.clone() for name, value in self.model.state_dict().items()}
        for _ in range(8):
            self.step()
            for name, value in self.model.state_dict().items():
                if value.is_floating_point():
                    average[name].mul_(0.9).add_(value, alpha=0.1)
        self.kept.append(average)

    def keep_outputs(self):
        with torch.no_grad():
            for _ in range(20):
                self.kept.append(self.model(self.batch(64)))

    def keep_losses(self):
        for _ in range(12):
            self.kept.append(self.loss())

    def keep_features(self):
        for _ in range(12):
            out = self.model(self.batch(16))
            self.kept.append(out.detach().clone())
            self.optimizer.zero_grad()
            out.float().mean().backward()
            self.optimizer.step()


KINDS = {"forward": lambda run: run.model(run.batch(16)), "step1": lambda run: run.train([16]),
         "step2": lambda run: run.train([16] * 2), "step3": lambda run: run.train([16] * 3),
         "step10": lambda run: run.train([16] * 10), "sizes": lambda run: run.train([4, 16, 8, 12, 6, 16, 10, 14, 5, 9]),
         "growing": lambda run: run.train(range(2, 22, 2)), "infer1": lambda run: run.infer(1),
         "infer20": lambda run: run.infer(20), "accumulate": Run.accumulate, "evaluate": Run.evaluate,
         "precision": Run.mixed_precision, "average": Run.moving_average}
LEAKS = {"leak_outputs": Run.keep_outputs, "leak_losses": Run.keep_losses, "leak_features": Run.keep_features}


def snapshot(folder, net, name, kind):
    torch.cuda.memory._record_memory_history(max_entries=200000, stacks="python")
    run = Run(net)
    held = kind(run)
    torch.cuda.memory._dump_snapshot(f"{folder}/{net}-{name}.pickle")
    torch.cuda.memory._record_memory_history(None)
    del run, held
    gc.collect()
    torch.cuda.empty_cache()


for net in NETS:
    for name, kind in {**KINDS, **LEAKS}.items():
        snapshot(sys.argv[1], net, name, kind)
print("all of them written")
