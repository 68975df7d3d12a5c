# SPDX-License-Identifier: MIT
"""`python -m gpuprof`: prints this interpreter's memory table, and starts scripts under gpuprof."""
from __future__ import annotations

import os
import sys
from typing import List, NoReturn

from . import _library, _parquet, _summary, _version

_USAGE = """usage: python -m gpuprof              prints the memory table of this interpreter, for each device
       python -m gpuprof -p PID       prints the table of another process
       python -m gpuprof --version    prints the version of this package
       python -m gpuprof run [OPTIONS OF gpuprof run] (SCRIPT | -m MODULE | -c CODE) [ARGUMENTS]
       python -m gpuprof parquet (FILE|DIR).. -o OUT    writes the tables of recordings as Parquet; needs pyarrow

The first form is useful under `gpuprof run` or with python -i; in a program, call
gpuprof.memory_summary().  `run` starts this Python again under `gpuprof run`, for example:
python -m gpuprof run --summary train.py --epochs 3

Exit status: 0; 1 failed; 2 wrong usage; 3 not profiled.  `run` exits with the program's status.
"""


def _say(command: str, what: str) -> None:
    print(f"gpuprof: {command}: {what}", file=sys.stderr)


def _exec(command: str, arguments: List[str]) -> int:
    path = _library.find_command()
    if path is None:
        _say(command, "the gpuprof command is neither on PATH nor beside this package: build it with `make`, or add it to PATH")
        return 1
    sys.stdout.flush()
    try:
        os.execv(path, [path] + arguments)
    except OSError as error:
        _say(command, f"{path}: {error.strerror}")
        return 1


def _run(arguments: List[str]) -> int:
    """Options for `gpuprof run` come first; the other arguments are for Python."""
    own = 0
    while own < len(arguments) and arguments[own].startswith("-") and arguments[own] not in ("-m", "-c", "--"):
        own += 1
    options, program = arguments[:own], arguments[own:]
    if program[:1] == ["--"]:
        program = program[1:]
    if any(option in ("-h", "--help") for option in options):
        return _exec("run", ["help", "run"])
    if not program:
        _say("run", "no script: name one, or -m MODULE or -c CODE")
        return 2
    return _exec("run", ["run"] + options + ["--", sys.executable] + program)


def _summary_of_this() -> int:
    library = _library.active()
    if library is None:
        _say("python", "this interpreter is not profiled: it was not started by `gpuprof run`, or has not used CUDA; -p PID names another process")
        return 3
    for device in range(max(1, library.gpuprof_device_count())):
        sys.stdout.write(_summary.memory_summary(device))
    return 0


def main(arguments: List[str]) -> int:
    if not arguments:
        return _summary_of_this()
    if arguments[0] in ("-h", "--help", "help"):
        sys.stdout.write(_USAGE)
        return 0
    if arguments == ["--version"]:
        print(f"gpuprof {_version.version()}")
        return 0
    if arguments[0] == "run":
        return _run(arguments[1:])
    if arguments[0] == "parquet":
        return _parquet.main(arguments[1:])
    pid = arguments[1] if arguments[0] in ("-p", "--pid") and len(arguments) == 2 else ""
    if arguments[0].startswith("--pid=") and len(arguments) == 1:
        pid = arguments[0][len("--pid=") :]
    if not pid.isdigit():
        _say("python", f"{' '.join(arguments)}: not understood: see python -m gpuprof --help")
        return 2
    return _exec("python", ["stat", "--summary", "-p", pid])


def _entry() -> NoReturn:
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    _entry()
