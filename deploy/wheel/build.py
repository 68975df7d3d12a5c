#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the wheel: the Python package, the command, the libraries and the simulated GPU.

    build.py BUILD_DIR CPU SYSROOT PACKAGE...

`make wheel` calls it.  The PACKAGEs are the Debian packages whose archives the command contains; their
licences go into the wheel.
"""
import os
import re
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
tree = os.path.dirname(os.path.dirname(here))
sys.path.insert(0, os.path.join(tree, "python"))
sys.dont_write_bytecode = True
import backend  # noqa: E402
from backend import read  # noqa: E402

build, cpu, sysroot, *packages = sys.argv[1:]
glibc = "2_28"  # tests/integration/test_package.sh checks it


def stripped(*below):
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run([os.environ.get("STRIP", "strip"), "-o", file.name, os.path.join(build, *below)], check=True)
        return read(file.name)


def licences():
    texts = {"LICENSE": read(tree, "LICENSE"), "NOTICE": read(tree, "NOTICE")}
    common = set()
    for package in packages:
        name = os.path.join(sysroot or "/", "usr/share/doc", package, "copyright")
        try:
            text = read(name)
        except OSError as error:
            sys.exit(f"make wheel: {name}: {error.strerror}: the wheel must have the licence of what its command contains")
        texts[f"command/{package}"] = text
        common |= set(re.findall(rb"/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])", text))
    for name in sorted(common):
        texts[f"command/common/{name.decode()}"] = read("/usr/share/common-licenses", name.decode())
    return texts


def files():
    for path, data in backend.modules():
        yield path, data, False
    # The folder of a prefix, as the command expects it.  It lies in the package, because pip removes the folders of a package
    # alone: other folders that it made stay behind, empty.
    native = "gpuprof/_native"
    yield f"{native}/bin/gpuprof", stripped("wheel", "gpuprof"), True
    for name in "libgpuprof.so", "libgpuprof-shim.so":
        yield f"{native}/lib/{name}", stripped("lib", name), True
    sim = os.path.join("lib", "gpuprof", "sim")
    for folder in sim, os.path.join(sim, "standin"):
        for name in sorted(os.listdir(os.path.join(build, folder))):
            # not the archive and the links, with which programs are linked
            if ".so" in name and not os.path.islink(os.path.join(build, folder, name)):
                yield f"{native}/{folder}/{name}", stripped(folder, name), True
    yield f"{native}/{sim}/bin/nvidia-smi", stripped(os.path.join(sim, "bin"), "nvidia-smi"), True
    for part in sorted(os.listdir(os.path.join(tree, "sim", "python"))):
        if part.endswith(".py"):
            script = os.path.join(sim, "python", part)
            yield f"{native}/{script}", read(build, script), False
    yield f"{backend.stem()}.data/scripts/gpuprof", read(here, "gpuprof.py"), True


folder = os.path.join(build, "wheel")
print(os.path.join(folder, backend.write_wheel(folder, f"py3-none-manylinux_{glibc}_{cpu}", files(), licences())))
