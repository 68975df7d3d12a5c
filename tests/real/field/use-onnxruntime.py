# SPDX-License-Identifier: MIT
# Arrays and a session on the GPU.  The arena takes from the driver what it hands out in pieces; a model that copies needs no
# library of NVIDIA's beside the runtime.
import gc

import numpy as np
import onnxruntime
from common import done, ledger, say, step

onnxruntime.preload_dlls()
values = [onnxruntime.OrtValue.ortvalue_from_numpy(np.full((at + 1) << 20, at, dtype=np.float32), "cuda", 0) for at in range(6)]
step("arrays")
say(values[0].device_name(), "they come back", all(bool((value.numpy() == at).all()) for at, value in enumerate(values)))
del values[::2]
gc.collect()
step("some freed")
say("held", ledger()["reserved_bytes"]["current"])
done()
