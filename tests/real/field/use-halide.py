# SPDX-License-Identifier: MIT
# Halide's JIT for CUDA: buffers of their own size, kept when the program has freed them.
import gc

import halide
from common import done, equal, ledger, say, step

x, y, xi, yi = (halide.Var(name) for name in ("x", "y", "xi", "yi"))
sums = halide.Func("sums")
sums[x, y] = halide.cast(halide.Float(32), x + y)
sums.gpu_tile(x, y, xi, yi, 8, 8)
target = halide.get_host_target().with_feature(halide.TargetFeature.CUDA)


def held():
    return ledger()["allocated_bytes"]["current"]


buffer = sums.realize([1024, 1280], target)
step("5 MiB")
say("held", held())
del buffer
gc.collect()
step("freed")
say("held", held())
buffer = sums.realize([1024, 1024], target)
step("4 MiB take memory of their own")
equal("both", held(), 9 << 20)
del buffer
gc.collect()
buffer = sums.realize([1024, 1280], target)
step("5 MiB that were kept")
equal("no more", held(), 9 << 20)
done()
