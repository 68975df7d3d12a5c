# SPDX-License-Identifier: MIT
"""A framework's own profiler, three times, with memory before and after: python3 profilers.py torch|jax.

Prints "turn N EVENTS" for torch, and "more BYTES": how much more memory gpuprof (GPUPROF_BIN) sees after 512 MiB were allocated
once the profiler is over; -1 if it is not there.
"""
import json
import os
import subprocess
import sys
import tempfile


def reserved():
    env = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_INJECTION", "LD_PRELOAD"))}
    out = subprocess.run([os.environ["GPUPROF_BIN"], "stat", "--json", "-p", str(os.getpid())], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, env=env).stdout
    if not out:
        return None
    process = json.loads(out.decode())["processes"][0]
    print("source", process["source"], flush=True)
    return sum(d["stats"]["reserved_bytes.all.current"] for d in process["devices"])


def difference(before, after):
    print("more", -1 if None in (before, after) else after - before, flush=True)


def with_torch():
    import torch
    from torch.profiler import ProfilerActivity, profile
    x = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    reserved()
    for turn in range(3):
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
            (torch.empty(512, 512, device="cuda") + 1).sum()
            torch.cuda.synchronize()
        print("turn", turn, sum("CUDA" in str(event.device_type) for event in seen.events()), flush=True)
    before = reserved()
    y = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
    difference(before, reserved())
    return x, y


def with_jax():
    """Nothing is compiled: XLA wants cuDNN for that."""
    os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"
    os.environ["JAX_PLATFORMS"] = "cuda"
    import jax
    import numpy as np
    try:
        from jax._src import hardware_utils
        hardware_utils.has_visible_nvidia_gpu = lambda: True  # it looks for a device node, which a simulated GPU has not
    except ImportError:
        pass
    device = jax.devices()[0]

    def put(mib):
        return jax.device_put(np.zeros(mib << 20, dtype=np.uint8), device).block_until_ready()
    x = put(64)
    reserved()
    try:
        with tempfile.TemporaryDirectory() as folder, jax.profiler.trace(folder):
            put(1)
            put(1)
            print("turn 0", sum(os.path.getsize(os.path.join(f, name)) > 0 for f, _, names in os.walk(folder) for name in names))
    except Exception as error:
        print("trace:", str(error)[:200])
    before = reserved()
    y = put(512)
    difference(before, reserved())
    return x, y


kept = with_torch() if sys.argv[1] == "torch" else with_jax()
