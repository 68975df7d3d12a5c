# SPDX-License-Identifier: MIT
# cuda.core's memory resources: the device's pool, a pool of its own, pinned memory, memory of the driver's virtual calls.
from common import done, ledger, say, step
from cuda.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions, LegacyPinnedMemoryResource, VirtualMemoryResource

device = Device(0)
device.set_current()
stream = device.create_stream()
say(device.name)
step("a context")
buffers = [device.allocate(size << 20, stream=stream) for size in (1, 7, 64, 200)]
stream.sync()
step("from the device's pool")
own = DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=1 << 30))
more = [own.allocate(30 << 20, stream=stream) for _ in range(4)]
stream.sync()
step("from a pool of its own")
pinned = LegacyPinnedMemoryResource().allocate(5 << 20)
step("pinned")
mapped = VirtualMemoryResource(device).allocate(33 << 20)
step("virtual")
for buffer in buffers[::2] + more[1:]:
    buffer.close(stream)
stream.sync()
step("some freed")
mapped.close()
pinned.close()
step("mappings gone")
say("held", ledger()["reserved_bytes"]["current"])
done()
