#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests what deploys the agent: check.py BUILD_DIR

The chart with its default values is the kustomize base, and with all switches on deploys the monitoring too; each object fits
Kubernetes' schemas and has no field that Kubernetes does not know.  The chart is rendered by Helm, or without Helm by render.go
(Go's template package); the base by kubectl or kustomize, or without both by reading its list of resources.  Schemas come from npm.
"""
import copy
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(ROOT, "tests", "deploy")
PACKAGES = ("kubernetes-models@5.1.0", "@kubernetes-models/prometheus-operator@6.0.0", "typescript@5.4.5", "@marcbachmann/cel-js@8.0.0")
passed = failed = 0


def check(what, good, why=""):
    global passed, failed
    print(f"{'ok  ' if good else 'FAIL'} {what}" + ("" if good or not why else f": {why}"))
    passed += good
    failed += not good


def run(*words, **options):
    return subprocess.run(words, capture_output=True, text=True, timeout=500, check=False, **options)


def merge(values, more):
    """The values with those of `more`, as --set does it."""
    result = copy.deepcopy(values)
    for key, value in more.items():
        result[key] = merge(result[key], value) if isinstance(value, dict) and isinstance(result.get(key), dict) else value
    return result


def render(chart, more):
    """The objects of the chart with these values beside its own."""
    if shutil.which("helm"):
        done = run("helm", "template", "gpuprof", chart, "-n", "gpuprof", "-f", "-", input=json.dumps(more))
    else:
        with open(os.path.join(chart, "values.yaml"), encoding="utf-8") as file:
            values = merge(yaml.safe_load(file), more)
        with open(os.path.join(chart, "Chart.yaml"), encoding="utf-8") as file:
            meta = yaml.safe_load(file)
        context = {"Values": values, "Release": {"Namespace": "gpuprof", "Name": "gpuprof"},
                   "Chart": {key[0].upper() + key[1:]: value for key, value in meta.items()}}
        done = run("go", "run", os.path.join(HERE, "render.go"), chart, input=json.dumps(context))
    check(f"the chart renders with {json.dumps(more)}", done.returncode == 0, done.stderr)
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def agent(objects):
    """The agent's DaemonSet.  Helm sorts the objects by kind, render.go does not."""
    return next(one for one in objects if one["kind"] == "DaemonSet")


def base():
    """The objects of the kustomize base."""
    folder = os.path.join(ROOT, "deploy", "kubernetes")
    for words in (("kustomize", "build", folder), ("kubectl", "kustomize", folder)):
        if shutil.which(words[0]):
            done = run(*words)
            check(" ".join(words[:-1]), done.returncode == 0, done.stderr)
            return [one for one in yaml.safe_load_all(done.stdout) if one]
    with open(os.path.join(folder, "kustomization.yaml"), encoding="utf-8") as file:
        listed = yaml.safe_load(file)["resources"]
    return [one for name in listed for one in read(name)]


def read(name):
    with open(os.path.join(ROOT, "deploy", "kubernetes", name), encoding="utf-8") as file:
        return [one for one in yaml.safe_load_all(file) if one]


def same(what, some, others):
    """Whether these are the same objects in any order, after an evaluation of the block texts."""
    key = lambda one: json.dumps(one, sort_keys=True)
    some, others = sorted(map(key, some)), sorted(map(key, others))
    check(what, some == others, "".join(f"\n     - {one}" for one in some if one not in others) +
          "".join(f"\n     + {one}" for one in others if one not in some))


def pod(label=None, limits=None, annotations=None, env=None):
    container = {"name": "train", "image": "x"} | ({"resources": {"limits": limits}} if limits else {}) | ({"env": [{"name": env, "value": "x"}]} if env else {})
    meta = ({"labels": {"gpuprof.dev/inject": label, "app": "a"}} if label else {}) | ({"annotations": annotations} if annotations else {})
    return {"metadata": meta, "spec": {"containers": [{"name": "sidecar", "image": "y"}, container]}}


GPU, MIG = {"nvidia.com/gpu": "1"}, {"nvidia.com/mig-1g.5gb": "1", "cpu": "2"}
# The namespace's label, the pod, and the device that it gets.
INJECTED = (
    ("hooks", pod(limits=GPU), "hooks"), ("on", pod(limits=MIG), "on"), ("hooks", pod(limits={"cpu": "1"}), None), ("hooks", pod(), None),
    ("ask", pod(limits=GPU), None), ("ask", pod("hooks", limits=GPU), "hooks"), ("ask", pod("on"), "on"), ("hooks", pod("off", limits=GPU), None),
    ("on", pod("hooks", limits=GPU), "hooks"), ("hooks", pod("nonsense", limits=GPU), None), ("hooks", pod(limits=GPU, env="LD_PRELOAD"), None),
    ("hooks", pod(limits=GPU, env="CUDA_INJECTION64_PATH"), None), ("hooks", pod(limits=GPU, env="HOME", annotations={"a": "b"}), "hooks"),
    ("other", pod(limits=GPU), None))


def merged(one, change):
    """The pod with the change applied: lists merge by name, mounts by path."""
    result = copy.deepcopy(one) | {"apiVersion": "v1", "kind": "Pod"}
    spec = result["spec"]
    spec["volumes"] = spec.get("volumes", []) + change["spec"]["volumes"]
    for container, more in zip(spec["containers"], change["spec"]["containers"], strict=True):
        assert container["name"] == more["name"]
        for key in ("env", "volumeMounts"):
            container[key] = container.get(key, []) + more[key]
    return result


def policy(work, objects):
    """Which pods the policy changes, and how, by a CEL library, as no API server is here.  Returns the changed pods."""
    spec = next(one for one in objects if one["kind"] == "MutatingAdmissionPolicy")["spec"]
    selector = spec["matchConstraints"]["namespaceSelector"]["matchExpressions"][0]
    asked = [{"conditions": [each["expression"] for each in spec["matchConditions"]], "variables": spec["variables"],
              "change": spec["mutations"][0]["applyConfiguration"]["expression"],
              "context": {"object": one, "namespaceObject": {"metadata": {"labels": {selector["key"]: label}}}}} for label, one, _ in INJECTED]
    told = run("node", os.path.join(HERE, "policy.mjs"), cwd=work, input=json.dumps(asked))
    check("the policy is CEL", told.returncode == 0, told.stderr)
    example, changed = read("example-pod.yaml")[0]["spec"], []
    for (label, one, wanted), got in zip(INJECTED, json.loads(told.stdout or "[]")):
        if not wanted:
            check(f"namespace {label}, pod {json.dumps(one)}: left alone", label not in selector["values"] or got is None, got)
            continue
        changed.append(merged(one, got))
        shim = [{"name": "LD_PRELOAD", "value": "/opt/gpuprof/lib/libgpuprof-shim.so"}] if wanted == "hooks" else []
        check(f"namespace {label}, pod {json.dumps(one['metadata'])}: as the example pod, {wanted}", all(
            each["env"][-1 - len(shim):] == example["containers"][0]["env"] + shim and each["volumeMounts"] == example["containers"][0]["volumeMounts"]
            for each in changed[-1]["spec"]["containers"]) and changed[-1]["spec"]["volumes"][0]["name"] == example["volumes"][0]["name"] and
              changed[-1]["spec"]["volumes"][0]["hostPath"]["path"] == example["volumes"][0]["hostPath"]["path"], got)
    return changed


def schemas(objects):
    """Each object against Kubernetes' schemas and types; a misspelled field and a text for a number must be found."""
    if not (shutil.which("npm") and shutil.which("node")):
        print("skip the schemas: no npm here")
        return
    with tempfile.TemporaryDirectory(prefix="gpuprof-test-deploy-") as work:
        got = run("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", work, *PACKAGES)
        if got.returncode:
            print(f"skip the schemas: npm: {got.stderr.strip().splitlines()[-1:]}")
            return
        tsc = os.path.join(work, "node_modules", ".bin", "tsc")

        def validate(these):
            told = run("node", os.path.join(HERE, "schemas.mjs"), cwd=work, input=json.dumps(these))
            typed = run(tsc, "--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--module", "nodenext",
                        "--moduleResolution", "nodenext", "objects.mts", cwd=work)
            return told, typed

        told, typed = validate(objects + policy(work, objects))
        kinds = ", ".join(sorted({one["kind"] for one in objects}))
        check(f"{kinds}: as the schemas say", told.returncode == 0, told.stdout + told.stderr)
        check(f"{kinds}: no unknown field", typed.returncode == 0, typed.stdout)
        typo = [copy.deepcopy(agent(objects))]
        typo[0]["spec"]["template"]["spec"]["hostPid"] = True
        told, typed = validate(typo)
        check("a misspelled field is found", typed.returncode != 0 and "hostPid" in typed.stdout, typed.stdout)
        wrong = copy.deepcopy(typo)
        wrong[0]["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"] = "9949"
        told, typed = validate(wrong)
        check("a text for a number is found", told.returncode != 0 and "containerPort" in told.stdout, told.stdout)


def text_of(*names):
    with open(os.path.join(ROOT, *names), encoding="utf-8") as file:
        return file.read()


def monitoring_files(chart):
    """The chart's rules and dashboards are the files, and its links lead to the given places."""
    plain = render(chart, {"prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}})
    kinds = {one["kind"]: one for one in plain}
    wanted = yaml.safe_load(text_of("deploy", "prometheus", "gpuprof.rules.yml"))
    check("the PrometheusRule is the file of rules", kinds["PrometheusRule"]["spec"] == wanted)
    boards = {name: json.loads(text) for name, text in kinds["ConfigMap"]["data"].items()}
    check("the ConfigMap has the dashboards", boards == {os.path.basename(path): json.loads(text_of(path)) for path in glob.glob(os.path.join(ROOT, "deploy", "grafana", "*"))})
    check("Grafana's sidecar finds it", kinds["ConfigMap"]["metadata"]["labels"].get("grafana_dashboard") == "1")
    linked = render(chart, {"prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}, "runbookBase": "https://wiki.example/g", "grafanaBase": "https://grafana.example"}})
    rule = next(one for one in linked if one["kind"] == "PrometheusRule")
    notes = [each["annotations"] for group in rule["spec"]["groups"] for each in group["rules"] if "alert" in each]
    check("each alert has links", notes and all(note["runbook_url"].startswith("https://wiki.example/g/docs/alerts.md#gpu") and
          note["dashboard_url"].startswith("https://grafana.example/d/gpuprof-memory?") for note in notes), notes)
    check("its label reaches the rule", rule["metadata"]["labels"].get("release") == "prometheus")
    return plain + linked


def main():
    out = tempfile.mkdtemp(prefix="gpuprof-test-chart-")
    packed = run(os.path.join(ROOT, "deploy", "helm", "pack"), os.path.join(out, "chart"))
    chart = os.path.join(out, "chart", "gpuprof-agent")
    archives = glob.glob(os.path.join(out, "chart", "gpuprof-agent-*.tgz"))
    version = run(os.path.join(sys.argv[1], "bin", "gpuprof"), "--version").stdout.split()[1]
    check("the archive has gpuprof's version", packed.returncode == 0 and len(archives) == 1 and archives[0].endswith(f"-{version}.tgz"), archives)
    try:
        manifests, monitoring = base(), read("servicemonitor.yaml")
        if shutil.which("helm"):
            linted = run("helm", "lint", "--strict", chart, archives[0])
            check("helm lint", linted.returncode == 0, linted.stdout + linted.stderr)
        default = render(chart, {})
        check("its image has the chart's version", agent(default)["spec"]["template"]["spec"]["containers"][0]["image"] == f"gpuprof:{version}")
        same("with the base's tag, the chart is the base without its namespace", render(chart, {"image": {"tag": "latest"}}),
             [one for one in manifests if one["kind"] != "Namespace"])
        everything = render(chart, {"serviceMonitor": {"enabled": True, "labels": {}}, "networkPolicy": {"enabled": True}})
        same("with its switches on, it has the monitoring too", [one for one in everything if one["kind"] != "DaemonSet"], monitoring)
        varied = render(chart, {
            "oldKernels": True, "extraArgs": ["--metrics-per-process=comm"], "imagePullSecrets": [{"name": "pull"}], "port": 9000,
            "podAnnotations": {"a/b": "c"}, "nodeSelector": {"pool": "gpu"}, "tolerations": [], "priorityClassName": "", "libraryPath": "/srv/lib",
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}})
        pod = agent(varied)["spec"]["template"]["spec"]
        check("the values reach the objects", "SYS_ADMIN" in pod["containers"][0]["securityContext"]["capabilities"]["add"] and
              pod["containers"][0]["args"][1:] == ["--listen=:9000", "--library=/opt/gpuprof/lib/libgpuprof.so", "--metrics-per-process=comm"] and
              pod["volumes"][0]["hostPath"]["path"] == "/srv/lib" and pod["nodeSelector"]["pool"] == "gpu" and
              "tolerations" not in pod and "priorityClassName" not in pod)
        files = monitoring_files(chart)
        injected = render(chart, {"injection": {"enabled": True}})
        same("the chart's policy is the manifest", [one for one in injected if one["kind"] != "DaemonSet"], read("policy.yaml"))
        schemas(manifests + monitoring + read("example-pod.yaml") + read("dryrun-ranks.yaml") + everything + varied + files + injected)
    finally:
        shutil.rmtree(out)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed != 0)


if __name__ == "__main__":
    try:
        import yaml
    except ImportError:
        print("no PyYAML here (python3-yaml)")
        sys.exit(77)
    if not shutil.which("helm") and not shutil.which("go"):
        print("neither helm nor go here (golang-go)")
        sys.exit(77)
    main()
