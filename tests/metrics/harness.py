# SPDX-License-Identifier: MIT
"""Helpers for the tests of the metrics: counted checks, a real Prometheus and queries to it. Loopback only."""
import json
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

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
    """Asks until the answer is true; the check fails if it never is."""
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
