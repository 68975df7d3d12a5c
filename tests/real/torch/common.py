# SPDX-License-Identifier: MIT
"""What every script here calls after each operation: step("name") compares gpuprof's numbers with
PyTorch's own.  done() prints the result; a script that does not reach it has failed."""
import sys

import gpuprof
import torch

checked = 0
wrong = []


def compare(name, device, key, ours, theirs):
    global checked
    checked += 1
    if ours != theirs:
        wrong.append(name)
        print(f"{name}: device {device}: {key}: gpuprof {ours}, PyTorch {theirs}", flush=True)


def step(name, other=0):
    """`other`: bytes on device 0 that the program allocated without PyTorch, from the first step on."""
    for device in range(torch.cuda.device_count()):
        theirs = torch.cuda.memory_stats(device)
        ours = gpuprof.memory_stats(device)
        more = other if device == 0 else 0
        for key in ("reserved_bytes.all.current", "reserved_bytes.all.peak"):
            compare(name, device, key, ours.get(key), theirs.get(key, 0) + more)


def expect(name, truth):
    global checked
    checked += 1
    if not truth:
        wrong.append(name)
        print(f"{name}: is not so", flush=True)


def done():
    print(f"{checked - len(wrong)} of {checked} agree", flush=True)
    sys.exit(1 if wrong else 0)
