# SPDX-License-Identifier: MIT
"""GPU memory of a stretch of a program, by line where it can be known; for tests and notebooks."""
from __future__ import annotations

import json
import os
import re
import subprocess
from typing import Any, Dict, List, Tuple

from . import _device, _library
from ._scope import scope

_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([KMGTP]?)i?B?\s*", re.IGNORECASE)


def parse_size(text: Any) -> int:
    """Bytes of "2 GiB", "24 MB", "1.5g" or a number.  Units are powers of 1024, with and without i, as in the
    limits of pytest-memray; the command's options read GB as 10^9 bytes.

    >>> parse_size("2 GiB") == parse_size("2GB") == 2 << 30, parse_size("0 B"), parse_size(7)
    (True, 0, 7)
    """
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return text
    found = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"{text!r} is no size of memory such as '2 GiB'")
    return int(float(found.group(1)) * 1024 ** _UNITS[found.group(2).upper()])


def size_text(count: float) -> str:
    """
    >>> size_text(3 << 20), size_text(12), size_text(-2048)
    ('3.0 MiB', '12 B', '-2.0 KiB')
    """
    if abs(count) < 1024:
        return f"{count:.0f} B"
    for unit in "KMGT":
        count /= 1024
        if abs(count) < 1024 or unit == "T":
            return f"{count:.1f} {unit}iB"
    return ""


class GpuMemory:
    """What the fixture `gpu_memory` gives: memory of the GPU since the test began, or since `mark()`.

    All numbers are bytes, exact, over all threads and libraries.  `device` as in the rest of gpuprof;
    None: the device with the most.
    """

    def __init__(self) -> None:
        self._scope: Any = None
        self._begin: Dict[int, int] = {}
        self._lines: Dict[str, int] = {}
        self._before = 0  # the highest peak of the process before

    def _now(self) -> Dict[int, int]:
        library = _library.active()
        count = library.gpuprof_device_count() if library is not None else 0
        return {number: max(0, library.gpuprof_memory_allocated(number)) for number in range(count)}

    def _numbers(self, device: Any) -> List[int]:
        return sorted(self._now()) if device is None else [_device.number(device)]

    def mark(self, lines: bool = False) -> None:
        """From now on, `peak`, `added` and `left` count from here.  lines: `by_line(peak=False)` too."""
        self.close()
        self._lines = dict(_lines("live_bytes")) if lines else {}
        self._scope = scope("gpu_memory")
        self._scope.__enter__()
        self._begin = self._now()
        self._before = self._highest()

    def close(self) -> None:
        """Ends the measurement; its numbers stay."""
        if self._scope is not None and self._scope._final is None:
            self._scope.__exit__(None, None, None)

    def allocated(self, device: Any = None) -> int:
        """Allocated now."""
        now = self._now()
        return max((now.get(number, 0) for number in self._numbers(device)), default=0)

    def peak(self, device: Any = None) -> int:
        """The most that was allocated at once, with what was there before."""
        return max((self._scope.peak_allocated(number) for number in self._numbers(device)), default=0)

    def added(self, device: Any = None) -> int:
        """The same, without what was allocated at the start."""
        peaks = (self._scope.peak_allocated(number) - self._begin.get(number, 0) for number in self._numbers(device))
        return max(0, max(peaks, default=0))

    def left(self, device: Any = None) -> int:
        """Allocated now and not at the start; less than 0: more was freed."""
        now = self._now()
        return max((now.get(number, 0) - self._begin.get(number, 0) for number in self._numbers(device)), default=0)

    def by_line(self, peak: bool = True) -> List[Tuple[str, int]]:
        """(line, bytes) of what held the peak, or with peak=False of what is held now and was not at a
        mark with lines; the largest first.

        Needs call sites (`gpuprof run --stacks=all`, or --record), and for the peak that it is higher than
        any before: else the list is empty."""
        if peak and self._highest() <= self._before:
            return []
        rows = _lines("at_peak_bytes" if peak else "live_bytes")
        if not peak:
            rows = [(place, size - self._lines.get(place, 0)) for place, size in rows]
        return sorted((row for row in rows if row[1] > 0), key=lambda row: -row[1])

    def _highest(self) -> int:
        library = _library.active()
        return max((library.gpuprof_max_memory_allocated(number) for number in self._now()), default=0) if library else 0


def _lines(key: str) -> List[Tuple[str, int]]:
    """Bytes of each line of this process that has call sites."""
    command = _library.find_command()
    if command is None or not _library.is_active():
        return []
    try:
        text = subprocess.run(
            [command, "top", "--once", "--by", "site", "--json", "-p", str(os.getpid())],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=20,
            check=False,
        ).stdout
        sites = json.loads(text)["sites"]
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired):
        return []
    sums: Dict[str, int] = {}
    for site in sites:
        file, line, function = site.get("file"), site.get("line"), site.get("function") or site.get("name")
        place = f"{function} ({os.path.basename(file)}:{line})" if file and line else function
        if place and place != "[unknown]":
            sums[place] = sums.get(place, 0) + (site.get(key) or 0)
    return list(sums.items())
