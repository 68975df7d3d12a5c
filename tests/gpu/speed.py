#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""speed.py: what gpuprof costs a PyTorch program on this GPU.

    speed.py [--rounds=N] [--json=FILE]

Two loops: "decode", a small transformer that generates one word at a time, which waits for launches; and "train", a small GPT.
Each is measured in a process without gpuprof, with it from the start by CUPTI, by hooks, and with call sites, N times in turn; and
in one process before an attach, attached, with stacks, and after the detach, N times in turn.  Prints medians in microseconds of an
iteration and what is added to them, with the spread of the rounds without gpuprof.  Exit code 77: no PyTorch with a GPU.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
COMMAND = os.path.join(os.environ.get("GPUPROF_BUILD", os.path.join(TOP, "build")), "bin", "gpuprof")


def loops():
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = (
        nn.ModuleList(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, norm_first=True) for _ in range(6))
        .cuda()
        .half()
        .eval()
    )
    word = torch.randn(1, 1, 512, device="cuda", dtype=torch.float16)

    def decode(count=200):
        with torch.no_grad():
            for _ in range(count):
                x = word
                for layer in layers:
                    x = layer(x)
        torch.cuda.synchronize()

    model = nn.Sequential(
        nn.Embedding(8192, 512),
        *(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(4)),
        nn.Linear(512, 8192)
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    words = torch.randint(0, 8192, (8, 256), device="cuda")

    def train(count=12):
        for _ in range(count):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(words).view(-1, 8192), words.view(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.cuda.synchronize()

    decode(50)
    train(5)

    def measure():
        row = {}
        for name, loop, count in (("decode", decode, 200), ("train", train, 12)):
            times = []
            for _ in range(5):
                start = time.perf_counter()
                loop(count)
                times.append((time.perf_counter() - start) * 1e6 / count)
            row[name] = statistics.median(times)
        return row

    return measure


def command(*arguments):
    done = subprocess.run([COMMAND] + list(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    if done.returncode:
        print("%s: exit %d: %s" % (arguments[0], done.returncode, done.stdout.strip()[-300:]), file=sys.stderr)
    return done.returncode == 0


def one():
    measure = loops()
    print(json.dumps(measure()))


def turns(rounds):
    """In one process: before, attached, with stacks, detached."""
    measure, rows, pid = loops(), {}, str(os.getpid())

    def take(state):
        rows.setdefault(state, []).append(measure())

    for turn in range(rounds):
        take("before the attach" if turn == 0 else "detached")
        if not command("attach", pid):
            break
        take("attached")
        if command("stacks", "all", "-p", pid):
            take("attached, stacks")
        if not command("detach", pid):
            break
    take("detached")
    print(json.dumps(rows))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--turns", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one or options.turns:
        return one() if options.one else turns(options.rounds)
    python = os.environ.get("PYTHON", "python3")
    if subprocess.run(
        [python, "-c", "import torch, sys; sys.exit(not torch.cuda.is_available())"], stderr=subprocess.DEVNULL
    ).returncode:
        print("no PyTorch with a GPU here")
        return 77
    base = {k: v for k, v in os.environ.items() if not k.startswith(("GPUPROF_", "CUDA_INJECTION")) and k != "LD_PRELOAD"}
    ways = {
        "without": ({}, []),
        "again without": ({}, []),
        "cupti": ({"CUDA_INJECTION64_PATH": os.path.join(os.path.dirname(os.path.dirname(COMMAND)), "lib", "libgpuprof.so")}, []),
        "hooks": ({"GPUPROF_SOURCE": "hooks"}, [COMMAND, "run", "--"]),
        "stacks": ({}, [COMMAND, "run", "--stacks=all", "--"]),
    }
    rows = {}

    def say(name, first):
        columns = []
        for what in ("decode", "train"):
            seen, plain = (statistics.median(row[what] for row in rows[one]) for one in (name, first))
            columns.append(
                "%s %8.1f us %+6.2f %% (%s)"
                % (what, seen, 100 * (seen / plain - 1), " ".join("%.1f" % row[what] for row in rows[name]))
            )
        print("%-20s %s" % (name, "   ".join(columns)), flush=True)

    def program(prefix, more, *arguments):
        done = subprocess.run(
            prefix + [python, os.path.abspath(__file__)] + list(arguments),
            env={**base, **more},
            stdout=subprocess.PIPE,
            universal_newlines=True,
        )
        return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None

    # What is printed stays, should the time run out.
    rows.update(program([], {}, "--turns", "--rounds=%d" % options.rounds) or {})
    for name in list(rows):
        say(name, "before the attach")
    for turn in range(options.rounds):
        for name, (more, prefix) in ways.items():
            row = program(prefix, more, "--one")
            if row:
                rows.setdefault(name, []).append(row)
                say(name, "without")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
