# SPDX-License-Identifier: MIT
"""Changes of training scripts that `gpuprof diff` must name, and others that it must not accuse.

    gate_mutants.py BUILD_DIR [--torch ROOT] [--count N] [--runs N] [--seed N] [--first N] [--keep DIR]

Each script is made at random, and one change of it.  Half of the changes need more memory: a bigger tensor, another
dtype, a new line, a tensor that is kept longer, a bigger batch, a list that grows, more state of the optimizer.  The
others need the same: lines move, names change, comments and other code come in, or nothing changes at all.  Old and new
are recorded as often as --runs says, in folders of different names, and `diff --by=line --max-growth=512KiB` is asked
about each pair.

The scripts allocate with the driver's calls and keep account of each line's memory themselves (gate_tensor.py): the
lines that `diff` names must be exactly those that hold more.  With --torch they run real PyTorch, in the root folder
ROOT of tests/real: the changed line, or one that depends on it, must be named, and first."""
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
TREE = os.path.dirname(os.path.dirname(HERE))
MIB = 1 << 20
LIMIT = MIB // 2
AT_ONCE = 48  # scripts that one process imports PyTorch for

# Imports once, then runs each script in a child: a fork before the first use of CUDA.
DRIVER = """
import json, os, runpy, sys
if sys.argv[1] == "torch":
    import torch
    import torch._dynamo  # which the first optimizer imports
for script in sys.argv[2:]:
    child = os.fork()
    if child == 0:
        out = os.path.dirname(os.path.dirname(script))
        os.environ["GPUPROF_RECORD"] = out + ".gpuprof"
        sys.path.insert(0, os.path.dirname(script))
        runpy.run_path(script, run_name="__main__")
        if "memory" in sys.modules:
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


class Torch(Script):
    """Real PyTorch.  The kinds of lines that hold memory: data, made (weights and buffers), forward, backward, optimizer."""

    variables = ("hidden_", "scratch_", "loss_", "total_", "history_", "norm_", "gate_", "table_")
    functions = ("Block", "Embed", "evaluate_", "train_", "main_")
    growths = ("more", "dtype", "new_line", "longer", "batch", "grows", "state", "graph", "wider")
    followed = 0  # answers in which other lines were named too
    optimizers = ("SGD(parameters, lr=0.1)", "SGD(parameters, lr=0.1, momentum=0.9)", "AdamW(parameters)", "AdamW(parameters, amsgrad=True)")

    def __init__(self, dice):
        super().__init__(dice)
        self.add("import torch")
        self.add("from torch import nn")
        self.add(f"BATCH = {dice.choice([4, 6, 8])}", "batch")
        self.width = dice.choice([512, 768, 1024])
        self.classes = [f"Block{i}" for i in range(dice.randint(1, 3))]
        for name in self.classes:
            self.block(name)
        self.embed()
        self.loop()

    def buffer(self, name):
        rows, dtype = self.dice.choice([1536, 2048, 3072]), self.dice.choice(["float16", "float32", "bfloat16"])
        line = self.add("", "made", name=name, rows=rows, dtype=dtype)
        self.render(line)

    def render(self, line):
        more = line.more
        line.text = f"        self.register_buffer('{more['name']}', torch.ones({more['rows']}, 1024, dtype=torch.{more['dtype']}, device='cuda'))"

    def block(self, name):
        dice = self.dice
        self.part()
        self.add(f"class {name}(nn.Module):")
        self.add("    def __init__(self, width):")
        self.add("        super().__init__()")
        self.add(f"        self.norm_ = nn.{dice.choice(['LayerNorm(width', 'RMSNorm(width', 'GroupNorm(1, 128'])}, device='cuda')")
        self.add("        self.gate_ = nn.Parameter(torch.ones(2, width, 256, device='cuda'))", "made", wider="256")
        if dice.random() < 0.5:
            self.add("        self.linear = nn.Linear(width, width, device='cuda')", "made")
            linear = "self.linear(hidden_)"
        else:
            linear = "hidden_ * 2"
        for i in range(dice.randint(1, 2)):
            self.buffer(f"buffer{i}")
        self.add("        self.last = None", "unrelated")
        self.add("    def forward(self, hidden_):")
        self.add("        hidden_ = self.norm_(hidden_)", "forward")
        self.add(f"        hidden_ = torch.nn.functional.{dice.choice(['gelu', 'silu', 'relu'])}({linear})", "forward")
        self.add("        for _ in range(2):")
        self.add(f"            scratch_ = torch.empty({dice.choice([3, 5, 6])} << 20, dtype=torch.uint8, device='cuda')", "scratch")
        self.add("            del scratch_", "longer", keep="pass", grown="scratch")
        self.add("        hidden_ = hidden_ + self.gate_.mean()", "forward")
        self.add("        self.last = None", "longer", keep="self.last = hidden_", grown="forward")
        self.add("        return hidden_")

    def embed(self):
        self.part()
        self.add("class Embed(nn.Module):")
        self.add("    def __init__(self, width):")
        self.add("        super().__init__()")
        self.add(f"        self.table_ = nn.Embedding({self.dice.choice([2000, 5000])}, width, device='cuda')", "made")
        self.add("    def forward(self, tokens):")
        self.add("        return self.table_(tokens)", "forward")

    def loop(self):
        self.part()
        self.add("def evaluate_(model, tokens):")
        self.add("    with torch.no_grad():")
        self.add("        hidden_ = model(tokens)", "forward")
        self.add("        return hidden_.float().mean()", "forward")
        self.part()
        self.add("def train_(model, optimizer, tokens):")
        self.add("    loss_ = model(tokens).mean()", "forward")
        self.add("    loss_.backward()", "backward")
        self.add("    optimizer.step()", "optimizer")
        self.add("    optimizer.zero_grad()", "backward")
        self.add("    return loss_")
        self.part()
        self.add("def main_():")
        self.add(f"    model = nn.Sequential({', '.join(f'{name}({self.width})' for name in ['Embed', *self.classes])})")
        self.add("    parameters = list(model.parameters())")
        self.add(f"    optimizer = torch.optim.{self.dice.choice(self.optimizers[:2])}", "state")
        self.add("    history_, total_ = [], 0", "unrelated")
        self.add(f"    for _ in range({self.dice.randint(3, 4)}):")
        self.add("        tokens = torch.zeros(BATCH, 128, dtype=torch.int64, device='cuda')", "data")
        self.add("        loss_ = train_(model, optimizer, tokens)")
        self.add("        total_ = total_ + loss_.detach()", "total")
        self.add("        history_.append(1)", "history")
        self.add("    evaluate_(model, tokens)")
        self.add("main_()")

    # ---- changes that need memory: the lines one of which must be named, and the kinds of others that may hold more

    def more(self):
        line = self.dice.choice(self.of("made"))
        if "rows" in line.more:
            line.more["rows"] += self.dice.choice([1024, 2048, 8192])
            self.render(line)
            return [line], ()
        if "nn.Linear(width, width" not in line.text:
            return self.wider()
        line.text = line.text.replace("nn.Linear(width, width", "nn.Linear(width, 8 * width")
        line.text = line.text.replace("nn.Linear(", "nn.Sequential(nn.Linear(").replace("'cuda')", "'cuda'), nn.Linear(8 * width, width, device='cuda'))")
        return [line], ("forward", "backward", "optimizer")

    def dtype(self):
        line = self.dice.choice([line for line in self.of("made") if "rows" in line.more])
        line.more["dtype"] = {"float16": "float32", "bfloat16": "float64", "float32": "float64"}[line.more["dtype"]]
        self.render(line)
        return [line], ()

    def new_line(self):
        line = self.dice.choice([line for line in self.of("forward") if "hidden_ =" in line.text or line.kind == "scratch"])
        text = self.dice.choice(["extra = torch.zeros({}, 1024, device='cuda')", "torch.ones({}, 1024, device='cuda')", "extra = [torch.empty({}, 512, device='cuda') for _ in range(2)]"])
        return [self.insert(line, line.indent() + text.format(self.dice.choice([512, 1024, 5000])), True)], ()

    def longer(self):
        line = self.dice.choice(self.of("longer"))
        line.text = line.indent() + line.more["keep"]
        return self.of(line.more["grown"]), ("forward", "backward")

    def batch(self):
        line = self.of("batch")[0]
        line.text = f"BATCH = {int(line.text.split()[-1]) * 3}"
        return self.of("forward"), ("data", "backward")

    def grows(self):
        line = self.of("history")[0]
        line.text = line.indent() + f"history_.append(torch.zeros({self.dice.choice([300, 1000])}, 1024, device='cuda'))"
        return [line], ()

    def state(self):
        line = self.of("state")[0]
        at = next(i for i, text in enumerate(self.optimizers) if text in line.text)
        line.text = line.text.replace(self.optimizers[at], self.dice.choice(self.optimizers[at + 1 :]))
        return self.of("optimizer"), ()

    def graph(self):
        """A loss without a backward pass keeps the activations of each step alive."""
        line = self.of("total")[0]
        line.text = line.text.replace("loss_.detach()", "model(tokens).mean()")
        return self.of("forward"), ("data", "backward")

    def wider(self):
        lines = [line for line in self.of("made") if "wider" in line.more]
        line = self.dice.choice(lines)
        line.text = line.text.replace("256", "1024")
        return [line], ("forward", "backward", "optimizer")

    def wrong(self, answer, *_):
        numbers = self.numbers()
        named = {check["culprit"]["line"]: check["bytes"] for check in answer if check["kind"] == "line"}
        first = max(named, key=named.get, default=None)
        if not hasattr(self, "twin") or not self.wanted:
            return f"named {named}, but nothing has grown" if named else None
        wanted, others = self.wanted
        wanted = {numbers[line] for line in wanted}
        allowed = wanted | {numbers[line] for line in self.of(*others)}
        # A node of the autograd has no line of the script where it does not know its forward call.
        allowed |= {None} if "backward" in others else set()
        if not wanted & set(named) or first not in (allowed if others else wanted):
            return f"named {named}; {sorted(wanted)} has grown"
        # PyTorch grants up to 1 MiB more than was asked, where the rest of a block is not worth splitting: what one
        # line gets so depends on what others asked for.  They may be named after the line that grew.
        Torch.followed += bool(set(named) - allowed)
        return None


def make(folder, text, plain):
    os.makedirs(folder, exist_ok=True)
    if plain:
        shutil.copy(os.path.join(HERE, "gate_tensor.py"), os.path.join(folder, "memory.py"))
    path = os.path.join(folder, "train.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def record(options, work, scripts):
    driver = os.path.join(work, "driver.py")
    with open(driver, "w", encoding="utf-8") as file:
        file.write(DRIVER)
    inside = [os.path.join(TREE, "tests", "real", "inside"), options.torch, "python3"] if options.torch else [sys.executable]
    command = [os.path.join(options.build, "bin", "gpuprof"), "run", "--sim", "--record=" + os.path.join(work, "none.gpuprof"), "--", *inside]
    if not scripts:
        return
    command += [driver, "torch" if options.torch else "plain", *scripts]
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
    try:
        with open(path.replace(".gpuprof", ".json"), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


class Case:
    """A script, its change, and the recordings of both."""

    def __init__(self, number, options, work):
        dice = random.Random(options.seed * 100000 + number)
        self.old = (Torch if options.torch else Plain)(dice)
        self.new = self.old.copy()
        grows = number % 2 == 0
        self.what = self.new.growths[number // 2 % len(self.new.growths)] if grows else self.new.controls[number // 2 % len(self.new.controls)]
        self.new.wanted = getattr(self.new, self.what)() if grows else None
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
                self.scripts.append(make(os.path.join(name, f"folder{run}{side}"), script.text(), not options.torch))
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
    parser.add_argument("--torch")
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
    kind = "scripts with PyTorch" if options.torch else "scripts"
    print(f"{options.count} {kind}, {options.runs} runs each, {time.monotonic() - begin:.0f} s: {', '.join(f'{n} {what}' for what, n in asked.items())}")
    if Torch.followed:
        print(f"{Torch.followed} answers also name a line that gets more of what PyTorch grants, after the one that grew")
    print(f"{passed} passed, {failed} failed")
    return failed > 0


sys.exit(main())
