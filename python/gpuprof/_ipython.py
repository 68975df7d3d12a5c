# SPDX-License-Identifier: MIT
"""The magic `%%gpuprof` of IPython and Jupyter: runs a cell and shows what it did to the GPU's memory.

    %load_ext gpuprof
    %%gpuprof            how much the cell added, its peak, what it left behind
    %%gpuprof --page     and the report page of the cell, below it

The notebook's kernel must be profiled: `gpuprof run jupyter lab`, or `gpuprof attach PID` of a running one.
"""
from __future__ import annotations

import html
import os
import signal
import subprocess
import tempfile
import time
from typing import Any, List, Optional

from . import _library
from ._memory import GpuMemory, size_text

_START_S = 10  # until a recording has begun
_HINT = "this process is not profiled: start the kernel under 'gpuprof run', or 'gpuprof attach {pid}'"


class _Recording:
    """Records this process into a file of its own while a cell runs."""

    def __init__(self, command: str, folder: str) -> None:
        self.command = command
        self.file = os.path.join(folder, "cell.gpuprof")
        self.page = os.path.join(folder, "cell.html")
        self.recorder = subprocess.Popen(
            [command, "record", "-p", str(os.getpid()), "-q", "-o", self.file],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        end = time.monotonic() + _START_S
        while time.monotonic() < end and self.recorder.poll() is None and not os.path.exists(self.file):
            time.sleep(0.01)

    def end(self) -> Optional[str]:
        """The page; None after its reason was printed."""
        if self.recorder.poll() is None:
            self.recorder.send_signal(signal.SIGINT)
        problem = self.recorder.communicate(timeout=60)[1]
        if self.recorder.returncode == 0:
            made = subprocess.run(
                [self.command, "report", self.file, "-o", self.page], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
            )
            problem = made.stderr
            if made.returncode == 0:
                with open(self.page, encoding="utf-8") as file:
                    return file.read()
        print(f"gpuprof: the cell was not recorded: {problem.strip()}")
        return None


def _run(shell: Any, cell: str) -> None:
    measured = GpuMemory()
    measured.mark()
    result = shell.run_cell(cell)
    measured.close()
    if not _library.is_active():
        print(f"gpuprof: {_HINT.format(pid=os.getpid())}")
        return
    print(f"GPU memory: added {size_text(measured.added())}, peak {size_text(measured.peak())}, left behind {size_text(measured.left())}")
    for place, size in measured.by_line()[:5] if result.success else ():
        print(f"{size_text(size):>12}  {place}")


def magic(shell: Any, line: str, cell: str) -> None:
    words: List[str] = line.split()
    if any(word != "--page" for word in words):
        print("gpuprof: usage: %%gpuprof [--page]")
        return
    command = _library.find_command()
    if not words:
        _run(shell, cell)
        return
    if command is None or not _library.is_active():
        why = "the gpuprof command was not found" if command is None else _HINT.format(pid=os.getpid())
        print(f"gpuprof: no page: {why}")
        _run(shell, cell)
        return
    with tempfile.TemporaryDirectory(prefix="gpuprof-cell-") as folder:
        recording = _Recording(command, folder)
        try:
            _run(shell, cell)
        finally:
            page = recording.end()
    if page is not None:
        from IPython.display import HTML, display

        frame = f'<iframe srcdoc="{html.escape(page)}" style="width:100%;height:720px;border:0"></iframe>'
        display(HTML(f"<div>{frame}</div>"))  # IPython warns of a bare frame


def load(shell: Any) -> None:
    shell.register_magic_function(lambda line, cell: magic(shell, line, cell), magic_kind="cell", magic_name="gpuprof")
