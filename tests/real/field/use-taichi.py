# SPDX-License-Identifier: MIT
# Taichi's fields and arrays. Its package opens its core with RTLD_DEEPBIND, and that looks the driver up by itself: CUPTI counts
# it, and driver hooks say that they do not see it.
import gc
import json
import os
import subprocess

import taichi
from common import done, equal, ledger, say, step

library = os.environ.get("CUDA_INJECTION64_PATH", "")
hooked = bool(library) and os.environ.get("GPUPROF_SOURCE") == "hooks"


def compare(name):
    if not hooked:
        step(name)


taichi.init(arch=taichi.cuda, offline_cache=False)
compare("a context")
field = taichi.field(taichi.f32, shape=(1024, 1024))


@taichi.kernel
def fill():
    for i, j in field:
        field[i, j] = 1.0


fill()
taichi.sync()
compare("a field")
arrays = [taichi.ndarray(taichi.f32, shape=((at + 1) << 20,)) for at in range(6)]
compare("arrays")
del arrays[::2]
gc.collect()
taichi.sync()
compare("some freed")
say("held", ledger()["allocated_bytes"]["current"])
if hooked:
    command = [os.path.join(os.path.dirname(library), "../bin/gpuprof"), "stat", "--json", "-p", str(os.getpid())]
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    trouble = json.loads(out)["processes"][0]["trouble"] or ""
    equal("the hooks name the library that they do not see", "taichi_python" in trouble, True)
done()
