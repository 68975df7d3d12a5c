# SPDX-License-Identifier: MIT
"""Changes of training scripts that `gpuprof diff` must name, and others that it must not accuse.

    gate_mutants.py BUILD_DIR [--torch ROOT] [--count N] [--runs N] [--seed N]

Each script is made at random.  One line of it is changed so that it allocates 1 MiB more: its own tensor
grows, or a line is inserted that keeps one, or that drops it at once.  The old and the new script are
recorded, in folders of different names, and `diff --by=line --max-growth=512KiB` must name the changed
line and no other.  Of two recordings of one script nothing may be accused.  --torch: real PyTorch in the
root folder ROOT of tests/real; otherwise the scripts allocate with the driver's calls."""
import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
MIB = 1 << 20
EXTRA = 1

# Imports PyTorch once, then runs each script in a child: a fork before the first use of CUDA.
DRIVER = """
import os, runpy, sys
if sys.argv[1] == "torch":
    import torch
for script in sys.argv[2:]:
    child = os.fork()
    if child == 0:
        os.environ["GPUPROF_RECORD"] = os.path.dirname(os.path.dirname(script)) + ".gpuprof"
        sys.path.insert(0, os.path.dirname(script))
        runpy.run_path(script, run_name="__main__")
        sys.stdout.flush()
        sys.exit(0)
    status = os.waitpid(child, 0)[1]
    if status:
        sys.exit(f"{script}: status {status}")
"""
PLAIN = """import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuMemAlloc_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t]
cuda.cuMemFree_v2.argtypes = [ctypes.c_uint64]
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0


class Tensor:
    def __init__(self, mib):
        self.pointer = ctypes.c_uint64()
        assert cuda.cuMemAlloc_v2(ctypes.byref(self.pointer), int(mib * (1 << 20))) == 0

    def __del__(self):
        cuda.cuMemFree_v2(self.pointer)


def alloc(mib):
    return Tensor(mib)
"""
TORCH = """import torch


def alloc(mib):
    return torch.empty(int(mib * (1 << 20)), dtype=torch.uint8, device="cuda")
"""


class Script:
    """A random training script: lines, and which of them allocate so many MiB."""

    def __init__(self, dice, torch):
        self.dice, self.torch, self.lines, self.allocs = dice, torch, [], []
        self.classes = [f"Block{i}" for i in range(dice.randint(1, 4))]
        self.add("from memory import alloc")
        if torch:
            self.add("import torch")
        for name in self.classes:
            self.block(name)
        self.loop()

    def add(self, text):
        self.lines.append(text)

    def alloc(self, indent, target):
        mib = self.dice.choice([1.5, 2, 2.5, 3, 4, 6, 8])
        self.allocs.append((len(self.lines), mib))
        self.add(f"{indent}{target.format('alloc(' + str(mib) + ')')}")

    def block(self, name):
        base = "(torch.nn.Module)" if self.torch else ""
        self.add(f"\n\nclass {name}{base}:".replace("\n\n", ""))
        self.add("    def __init__(self):")
        if self.torch:
            self.add("        super().__init__()")
            self.add(f"        self.layer = torch.nn.Linear(256, {self.dice.choice([256, 512, 768])}, device='cuda')")
            self.add("        self.back = torch.nn.Linear(self.layer.out_features, 256, device='cuda')")
        for i in range(self.dice.randint(1, 3)):
            self.alloc("        ", f"self.buffer{i} = {{}}")
        self.add("    def forward(self, x):")
        self.add("        kept = []")
        for i in range(self.dice.randint(1, 3)):
            kind = self.dice.random()
            if kind < 0.4:
                self.alloc("        ", "kept.append({})")
            elif kind < 0.7:
                self.alloc("        ", f"mask{i} = {{}}")
            else:
                self.add(f"        for _ in range({self.dice.randint(2, 3)}):")
                self.alloc("            ", "kept.append({})")
        if self.torch:
            self.add("        x = torch.relu(self.layer(x))")
            self.add("        x = self.back(x) + x.mean()")
        self.add("        return x, kept")

    def loop(self):
        self.add("def step(model, x):")
        self.add("    kept = []")
        self.add("    for block in model:")
        self.add("        x, more = block.forward(x)")
        self.add("        kept.append(more)")
        self.alloc("    ", "loss = {}")
        if self.torch:
            self.add("    x.sum().backward()")
        self.add("    return loss")
        self.add("def main():")
        self.add(f"    model = [{', '.join(name + '()' for name in self.classes)}]")
        if self.torch:
            optimizer = self.dice.choice(["SGD", "Adam", "AdamW"])
            self.add(f"    optimizer = torch.optim.{optimizer}([p for block in model for p in block.parameters()], lr=1e-3)")
            self.add(f"    x = torch.empty({self.dice.choice([64, 128])}, 256, device='cuda')")
        else:
            self.alloc("    ", "x = {}")
        self.add(f"    for _ in range({self.dice.randint(2, 4)}):")
        self.add("        loss = step(model, x)")
        if self.torch:
            self.add("        optimizer.step()")
            self.add("        optimizer.zero_grad()")
        self.add("main()")

    def mutate(self):
        """(lines, the number of the line that allocates more)"""
        lines = list(self.lines)
        at, mib = self.dice.choice(self.allocs)
        if self.dice.random() < 0.4:
            lines[at] = lines[at].replace(f"alloc({mib})", f"alloc({mib + EXTRA})")
            return lines, at + 1
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        if "__init__" in "".join(lines[max(0, at - 5) : at]) and "self." in lines[at]:
            text = f"{indent}self.extra = alloc({EXTRA + 0.125})"
        else:
            text = indent + self.dice.choice(["extra = alloc({})", "alloc({})"]).format(EXTRA + 0.125)
        at += self.dice.randint(0, 1)
        lines.insert(at, text)
        return lines, at + 1


def write(folder, lines, torch):
    os.makedirs(folder)
    with open(os.path.join(folder, "memory.py"), "w", encoding="utf-8") as file:
        file.write(TORCH if torch else PLAIN)
    path = os.path.join(folder, "train.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path


def record(options, work, scripts):
    driver = os.path.join(work, "driver.py")
    with open(driver, "w", encoding="utf-8") as file:
        file.write(DRIVER)
    inside = [os.path.join(TREE, "tests", "real", "inside"), options.torch, "python3"] if options.torch else [sys.executable]
    command = [os.path.join(options.build, "bin", "gpuprof"), "run", "--sim", "--record=" + os.path.join(work, "none.gpuprof"), "--", *inside]
    command += [driver, "torch" if options.torch else "plain", *scripts]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd=work)
    if result.returncode:
        sys.exit(f"{result.stdout[-3000:]}\ngate_mutants: the scripts did not run: status {result.returncode}")


def diff(options, before, after):
    """The lines that are named, the one that grew most first."""
    command = [os.path.join(options.build, "bin", "gpuprof"), "diff", before, after, "--by=line", "--max-growth=512KiB", "--json"]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if result.returncode not in (0, 3):
        sys.exit(f"gate_mutants: diff: status {result.returncode}: {result.stderr}")
    checks = json.loads(result.stdout)["verdict"]["checks"]
    broken = [check for check in checks if not check["ok"] and check["kind"] == "line"]
    # PyTorch grants up to 1 MiB more than was asked, where the rest of a block is not worth splitting: what one
    # line gets so depends on what others asked for.
    if options.torch:
        broken = broken[:1] + [check for check in broken[1:] if check["bytes"] > EXTRA * MIB]
    return [(check["culprit"]["file"], check["culprit"]["line"]) for check in broken]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--torch")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    work = tempfile.mkdtemp(prefix="gpuprof-mutants-")
    failed = passed = 0
    cases, scripts = [], []
    for number in range(options.count):
        script = Script(random.Random(options.seed * 1000 + number), bool(options.torch))
        changed, line = script.mutate()
        case = {"number": number, "line": line, "text": changed[line - 1], "old": [], "new": []}
        for run in range(options.runs):
            for what, lines in ("old", script.lines), ("new", changed):
                name = f"{number}.{run}.{what}"
                scripts.append(write(os.path.join(work, name, f"folder{run}{what}"), lines, bool(options.torch)))
                case[what].append(os.path.join(work, name + ".gpuprof"))
        # A second run of the old one.
        scripts.append(write(os.path.join(work, f"{number}.again", "p"), script.lines, bool(options.torch)))
        case["old"].append(os.path.join(work, f"{number}.again.gpuprof"))
        cases.append(case)
    for i in range(0, len(scripts), 60):
        record(options, work, scripts[i : i + 60])
    for case in cases:
        for run in range(options.runs):
            named = diff(options, case["old"][run], case["new"][run])
            good = [line for file, line in named if file.endswith("/train.py")] == [case["line"]] and len(named) == 1
            passed, failed = passed + good, failed + (not good)
            if not good:
                print(f"FAILED {case['number']}: line {case['line']} ({case['text'].strip()}) allocates more; named: {named}")
            accused = diff(options, case["old"][run], case["old"][run + 1])
            passed, failed = passed + (not accused), failed + bool(accused)
            if accused:
                print(f"FAILED {case['number']}: nothing was changed; accused: {accused}")
    if not failed:
        shutil.rmtree(work, ignore_errors=True)
    else:
        print(f"kept: {work}")
    print(f"{passed} passed, {failed} failed")
    return failed > 0


sys.exit(main())
