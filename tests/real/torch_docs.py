# SPDX-License-Identifier: MIT
"""Runs what the documentation says in Python about PyTorch and gpuprof, each piece in a process of its own, and uses
what it returns: blocks of Python without a prompt, and expressions in the text.  Inside a root with PyTorch, under
gpuprof.  Prints "N passed, N failed"."""
import glob
import os
import re
import sys


def pieces():
    for path in ["README.md", "python/README.md"] + sorted(glob.glob("docs/**/*.md", recursive=True)):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for block in re.findall(r"^```python\n(.*?)^```", text, re.S | re.M):
            if ">>>" not in block and "torch" in block:
                yield path, block
        for span in re.findall(r"`([^`\n]+)`", text):
            if "torch." in span and "gpuprof." in span and span.endswith(")") and "..." not in span:
                yield path, span


def use(value):
    """A tensor is made and freed, in the pool if the expression made one, and the pool goes."""
    import contextlib

    import torch
    pool = value if isinstance(value, torch.cuda.MemPool) else None
    with torch.cuda.use_mem_pool(pool) if pool else contextlib.nullcontext():
        blocks = [torch.zeros(50 << 20, dtype=torch.uint8, device="cuda") for _ in range(3)]
    del blocks[0]
    torch.cuda.empty_cache()
    torch.cuda.memory_stats()
    blocks.clear()
    del pool, value
    torch.cuda.empty_cache()


def run(text):
    import gpuprof
    import torch
    names = {"torch": torch, "gpuprof": gpuprof}
    try:
        code = compile(text, "documentation", "eval")
    except SyntaxError:
        exec(text, names)  # noqa: S102: it is ours
        use(None)
    else:
        use(eval(code, names))  # noqa: S307


def main():
    import torch  # noqa: F401: once, before the forks
    passed = failed = 0
    for path, text in pieces():
        child = os.fork()
        if child == 0:
            run(text)
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        passed += status == 0
        failed += status != 0
        print(f"{'ok' if status == 0 else f'FAILED (status {status})'}: {path}: {text.splitlines()[0]}", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or passed < 2 else 0)


main()
