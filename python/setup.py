# SPDX-License-Identifier: MIT
"""Passes the version, which is defined only in include/gpuprof/gpuprof.h, to setuptools;
pyproject.toml has the rest."""
import os
import re
import runpy

from setuptools import setup

here = os.path.dirname(os.path.abspath(__file__))
from_header = runpy.run_path(os.path.join(here, "gpuprof", "_version.py"))["from_header"]
version = from_header(os.path.join(here, os.pardir, "include", "gpuprof", "gpuprof.h"))
if not version:  # a source distribution does not include the header
    with open(os.path.join(here, "PKG-INFO"), encoding="utf-8") as file:
        version = re.search(r"^Version: (.+)$", file.read(), re.M).group(1)
setup(version=version)
