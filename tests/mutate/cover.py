# SPDX-License-Identifier: MIT
"""Which lines each test reaches: runs the tests of a tree built with MODE=cov one by one, and keeps the result.

A test's lines are kept with the contents of each file at that time.  They are carried over to the file's contents of
today line by line, so that a test is run again only if its own source has changed.
"""
import difflib
import glob
import hashlib
import json
import os
import subprocess


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha1(file.read()).hexdigest()


def source_of(tree, test):
    """Unit tests lie in folders, and are named without them."""
    if test.startswith("unit/"):
        return glob.glob(f"{tree}/tests/unit/**/{os.path.basename(test)}.c", recursive=True)[0]
    return f"{tree}/tests/{test}" if test.endswith(".sh") else f"{tree}/tests/{test}.c"


class Cover:
    def __init__(self, work, tree, folders):
        self.tree, self.folders = tree, tuple(folders)
        self.store, self.texts = os.path.join(work, "cover.json"), os.path.join(work, "texts")
        os.makedirs(self.texts, exist_ok=True)
        self.tests, self.carried = {}, {}
        if os.path.exists(self.store):
            with open(self.store) as file:
                self.tests = json.load(file)

    def missing(self, names):
        """The tests of NAMES that have not been measured as they are now."""
        return [n for n in names if self.tests.get(n, {}).get("source") != digest(source_of(self.tree, n))]

    def measure(self, names, run):
        """Which lines each test reaches; RUN(name) runs it alone in build-cov and returns (result, seconds)."""
        build = f"{self.tree}/build-cov"
        for number, name in enumerate(names):
            for path in glob.glob(f"{build}/obj/**/*.gcda", recursive=True):
                os.unlink(path)
            result, seconds = run(name)
            test = {"source": digest(source_of(self.tree, name)), "lines": self.lines_of(build)}
            if result == "passed":
                test.update(passed=True, seconds=seconds)
            self.tests[name] = test
            print(f"  {number + 1}/{len(names)} {name} reaches {len(test['lines'])} files, {seconds:.1f} s", flush=True)
            self.save()

    def time(self, names, run):
        """How long each test takes that has not passed while it was measured; RUN(name) returns (result, seconds).

        One that fails as it is cannot judge.
        """
        for name in names:
            source = digest(source_of(self.tree, name))
            test = self.tests.setdefault(name, {"lines": {}})
            if "seconds" in test and test.get("source", test.get("timed")) == source:
                continue
            result, seconds = run(name)
            test.update(timed=source, passed=result == "passed", seconds=seconds)
            print(f"  {name}: {result} in {seconds:.1f} s", flush=True)
            self.save()

    def save(self):
        with open(self.store + ".new", "w") as file:
            json.dump(self.tests, file)
        os.rename(self.store + ".new", self.store)

    def lines_of(self, build):
        found = {}
        counters = [p for f in self.folders for p in glob.glob(f"{build}/obj/{f}/*.gcda")]
        if not counters:
            return found
        relative = [os.path.relpath(p, self.tree) for p in counters]
        text = subprocess.run(["gcov", "--json-format", "--stdout", *relative], cwd=self.tree, capture_output=True).stdout
        for document in text.splitlines():
            for file in json.loads(document)["files"]:
                path = file["file"]
                if not path.endswith(".c") or not path.startswith(self.folders):
                    continue
                lines = {line["line_number"] for line in file["lines"] if line["count"] > 0}
                if lines:
                    found.setdefault(path, set()).update(lines)
        return {path: [self.keep(path), sorted(lines)] for path, lines in found.items()}

    def keep(self, path):
        """Keeps the file's text of now, under its digest."""
        name = digest(f"{self.tree}/{path}")
        kept = os.path.join(self.texts, name)
        if not os.path.exists(kept):
            with open(f"{self.tree}/{path}") as source, open(kept, "w") as copy:
                copy.write(source.read())
        return name

    def carry(self, path, old, text):
        """A map from line numbers of the text kept as OLD to those of TEXT."""
        key = (path, old)
        if key not in self.carried:
            with open(os.path.join(self.texts, old)) as file:
                before = file.read().splitlines()
            now = text.splitlines()
            if before == now:
                self.carried[key] = None
            else:
                self.carried[key] = {}
                for a, b, size in difflib.SequenceMatcher(None, before, now, False).get_matching_blocks():
                    self.carried[key].update({a + i + 1: b + i + 1 for i in range(size)})
        return self.carried[key]

    def reaching(self, path, text, first, last):
        """Tests that reach a line of FIRST..LAST of PATH, and tests that reach the file, both as sets."""
        exact, near = set(), set()
        for name, test in self.tests.items():
            if path not in test["lines"]:
                continue
            near.add(name)
            old, lines = test["lines"][path]
            moved = self.carry(path, old, text)
            if any(first <= (line if moved is None else moved.get(line, 0)) <= last for line in lines):
                exact.add(name)
        return exact, near
