# SPDX-License-Identifier: MIT
"""A copy of the working tree with builds of its own, and its tests."""
import ctypes
import os
import shutil
import signal
import subprocess
import time

PR_SET_CHILD_SUBREAPER = 36


def adopt():
    """What a test's processes leave behind becomes a child of this process, which can then end it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children():
    me, found = str(os.getpid()), []
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                with open(f"/proc/{pid}/stat") as file:
                    if file.read().rpartition(")")[2].split()[1] == me:
                        found.append(int(pid))
            except OSError:
                pass
    return found


def reap():
    """Ends this process's children, and theirs, which become its children then."""
    deadline = time.time() + 5
    while (left := children()) and time.time() < deadline:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
            except OSError:
                pass
        time.sleep(0.01)


def ended(child, limit):
    """CHILD's exit status, or None when it runs longer than LIMIT seconds.

    Reaps what it leaves behind meanwhile, as init would: a test may wait until such a process is gone.
    """
    deadline = time.time() + limit
    while time.time() < deadline:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return child.returncode
        if not pid:
            time.sleep(0.01)
    return None


class Tree:
    def __init__(self, source, work, name="tree"):
        self.source, self.path = source, os.path.join(work, name)
        self.log = os.path.join(work, name + ".log")

    def sync(self):
        """Makes the copy's files those of the working tree; what is equal keeps its time, so that make builds the rest."""
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=self.source,
                                capture_output=True, check=True).stdout.decode().split("\0")
        changed = 0
        for name in filter(None, listed):
            source, copy = os.path.join(self.source, name), os.path.join(self.path, name)
            if os.path.islink(source) or not os.path.exists(source):
                if not os.path.lexists(source) and os.path.lexists(copy):
                    os.unlink(copy)
                elif os.path.islink(source) and not os.path.lexists(copy):
                    os.makedirs(os.path.dirname(copy), exist_ok=True)
                    os.symlink(os.readlink(source), copy)
                continue
            with open(source, "rb") as file:
                text = file.read()
            if os.path.exists(copy):
                with open(copy, "rb") as file:
                    if file.read() == text:
                        continue
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            with open(copy, "wb") as file:
                file.write(text)
            shutil.copymode(source, copy)
            changed += 1
        return changed

    def make(self, *what, timeout=600):
        """True if make built WHAT; what it printed is in the log."""
        with open(self.log, "w") as log:
            done = subprocess.run(["make", "-j2", *what], cwd=self.path, stdout=log, stderr=log, timeout=timeout)
        return done.returncode == 0

    def run(self, build, name, limit=600, fast=False):
        """Runs one test: ("passed", "failed" or "hung", seconds)."""
        program = f"{build}/tests/{name}"
        if name.endswith(".sh"):
            command = [f"tests/{name}", build]
        elif name.startswith("torture/"):
            command = [program, "1"]
        else:
            command = [program, "--jobs", "2", "--quiet"] + (["--fail-fast"] if fast else [])
        environment = {**os.environ, "GPUPROF_BUILD": os.path.join(self.path, build)}
        started = time.time()
        with open(self.log, "w") as log:
            child = subprocess.Popen(command, cwd=self.path, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                     env=environment, start_new_session=True)
            status = ended(child, limit)
            result = "hung" if status is None else "passed" if status in (0, 77) else "failed"
            if status is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        seconds = time.time() - started
        reap()
        return result, seconds
