# SPDX-License-Identifier: MIT
"""Tests of `gpuprof diff`, `check` and `run --budget`.  gate.py BUILD_DIR; called by test_gate.sh.

A small training program is recorded on the simulated GPU, in several folders, versions of itself and
of Python; what the commands say of it is compared with what was changed."""
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
import xml.etree.ElementTree

BUILD = os.path.abspath(sys.argv[1])
HERE = os.path.dirname(os.path.abspath(__file__))
GPUPROF = os.path.join(BUILD, "bin", "gpuprof")
MIB = 1 << 20

# The program; the module of its own allocator is gate_tensor.py.
TRAIN = '''
from lib.gpu import Tensor

class Model:
    def __init__(self):
        self.weights = [Tensor(4) for _ in range(3)]
        self.buffer = Tensor(2)

    def forward(self):
        kept = []
        for _ in self.weights:
            kept.append(Tensor(8))
        mask = Tensor(1)
        return kept

def backward(kept):
    gradient = Tensor(8)
    while kept:
        kept.pop()
    return gradient

def main():
    model = Model()
    for _ in range(4):
        gradient = backward(model.forward())

main()
'''


def run(*command, cwd=None, env=None, status=0):
    result = subprocess.run(
        command, cwd=cwd, env=dict(os.environ, **(env or {})), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert result.returncode == status, f"{command}: status {result.returncode}, not {status}\n{result.stdout}{result.stderr}"
    return result


def gpuprof(*arguments, **more):
    return run(GPUPROF, *arguments, **more)


class Programs:
    """Records versions of the program, each in a folder of its own."""

    def __init__(self, work):
        self.work = work
        self.count = 0

    def record(self, text=TRAIN, python=sys.executable, below="p", script="train.py"):
        self.count += 1
        folder = os.path.join(self.work, str(self.count), below)
        os.makedirs(os.path.join(folder, "lib"))
        shutil.copy(os.path.join(HERE, "gate_tensor.py"), os.path.join(folder, "lib", "gpu.py"))
        with open(os.path.join(folder, script), "w", encoding="utf-8") as file:
            file.write(text)
        out = os.path.join(self.work, f"{self.count}.gpuprof")
        gpuprof("run", "--sim", f"--record={out}", "--", python, script, cwd=folder)
        return out


def line_of(text, part):
    return text[: text.index(part)].count("\n") + 1


def verdict(before, after, *arguments, status=0):
    return json.loads(gpuprof("diff", before, after, "--json", *arguments, status=status).stdout)


# ---- tests -----------------------------------------------------------------------------------------------------------


def test_same_program_in_another_folder(programs):
    """Every row is in both recordings, and none differs."""
    before, after = programs.record(), programs.record(below="else/where")
    for by in "site", "line", "operation", "use":
        found = verdict(before, after, f"--by={by}", "--max-growth=0")
        assert found["verdict"]["ok"] and found["note"] is None
        for row in found.get("sites") or found["rows"]:
            assert row["most_bytes"][0] == row["most_bytes"][1] > 0, row


def test_same_program_in_another_python(programs):
    """Python until 3.10 knows no classes of functions, and from 3.12 on comprehensions have no frame."""
    before, tried = programs.record(), 0
    for python in pythons():
        tried += 1
        after = programs.record(python=python)
        for pair in (before, after), (after, before):
            found = verdict(*pair, "--by=line", "--max-growth=0")
            assert found["verdict"]["ok"], f"{python}: {found['verdict']['sentence']}"
            assert all(row["most_bytes"][0] for row in found["rows"]), f"{python}: {found['rows']}"
    return None if tried else "no other Python"


def test_a_line_that_allocates_more_is_named(programs):
    """Whether the peak moves or not: the mask of a step is gone before it."""
    before = programs.record()
    for part in "Tensor(2)", "mask = Tensor(1)":
        changed = TRAIN.replace(part, part.replace("(2)", "(3)").replace("(1)", "(2)"))
        after = programs.record(changed)
        found = verdict(before, after, "--by=line", "--max-growth=512K", status=3)["verdict"]
        broken = [check for check in found["checks"] if not check["ok"] and check["kind"] == "line"]
        assert [check["culprit"]["line"] for check in broken] == [line_of(TRAIN, part)], broken
        assert broken[0]["bytes"] == MIB and broken[0]["culprit"]["file"].endswith("/train.py")
        verdict(before, after, "--by=line", "--max-growth=1MiB")
        verdict(before, after, "--by=line", "--error-exitcode=7", status=7)


def test_a_line_that_is_inserted_is_named(programs):
    """Its neighbours have moved, and keep their memory.  (Of two lines that allocate the same, none can be told to be new.)"""
    before = programs.record()
    places = ["        kept = []\n", "        mask = Tensor(1)\n", "        self.buffer = Tensor(2)\n", "    gradient = Tensor(8)\n"]
    for place in places:
        indent = place[: len(place) - len(place.lstrip())]
        for changed in TRAIN.replace(place, f"{place}{indent}extra = Tensor(1.25)\n"), TRAIN.replace(
            place, f"{indent}extra = Tensor(1.25)\n{place}"
        ):
            after = programs.record(changed)
            found = verdict(before, after, "--by=line", "--max-growth=512K", status=3)["verdict"]
            lines = [check["culprit"]["line"] for check in found["checks"] if check["kind"] == "line" and not check["ok"]]
            assert lines == [line_of(changed, "extra")], f"{place!r}: {lines}"


def test_names_that_changed(programs):
    """A function, a class or a file with another name is the same; what grew in it is named."""
    before = programs.record()
    for name in "forward", "backward", "Model", "main", "buffer":
        changed = re.sub(rf"\b{name}\b", name + "_2", TRAIN)
        found = verdict(before, programs.record(changed), "--by=line", "--max-growth=0")["verdict"]
        assert found["ok"], f"{name}: {found['sentence']}"
    assert verdict(before, programs.record(script="job.py"), "--by=line", "--max-growth=0")["verdict"]["ok"]
    changed = TRAIN.replace("forward", "ahead").replace("Tensor(1)", "Tensor(3)")
    found = verdict(before, programs.record(changed, script="job.py"), "--by=line", "--max-growth=512K", status=3)["verdict"]
    broken = [check["culprit"] for check in found["checks"] if not check["ok"] and check["kind"] == "line"]
    assert [row["line"] for row in broken] == [line_of(changed, "Tensor(3)")] and broken[0]["file"].endswith("job.py"), found


def test_functions_in_another_order(programs):
    """Of two classes that both have the method, which one line calls."""
    other = "class Other:\n    def forward(self):\n        mask = Tensor(3)\n        return [Tensor(5), Tensor(9)]\n\n"
    text = TRAIN.replace("        gradient = backward(model", "        for part in model, Other():\n            gradient = backward(part")
    found = verdict(*(programs.record(text.replace(place, other + place)) for place in ("class Model", "def backward")), "--by=line", "--max-growth=0")
    assert found["verdict"]["ok"], found["verdict"]["sentence"]


def test_the_peak_of_the_device(programs):
    """Without --by, the peak alone is a question; percentages are of the peak before."""
    before = programs.record()
    after = programs.record(TRAIN.replace("Tensor(4)", "Tensor(5)"))
    found = verdict(before, after, "--max-growth=2MiB", status=3)["verdict"]
    assert found["checks"][0]["bytes"] == 3 * MIB and found["culprit"]["line"] == line_of(TRAIN, "Tensor(4)")
    assert found["peak_bytes"] - found["budget_bytes"] == MIB
    verdict(before, after, "--max-growth=3MiB")
    peak = found["checks"][0]["before_bytes"]
    verdict(before, after, f"--max-growth={300 * MIB / peak + 0.1:.1f}%")
    verdict(before, after, f"--max-growth={300 * MIB / peak - 0.1:.1f}%", status=3)
    verdict(after, before, "--error-exitcode=1")
    verdict(before, after)  # no question, no answer


def test_annotations_and_junit(programs):
    """GitHub's workflow shows the line; JUnit's file has a case for each question."""
    before = programs.record()
    after = programs.record(TRAIN.replace("Tensor(2)", "Tensor(3)"))
    junit = os.path.join(programs.work, "junit.xml")
    result = gpuprof(
        "diff", before, after, "--by=line", "--max-growth=0", f"--junit={junit}",
        env={"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": os.path.join(programs.work, "2", "p")}, status=3,
    )  # fmt: skip
    line = line_of(TRAIN, "Tensor(2)")
    assert f"::error file=train.py,line={line},title=GPU memory::" in result.stderr, result.stderr
    suites = xml.etree.ElementTree.parse(junit).getroot()
    cases = suites.findall("./testsuite/testcase")
    assert len(cases) == int(suites.get("tests")) and int(suites.get("failures")) == 2
    assert all(set(case.keys()) <= {"classname", "name"} for case in cases), "what strict readers allow"
    failures = [case.find("failure") for case in cases if "line" in case.get("classname")]
    assert [failure.text.endswith(f"train.py:{line}") for failure in failures if failure is not None] == [True]
    result = gpuprof("diff", before, after, "--max-growth=0", "--junit=/nowhere/x.xml", status=1)
    assert "/nowhere/x.xml" in result.stderr


def test_says_why_nothing_matches(programs):
    """Another program, and one without stacks."""
    before = programs.record()
    after = programs.record(re.sub(r"\b(main|backward|forward|Model)\b", r"other_\1", TRAIN))
    gpuprof("diff", before, after)  # the constructor alone is in both
    bare = os.path.join(programs.work, "bare.gpuprof")
    gpuprof("run", "--sim", "--stacks=off", f"--record={bare}", "--", sys.executable, "train.py", cwd=os.path.join(programs.work, "1", "p"))
    assert "has no call sites" in gpuprof("diff", before, bare).stdout
    assert "has no call sites" in verdict(bare, before)["note"]


def test_wrong_limits(programs):
    for wrong in "x", "-1", "5%%", "%", "1e3%", "":
        assert "max-growth" in gpuprof("diff", "a", "b", f"--max-growth={wrong}", status=2).stderr


# ---- budgets


def check(file, budgets, programs, status=0):
    """The findings for a file of budgets, by kind."""
    path = os.path.join(programs.work, "budgets")
    with open(path, "w", encoding="utf-8") as out:
        out.write(budgets)
    found = json.loads(gpuprof("check", file, f"--budgets={path}", "--json", status=status).stdout)
    assert found["schema"] == "gpuprof.check/1" and found["ok"] == (status == 0)
    return found


def test_budgets_at_their_limits(programs):
    """Each budget holds at its size, and is broken one byte below."""
    recording = programs.record()
    peak = 3 * 4 + 2 + 3 * 8 + 2 * 8  # weights, buffer, activations, the gradient, and that of the step before
    for budget, mib, line in (
        ("peak", peak, "append(Tensor(8))"),
        ("reserved", peak, None),
        ("line train.py:6", 12, "Tensor(4)"),
        ("line __init__", 14, "Tensor(4)"),
    ):
        found = check(recording, f"{budget} {mib * MIB}B\n", programs)
        assert not mib or found["peak_bytes"] == mib * MIB, (budget, found)
        if mib:
            found = check(recording, f"{budget} {mib * MIB - 1}B\n", programs, status=3)
            assert found["budget_bytes"] == mib * MIB - 1
            assert (found["culprit"] or {}).get("line") == (line and line_of(TRAIN, line)), (budget, found)


def test_budget_of_one_rank(programs):
    """Only the recording of that rank has it."""
    files = []
    for rank in "0", "1":
        programs.record()
        folder = os.path.join(programs.work, str(programs.count), "p")
        file = os.path.join(programs.work, f"job{rank}.gpuprof")
        gpuprof("run", "--sim", "--record=" + file.replace(".gpuprof", ".%p.gpuprof"), "--", sys.executable, "train.py", cwd=folder,
                env={"RANK": rank, "WORLD_SIZE": "2"})  # fmt: skip
        files += [os.path.join(programs.work, name) for name in os.listdir(programs.work) if name.startswith(f"job{rank}.")]
    budgets = os.path.join(programs.work, "b")
    with open(budgets, "w", encoding="utf-8") as out:
        out.write("rank 1 1MiB # the second\n\nrank 7 0B\n")
    found = json.loads(gpuprof("check", *files, f"--budgets={budgets}", "--json", status=3).stdout)
    assert [(row["what"], row["rank"]) for row in found["checks"]] == [("the peak of rank 1, device 0", 1), ("rank 7", None)], found
    assert "rank 1" in found["sentence"]
    # A rank of the job that is in another recording is no mistake, and a line is in one of them.
    with open(budgets, "w", encoding="utf-8") as out:
        out.write("rank 1 1GiB\nline train.py:6 1GiB\n")
    other = programs.record("import sys\nsys.path.insert(0, 'lib')\nfrom gpu import Tensor\nkept = Tensor(1)\n")
    gpuprof("check", files[0], other, f"--budgets={budgets}")
    gpuprof("check", other, f"--budgets={budgets}", status=3)


def snapshot_of_a_line(path, file="nn/functional.py", blocks=(("softmax", 2 * MIB), ("linear", 8 * MIB))):
    """A snapshot of PyTorch: one line of a program holds the memory of two operations."""
    traces, segments = [], []
    for number, (operation, size) in enumerate(blocks):
        frames = [{"name": operation, "filename": f"/usr/lib/python3/site-packages/torch/{file}", "line": 12},
                  {"name": "validate", "filename": "/home/u/train.py", "line": 35}]  # fmt: skip
        place = {"addr": 0x7F0000000000 + number * 64 * MIB, "size": size, "stream": 0, "frames": frames}
        traces += [{"action": action, "time_us": number, **place} for action in ("segment_alloc", "alloc")]
        block = {"size": size, "requested_size": size, "address": place["addr"], "state": "active_allocated", "frames": frames}
        segments.append({"device": 0, "address": place["addr"], "total_size": size, "allocated_size": size, "active_size": size,
                         "stream": 0, "segment_type": "large", "blocks": [block]})  # fmt: skip
    with open(path, "wb") as out:
        pickle.dump({"segments": segments, "device_traces": [traces]}, out)


def test_operations_of_a_line(programs):
    """None of them stands for the line: the line has its bytes, and each operation its own."""
    file = os.path.join(programs.work, "line.pickle")
    snapshot_of_a_line(file)
    culprit = check(file, "peak 1MiB\n", programs, status=3)["culprit"]
    assert culprit["name"] == "validate (train.py:35)" and culprit["bytes"] == 10 * MIB, culprit
    assert (culprit["operation"], culprit["operation_bytes"]) == ("linear", 8 * MIB), culprit
    said = gpuprof("check", file, "--budget=1MiB", status=3).stdout
    assert "most is held by validate (train.py:35): 10.00 MiB, of which linear 8.000 MiB\n" in said, said
    for budget, size in ("operation softmax", 2), ("operation lin*", 8), ("line train.py:35", 10):
        assert check(file, f"{budget} {size * MIB}B\n", programs)["checks"][0]["bytes"] == size * MIB
        check(file, f"{budget} {size * MIB - 1}B\n", programs, status=3)


def test_uses_have_the_words_of_other_texts(programs):
    """The JSON has the key of the use."""
    files = [os.path.join(programs.work, name) for name in ("adam.pickle", "more.pickle")]
    for file, size in zip(files, (8 * MIB, 12 * MIB)):
        snapshot_of_a_line(file, "optim/adam.py", [("step", size)])
    said = gpuprof("diff", *files, "--by=use", "--max-growth=1MiB", status=3).stdout
    assert "+4.000 MiB  optimizer state\n" in said and "use optimizer state grew by 4.000 MiB" in said, said
    assert [row["name"] for row in json.loads(gpuprof("diff", *files, "--by=use", "--json").stdout)["rows"]] == ["optimizer"]
    assert check(files[0], "use kv_cache 1MiB\n", programs)["checks"][0]["what"] == "the memory of use KV cache"
    assert "Because: 1 step is too few to see growth" in gpuprof("explain", files[0]).stdout


def test_budgets_in_percent(programs):
    """Of the memory of each GPU, which a recording has and a snapshot has not."""
    file = programs.record()
    total = json.loads(gpuprof("report", "--json", file).stdout)["devices"][0]["total_bytes"]
    for budget in "peak 0.5%\n", "reserved 50%\n", "end 12.5%\n":
        part = total * float(budget.split()[1].rstrip("%")) / 100
        assert check(file, budget, programs)["checks"][0]["limit_bytes"] == int(part), budget
    budgets = os.path.join(programs.work, "percent")
    with open(budgets, "w", encoding="utf-8") as out:
        out.write("use weights 50%\n")
    assert "a percentage is of a GPU's memory" in gpuprof("check", file, f"--budgets={budgets}", status=2).stderr
    assert "within its budget" in gpuprof("check", file, "--budget=50%").stdout
    gpuprof("check", file, "--budget=0.0001%", status=3)
    snapshot = os.path.join(programs.work, "percent.pickle")
    snapshot_of_a_line(snapshot)
    found = json.loads(gpuprof("check", snapshot, "--budget=80%", "--json", status=3).stdout)
    assert found["budget_bytes"] is None and "80 % of the memory of device 0 is not known" in found["sentence"], found
    assert check(snapshot, "peak 10.5 MiB\n", programs)["checks"][0]["limit_bytes"] == 10.5 * MIB


def test_budgets_that_match_nothing(programs):
    """A name that is in no recording, as a mistyped one, is not within its budget."""
    recording = programs.record()
    junit = os.path.join(programs.work, "none.xml")
    path = os.path.join(programs.work, "budgets")
    for budget in "line tarin.py:6", "line lib/gpu.py", "operation cros_entropy*", "phase foward", "rank 0":
        found = check(recording, f"{budget} 1GiB\npeak 1GiB\n", programs, status=3)
        [row] = [row for row in found["checks"] if not row["ok"]]
        assert row["what"] == budget and row["bytes"] is None and row["limit_bytes"] == 1 << 30, row
        assert found["sentence"] == row["sentence"] and "is the name right?" in row["sentence"]
        text = gpuprof("check", recording, f"--budgets={path}", f"--junit={junit}", "--error-exitcode=7", status=7).stdout
        assert "NONE  " + budget in text and "ok    the peak" in text, text
        assert xml.etree.ElementTree.parse(junit).getroot().get("failures") == "1"
        folder = os.path.join(programs.work, "1", "p")
        for command in ("run", "--sim"), ("dryrun", "--gpu=t4"):
            result = gpuprof(*command, f"--budgets={path}", "--", sys.executable, "train.py", cwd=folder, status=3)
            assert "NONE  " + budget in result.stderr + result.stdout


def test_leak_per_step(programs):
    """Memory that is kept with every step, by the line that keeps it."""
    changed = TRAIN.replace("range(4)", "range(30)").replace("    model = Model()\n", "    model = Model()\n    kept = []\n").replace(
        "        gradient =", "        kept.append(Tensor(0.5))\n        gradient ="
    )
    recording = programs.record(changed)
    found = check(recording, "leak 0B\n", programs, status=3)
    assert found["culprit"]["line"] == line_of(changed, "kept.append(Tensor(0.5))"), found
    assert abs(found["peak_bytes"] - MIB / 2) < MIB / 20
    check(recording, "leak 1MiB\n", programs)
    unknown = check(programs.record(), "leak 0B\n", programs)["checks"][0]
    assert unknown["bytes"] in (None, 0)


def test_wrong_budgets(programs):
    """A mistake is reported with its line, before anything runs."""
    path = os.path.join(programs.work, "budgets")
    for text in "peak", "peak x", "x 1MiB", "line 1MiB", "peak device 1MiB", "use nothing 1MiB", "rank x 1MiB", "x" * 2000, "peak -1":
        with open(path, "w", encoding="utf-8") as out:
            out.write("# first\n" + text + "\n")
        for command in ("check", "x.gpuprof"), ("run", "--sim", "--", "false"):
            result = gpuprof(command[0], f"--budgets={path}", *command[1:], status=2)
            assert "line 2" in result.stderr, result.stderr
    assert "cannot be read" in gpuprof("check", "x.gpuprof", "--budgets=/nowhere", status=1).stderr
    gpuprof("check", "x.gpuprof", status=2)


def test_run_with_a_budget(programs):
    """The verdict follows the program; its own failure goes first; no recording is left behind."""
    programs.record()
    folder = os.path.join(programs.work, "1", "p")
    temporary = os.path.join(programs.work, "tmp")
    os.mkdir(temporary)
    more = {"cwd": folder, "env": {"TMPDIR": temporary}}
    junit = os.path.join(programs.work, "run.xml")
    gpuprof("run", "--sim", "--budget=1GiB", "--", sys.executable, "train.py", **more)
    result = gpuprof("run", "--sim", "--budget=40MiB", f"--junit={junit}", "--", sys.executable, "train.py", status=3, **more)
    assert "OVER" in result.stderr and "train.py:" in result.stderr and "recorded" not in result.stderr
    assert xml.etree.ElementTree.parse(junit).getroot().get("failures") == "1"
    gpuprof("run", "--sim", "--budget=40MiB", "--", sys.executable, "-c", "import train; raise SystemExit(5)", status=5, **more)
    assert "not checked" in gpuprof("run", "--sim", "--budget=1GiB", "--", "true", status=1, **more).stderr
    assert os.listdir(temporary) == []


def test_dryrun_with_budgets(programs):
    """As options of `dryrun`: --budget of what the GPU must have, --budgets of the program."""
    programs.record()
    folder = os.path.join(programs.work, "1", "p")
    budgets, junit = os.path.join(programs.work, "b"), os.path.join(programs.work, "dry.xml")
    command = ["dryrun", "--gpu=t4", f"--budgets={budgets}", f"--junit={junit}", "--json", "--", sys.executable, "train.py"]
    for size, status in ("40MiB", 3), ("60MiB", 0):
        with open(budgets, "w", encoding="utf-8") as out:
            out.write(f"peak {size}\n")
        result = gpuprof(*command, cwd=folder, env={"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": folder}, status=status)
        found = json.loads(result.stdout)["verdict"]
        assert found["ok"] == (status == 0) and [row["kind"] for row in found["checks"]] == ["peak"], found
        assert ("::error file=train.py,line=" in result.stderr) == (status == 3), result.stderr
        assert xml.etree.ElementTree.parse(junit).getroot().get("failures") == str(int(status == 3))
    found = json.loads(gpuprof(*command[:2], "--budget=64MiB", *command[2:], cwd=folder, status=3).stdout)["verdict"]
    assert found["budget_bytes"] == 64 * MIB and found["culprit"]["line"] == line_of(TRAIN, "append(Tensor(8))"), found
    with open(budgets, "w", encoding="utf-8") as out:
        out.write("nothing\n")
    gpuprof(*command, cwd=folder, status=2)


# ---- explain


def explained(file):
    text = gpuprof("explain", file, "--json").stdout
    assert len(text.encode()) <= 2048, f"{file}: {len(text.encode())} bytes"
    found = json.loads(text)
    assert found["schema"] == "gpuprof.explain/1"
    assert len(gpuprof("explain", file).stdout.encode()) <= 2048
    return found


def test_explain(programs):
    """How much, when, who, what grows, what would help, how sure."""
    changed = TRAIN.replace("range(4)", "range(30)").replace("    model = Model()\n", "    model = Model()\n    kept = []\n").replace(
        "        gradient =", "        kept.append(Tensor(0.5))\n        gradient ="
    )
    found = explained(programs.record(changed))
    assert (54 + 14) * MIB <= found["peak_bytes"] <= (54 + 15) * MIB and found["end_bytes"] == 0 and found["device"] == 0
    assert found["who"][0]["name"].startswith("Model.forward") and found["who"][0]["bytes"] == 24 * MIB
    place = f"train.py:{line_of(changed, 'kept.append(Tensor(0.5))')}"
    assert place in found["grows"][0]["name"] and place in found["helps"][0], found
    # No framework is on the stacks, so nothing is weights or activations, and what grows is no cache.
    assert set(found["uses"]) == {"grows", "unknown"} and found["uses"]["grows"] >= 14 * MIB, found["uses"]
    assert found["failed"] is None and found["sure"] == "partly" and found["sure_of"] == ["the peak", "who held it", "what grows"], found
    assert found["not_sure_of"] == ["what it was for"]
    found = explained(programs.record())
    assert found["sure"] == "partly" and found["grows"] == []
    # Of every recording that there is: in 2 KB, and about the memory that `peak` has.
    folder = os.path.join(HERE, "..", "golden", "recordings")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".gpuprof"):
            found = explained(os.path.join(folder, name))
            peaks = json.loads(gpuprof("peak", os.path.join(folder, name), "--json").stdout)["devices"]
            assert found["peak_bytes"] == max([device["bytes"] for device in peaks if device["device"] != "host"], default=0), name


def test_explain_a_failure(programs):
    programs.record(TRAIN.replace("Tensor(2)", "Tensor(12)"))
    out = os.path.join(programs.work, "oom.gpuprof")
    gpuprof("run", "--sim=memory=64MiB", f"--record={out}", "--", sys.executable, "train.py", cwd=os.path.join(programs.work, "1", "p"), status=1)
    found = explained(out)
    assert found["failed"]["asked_bytes"] == MIB and found["failed"]["device"] == 0, found  # the mask
    said = gpuprof("explain", out).stdout
    assert "Failed: a request for 1.000 MiB on device 0 after " in said and "the page" not in said, said


def write(path, text):
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)


TWO_GPUS = """
import ctypes
cuda, context, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
def take(device, mib):
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0 and cuda.cuCtxSetCurrent(context) == 0
    return cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(mib << 20))
assert take(0, 800) == 0 and take(1, 600) == 0 and take(1, 600) != 0
"""


def test_explain_the_gpu_that_failed(programs):
    """The other GPU has the higher peak."""
    script, out = os.path.join(programs.work, "two.py"), os.path.join(programs.work, "two.gpuprof")
    write(script, TWO_GPUS)
    gpuprof("run", "--sim=memory=1GiB,devices=2", "--stacks=all", f"--record={out}", "--", sys.executable, script)
    found = explained(out)
    assert found["device"] == 1 and found["peak_bytes"] == 600 * MIB, found
    assert found["failed"]["device"] == 1 and found["failed"]["asked_bytes"] == 600 * MIB and "two.py:" in found["failed"]["name"]
    assert "out of memory on device 1 at " in gpuprof("report", out).stdout


def test_explain_failures_of_other_files(programs):
    """A snapshot of PyTorch and a log of RMM have their failures in their traces alone."""
    out = os.path.join(programs.work, "oom.json")
    frames = [{"name": "forward", "filename": "/home/u/train.py", "line": 9}]
    block = {"address": 1 << 32, "size": 600 * MIB, "requested_size": 600 * MIB, "state": "active_allocated", "frames": frames}
    segment = {"device": 1, "address": 1 << 32, "total_size": 600 * MIB, "allocated_size": 600 * MIB, "active_size": 600 * MIB,
               "requested_size": 600 * MIB, "stream": 0, "segment_type": "large", "blocks": [block]}
    trace = [{"action": "alloc", "addr": 1 << 32, "size": 600 * MIB, "stream": 0, "time_us": 5, "frames": frames},
             {"action": "oom", "addr": MIB, "size": 4096 * MIB, "stream": 0, "time_us": 9, "frames": frames}]
    write(out, json.dumps({"segments": [segment], "device_traces": [[], trace]}))
    found = explained(out)
    assert found["failed"] and found["failed"]["device"] == 1 and found["failed"]["asked_bytes"] == 4096 * MIB, found
    assert found["failed"]["name"].startswith("forward (train.py:9)") and found["device"] == 1
    out = os.path.join(programs.work, "oom.csv")
    write(out, "Thread,Time,Action,Pointer,Size,Stream\n7,10:00:00:000001,allocate,0x7f1000000000,1048576,0x0\n"
               "7,10:00:00:000005,allocate failure,0x0,4294967296,0x0\n")
    found = explained(out)
    assert found["failed"] and found["failed"]["asked_bytes"] == 4096 * MIB and found["failed"]["name"] is None, found
    assert found["uses"] == {"unknown": MIB}, found
    said = gpuprof("explain", out).stdout
    assert "Failed: a request for 4.000 GiB on device 0 after " in said and "--stacks" not in said and "Grows: not known." in said, said


# ---- the runner ------------------------------------------------------------------------------------------------------


def pythons():
    """Other versions than this one, that work."""
    seen = {sys.version_info[:2]}
    folders = os.environ.get("PATH", "").split(":") + [
        os.path.join(root, name, "bin")
        for root in [os.path.expanduser("~/.pyenv/versions")]
        if os.path.isdir(root)
        for name in os.listdir(root)
    ]
    for minor in range(10, 15):
        for folder in folders:
            path = os.path.join(folder, f"python3.{minor}")
            if (3, minor) in seen or not os.access(path, os.X_OK):
                continue
            if subprocess.run([path, "-c", "import ctypes"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                seen.add((3, minor))
                yield path


def main():
    tests = {name: function for name, function in globals().items() if name.startswith("test_")}
    passed = failed = skipped = 0
    for name, function in tests.items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        work = tempfile.mkdtemp(prefix="gpuprof-gate-")
        try:
            why = function(Programs(work))
        except Exception:  # pylint: disable=broad-except
            failed += 1
            print(f"FAILED {name}")
            traceback.print_exc(file=sys.stdout)
        else:
            passed += why is None
            skipped += why is not None
            print(f"{'ok' if why is None else 'skipped'} {name} {why or ''}")
        finally:
            shutil.rmtree(work, ignore_errors=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed > 0


sys.exit(main())
