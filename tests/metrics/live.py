# SPDX-License-Identifier: MIT
"""Tests a real agent under a real Prometheus, with profiled programs on the simulated GPU in private containers. The values
that Prometheus stores must agree with the simulator's ledgers. Skips without root, BPF or a cgroup v2 hierarchy."""
import ctypes
import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import harness
from harness import Prometheus, check, get, promtool, until

READY_S = 60  # the verifier takes a quarter of a second, and several times that on a busy machine
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17


class Skip(Exception):
    pass


def cgroup2():
    for line in open("/proc/self/mounts"):
        word = line.split()
        if word[2] == "cgroup2":
            return word[1]
    raise Skip("no cgroup v2 hierarchy is mounted")


class Agent:
    """The command with private pins and a private library, so that it sees only this test's programs and probes."""

    def __init__(self, build, folder, library, port):
        self.pins = f"/sys/fs/bpf/gpuprof-test-{os.getpid()}"
        self.log = f"{folder}/agent"
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(f"{folder}/notify")
        notify.settimeout(0.1)
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [f"{build}/bin/gpuprof", "agent", "--pins", self.pins, "--library", library, "--no-discover",
                 "--listen", f"127.0.0.1:{port}", "--metrics-per-process=pid"],
                stdout=log, stderr=log, env={**os.environ, "NOTIFY_SOCKET": f"{folder}/notify"})
        end, heard = time.monotonic() + READY_S, b""
        while b"READY=1" not in heard and self.process.poll() is None and time.monotonic() < end:
            try:
                heard = notify.recv(4096)
            except TimeoutError:
                pass
        notify.close()
        os.unlink(f"{folder}/notify")
        if self.process.poll() == 77:
            raise Skip(self.said().strip())
        if b"READY=1" not in heard:
            self.end()
            raise RuntimeError(f"the agent did not get ready: {self.said()}")
        self.port = int(re.search(r"http://127\.0\.0\.1:(\d+)/metrics", self.said()).group(1))

    def said(self):
        return open(self.log).read()

    def ask(self, path):
        return get(f"http://127.0.0.1:{self.port}/{path}")

    def end(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait(20)


class Program:
    """A program of tests/programs in a cgroup, stopped at its end."""

    def __init__(self, build, folder, library, group, words):
        held, hold = os.pipe()
        go, self.go = os.pipe()
        env = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "GPUPROF_", "LD_"))}
        env.update(LD_LIBRARY_PATH=f"{build}/lib/gpuprof/sim", CUDA_INJECTION64_PATH=library,
                   GPUPROF_SIM="devices=2,memory=8GiB,latency=zero", GPUPROF_TEST_LEDGER=f"{folder}/ledger-%p",
                   GPUPROF_TEST_HOLD=str(hold), GPUPROF_TEST_GO=str(go))
        self.process = subprocess.Popen([f"{build}/tests/programs/{words[0]}", *words[1:]], env=env,
                                        stdout=subprocess.DEVNULL, pass_fds=(hold, go),
                                        preexec_fn=lambda: open(f"{group}/cgroup.procs", "w").write("0"))
        self.pid = self.process.pid
        self.group = os.path.basename(group)
        os.close(hold)
        os.close(go)
        is_held = os.read(held, 16) != b""
        os.close(held)
        check(f"{words[0]} reached its end", is_held, self.process.poll())
        self.ledger = json.load(open(f"{folder}/ledger-{self.pid}")) if is_held else {"devices": []}

    def sum(self, what, device=None):
        return sum(d[f"{what}_bytes"]["current"] for d in self.ledger["devices"] if device in (None, d["device"]))

    def calls(self):
        # Physical memory counts as an allocation once it is mapped, and no program here maps any.
        return sum(kind["calls"] for d in self.ledger["devices"] for name, kind in d["kinds"].items() if name != "vmm")

    def end(self, how=None):
        if how:
            self.process.send_signal(how)
        if self.go is not None:
            os.close(self.go)
            self.go = None
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(20)


def samples(page):
    """{(family, labels as text): value}"""
    return {m.group(1): float(m.group(2)) for m in re.finditer(r"^([^#\s][^\n]*) (\S+)$", page, re.M)}


def page_sum(page, family, **labels):
    """Sum of a family over the samples that have these labels; None if there is no sample."""
    found = [v for k, v in samples(page).items() if re.match(rf"{family}(\{{|$)", k) and
             all(f'{name}="{value}"' in k for name, value in labels.items())]
    return sum(found) if found else None


def sums(agent, prometheus, programs, groups):
    """Compares everything that Prometheus has stored with the ledgers."""
    rows = sum(1 for p in programs for d in p.ledger["devices"] if sum(k["calls"] for k in d["kinds"].values()))
    # The library asks the driver later which GPU a number means, and the stored page is up to a second old.
    until("each process on each of its GPUs", lambda: prometheus.value("sum(gpuprof_device_processes)") == rows)
    check("two GPUs", prometheus.value("count(gpuprof_device_processes)") == 2)
    for what in ("allocated", "reserved"):
        wanted = sum(p.sum(what) for p in programs)
        until(f"{what} of all GPUs is the ledgers' sum",
              lambda: prometheus.value(f"sum(gpuprof_device_memory_{what}_bytes)") == wanted)
        # The ledger does not identify the GPUs, but their amounts differ.
        stored = sorted(float(r["value"][1]) for r in prometheus.query(f"gpuprof_device_memory_{what}_bytes"))
        check(f"{what} of each GPU", stored == sorted(sum(p.sum(what, d) for p in programs) for d in (0, 1)), stored)
        for group in groups:
            wanted = sum(p.sum(what) for p in programs if p.group == group)
            stored = prometheus.value(f'sum(gpuprof_container_memory_{what}_bytes{{id=~".*/{group}"}})')
            check(f"{what} of a container", wanted > 0 and stored == wanted, f"{stored}, ledgers {wanted}")
        for p in programs:
            stored = prometheus.value(f'sum(gpuprof_process_memory_{what}_bytes{{pid="{p.pid}"}})')
            check(f"{what} of a process", stored == p.sum(what), f"{stored}, ledger {p.sum(what)}")
    stored = prometheus.value("sum(gpuprof_allocations_total)")
    check("allocations", stored == sum(p.calls() for p in programs), f"{stored}, {[p.calls() for p in programs]}")
    stored = prometheus.value("sum(gpuprof_container_processes)")
    check("processes of the containers", stored == rows, f"{stored}, {rows}")


def page_is_good(agent):
    status, page = agent.ask("metrics")
    code, said = promtool("check", "metrics", stdin=page)
    check("promtool check metrics on the agent's page", status == 200 and code == 0 and not said, said)
    exported = set(re.findall(r"^# TYPE (\S+)", page, re.M))
    written = set(re.findall(r"^\| `(\w+)` \| (?:gauge|counter|info) \|", open("docs/metrics.md").read(), re.M))
    check("the agent's page has every family of docs/metrics.md", exported == written, exported ^ written)
    named = set(re.findall(r"(?<![:\w/])(gpuprof_\w+)", open("deploy/grafana/gpuprof.json").read() +
                           open("deploy/prometheus/gpuprof.rules.yml").read()))
    check("each metric of dashboard and rules is on the agent's page", len(named) > 15 and named <= exported,
          named - exported)
    for family in ("gpuprof_agent_up", "gpuprof_exporter_read_success"):
        check(f"{family} is 1", page_sum(page, family) == 1, page_sum(page, family))
    for family in ("gpuprof_batches_refused_total", "gpuprof_map_updates_refused_total", "gpuprof_values_clamped_total",
                   "gpuprof_batches_missing_total", "gpuprof_exporter_read_errors_total"):
        check(f"{family} is 0", page_sum(page, family) == 0, page_sum(page, family))
    check("events were counted", (page_sum(page, "gpuprof_agent_events_total") or 0) > 0)


def heart(agent, prometheus):
    """Stops only the loop that writes the heartbeat: the server still answers and reports the missing heartbeat."""
    libc = ctypes.CDLL(None, use_errno=True)
    check("healthy", agent.ask("healthz")[0] == 200, agent.ask("healthz"))
    if libc.ptrace(PTRACE_SEIZE, agent.process.pid, None, None) or \
            libc.ptrace(PTRACE_INTERRUPT, agent.process.pid, None, None):
        print(f"skipped: no ptrace here ({os.strerror(ctypes.get_errno())}): the agent's loop cannot be stopped")
        return
    try:
        os.waitpid(agent.process.pid, 0x40000000)  # __WALL: waits for the stop of that thread
        answer = until("/healthz is bad without a heartbeat",
                       lambda: (lambda a: a if a[0] == 503 else None)(agent.ask("healthz")), 30)
        check("and gives the reason", answer and re.search("heart", answer[1]), answer)
        until("gpuprof_agent_up is stored as 0", lambda: prometheus.value("gpuprof_agent_up") == 0)
        check("its age is stored", (prometheus.value("gpuprof_agent_heartbeat_age_seconds") or 0) > 4)
    finally:
        libc.ptrace(PTRACE_DETACH, agent.process.pid, None, None)
    until("healthy again", lambda: agent.ask("healthz")[0] == 200, 30)


def deaths(agent, prometheus, programs):
    """A kill -9 removes a process's bytes from the page at once (it is made four times a second), then from Prometheus."""
    victim, others = programs[0], programs[1:]
    victim.end(signal.SIGKILL)
    wanted = sum(p.sum("reserved") for p in others)
    until("a killed process's bytes are gone",
          lambda: page_sum(agent.ask("metrics")[1], "gpuprof_device_memory_reserved_bytes") == wanted, 5)
    until("and from Prometheus", lambda: prometheus.value("sum(gpuprof_device_memory_reserved_bytes)") == wanted and
          not prometheus.query(f'gpuprof_process_memory_reserved_bytes{{pid="{victim.pid}"}}'))
    check("its calls stay counted", prometheus.value("sum(gpuprof_allocations_total)") == sum(p.calls() for p in programs))
    for p in others:
        p.end()
    until("no bytes are reserved when all have ended",
          lambda: page_sum(agent.ask("metrics")[1], "gpuprof_device_memory_reserved_bytes") == 0, 10)


def restart(agent, build, folder, library, prometheus):
    """Kills the agent with SIGKILL and starts a new one at the same address: the target goes down and returns without stale bytes."""
    agent.end(signal.SIGKILL)
    until("Prometheus sees the agent's death", lambda: prometheus.value("up") == 0)
    again = Agent(build, folder, library, agent.port)
    until("and its return", lambda: prometheus.value("up") == 1 and prometheus.value("gpuprof_agent_up") == 1)
    return again


def scene(build, folder, made):
    library = f"{folder}/libgpuprof.so"
    shutil.copy(f"{build}/lib/libgpuprof.so", library)
    os.chmod(library, 0o755)
    top = cgroup2()
    groups = [f"{top}/gpuprof-test-{os.getpid()}-{i}" for i in range(2)]
    for group in groups:
        try:
            os.mkdir(group)
        except OSError as error:
            raise Skip(f"no cgroup can be made: {error}") from None
        made["groups"].append(group)
    agent = made["agent"] = Agent(build, folder, library, 0)
    made["pins"] = agent.pins
    check("the log says who reaches the page", "(only from this machine: --listen :PORT for others)" in agent.said(), agent.said())
    prometheus = made["prometheus"] = Prometheus(folder, agent.port)
    for group, words in ((0, ["linear"]), (0, ["devices"]), (1, ["devices"]), (1, ["pool_created"]), (1, ["oom"])):
        made["programs"].append(Program(build, folder, library, groups[group], words))
    sums(agent, prometheus, made["programs"], [os.path.basename(g) for g in groups])
    page_is_good(agent)
    heart(agent, prometheus)
    deaths(agent, prometheus, made["programs"])
    agent = made["agent"] = restart(agent, build, folder, library, prometheus)
    check("the agent ends on request", agent.end() == 0, agent.said())
    check("it leaves no pins", not os.path.exists(agent.pins), agent.pins)


def clean(made, folder):
    for program in made["programs"]:
        program.end(signal.SIGKILL)
    if made["prometheus"]:
        made["prometheus"].end()
    if made["agent"]:
        made["agent"].end()
    for pin in glob.glob(f"{made['pins']}/*"):
        os.unlink(pin)
    if os.path.exists(made["pins"]):
        os.rmdir(made["pins"])
    for group in made["groups"]:
        os.rmdir(group)
    shutil.rmtree(folder)


def run(build):
    if os.geteuid() != 0:
        print("skipped: the agent needs root")
        return
    build = os.path.abspath(os.environ.get("GPUPROF_BUILD", build))
    folder = tempfile.mkdtemp(prefix="gpuprof-test-agent-")
    made = {"programs": [], "groups": [], "agent": None, "prometheus": None, "pins": f"{folder}/none"}
    before = harness.failed
    try:
        scene(build, folder, made)
    except Skip as why:
        print(f"skipped: a live agent: {why}")
    finally:
        if harness.failed > before and made["agent"]:
            print(made["agent"].said()[-2000:])
        clean(made, folder)
