# SPDX-License-Identifier: MIT
"""Finds the version, which is defined only in include/gpuprof/gpuprof.h.

An installed package has it in its metadata (backend.py read the header when it was built); a package
that is used from the source tree reads the header itself.
"""
import os
import re


def from_header(path):
    """The version in a gpuprof.h, such as "1.2.3"; None if the file cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            words = re.findall(r"^#define GPUPROF_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", file.read(), re.M)
    except OSError:
        return None
    return ".".join(words)


def version():
    """The version of this package; "unknown" for a copy without metadata and outside a source
    tree."""
    tree = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    found = from_header(os.path.join(tree, "include", "gpuprof", "gpuprof.h"))
    if found:
        return found
    from importlib import metadata

    try:
        return metadata.version("gpuprof-cuda")
    except metadata.PackageNotFoundError:
        return "unknown"
