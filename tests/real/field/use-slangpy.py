# SPDX-License-Identifier: MIT
# sim: gpu=a100-40g
# slangpy's pages of buffers. Its loader (slang-rhi) has the driver in exported variables that are named as the calls.
import gc
import importlib.util
import os
import tempfile

# It searches a toolkit for headers and NVRTC; those of NVIDIA's packages will do.
packages = list(importlib.util.find_spec("nvidia").submodule_search_locations)[0]
toolkit = tempfile.TemporaryDirectory()
os.mkdir(toolkit.name + "/lib64")
os.symlink(packages + "/cuda_runtime/include", toolkit.name + "/include")
for name in os.listdir(packages + "/cuda_nvrtc/lib"):
    os.symlink(f"{packages}/cuda_nvrtc/lib/{name}", f"{toolkit.name}/lib64/{name}")
os.symlink("libnvrtc.so.12", toolkit.name + "/lib64/libnvrtc.so")
os.environ["CUDA_PATH"] = toolkit.name

import slangpy  # noqa: E402
from common import done, ledger, say, step  # noqa: E402

device = slangpy.Device(type=slangpy.DeviceType.cuda)
use = slangpy.BufferUsage.unordered_access
step("a device")
small = device.create_buffer(size=64, usage=use)
step("64 bytes take a page")
say("held", ledger()["allocated_bytes"]["current"])
large = device.create_buffer(size=300 << 20, usage=use)
step("300 MiB")
more = [device.create_buffer(size=(at + 1) << 20, usage=use) for at in range(8)]
step("more")
say("held", ledger()["allocated_bytes"]["current"])
del more[::2], large
gc.collect()
device.wait()
step("some are gone")
say("held", ledger()["allocated_bytes"]["current"])
done()
