# SPDX-License-Identifier: MIT
"""torch_profiler.py OUT: trains under PyTorch's profiler, writes OUT.trace.json and OUT.timeline.*, and prints what torch.cuda
says of the profiled time.  torch_profiler.py --check KIND SAID REPORT compares a report of such a file with that."""
import json
import sys
import warnings


def train(out):
    import torch
    from torch.profiler import ProfilerActivity, profile

    net = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    x = torch.randn(256, 512, device="cuda")
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True, record_shapes=True, with_stack=True) as p:
        for _ in range(3):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
            p.step()
        kept = torch.empty(50 << 20, dtype=torch.uint8, device="cuda")
        peak = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
        del peak
        torch.cuda.empty_cache()
        odd = torch.empty(1000, dtype=torch.uint8, device="cuda")
    said = {
        "before": before,
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "end": torch.cuda.memory_allocated(),
        "end_reserved": torch.cuda.memory_reserved(),
    }
    p.export_chrome_trace(out + ".trace.json")
    warnings.simplefilter("ignore")
    if hasattr(p, "export_memory_timeline"):
        p.export_memory_timeline(out + ".timeline.json", device="cuda:0")
        p.export_memory_timeline(out + ".timeline.raw.json.gz", device="cuda:0")
    print("said", json.dumps(said))
    del kept, odd


def check(kind, said, report):
    with open(said) as file:
        said = json.loads(next(line for line in file if line.startswith("said "))[5:])
    with open(report) as file:
        report = json.load(file)
    device = report["devices"][0]
    wanted = {"allocated_peak_bytes": said["allocated"], "allocated_end_bytes": said["end"]}
    if kind.startswith("trace"):
        wanted.update(reserved_peak_bytes=said["reserved"], reserved_end_bytes=said["end_reserved"])
    wrong = {key: (device[key], value) for key, value in wanted.items() if device[key] != value}
    if report["recording"]["before_bytes"] != said["before"]:
        wrong["before"] = report["recording"]["before_bytes"], said["before"]
    if report["recording"]["dropped"]:
        wrong["dropped"] = report["recording"]["dropped"]
    if wrong:
        sys.exit(f"gpuprof, torch: {wrong}")
    print("equal,", ", ".join(str(value) for value in wanted.values()))


if sys.argv[1] == "--check":
    check(*sys.argv[2:])
else:
    train(sys.argv[1])
