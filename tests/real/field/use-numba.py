# SPDX-License-Identifier: MIT
# Arrays of numba's own allocator, which frees late and in batches, and pinned memory.
import gc

import numpy as np
from common import done, ledger, say, step
from numba import cuda

arrays = [cuda.device_array((at + 1) << 20, dtype=np.float32) for at in range(6)]
step("device arrays")
host = np.arange(1 << 20, dtype=np.int32)
there = cuda.to_device(host)
say("a copy comes back", bool((there.copy_to_host() == host).all()))
step("a copy")
pinned = cuda.pinned_array(1 << 18, dtype=np.float64)
mapped = cuda.mapped_array(1 << 16, dtype=np.float64)
step("pinned and mapped")
stream = cuda.stream()
there = cuda.to_device(pinned, stream=stream)
stream.synchronize()
step("on a stream")
del arrays[::2]
gc.collect()
step("some freed, or waiting")
cuda.current_context().deallocations.clear()
step("freed")
say("held", ledger()["reserved_bytes"]["current"])
done()
