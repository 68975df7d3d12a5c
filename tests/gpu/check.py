#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check.py: the checks of run.sh, on a real GPU or (--dry-run) on the simulated one.

Only run.sh calls it, after it has compiled the programs into WORK/real and WORK/sim.  Each check prints one line; the
last line is "N passed, N failed, N skipped".  All measured figures go into one JSON.  It must never print a figure that
was not measured in this run, and never count a check that did not run as passed.
"""
import argparse
import concurrent.futures
import itertools
import json
import os
import re
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TIMEOUT_S = 60  # programs need a few seconds; the first CUDA call on a machine with many GPUs needs about ten

# The programs are those of tests/lib/catalog.c, which run without arguments and leave memory, and these. The rest has
# checks of its own: they never end, call gpuprof, or need what only a test sets up.
ALSO = {"fork_child", "poll_capture", "poll_reset", "poll_waits", "sandbox", "site_fork", "site_guardless", "stack_switch",
        "stacks"}
# They need flags of their own (first.py runs the one of the build), or a library of the tests.
NOT = {"static_tls", "variables_linked"}
# Programs with more than one process that is held at the end.
PROCESSES = {"ipc": 2, "fork_child": 2}
# Programs whose threads allocate at the same time, so their peaks differ from run to run; and so does how much they do.
CONCURRENT = {"poll_waits", "reuse", "short_threads", "stack_switch"}
TIMED = {"fork", "shim_exit", "shim_fork", "shim_threads", "site_fork"}
# What depends on the size of the device, also where the simulated GPU has that of the real one.
SIZED = {"shim_meminfo", "shim_oom_retry"}
# Kinds that may differ between the two machines: only the simulated GPU has memory of another API.
MACHINE_DEPENDENT = {"external", "oom", "devices", "devices_rt", "pool_devices", "harmless", "mixed"}

PYTHON_TORCH = """
import os, sys, torch
x = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
y = torch.empty(512, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print(torch.cuda.memory_reserved())
sys.stdout.flush()
os.write(int(os.environ["GPUPROF_TEST_HOLD"]), b"%d\\n" % os.getpid())
os.read(int(os.environ["GPUPROF_TEST_GO"]), 1)
"""
PYTHON_CUPY = """
import os, sys, cupy
x = cupy.zeros(64 << 20, dtype=cupy.uint8)
cupy.cuda.Device().synchronize()
print(cupy.get_default_memory_pool().total_bytes())
sys.stdout.flush()
os.write(int(os.environ["GPUPROF_TEST_HOLD"]), b"%d\\n" % os.getpid())
os.read(int(os.environ["GPUPROF_TEST_GO"]), 1)
"""
PYTHON_JAX = """
import os, sys
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import jax, jax.numpy as jnp
x = jnp.zeros((64 << 20,), dtype=jnp.uint8).block_until_ready()
print(jax.devices()[0].memory_stats()["bytes_in_use"])
sys.stdout.flush()
os.write(int(os.environ["GPUPROF_TEST_HOLD"]), b"%d\\n" % os.getpid())
os.read(int(os.environ["GPUPROF_TEST_GO"]), 1)
"""
PYTHON_KINETO = """
import torch
from torch.profiler import profile, ProfilerActivity
torch.manual_seed(0)
w = torch.randn(256, 256, device="cuda", requires_grad=True)
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
    for _ in range(5):
        loss = (w @ w).square().mean()
        loss.backward()
    torch.cuda.synchronize()
on_gpu = sum(1 for e in prof.events() if "CUDA" in str(e.device_type))
print(on_gpu, loss.item().hex())
"""


class Absent(Exception):
    """Not possible here."""


class Report:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.figures = {}

    def check(self, name, problem):
        """problem: the error, or "" if the check passed."""
        if problem:
            self.failed += 1
            print(f"FAIL {name}: {problem}")
        else:
            self.passed += 1
            print(f"ok   {name}")

    def skip(self, name, why):
        self.skipped += 1
        print(f"skip {name}: {why}")

    def figure(self, name, value):
        self.figures[name] = value


class Machine:
    """The environment of programs: that of the real driver or of the simulator."""

    def __init__(self, build, folder, is_sim):
        self.folder = folder
        self.is_sim = is_sim
        self.library = os.path.join(build, "lib", "libgpuprof.so")
        self.command = os.path.join(build, "bin", "gpuprof")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUPROF_", "CUDA_INJECTION"))}
        self.env.pop("LD_PRELOAD", None)
        if is_sim:
            self.env["LD_LIBRARY_PATH"] = os.path.join(build, "lib", "gpuprof", "sim")

    def program(self, name):
        path = os.path.join(self.folder, name)
        return path if os.path.exists(path) else None

    def stat(self, pid):
        done = subprocess.run([self.command, "stat", "--json", "-p", str(pid)], capture_output=True, text=True,
                              timeout=TIMEOUT_S, env=self.env)
        if done.returncode != 0:
            return None
        return json.loads(done.stdout)["processes"][0]


class Run:
    """A program that is held at its documented end (or at each of its holds)."""

    def __init__(self, machine, argv, library=None, env=None):
        self.machine = machine
        hold_read, hold_write = os.pipe()
        go_read, go_write = os.pipe()
        full = dict(machine.env)
        full.update(GPUPROF_TEST_HOLD=str(hold_write), GPUPROF_TEST_GO=str(go_read))
        if library:
            full["CUDA_INJECTION64_PATH"] = library
        full.update(env or {})
        self.out = tempfile.TemporaryFile("w+")
        self.err = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err, env=full,
                                        pass_fds=(hold_write, go_read), start_new_session=True)
        os.close(hold_write)
        os.close(go_read)
        self.hold = hold_read
        self.held_text = b""
        self.go = go_write
        self.deadline = time.monotonic() + TIMEOUT_S

    def wait_held(self, count=1):
        """Pids of the processes that are held now; fewer if some have ended instead."""
        pids = []
        while len(pids) < count:
            line, newline, rest = self.held_text.partition(b"\n")
            if newline:
                pids.append(int(line))
                self.held_text = rest
                continue
            ready, _, _ = select.select([self.hold], [], [], max(0.0, self.deadline - time.monotonic()))
            more = os.read(self.hold, 64) if ready else b""
            if not more:
                break
            self.held_text += more
        return pids

    def step(self):
        os.write(self.go, b"g")

    def read_out(self):
        self.out.seek(0)
        return self.out.read()

    def finish(self):
        """(exit code, stdout, stderr)"""
        os.close(self.go)
        try:
            code = self.process.wait(max(0.1, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)  # a session that contains only the program and its children
            code = self.process.wait()
        os.close(self.hold)
        self.err.seek(0)
        return code, self.read_out(), self.err.read()


def held_stat(machine, name, argv, env=None):
    """stat of every held process, in the order of their holds, with the program's result."""
    run = Run(machine, argv, library=machine.library, env=env)
    pids = run.wait_held(PROCESSES.get(name, 1))
    stats = [machine.stat(pid) for pid in pids]
    # The process that was started comes last in every program with two.
    return stats, run.finish()


def program_argv(machine, name):
    extra = ["--seed", "3", "--steps", "300"] if name == "mixed" else []
    return [machine.program(name)] + extra


def check_each(report, title, names, problem_of):
    """problem_of(name) for all of them at once; one with a problem has to have it alone too.  It may raise Absent."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        futures = [pool.submit(problem_of, name) for name in names]
    for name, future in zip(names, futures):
        try:
            report.check(f"{title}: {name}", future.result() and problem_of(name))
        except Absent as reason:
            report.skip(f"{title}: {name}", str(reason))


def text_problem(what, a, a_name, b, b_name, without=()):
    """The lines that differ, each with its number; not those that begin with one of `without`."""
    a, b = ([line for line in text.splitlines() if not line.startswith(without)] for text in (a, b))
    rows = [f"{i + 1}: {a_name} {x!r}, {b_name} {y!r}" for i, (x, y) in enumerate(itertools.zip_longest(a, b)) if x != y]
    return f"{len(rows)} lines of {what} differ: {'; '.join(rows)[:1500]}; " if rows else ""


def check_injection(report, machine, names):
    def problem_of(name):
        own = () if machine.is_sim else ("driver:",)  # harmless.c
        argv = program_argv(machine, name)
        plain = Run(machine, argv).finish()
        profiled = Run(machine, argv, library=machine.library).finish()
        problem = f"does not run: {plain[2]!r:.200}; " if plain[0] in (126, 127) else ""
        for what, index in (("exit code", 0), ("stdout", 1), ("stderr", 2)):
            if index == 0 and plain[0] != profiled[0]:
                problem += f"{what}: without {plain[0]}, with {profiled[0]}; "
            elif index > 0:
                problem += text_problem(what, plain[index], "without", profiled[index], "with", own)
        return problem

    check_each(report, "same with and without", names, problem_of)


def check_odd_libraries(report, machine, work):
    argv = [machine.program("linear")]
    plain = Run(machine, argv).finish()
    if plain[0] != 0:
        report.check("a program that works is there to test with", f"linear: {plain!r:.300}")
        return
    for name, path in (("missing library", "/nowhere/libgpuprof.so"),
                       ("InitializeInjection returns 0", os.path.join(work, "inject_zero.so"))):
        code, out, err = Run(machine, argv, library=path).finish()
        report.figure(name, {"exit": code, "stdout_same": out == plain[1], "stderr": err[:300]})
        report.check(f"the program goes on: {name}", "" if code == plain[0] and out == plain[1] else f"{code} {out!r}")


def kinds_of(stat):
    """{(device, kind): (current, peak, calls)} without zeros and without measured kinds."""
    rows = {}
    places = [(d["device"], d["kinds"]) for d in stat["devices"]] + [("host", (stat.get("host") or {}).get("kinds", {}))]
    for device, kinds in places:
        for kind, v in kinds.items():
            v = v or {}  # null: not measured
            row = (v.get("current_bytes"), v.get("peak_bytes"), v.get("calls"))
            if kind not in ("context", "module", "untracked") and any(row):
                rows[device, kind] = row
    return rows


def kinds_problem(seen, wanted, columns=(0, 1, 2)):
    problem = ""
    for key in sorted(set(seen) | set(wanted), key=str):
        a, b = seen.get(key, (0, 0, 0)), wanted.get(key, (0, 0, 0))
        if any(a[i] != b[i] for i in columns):
            problem += f"device {key[0]} {key[1]}: {a}, expected {b}; "
    return problem


def check_ledger(report, sim, names, work):
    """On the simulated GPU: gpuprof's kinds equal the ledger's."""
    for name in names:
        form = os.path.join(work, "ledger-%p.json")
        run = Run(sim, program_argv(sim, name), library=sim.library, env={"GPUPROF_TEST_LEDGER": form})
        pids = run.wait_held(PROCESSES.get(name, 1))
        problem = "" if pids else "never came to its end"
        for pid in pids:
            path = form.replace("%p", str(pid))
            if not os.path.exists(path):
                continue  # a child that uses no CUDA
            with open(path) as file:
                ledger = json.load(file)
            stat = sim.stat(pid)
            if stat is None:
                problem += "no stat; "
                continue
            problem += kinds_problem(kinds_of(stat), kinds_of(ledger), (0, 2) if name in CONCURRENT | TIMED else (0, 1, 2))
        run.finish()
        report.check(f"kinds equal the ledger: {name}", problem)


def check_same_as_sim(report, real, sim, names):
    """On a real GPU: kinds and output equal those of the same source on the simulated GPU."""
    def problem_of(name):
        env = {"CUDA_VISIBLE_DEVICES": "0"}
        seen, seen_end = held_stat(real, name, program_argv(real, name), env)
        if seen_end[0] == 77:
            raise Absent(seen_end[1].strip())
        size = seen[0]["devices"][0]["total_bytes"] if seen and seen[0] and seen[0]["devices"] else None
        if size:
            env["GPUPROF_SIM"] = f"memory={size}"
        wanted, wanted_end = held_stat(sim, name, program_argv(sim, name), env)
        if len(seen) != len(wanted) or None in seen or None in wanted:
            return f"held {len(seen)} and {len(wanted)}, {seen_end!r:.200}"
        problem = ""
        for a, b in zip(seen, wanted):
            if name not in MACHINE_DEPENDENT:
                columns = (0,) if name in TIMED | SIZED else (0, 2) if name in CONCURRENT else (0, 1, 2)
                problem += kinds_problem(kinds_of(a), kinds_of(b), columns)
        if name not in MACHINE_DEPENDENT:
            if seen_end[0] != wanted_end[0]:
                problem += f"exit code: real {seen_end[0]}, simulated {wanted_end[0]}; "
            problem += text_problem("stdout", seen_end[1], "real", wanted_end[1], "simulated")
        return problem

    for name in names:
        if not sim.program(name):
            report.skip(f"real equals simulated: {name}", "not built for the simulated GPU")
    check_each(report, "real equals simulated", [name for name in names if sim.program(name)], problem_of)


def nvml_used(pid):
    """Bytes that NVML attributes to the process, or None."""
    if not shutil.which("nvidia-smi"):
        return None
    done = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, timeout=TIMEOUT_S)
    for line in done.stdout.splitlines():
        fields = [f.strip() for f in line.split(",")]
        if len(fields) == 2 and fields[0] == str(pid) and fields[1].isdigit():
            return int(fields[1]) << 20
    return None


def check_reconcile(report, machine):
    run = Run(machine, [machine.program("reconcile")], library=machine.library)
    truth = []
    reserved = []
    for turn in range(2):
        pids = run.wait_held()
        stat = machine.stat(pids[0]) if pids else None
        if stat is None:
            run.finish()
            report.check("reserved against the driver", "not held or no stat")
            return
        if turn == 1:
            time.sleep(0.5)  # pools are polled: their reserved size may be one poll late
            stat = machine.stat(pids[0])
        truth.append((int(run.read_out().split()[-1]), None if machine.is_sim else nvml_used(pids[0])))
        reserved.append(stat["devices"][0]["stats"]["reserved_bytes.all.current"])
        if turn == 0:
            run.step()
    run.finish()
    ours = reserved[1] - reserved[0]
    for index, name in ((0, "cuMemGetInfo"), (1, "NVML")):
        if None in (truth[0][index], truth[1][index]):
            report.skip(f"reserved against {name}", "not available here")
            continue
        theirs = truth[1][index] - truth[0][index]
        off = abs(ours - theirs) / theirs if theirs else 1.0
        report.figure(f"reconcile {name}", {"gpuprof_bytes": ours, "truth_bytes": theirs, "off": off})
        report.check(f"reserved against {name} within 1 %", "" if off <= 0.01 else f"{ours} against {theirs}")


def cost_once(machine, library, scale):
    _, out, _ = Run(machine, [machine.program("cost_rt"), str(scale)], library=library).finish()
    return {name: float(ns) for name, ns in (line.split() for line in out.splitlines() if len(line.split()) == 2)
            if ns != "none"}


def check_cost(report, machine, rounds, scale):
    if not machine.program("cost_rt"):
        report.check("cost", "cost_rt was not built")
        return
    without, with_ = [], []
    for _ in range(rounds):  # alternating, so that clocks and other programs affect both
        without.append(cost_once(machine, None, scale))
        with_.append(cost_once(machine, machine.library, scale))
    for name in ("malloc_free", "malloc_async_free_async", "launch"):
        off = [r[name] for r in without if name in r]
        on = [r[name] for r in with_ if name in r]
        if len(off) != rounds or len(on) != rounds:
            report.skip(f"cost of {name}", "not possible here")
            continue
        a, b = statistics.median(off), statistics.median(on)
        noise = (max(off) - min(off)) / a
        report.figure(f"cost {name}", {"without_ns": a, "with_ns": b, "added_ns": b - a, "noise": noise,
                                       "without_all_ns": off, "with_all_ns": on})
        if name == "launch" and not machine.is_sim:
            # Nothing is enabled on the launch path: a difference above 0.5 % and above this run's noise is gpuprof's cost.
            report.check("launches are not slower than 0.5 %",
                         "" if b / a - 1 <= max(0.005, noise) else f"{a:.0f} ns without, {b:.0f} ns with")
        else:
            report.check(f"cost of {name} measured", "")


def can_import(module, env):
    return subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, env=env).returncode == 0


def check_python(report, machine):
    for module, text in (("torch", PYTHON_TORCH), ("cupy", PYTHON_CUPY), ("jax", PYTHON_JAX)):
        if machine.is_sim or not can_import(module, machine.env):
            report.skip(f"injection into {module}", "on a real GPU only" if machine.is_sim else "not installed")
            continue
        run = Run(machine, [sys.executable, "-c", text], library=machine.library)
        run.deadline += 120  # a cold machine needs this to import a framework
        pids = run.wait_held()
        stat = machine.stat(pids[0]) if pids else None
        code, out, err = run.finish()
        if stat is None or code != 0:
            report.check(f"injection into {module}", f"exit {code}, {err[-300:]!r}")
            continue
        theirs = int(out.split()[-1])
        ours = stat["devices"][0]["stats"]["reserved_bytes.all.current"]
        report.figure(f"{module} reserved", {"framework_bytes": theirs, "gpuprof_bytes": ours, "source": stat["source"]})
        # Libraries of the framework (cuBLAS, NCCL) may hold more memory; less is an error.
        report.check(f"injection into {module}", "" if ours >= theirs > 0 else f"{ours} against {theirs}")


def check_kineto(report, machine):
    if machine.is_sim or not can_import("torch", machine.env):
        report.skip("torch.profiler beside gpuprof", "on a real GPU with torch only")
        return
    results = {}
    for name, library in (("without", None), ("with", machine.library)):
        run = Run(machine, [sys.executable, "-c", PYTHON_KINETO], library=library)
        run.deadline += 120
        results[name] = run.finish()
    if results["without"][0] != 0 or results["with"][0] != 0:
        report.check("torch.profiler beside gpuprof", f"{results!r:.400}")
        return
    events = {k: int(v[1].split()[-2]) for k, v in results.items()}
    losses = {k: v[1].split()[-1] for k, v in results.items()}
    report.figure("torch.profiler", {"gpu_events": events, "loss": losses, "stderr_with": results["with"][2][-300:]})
    report.check("torch trains the same beside gpuprof", "" if losses["with"] == losses["without"] else f"{losses}")
    report.check("torch.profiler still sees the GPU", "" if events["with"] >= events["without"] > 0 else
                 f"{events['with']} GPU events with gpuprof, {events['without']} without")


def programs():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib", "catalog.c")
    with open(path) as file:
        return sorted((set(re.findall(r'{\.name = "(\w+)"', file.read())) | ALSO) - NOT)


def main():
    parser = argparse.ArgumentParser()
    for name in ("--build", "--work", "--json"):
        parser.add_argument(name)
    parser.add_argument("--programs", action="store_true", help="print which programs of tests/programs it runs")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--only", help="same, simulated, reconcile, cost, python")
    options = parser.parse_args()
    names = programs()
    if options.programs:
        print("\n".join(names))
        return 0
    if not (options.build and options.work and options.json):
        parser.error("--build, --work and --json are needed")
    build = os.path.abspath(options.build)
    report = Report()
    start = time.time()

    sim = Machine(build, os.path.join(options.work, "sim"), True)
    machine = sim if options.dry_run else Machine(build, os.path.join(options.work, "real"), False)
    built = [n for n in names if machine.program(n)]
    report.check("every program compiles", " ".join(n for n in names if n not in built))

    counted = [n for n in built if n != "fork_child"]
    parts = {
        "same": lambda: (check_injection(report, machine, built), check_odd_libraries(report, machine, options.work)),
        "simulated": lambda: check_ledger(report, sim, counted, options.work) if options.dry_run else check_same_as_sim(report, machine, sim, counted),
        "reconcile": lambda: check_reconcile(report, machine),
        "cost": lambda: check_cost(report, machine, rounds=3 if options.dry_run else 5, scale=1),
        "python": lambda: (check_python(report, machine), check_kineto(report, machine)),
    }
    for name, part in parts.items():
        if not options.only or name in options.only.split(","):
            part()

    summary = {"schema": "gpuprof.check-gpu/1", "machine": "simulated" if options.dry_run else "real",
               "seconds": round(time.time() - start, 1), "passed": report.passed, "failed": report.failed,
               "skipped": report.skipped, "figures": report.figures}
    with open(options.json, "w") as file:
        json.dump(summary, file, indent=1, sort_keys=True)
        file.write("\n")
    print(f"{report.passed} passed, {report.failed} failed, {report.skipped} skipped")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
