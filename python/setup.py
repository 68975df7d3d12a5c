# SPDX-License-Identifier: MIT
"""Gives setuptools the version, which stands in include/gpuprof/gpuprof.h alone; everything else is in pyproject.toml."""
import os
import re
import runpy

from setuptools import setup

here = os.path.dirname(os.path.abspath(__file__))
from_header = runpy.run_path(os.path.join(here, "gpuprof", "_version.py"))["from_header"]
version = from_header(os.path.join(here, os.pardir, "include", "gpuprof", "gpuprof.h"))
if not version:  # a source distribution: the header stayed in the tree that it was made from
    with open(os.path.join(here, "PKG-INFO"), encoding="utf-8") as file:
        version = re.search(r"^Version: (.+)$", file.read(), re.M).group(1)
setup(version=version)
