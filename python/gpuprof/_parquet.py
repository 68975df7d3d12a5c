# SPDX-License-Identifier: MIT
"""`python -m gpuprof parquet`: the tables of `gpuprof export --format=arrow` as Parquet, by pyarrow.

The files have the same names and the same columns, in the same folders.  Each is complete or absent, and of a recording the table
`job` comes last, so a second run goes on where the first one ended.
"""
from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import glob
import os
import re
import shutil
import subprocess
import sys
from typing import Dict, Iterator, List, Optional, Tuple

from . import _library

USAGE = """usage: python -m gpuprof parquet (FILE|DIR).. -o OUT [--job=NAME] [--force]

Writes the tables of recordings (gpuprof export --format=arrow) as Parquet into the folder OUT.  DIR is a folder of recordings.
"""
_OURS = ".gpuprof-export"  # in a folder that is ours; a run holds its lock
_WORK = ".arrow"  # in OUT: tables that are being converted
_ROWS = 1 << 20  # of a row group
# Numbers of which a recording has few.  The others follow one another: differences of them are small.
_FEW = {"rank", "pid", "device", "site", "thread", "tid", "line", "depth", "bytes", "requested_bytes", "stream", "world_size",
        "local_rank", "driver_version"}


class _Failed(Exception):
    """What ends the command."""


def _say(what: str) -> None:
    print(f"gpuprof: parquet: {what}", file=sys.stderr)


def _word(text: str) -> str:
    """A part of a path as gpuprof export writes it."""
    def one(at: int, byte: int) -> str:
        plain = re.match(rb"[A-Za-z0-9+-]" if at == 0 else rb"[A-Za-z0-9._+-]", bytes([byte]))
        return chr(byte) if plain else f"%{byte:02X}"
    return "".join(one(at, byte) for at, byte in enumerate(os.fsencode(text)))


def _base(path: str) -> str:
    name = os.path.basename(path)
    for end in (".gz", ".gpuprof"):
        name = name[: -len(end)] if name.endswith(end) and len(name) > len(end) else name
    return name


def _recordings(path: str) -> Tuple[str, List[str]]:
    """The name of the job, and its files."""
    name = _base(os.path.realpath(path))
    if not os.path.isdir(path):
        return re.sub(r"(?i)(?<=.)\.rank\d.*", "", name), [path]
    files = sorted(glob.glob(os.path.join(glob.escape(path), "*.gpuprof")))
    if not files:
        raise _Failed(f"{path}: no recording is in this folder: their names end with .gpuprof")
    return name, files


class _Run:
    def __init__(self, out: str, force: bool, command: str) -> None:
        self.out, self.force, self.command = out, force, command
        self.found: Dict[Tuple[str, str], str] = {}
        self.written = self.replaced = self.there = self.left = self.made = 0

    def _find(self, job: str) -> None:
        """The tables `job` that are there, by the name of the recording."""
        for path in glob.glob(os.path.join(glob.escape(self.out), "job", "job=" + _word(job), "rank=*", "*.parquet")):
            self.found[job, os.path.basename(path)] = os.path.relpath(path, os.path.join(self.out, "job"))

    def is_there(self, job: str, file: str, time: Optional[int]) -> bool:
        """Whether all of the recording is there.  Removes what is there of another one with its name."""
        rest = self.found.get((job, _word(_base(file)) + ".parquet"))
        if rest is None or time is None:
            return False
        complete = os.path.join(self.out, "job", rest)
        if not self.force and os.stat(complete).st_mtime_ns == time:
            return True
        os.unlink(complete)
        for path in glob.glob(os.path.join(glob.escape(self.out), "*", glob.escape(rest))):
            os.unlink(path)
        self.replaced += 1
        return False

    def _convert(self, path: str, to: str, time: Optional[int]) -> None:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
        os.makedirs(os.path.dirname(to), exist_ok=True)
        part = os.path.join(os.path.dirname(to), f".{os.path.basename(to)}.part")
        with pyarrow.memory_map(path) as source, _removed(part):
            table = pyarrow.ipc.open_stream(source).read_all()
            words = [column.name for column in table.schema
                     if column.name in _FEW or pyarrow.types.is_string(column.type) or pyarrow.types.is_boolean(column.type)]
            pyarrow.parquet.write_table(
                table, part, row_group_size=_ROWS, compression="zstd", version="2.6", use_dictionary=words,
                column_encoding={name: "DELTA_BINARY_PACKED" for name in table.schema.names if name not in words})
            if time is not None:
                os.utime(part, ns=(time, time))
            os.replace(part, to)

    def write(self, work: str, job: str, file: str) -> str:
        """One recording: "written", "there", or "left" after a message."""
        try:
            time: Optional[int] = os.stat(file).st_mtime_ns  # before it is read
        except OSError:
            time = None
        if self.is_there(job, file, time):
            return "there"
        try:
            done = subprocess.run([self.command, "export", file, "--format=arrow", "-o", work, "--job", job],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            for line in done.stderr.decode("utf-8", "replace").splitlines():
                if not re.search(r": of 1 recordings \d written", line):  # of this one
                    print(line.replace("gpuprof: export:", "gpuprof: parquet:"), file=sys.stderr)
            if done.returncode:
                if b"; it is left out" in done.stderr:
                    return "left"
                raise _Failed(f"{file}: not written")
            tables = glob.glob(os.path.join(glob.escape(work), "*", "*", "*", "*.arrows"))
            for path in sorted(tables, key=lambda path: (os.path.relpath(path, work).startswith("job" + os.sep), path)):
                name = os.path.relpath(path, work)[: -len(".arrows")] + ".parquet"
                self._convert(path, os.path.join(self.out, name), time if name.startswith("job" + os.sep) else None)
            return "written"
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def all(self, jobs: List[Tuple[str, List[str]]]) -> None:
        files = list(dict.fromkeys((job, file) for job, names in jobs for file in names))  # one named twice is written once
        self.made = len(files)
        names = {(job, _base(file)): file for job, file in files}
        for job, file in files:
            if names[job, _base(file)] != file:
                raise _Failed(f"{file} and {names[job, _base(file)]} would be one file of the job {job}: name two jobs with --job")
        for job in {job for job, _ in files}:
            self._find(job)
        shutil.rmtree(os.path.join(self.out, _WORK), ignore_errors=True)  # of a run that was killed
        os.mkdir(os.path.join(self.out, _WORK))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            waiting = [pool.submit(self.write, os.path.join(self.out, _WORK, str(i)), job, file)
                       for i, (job, file) in enumerate(files)]
            try:
                for done in concurrent.futures.as_completed(waiting):
                    what = done.result()
                    self.written += what == "written"
                    self.there += what == "there"
                    self.left += what == "left"
            finally:
                for future in waiting:
                    future.cancel()
        shutil.rmtree(os.path.join(self.out, _WORK), ignore_errors=True)


@contextlib.contextmanager
def _removed(part: str) -> Iterator[None]:
    """Removes a file that was not completed."""
    try:
        yield
    except BaseException:
        if os.path.exists(part):
            os.unlink(part)
        raise


def _lock(out: str, force: bool) -> int:
    """Makes OUT, and takes its lock, which the process holds until it ends."""
    os.makedirs(out, exist_ok=True)
    if not force and os.listdir(out) and not os.path.exists(os.path.join(out, _OURS)):
        raise _Failed(f"-o {out}: this folder has files that were not written by gpuprof: choose another name, or write into it "
                      "with --force")
    fd = os.open(os.path.join(out, _OURS), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise _Failed(f"{out}: another command of gpuprof writes into this folder") from None
    return fd


def _parse(arguments: List[str]) -> Tuple[List[str], str, Optional[str], bool]:
    paths: List[str] = []
    out: Optional[str] = None
    job: Optional[str] = None
    force = False
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word == "--force":
            force = True
        elif name in ("-o", "--output", "--job"):
            if not equals:
                if not rest:
                    raise ValueError(f"{name}: a value is missing")
                value = rest.pop(0)
            if name == "--job":
                job = value
            else:
                out = value
        elif word.startswith("-"):
            raise ValueError(f"{word}: there is no such option")
        else:
            paths.append(word)
    if not paths:
        raise ValueError("no recording given")
    if not out:
        raise ValueError("name a folder for the tables with -o")
    return paths, out, job, force


def _missing() -> Optional[str]:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        return f"Parquet needs pyarrow, which this Python lacks (pip install pyarrow): {error}"
    return None


def main(arguments: List[str]) -> int:
    if any(word in ("-h", "--help") for word in arguments):
        sys.stdout.write(USAGE)
        return 0
    try:
        paths, out, job, force = _parse(arguments)
    except ValueError as error:
        _say(f"{error}: see python -m gpuprof parquet --help")
        return 2
    missing = _missing()
    command = _library.find_command()
    if missing or command is None:
        _say(missing or "the gpuprof command is neither on PATH nor beside this package")
        return 1
    lock = -1
    try:
        jobs = [_recordings(path) for path in paths]
        lock = _lock(out, force)
        run = _Run(out, force, command)
        run.all([(job or name, files) for name, files in jobs])
    except (_Failed, OSError) as error:
        _say(str(error))
        return 1
    finally:
        if lock >= 0:
            os.close(lock)
    kept = f", {run.replaced} of them in place of others with these names" if run.replaced else ""
    kept += f", {run.there} there already" if run.there else ""
    left = f", {run.left} left out" if run.left else ""
    _say(f"{out}: of {run.made} recordings {run.written} written{kept}{left}")
    return 0 if run.written + run.there else 1
