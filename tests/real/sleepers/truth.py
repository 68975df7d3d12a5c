# SPDX-License-Identifier: MIT
"""look("name") compares what gpuprof says of every device with two others: reserved and its peak with the simulator's ledger;
allocated and asleep with PyTorch's blocks, each of which has memory under it or not as the driver says.  Peaks are the largest
values of all looks.  A device without a context has none."""
import ctypes
import json
import os
import tempfile

import gpuprof
import torch
from common import compare, done, expect  # noqa: F401

MIB = 1 << 20
UNIT = 128 << 20
DRIVER = ctypes.CDLL("libcuda.so.1")
CU_POINTER_ATTRIBUTE_MAPPED = 13
peaks = {}
is_restarted = False


def ledger():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ledger")
        assert DRIVER.sim_ledger_write(path.encode()) == 0
        with open(path) as file:
            return json.load(file)["devices"]


def is_resident(address):
    mapped = ctypes.c_uint(0)
    found = DRIVER.cuPointerGetAttribute(ctypes.byref(mapped), CU_POINTER_ATTRIBUTE_MAPPED, ctypes.c_ulonglong(address))
    return found == 0 and mapped.value == 1


def look(name):
    devices = ledger()
    truth = [{"allocated_bytes.all": device["allocated_bytes"]["current"], "asleep_bytes": 0,
              "reserved_bytes.all": device["reserved_bytes"]["current"]} for device in devices]
    for segment in torch.cuda.memory_snapshot():
        one = truth[segment["device"]]
        # What is allocated of a segment are its blocks.
        if is_resident(segment["address"]):
            one["allocated_bytes.all"] -= segment["total_size"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                one["allocated_bytes.all" if is_resident(block["address"]) else "asleep_bytes"] += block["size"]
    for device, one in enumerate(truth):
        ours = gpuprof.memory_stats(device)
        if not ours and not devices[device]["reserved_bytes"]["peak"]:
            continue
        for key, value in one.items():
            peak = peaks[device, key] = max(peaks.get((device, key), 0), value)
            if key == "reserved_bytes.all" and not is_restarted:
                peak = devices[device]["reserved_bytes"]["peak"]
            compare(name, device, key, ours[key + ".current"], value)
            compare(name, device, key + ".peak", ours[key + ".peak"], peak)
        torch_says = torch.cuda.memory_allocated(device)
        expect(f"{name}: device {device}: a sleeping tensor is counted by PyTorch", one["asleep_bytes"] <= torch_says)
    return truth


def restart(name):
    """After a part in which several threads ran at once: what the peak was depends on the order of their calls, and begins anew."""
    global is_restarted
    for device, one in enumerate(ledger()):
        peak = gpuprof.memory_stats(device)["reserved_bytes.all.peak"]
        expect(f"{name}: device {device}: no peak above the device's", peak <= one["reserved_bytes"]["peak"])
        gpuprof.reset_peak_memory_stats(device)
    peaks.clear()
    is_restarted = True
