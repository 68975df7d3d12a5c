# SPDX-License-Identifier: MIT
"""The most that a rank reserved, as torchtitan logged it and as the dry run answers: compare.py PUBLISHED LIMIT.

Called by tests/real/torchtitan.sh, whose files json and error it reads.  The two must agree, and with what was PUBLISHED, in GiB,
to LIMIT percent.
"""
import json
import re
import sys

published, limit = float(sys.argv[1]), float(sys.argv[2])
logged = sorted(float(x) for x in re.findall(r"step: +3 .*memory: *([0-9.]+)GiB", open("error").read()))
rows = [row for row in json.load(open("json"))["ranks"] for _ in row["stands_for"]]
here = sorted((row["reserved_peak_bytes"] - row["assumed_reserved_bytes"]) / 2**30 for row in rows)
if not logged or not here:
    sys.exit(f"no rank answered: {len(logged)} logged, {len(here)} in the answer")
print(f"{here[-1]:.2f} GiB, logged {logged[-1]}, published {published}: {100 * (here[-1] / published - 1):+.2f} %")
sys.exit(abs(here[-1] - logged[-1]) > 0.006 or abs(here[-1] - published) * 100 > limit * published)
