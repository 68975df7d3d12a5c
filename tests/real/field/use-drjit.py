# SPDX-License-Identifier: MIT
# sim: gpu=a100-40g
# Dr.Jit's arrays: from the driver's pool, rounded up to a power of two, and kept when they are freed.
import drjit
from common import done, equal, ledger, say, step
from drjit.cuda import Float

MIB = 1 << 20


def held():
    return ledger()["allocated_bytes"]["current"]


def made(mib):
    array = drjit.arange(Float, mib * MIB // 4)
    drjit.eval(array)
    drjit.sync_thread()
    return array


arrays = [made(5)]
step("5 MiB")
say("held", held())
arrays += [made(3), made(3)]
step("3 MiB twice")
say("held", held())
arrays.clear()
drjit.sync_thread()
step("freed")
say("held", held())
arrays = [made(5)]
step("5 MiB again")
say("held", held())
arrays.clear()
drjit.flush_malloc_cache()
drjit.sync_thread()
step("flush_malloc_cache")
say("held", held())
equal("after the flush", held(), 0)
done()
