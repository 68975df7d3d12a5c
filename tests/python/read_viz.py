#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""read_viz.py ROOT SNAPSHOT...: torch's own _memory_viz.py, from the folder ROOT with a PyTorch, reads snapshots.

Every command of that file except for `compare` and the download of a script; an exception ends this with a traceback.
Says how much text and how many pages it made, so that a reader that did nothing is seen."""
import contextlib
import glob
import importlib.util
import io
import pickle
import sys

found = [path for lib in ("usr/lib", "lib")
         for path in glob.glob(f"{sys.argv[1]}/{lib}/python3*/**/torch/cuda/_memory_viz.py", recursive=True)]
assert found, f"{sys.argv[1]} has no torch/cuda/_memory_viz.py"
spec = importlib.util.spec_from_file_location("memory_viz", found[0])
viz = importlib.util.module_from_spec(spec)
spec.loader.exec_module(viz)
pages = texts = 0
for name in sys.argv[2:]:
    with open(name, "rb") as file:
        data = pickle.load(file)
    with contextlib.redirect_stdout(io.StringIO()):
        for make in (viz.segsum, viz.trace, viz.trace_plot, viz.segment_plot):
            text = make(data)
            assert text or make == viz.trace and not any(data["device_traces"]), f"{name}: {make.__name__} made nothing"
            pages += text.lstrip().startswith("<")
        for make in (viz.segments, viz.memory):
            texts += len(make(data, format_flamegraph=str))
print(f"{len(sys.argv) - 2} snapshots: {pages} pages, {texts} characters of flame graphs")
