# SPDX-License-Identifier: MIT
# vLLM's CuMemAllocator from its own sources: what sleeps, what stays and what wakes, by tag, on two devices and beside threads.
# use-vllm.py SOURCE LIBRARY: the folder of vLLM, and its csrc/cumem_allocator.cpp, compiled.
# sim: devices=2,memory=16GiB,contents=none
import importlib.util
import logging
import random
import sys
import threading
import types

import torch
from truth import UNIT, MIB, done, expect, look, restart

source, library = sys.argv[1:3]


def module(name, **contents):
    """The rest of vLLM, of which the allocator uses these few names, wants packages that are not here."""
    made = sys.modules[name] = types.ModuleType(name)
    made.__path__ = []
    made.__dict__.update(contents)
    return made


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    loaded = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def find_loaded_library(name):
    with open("/proc/self/maps") as file:
        return next((line.split()[-1] for line in file if "/" in line and name in line.rpartition("/")[2]), None)


platform = types.SimpleNamespace(is_rocm=lambda: False, is_cuda_alike=lambda: True, is_cuda=lambda: True, is_xpu=lambda: False)
for name in ("vllm", "vllm.utils", "vllm.distributed", "vllm.distributed.device_communicators"):
    module(name)
module("vllm.logger", init_logger=logging.getLogger)
module("vllm.envs", VLLM_CUDART_SO_PATH=None)
module("vllm.platforms", current_platform=platform)
module("vllm.utils.system_utils", find_loaded_library=find_loaded_library)
module("vllm.utils.platform_utils", is_pin_memory_available=lambda: True)
module("vllm.utils.torch_utils", PIN_MEMORY=True)
load("vllm.distributed.device_communicators.cuda_wrapper", f"{source}/vllm/distributed/device_communicators/cuda_wrapper.py")
load("vllm.cumem_allocator", library)
package = load("vllm.device_allocator", f"{source}/vllm/device_allocator/__init__.py")
package.__path__ = [f"{source}/vllm/device_allocator"]
from vllm.device_allocator.cumem import CuMemAllocator  # noqa: E402

allocator = CuMemAllocator.get_instance()
first = torch.zeros(1, device="cuda:0")
look("before")


def tensors(tag, count, size, device=0):
    with allocator.use_memory_pool(tag), torch.cuda.device(device):
        return [torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}") for _ in range(count)]


weights = tensors("weights", 4, UNIT)
look("weights")
cache = tensors("kv_cache", 1, 3 * UNIT)
look("a cache")
outside = torch.empty(300 * MIB, dtype=torch.uint8, device="cuda:0")
look("and a tensor outside")
allocator.sleep(("weights",))
expect("seven sleep", look("asleep, level 1")[0]["asleep_bytes"] == 7 * UNIT)
activations = torch.empty(5 * UNIT, dtype=torch.uint8, device="cuda:0")
look("another uses the room")
del activations
torch.cuda.empty_cache()
look("and gives it back")
allocator.wake_up(["weights"])
look("weights are awake")
allocator.wake_up(["kv_cache"])
look("all are awake")
allocator.sleep(())
look("asleep, level 2")
allocator.wake_up()
look("awake again")
if hasattr(allocator, "discard"):
    allocator.discard("kv_cache")
    look("the cache is discarded")
    allocator.wake_up()
    look("the cache is awake")
del weights[1], cache
look("two are idle")
allocator.sleep(())
look("asleep with idle memory")
allocator.wake_up()
look("awake with idle memory")
small = tensors("weights", 50, 300 * 1024)
look("small ones")
allocator.sleep("weights")
look("small ones asleep")
held = small[::2]
del small
look("half of them freed asleep")
allocator.wake_up()
look("the others awake")
other = torch.zeros(1, device="cuda:1")
second = tensors("weights", 2, UNIT, 1)
look("a second device")
allocator.sleep("weights")
look("both devices asleep")
allocator.wake_up()
look("both devices awake")

draw = random.Random(1)
live = {}
for turn in range(150):
    what = draw.choice(("pool", "pool", "outside", "free", "free", "turn", "turn"))
    is_asleep = any(data.is_asleep for data in allocator.pointer_to_data.values()) if turn else False
    if what == "pool" and not is_asleep:
        tag, device = draw.choice(("weights", "kv_cache", "default")), draw.randrange(2)
        live[turn] = tensors(tag, draw.randrange(1, 4), draw.choice((1000, 3 * MIB, 70 * MIB)), device)
    elif what == "outside":
        live[turn] = torch.empty(draw.choice((1000, 5 * MIB, 40 * MIB)), dtype=torch.uint8, device=f"cuda:{draw.randrange(2)}")
    elif what == "free" and live:
        del live[draw.choice(list(live))]
    elif what == "turn" and is_asleep:
        allocator.wake_up(draw.choice((None, ["weights"], ["kv_cache"])))
    elif what == "turn":
        allocator.sleep(draw.choice(((), "weights", ("weights", "kv_cache"))))
    look(f"turn {turn}: {what}")
allocator.wake_up()
look("after the turns")


def work(stop, seed, worked):
    """What other threads of a server do while one puts the weights to sleep."""
    draw = random.Random(seed)
    mine = []
    while not stop.is_set():
        mine.append(torch.empty(draw.randrange(1, 4 * MIB), dtype=torch.uint8, device=f"cuda:{seed % 2}"))
        if len(mine) > 20:
            del mine[draw.randrange(len(mine))]
        worked[seed] += 1


stop, worked = threading.Event(), [0] * 4
threads = [threading.Thread(target=work, args=(stop, seed, worked)) for seed in range(4)]
for thread in threads:
    thread.start()
turns = 0
while turns < 20 or min(worked) < 200:
    allocator.sleep(draw.choice(((), "weights")))
    allocator.wake_up(draw.choice((None, ["weights"])))
    turns += 1
stop.set()
for thread in threads:
    thread.join()
restart("after the threads")
look("after the threads")
allocator.wake_up()
look("all awake after the threads")
live.clear()
del held, second, weights, outside
look("all is freed")
done()
