# SPDX-License-Identifier: MIT
"""Random programs of an allocator as snapshots of PyTorch whose traces lack actions: what lives at the end must be exact,
and the peak what its bound says.  snapshot_gaps.py BUILD_DIR COUNT [SEED]
"""
import json
import os
import random
import subprocess
import sys
import tempfile

ACTIONS = ["alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom", "snapshot"]
FRAMES = [{"name": "f", "filename": "a.py", "line": 3}]
PAGE, PAGES = 4096, 128
HOLDS = {"exact": int.__eq__, "at_least": int.__le__, "at_most": int.__ge__, "about": lambda have, peak: True}


def device(rng, number, skipped):
    """(trace, segment, bytes at the end, peak) of one segment, in which blocks of a page come and go."""
    start, live, trace, now, top, peak = rng.choice([1 << 20, 4 << 20]), set(), [], 0, 0, 0

    def put(action, address, size):
        if action not in skipped:
            trace.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": now, "frames": rng.choice([[], FRAMES])})

    put("segment_alloc", start, PAGE * PAGES)
    for _ in range(rng.randint(0, 30)):
        now += rng.randint(0, 2)
        if live and rng.random() < 0.5:
            address = rng.choice(sorted(live))
            live.remove(address)
            put("free_requested", address, PAGE)
            put("free_completed", address, PAGE)
        else:
            address = rng.choice([a for a in range(start, start + PAGE * PAGES, PAGE) if a not in live])
            live.add(address)
            peak = max(peak, PAGE * len(live))
            put("alloc", address, rng.choice([PAGE, PAGE - 96]))
    if rng.random() < 0.2:  # a ring that lost its beginning
        trace = trace[-rng.randint(1, 8):]
    blocks = [{"address": a, "size": PAGE, "requested_size": PAGE, "state": "active_allocated" if a in live else "inactive",
               "frames": rng.choice([[], FRAMES])} for a in range(start, start + PAGE * PAGES, PAGE)]
    segment = {"device": number, "address": start, "total_size": PAGE * PAGES, "stream": 0, "frames": FRAMES, "blocks": blocks}
    return trace, segment, PAGE * len(live), peak


def main():
    build, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1
    rng, failed = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "snapshot.json")
        for number in range(count):
            skipped = set(rng.sample(ACTIONS, rng.randint(0, 5)))
            devices = [device(rng, i, skipped) for i in range(rng.choice([1, 1, 2]))]
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"device_traces": [d[0] for d in devices], "segments": [d[1] for d in devices]}, file)
            report = json.loads(subprocess.run([f"{build}/bin/gpuprof", "report", path, "--json"], capture_output=True, check=True).stdout)
            for row in report["devices"]:
                end, peak = devices[row["device"]][2:]
                if row["allocated_end_bytes"] == end and HOLDS[row["bound"]](row["allocated_peak_bytes"], peak):
                    continue
                failed += 1
                print(f"snapshot {number} of seed {seed}, device {row['device']}, without {sorted(skipped)}: "
                      f"{row['bound']} {row['allocated_peak_bytes']}, {row['allocated_end_bytes']} at the end, instead of {peak}, {end}")
    print(f"{count - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
