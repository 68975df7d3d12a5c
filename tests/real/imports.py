# SPDX-License-Identifier: MIT
"""imports.py SIM FOLDER...: what tests/real/imports.sh says."""
import os
import re
import subprocess
import sys

sim, folders = sys.argv[1], sys.argv[2:]
# NVIDIA's own libraries are what the simulator stands for; what they ask of each other is private.
THEIRS = re.compile(r"lib(cuda|cudart|cupti|nvidia-ml|nvperf_.*|pcsamplingutil|checkpoint)\.so")
WORD = re.compile(rb"(?:cu[A-Z][A-Za-z0-9]*|cuda[A-Z][A-Za-z0-9]*|__cuda[A-Z][A-Za-z0-9]*|nvml[A-Z][A-Za-z0-9]*|cupti[A-Z][A-Za-z0-9]*)(?:_v[0-9]+)?(?:_(?:ptds|ptsz))?")


def names(library):
    """What the library defines, and what it wants."""
    text, found = subprocess.run(["nm", "-D", library], capture_output=True, text=True).stdout, (set(), set())
    for line in text.splitlines():
        *_, kind, name = ["", *line.split()][-2:]
        found[kind in "Uwv"].add(name.partition("@")[0])
    return found


seen = set()


def texts(library):
    """The bytes in which a compiler puts strings; the code for GPUs, which is much larger, lies elsewhere."""
    sections = subprocess.run(["readelf", "-SW", library], capture_output=True, text=True).stdout
    with open(library, "rb") as opened:
        for line in sections.splitlines():
            found = re.match(r" *\[ *\d+\] (\.rodata\S*|\.lrodata\S*) +PROGBITS +\w+ (\w+) (\w+)", line)
            if found:
                opened.seek(int(found[2], 16))
                yield opened.read(int(found[3], 16))


def libraries(folder):
    for path, folders_in, files in os.walk(folder):
        for file in files:
            whole = os.path.join(path, file)
            if (".so" in file or file.endswith(".node")) and not os.path.islink(whole):
                same = file, os.path.getsize(whole)
                with open(whole, "rb") as opened:
                    # Several environments have the same one.
                    if same not in seen and opened.read(4) == b"\x7fELF":
                        seen.add(same)
                        yield whole


def headers(folder):
    """The functions that NVIDIA's headers in the packages declare: a word in a library's strings is a function's name if it is one."""
    found = set()
    for path, _, files in os.walk(folder):
        for file in files:
            if file in ("cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "cuda_runtime_api.h", "nvml.h", "cuda_gl_interop.h",
                        "cuda_egl_interop.h", "cudaProfiler.h", "cuda_profiler_api.h") or file.startswith("cupti_") and file.endswith(".h"):
                with open(os.path.join(path, file), errors="replace") as opened:
                    found.update(re.findall(r"\b((?:cu|cuda|nvml|cupti)[A-Z]\w*)\s*\(", opened.read()))
    return found


have, everything, wanted, named, count = set(), set(), {}, {}, 0
for file in os.listdir(sim):
    if ".so" in file:
        have |= names(os.path.join(sim, file))[0]
declared = set().union(*(headers(folder) for folder in folders))
theirs = set()  # what NVIDIA's own libraries in the packages export: a header has functions of Windows and of kernels, too
for folder in folders:
    for library in libraries(folder):
        if THEIRS.match(os.path.basename(library)):
            theirs |= names(library)[0]
            continue
        count += 1
        defines, wants = names(library)
        everything |= defines
        for name in wants:
            wanted.setdefault(name, library)
        for text in texts(library):
            for word in text.split(b"\0"):
                if word[:2] in (b"cu", b"nv", b"__") and WORD.fullmatch(word):
                    named.setdefault(word.decode(), library)
one = re.compile(WORD.pattern.decode() + r"\Z")
imports = sorted(name for name in wanted if one.match(name) and name not in have and name not in everything)
base = re.compile(r"(_v\d+)?(_pt[ds]s|_ptsz)?$")
strings = sorted(name for name in named if name not in have and name not in everything and name not in imports
                 and (name in theirs or not name.startswith(("cuda", "cupti")) and base.sub("", name) in declared))
for kind, missing, where in (("imported", imports, wanted), ("looked up", strings, named)):
    for name in missing:
        print(f"missing, {kind}: {name} ({os.path.basename(where[name])} of {where[name].split('/index/')[-1].split('/')[0]})")
asked = sum(1 for name in set(wanted) | set(named) if one.match(name) and name in have)
print(f"{count} libraries in {len(folders)} environments want {asked + len(imports) + len(strings)} functions: {asked} are there")
print(f"{asked} passed, {len(imports) + len(strings)} failed, 0 skipped")
sys.exit(bool(imports or strings))
