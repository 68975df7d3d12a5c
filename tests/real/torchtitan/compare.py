# SPDX-License-Identifier: MIT
"""The most that a rank reserved, as torchtitan logged it and as the dry run answers: compare.py PUBLISHED LIMIT.

Called by tests/real/torchtitan.sh, whose files json and error it reads.  What is logged must agree with what was PUBLISHED, in GiB,
to LIMIT percent, and the answer with both what is logged and what run.py says of symmetric memory.
"""
import json
import re
import sys

published, limit = float(sys.argv[1]), float(sys.argv[2])
logged = sorted(float(x) for x in re.findall(r"step: +3 .*memory: *([0-9.]+)GiB", open("error").read()))
rows = [row for row in json.load(open("json"))["ranks"] for _ in row["stands_for"]]
here = sorted((row["reserved_peak_bytes"] - row["assumed_reserved_bytes"]) / 2**30 for row in rows)
symmetric = max((int(x) for x in re.findall(r"^symmetric ([0-9]+)", open("error").read(), re.MULTILINE)), default=0) / 2**30
if not logged or not here:
    sys.exit(f"no rank answered: {len(logged)} logged, {len(here)} in the answer")
beside = f", {here[-1] - logged[-1]:.2f} of symmetric memory beside it" if symmetric else ""
print(f"{logged[-1]} GiB logged, {here[-1]:.2f} here{beside}, published {published}: {100 * (logged[-1] / published - 1):+.2f} %")
sys.exit(abs(here[-1] - logged[-1] - symmetric) > 0.006 or abs(logged[-1] - published) * 100 > limit * published)
