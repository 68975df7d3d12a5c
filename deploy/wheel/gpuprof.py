#!python
# SPDX-License-Identifier: MIT
"""Becomes the gpuprof command that lies in the package.  The installer puts the path of its Python
into the first line.  The package is found, and not imported, because that takes longer."""
import os
import sys

here = os.path.dirname(os.path.realpath(__file__))
# sys.path may have a source tree first; with `pip install --target` only this script's place is known.
for folder in sys.path + [os.path.dirname(here)]:
    path = os.path.join(folder, "gpuprof", "_native", "bin", "gpuprof")
    if os.path.isfile(path):
        break
try:
    os.execv(path, [path] + sys.argv[1:])
except OSError as error:
    sys.exit(f"gpuprof: {path}: {error.strerror}: this Python has lost the package: pip install --force-reinstall gpuprof-cuda")
