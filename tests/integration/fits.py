# SPDX-License-Identifier: MIT
"""Random programs (tests/programs/fits.c) are judged by `gpuprof dryrun` and `gpuprof fit`, and then run on simulated
GPUs of the sizes that were named, and of 97 % of them.  fits.py BUILD_DIR [COUNT [FIRST_SEED]]

What is promised, and so judged:
  fit, of one process that does the same on every GPU: in the smallest size nothing is refused; in 97 % of it something is.
  fit of a recording in which something was refused: it does not fit the recorded size, which is below the smallest.
  Where a program waits for its work, which is not recorded, its pools lay out their memory in another way than a replay
  knows: 6 % more are enough.
  dryrun: it fits exactly if nothing was refused; nothing is refused in the size needed; in 97 % of "at least" something
  is, if the processes have one order and ask the same on every GPU; "at least" is no more than what a run had."""
import collections
import json
import os
import random
import subprocess
import sys
import tempfile

BUILD = os.path.abspath(sys.argv[1])
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 20
FIRST = int(sys.argv[3]) if len(sys.argv) > 3 else 1
GPUPROF = os.path.join(BUILD, "bin", "gpuprof")
PROGRAM = os.path.join(BUILD, "tests", "programs", "fits")
MIB = 1 << 20
PLENTY = 64 << 30
POOL = 3  # a bit of kinds
WRONG = collections.Counter()
JUDGED = collections.Counter()


def call(work, argv, **more):
    env = dict(os.environ, FITS_REFUSED=os.path.join(work, "refused"), TMPDIR=work, **more)
    env.pop("GPUPROF_SIM", None)
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)


def refused(work, total):
    """The requests that got no memory on devices of that size, since the last look."""
    path = os.path.join(work, "refused")
    lines = open(path).read().split("\n")[:-1] if os.path.exists(path) else []
    if lines:
        os.unlink(path)
    return sum(int(line.split()[0]) == total for line in lines)


def run(work, seed, total, record=None):
    """How many requests got no memory."""
    sim = f"--sim=gpu=t4,contents=none,shared=fits-{os.getpid()},memory={total}B"
    done = call(work, [GPUPROF, "run", sim] + ([f"--record={record}"] if record else []) + ["--", PROGRAM, str(seed)])
    if done.returncode not in (0, 1):
        raise RuntimeError(f"seed {seed}: the program ended with {done.returncode}: {done.stderr}")
    return refused(work, total)


def answer(work, argv, statuses):
    done = call(work, argv)
    if done.returncode not in statuses:
        raise RuntimeError(f"{argv}: {done.returncode}: {done.stderr}")
    return json.loads(done.stdout), done.returncode


def judge(seed, what, good, **facts):
    JUDGED[what] += 1
    if not good:
        WRONG[what] += 1
        print(f"seed {seed}: {what}: {facts}", flush=True)


def enough(plan, size):
    """The size, and a label."""
    waits = plan["waits"] and not plan["keeps"] and plan["kinds"] >> POOL & 1
    return (size * 106 // 100, ", with 6 % more, as the waits of its pools are not recorded") if waits else (size, "")


def judge_fit(work, seed, plan):
    file = os.path.join(work, "r.gpuprof")
    if run(work, seed, PLENTY, file):
        raise RuntimeError(f"seed {seed}: something was refused on a large device")
    top, _ = answer(work, [GPUPROF, "fit", "--json", f"--gpu={PLENTY}B", file], [0])
    smallest = top["smallest_bytes"]
    os.unlink(file)
    judge(seed, "fit: the least is named as such", not top["at_least"])
    size, label = enough(plan, smallest)
    judge(seed, "fit: the smallest size is enough" + label, not run(work, seed, size), mib=smallest / MIB)
    if plan["answer"] != "retries":
        judge(seed, "fit: 97 % of it is not", run(work, seed, smallest * 97 // 100), mib=smallest / MIB)
    for part in (60, 90):
        total = smallest * part // 100 // MIB * MIB
        count = run(work, seed, total, file)
        top, status = answer(work, [GPUPROF, "fit", "--json", f"--gpu={total}B", file], [0, 3])
        os.unlink(file)
        facts = {"gpu": total / MIB, "refused": count, "smallest": top["smallest_bytes"] / MIB}
        judge(seed, "fit: what was refused does not fit", not count or (status == 3 and not top["fits"]), **facts)
        judge(seed, "fit: what was served fits", count or (status == 0 and top["fits"]), **facts)
        judge(seed, "fit: the least is named as such", top["at_least"] == (count > 0), **facts)
        judge(seed, "fit: the least is more than there was", not count or top["smallest_bytes"] > total, **facts)
    return smallest


def judge_dryrun(work, seed, plan, total):
    argv = [GPUPROF, "dryrun", "--json", "--gpu=t4", f"--memory={total}B", "--", PROGRAM, str(seed)]
    top, status = answer(work, argv, [0, 3])
    count = refused(work, total)
    gpu = top["gpus"][0]
    needed, least = gpu["needed_bytes"], gpu["smallest_bytes"]
    said = sum(row["count"] for row in gpu["refused"])
    facts = {"gpu": total / MIB, "refused": count, "said": said, "needed": needed / MIB, "least": least / MIB}
    judge(seed, "dryrun: it fits if nothing was refused", count or (status == 0 and gpu["fits"]), **facts)
    judge(seed, "dryrun: it does not fit if something was", not count or (status == 3 and not gpu["fits"]), **facts)
    judge(seed, "dryrun: all that was refused is told", count == said, **facts)
    judge(seed, "dryrun: at least is no more than needed, and than what a run had",
          least <= needed and (count or least <= total), **facts)
    if top["cut_recordings"]:
        print(f"seed {seed}: a recording was cut, which is said: {facts}")
        return
    size, label = enough(plan, needed)
    judge(seed, "dryrun: what is needed is enough" + label, not run(work, seed, size), **facts)
    if plan["shape"] != "loose" and plan["answer"] != "retries":
        judge(seed, "dryrun: 97 % of at least is not", run(work, seed, least * 97 // 100), **facts)


def main():
    env = dict(os.environ, LD_LIBRARY_PATH=os.path.join(BUILD, "lib", "gpuprof", "sim"))
    for seed in range(FIRST, FIRST + COUNT):
        plan = json.loads(subprocess.run([PROGRAM, str(seed), "plan"], env=env, capture_output=True, check=True).stdout)
        rng = random.Random(seed)
        with tempfile.TemporaryDirectory(prefix="gpuprof-test-fits-") as work:
            if plan["shape"] in ("one", "threads"):
                total = judge_fit(work, seed, plan)
            else:
                total = plan["mib"] * MIB * (plan["workers"] if plan["shape"] != "in turn" else 1)
            judge_dryrun(work, seed, plan, int(total * rng.uniform(0.5, 1.4)) // MIB * MIB)
    for what, count in sorted(JUDGED.items()):
        print(f"{what}: {count - WRONG[what]} of {count}")
    print(f"{sum(JUDGED.values()) - sum(WRONG.values())} passed, {sum(WRONG.values())} failed")
    return 1 if WRONG else 0


sys.exit(main())
