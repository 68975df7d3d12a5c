#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A training loop in Python that leaks: every third step keeps a metric on the GPU "for the log".  It needs no package:
it calls the CUDA driver through ctypes, as every Python library does in the end, so it runs on the simulated GPU:

    gpuprof run --sim --record=leak.gpuprof -- python3 examples/leak.py
    gpuprof leaks leak.gpuprof                      names Metrics.log and its line
"""
import ctypes
import sys
import time

MIB = 1 << 20
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuMemAlloc_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t]
cuda.cuMemFree_v2.argtypes = [ctypes.c_uint64]


def check(result):
    if result:
        sys.exit(f"leak.py: CUDA error {result}")


class Tensor:
    """Device memory that lives as long as the object."""

    def __init__(self, nbytes):
        self.pointer = ctypes.c_uint64()
        check(cuda.cuMemAlloc_v2(ctypes.byref(self.pointer), nbytes))

    def __del__(self):
        cuda.cuMemFree_v2(self.pointer)


class Metrics:
    def __init__(self):
        self.history = []

    def log(self, step):
        loss = Tensor(2 * MIB)
        if step % 3 == 0:
            self.history.append(loss)  # the whole tensor instead of its number


def forward(batch, layers):
    return [Tensor(4 * MIB) for _ in range(layers)]


def train(steps):
    metrics = Metrics()
    weights = [Tensor(8 * MIB) for _ in range(6)]
    for step in range(steps):
        batch = Tensor(16 * MIB)
        activations = forward(batch, len(weights))
        metrics.log(step)
        del activations, batch
        time.sleep(0.01)
    return len(metrics.history)


def main():
    context = ctypes.c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))
    print("leak.py:", train(int(sys.argv[1]) if len(sys.argv) > 1 else 200), "tensors kept")


if __name__ == "__main__":
    main()
