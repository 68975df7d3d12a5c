# SPDX-License-Identifier: MIT
"""A real Prometheus scrapes a made-up machine (serve.c): scrape.py BUILD_DIR.  Loopback only."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

GIB = 1 << 30
passed = failed = 0


def check(what, good, why=""):
    global passed, failed
    if good:
        passed += 1
    else:
        failed += 1
        print(f"FAILED {what}: {why}")


def get(url, accept=None):
    request = urllib.request.Request(url, headers={"Accept": accept} if accept else {})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def until(what, question, limit=60):
    """Asks until the answer is true; the check fails when it never is."""
    end = time.monotonic() + limit
    answer = None
    while time.monotonic() < end:
        answer = question()
        if answer:
            check(what, True)
            return answer
        time.sleep(0.3)
    check(what, False, f"not within {limit} s: {answer!r}")
    return None


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


class Prometheus:
    def __init__(self, folder, target):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        shutil.copy("deploy/prometheus/gpuprof.rules.yml", folder)
        with open(f"{folder}/prometheus.yml", "w") as out:
            out.write(f"""global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [gpuprof.rules.yml]
scrape_configs:
  - job_name: gpuprof
    honor_labels: true
    sample_limit: 2500
    static_configs: [{{targets: ["127.0.0.1:{target}"], labels: {{pod: the-exporters-own}}}}]
""")
        self.log = open(f"{folder}/log", "w")
        self.process = subprocess.Popen(["prometheus", f"--config.file={folder}/prometheus.yml",
                                         f"--storage.tsdb.path={folder}/data",
                                         f"--web.listen-address=127.0.0.1:{self.port}"],
                                        stdout=self.log, stderr=subprocess.STDOUT)

    def ask(self, path, **words):
        status, text = get(f"http://127.0.0.1:{self.port}/api/v1/{path}?" + urllib.parse.urlencode(words))
        return json.loads(text) if status in (200, 400, 422) else {}

    def query(self, expression):
        return self.ask("query", query=expression).get("data", {}).get("result", [])

    def value(self, expression):
        result = self.query(expression)
        return float(result[0]["value"][1]) if len(result) == 1 else None

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        self.log.close()


def promtool(*words, stdin=None):
    done = subprocess.run(["promtool", *words], input=stdin, capture_output=True, text=True)
    return done.returncode, (done.stdout + done.stderr).strip()


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
    check("odd names come through", comms == {"train", 'a"b\\c \u00e9'}, comms)
    # OpenMetrics names a counter's family without its ending: this is what Prometheus asked for, and understood.
    known = until("metadata", lambda: prometheus.ask("metadata").get("data"))
    check("scraped as OpenMetrics", "gpuprof_allocations" in (known or {}) and "gpuprof_allocations_total" not in known)
    check("a counter", known and known["gpuprof_allocations"][0]["type"] == "counter")
    served.say(f"set 12 {5 * GIB}")
    until("a change arrives", lambda: prometheus.value('gpuprof_process_memory_allocated_bytes{pid="12"}') == 5 * GIB)
    served.say("end 12")
    until("a series ends with its process",
          lambda: prometheus.query('gpuprof_process_memory_allocated_bytes{pid="12"}') == [] and
          prometheus.value("sum(gpuprof_device_processes)") == 2)
    check("what it did stays", prometheus.value("sum(gpuprof_allocations_total)") == 130)
    groups = prometheus.ask("rules").get("data", {}).get("groups", [])
    states = {r["name"]: r["health"] for g in groups for r in g["rules"]}
    check("rules are evaluated", states and set(states.values()) <= {"ok", "unknown"}, states)


def expressions(node):
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "expr":
                yield value
            else:
                yield from expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


def dashboard(prometheus, served):
    with open("deploy/grafana/gpuprof.json") as text:
        board = json.load(text)
    exported = set(re.findall(r"^# TYPE (\S+)", served.page(), re.M))
    names = [v["name"] for v in board["templating"]["list"]]
    check("variables", {"instance", "gpu", "namespace", "pod"} <= set(names), names)
    all_text = json.dumps(board) + open("deploy/prometheus/gpuprof.rules.yml").read()
    used = set(re.findall(r"(?<![:\w])((?:gpuprof|process)_\w+_(?:bytes|total|info|seconds|processes|up|rows|success))(?![:\w])", all_text))
    check("names are of metrics that are exported", len(used) > 15 and used <= exported, used - exported)
    loose = set(re.findall(r"(?<![:\w/])(gpuprof_\w+)", all_text)) - used
    check("no other name of ours", not loose, loose)
    served.say("set 10 1000000")
    count = 0
    for expression in expressions(board):
        plain = expression.replace("$__rate_interval", "10s")
        plain = re.sub(r"\$(instance|gpu|namespace|pod)\b", ".*", plain)
        check("no variable is left", "$" not in plain, plain)
        answer = prometheus.ask("query", query=plain)
        check(f"the board's query: {plain}", answer.get("status") == "success", answer)
        # Growth and refusals are empty where nothing grows and nothing is refused.
        if "> 0" not in plain:
            check(f"the board's query has an answer: {plain}", answer.get("data", {}).get("result"), answer)
        count += 1
    check("queries of the board", count >= 15, count)
    ids = [p["id"] for p in board["panels"]]
    check("ids of panels differ", len(ids) == len(set(ids)))


def documented(served):
    """Each family is in docs/metrics.md, and each that is there exists."""
    exported = set(re.findall(r"^# TYPE (\S+)", served.page(), re.M))
    written = set(re.findall(r"^\| `(\w+)` \| (?:gauge|counter|info) \|", open("docs/metrics.md").read(), re.M))
    check("docs/metrics.md lists what is exported", written == exported, written ^ exported)


def manifests():
    """What the manifests promise: least privilege, and a port that agrees with the agent's."""
    text = open("deploy/kubernetes/daemonset.yaml").read()
    check("not privileged", "privileged: true" not in text and "drop: [ALL]" in text)
    check("no token, no RBAC", "automountServiceAccountToken: false" in text and "ClusterRole" not in text)
    port = re.search(r"GP_HTTP_PORT (\d+)", open("tools/agent/http.h").read()).group(1)
    for name in ("daemonset", "servicemonitor"):
        check(f"port in {name}", port in open(f"deploy/kubernetes/{name}.yaml").read())
    try:
        import yaml
    except ImportError:
        return
    kinds = [d["kind"] for n in sorted(os.listdir("deploy/kubernetes")) for d in yaml.safe_load_all(open(f"deploy/kubernetes/{n}"))]
    check("manifests are YAML", sorted(kinds) == sorted(["Namespace", "DaemonSet", "Pod", "Service", "ServiceMonitor", "NetworkPolicy"]), kinds)


def main():
    build = sys.argv[1]
    folder = tempfile.mkdtemp(prefix="gpuprof-test-prometheus-")
    served = Served(build, "pid")
    prometheus = Prometheus(folder, served.port)
    try:
        lint(served)
        scraped(prometheus, served)
        dashboard(prometheus, served)
        documented(served)
        manifests()
    finally:
        prometheus.end()
        check("the server ends when told", served.end() == 0)
        if failed:
            print(open(f"{folder}/log").read()[-2000:])
        shutil.rmtree(folder)
    print(f"{passed} passed, {failed} failed")
    return failed > 0


sys.exit(main())
