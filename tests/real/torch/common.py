# SPDX-License-Identifier: MIT
"""What every script here calls after each operation: step("name") compares gpuprof's numbers with
PyTorch's own.  done() prints the result; a script that does not reach it has failed."""
import sys

import gpuprof
import torch

checked = 0
wrong = []

# What PyTorch's allocator and gpuprof both know, to the byte and to the call.
NAMES = ["reserved_bytes.all", "reserved_bytes.small_pool", "reserved_bytes.large_pool",
         "allocated_bytes.all", "allocated_bytes.small_pool", "allocated_bytes.large_pool",
         "allocation.all", "allocation.small_pool", "allocation.large_pool"]
KEYS = [f"{name}.{field}" for name in NAMES for field in ("current", "peak", "allocated", "freed")] + ["num_ooms"]


def compare(name, device, key, ours, theirs):
    global checked
    checked += 1
    if ours != theirs:
        wrong.append(name)
        print(f"{name}: device {device}: {key}: gpuprof {ours}, PyTorch {theirs}", flush=True)


def step(name, other=0):
    """`other`: bytes on device 0 that the program allocated without PyTorch, in one call, before PyTorch's
    first."""
    for device in range(torch.cuda.device_count()):
        theirs = torch.cuda.memory_stats(device)
        ours = gpuprof.memory_stats(device)
        more = {"_bytes": other, "ation": 1} if device == 0 and other else {}
        for key in KEYS:
            name_of, _, field = key.partition(".")
            pool_is_there = ".small_pool" not in key and field.rpartition(".")[2] != "freed"
            extra = more.get(name_of[-6:], more.get(name_of[-5:], 0)) if pool_is_there else 0
            # Before CUDA starts there is nothing: PyTorch counts devices by NVML.
            compare(name, device, key, ours.get(key) if ours else 0, theirs.get(key, 0) + extra)


def reset():
    """Both peaks start again, as a reset from outside does."""
    for device in range(torch.cuda.device_count()):
        torch.cuda.reset_peak_memory_stats(device)
        gpuprof.reset_peak_memory_stats(device)


def expect(name, truth):
    global checked
    checked += 1
    if not truth:
        wrong.append(name)
        print(f"{name}: is not so", flush=True)


def done():
    print(f"{checked - len(wrong)} of {checked} agree", flush=True)
    sys.exit(1 if wrong else 0)
