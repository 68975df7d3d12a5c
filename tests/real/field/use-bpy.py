# SPDX-License-Identifier: MIT
# sim: gpu=a100-40g
# Cycles of Blender: the peak is what Blender's own log says, most of it states of paths, whatever the size of the picture.
import os
import re
import tempfile

import bpy
from common import done, equal, ledger, say, step


def held():
    return ledger()["allocated_bytes"]


def render(width, height):
    """The peak in MiB, with two digits, as Blender's log names it."""
    scene = bpy.context.scene
    scene.render.resolution_x, scene.render.resolution_y = width, height
    with tempfile.TemporaryFile() as log:
        kept = os.dup(1)
        os.dup2(log.fileno(), 1)
        bpy.ops.render.render()
        os.dup2(kept, 1)
        os.close(kept)
        log.seek(0)
        return re.findall(rb"Mem:[0-9.]+M, Peak:([0-9.]+)M", log.read())[-1].decode()


bpy.ops.wm.read_factory_settings()
cycles = bpy.context.preferences.addons["cycles"].preferences
cycles.compute_device_type = "CUDA"
cycles.get_devices()
for device in cycles.devices:
    device.use = device.type == "CUDA"
scene = bpy.context.scene
scene.render.engine, scene.cycles.device, scene.cycles.samples = "CYCLES", "GPU", 4
scene.cycles.use_denoising, scene.render.resolution_percentage = False, 100

for width, height in ((640, 480), (1920, 1080)):
    own = render(width, height)
    step(f"{width} x {height}")
    say(width, height, own)
    equal("Blender's own peak", own, f"{held()['peak'] / 2**20:.2f}")
    equal("all is given back", held()["current"], 0)
done()
