# SPDX-License-Identifier: MIT
"""The cost of one Python stack: TSV of name, frames, ns (best of 9 series).  Run by tests/bench/bench_python_stack.sh.

    python3 stack_bench.py PROBE.so

`python.held`: the thread holds the GIL.  `python.released`: it does not, on the main thread.  `python.copied`: it does not, on
another thread, where the kernel copies.  `public`: for comparison, the interpreter's own interface for the same frames (code and
line, no names), in the same run.  `large` is a stack of functions of 200 lines each, `distinct` a stack of different functions.
"""
import ctypes
import os
import sys
import threading

path = os.path.abspath(sys.argv[1])
calls, series = (20, 1) if os.environ.get("BENCH_TINY") else (2000, 9)
held, released = ctypes.PyDLL(path), ctypes.CDLL(path)
for library in (held, released):
    library.probe_cost.restype = library.probe_cost_public.restype = ctypes.c_double


def row(name, frames, ns):
    print(name, frames, "%.0f" % ns, sep="\t", flush=True)


def measure(size):
    def rows(frames, on_main):
        if on_main:
            row("python.held" + size, frames, held.probe_cost(calls, series))
            row("public" + size, frames, held.probe_cost_public(calls, series))
            row("python.released" + size, frames, released.probe_cost(calls, series))
        else:
            row("python.copied" + size, frames, released.probe_cost(calls // 4, series))
    return rows


def depth():
    frame, count = sys._getframe(1), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


def small(frames, rows, on_main):
    if depth() < frames - 2:
        return small(frames, rows, on_main)
    now = depth() + 1
    rows(now, on_main)


space = {"depth": depth}
body = "".join("    if frames == -%d:\n        rows(frames, [on_main, %d])\n" % (i + 1, i) for i in range(100))
exec(compile("def large(frames, rows, on_main):\n" + body +
             "    if depth() < frames - 2:\n        return large(frames, rows, on_main)\n    now = depth() + 1\n    rows(now, on_main)\n" + body,
             "large.py", "exec"), space)


exec("def link0(rows, on_main):\n    rows(20, on_main)\n" +
     "".join("def link%d(rows, on_main):\n    return link%d(rows, on_main)\n" % (i, i - 1) for i in range(1, 15)), globals())


def all_rows(on_main):
    for frames in (5, 20, 60):
        small(frames, measure(""), on_main)
    space["large"](20, measure(".large"), on_main)
    link14(lambda frames, on_main: measure(".distinct")(depth(), on_main), on_main)


all_rows(True)
thread = threading.Thread(target=all_rows, args=(False,))
thread.start()
thread.join()
