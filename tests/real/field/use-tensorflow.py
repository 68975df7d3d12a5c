# SPDX-License-Identifier: MIT
# TensorFlow takes most of the device at once; with memory growth, what it needs.
import ctypes
import importlib.util
import os

# The run path of TensorFlow 2.21 has no folder of this one, and without it there is no GPU.
ctypes.CDLL(os.path.join(list(importlib.util.find_spec("nvidia").submodule_search_locations)[0], "cusolver/lib/libcusolver.so.11"))
import numpy as np
import tensorflow as tf
from common import done, equal, ledger, polled, say, step

for device in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(device, True)
say(len(tf.config.list_physical_devices("GPU")), "devices")
with tf.device("/GPU:0"):
    tensors = [tf.constant(np.full((at + 1) << 20, at, dtype=np.float32)) for at in range(6)]
    say([tensor.device for tensor in tensors])
    step("tensors")
    say("they come back", all(bool((tensor.numpy() == at).all()) for at, tensor in enumerate(tensors)))
    del tensors[::2]
    step("some freed")
say("in use", tf.config.experimental.get_memory_info("GPU:0"), "held", ledger()["reserved_bytes"]["current"])
info = tf.config.experimental.get_memory_info("GPU:0")
equal("what is in use, polled", polled("tensorflow"), (info["current"], info["peak"]))
done()
