#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""first.py: what only a GPU can show of gpuprof, within five minutes: a verdict for each item.

    first.py [--dry-run] [--short] [--seconds=300] [--json=FILE] [--only=1,2]
    first.py --list           the items
    first.py --programs       the test programs that it needs

It needs the driver and Python 3.6, and uses PyTorch, JAX, nsys, cuda-checkpoint and the like where they are.  --dry-run takes
the simulated GPU, --short leaves the frameworks out and repeats less.  Each item prints one line, whatever happened before:

    ok       as it has to be             seen     a figure, to be judged by a person
    FAILED   wrong, with what was seen   absent   not possible here, with the reason

Exit code: 0 nothing failed, 1 something did, 77 there is no GPU.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
MIB = 1 << 20
LIMIT_S = 25  # of one program


class Absent(Exception):
    """The check is not possible here."""


class Wrong(Exception):
    """What was seen is not as it has to be."""


def expect(is_right, text):
    if not is_right:
        raise Wrong(text)


class Held:
    """A program of first.c, which waits where it prints "hold"."""

    def __init__(self, machine, argv, mode, env=None):
        self.machine, self.lines, self.errors = machine, [], tempfile.TemporaryFile("w+")
        self.deadline = min(time.monotonic() + LIMIT_S, machine.deadline)
        full, prefix = machine.environment(mode)
        full.update(env or {})
        self.process = subprocess.Popen(prefix + argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=full,
                                        universal_newlines=True, start_new_session=True)
        self.pid = self.process.pid

    def wait(self):
        """Goes on to the next hold, and returns the lines before it."""
        lines = []
        for line in self.process.stdout:
            if line.strip() == "hold":
                self.lines += lines
                return lines
            lines.append(line.strip())
        self.lines += lines
        code = self.process.wait()
        self.errors.seek(0)
        if code == 77:
            raise Absent("; ".join(lines[-1:]) or "the driver cannot")
        raise Wrong("ended with %d instead of waiting: %s" % (code, " ".join(lines + [self.errors.read()])[-200:]))

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def next(self):
        self.go()
        return self.wait()

    def stat(self):
        return self.machine.stat(self.target())

    def target(self):
        """The program itself, where `gpuprof run` started it."""
        try:
            with open("/proc/%d/task/%d/children" % (self.pid, self.pid)) as file:
                children = file.read().split()
        except OSError:
            children = []
        return int(children[0]) if children else self.pid

    def end(self):
        out, _ = self.process.communicate("\n" * 20)
        self.errors.seek(0)
        return self.process.returncode, self.lines + [line for line in out.splitlines() if line.strip() != "hold"], self.errors.read()

    def __enter__(self):
        import threading
        seconds = max(1, self.deadline - time.monotonic())
        self.clock = threading.Timer(seconds, self.kill)
        self.clock.start()
        return self

    def kill(self):
        try:
            os.killpg(self.pid, 9)  # a session of the program and its children alone
        except OSError:
            pass

    def __exit__(self, *_):
        self.clock.cancel()
        if self.process.poll() is None:
            self.kill()
            self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.errors.close()


class Machine:
    def __init__(self, options):
        self.sim, self.short = options.dry_run, options.short
        self.deadline = time.monotonic() + options.seconds
        self.build = os.environ.get("GPUPROF_BUILD", os.path.join(TOP, "build"))
        self.command = os.path.join(self.build, "bin", "gpuprof")
        self.library = os.path.join(self.build, "lib", "libgpuprof.so")
        self.simulator = os.path.join(self.build, "lib", "gpuprof", "sim")
        self.work = tempfile.mkdtemp(prefix="gpuprof-first-")
        self.figures = {}
        self.cupti_path = None

    def environment(self, mode):
        """mode: "" without gpuprof, "inject", or a value of GPUPROF_SOURCE for `gpuprof run`."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUPROF_", "CUDA_INJECTION")) and k != "LD_PRELOAD"}
        if self.sim:
            env["LD_LIBRARY_PATH"] = self.simulator
        if mode == "inject":
            env["CUDA_INJECTION64_PATH"] = self.library
        elif mode:
            env["GPUPROF_SOURCE"] = mode
            return env, [self.command, "run", "--"]
        return env, []

    def program(self, name):
        path = os.path.join(self.build, "tests", "gpu" if name in ("first", "libfirst_ctor.so") else "programs", name)
        if not os.path.exists(path):
            raise Absent("%s was not built" % name)
        return path

    def hold(self, part, argument="", mode="inject", env=None):
        return Held(self, [self.program("first"), part, argument], mode, env)

    def run(self, argv, mode="", env=None, limit=LIMIT_S, stdin="\n" * 20):
        full, prefix = self.environment(mode)
        full.update(env or {})
        left = self.deadline - time.monotonic()
        process = subprocess.Popen(prefix + argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=full,
                                   universal_newlines=True, start_new_session=True)
        try:
            out, err = process.communicate(stdin, timeout=max(1, min(limit, left)))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            raise Wrong("%s did not end within %d s" % (" ".join(argv)[-60:], min(limit, left)))
        return process.returncode, out, err

    def part(self, part, argument="", mode="", env=None):
        """A part of first.c that has to succeed: its lines."""
        code, out, err = self.run([self.program("first"), part, argument], mode, env)
        lines = [line for line in out.splitlines() if line != "hold"]
        if code == 77:
            raise Absent("; ".join(lines[-1:]) or "the driver cannot")
        expect(code == 0, "exit %d: %s" % (code, " ".join(lines + [err])[-300:]))
        return lines

    def stat(self, pid):
        code, out, err = self.run([self.command, "stat", "--json", "-p", str(pid)])
        expect(code == 0, "no numbers: " + err.strip()[-200:])
        return json.loads(out)["processes"][0]

    def cupti(self):
        if self.cupti_path is None:
            with self.hold("idle") as program:
                program.wait()
                is_now = program.stat()
            used = [c["path"] for c in is_now["cupti"]["copies"] if c["status"] == 0]
            self.cupti_path = used[0] if used else ""
        if not self.cupti_path:
            raise Absent("no CUPTI works here")
        return self.cupti_path

    def same(self, name, arguments=(), mode="inject", env=None, limit=LIMIT_S):
        """A test program says and does the same with the profiler as without."""
        argv = [self.program(name)] + list(arguments)
        plain, seen = self.run(argv, limit=limit), self.run(argv, mode, env, limit)
        expect(plain[0] not in (126, 127), "does not run: " + plain[2][-200:])
        expect(plain[:2] == seen[:2], "without gpuprof %r, with it %r" % (plain[:2], seen[:2]))


def reserved(stat):
    return sum(d["stats"]["reserved_bytes.all.current"] for d in stat["devices"])


def number(lines, name):
    found = [line.split()[-1] for line in lines if line.split()[0] == name]
    if not found:
        raise Wrong("no %s in %r" % (name, lines))
    return float(found[0])


def median(values):
    return statistics.median(values)


# ---- the items: each returns what it saw, or raises -------------------------------------------------------------------------

def constructor(m):
    with m.hold("ctor", m.program("libfirst_ctor.so")) as program:
        ms = number(program.wait(), "ms")
        is_now = program.stat()
    expect(ms < 1000 or ms < 2000 and m.sim, "dlopen took %.0f ms" % ms)
    expect(is_now["source"] != "none" and reserved(is_now) >= 64 * MIB, "source %s" % is_now["source"])
    return "%.0f ms, source %s" % (ms, is_now["source"])


def python_of(m, module, test="True"):
    if m.short:
        raise Absent("left out by --short")
    for python in dict.fromkeys([os.environ.get("PYTHON"), shutil.which("python3"), sys.executable]):
        if not python:
            continue
        argv = [python, "-c", "import %s, sys; sys.exit(0 if %s else 3)" % (module, test)]
        try:
            code = m.run([m.command, "run", "--sim", "--"] + argv if m.sim else argv, limit=60)[0]
        except Wrong:
            continue
        if code == 0:
            return python
    raise Absent("no Python here has a %s that works (PYTHON names one)" % module)


def profiler_lines(m, python, which, mode):
    argv = [python, os.path.join(HERE, "profilers.py"), which]
    if mode:
        argv = [m.command, "run"] + ["--sim"] * m.sim + ["--"] + argv
    preload = {"LD_PRELOAD": os.path.join(m.simulator, "libgpuprof-sim.so")} if m.sim and not mode else {}
    code, out, err = m.run(argv, env={"GPUPROF_BIN": m.command, **preload}, limit=90)
    expect(code == 0, "exit %d: %s" % (code, err[-300:]))
    # What CUPTI refused to it. Kineto says so in these words, and is blind to the GPU from then on.
    refused = [line.split("]")[-1].strip() for line in err.splitlines() if "MULTIPLE_SUBSCRIBERS" in line or "will be missing" in line]
    return [line.split() for line in out.splitlines()] + [["refused", line] for line in refused]


def same_answers(lines):
    answers = [[w[1] for w in all if w[0] == "refused"] for all in lines]
    expect(answers[0] == answers[1], "CUPTI refused %r to it without gpuprof, %r with it" % tuple(answers))


def sources(lines):
    return " and ".join(dict.fromkeys(w[1] for w in lines if w[0] == "source"))


def torch_profiler(m):
    python = python_of(m, "torch", "torch.cuda.is_available()")
    plain, seen = (profiler_lines(m, python, "torch", mode) for mode in (False, True))
    same_answers([plain, seen])
    events = [[int(w[-1]) for w in lines if w[0] == "turn"] for lines in (plain, seen)]
    more = [int(w[-1]) for w in seen if w[0] == "more"]
    expect(len(events[1]) == 3 and all(a <= b for a, b in zip(*events)), "GPU events without %r, with %r" % tuple(events))
    expect(more and more[0] >= 512 * MIB, "512 MiB more were not seen: %r" % more)
    return "GPU events %r without, %r with; source %s; 512 MiB more seen" % (*events, sources(seen))


def jax_profiler(m):
    python = python_of(m, "jax", "True" if m.sim else "jax.devices()[0].platform != 'cpu'")
    plain, seen = (profiler_lines(m, python, "jax", mode) for mode in (False, True))
    traces = [[w[-1] for w in lines if w[0] in ("turn", "trace:")] for lines in (plain, seen)]
    expect(traces[0] == traces[1], "files of traces without %r, with %r" % tuple(traces))
    same_answers([plain, seen])
    more = [int(w[-1]) for w in seen if w[0] == "more"]
    expect(more and more[0] >= 512 * MIB, "512 MiB more were not seen: %r" % more)
    return "source %s; 512 MiB more seen" % sources(seen)


def forms(m):
    """A tool of today beside each form of our subscription."""
    path, rows = m.cupti(), {}
    plain = m.part("tool", path)
    for form in ("auto", "v1", "v2", "shared"):
        code, out, _ = m.run([m.program("first"), "tool", path], "auto", {"GPUPROF_CUPTI": form})
        rows[form] = [line for line in out.splitlines() if line != "hold"] if code == 0 else ["exit %d" % code]
    m.figures["tool beside each form"] = {"without": plain, **rows}
    expect(rows["auto"] == plain, "without gpuprof %r, with it %r" % (plain, rows["auto"]))
    harmed = [form for form in rows if rows[form] != plain]
    return "a tool of the first form works beside us" + ("; not with GPUPROF_CUPTI=%s" % ",".join(harmed) if harmed else "")


def finalize(m):
    with m.hold("finalize", m.cupti()) as program:
        program.wait()
        program.stat()  # a beat before it ends
        lines = program.next()
        expect(lines == ["finalize: 0"], repr(lines))
        before = program.stat()
        for _ in range(30):
            if not before["cupti"]["gone"]:
                break
            time.sleep(0.2)
            before = program.stat()
        program.next()
        after = program.stat()
    expect(not before["cupti"]["gone"], "events do not come back")
    more = reserved(after) - reserved(before)
    expect(more >= 512 * MIB, "%d bytes seen after it" % more)
    return "events came back: %s" % (after["trouble"] or "no gap")


def green(m):
    with m.hold("green") as program:
        held = number(program.wait(), "held")
        before = reserved(program.stat())
        still = number(program.next(), "held")
        after = reserved(program.stat())
    expect((still >= held) == (before - after < 512 * MIB), "the driver holds %d then %d, gpuprof %d then %d" %
           (held, still, before, after))
    return "the driver holds %d MiB after its end, and gpuprof counts %d MiB" % (still / MIB, after / MIB)


def reset(m):
    plain = m.part("reset")
    seen = m.part("reset", mode="inject")
    m.same("poll_reset")
    expect(plain == seen, "without %r, with %r" % (plain, seen))
    return "; ".join(plain[2:])


def captures(m):
    lines = m.part("capture")
    m.figures["unsafe in captures"] = lines
    m.same("poll_capture")
    return "relaxed mode excuses all of our calls; unsafe without it: " + (
        ", ".join(line.split(":")[0].replace("global ", "") for line in lines) or "none")


def waits(m):
    count = "30" if m.short else "300"
    rows = {}
    for mode in ("", "inject"):
        with Held(m, [m.program("first"), "pools", count], mode) as program:
            while mode and program.process.poll() is None:
                m.run([m.command, "stat", "--json", "-p", str(program.pid)])
            code, lines, errors = program.end()
        expect(code == 0, errors[-200:])
        rows[mode or "without"] = {"longest_ms": number(lines, "longest_ms"), "over_20_ms": number(lines, "over_20_ms")}
    m.figures["end of a pool"] = rows
    over = rows["inject"]["over_20_ms"] - rows["without"]["over_20_ms"]
    expect(over <= 0 or m.sim, "%d ends of a pool took more than 20 ms" % over)
    return "the longest end of a pool: %.2f ms without, %.2f ms with a viewer" % (rows["without"]["longest_ms"],
                                                                                  rows["inject"]["longest_ms"])


def checkpoint(m):
    tool = shutil.which("cuda-checkpoint")
    if not tool:
        raise Absent("cuda-checkpoint is not here")
    rows = {}
    for mode in ("", "hooks", "inject", "yield"):
        with m.hold("idle", mode="inject" if mode == "yield" else mode) as program:
            program.wait()
            if mode == "yield":
                m.run([m.command, "yield", "-p", str(program.target())])
            argv = [tool, "--toggle", "--pid", str(program.target())]
            rows[mode or "without"] = (m.run(argv)[0], m.run(argv)[0])
    m.figures["cuda-checkpoint"] = rows
    expect(rows["hooks"] == rows["without"], repr(rows))
    return ", ".join("%s %s" % (k, v) for k, v in rows.items())


def exits(m):
    runs = 3 if m.short else 20
    for _ in range(runs):
        with Held(m, [m.program("first"), "exit", "300"], "inject") as program:
            while program.process.poll() is None:
                m.run([m.command, "stat", "--json", "-p", str(program.pid)])
            code, _, errors = program.end()
        expect(code == 0, "exit %d: %s" % (code, errors[-200:]))
    return "%d runs ended with 0" % runs


def servers(m):
    path = os.path.join(m.work, "nvidia-cuda-mps-server")
    shutil.copy(m.program("first"), path)
    with Held(m, [path, "idle"], "inject") as program:
        program.wait()
        code, out, err = m.run([m.command, "stat", "--json", "-p", str(program.pid)])
    expect(code != 0, "it started in a program of that name")
    return "not started in a program of that name" + ("" if shutil.which("nvidia-cuda-mps-control") else "; MPS itself is not here")


COSTS = ("alloc_ns", "alloc_async_ns", "launch_ns", "graph_of_1000_ns")


def cost_rows(m):
    """Nanoseconds of each call without gpuprof, with each source from the start, and in one process before, during and after
    an attach."""
    if "cost" in m.figures:
        return m.figures["cost"]
    count, rounds = ("60", 1) if m.short else ("1000", 3)
    rows, states = {}, ["before attach", "attached", "detached"]

    def measure(program):
        lines = program.next()
        return {name: number(lines, name) for name in COSTS}

    for _ in range(rounds):
        for name, mode in (("without", ""), ("cupti", "inject"), ("hooks", "hooks")):
            with m.hold("cost", count + ",1", mode) as program:
                program.wait()
                rows.setdefault(name, []).append(measure(program))
        with m.hold("cost", count + ",3", "") as program:
            program.wait()
            for state in states:
                if state != states[0]:
                    verb = "attach" if state == "attached" else "detach"
                    code, out, err = m.run([m.command, verb, str(program.pid)])
                    if code != 0:
                        m.figures[verb] = (out + err)[-300:]
                        break
                rows.setdefault(state, []).append(measure(program))
    m.figures["cost"] = {name: {what: median([one[what] for one in all]) for what in COSTS} for name, all in rows.items()}
    print("\n%-15s%s" % ("ns", "".join("%18s" % what[:-3] for what in COSTS)))
    for name, row in m.figures["cost"].items():
        print("%-15s%s" % (name, "".join("%18.0f" % row[what] for what in COSTS)))
    print()
    return m.figures["cost"]


def compare(m, name, base, whats):
    rows = cost_rows(m)
    if name not in rows or base not in rows:
        raise Absent(m.figures.get("attach") or m.figures.get("detach") or "not measured")
    if any(rows[base][what] == 0 for what in whats):
        raise Absent("kernels cannot be launched here")
    return ", ".join("%s %+.1f %%" % (what[:-3], 100 * (rows[name][what] / rows[base][what] - 1)) for what in whats)


def launches(m):
    return "with CUPTI: " + compare(m, "cupti", "without", COSTS[2:]) + "; hooks: " + compare(m, "hooks", "without", COSTS[2:])


def detached(m):
    return "after the detach: " + compare(m, "detached", "before attach", COSTS)


def late(m):
    return "the graph from before the attach: " + compare(m, "attached", "before attach", COSTS[3:])


def modules(m):
    count = "20" if m.short else "100"
    rows = {mode or "without": m.part("modules", count, mode) for mode in ("", "inject", "hooks")}
    rows = {k: (number(v, "ms"), number(v, "rss_kib")) for k, v in rows.items()}
    m.figures["modules"] = rows
    return "%s modules: " % count + ", ".join("%s %.0f ms %.0f MiB" % (k, v[0], v[1] / 1024) for k, v in rows.items())


def nodes(m):
    count = "5000" if m.short else "100000"
    rows = {mode or "without": number(m.part("nodes", count, mode), "ms") for mode in ("", "inject", "hooks")}
    m.figures["nodes"] = rows
    return "a capture of %s launches: " % count + ", ".join("%s %.0f ms" % row for row in rows.items())


# Test programs that must do and say the same with gpuprof as without.
PROGRAMS = {17: ["contexts"], 24: ["proc_address", "hook_lookup"], 30: ["fork"], 36: ["static_tls"], 39: ["reuse", "short_threads"]}
OTHER_PROGRAMS = ["linear", "poll_reset", "poll_capture", "hook_contexts"]


def same(*names, mode="inject", limit=LIMIT_S):
    def check(m):
        for name in names:
            m.same(name, mode=mode, limit=limit)
        return "the same with and without: " + ", ".join(names)
    return check


def gone(m):
    code, out, err = m.run([m.program("first"), "gone"])
    m.figures["use of a destroyed context"] = [code, out]
    m.same("hook_contexts")
    return "the driver: %s; our polls do not do it" % (out.strip() if code == 0 else "exit %d" % code)


def copies(m):
    with m.hold("idle") as program:
        program.wait()
        is_now = program.stat()
    rows = ["%s %d (%s)" % (c["path"], c["version"], c["answer"]) for c in is_now["cupti"]["copies"]]
    m.figures["copies of CUPTI"] = rows
    expect(is_now["source"] == "cupti", "source %s: %s" % (is_now["source"], "; ".join(rows)))
    return "; ".join(rows)


def rows_enabled(m):
    with m.hold("idle") as program:
        program.wait()
        is_now = program.stat()
    expect(is_now["cupti"]["unknown_entry_points"] == 0, "unknown: %r" % is_now["cupti"]["unknown_names"])
    return "driver %d, CUPTI %d: every name is known" % (is_now["driver_version"], is_now["cupti_version"])


def nsys(m):
    tool = shutil.which("nsys")
    if not tool:
        raise Absent("nsys is not here")
    argv = [m.program("linear")]
    plain = m.run(argv)
    outside = m.run([tool, "profile", "-o", os.path.join(m.work, "a"), m.command, "run", "--"] + argv, limit=60)
    inside = m.run([m.command, "run", "--", tool, "profile", "-o", os.path.join(m.work, "b")] + argv, limit=60)
    expect(outside[0] == inside[0] == plain[0], "exit %d, %d without: %d" % (outside[0], inside[0], plain[0]))
    return "the program ends well inside and outside of nsys"


def monitor(m):
    python = python_of(m, "torch", "tuple(int(x) for x in torch.__version__.split('.')[:2]) >= (2, 14)")
    return torch_profiler(m) + " (%s)" % python


def kinds(m):
    rows = {}
    for mode in ("inject", "hooks"):
        full, prefix = m.environment(mode)
        hold_read, hold_write = os.pipe()
        go_read, go_write = os.pipe()
        full.update(GPUPROF_TEST_HOLD=str(hold_write), GPUPROF_TEST_GO=str(go_read))
        process = subprocess.Popen(prefix + [m.program("linear")], env=full, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   pass_fds=(hold_write, go_read))
        os.close(hold_write)
        os.close(go_read)
        pid = os.read(hold_read, 64)
        try:
            expect(pid, "linear did not come to its end")
            is_now = m.stat(int(pid))
        finally:
            os.close(go_write)
            os.close(hold_read)
            process.wait()
        rows[mode] = {k: v.get("current_bytes") for k, v in is_now["devices"][0]["kinds"].items()
                      if k not in ("module", "context", "untracked") and v}
        expect(is_now["source"] == ("cupti" if mode == "inject" else "hooks"), "source %s" % is_now["source"])
    expect(rows["inject"] == rows["hooks"], "CUPTI %r, hooks %r" % (rows["inject"], rows["hooks"]))
    return "both sources count the same"


def untracked(m):
    with m.hold("heap") as program:
        program.wait()
        before = program.stat()
        lines = program.next()
        after = program.stat()
    rows = [s["devices"][0]["kinds"].get("untracked") for s in (before, after)]
    m.figures["untracked"] = rows
    expect(reserved(before) == reserved(after), "the heap of kernels was counted as the program's")
    return "%s; untracked %r, then %r" % (lines[0], *[(r or {}).get("current_bytes") for r in rows])


def nccl(m):
    text = ("import ctypes, os\nn = ctypes.CDLL(os.environ['FIRST_NCCL'])\nc = ctypes.CDLL('libcuda.so.1')\np = ctypes.c_void_p()\n"
            "x = ctypes.c_void_p()\nassert c.cuInit(0) == 0 and c.cuDevicePrimaryCtxRetain(ctypes.byref(x), 0) == 0\n"
            "c.cuCtxSetCurrent(x)\nr = n.ncclMemAlloc(ctypes.byref(p), ctypes.c_size_t(64 << 20))\n"
            "print(r, flush=True)\nprint('hold', flush=True)\ninput()\n")
    path = os.path.join(m.simulator, "standin", "libnccl.so.2") if m.sim else os.environ.get("FIRST_NCCL", "libnccl.so.2")
    with Held(m, [sys.executable, "-c", text], "inject", {"FIRST_NCCL": path}) as program:
        try:
            lines = program.wait()
        except Wrong as error:
            raise Absent("no NCCL here (FIRST_NCCL names one): %s" % str(error)[-80:])
        is_now = program.stat()
    if lines[-1] != "0":
        raise Absent("ncclMemAlloc answers %s" % lines[-1])
    expect(reserved(is_now) >= 64 * MIB, "%d bytes" % reserved(is_now))
    return "64 MiB of ncclMemAlloc counted"


def sticky(m):
    with m.hold("sticky") as program:
        lines = program.wait()
        is_now = program.stat()
        code = program.end()[0]
    expect(code == 0 and is_now["state"] == "live", "exit %d" % code)
    return "; ".join(lines) + "; failures counted: %d" % len(is_now["failures"])


def attach_in_capture(m):
    with m.hold("attached", mode="") as program:
        program.wait()
        code, out, err = m.run([m.command, "attach", str(program.pid)])
        if code != 0:
            raise Absent((out + err).strip()[-150:])
        lines = program.next()
        is_now = program.stat()
    expect(lines[0] == "capture: 0", lines[0])
    expect(reserved(is_now) >= 64 * MIB, "%d bytes" % reserved(is_now))
    return "a capture outlives the attach; %d MiB seen" % (reserved(is_now) // MIB)


def environ(m):
    text = ("import ctypes, os\nl = ctypes.CDLL(None)\nl.getenv.restype = ctypes.c_char_p\nb = set(os.listdir('/proc/self/task'))\n"
            "r = ctypes.CDLL('libcuda.so.1').cuInit(0)\nprint(r, l.getenv(b'CUPTI_PROFILE_MODE'),"
            " len(set(os.listdir('/proc/self/task')) - b))\n")
    rows = {mode or "without": m.run([sys.executable, "-c", text], mode)[1].strip() for mode in ("", "inject", "hooks")}
    m.figures["environment and threads"] = rows
    return "cuInit, CUPTI_PROFILE_MODE, new threads: " + ", ".join("%s: %s" % row for row in rows.items())


def special(m):
    tool = shutil.which("nvidia-smi")
    text = m.run([tool, "-L"])[1].strip().replace("\n", "; ")[:200] if tool else "nvidia-smi is not here"
    return text + "; " + copies(m)


def drivers(m):
    found = []
    for folder in ("/usr/local/cuda/compat", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib"):
        path = os.path.join(folder, "libcuda.so.1")
        if os.path.exists(path) and os.path.realpath(path) not in found:
            found.append(os.path.realpath(path))
    with m.hold("idle") as program:
        program.wait()
        with open("/proc/%d/maps" % program.target()) as maps:
            used = sorted({line.split()[-1] for line in maps if "libcuda.so" in line})
        is_now = program.stat()
    expect(len(used) == 1 and is_now["driver_version"], "%r" % used)
    return "%d on this machine, one in the process: %s" % (len(found), used[0])


def namespace(m):
    return "; ".join(m.part("dlmopen", mode="inject")) + ": no harm, and not counted"


def nvml(m):
    with m.hold("idle") as program:
        program.wait()
        with open("/proc/%d/maps" % program.target()) as maps:
            text = maps.read()
    expect("libnvidia-ml" not in text, "NVML is in the process")
    return "not in the process"


def locked(m):
    rows = {}
    for mode in ("", "inject"):
        with m.hold("idle", mode=mode) as program:
            program.wait()
            with open("/proc/%d/status" % program.target()) as status:
                lines = dict(line.split(":", 1) for line in status)
        rows[mode or "without"] = [lines[k].strip() for k in ("VmLck", "VmPin", "HugetlbPages")]
    expect(rows["without"] == rows["inject"], repr(rows))
    return "locked, pinned, huge: " + ", ".join(rows["inject"])


ITEMS = [
    (1, "cuInit in a library's constructor", constructor), (2, "torch.profiler beside gpuprof", torch_profiler),
    (3, "a tool beside each form of our CUPTI subscription", forms), (4, "cuptiFinalize of the program", finalize),
    (5, "the end of a green context", green), (6, "pools after a reset of the primary context", reset),
    (7, "our calls during a capture", captures), (8, "waits for the poll thread", waits), (9, "cuda-checkpoint", checkpoint),
    (10, "an exit while the poll thread asks", exits), (11, "NVIDIA's services", servers),
    (12, "cost of launches and of graphs", launches), (13, "cost after a detach", detached),
    (14, "a graph from before an attach", late), (15, "cost of loading modules", modules),
    (16, "captures of many nodes", nodes), (17, "streams before their context", same(*PROGRAMS[17])),
    (18, "a destroyed context", gone), (19, "copies of CUPTI", copies), (20, "a CUPTI that is newer than the driver", copies),
    (21, "Nsight Systems", nsys), (22, "PyTorch's own monitor", monitor), (23, "driver hooks count what CUPTI counts", kinds),
    (24, "look-ups of the driver's functions", same(*PROGRAMS[24], mode="hooks")),
    (25, "memory that no call of the program allocates", untracked), (26, "memory of NCCL", nccl),
    (27, "an error that stays", sticky), (28, "the poll thread after an error that stays", sticky),
    (29, "an attach during a capture", attach_in_capture), (30, "forks of cuInit", same(*PROGRAMS[30])),
    (31, "environment and threads after cuInit", environ), (32, "MIG, WSL and other configurations", special),
    (33, "names of the entry points", rows_enabled), (34, "two drivers", drivers), (35, "a driver in a namespace of its own", namespace),
    (36, "static TLS", same(*PROGRAMS[36])), (37, "NVML", nvml), (38, "locked memory and huge pages", locked),
    # The frees of eight threads wait for each other's work, and for that of other programs on the GPU.
    (39, "locks: threads that allocate at once", same(*PROGRAMS[39], limit=100)),
]
MORE = [("jax", "XLA's tracer beside gpuprof", jax_profiler)]


def published(m):
    """Figures that people published, on the simulated GPU and on this one, side by side."""
    table = os.path.join(TOP, "tests", "real", "published", "figures.table")
    measure = os.path.join(os.path.dirname(table), "measure.py")
    if not os.path.exists(table):
        raise Absent("tests/real/published is not here")
    python = python_of(m, "torch", "torch.cuda.is_available()")
    rows, seconds = {}, max(20, min(60, m.deadline - time.monotonic() - 10))
    for where in ("simulated",) if m.sim else ("simulated", "real"):
        gpu = "h100-80g-pcie"
        argv = [python, measure, table, gpu, "counted"]
        prefix = [m.command, "run", "--sim=gpu=%s,contents=none" % gpu, "--"] if where == "simulated" else []
        out = m.run(prefix + argv, limit=seconds)[1]
        for line in out.splitlines():
            words = line.split()
            if words and words[0] in ("ok", "FAILED") and "published" in words:
                rows.setdefault(" ".join(words[1:4]), {"published": words[words.index("published") + 1]})[where] = words[-1]
    print("\n%-42s%18s%18s%18s" % ("MiB", "published", "simulated", "here"))
    for name, row in rows.items():
        print("%-42s%18s%18s%18s" % (name, row["published"], row.get("simulated", "-"), row.get("real", "-")))
    print()
    m.figures["published"] = rows
    wrong = [name for name, row in rows.items() if any(row.get(w, row["published"]) != row["published"] for w in ("simulated", "real"))]
    expect(rows and not wrong, "%d of %d differ" % (len(wrong), len(rows)))
    return "%d figures agree" % len(rows)


MORE.append(("figures", "published figures", published))


def print_list():
    for which, topic, _ in ITEMS + MORE:
        print("- `%s` %s" % (which, topic))


def verdict_of(m, check):
    if m.deadline - time.monotonic() < 3:
        return "absent", "no time left"
    try:
        text = check(m)
        return ("seen" if check in (launches, detached, late, modules, nodes, environ, special, checkpoint, gone) else "ok"), text
    except Absent as reason:
        return "absent", str(reason)
    except Wrong as reason:
        return "FAILED", str(reason)
    except Exception as error:  # one item must not end the others
        return "FAILED", "%s: %s" % (type(error).__name__, error)


def main():
    parser = argparse.ArgumentParser()
    for name in ("--dry-run", "--short", "--list", "--programs"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--json")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if options.list:
        print_list()
        return 0
    if options.programs:
        print("\n".join(OTHER_PROGRAMS + [name for names in PROGRAMS.values() for name in names]))
        return 0
    m = Machine(options)
    start, counts, verdicts = time.monotonic(), {}, {}
    only = options.only.split(",") if options.only else []
    try:
        if m.run([m.program("first"), "noctx"])[0] in (77, 127):
            print("there is no GPU here: --dry-run takes the simulated one")
            return 77
        for which, topic, check in ITEMS + MORE:
            if only and str(which) not in only:
                continue
            began = time.monotonic()
            verdict, text = verdict_of(m, check)
            counts[verdict] = counts.get(verdict, 0) + 1
            verdicts[str(which)] = {"topic": topic, "verdict": verdict, "seen": text, "seconds": round(time.monotonic() - began, 1)}
            print("%-7s %-7s %s: %s" % (which, verdict, topic, " ".join(text.split())), flush=True)
    finally:
        shutil.rmtree(m.work, ignore_errors=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"schema": "gpuprof.first/1", "machine": "simulated" if m.sim else "real", "figures": m.figures,
                       "seconds": round(time.monotonic() - start, 1), "verdicts": verdicts}, file, indent=1, sort_keys=True)
            file.write("\n")
    print("%d s: %d ok, %d seen" % (time.monotonic() - start, counts.get("ok", 0), counts.get("seen", 0)))
    print("%d passed, %d failed, %d skipped" % (counts.get("ok", 0) + counts.get("seen", 0), counts.get("FAILED", 0),
                                                counts.get("absent", 0)))
    return 1 if counts.get("FAILED") else 0


if __name__ == "__main__":
    sys.exit(main())
