# SPDX-License-Identifier: MIT
# TVM's arrays on CUDA: of their own size, freed at once.
import tvm
from common import done, equal, ledger, say, step

device = tvm.cuda(0)
say("a device", device.exist)


def held():
    return ledger()["allocated_bytes"]["current"]


arrays = [tvm.runtime.empty((size,), "float32", device) for size in (5 << 18, 3 << 18, 7)]
step("three arrays")
equal("their sizes", held(), (8 << 20) + 28)
del arrays[0]
step("one is gone")
equal("the others", held(), (3 << 20) + 28)
arrays.append(tvm.runtime.empty((5 << 18,), "float32", device))
step("again")
arrays.clear()
step("all gone")
equal("nothing", held(), 0)
done()
