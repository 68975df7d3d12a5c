#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes small wrong changes at random, one at a time, and tells which of them no test notices.

  tests/mutate/mutate.py [N=60] [SEED=n] [DIR=folder,...] [BUDGET=seconds] [JOBS=1] [PATCH=file.diff,...]

Draws N points in DIR (all folders), seeded with SEED.  For each it changes one token or statement in a copy of the tree,
builds what it needs there, and runs the tests that reach the line, cheapest first, until one fails.  A change that does
not compile, or that the compiler turns into the same code, is drawn again; so is one that tests/mutate/equivalents lists.
BUDGET ends the tests of one change that nothing has noticed.  With PATCH the changes are patches instead (patch -p1).
JOBS changes are tried side by side, each in a copy of its own; which ones are drawn does not depend on it.

Everything is kept in build/mutate: the copies with their builds, and what each test reaches (see cover.py).
"""
import collections
import glob
import hashlib
import json
import multiprocessing
import os
import random
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cover import Cover  # noqa: E402
from points import Point, points_of  # noqa: E402
from runner import Tree, adopt, reap  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
FOLDERS = [f"core/{name}" for name in ("base", "cache", "oom", "record")] + [
    f"src/{name}" for name in "stack account account/framework source source/shim allocator session inject".split()] + [
    "bpf", "tools/read/collect", "tools/analyze", "tools/read/recording"]
# The kernel's side has no coverage: all of these load it.
BPF_TESTS = [f"integration/test_{name}" for name in ("bpf bpf_ends pins batch system agent agent_life query who agent_files "
                                                     "agent_discover agent_hostile").split()]
# Of these, the ones that reach nothing else which is changed are timed, not measured.
KERNEL = {f"integration/test_{name}" for name in ("agent agent_life agent_files agent_discover agent_hostile system query "
                                                  "who").split()}
# The preload is built without coverage.
SHIM_TESTS = [f"integration/test_{name}" for name in "shim loader hooks stage batch musl.sh".split()] + ["python/run.sh"]
# What torture compiles itself.
TORTURE = {**{f"core/base/{name}.c": ("map", "ring", "counter") for name in ("map", "ring", "counter", "span")},
           "core/cache": ("cache",), "src/session/batch.c": ("batch",),
           "src/stack/live.c": ("site",), "src/stack/names.c": ("site",), "src/stack/site.c": ("site",)}
# Sweeps over whole programs, which take longer than the budget of a change.
LONG = {f"integration/test_{name}" for name in ("harmless", "hooks_harmless", "record_harmless", "agent_kill", "deaths")}
SCRIPTS = [f"integration/test_{name}.sh" for name in "attach_blocks musl python_stack torch_error snapshot_sound pprof".split()] + [
    "python/run.sh"]
BUILDS = ("all", "programs", "testtools")  # a test is linked when it is about to run


class Equivalents:
    """Changes that alter nothing a test could see: blocks of file, "- line", "+ line" and the reason."""

    def __init__(self, path):
        self.known = set()
        with open(path) as file:
            for block in file.read().split("\n\n"):
                lines = [line for line in block.splitlines() if line and not line.startswith("#")]
                if not lines:
                    continue
                if len(lines) < 4 or not lines[1].startswith("- ") or not lines[2].startswith("+ "):
                    sys.exit(f"{path}: a block needs a file, a line with -, one with + and a reason: {lines[0]}")
                self.known.add((lines[0], lines[1][2:].strip(), lines[2][2:].strip()))

    def has(self, mutant):
        return (mutant.path, mutant.before, mutant.after) in self.known


class Mutant:
    """One change: the file's text before and after."""

    def __init__(self, point, text):
        self.path, self.kind, self.old = point.path, point.kind, text
        self.new = text[:point.start] + point.text + text[point.end:]
        self.first = text.count("\n", 0, point.start) + 1
        self.last = text.count("\n", 0, point.end) + 1
        start, end = text.rfind("\n", 0, point.start) + 1, text.find("\n", point.end)
        self.before = " ".join(text[start:end].split())
        self.after = " ".join((text[start:point.start] + point.text + text[point.end:end]).split())

    def show(self):
        return f"{self.path}:{self.first}: {self.kind}\n- {self.before}\n+ {self.after}"


class Mutation:
    def __init__(self, options):
        self.work = os.path.join(TOP, "build/mutate")
        self.tree = Tree(TOP, self.work)
        self.cover = Cover(self.work, self.tree.path, FOLDERS)
        self.budget = float(options.get("BUDGET", 150))
        self.kills = collections.Counter()
        self.history = os.path.join(self.work, "kills.json")
        if os.path.exists(self.history):
            with open(self.history) as file:
                self.kills.update({tuple(key.split(" ")): count for key, count in json.load(file).items()})

    # ---- the tree and its tests --------------------------------------------------------------------------------------

    def prepare(self):
        self.tree.sync()
        print("building the tree", flush=True)
        if not self.tree.make(*BUILDS, timeout=3600):
            sys.exit(f"the tree does not build: {self.tree.log}")
        names = [f"{group}/{os.path.basename(path)[:-2]}" for group in ("unit", "integration")
                 for path in sorted(glob.glob(f"{self.tree.path}/tests/{group}/**/test_*.c", recursive=True))]
        names = [name for name in names if name not in LONG] + SCRIPTS
        missing = [name for name in self.cover.missing(names) if name not in KERNEL]
        if missing:
            print(f"measuring what {len(missing)} tests reach", flush=True)
            self.share("build", "build-cov")
            if not self.tree.make("MODE=cov", "all", *self.programs("build-cov", missing), timeout=3600):
                sys.exit(f"MODE=cov does not build: {self.tree.log}")
            self.cover.measure(missing, lambda name: self.tree.run("build-cov", name))
        self.cover.time(names, self.timed)

    def timed(self, name):
        if not self.tree.make(*self.programs("build", [name])):
            sys.exit(f"{name} does not build: {self.tree.log}")
        return self.tree.run("build", name)

    def programs(self, build, names):
        """What make builds for the tests NAMES; a script runs what BUILDS are."""
        return [f"{build}/tests/{name}" for name in names if not name.endswith(".sh")] or ["all"]

    def share(self, build, other):
        """Lets the tests of OTHER use the programs and libraries of BUILD that hold none of the measured code."""
        for name in ("programs", "preload", "framework"):
            place = os.path.join(self.tree.path, other, "tests", name)
            if not os.path.lexists(place):
                os.makedirs(os.path.dirname(place), exist_ok=True)
                os.symlink(f"../../{build}/tests/{name}", place)

    def tests_for(self, mutant):
        """Names of tests in the order in which they are tried."""
        if mutant.path.startswith("bpf/"):
            names = set(BPF_TESTS)
        elif mutant.path.startswith("src/source/shim/"):
            names = set(SHIM_TESTS)
        else:
            exact, near = self.cover.reaching(mutant.path, mutant.old, mutant.first, mutant.last)
            names = exact or near
        usable = [n for n in names if self.cover.tests.get(n, {}).get("passed")]
        folder, caught = os.path.dirname(mutant.path), collections.Counter()
        for (path, name), count in self.kills.items():
            caught[name] += (4 if path == mutant.path else 1 if os.path.dirname(path) == folder else 0) * count
        # A test with the file's name is about it; the others often only pass by.
        stem = os.path.basename(mutant.path)[:-2].split("_")[0]
        cost = {n: self.cover.tests[n]["seconds"] / (1 + caught[n]) / (8 if len(stem) > 3 and stem in n else 1) for n in usable}
        ordered = sorted(usable, key=lambda n: cost[n])
        torture = [f"torture/{n}" for key, names in TORTURE.items() if mutant.path.startswith(key) for n in names]
        return ordered[:4] + torture + ordered[4:]

    # ---- one change --------------------------------------------------------------------------------------------------

    def objects(self, path):
        if path.startswith("bpf/"):
            return ["build/gen/gpuprof.bpf.o"]
        return [f"build/obj/{path[:-2]}.o"]

    def code(self, name):
        """What an object holds, without debug information."""
        copy = self.tree.path + ".stripped.o"
        tool = "llvm-strip" if name.endswith(".bpf.o") else "strip"
        done = subprocess.run([tool, "-g", "-o", copy, os.path.join(self.tree.path, name)], capture_output=True)
        if done.returncode != 0:
            return None
        with open(copy, "rb") as file:
            return hashlib.sha1(file.read()).hexdigest()

    def write(self, mutant, text):
        with open(os.path.join(self.tree.path, mutant.path), "w") as file:
            file.write(text)

    def compiles(self, mutant):
        """True if the change builds and makes another object."""
        names = self.objects(mutant.path)
        if not self.tree.make(*names):
            sys.exit(f"{mutant.path} does not build unchanged: {self.tree.log}")
        before = [self.code(name) for name in names]
        self.write(mutant, mutant.new)
        if not self.tree.make(*names):
            return False
        after = [self.code(name) for name in names]
        return before != after or None in after

    def judge(self, mutant):
        """("noticed", test), ("hang", test), ("unlinkable", None) or ("survived", note)."""
        names, spent, done = self.tests_for(mutant), 0.0, 0
        while done < len(names):
            batch = names[done:done + (3 if done == 0 else 8)]
            if not self.tree.make(*(BUILDS if any(name.endswith(".sh") for name in batch) else ()), *self.programs("build", batch)):
                return "unlinkable", None
            for name in batch:
                usual = self.cover.tests.get(name, {}).get("seconds", 3)
                if spent + usual > self.budget and spent > 0:
                    return "survived", f"{done} of {len(names)} tests within {self.budget:.0f} s"
                result, seconds = self.tree.run("build", name, limit=max(15, 6 * usual), fast=True)
                spent += seconds
                done += 1
                if result != "passed":
                    self.kills[mutant.path, name] += 1  # this process's order of tests; the parent keeps it
                    return "noticed" if result == "failed" else "hang", name
        return "survived", f"{len(names)} tests reach it"

    def try_one(self, mutant):
        try:
            if not self.compiles(mutant):
                return "same", None
            return self.judge(mutant)
        finally:
            self.write(mutant, mutant.old)

    def worker(self, number, tasks, answers):
        """A process of its own, with a copy of its own: answers each (index, mutant) with (index, result, note)."""
        adopt()
        if number:
            self.tree = Tree(TOP, self.work, f"tree{number}")
            self.tree.sync()
            if not self.tree.make(*BUILDS, timeout=3600):
                sys.exit(f"the tree does not build: {self.tree.log}")
        for index, mutant in iter(tasks.get, None):
            answers.put((index, *self.try_one(mutant)))

    def outcomes(self, mutants, jobs):
        """Yields (mutant, result, note) in the order of MUTANTS."""
        tasks, answers = multiprocessing.Queue(), multiprocessing.Queue()
        workers = [multiprocessing.Process(target=self.worker, args=(n, tasks, answers), daemon=True) for n in range(jobs)]
        for one in workers:
            one.start()
        given, known, done = [], {}, 0

        def give():
            mutant = next(mutants, None)
            if mutant:
                tasks.put((len(given), mutant))
                given.append(mutant)

        try:
            for _ in workers:
                give()
            while done < len(given):
                index, *known[index] = answers.get()
                give()
                while done in known:
                    yield given[done], *known.pop(done)
                    done += 1
        finally:
            for one in workers:
                one.terminate()
            reap()

    def remember(self, path, name):
        self.kills[path, name] += 1
        with open(self.history, "w") as file:
            json.dump({" ".join(key): count for key, count in self.kills.items()}, file)


def sources(wanted):
    found = []
    for folder in FOLDERS:
        if any(folder == w or folder.startswith(w.rstrip("/") + "/") or w.startswith(folder + "/") for w in wanted):
            found += [p for p in sorted(glob.glob(f"{TOP}/{folder}/*.c")) if any(
                os.path.relpath(p, TOP).startswith(w) for w in wanted)]
    return [os.path.relpath(path, TOP) for path in found]


def drawn(options):
    """Mutants at random, without end."""
    rng = random.Random(int(options["SEED"]))
    equivalents = Equivalents(os.path.join(HERE, "equivalents"))
    points, texts = [], {}
    for path in sources([w for w in options.get("DIR", "").split(",") if w] or FOLDERS):
        with open(os.path.join(TOP, path)) as file:
            texts[path] = file.read()
        points += points_of(path, texts[path])
    if not points:
        sys.exit("DIR has no source of " + " ".join(FOLDERS))
    rng.shuffle(points)
    for point in points:
        mutant = Mutant(point, texts[point.path])
        if not equivalents.has(mutant):
            yield mutant


def patched(names):
    """A mutant for each patch of one file."""
    for name in names:
        with open(name) as file:
            patch = file.read()
        path = [line[6:].split("\t")[0].strip() for line in patch.splitlines() if line.startswith("+++ b/")][0]
        with open(os.path.join(TOP, path)) as file:
            old = file.read()
        new = subprocess.run(["patch", "-p1", "-s", "-o", "-", os.path.join(TOP, path)], input=patch, text=True,
                             capture_output=True, check=True).stdout
        start = 0
        while old[start] == new[start]:
            start += 1
        end = 0
        while old[-1 - end] == new[-1 - end] and end < min(len(old), len(new)) - start - 1:
            end += 1
        mutant = Mutant(Point(path, start, len(old) - end, new[start:len(new) - end], os.path.basename(name)), old)
        yield mutant


def report(score, survivors, seconds, seed):
    everything = sum(score.values(), collections.Counter())
    print(f"\n{everything.total()} changes in {seconds:.0f} s, seed {seed}")
    for folder, results in sorted(score.items()) + [("all", everything)]:
        noticed = results["noticed"] + results["hang"]
        print(f"{folder:18s} {noticed:4d} of {results.total():4d} noticed, {100 * noticed / max(results.total(), 1):3.0f} %"
              + (f", {results['hang']} as hangs" if results["hang"] else ""))
    print("\nsurvivors:" if survivors else "\nno survivors")
    for mutant in survivors:
        print(mutant.show(), end="\n\n")


def main():
    options = dict(word.split("=", 1) for word in sys.argv[1:])
    options.setdefault("SEED", str(random.randrange(1, 10**6)))
    count = int(options.get("N") or 60)
    adopt()
    mutation = Mutation(options)
    mutation.prepare()
    mutants = patched(options["PATCH"].split(",")) if options.get("PATCH") else drawn(options)
    print(f"SEED={options['SEED']} N={count} DIR={options.get('DIR') or 'all'}", flush=True)
    score, survivors, started = collections.defaultdict(collections.Counter), [], time.time()
    try:
        for mutant, result, note in mutation.outcomes(mutants, int(options.get("JOBS") or 1)):
            if result in ("same", "unlinkable"):
                if options.get("PATCH"):
                    print(f"{mutant.kind}: {result}")
                continue
            score[os.path.dirname(mutant.path)][result] += 1
            print(f"{result:8s} {mutant.show().replace(chr(10), chr(10) + ' ' * 9)}\n{' ' * 9}{note}", flush=True)
            if result == "survived":
                survivors.append(mutant)
            else:
                mutation.remember(mutant.path, note)
            if sum(map(lambda results: results.total(), score.values())) == count:
                break
    except KeyboardInterrupt:
        print("\ninterrupted")
    report(score, survivors, time.time() - started, options["SEED"])


if __name__ == "__main__":
    main()
