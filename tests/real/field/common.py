# SPDX-License-Identifier: MIT
"""What the programs here call after each step.  step("name") compares what gpuprof says is reserved and allocated, now
and at the most, with the simulator's ledger; equal() compares two numbers.  say() prints what must not depend on gpuprof.  done()
prints the result; a program that does not reach it has failed."""
import ctypes
import json
import os
import subprocess
import sys
import tempfile

import gpuprof

checked = 0
wrong = []
DRIVER = ctypes.CDLL("libcuda.so.1")


def ledger(device=0):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ledger")
        assert DRIVER.sim_ledger_write(path.encode()) == 0
        with open(path) as file:
            return json.load(file)["devices"][device]


def equal(name, ours, theirs):
    """Without gpuprof there is nothing to compare."""
    global checked
    if not os.environ.get("CUDA_INJECTION64_PATH"):
        return
    checked += 1
    if ours != theirs:
        wrong.append(name)
        print(f"{name}: gpuprof {ours}, expected {theirs}", flush=True)


def step(name, device=0):
    truth = ledger(device)
    stats = gpuprof.memory_stats(device)
    for what in ("reserved_bytes", "allocated_bytes"):
        for field in ("current", "peak"):
            equal(f"{name}: {what} {field}", stats.get(f"{what}.all.{field}"), truth[what][field])


def polled(framework, device=0):
    """What gpuprof.owned() has of a framework's own pool: allocated bytes now and at the most."""
    said = gpuprof.owned(device).get("polled", {}).get(framework, {})
    return said.get("allocated"), said.get("allocated_peak")


def stat_says(framework, device=0):
    """The same in gpuprof stat, of the framework's owner, with its limit; all of it polled less than a second ago."""
    library = os.environ.get("CUDA_INJECTION64_PATH")
    if not library:
        return None
    command = os.path.join(os.path.dirname(library), "../bin/gpuprof")
    out = subprocess.run([command, "stat", "--json", "-p", str(os.getpid())], stdout=subprocess.PIPE, check=True).stdout
    for one in json.loads(out)["processes"][0]["devices"]:
        for said in one["polled_pools"] if one["device"] == device else ():
            if said["name"] == framework and said["age_ns"] < 10**9:
                return said["allocated_bytes"], said["allocated_peak_bytes"], said["reserved_bytes"], said["limit_bytes"]
    return None


def say(*words):
    print("out:", *words, flush=True)


def done():
    print(f"{checked - len(wrong)} of {checked} agree", flush=True)
    sys.exit(1 if wrong else 0)
