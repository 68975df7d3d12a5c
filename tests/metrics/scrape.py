# SPDX-License-Identifier: MIT
"""A real Prometheus scrapes a simulated machine (serve.c), then a real agent (live.py): scrape.py BUILD_DIR."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import harness
import live
from harness import Prometheus, check, expressions, get, promtool, until

GIB = 1 << 30


class Served:
    def __init__(self, build, *words):
        self.process = subprocess.Popen([f"{build}/tests/metrics/serve", *words], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().split()[1])

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "ok\n"

    def page(self, accept=None):
        return get(f"http://127.0.0.1:{self.port}/metrics", accept)[1]

    def end(self):
        self.process.stdin.close()
        return self.process.wait(10)


def lint(served):
    code, said = promtool("check", "metrics", stdin=served.page())
    check("promtool check metrics", code == 0 and not said, said)
    served.say("fail 2")
    time.sleep(0.3)
    code, said = promtool("check", "metrics", stdin=served.page())
    check("promtool check metrics, without an agent", code == 0 and not said, said)
    served.say("fail 0")
    time.sleep(0.3)
    code, said = promtool("check", "rules", "deploy/prometheus/gpuprof.rules.yml")
    check("promtool check rules", code == 0, said)
    code, said = promtool("test", "rules", "tests/metrics/rules.test.yml")
    check("promtool test rules", code == 0, said)
    alerts = set(re.findall(r"alert: (\w+)", open("deploy/prometheus/gpuprof.rules.yml").read()))
    tested = set(re.findall(r"alertname: (\w+)", open("tests/metrics/rules.test.yml").read()))
    check("every alert is tested", alerts and alerts == tested, alerts ^ tested)
    books = set(re.findall(r"runbook: 'docs/alerts.md#(\w+)'", open("deploy/prometheus/gpuprof.rules.yml").read()))
    sections = set(re.findall(r"^## (\w+)$", open("docs/alerts.md").read(), re.M))
    check("every alert's runbook is a section", sections == alerts and books == {name.lower() for name in alerts}, (sections ^ alerts, books))


def scraped(prometheus, served):
    def up():
        targets = prometheus.ask("targets").get("data", {}).get("activeTargets", [])
        return targets and targets[0]["health"] == "up" and not targets[0]["lastError"]
    if not until("the target is up", up):
        print(prometheus.ask("targets"))
        return
    check("sum over containers", prometheus.value("sum(gpuprof_container_memory_reserved_bytes)") == 10 * GIB)
    check("sum over devices", prometheus.value("sum(gpuprof_device_memory_allocated_bytes)") == 7 * GIB)
    check("by UUID", prometheus.value('gpuprof_device_processes{UUID="GPU-00111111-1111-1111-1111-111111111100"}') == 2)
    check("no pod outside a pod", prometheus.query('{pod="the-exporters-own", __name__=~"gpuprof_container.*"}') == [])
    comms = {r["metric"]["comm"] for r in prometheus.query("gpuprof_process_memory_reserved_bytes")}
    check("unusual names arrive unchanged", comms == {"train", 'a"b\\c \u00e9'}, comms)
    # OpenMetrics names a counter's family without its suffix, so this shows that Prometheus requested and parsed OpenMetrics.
    known = until("metadata", lambda: prometheus.ask("metadata").get("data"))
    check("scraped as OpenMetrics", "gpuprof_allocations" in (known or {}) and "gpuprof_allocations_total" not in known)
    check("a counter", known and known["gpuprof_allocations"][0]["type"] == "counter")
    served.say(f"set 12 {5 * GIB}")
    until("a change arrives", lambda: prometheus.value('gpuprof_process_memory_allocated_bytes{pid="12"}') == 5 * GIB)
    served.say("end 12")
    until("a series ends with its process",
          lambda: prometheus.query('gpuprof_process_memory_allocated_bytes{pid="12"}') == [] and
          prometheus.value("sum(gpuprof_device_processes)") == 2)
    check("its calls stay counted", prometheus.value("sum(gpuprof_allocations_total)") == 130)
    groups = prometheus.ask("rules").get("data", {}).get("groups", [])
    states = {r["name"]: r["health"] for g in groups for r in g["rules"]}
    check("rules are evaluated", states and set(states.values()) <= {"ok", "unknown"}, states)


BOARDS = ("gpuprof", "gpuprof-fleet")


def dashboards(prometheus, served):
    exported = set(re.findall(r"^# TYPE (\S+)", served.page(), re.M))
    texts = {name: open(f"deploy/grafana/{name}.json").read() for name in BOARDS}
    check("each dashboard is tested", sorted(f"{name}.json" for name in BOARDS) == sorted(os.listdir("deploy/grafana")))
    boards = {name: json.loads(text) for name, text in texts.items()}
    names = [v["name"] for v in boards["gpuprof"]["templating"]["list"]]
    check("variables", {"cluster", "instance", "gpu", "namespace", "pod", "top"} <= set(names), names)
    all_text = "".join(texts.values()) + open("deploy/prometheus/gpuprof.rules.yml").read()
    used = set(re.findall(r"(?<![:\w])((?:gpuprof|process)_\w+_(?:bytes|total|info|seconds|processes|up|rows|success|oom|unarmed))(?![:\w])", all_text))
    check("the metrics used are exported", len(used) > 15 and used <= exported, used - exported)
    loose = set(re.findall(r"(?<![:\w/])(gpuprof_\w+)", all_text)) - used
    check("no other name of gpuprof", not loose, loose)
    # Links from page to page and from an alert to its page.
    linked, uids = set(re.findall(r"/d/([\w-]+)", all_text)), {board["uid"] for board in boards.values()}
    check("a link to a dashboard leads to one", linked == uids, linked ^ uids)
    served.say("set 10 1000000")
    for name, board in boards.items():
        dashboard(prometheus, name, board)


def dashboard(prometheus, name, board):
    count = 0
    for expression in expressions(board):
        plain = expression.replace("$__rate_interval", "10s").replace("$__range", "10m").replace("$top", "3")
        plain = re.sub(r"\$(cluster|instance|gpu|namespace|pod)\b", ".*", plain)
        check("no variable is left", not re.search(r"\$(?!1\b)", plain), plain)  # $1: a group of label_replace
        answer = prometheus.ask("query", query=plain)
        check(f"{name}'s query: {plain}", answer.get("status") == "success", answer)
        # Queries of growth, its end and failures are empty without growth and failures.
        if "> 0" not in plain and "seconds_to_oom" not in plain:
            check(f"{name}'s query has an answer: {plain}", answer.get("data", {}).get("result"), answer)
        count += 1
    check(f"queries of {name}", count >= 15, count)
    # A thousand nodes have 8000 GPUs: a panel draws a bounded number of lines, or one by a label that has few values.
    few = r"^(top|bottom)k\(|^(sum|max|count|quantile)\(|^(sum|count) by \((alertname|version)\)"
    wild = [t["expr"] for p in board["panels"] for t in p.get("targets", []) if not re.match(few, t["expr"])]
    check(f"each panel of {name} is bounded", not wild, wild)
    ids = [p["id"] for p in board["panels"]]
    check(f"ids of panels of {name} differ", len(ids) == len(set(ids)))
    places = [(p["gridPos"]["x"] + x, p["gridPos"]["y"] + y) for p in board["panels"] for x in range(p["gridPos"]["w"]) for y in range(p["gridPos"]["h"])]
    check(f"no panel of {name} covers another", len(places) == len(set(places)) and all(x < 24 for x, _ in places))


def documented(served):
    """Each family is in docs/metrics.md, and each family listed there exists."""
    exported = set(re.findall(r"^# TYPE (\S+)", served.page(), re.M))
    written = set(re.findall(r"^\| `(\w+)` \| (?:gauge|counter|info) \|", open("docs/metrics.md").read(), re.M))
    check("docs/metrics.md lists what is exported", written == exported, written ^ exported)


def manifests(build):
    """The manifests grant least privilege and use the agent's port."""
    text = open("deploy/kubernetes/daemonset.yaml").read()
    check("not privileged", "privileged: true" not in text and "drop: [ALL]" in text)
    check("no token, no RBAC", "automountServiceAccountToken: false" in text and "ClusterRole" not in text)
    unit = re.search(r"^CapabilityBoundingSet=(.+)", open("deploy/systemd/gpuprof-agent.service").read(), re.M).group(1)
    given = re.search(r"add: \[(.+)\]", text).group(1)
    check("the unit and the DaemonSet give the same rights", sorted(unit.replace("CAP_", "").split()) == sorted(given.split(", ")),
          (unit, given))
    said = subprocess.run([f"{build}/bin/gpuprof", "agent", "--help"], capture_output=True, text=True).stdout
    flags = re.findall(r"^ +- (--[a-z-]+)", text, re.M)
    check("flags of the DaemonSet are the agent's", flags and all(re.search(rf"^ +{f}[ =]", said, re.M) for f in flags), flags)
    port = re.search(r"GP_HTTP_PORT (\d+)", open("tools/agent/metrics/metrics.h").read()).group(1)
    check("the example of --help is that port, on an address that Prometheus reaches", f"--listen :{port}\n" in said and "9400" not in said, said)
    for name in ("daemonset", "servicemonitor"):
        check(f"port in {name}", port in open(f"deploy/kubernetes/{name}.yaml").read())
    try:
        import yaml
    except ImportError:
        return
    kinds = [d["kind"] for n in sorted(os.listdir("deploy/kubernetes")) for d in yaml.safe_load_all(open(f"deploy/kubernetes/{n}"))]
    check("manifests are YAML", sorted(kinds) == sorted(["Kustomization", "Namespace", "DaemonSet", "Pod", "Service", "ServiceMonitor", "NetworkPolicy", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"]), kinds)


def main():
    build = sys.argv[1]
    folder = tempfile.mkdtemp(prefix="gpuprof-test-prometheus-")
    served = Served(build, "pid")
    prometheus = Prometheus(folder, served.port)
    try:
        lint(served)
        scraped(prometheus, served)
        dashboards(prometheus, served)
        documented(served)
        manifests(build)
    finally:
        prometheus.end()
        check("the server ends on request", served.end() == 0)
        if harness.failed:
            print(open(f"{folder}/log").read()[-2000:])
        shutil.rmtree(folder)
    live.run(build)
    print(f"{harness.passed} passed, {harness.failed} failed")
    return harness.failed > 0


sys.exit(main())
