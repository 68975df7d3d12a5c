# SPDX-License-Identifier: MIT
"""Builds the Python package for pip (PEP 517 and 660) with Python's own modules alone, so that
`pip install ./python` works without a network and without setuptools.  deploy/wheel/build.py writes
the wheel that contains the command too with the same functions.

The version is defined only in include/gpuprof/gpuprof.h, and pyproject.toml has the rest.  A source
distribution has the version in PKG-INFO.
"""
import base64
import hashlib
import io
import os
import re
import runpy
import sys
import tarfile
import time
import zipfile

here = os.path.dirname(os.path.abspath(__file__))
tree = os.path.dirname(here)


def read(*below):
    with open(os.path.join(*below), "rb") as file:
        return file.read()


def project():
    """[project] of pyproject.toml.  Every value becomes a list of strings, and stands in one line."""
    section = read(here, "pyproject.toml").decode().split("\n[project]\n")[1].split("\n[")[0]
    found = dict(re.findall(r"^([a-z-]+) = (.+)$", section, re.M))
    return {key: re.findall(r'"([^"]*)"', value) for key, value in found.items()}


def version():
    from_header = runpy.run_path(os.path.join(here, "gpuprof", "_version.py"))["from_header"]
    found = from_header(os.path.join(tree, "include", "gpuprof", "gpuprof.h"))
    if found:
        return found
    try:
        return re.search(r"^Version: (.+)$", read(here, "PKG-INFO").decode(), re.M).group(1)
    except OSError:
        # pip before 21.3 copies this folder away from the tree.
        sys.exit(
            f"gpuprof: {here}/../include/gpuprof/gpuprof.h, which has the version, is missing: use pip 21.3 or newer "
            "(pip install --upgrade pip), a wheel (make wheel), or PYTHONPATH"
        )


def entry_points():
    """The tables [project.entry-points.GROUP] of pyproject.toml, as the file of a distribution."""
    text = read(here, "pyproject.toml").decode()
    lines = []
    for group, table in re.findall(r"^\[project\.entry-points\.([\w.-]+)\]\n((?:[^\[\n][^\n]*\n)*)", text, re.M):
        lines.append(f"[{group}]")
        lines += [f"{name} = {value}" for name, value in re.findall(r'^([\w.-]+) = "([^"]*)"$', table, re.M)]
    return "\n".join(lines + [""]).encode()


def stem():
    """The part of file names that all distributions of this version begin with."""
    return f"{project()['name'][0].replace('-', '_')}-{version()}"


def metadata(licences=()):
    about = project()
    lines = ["Metadata-Version: 2.1", f"Name: {about['name'][0]}", f"Version: {version()}"]
    lines += [f"Summary: {about['description'][0]}", f"License: {about['license'][0]}"]
    lines += [f"Classifier: {value}" for value in about["classifiers"]]
    lines += [f"Requires-Python: {about['requires-python'][0]}", "Description-Content-Type: text/markdown"]
    lines += [f"License-File: {name}" for name in licences]
    return "\n".join(lines).encode() + b"\n\n" + read(here, "README.md")


def modules():
    """(path, contents) of the files of the package, in the order of their names."""
    for folder, folders, names in os.walk(os.path.join(here, "gpuprof")):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            if name.endswith((".py", "py.typed")):
                yield os.path.relpath(os.path.join(folder, name), here), read(folder, name)


def licence():
    """The licence, which lies above this folder, or in it in a source distribution."""
    for folder in here, tree:
        if os.path.isfile(os.path.join(folder, "LICENSE")):
            return {"LICENSE": read(folder, "LICENSE")}
    return {}


def write_wheel(directory, tag, files, licences):
    """Writes a wheel and returns its name.  files: (path, contents, executable).  Equal contents give
    equal bytes; SOURCE_DATE_EPOCH sets the time."""
    when = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), 315532800))[:6]  # a zip file begins in 1980
    info = f"{stem()}.dist-info"
    name = f"{stem()}-{tag}.whl"
    is_pure = "true" if tag.endswith("-any") else "false"
    files = list(files) + [(f"{info}/licenses/{path}", text, False) for path, text in licences.items()]
    files.append((f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: gpuprof\nRoot-Is-Purelib: {is_pure}\nTag: {tag}\n".encode(), False))
    files.append((f"{info}/METADATA", metadata(licences), False))
    files.append((f"{info}/entry_points.txt", entry_points(), False))
    record = ""
    for path, data, _ in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    files.append((f"{info}/RECORD", (record + f"{info}/RECORD,,\n").encode(), False))
    with zipfile.ZipFile(os.path.join(directory, name + ".new"), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data, executable in files:
            entry = zipfile.ZipInfo(path, when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            wheel.writestr(entry, data)
    os.replace(os.path.join(directory, name + ".new"), os.path.join(directory, name))
    return name


# ---- what pip calls --------------------------------------------------------------------------------------------------


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return write_wheel(wheel_directory, "py3-none-any", ((path, data, False) for path, data in modules()), licence())


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    link = (f"{project()['name'][0]}.pth", f"{here}\n".encode(), False)
    return write_wheel(wheel_directory, "py3-none-any", [link], licence())


def build_sdist(sdist_directory, config_settings=None):
    name = f"{stem()}.tar.gz"
    files = dict(modules(), **licence())
    files["PKG-INFO"] = metadata()
    for own in "pyproject.toml", "README.md", "backend.py":
        files[own] = read(here, own)
    with tarfile.open(os.path.join(sdist_directory, name), "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for path, data in files.items():
            entry = tarfile.TarInfo(f"{stem()}/{path}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return name
