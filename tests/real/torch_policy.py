# SPDX-License-Identifier: MIT
"""torch_policy.py FOLDER CONF FIRST COUNT: random programs on PyTorch's own caching allocator under the setting CONF.  Each is
written as a trace for `gpuprof replay` (FOLDER/SEED.trace) with what PyTorch said of it in comments at its end: bytes reserved at
the peak, segments that were taken, requests that failed.  Under expandable_segments, where gpuprof's own allocator maps less than
PyTorch, it is PyTorch's snapshot for `gpuprof fit` (FOLDER/SEED.pickle).  Run by tests/real/policy.sh."""
import os
import random
import sys

import torch

MIB = 1 << 20


def sizes(draw):
    """Around the borders of the allocator's rules."""
    return draw.choice([
        draw.randrange(1, 2048), draw.randrange(1, MIB), MIB + draw.randrange(-1024, 1025), draw.randrange(MIB, 10 * MIB),
        10 * MIB + draw.randrange(-1024, 1025), draw.randrange(10 * MIB, 24 * MIB), draw.randrange(20 * MIB, 200 * MIB)])


def program(seed, conf, path):
    draw = random.Random(seed)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    if GROWS:
        torch.cuda.memory._record_memory_history(stacks="python")
    # A sixteenth of what the device has, so that requests fail, be it at once or after what is cached was given back.
    total = torch.cuda.get_device_properties(0).total_memory
    limited = draw.random() < 0.5 and not GROWS
    torch.cuda.set_per_process_memory_fraction(1 / 16 if limited else 1.0)
    before = torch.cuda.memory_stats()
    streams = [torch.cuda.default_stream()] + OTHERS[: draw.randrange(3)]
    lines, live, failed = ["gpuprof.trace/1"], {}, 0
    if limited:
        lines.append(f"limit {total // 16}")
    for number in range(1, draw.randrange(20, 120)):
        what = draw.random()
        if what < 0.6 or not live:
            size, stream = sizes(draw), draw.randrange(len(streams))
            lines.append(f"alloc {number} {size} {stream}")
            try:
                with torch.cuda.stream(streams[stream]):
                    live[number] = torch.empty(size, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError:
                failed += 1
        elif what < 0.98:
            block = draw.choice(sorted(live))
            del live[block]
            lines.append(f"free {block}")
        else:
            torch.cuda.empty_cache()
            lines.append("empty_cache")
    if GROWS:
        torch.cuda.memory._dump_snapshot(path.replace(".trace", ".pickle"))
        torch.cuda.memory._record_memory_history(None)
    after = torch.cuda.memory_stats()
    live.clear()
    lines += [f"# reserved_peak {after['reserved_bytes.all.peak']}", f"# segments {after['segment.all.allocated'] - before['segment.all.allocated']}", f"# failed {failed}",
              f"# retries {after['num_alloc_retries'] - before['num_alloc_retries']}"]
    with open(path, "w", encoding="ascii") as out:
        out.write("\n".join(lines) + "\n")


folder, conf, first, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
GROWS = "expandable" in conf
OTHERS = [torch.cuda.Stream() for _ in range(3)]
torch.empty(1, device="cuda")
if conf != "-":
    torch._C._accelerator_setAllocatorSettings(conf)
for seed in range(first, first + count):
    program(seed, conf, os.path.join(folder, f"{seed}.trace"))
print(torch.__version__, count, "programs")
