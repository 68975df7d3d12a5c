# SPDX-License-Identifier: MIT
"""Changes of training scripts that `gpuprof diff` must name, and others that it must not accuse.

    gate_mutants.py BUILD_DIR [--count N] [--runs N] [--seed N] [--first N] [--keep DIR]

Each script is made at random, and one change of it.  Half of the changes need more memory: a bigger tensor, another
dtype, a new line, a tensor that is kept longer, a bigger batch, a list that grows, more state of the optimizer.  The
others need the same: lines move, names change, comments and other code come in, or nothing changes at all.  Old and new
are recorded as often as --runs says, in folders of different names, and `diff --by=line --max-growth=512KiB` is asked
about each pair.

The scripts allocate with the driver's calls and keep account of each line's memory themselves (gate_tensor.py): the
lines that `diff` names must be exactly those that hold more."""
import argparse
import collections
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20
LIMIT = MIB // 2
AT_ONCE = 48  # scripts that one process runs

# Runs each script in a child: a fork before the first use of CUDA.
DRIVER = """
import json, os, runpy, sys
for script in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        out = os.path.dirname(os.path.dirname(script))
        os.environ["GPUPROF_RECORD"] = out + ".gpuprof"
        sys.path.insert(0, os.path.dirname(script))
        runpy.run_path(script, run_name="__main__")
        with open(out + ".json", "w") as file:
            json.dump(sys.modules["memory"].most, file)
        sys.stdout.flush()
        sys.exit(0)
    status = os.waitpid(child, 0)[1]
    if status:
        sys.exit(f"{script}: status {status}")
"""


class Line:
    """A line of a script.  It stays the same object when it moves or its text changes."""

    def __init__(self, text, kind="", **more):
        self.text, self.kind, self.more = text, kind, more

    def indent(self):
        return self.text[: len(self.text) - len(self.text.lstrip())]

    def copy(self):
        return Line(self.text, self.kind, **self.more)


class Script:
    """Lines in parts: a part is a function or class, and may stand anywhere between the first and the last one."""

    def __init__(self, dice):
        self.dice, self.parts = dice, [[]]

    def part(self):
        self.parts.append([])

    def add(self, text, kind="", **more):
        line = Line(text, kind, **more)
        self.parts[-1].append(line)
        return line

    def lines(self):
        return [line for part in self.parts for line in part]

    def of(self, *kinds):
        return [line for line in self.lines() if line.kind in kinds]

    def insert(self, beside, text, after=False):
        for part in self.parts:
            if beside in part:
                line = Line(text, "new")
                part.insert(part.index(beside) + after, line)
                return line
        raise AssertionError(beside.text)

    def copy(self):
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__, twin={}, origin=self)
        other.parts = [[line.copy() for line in part] for part in self.parts]
        for old, new in zip(self.lines(), other.lines()):
            other.twin[new] = old
        return other

    def numbers(self):
        """The line at which each begins in the file."""
        at, numbers = 1, {}
        for line in self.lines():
            numbers[line] = at
            at += line.text.count("\n") + 1
        return numbers

    def text(self):
        return "\n".join(line.text for line in self.lines()) + "\n"

    # ---- changes that need no memory

    def same(self):
        pass

    def comments(self):
        for _ in range(self.dice.randint(1, 9)):
            line = self.dice.choice(self.lines())
            self.insert(line, self.dice.choice(["", line.indent() + "# a comment", line.indent() + "# " + line.text.strip()]))

    def reorder(self):
        middle = self.parts[1:-1]
        self.dice.shuffle(middle)
        self.parts[1:-1] = middle

    def unrelated(self):
        self.parts.insert(1, [Line(text) for text in ("def describe(things):", "    return {str(thing): len(things) for thing in things}", "")])
        for line in self.of("unrelated"):
            self.insert(line, line.indent() + self.dice.choice(["describe([1, 2])", "text = 'x' * 100", "rows = [i * i for i in range(10)]"]))

    def replace(self, names, suffix):
        names = [name for name in names if any(name in line.text for line in self.lines())]
        for name in self.dice.sample(names, self.dice.randint(1, len(names))):
            for line in self.lines():
                line.text = line.text.replace(name, name + suffix)

    def rename_variables(self):
        return self.replace(self.variables, "2")

    def rename_functions(self):
        return self.replace(self.functions, "_new")

    def wrap(self):
        """As a formatter breaks a long call."""
        for line in self.of("alloc"):
            if self.dice.random() < 0.5 and line.text.endswith(")") and "\n" not in line.text:
                at = line.text.rindex("(") + 1
                line.text = f"{line.text[:at]}\n{line.indent()}    {line.text[at:-1]}\n{line.indent()})"

    controls = ("same", "comments", "reorder", "unrelated", "rename_variables", "rename_functions", "wrap")


class Plain(Script):
    """Allocates with the driver's calls."""

    variables = ("kept_", "mask_", "loss_", "block_", "history_", "weight_", "buffer_")
    functions = ("Block", "forward_", "backward_", "Optimizer", "step_", "evaluate_", "main_")
    growths = ("more", "dtype", "new_line", "longer", "batch", "grows", "state")

    def __init__(self, dice):
        super().__init__(dice)
        # Of two lines of a function that allocate the same, none can be told to be the new one.
        self.sizes = [i / 8 for i in range(9, 200)]
        dice.shuffle(self.sizes)
        self.add("from memory import Tensor, alloc, double, half, single")
        self.add(f"BATCH = {dice.randint(2, 4)}", "batch")
        self.classes = [f"Block{i}" for i in range(dice.randint(1, 4))]
        for name in self.classes:
            self.block(name)
        self.optimizer()
        self.loop()

    def alloc(self, indent, target, batch=False, kind="alloc"):
        dtype = self.dice.choice(["", "", ", half", ", single"])
        size = self.sizes.pop() / {"": 1, ", half": 2, ", single": 4}[dtype] / (2 if batch else 1)
        call = self.dice.choice(["Tensor", "alloc"])
        line = self.add("", kind, indent=indent, target=target, call=call, size=size, batch=batch, dtype=dtype)
        self.render(line)

    def render(self, line):
        more = line.more
        call = f"{more['call']}({more['size']}{' * BATCH' if more['batch'] else ''}{more['dtype']})"
        line.text = more["indent"] + more["target"].format(call)

    def block(self, name):
        dice = self.dice
        self.part()
        self.add(f"class {name}:")
        self.add("    def __init__(self):")
        self.alloc("        ", "self.weight_ = {}")
        for i in range(dice.randint(0, 2)):
            self.alloc("        ", f"self.buffer_{i} = {{}}")
        self.add("        self.last = None", "unrelated")
        self.add("    def forward_(self):")
        self.add("        kept_ = []", "inside")
        for i in range(dice.randint(1, 4)):
            kind = dice.random()
            if kind < 0.4:
                self.alloc("        ", "kept_.append({})", batch=dice.random() < 0.7)
            else:
                self.add(f"        for _ in range({dice.randint(2, 3)}):")
                self.alloc("            ", "kept_.append({})" if kind < 0.7 else f"mask_{i} = {{}}", batch=dice.random() < 0.6)
                self.add(f"            del mask_{i}" if kind >= 0.7 else "            pass", "longer" if kind >= 0.7 else "inside", keep="pass")
        self.add("        self.last = None", "longer", keep="self.last = kept_")
        self.add("        return kept_")
        self.add("    def backward_(self, kept_):")
        self.add("        while kept_:")
        self.add("            kept_.pop()")
        self.alloc("        ", "gradient_ = {}")
        self.add("        return gradient_")

    def optimizer(self):
        self.part()
        self.add("class Optimizer:")
        self.add("    def __init__(self, model):")
        self.add("        self.model, self.state = model, {}")
        self.add("    def step_(self):")
        self.add("        for block_ in self.model:")
        self.add("            if block_ not in self.state:")
        self.alloc("                ", "self.state[block_] = [{} for _ in range(1)]", kind="state")
        self.part()
        self.add("def evaluate_(model):")
        self.add("    for block_ in model:")
        self.add("        kept_ = block_.forward_()", "inside")
        self.alloc("        ", "score = {}")
        self.add("        del kept_, score")

    def loop(self):
        self.part()
        self.add("def step_(model):")
        self.add("    kept_ = []", "unrelated")
        self.add("    for block_ in model:")
        self.add("        kept_.append(block_.forward_())")
        self.alloc("    ", "loss_ = {}")
        self.add("    for block_ in reversed(model):")
        self.add("        gradient_ = block_.backward_(kept_.pop())")
        self.add("    return loss_")
        self.part()
        self.add("def main_():")
        self.add(f"    model = [{', '.join(name + '()' for name in self.classes)}]")
        self.add("    optimizer = Optimizer(model)")
        self.add("    history_ = []", "unrelated")
        self.add(f"    for _ in range({self.dice.randint(3, 5)}):")
        self.add("        loss_ = step_(model)")
        self.add("        optimizer.step_()")
        self.add("        history_.append(1)", "history")
        self.add("    evaluate_(model)")
        self.add("main_()")

    # ---- changes that need memory

    def more(self):
        line = self.dice.choice(self.of("alloc"))
        line.more["size"] += self.dice.choice([1, 1.125, 2, 3, 8, 40])
        self.render(line)

    def dtype(self):
        line = self.dice.choice(self.of("alloc", "state"))
        line.more["dtype"] = {"": ", half", ", half": ", single", ", single": ", double"}[line.more["dtype"]]
        self.render(line)

    def new_line(self):
        line = self.dice.choice(self.of("alloc", "inside"))
        text = self.dice.choice(["extra = {}", "{}", "extra = [{} for _ in range(2)]"]).format(f"Tensor({self.sizes.pop()})")
        self.insert(line, line.indent() + text, self.dice.random() < 0.5)

    def longer(self):
        """A del is lost, or the activations live until the next step."""
        line = self.dice.choice(self.of("longer"))
        line.text = line.indent() + line.more["keep"]

    def batch(self):
        line = self.of("batch")[0]
        line.text = f"BATCH = {int(line.text.split()[-1]) * 2}"

    def grows(self):
        line = self.of("history")[0]
        line.text = line.indent() + self.dice.choice(["history_.append(loss_)", f"history_.append(Tensor({self.sizes.pop()}))"])

    def state(self):
        line = self.of("state")[0]
        line.more["target"] = line.more["target"].replace("range(1)", f"range({self.dice.randint(2, 3)})")
        self.render(line)

    # ---- the judge

    def wrong(self, answer, old, new):
        """What is wrong in the answer about two recordings, given what lines held in each."""
        numbers = self.numbers()
        most = {line: new.get(str(number), 0) for line, number in numbers.items()}
        if hasattr(self, "twin"):
            before = {line: old.get(str(number), 0) for line, number in self.origin.numbers().items()}
            most = {line: bytes_ - before.get(self.twin.get(line), 0) for line, bytes_ in most.items()}
        else:
            most = {line: bytes_ - old.get(str(numbers[line]), 0) for line, bytes_ in most.items()}
        wanted = {numbers[line]: grown for line, grown in most.items() if grown > LIMIT}
        named = {check["culprit"]["line"]: check["bytes"] for check in answer if check["kind"] == "line"}
        return None if named == wanted else f"named {named}, but it is {wanted}"


def make(folder, text):
    os.makedirs(folder, exist_ok=True)
    shutil.copy(os.path.join(HERE, "gate_tensor.py"), os.path.join(folder, "memory.py"))
    path = os.path.join(folder, "train.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def record(options, work, scripts):
    driver = os.path.join(work, "driver.py")
    with open(driver, "w", encoding="utf-8") as file:
        file.write(DRIVER)
    if not scripts:
        return
    command = [os.path.join(options.build, "bin", "gpuprof"), "run", "--sim", "--record=" + os.path.join(work, "none.gpuprof"), "--",
               sys.executable, driver, *scripts]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd=work)
    if result.returncode:
        sys.exit(f"{result.stdout[-3000:]}\ngate_mutants: the scripts did not run: status {result.returncode}")


def diff(options, before, after):
    """The broken checks."""
    command = [os.path.join(options.build, "bin", "gpuprof"), "diff", before, after, "--by=line", f"--max-growth={LIMIT}B", "--json"]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if result.returncode not in (0, 3):
        sys.exit(f"gate_mutants: diff: status {result.returncode}: {result.stderr}")
    return [check for check in json.loads(result.stdout)["verdict"]["checks"] if not check["ok"]]


def truth(path):
    with open(path.replace(".gpuprof", ".json"), encoding="utf-8") as file:
        return json.load(file)


class Case:
    """A script, its change, and the recordings of both."""

    def __init__(self, number, options, work):
        dice = random.Random(options.seed * 100000 + number)
        self.old = Plain(dice)
        self.new = self.old.copy()
        grows = number % 2 == 0
        self.what = self.new.growths[number // 2 % len(self.new.growths)] if grows else self.new.controls[number // 2 % len(self.new.controls)]
        getattr(self.new, self.what)()
        # Other lines move as well.
        if grows and dice.random() < 0.5:
            more = dice.choice(("comments", "reorder", "unrelated", "rename_variables", "wrap"))
            getattr(self.new, more)()
            self.what += "+" + more
        self.files = {"old": [], "new": []}
        self.scripts = []
        for run in range(options.runs):
            for side, script in ("old", self.old), ("new", self.new):
                name = os.path.join(work, f"{number}.{run}.{side}")
                self.scripts.append(make(os.path.join(name, f"folder{run}{side}"), script.text()))
                self.files[side].append(name + ".gpuprof")

    def recorded(self, script):
        return os.path.exists(os.path.dirname(os.path.dirname(script)) + ".gpuprof")

    def judge(self, options):
        """(which, what is wrong or None) of each question."""
        for old, new in zip(self.files["old"], self.files["new"]):
            yield self.what, self.new.wrong(diff(options, old, new), truth(old), truth(new))
        for one, other in zip(self.files["old"], self.files["old"][1:]):
            yield "another run", self.old.wrong(diff(options, one, other), truth(one), truth(other))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--count", type=int, default=28)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first script")
    parser.add_argument("--keep", metavar="DIR", help="keep the recordings there, and use those that are there already")
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    work = os.path.abspath(options.keep) if options.keep else tempfile.mkdtemp(prefix="gpuprof-mutants-")
    failed, passed, asked, begin = 0, 0, collections.Counter(), time.monotonic()
    cases = [Case(number, options, work) for number in range(options.first, options.first + options.count)]
    while cases:
        now, cases = cases[: AT_ONCE // (2 * options.runs) or 1], cases[AT_ONCE // (2 * options.runs) or 1 :]
        record(options, work, [script for case in now for script in case.scripts if not case.recorded(script)])
        for case in now:
            bad = 0
            for what, wrong in case.judge(options):
                asked[what.split("+")[0]] += 1
                passed, bad = passed + (wrong is None), bad + (wrong is not None)
                if wrong:
                    print(f"FAILED {case.files['new'][0]}: {what}: {wrong}", flush=True)
            failed += bad
            for path in [] if bad or options.keep else case.scripts:
                shutil.rmtree(os.path.dirname(os.path.dirname(path)), ignore_errors=True)
            for path in [] if bad or options.keep else case.files["old"] + case.files["new"]:
                os.unlink(path)
    if failed or options.keep:
        print(f"kept: {work}")
    else:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{options.count} scripts, {options.runs} runs each, {time.monotonic() - begin:.0f} s: {', '.join(f'{n} {what}' for what, n in asked.items())}")
    print(f"{passed} passed, {failed} failed")
    return failed > 0


sys.exit(main())
