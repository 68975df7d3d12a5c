#!python
# SPDX-License-Identifier: MIT
"""Becomes the gpuprof command that lies in the package.  The installer puts the path of its Python
into the first line.  The package is found, and not imported, because that takes longer."""
import importlib.util
import os
import sys

found = importlib.util.find_spec("gpuprof")
path = os.path.join(os.path.dirname(found.origin), "_native", "bin", "gpuprof") if found and found.origin else "gpuprof"
try:
    os.execv(path, [path] + sys.argv[1:])
except OSError as error:
    sys.exit(f"gpuprof: {path}: {error.strerror}: this Python has another package of that name, or lost this one: "
             "pip install --force-reinstall gpuprof-cuda")
