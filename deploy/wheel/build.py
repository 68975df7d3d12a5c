#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the wheel: the Python package, the command, the libraries and the simulated GPU.

    build.py BUILD_DIR CPU VERSION SYSROOT PACKAGE...

`make wheel` calls it.  The PACKAGEs are the Debian packages whose archives the command contains; their
licences go into the wheel.  Equal inputs give equal bytes (SOURCE_DATE_EPOCH sets the time).  Needs
Python's own modules alone.
"""
import base64
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile

build, cpu, version, sysroot, *packages = sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))
tree = os.path.dirname(os.path.dirname(here))
glibc = (2, 28)  # tests/integration/test_package.sh checks it
tag = f"py3-none-manylinux_{glibc[0]}_{glibc[1]}_{cpu}"


def read(*below):
    with open(os.path.join(*below), "rb") as file:
        return file.read()


def project():
    """[project] of pyproject.toml; its values are strings and lists of strings, one line each."""
    section = read(tree, "python", "pyproject.toml").decode().split("[project]")[1].split("\n[")[0]
    found = dict(re.findall(r"^([a-z-]+) = (.+)$", section, re.M))
    return {key: re.findall(r'"([^"]*)"', value) for key, value in found.items()}


def stripped(path):
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run([os.environ.get("STRIP", "strip"), "-o", file.name, path], check=True)
        return read(file.name)


def licences():
    texts = {"LICENSE": read(tree, "LICENSE"), "NOTICE": read(tree, "NOTICE")}
    common = set()
    for package in packages:
        name = os.path.join(sysroot or "/", "usr/share/doc", package, "copyright")
        try:
            texts[f"command/{package}"] = text = read(name)
        except OSError as error:
            sys.exit(f"make wheel: {name}: {error.strerror}: the wheel must have the licence of what its command contains")
        common |= set(re.findall(rb"/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])", text))
    for name in sorted(common):
        texts[f"command/common/{name.decode()}"] = read("/usr/share/common-licenses", name.decode())
    return texts


def metadata(about, names):
    lines = ["Metadata-Version: 2.1", f"Name: {about['name'][0]}", f"Version: {version}"]
    lines += [f"Summary: {about['description'][0]}", "License: " + about["license"][0]]
    lines += [f"Classifier: {value}" for value in about["classifiers"]]
    lines += [f"Requires-Python: {about['requires-python'][0]}", "Description-Content-Type: text/markdown"]
    lines += [f"License-File: {name}" for name in names]
    return "\n".join(lines).encode() + b"\n\n" + read(tree, "python", "README.md")


def contents():
    """(path in the wheel, bytes, executable) of every file but RECORD, those of .dist-info last."""
    about = project()
    stem = f"{about['name'][0].replace('-', '_')}-{version}"
    # The folder of a prefix, as the command expects it.  It lies in the package, because pip removes the folders of a package
    # alone: other folders that it made stay behind, empty.
    native, info = "gpuprof/_native", f"{stem}.dist-info"
    source = os.path.join(tree, "python")
    for folder, folders, names in os.walk(os.path.join(source, "gpuprof")):
        folders.sort()
        for name in sorted(names):
            if name.endswith((".py", "py.typed")):
                yield os.path.relpath(os.path.join(folder, name), source), read(folder, name), False
    yield f"{native}/bin/gpuprof", stripped(os.path.join(build, "wheel", "gpuprof")), True
    for name in "libgpuprof.so", "libgpuprof-shim.so":
        yield f"{native}/lib/{name}", stripped(os.path.join(build, "lib", name)), True
    sim = os.path.join(build, "lib", "gpuprof", "sim")
    for name in sorted(os.listdir(sim)):  # not the archive and the links, with which programs are linked
        if not name.endswith(".a") and not os.path.islink(os.path.join(sim, name)):
            yield f"{native}/lib/gpuprof/sim/{name}", stripped(os.path.join(sim, name)), True
    yield f"{stem}.data/scripts/gpuprof", read(here, "gpuprof.py"), True
    texts = licences()
    for name, text in texts.items():
        yield f"{info}/licenses/{name}", text, False
    yield f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: gpuprof\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), False
    yield f"{info}/METADATA", metadata(about, texts), False


def main():
    when = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), 315532800))[:6]  # a zip file begins in 1980
    record, files = [], list(contents())
    info = os.path.dirname(files[-1][0])
    path = os.path.join(build, "wheel", f"{info[: -len('.dist-info')]}-{tag}.whl")
    with zipfile.ZipFile(path + ".new", "w", zipfile.ZIP_DEFLATED) as wheel:

        def add(name, data, executable=False):
            entry = zipfile.ZipInfo(name, when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            wheel.writestr(entry, data)

        for name, data, executable in files:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}\n")
            add(name, data, executable)
        add(f"{info}/RECORD", "".join(record + [f"{info}/RECORD,,\n"]).encode())
    os.rename(path + ".new", path)
    print(path)


main()
