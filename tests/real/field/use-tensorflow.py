# SPDX-License-Identifier: MIT
# TensorFlow takes most of the device at once; with memory growth, what it needs.  What it hands out of that is allocated: its own
# number, now and at the most, after each of many random tensors.
import ctypes
import importlib.util
import os
import random

# The run path of TensorFlow 2.21 has no folder of this one, and without it there is no GPU.
ctypes.CDLL(os.path.join(list(importlib.util.find_spec("nvidia").submodule_search_locations)[0], "cusolver/lib/libcusolver.so.11"))
import gpuprof
import numpy as np
import tensorflow as tf
from common import done, equal, ledger, polled, say

for device in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(device, True)
say(len(tf.config.list_physical_devices("GPU")), "devices")


def step(name):
    info, held = tf.config.experimental.get_memory_info("GPU:0"), ledger()["reserved_bytes"]
    ours, owner = gpuprof.owned(0), gpuprof.owned(0).get("owners", {}).get("tensorflow", {})
    said = [ours.get(key) for key in ("allocated", "allocated_peak", "reserved", "reserved_peak")]
    equal(name, said, [info["current"], info["peak"], held["current"], held["peak"]])
    equal(f"{name}: its owner", [owner.get("allocated"), owner.get("reserved")], [info["current"], held["current"]])
    equal(f"{name}: polled", polled("tensorflow"), (info["current"], info["peak"]))


with tf.device("/GPU:0"):
    tensors = [tf.constant(np.full((at + 1) << 20, at, dtype=np.float32)) for at in range(6)]
    say([tensor.device for tensor in tensors])
    step("tensors")
    say("they come back", all(bool((tensor.numpy() == at).all()) for at, tensor in enumerate(tensors)))
    del tensors[::2]
    step("some freed")
    random.seed(1)
    for at in range(200):
        if tensors and random.random() < 0.45:
            del tensors[random.randrange(len(tensors))]
        else:
            tensors.append(tf.constant(np.zeros(random.randrange(1, 1 << 22), dtype=np.uint8)))
        step(f"step {at}")
say("in use", tf.config.experimental.get_memory_info("GPU:0"), "held", ledger()["reserved_bytes"]["current"])
done()
