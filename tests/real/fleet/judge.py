# SPDX-License-Identifier: MIT
"""Compares an engine's answers (ask.py) with gpuprof's own: judge.py ANSWERS RANKS-NOW RANKS-WEEK DIFF SLEEPER-REPORT WORST-PEAK.

The files are the JSON of `gpuprof report` of both jobs, of `diff` of both, of `report` of the rank that sleeps, and of `peak` of
the rank with the highest peak.
"""
import json
import sys

said, now, week, diff, sleeper, worst = (json.load(open(path)) for path in sys.argv[1:7])


def same(what, answer, wanted):
    if answer != wanted:
        for key in {*answer, *wanted} if isinstance(answer, dict) else ():
            if answer.get(key) != wanted.get(key):
                print(f"{what}: {key}: {answer.get(key)}, and gpuprof says {wanted.get(key)}")
        raise SystemExit(f"judge.py: {sys.argv[1]}: {what}: not gpuprof's answer: {str(answer)[:300]}, {str(wanted)[:300]}")


def name(row):
    return row["label"] + ("  " + row["operation"] if row["operation"] else "")


peaks = {(job, gpu["rank"], 0): gpu["allocated_peak_bytes"] for job, all_ in (("now", now), ("week", week))
         for gpu in all_["ranks"]}
assert len(set(peaks.values())) > 3
same("peaks", {(row["job"], row["rank"], row["device"]): row["peak_bytes"] for row in said["peaks"]}, peaks)
if set(said) != {"peaks"}:
    highest = max(now["ranks"], key=lambda rank: rank["allocated_peak_bytes"])["rank"]
    parts = worst["devices"][0]["parts"]
    assert {row["rank"] for row in said["worst"]} == {highest}, said["worst"]
    same("worst", {name(row): row["bytes"] for row in said["worst"]},
         {part["name"]: part["bytes"] for part in sorted(parts, key=lambda part: (-part["bytes"], part["name"]))[:10]})
    # diff shows the lines of the rank whose peak changed most.
    same("grown", {name(row): row["grown"] for row in said["grown"] if row["rank"] == diff["rank"]},
         {site["name"]: site["at_peak_bytes"][1] - site["at_peak_bytes"][0] for site in diff["sites"]
          if site["at_peak_bytes"][1] > site["at_peak_bytes"][0]})
    assert said["grown"][0]["rank"] == diff["rank"], (said["grown"][0], diff["rank"])
    alike = max((rank["group"] for rank in now["ranks"]), key=[rank["group"] for rank in now["ranks"]].count)
    same("unlike", {row["rank"] for row in said["unlike"] + said["gpus"]},
         {rank["rank"] for rank in now["ranks"] if rank["group"] != alike})
    same("gpus", {row["rank"] for row in said["gpus"]},
         {rank["rank"] for rank in now["ranks"] if rank["total_bytes"] != now["ranks"][-1]["total_bytes"]})
    for row in said["unlike"]:
        why = [text["why"] for text in now["unlike"]
               if any(rank["group"] == text["group"] and rank["rank"] == row["rank"] for rank in now["ranks"])]
        assert any(name(row) in text for text in why), (row, why)
    asleep = sum(sleep["asleep_bytes"] for sleep in sleeper["devices"][0]["sleeps"])
    assert asleep > 0
    same("asleep", {(row["job"], row["rank"]): row["asleep_bytes"] for row in said["asleep"]}, {("now", 2): asleep})
print(f"{sys.argv[1]}: {len(said)} answers are gpuprof's own")
