# SPDX-License-Identifier: MIT
"""Validates the JSON of every command against docs/schema.  schemas.py BUILD_DIR [--update]

Each document has the schema that it names: gpuprof.peak/1 is docs/schema/peak-1.json.  --update widens the files
by what was seen and they lack; a narrower contract, and what a key means, is written by hand and stays.  Only the words of JSON Schema that the
files use are known here: type, const, properties, required, additionalProperties, items."""
import glob
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

BUILD = os.path.abspath(sys.argv[1])
UPDATE = "--update" in sys.argv[2:]
TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.join(TREE, "docs", "schema")
GPUPROF = os.path.join(BUILD, "bin", "gpuprof")
# Objects whose keys are names of things; all values have one form.
MAPS = {"stats", "kinds", "lost", "driver_calls", "uses", "scopes_by_name"}
UNSEEN = "null where it is unknown; the tests have seen no value"
TYPES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


# ---- validation ------------------------------------------------------------------------------------------------------


def type_fits(value, names):
    name = TYPES[type(value)]
    return name in names or (name == "integer" and "number" in names)


def validate(schema, value, path, problems):
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    if "const" in schema and value != schema["const"]:
        problems.append(f"{path}: {value!r} is not {schema['const']!r}")
    if names and not type_fits(value, names):
        problems.append(f"{path}: {TYPES[type(value)]}, not {' or '.join(names)}")
    if isinstance(value, dict):
        known = schema.get("properties", {})
        problems += [f"{path}.{key}: is missing" for key in schema.get("required", ()) if key not in value]
        for key, item in value.items() if known or "additionalProperties" in schema else ():
            inner = known.get(key, schema.get("additionalProperties"))
            if inner is None or inner is False:
                problems.append(f"{path}.{key}: is not in the schema")
            else:
                validate(inner, item, f"{path}.{key}", problems)
    if isinstance(value, list) and "items" in schema:
        for item in value:
            validate(schema["items"], item, f"{path}[]", problems)


# ---- widening --------------------------------------------------------------------------------------------------------


def widened(schema, value, key=""):
    """The schema, which allows this value too.  A number or text may also be unknown, which is null."""
    first = schema is None
    schema = {} if first else schema
    names = schema.get("type", [])
    names = set([names] if isinstance(names, str) else names) | {TYPES[type(value)]}
    said = schema.pop("description", "")
    if said.endswith(UNSEEN):
        names.add("null")
        said = said.removesuffix(UNSEEN).removesuffix("; ")
    if names & {"integer", "number", "string"}:
        names.add("null")
    if "number" in names:
        names.discard("integer")
    if names == {"null"}:
        return {"description": f"{said}; {UNSEEN}" if said else UNSEEN}
    schema["type"] = sorted(names) if len(names) > 1 else names.pop()
    if isinstance(value, dict) and key in MAPS:
        for item in value.values():
            schema["additionalProperties"] = widened(schema.get("additionalProperties"), item)
    elif isinstance(value, dict):
        known = schema.setdefault("properties", {})
        fresh = "required" not in schema
        for name, item in value.items():
            known[name] = widened(known.get(name), item, name)
        schema["required"] = sorted(value) if fresh else [name for name in schema["required"] if name in value]
    elif isinstance(value, list):
        for item in value:
            schema["items"] = widened(schema.get("items"), item)
    return {"description": said, **schema} if said else schema


# ---- documents -------------------------------------------------------------------------------------------------------


def documents(text):
    """The JSON documents of an output: one, or one on each line."""
    try:
        return [json.loads(text)]
    except ValueError:
        lines = text.split("\n")  # not splitlines(): a name may have other characters that end a line
        return [json.loads(line) for line in lines if line.startswith("{")]


def run(*arguments, **more):
    return subprocess.run([GPUPROF, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False, timeout=120, **more).stdout


def of_recordings(work):
    recordings = sorted(glob.glob(os.path.join(TREE, "tests", "golden", "recordings", "*.gpuprof")))
    made = os.path.join(work, "made.gpuprof")
    run("run", "--sim", "--record=" + made, "--", os.path.join(BUILD, "examples", "leak_rt"), "--steps", "40", "--pace", "0")
    failed = os.path.join(work, "failed.gpuprof")
    run("run", "--sim=memory=256MiB", "--record=" + failed, "--", os.path.join(BUILD, "examples", "leak_rt"), "--steps", "2000", "--pace", "0")
    naps = os.path.join(work, "naps.gpuprof")
    library = os.path.join(BUILD, "tests", "framework", "unsigned-now")
    run("run", "--sim", "--record=" + naps, "--", os.path.join(BUILD, "tests", "programs", "framework"), "naps", library)
    for file in recordings + [made, failed, naps]:
        for command in "report", "leaks", "peak", "churn", "fragmentation", "reconcile", "phases", "explain":
            yield run(command, file, "--json")
        yield run("fit", file, "--gpu=24GiB", "--json")
        yield run("fit", file, "--gpu=l4", "--json")
        yield run("fit", file, "--gpu=2MiB", "--all", "--json")
        yield run("check", file, "--budget=1MiB", "--json")
        yield run("export", file, "--format=jsonl")
        yield run("replay", file, "--allocator=caching", "--json")
    for by in "site", "line", "operation", "use":
        yield run("diff", made, failed, f"--by={by}", "--max-growth=1KiB", "--json")
    yield run("diff", made, made, "--json")
    yield run("dryrun", "--gpu=a100-80g,t4", "--json", "--", os.path.join(BUILD, "examples", "train_rt"), "--steps", "5", cwd=work)
    job = os.path.join(BUILD, "tests", "programs", "job")
    yield run("dryrun", "--gpu=t4", "--json", "--", "sh", "-c", job + " mib=16384; true", cwd=work)
    budgets = os.path.join(work, "budgets")
    with open(budgets, "w", encoding="utf-8") as file:
        file.write("peak 1KiB\nleak 0B\nasleep 1GiB\n")
    yield run("dryrun", "--batch=8,16", "--budget=1GiB", "--json", "--", job, "mib={batch}", cwd=work)
    yield run("dryrun", "--budget=1MiB", "--budgets=" + budgets, "--json", "--", os.path.join(BUILD, "examples", "train_rt"), "--steps", "5", cwd=work)
    yield run("report", made, failed, "--json")
    for job in "leaks", "unmarked":
        folder = os.path.join(work, job)
        os.mkdir(folder)
        subprocess.run([os.path.join(BUILD, "tests", "jobs", "mkranks"), folder, "8", "2000", job], check=True)
        with open(os.path.join(folder, "damaged.gpuprof"), "w", encoding="utf-8") as file:
            file.write("no recording")
        os.unlink(os.path.join(folder, "run.rank6.gpuprof"))
        yield run("leaks", folder, "--json")


def of_processes():
    """A program that runs."""
    program = subprocess.Popen(
        [GPUPROF, "run", "--sim", "--stacks=all", "--", os.path.join(BUILD, "examples", "leak_rt"), "--steps", "100000", "--pace", "20"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        pid = None
        for _ in range(100):
            found = documents(run("stat", "--all", "--json") or "{}")
            pids = [row["pid"] for document in found for row in document.get("processes", []) if row["comm"] == "leak_rt"]
            children = [pid for pid in pids if parent(pid) == program.pid]
            if children:
                pid = str(children[0])
                break
        if pid:
            yield run("stat", "-p", pid, "--json")
            yield run("scope", "begin", "x", "-p", pid, "--json")
            yield run("top", "--once", "--json", "-p", pid)
            for by in "device", "site", "owner":
                yield run("top", "--once", "--by", by, "--json", "-p", pid)
            yield run("stat", "-p", pid, "--json")
            yield run("scope", "list", "-p", pid, "--json")
            yield run("reset", "--peaks", "-p", pid, "--json")
            yield run("stacks", "all", "-p", pid, "--json")
            yield run("reconcile", "-p", pid, "--duration", "1", "--json")
    finally:
        program.send_signal(signal.SIGTERM)
        program.wait()
    yield run("doctor", "--json")
    # The program writes to the same output: its lines may stand in the middle of the command's.
    quiet = f"exec '{os.path.join(BUILD, 'examples', 'leak_rt')}' --steps 2 --pace 0 >/dev/null"
    yield run("trace", "--sim", "--json", "--", "sh", "-c", quiet)


TESTS = """
import pytest
from gpu import Tensor, start

@pytest.mark.limit_gpu_memory("1 MiB")
def test_over():
    start()
    held = Tensor(2)

def test_plain():
    pass

class TestMore:
    @pytest.mark.limit_gpu_leaks("1 MiB")
    @pytest.mark.skip
    def test_skipped(self):
        pass
"""


def of_tests(work):
    """What the plugin for pytest writes: of tests that are profiled, and that are not."""
    if subprocess.run([sys.executable, "-m", "pytest", "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        print("pytest is not installed: what its plugin writes was not checked")
        return
    with open(os.path.join(work, "test_case.py"), "w", encoding="utf-8") as file:
        file.write(TESTS)
    paths = os.path.join(TREE, "python") + ":" + os.path.join(TREE, "examples")
    environment = dict(os.environ, PYTHONPATH=paths, PYTHONDONTWRITEBYTECODE="1")
    environment.pop("CUDA_INJECTION64_PATH", None)
    out = os.path.join(work, "tests.json")
    command = [sys.executable, "-m", "pytest", "-p", "gpuprof.pytest_plugin", "-p", "no:cacheprovider", "--gpuprof-json=" + out, "test_case.py"]
    for how in [GPUPROF, "run", "--sim", "--"], []:
        subprocess.run(how + command, cwd=work, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=120)
        with open(out, encoding="utf-8") as file:
            yield file.read()
        os.unlink(out)


def parent(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rsplit(")", 1)[1].split()[1])
    except (OSError, IndexError):
        return 0


def path_of(name):
    return os.path.join(FOLDER, re.sub(r"^gpuprof\.(.*)/(\d+)$", r"\1-\2.json", name))


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def save(path, schema, name):
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": name}
    os.makedirs(FOLDER, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump({**head, **schema}, file, indent=1)
        file.write("\n")


def main():
    seen, files, passed, failed, wrong = {}, {}, 0, 0, set()
    with tempfile.TemporaryDirectory(prefix="gpuprof-schema-") as work:
        for source in of_recordings(work), of_processes(), of_tests(work):
            for text in source:
                problems = []
                for document in documents(text):
                    name = document.get("schema")
                    seen[name] = seen.get(name, 0) + 1
                    if name and name not in files:
                        files[name] = load(path_of(name)) if os.path.exists(path_of(name)) else None
                    if name and UPDATE:
                        files[name] = widened(files[name], document)
                        files[name]["properties"]["schema"] = {"const": name}
                    if not files.get(name):
                        problems.append(f"{name}: has no schema in docs/schema")
                    else:
                        validate(files[name], document, name, problems)
                passed, failed = passed + (not problems), failed + bool(problems)
                wrong |= set(problems)
    for name, schema in files.items() if UPDATE else ():
        save(path_of(name), schema, name)
    # The validator itself must refuse.
    schema = load(path_of("gpuprof.peak/1"))
    for document in {}, {"schema": "gpuprof.peak/2", "devices": []}, {"schema": "gpuprof.peak/1", "devices": 3}, {"schema": "gpuprof.peak/1", "devices": [], "x": 1}:
        problems = []
        validate(schema, document, "", problems)
        if problems:
            passed += 1
        else:
            failed += 1
            wrong.add(f"{document}: should be refused")
    for problem in sorted(wrong)[:60]:
        print(problem)
    if failed:
        print("if these changes are meant: python3 tests/integration/schemas.py BUILD_DIR --update")
    print(", ".join(f"{count} {name}" for name, count in sorted(seen.items(), key=str)))
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed > 0


sys.exit(main())
