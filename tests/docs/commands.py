#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the commands of README.md, of the pages about installation, the recipes and tutorials, and the EXAMPLES of each `--help`:
commands.py BUILD_DIR [PAGE|help]...

A command must exit with the status that the page promises ("# exits 1", else 0; 77, not possible here, if it concerns the whole
machine), and print the words of the output that the page shows below it.  Programs and recordings that a page takes for granted are
stand-ins on the simulated GPU.  Of commands of other tools (docker, make ..) only the files and targets must exist.  run.sh calls
this inside a process namespace, where --all reaches no other program.
"""
import glob
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import pages

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, sys.argv[1])
ELSEWHERE = ("make", "sudo", "docker", "podman", "kubectl", "helm", "pip", "apt", "apt-get", "git", "systemctl", "cd", "PATH", "python")
RECORDINGS = ("train", "now", "old", "new", "test", "BEFORE", "AFTER", "leak", "serve",
              "run.0", "run.1", "train.rank0", "train.rank1", "old.rank0", "old.rank1", "new.rank0", "new.rank1")
SERVICE = "gpuprof run --stacks=all -- python3 examples/service.py --seconds 600"
TORCH = importlib.util.find_spec("torch") is not None
passed = failed = skipped = 0


def tell(good, what, why=""):
    global passed, failed
    passed, failed = passed + good, failed + (not good)
    if not good:
        print(f"FAIL {what}\n{why}"[:4000])


class Place:
    """A folder with what the pages take for granted, and the programs that run in it."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="gpuprof-test-docs-")
        path = os.path.join(self.folder, ".bin")
        os.makedirs(path)
        os.makedirs(os.path.join(self.folder, ".config/fish/completions"))
        os.symlink(os.path.join(BUILD, "bin", "gpuprof"), os.path.join(path, "gpuprof"))
        os.symlink(shutil.which("python3"), os.path.join(path, "python"))
        os.symlink(BUILD, os.path.join(self.folder, "build"))
        for name in ("train.py", "gpu.py"):
            shutil.copy(os.path.join(ROOT, "examples", name), self.folder)
        os.symlink(os.path.join(ROOT, "examples"), os.path.join(self.folder, "examples"))
        for name in ("app", "program"):
            shutil.copy(os.path.join(BUILD, "examples", "train_rt"), os.path.join(self.folder, name))
        sim = os.path.join(BUILD, "lib", "gpuprof", "sim")
        self.environment = dict(os.environ, PATH=path + ":" + os.environ["PATH"], HOME=self.folder, LD_LIBRARY_PATH=sim,
                                PYTHONDONTWRITEBYTECODE="1", COLUMNS="160")
        self.environment.pop("CUDA_INJECTION64_PATH", None)
        self.running = []

    def recordings(self):
        """Some seconds of a program with marks of its steps, under each of the names, and one that leaks."""
        self.begin("gpuprof run --stacks=all --record=train.gpuprof -- python3 examples/service.py --seconds 6")
        marks = sum(self.run("gpuprof mark iteration; sleep 0.1")[0] == 0 for _ in range(8))
        tell(marks >= 3, "gpuprof mark of a running program", f"     {marks} marks")
        self.running.pop().wait()
        self.run("gpuprof run --stacks=all --record=leak.gpuprof -- build/examples/leak_rt --steps 60")
        for name in RECORDINGS:
            if not os.path.exists(os.path.join(self.folder, name + ".gpuprof")):
                shutil.copy(os.path.join(self.folder, "train.gpuprof"), os.path.join(self.folder, name + ".gpuprof"))
        for name in ("BEFORE", "AFTER"):
            os.rename(os.path.join(self.folder, name + ".gpuprof"), os.path.join(self.folder, name))
        shutil.copy(os.path.join(self.folder, "train.gpuprof"), os.path.join(self.folder, ".kept"))
        os.mkdir(os.path.join(self.folder, "job"))
        for rank in range(2):
            shutil.copy(os.path.join(self.folder, "train.gpuprof"), os.path.join(self.folder, "job", f"run.rank{rank}.gpuprof"))
        with open(os.path.join(self.folder, "memory.budgets"), "w", encoding="utf-8") as file:
            file.write("peak 20GiB\n")

    def run(self, text, limit=120):
        # Not as an argument, in which pgrep would find the names of programs.
        done = subprocess.run(["bash", "-s"], input=text + "\n", cwd=self.folder, env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit, check=False, errors="replace")
        return done.returncode, done.stdout

    def profiled(self):
        """The profiled programs that are alive."""
        text = self.run("gpuprof stat --all --json 2>/dev/null")[1]
        try:
            return [one["pid"] for one in json.loads(text)["processes"] if one["state"] == "live"]
        except (ValueError, KeyError):
            return []

    def begin(self, text):
        """Starts a program and waits until it is profiled, as a person would before the next command."""
        before = len(self.profiled())
        log = open(os.path.join(self.folder, ".log"), "ab")
        self.running.append(subprocess.Popen(["bash", "-c", "exec " + text.rstrip("& ")], cwd=self.folder, env=self.environment,
                                             stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True))
        end = time.monotonic() + 60
        while time.monotonic() < end and self.running[-1].poll() is None:
            if len(self.profiled()) > before:
                time.sleep(1)  # the program has something to show
                return True
            time.sleep(0.2)
        return self.running[-1].poll() is None and "agent" in text

    def end(self):
        for program in self.running:
            try:
                os.killpg(program.pid, 9)
            except ProcessLookupError:
                pass
            program.wait()
        self.running = []

    def close(self):
        self.end()
        shutil.rmtree(self.folder)


def known(text):
    """What is wrong with a command of another tool: a file of the tree or a target of make that does not exist."""
    problems = [word for word in re.findall(r"(?:deploy|docs|examples|python|tests)/[\w./-]+", text)
                if not os.path.exists(os.path.join(ROOT, word))]
    with open(os.path.join(ROOT, "Makefile"), encoding="utf-8") as file:
        makefile = file.read()
    for included in re.findall(r"^include (\S+)", makefile, re.M):
        with open(os.path.join(ROOT, included), encoding="utf-8") as file:
            makefile += file.read()
    words = text.split()
    if "make" in words[:2]:
        problems += [word for word in words[words.index("make") + 1:] if re.fullmatch(r"[a-z-]+", word) and not word.startswith("-") and
                     not re.search(rf"^[\w -]*\b{word}\b[\w -]*:", makefile, re.M)]
    return problems


def fitted(text, place):
    """The command with short times, numbers of running processes, and files that exist."""
    text = re.sub(r"--duration[ =][\d.]+", "--duration 2", text)
    text = re.sub(r"\bsleep \d+", "sleep 1", text)
    text = re.sub(r"; go tool pprof.*", "", text)
    text = text.replace("/etc/cdi", "cdi").replace("gpu-admins", "root")
    if re.search(r"\b(1234|PID)\b", text):
        pids = place.profiled()
        text = re.sub(r"(-p |\b(?:at|de)tach .*)(?:1234|PID)\b", rf"\g<1>{pids[0] if pids else 0}", text)
    if text.startswith("gpuprof attach"):  # the programs here are profiled from their start
        text = f"gpuprof detach {text.split()[-1]} && {text}"
    # These run until ^C.
    text = re.sub(r"\bgpuprof (trace(?=.* -p)|agent)\b", r"timeout --preserve-status -s INT 5 gpuprof \1", text)
    return re.sub(r"(export|snapshot) FILE", r"\1 train.gpuprof", text)


def try_command(one, place):
    global skipped
    first = re.split(r"[\s=]", one.text)[0]
    if first in ELSEWHERE:
        problems = known(one.text)
        tell(not problems, f"{one.where}: {one.text}", f"     does not exist: {' '.join(problems)}")
        return
    if "fsdp.py" in one.text and not TORCH:
        skipped += 1
        return
    lacking = [tool for tool in re.findall(r"\| *(\w+)", re.sub(r"'[^']*'", "", one.text)) if not shutil.which(tool)]
    if lacking:
        skipped += 1
        return
    machine = one.root or "--system" in one.text or "gpuprof agent" in one.text or "--need" in one.text
    # A command before it, or a try before this one, may have written the recording.
    text = re.sub(r"gpuprof (run|attach|dryrun) (?=.*--record)|gpuprof (record) (?=.*-o )", r"gpuprof \1\2 --force ", fitted(one.text, place))
    if one.behind and not machine:
        tell(place.begin(text), f"{one.where}: {one.text}", "     it did not start to be profiled")
        return
    # On a loaded machine a command may come too early, or the driver is asked too late: it is tried three times.
    for _ in range(3):
        try:
            status, out = place.run(text.rstrip("& "), 900 if "fsdp.py" in text else 120)
        except subprocess.TimeoutExpired:
            tell(False, f"{one.where}: {one.text}", "     does not end")
            return
        if "timeout" in text and status in (124, 130, 143):
            status = 0
        given = re.search(r"--error-exitcode (\d+)$", text)  # without a word about the result, either may come
        good = status == one.status or (machine and status == 77) or bool(given and not one.shown and status == int(given.group(1)))
        lost = [] if machine and status else pages.missing(one.shown, out)
        if good and not lost:
            break
    tell(good and not lost, f"{one.where}: {text}",
         f"     exit status {status}, expected {one.status}; shown, not printed: {' '.join(lost) or 'nothing'}\n" +
         "".join(f"     | {line}\n" for line in out.splitlines()[:30]))


def page(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        found = pages.commands(name, file.read())
    place = Place()
    try:
        if any(re.search(r"-p (PID|1234)|\b(BEFORE|leaks \w+\.gpuprof|report \w+\.gpuprof)", one.text) for one in found):
            place.recordings()
        before = failed
        for one in found:
            # "PID" stands for any program, and the output below is that of another one.
            if re.search(r"-p PID", one.text) or one.text.startswith("gpuprof reset"):
                place.end()
                place.begin(SERVICE)
                one.shown = []
            try_command(one, place)
        print(f"{'ok  ' if failed == before else 'FAIL'} {name}: {len(found)} commands")
    finally:
        place.close()


def examples():
    """The EXAMPLES of each command's help, in the folder with a recording and beside a running program."""
    place, before, count = Place(), failed, 0
    try:
        place.recordings()
        place.begin(SERVICE)
        names = re.findall(r"^  ([a-z]+) ", place.run("gpuprof help")[1], re.M)
        for name in names:
            text = place.run(f"gpuprof {name} --help")[1].partition("\nEXAMPLES\n")[2]
            for line in re.findall(r"^  (\S.*)$", text, re.M):
                # An example before this one may have written its files.
                shutil.copy(os.path.join(place.folder, ".kept"), os.path.join(place.folder, "train.gpuprof"))
                if not place.profiled():  # an example has left the program
                    place.end()
                    place.begin(SERVICE)
                try_command(pages.Command(f"gpuprof {name} --help", line, name == "agent"), place)
                count += 1
            tell(bool(text), f"gpuprof {name} --help has examples")
        print(f"{'ok  ' if failed == before else 'FAIL'} the EXAMPLES of {len(names)} commands: {count}")
    finally:
        place.close()


def main():
    if not pages.self_test():
        sys.exit("commands.py: the self-test failed")
    wanted = sys.argv[2:]
    names = ["README.md", "docs/install.md", "docs/containers.md", "docs/recipes.md"]
    names += sorted(os.path.relpath(path, ROOT) for path in glob.glob(os.path.join(ROOT, "docs/tutorials/*.md")))
    for name in names:
        if not wanted or name in wanted:
            page(name)
    if not wanted or "help" in wanted:
        examples()
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
