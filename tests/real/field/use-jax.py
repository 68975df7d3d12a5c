# SPDX-License-Identifier: MIT
# JAX takes most of the device at once and hands pieces out of it, or takes each array from the driver.  Nothing is compiled:
# XLA wants cuDNN for that.
import sys

import jax
import numpy as np
from common import done, equal, ledger, polled, say, stat_says, step

device = jax.devices()[0]
say(device.device_kind, len(jax.devices()))
step("the client")
arrays = [jax.device_put(np.full((at + 1) << 20, at, dtype=np.float32), device) for at in range(8)]
for array in arrays:
    array.block_until_ready()
step("arrays")
stats = device.memory_stats()
pool = stats["pool_bytes"]
say("bytes in use", stats["bytes_in_use"], "of", pool)
beside = ledger()["reserved_bytes"]["current"] - pool
equal("JAX's pool, and handles of cuDNN beside it", 0 <= beside < 1 << 20, True)
say("they come back", all(bool((np.asarray(array) == at).all()) for at, array in enumerate(arrays)))
del arrays[::2]
step("some freed")
say("bytes in use", device.memory_stats()["bytes_in_use"])
left = sum(array.nbytes for array in arrays)
equal("what is left, polled", polled("jax"), (left, stats["bytes_in_use"]))
equal("what stat says", stat_says("xla"), (left, stats["bytes_in_use"], stats["pool_bytes"], stats["bytes_limit"]))
done()
