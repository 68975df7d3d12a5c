#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Report documents (schema gpuprof.report/1) for the tests of the page: fixtures.py OUT_DIR [NAME...]

Each document comes from a small simulated program, so that its numbers agree with one another: a training run with a
branch that keeps its outputs, a tiny program, an empty recording, one whose names are all attacks, and one of the
largest size that the schema allows.  The same name always gives the same bytes.
"""
import json
import os
import random
import sys

MIB, GIB = 1 << 20, 1 << 30
MS = 1_000_000


def frame(function, file, line, module="", python=True, inlined=False):
    return {"function": function, "file": file, "line": line, "module": module, "python": python, "inlined": inlined}


PYTHON_MAIN = [
    frame("main", "/srv/train/train.py", 212),
    frame("<module>", "/srv/train/train.py", 240),
]
NATIVE_BELOW = [
    frame("cudaMalloc", "", 0, "libcudart.so.12", False),
    frame("c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::alloc_block(AllocParams&, bool)", "", 0,
          "libc10_cuda.so", False),
    frame("at::detail::empty_cuda(c10::ArrayRef<long>, c10::ScalarType)", "aten/src/ATen/cuda/EmptyTensor.cpp", 49,
          "libtorch_cuda.so", False, True),
]


class Sites:
    def __init__(self):
        self.rows = [dict(site=0, name="[unknown]", frames=[frame("[unknown]", "", 0, "", False)], device=0, kind="linear")]

    def add(self, name, file, line, device, kind, callers=(), native=True):
        own = frame(name, file, line)
        frames = (NATIVE_BELOW if native else []) + [own, *callers, *PYTHON_MAIN]
        short = f"{name} ({os.path.basename(file)}:{line})"
        self.rows.append(dict(site=len(self.rows), name=short, frames=frames, device=device, kind=kind))
        return len(self.rows) - 1


def owners_of(at_peak, sites):
    """The rows of the peak by owner."""
    sums = {}
    for (site, _), (size, count) in at_peak.items():
        frames = sites.rows[site]["frames"]
        owner = "nccl" if frames and frames[0]["module"].startswith("libnccl") else "pytorch" if frames else "unknown"
        row = sums.setdefault(owner, dict(owner=owner, bytes=0, count=0))
        row["bytes"], row["count"] = row["bytes"] + size, row["count"] + count
    return sorted(sums.values(), key=lambda row: -row["bytes"])


class Device:
    """Runs events (time, site, kind, bytes; negative: a free) and computes the device's part of the document."""

    def __init__(self, device, name, total, end_ns):
        self.device, self.name, self.total, self.end = device, name, total, end_ns
        self.events, self.live, self.lives = [], {}, {}

    def alloc(self, t, site, kind, size):
        self.events.append((t, site, kind, size))
        self.lives[(t, site, size, len(self.events))] = None
        return (t, site, kind, size)

    def free(self, t, block):
        self.events.append((t, block[1], block[2], -block[3]))

    def series(self, pick, points=2000):
        """[[t, low, high, last]..] of the running sum of pick(event), in at most `points` stretches."""
        out, value, width = [], 0, max(1, self.end // points)
        for t, delta in ((e[0], pick(e)) for e in self.events):
            if not delta:
                continue
            start = t // width * width
            if not out or out[-1][0] != start:
                out.append([start, value, value, value])
            value += delta
            point = out[-1]
            point[1], point[2], point[3] = min(point[1], value), max(point[2], value), value
        return out[:points]

    def lifetimes(self):
        """Every block: [from, to or None, bytes, site, kind]."""
        open_blocks, rows = {}, []
        for t, site, kind, size in self.events:
            if size > 0:
                rows.append([t, None, size, site, kind])
                open_blocks.setdefault((site, kind, size), []).append(rows[-1])
            else:
                open_blocks[(site, kind, -size)].pop(0)[1] = t
        return dict(complete=True, blocks=len(rows), rows=rows)

    def document(self, sites, churn, rng, fragments=True):
        self.events.sort(key=lambda e: (e[0], e[3] > 0))
        now, peak, peak_t, held, at_peak = 0, 0, 0, {}, {}
        sizes, live = {}, []
        for t, site, kind, size in self.events:
            now += size
            key = (site, kind)
            have = held.setdefault(key, [0, 0])
            have[0] += size
            have[1] += 1 if size > 0 else -1
            row = sites.rows[site]
            for field in ("live_bytes", "live_count", "peak_bytes", "at_peak_bytes", "allocated_bytes", "calls"):
                row.setdefault(field, 0)
            row["live_bytes"] += size
            row["live_count"] += 1 if size > 0 else -1
            row["peak_bytes"] = max(row["peak_bytes"], row["live_bytes"])
            if size > 0:
                row["allocated_bytes"] += size
                row["calls"] += 1
                slot = sizes.setdefault(1 << (size.bit_length() - 1), [0, 0, 0, 0])
                slot[0] += 1
                slot[1] += size
                live.append((site, size))
                if now > peak:
                    peak, peak_t = now, t
                    at_peak = {k: tuple(v) for k, v in held.items()}
            else:
                live.remove((site, -size))
        for site, size in live:
            slot = sizes[1 << (size.bit_length() - 1)]
            slot[2] += 1
            slot[3] += size
        for (site, _), (size, _count) in at_peak.items():
            sites.rows[site]["at_peak_bytes"] += size
        kinds = sorted({e[2] for e in self.events})
        allocated = self.series(lambda e: e[3])
        top = 0
        reserved = []
        for t, low, high, last in allocated:
            before = top
            top = max(top, (high * 107 // 100 + 20 * MIB - 1) // (20 * MIB) * 20 * MIB)
            if top != before or t % 7 == 0:
                reserved.append([t, before, top, top])
        segments = pack(live, rng) if fragments else []
        idle = [b[1] for s in segments for b in s["blocks"] if b[2] == "idle"]
        points = [[t, next((r[3] for r in reversed(reserved) if r[0] <= t), 0), last, last * 97 // 100,
                   max(idle) if idle and i > 60 else None]
                  for i, (t, low, high, last) in enumerate(allocated[:: max(1, len(allocated) // 300)])]
        rows = [dict(what=k, bytes=sum(s for (_, kind), (s, _) in held.items() if kind == k), estimated=k == "array") for k in kinds]
        rows += [dict(what="cache: reserved, not in use", bytes=top - now, estimated=False),
                 dict(what="context", bytes=487 * MIB, estimated=False),
                 dict(what="modules", bytes=61 * MIB, estimated=True)]
        known = sum(r["bytes"] for r in rows)
        rows.append(dict(what="untracked", bytes=38 * MIB, estimated=False))
        return {
            "device": self.device, "uuid": f"GPU-6f1d000{self.device}-93aa-4b0e-8c55-1f2e3d4c5b6a", "name": self.name,
            "total_bytes": self.total, "allocated_peak_bytes": peak, "allocated_peak_ns": peak_t, "allocated_end_bytes": now,
            "reserved_peak_bytes": top, "reserved_end_bytes": top,
            "series": {"allocated": allocated, "reserved": reserved,
                       "kinds": {k: self.series(lambda e, k=k: e[3] if e[2] == k else 0) for k in kinds}},
            "peak": {"time_ns": peak_t, "bytes": peak, "owners": owners_of(at_peak, sites),
                     "parts": [dict(site=s, kind=k, bytes=b, count=c) for (s, k), (b, c) in
                               sorted(at_peak.items(), key=lambda i: -i[1][0]) if b]},
            "fragmentation": {"utilisation": round(peak / top, 4) if top else None,
                              "external": round(1 - max(idle) / sum(idle), 4) if idle else 0.0, "internal": 0.031,
                              "has_segments": bool(segments), "points": points},
            "lifetimes": self.lifetimes(), "moments": None,
            "segments": segments, "segments_left_out": 0, "blocks_left_out": 0,
            "sizes": [dict(from_bytes=k, count=v[0], bytes=v[1], live_count=v[2], live_bytes=v[3]) for k, v in sorted(sizes.items())],
            "bill": {"process_bytes": known + 38 * MIB, "rows": rows},
        }


def pack(live, rng):
    """Lays out live blocks in segments with holes, as a caching allocator does."""
    segments, address = [], 0x7F2A40000000
    small = [b for b in live if b[1] < MIB]
    large = [b for b in live if b[1] >= MIB]
    for group, size in ((small, 2 * MIB), (large, 20 * MIB)):
        rng.shuffle(group)
        blocks, offset, limit = [], 0, 0
        def close():
            nonlocal blocks, offset, address
            if blocks:
                if offset < limit:
                    blocks.append([offset, limit - offset, "idle", 0])
                segments.append(dict(address=hex(address), bytes=limit, kind="linear", cached=True, blocks=blocks))
                address += (limit + 4 * MIB) // (2 * MIB) * (2 * MIB)
            blocks, offset = [], 0
        for site, want in group:
            if offset + want > limit:
                close()
                limit = size if want <= size // 2 else (want * 5 // 4 + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
            if blocks and rng.random() < 0.3:
                hole = min(limit - offset - want, int(want * rng.uniform(0.2, 1.2)) // 512 * 512)
                if hole > 0:
                    blocks.append([offset, hole, "idle", 0])
                    offset += hole
            blocks.append([offset, want, "live", site])
            offset += want
        close()
    for i in range(2):
        segments.append(dict(address=hex(address), bytes=64 * MIB, kind="vmm", cached=True, blocks=[
            [0, 24 * MIB, "live", large[i][0] if len(large) > i else 0], [24 * MIB, 8 * MIB, "idle", 0], [32 * MIB, 32 * MIB, "unmapped", 0]]))
        address += 128 * MIB
    return segments


LAYERS = 24


def training(leak=True):
    rng = random.Random(7)
    sites, steps, step_ns = Sites(), 20, 640 * MS
    end = 900 * MS + steps * step_ns + 300 * MS
    forward = frame("forward", "/srv/train/model/transformer.py", 301)
    step_frame = frame("train_step", "/srv/train/train.py", 148)
    backward = frame("backward", "/usr/lib/python3/dist-packages/torch/_tensor.py", 522)
    devices, marks, per_bound = [], [], []
    marks = [dict(time_ns=900 * MS + i * step_ns, name="step") for i in range(steps + 1)]
    leak_sites = []
    for index in range(2):
        device = Device(index, "NVIDIA H100 80GB HBM3", 80 * GIB - 527 * MIB, end)
        weights = sites.add("Linear.__init__", "/usr/lib/python3/dist-packages/torch/nn/modules/linear.py", 106, index, "linear",
                            [frame("__init__", "/srv/train/model/transformer.py", 88)])
        moments = sites.add("Adam._init_group", "/usr/lib/python3/dist-packages/torch/optim/adam.py", 173, index, "linear",
                            [frame("step", "/usr/lib/python3/dist-packages/torch/optim/adam.py", 220), step_frame])
        nccl = sites.add("ncclCommInitRank", "", 0, index, "vmm", native=False)
        sites.rows[nccl]["frames"] = [frame("ncclCudaMemAlloc", "src/include/alloc.h", 311, "libnccl.so.2", False),
                                      frame("ncclCommInitRank", "src/init.cc", 2003, "libnccl.so.2", False), *PYTHON_MAIN]
        work = sites.add("cublasCreate", "", 0, index, "linear", [forward, step_frame])
        attention = [sites.add("attention", "/srv/train/model/attention.py", line, index, "linear", [forward, step_frame]) for line in (61, 64, 70, 77)]
        mlp = [sites.add("mlp", "/srv/train/model/mlp.py", line, index, "linear", [forward, step_frame]) for line in (22, 23, 25)]
        grads = sites.add("accumulate_grad", "/srv/train/model/transformer.py", 330, index, "linear", [backward, step_frame])
        data = sites.add("to_device", "/srv/train/data/loader.py", 95, index, "pool", [step_frame])
        keep = sites.add("routed_experts", "/srv/train/model/moe.py", 143, index, "linear", [forward, step_frame])
        small = [sites.add(f"op_{i:03}", "/srv/train/model/ops.py", 10 + i, index, "linear", [forward, step_frame]) for i in range(220 if index == 0 else 40)]
        leak_sites.append(keep)
        t = 40 * MS
        for layer in range(LAYERS):
            for part in (384, 128, 512, 512):
                t += 6 * MS
                device.alloc(t, weights, "linear", part * MIB)
        device.alloc(t + 9 * MS, nccl, "vmm", 1536 * MIB)
        device.alloc(t + 11 * MS, work, "linear", 32 * MIB)
        for step in range(steps):
            begin = 900 * MS + step * step_ns
            if step == 0:
                for layer in range(LAYERS):
                    for _ in range(2):
                        device.alloc(begin + 590 * MS + layer * MS, moments, "linear", 192 * MIB)
            batch = device.alloc(begin + 2 * MS, data, "pool", rng.choice((96, 104, 112)) * MIB)
            kept, t = [], begin + 5 * MS
            for layer in range(LAYERS):
                for site, size in [(s, 74 * MIB) for s in attention] + [(s, 148 * MIB) for s in mlp]:
                    t += 1.4 * MS
                    kept.append(device.alloc(int(t), site, "linear", size))
                for _ in range(3):
                    s = rng.choice(small)
                    size = rng.choice((512, 1024, 4096, 24576, 262144, 786432))
                    temp = device.alloc(int(t), s, "linear", size)
                    if step or rng.random() < 0.8:
                        device.free(int(t + rng.uniform(0.1, 2) * MS), temp)
            if leak and step % 5 != 3:
                device.alloc(int(t) + MS, keep, "linear", (101 + rng.randrange(9)) * MIB)
            for i, block in enumerate(reversed(kept)):
                t += 1.7 * MS
                grad = device.alloc(int(t), grads, "linear", 60 * MIB)
                device.free(int(t + 0.9 * MS), grad)
                device.free(int(t + 1.2 * MS), block)
            device.free(begin + 630 * MS, batch)
        devices.append(device)
    host = Device("host", "", None, end)
    pinned = sites.add("pin_memory", "/srv/train/data/loader.py", 71, "host", "pinned", native=False)
    host.alloc(30 * MS, pinned, "pinned", 512 * MIB)
    host.alloc(35 * MS, pinned, "pinned", 512 * MIB)
    for i in range(steps):
        block = host.alloc(900 * MS + i * step_ns, pinned, "pinned", 64 * MIB)
        host.free(900 * MS + i * step_ns + 300 * MS, block)
    documents = [d.document(sites, None, rng, d is not host) for d in devices + [host]]
    documents[2].update(uuid="", bill={"process_bytes": None, "rows": []})
    documents[0]["blocks_left_out"] = 118
    documents[0]["segments_left_out"] = 7
    finish(sites)
    bounds = [m["time_ns"] for m in marks]
    suspects = []
    for rank, (index, site) in enumerate(enumerate(leak_sites), 1):
        row, at, now = sites.rows[site], [], 0
        events = [e for e in devices[index].events if e[1] == site]
        for bound in bounds:
            at.append(sum(e[3] for e in events if e[0] <= bound))
        if row["live_bytes"]:
            slope = row["live_bytes"] / steps
            suspects.append(dict(rank=rank, site=site, function="routed_experts", file="/srv/train/model/moe.py", line=143,
                                 device=index, live_bytes=row["live_bytes"], live_count=row["live_count"],
                                 bytes_per_step=round(slope, 1), confidence=round(0.97 - 0.2 * index, 2),
                                 seconds_to_oom=round((devices[index].total - documents[index]["reserved_end_bytes"]) / slope * 0.64, 1),
                                 oldest_seconds=round((end - events[0][0]) / 1e9, 2), live_bytes_at_bounds=at))
    churn_sites = [dict(site=s["site"], pairs=s["calls"], pairs_per_step=round(s["calls"] / steps, 1), bytes=s["allocated_bytes"],
                        mean_life_ns=rng.randrange(80_000, 400 * MS)) for s in sites.rows if s["calls"] > steps and not s["live_bytes"]]
    churn_sites.sort(key=lambda s: -s["pairs"])
    pairs = sum(s["pairs"] for s in churn_sites)
    count = sum(len(d.events) for d in devices + [host])
    return {
        "schema": "gpuprof.report/1",
        "recording": dict(file="train-4711.gpuprof", pid=4711, comm="python3",
                          command_line="python3 train.py --model moe-7b --batch 16 --steps 20 --data /srv/data/books.bin",
                          host="gpu-node-03", source="cupti", allocator="off", driver="13.0", begin_unix_ns=1_795_253_400_000_000_000,
                          seconds=end / 1e9, complete=True, from_start=True, tried=count, delivered=count, dropped=0,
                          lost={"ring_full": 0, "map_full": 0, "nested": 0, "unknown_free": 0}, stacks=True),
        "devices": documents, "sites": sites.rows,
        "steps": dict(source="marks", name="step", count=steps, bounds_ns=bounds),
        "leaks": {"why": "" if suspects else "no site held more at the end of each step than at the one before", "suspects": suspects},
        "churn": dict(pairs=pairs, allocations=sum(s["calls"] for s in sites.rows), frees=sum(s["calls"] - s["live_count"] for s in sites.rows),
                      pairs_per_step=round(pairs / steps, 1), sites=churn_sites),
        "marks": marks,
        "ooms": [dict(time_ns=end - 120 * MS, device=0, requested_bytes=9 * GIB)] if leak else [],
        "oom": "Out of memory on device 0 (NVIDIA H100 80GB HBM3): cuMemAlloc_v2 asked for 9.00 GiB\n\n"
               "who         PID 4711 python3, thread 4711, 13.880 s after the start\n"
               "device      79.49 GiB in total, 4.10 GiB free then\n"
               "advice      free or ask for less\n" if leak else None,
    }


def finish(sites):
    for row in sites.rows:
        for field in ("live_bytes", "live_count", "peak_bytes", "at_peak_bytes", "allocated_bytes", "calls"):
            row.setdefault(field, 0)


def tiny():
    sites, rng = Sites(), random.Random(1)
    device = Device(0, "Simulated GPU", 16 * GIB, 40 * MS)
    block = device.alloc(4 * MS, 0, "linear", 3 * MIB)
    device.alloc(9 * MS, 0, "linear", 1 * MIB)
    device.free(30 * MS, block)
    document = device.document(sites, None, rng, fragments=False)
    document["fragmentation"]["points"] = [p[:4] + [None] for p in document["fragmentation"]["points"]]
    document["bill"] = {"process_bytes": None, "rows": [dict(what="linear", bytes=MIB, estimated=False), dict(what="context", bytes=None, estimated=False)]}
    document["sleeps"] = [
        dict(begin_ns=6 * MS, end_ns=7 * MS, wake_begin_ns=8 * MS, wake_end_ns=9 * MS, asleep_bytes=MIB, woken_bytes=MIB, freed_asleep_bytes=0,
             reserved_bytes=3 * MIB, late_bytes=0, late_end_ns=None, released=[dict(site=0, kind="linear", bytes=MIB, count=1)], stayed=[]),
        dict(begin_ns=10 * MS, end_ns=11 * MS, wake_begin_ns=None, wake_end_ns=None, asleep_bytes=3 * MIB, woken_bytes=0, freed_asleep_bytes=MIB,
             reserved_bytes=2 * MIB, late_bytes=MIB, late_end_ns=25 * MS, released=[dict(site=0, kind="linear", bytes=3 * MIB, count=2)],
             stayed=[dict(site=-1, kind="linear", bytes=MIB, count=1)]),
    ]
    finish(sites)
    return {
        "schema": "gpuprof.report/1",
        "recording": dict(file="vec.gpuprof", pid=99, comm="vectoradd", command_line="./vectoradd", host="", source="hooks", allocator="off",
                          driver="", begin_unix_ns=1_795_253_400_000_000_000, seconds=0.04, complete=True, from_start=True, tried=3, delivered=3,
                          dropped=0, lost={}, stacks=False),
        "devices": [document], "sites": sites.rows, "steps": dict(source="time", name="", count=8, bounds_ns=[i * 5 * MS for i in range(9)]),
        "leaks": {"why": "no marks and no period: 3 allocations are too few to tell growth", "suspects": []},
        "churn": dict(pairs=1, allocations=2, frees=1, pairs_per_step=0.1, sites=[dict(site=0, pairs=1, pairs_per_step=0.1, bytes=3 * MIB, mean_life_ns=26 * MS)]),
        "marks": [], "ooms": [], "oom": None,
    }


def empty():
    document = tiny()
    document["recording"].update(complete=False, from_start=False, tried=0, delivered=0, seconds=0, lost={"ring_full": 0})
    document.update(devices=[], sites=document["sites"][:1], churn=dict(pairs=0, allocations=0, frees=0, pairs_per_step=0, sites=[]),
                    steps=dict(source="time", name="", count=0, bounds_ns=[]))
    document["leaks"]["why"] = "nothing was recorded"
    return document


ATTACKS = [
    "</script><img src=x onerror=\"document.documentElement.dataset.owned=1\">",
    "<svg onload=document.documentElement.dataset.owned=1>",
    "\"><script>document.documentElement.dataset.owned=1</script><!--",
    "<!--<script>", "&lt;b&gt; &amp; \u2028\u2029 \u202eevil", "javascript:alert(1)", "]]></script>", "${alert(1)}{{7*7}}",
    "__proto__", "constructor", "a" * 4000, "\u0000\u001b[31m",
]


def hostile():
    """A document in which every free text, and every name that becomes a key, is an attack."""
    document = training()
    rng = random.Random(3)
    attack = lambda: rng.choice(ATTACKS)
    document["recording"].update(file=ATTACKS[0], comm=ATTACKS[0], command_line=ATTACKS[2], host=ATTACKS[1], driver=ATTACKS[1], allocator=ATTACKS[0],
                                 complete=False, dropped=1_204, lost={ATTACKS[0]: 4, "__proto__": 7, "ring_full": 1_204})
    document["recording"]["delivered"] -= 1_204
    for site in document["sites"]:
        site["name"] = attack()
        for one in site["frames"] if site["site"] % 9 else []:
            break
        site["frames"] = [dict(f, function=attack(), file=attack(), module=attack()) for f in site["frames"]]
    for device in document["devices"]:
        device["name"], device["uuid"] = attack(), attack()
        device["series"]["kinds"] = {(ATTACKS[0] if k == "vmm" else k): v for k, v in device["series"]["kinds"].items()}
        for row in device["bill"]["rows"]:
            row["what"] = attack()
        for row in device["peak"]["owners"]:
            row["owner"] = attack()
    for suspect in document["leaks"]["suspects"]:
        suspect.update(function=attack(), file=attack())
    for mark in document["marks"]:
        mark["name"] = attack()
    document["steps"]["name"] = ATTACKS[0]
    document["oom"] = "\n".join(ATTACKS)
    return document


def moments(rng, end, sites, parts=48, stretches=60):
    """Two moments of each stretch: the highest, and the last change."""
    held, rows, places = [[64 * MIB, 4] for _ in range(parts)], [], sorted(rng.sample(sites, parts))
    for i in range(2 * stretches):
        row = [i * end // (2 * stretches), 0, 2 * GIB + rng.randrange(GIB), 900]
        for part in range(parts) if i == 0 else rng.sample(range(parts), parts * 3 // 4):
            held[part] = [max(0, held[part][0] + rng.randrange(-64 * MIB, 65 * MIB)), rng.randrange(1, 90)]
            row += [part, *held[part]]
        row[1] = row[2] + sum(h[0] for h in held)
        rows.append(row)
    return dict(stretch_ns=end // stretches + 1, parts=[[s, "linear"] for s in places], rows=rows)


def huge():
    """The limits of the schema: 8 devices, 2000 points, 20 000 blocks in 2000 segments each, 10 000 marks."""
    rng, kinds = random.Random(5), ["linear", "pool", "vmm", "array", "managed", "pinned"]
    end, devices, sites = 600_000 * MS, [], Sites()
    for i in range(3000):
        sites.add(f"layer_{i % 60}", f"/srv/app/module_{i % 40}.py", i, i % 8, kinds[i % 6],
                  [frame(f"call_{i % 200}", "/srv/app/graph.py", i % 200), frame(f"block_{i % 20}", "/srv/app/graph.py", 900 + i % 20)])
    finish(sites)
    for index in range(8):
        series = {}
        for name in ["allocated", "reserved", *kinds]:
            value, points = 8 * GIB, []
            for i in range(2000):
                value = max(GIB, min(70 * GIB, value + rng.randrange(-GIB, GIB + GIB // 50)))
                points.append([i * end // 2000 + (kinds.index(name) if name in kinds else 0), value - 40 * MIB, value + 90 * MIB, value])
            series[name] = points
        segments, address = [], 0x7F0000000000
        for i in range(2000):
            blocks, offset = [], 0
            for j in range(10):
                size = rng.randrange(1, 4000) * 512
                blocks.append([offset, size, rng.choice(("live", "live", "idle", "unmapped")), rng.randrange(1, 3001)])
                offset += size
            segments.append(dict(address=hex(address), bytes=offset, kind="linear", cached=True, blocks=blocks))
            address += offset + 4096
        lives = sorted([start, start + rng.randrange(end // 8) if i % 5 else None, rng.randrange(MIB, 400 * MIB), rng.randrange(1, 3001), "linear"]
                       for i, start in enumerate(rng.randrange(end * 7 // 8) for _ in range(500)))
        value, fine = 8 * GIB, []
        for i in range(1250):
            value = max(GIB, min(70 * GIB, value + rng.randrange(-GIB // 2, GIB // 2)))
            fine.append([i * end // 1250, value - 40 * MIB, value + 90 * MIB, value])
        parts = [dict(site=s, kind="linear", bytes=rng.randrange(MIB, 46 * MIB), count=rng.randrange(1, 90)) for s in range(1, 3001)]
        parts.sort(key=lambda p: -p["bytes"])
        peak = sum(p["bytes"] for p in parts)
        devices.append({
            "device": index, "uuid": f"GPU-{index}", "name": "NVIDIA H200", "total_bytes": 141 * GIB, "allocated_peak_bytes": peak,
            "allocated_peak_ns": end // 2, "allocated_end_bytes": 5 * GIB, "reserved_peak_bytes": peak + GIB, "reserved_end_bytes": peak,
            "series": {"allocated": series["allocated"], "reserved": series["reserved"], "kinds": {k: series[k] for k in kinds}, "fine": fine},
            "lifetimes": dict(complete=False, blocks=2_300_000, rows=lives), "moments": moments(rng, end, range(1, 3001)),
            "peak": {"time_ns": end // 2, "bytes": peak, "parts": parts},
            "fragmentation": {"utilisation": 0.71, "external": 0.62, "internal": 0.04, "has_segments": True,
                              "points": [[p[0], p[3] + GIB, p[3], p[3] - 9 * MIB, 256 * MIB] for p in series["allocated"]]},
            "segments": segments, "segments_left_out": 1234, "blocks_left_out": 98765,
            "sizes": [dict(from_bytes=1 << i, count=rng.randrange(90000), bytes=rng.randrange(40 * GIB), live_count=9, live_bytes=9 << i) for i in range(9, 36)],
            "bill": {"process_bytes": peak + 2 * GIB, "rows": [dict(what="linear", bytes=peak, estimated=False), dict(what="untracked", bytes=2 * GIB, estimated=False)]},
        })
    document = tiny()
    document.update(devices=devices, sites=sites.rows, marks=[dict(time_ns=i * end // 10000, name="step") for i in range(10000)],
                    steps=dict(source="marks", name="step", count=9999, bounds_ns=[i * end // 10000 for i in range(10000)]),
                    churn=dict(pairs=9_000_000, allocations=9_100_000, frees=9_000_000, pairs_per_step=900.1,
                               sites=[dict(site=s, pairs=3001 - s, pairs_per_step=(3001 - s) / 10, bytes=s << 20, mean_life_ns=s * 999) for s in range(1, 3001)]))
    document["recording"].update(seconds=600.0, tried=18_100_000, delivered=18_100_000, stacks=True)
    return document


def ranks():
    """Eight ranks of a job, schema gpuprof.ranks/1: rank 3 holds 9 GiB more than the others, in a function whose name is an
    attack, and grows."""
    seconds, points = 120, 400
    times = [seconds * 1000 * MS * i // points for i in range(points)]
    rng = random.Random(8)
    rows, attack = [], "<img src=x onerror=alert(1)> (train.py:41)"
    for number in [3, 0, 1, 2, 4, 5, 6, 7]:
        worst, start = number == 3, 8 + number
        curve = [None if i < start else 40 * GIB + rng.randrange(3) * GIB + (9 * GIB + i * 20 * MIB if worst else 0) for i in range(points)]
        peak = max(v for v in curve if v is not None)
        rows.append(dict(rank=number, local_rank=number % 4, world_size=8, rank_from="recording", file=f"run.rank{number}.gpuprof", host=f"node{number // 4}",
            pid=4000 + number, comm="train.py", format="gpuprof", complete=number != 5, missing_events=0, events=1000000, ooms=int(worst), device=number % 4,
            devices=1, device_name="Simulated GPU", total_bytes=80 * GIB, allocated_peak_bytes=peak, peak_ns=times[curve.index(peak)], allocated_end_bytes=curve[-1],
            reserved_peak_bytes=peak + GIB, headroom_bytes=79 * GIB - peak, growth_bytes_per_second=70e6 if worst else 0.0, seconds_to_oom=150.0 if worst else None,
            grows=attack if worst else "", begin_ns=times[start], end_ns=seconds * 1000 * MS, curve=curve))
    peaks = sorted(r["allocated_peak_bytes"] for r in rows)
    for row in rows:
        row["above_median_bytes"] = row["allocated_peak_bytes"] - peaks[3]
    skew = []
    for i, t in enumerate(times):
        values = sorted(r["curve"][i] for r in rows if r["curve"][i] is not None)
        if values:
            skew.append([t, values[0], values[(len(values) - 1) // 2], values[-1], len(values)])
    site = lambda name, owner, worst, median, holders: dict(site=name, owner=owner, kind="linear", worst_bytes=worst, median_bytes=median, excess_bytes=worst - median, holders=holders)
    sites = [site(attack, "pytorch", 9 * GIB, 0, 1), site("forward (model.py:12)", "pytorch", 40 * GIB, 40 * GIB, 8), site("all_reduce (dist.py:7)", "nccl", GIB, 2 * GIB, 8)]
    owners = [dict(owner=o, worst_bytes=w, median_bytes=m, excess_bytes=w - m, holders=8) for o, w, m in (("pytorch", 49 * GIB, 40 * GIB), ("nccl", GIB, 2 * GIB))]
    return dict(schema="gpuprof.ranks/1", verdict=f"Rank 3 ran out of memory: it peaks high, above the median: {attack} holds 9 GiB there.", clock="wall",
        clock_text="times are on the wall clocks of the machines, and as exact as these agree", begin_unix_ns=1764590000000000000, seconds=float(seconds),
        lowest_peak_bytes=peaks[0], median_peak_bytes=peaks[3], highest_peak_bytes=peaks[-1], ranks=rows, times_ns=times, skew=skew, sites=sites, sites_left_out=2, owners=owners)


def healthy():
    return training(leak=False)


USES = {"weights": ("weights", 0.9), "optimizer": ("optimizer state", 0.9), "activations": ("activations", 0.8), "workspace": ("workspace", 0.85),
        "temporary": ("probably temporary", 0.6), "grows": ("grows", None)}
USED = {"Linear.__init__": "weights", "Adam._init_group": "optimizer", "attention": "activations", "mlp": "activations", "cublasCreate": "workspace",
        "accumulate_grad": "temporary", "routed_experts": "grows"}


def used(document):
    """Says of each block what it is for.  One of the sites has blocks of two uses."""
    names = [site["name"].split(" ")[0] for site in document["sites"]]
    for device in document["devices"]:
        if device["device"] == "host":
            device["uses"] = None
            continue
        lives, moments_of = device["lifetimes"], device["moments"]
        lives["uses"] = [("temporary" if names[row[3]] == "mlp" and i % 7 == 0 else USED.get(names[row[3]])) for i, row in enumerate(lives["rows"])]
        if moments_of:
            moments_of["uses"] = [[None, "weights", "activations", "temporary"][i % 4] for i in range(len(moments_of["parts"]))]
        device["uses"] = {use: dict(text=text, confidence=sure, at_peak_bytes=0) for use, (text, sure) in USES.items()}
    return document


def change(text, name, status="ok", needed=None, cost=None, why=None, **more):
    return dict(change=text, name=name, spec=f"{name}=x", status=status, needed_bytes=needed, saved_bytes=None if needed is None else 9 * GIB - needed,
                allocated_peak_bytes=needed, cost=dict(kernels_percent=cost), how="run", fits=None if needed is None else needed < 8 * GIB, why=why, **more)


def tried(document, fits=False):
    """As `gpuprof dryrun --try -o` writes it."""
    document["dryrun"] = dict(gpu="rtx-4070", name="NVIDIA GeForce RTX 4070", needed_bytes=9 * GIB, fits=fits, why=None, helps=[], tried=[
        change("checkpoint Block (each of 8) + the loss in 8 chunks, with its gradient at once", "combination", needed=4 * GIB, cost=64.2),
        change("checkpoint Block (each of 8)", "checkpoint", needed=6 * GIB, cost=16.4),
        change("the loss in 8 chunks, with its gradient at once", "loss", needed=17 * GIB // 2, cost=48.0, note="the loss is a mean of the chunks"),
        change("expandable_segments:True", "allocator", needed=9 * GIB, cost=0.0),
        change("fused=True", "optimizer", needed=19 * GIB // 2),
        change("foreach=False", "optimizer", "failed", why="CMD failed with status 1 with this change"),
        change("offload", "offload", "not possible", why="CMD has no backward pass")])
    return document


# A name as the compiler writes it: one word of as many letters as a name of a site has.
LONG = "std::__detail::_Map_base<gpu::Table<thrust::device_allocator<float>,gpu::Layout<128,64,8>>,gpu::Hash<unsigned_long>>::operator[]<gpu::Key const&>(gpu::Key_const&)"


def wide():
    """Ten devices, and names as long as those of C++ and of build folders."""
    document = used(training())
    path = "/home/builder/.cache/bazel/_bazel_builder/0f1e2d3c4b5a69788796a5b4c3d2e1f0/execroot/_main/bazel-out/k8-opt/bin/training/runtime/memory/"
    first, host = document["devices"][0], document["devices"][2]
    document["devices"] = [dict(first, device=i, name=f"NVIDIA RTX PRO 6000 Blackwell Server Edition {i}", uuid=f"GPU-{i}") for i in range(10)] + [host]
    document["recording"]["command_line"] = "python3 " + path + "train.py --config=" + path + "a.toml"
    for site in document["sites"]:
        if site["site"] % 2:
            site["name"] = f"{LONG[:150 - site['site'] % 40]} (file_{site['site']}.cu:{site['site']})"
        for one in site["frames"]:
            one["file"] = path + one["file"] if one["file"] else ""
            one["function"] = one["function"] if one["python"] else LONG
    for suspect in document["leaks"]["suspects"]:
        suspect.update(function=LONG, file=path + "experts.cu")
    document["leaks"]["candidates"] = [dict(s, rank=i, confidence=0.5, if_steps_bytes_per_step=s["bytes_per_step"], function=LONG, because=f"{LONG} keeps all of it")
                                       for i, s in enumerate(document["leaks"]["suspects"], 1)]
    document["steps"].update(word="repeat", sure=0.93)
    for mark in document["marks"]:
        mark["name"] = LONG
    document["oom"] = document["oom"] + "what helps  - free what " + LONG + " keeps\n"
    document["recording"]["lost"] = {"ring_full": 3, "a_cause_with_a_long_name_that_this_page_does_not_know_yet": 4}
    sleeps = json.loads(json.dumps(tiny()["devices"][0]["sleeps"]))
    for device in document["devices"][:1]:
        device["sleeps"] = [dict(s, released=[dict(r, site=3) for r in s["released"]]) for s in sleeps]
    return document


def operations():
    """Three sites of one line: two are blocks of one operation, the third is another's."""
    document = tiny()
    frames = [frame("cudaMalloc", "", 0, "libcudart.so.13", False), frame("layer_norm", "/usr/lib/python3/dist-packages/torch/nn/functional.py", 9), frame("forward", "/home/me/model.py", 10), frame("main", "/home/me/train.py", 3)]
    for one, role in zip(frames, ("allocator", "library", "user", "user")):
        one["role"] = role
    for number, row, operation in ((1, 1, "layer_norm"), (2, 1, "layer_norm"), (3, 3, "gelu")):
        document["sites"].append(dict(site=number, row=row, name=f"forward (model.py:10)  {operation}", operation=operation, frames=frames, device=0, kind="linear"))
    device, parts = document["devices"][0], [(3, 3 * MIB), (1, 2 * MIB), (2, 2 * MIB)]
    device["peak"].update(bytes=7 * MIB, parts=[dict(site=site, kind="linear", bytes=size, count=1) for site, size in parts])
    device["allocated_peak_bytes"] = 7 * MIB
    document["recording"]["stacks"] = True
    return document


MAKERS = dict(operations=operations, training=lambda: used(training()), healthy=healthy, tiny=tiny, empty=empty, hostile=hostile, huge=lambda: used(huge()), ranks=ranks, wide=wide,
              tried=lambda: tried(tiny()))

if __name__ == "__main__":
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    for name in sys.argv[2:] or MAKERS:
        with open(os.path.join(out, name + ".json"), "w", encoding="utf-8") as file:
            json.dump(MAKERS[name](), file, separators=(",", ":"))
