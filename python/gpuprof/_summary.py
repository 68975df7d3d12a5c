# SPDX-License-Identifier: MIT
"""Prints the table of torch.cuda.memory_summary, character for character."""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _device, _stats

_WIDTH = 75
_SIZES = (
    ("allocated_bytes", "Allocated memory"),
    ("active_bytes", "Active memory"),
    ("requested_bytes", "Requested memory"),
    ("reserved_bytes", "GPU reserved memory"),
    ("inactive_split_bytes", "Non-releasable memory"),
)
_COUNTS = (
    ("allocation", "Allocations"),
    ("active", "Active allocs"),
    ("segment", "GPU reserved segments"),
    ("inactive_split", "Non-releasable allocs"),
)
_OVERSIZE = (("oversize_allocations", "Oversize allocations"), ("oversize_segments", "Oversize GPU segments"))
_MOMENTS = ("current", "peak", "allocated", "freed")


def _scaled(value: int, group: int, base: int, step: int, units: Tuple[str, ...]) -> Tuple[int, str]:
    """`value` in the unit in which `group`, the value of its row, fits into a cell."""
    unit = 0
    while unit < len(units) - 1 and group >= step:
        value, group, unit = value // base, group // base, unit + 1
    return value, units[unit]


def _size(value: Optional[int], group: Optional[int]) -> str:
    """
    >>> _size(1000, 1000), _size(786432, 786432), _size(12, 786432), _size(None, None)
    ('  1000 B  ', '   768 KiB', '     0 KiB', '     -    ')
    """
    if value is None or group is None:
        return "%6s    " % "-"
    return "%6d %s" % _scaled(value, group, 1024, 768 * 1024, ("B  ", "KiB", "MiB", "GiB", "TiB", "PiB"))


def _count(value: Optional[int], group: Optional[int]) -> str:
    """
    >>> _count(749999, 749999), _count(750000, 750000), _count(None, None)
    (' 749999   ', '    750 K ', '      -   ')
    """
    if value is None or group is None:
        return "%7s   " % "-"
    return "%7d %s " % _scaled(value, group, 1000, 750 * 1000, (" ", "K", "M"))


_Values = List[Optional[int]]
_Cell = Callable[[Optional[int], Optional[int]], str]


def _row(name: str, values: _Values, groups: _Values, cell: _Cell) -> str:
    return " %-21s | %s " % (name, " | ".join(cell(value, group) for value, group in zip(values, groups)))


def _group(stats: Dict[str, Optional[int]], key: str, name: str, cell: _Cell, abbreviated: bool) -> List[str]:
    def values(pool: str) -> _Values:
        return [stats.get(f"{key}.{pool}.{moment}", 0) for moment in _MOMENTS]

    whole = values("all")
    rows = [_row(name, whole, whole, cell)]
    if not abbreviated:
        rows.append(_row("      from large pool", values("large_pool"), whole, cell))
        rows.append(_row("      from small pool", values("small_pool"), whole, cell))
    return rows


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The statistics as a table in exactly the layout of `torch.cuda.memory_summary`.

    >>> print(memory_summary().splitlines()[1])
    |                  PyTorch CUDA memory summary, device ID 0                 |
    >>> len(memory_summary().splitlines()), len(memory_summary(abbreviated=True).splitlines())
    (47, 29)
    """
    number = _device.number(device)
    stats = _stats.memory_stats(number)
    thick, thin = "=" * _WIDTH, "-" * _WIDTH
    ooms, retries = stats.get("num_ooms", 0), stats.get("num_alloc_retries", 0)
    lines = [
        thick,
        "%18sPyTorch CUDA memory summary, device ID %-17d " % ("", number),
        thin,
        "%12sCUDA OOMs: %-12d | %7scudaMalloc retries: %-8d  " % ("", ooms, "", retries),
        thick,
        "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ",
    ]
    for metrics, cell in ((_SIZES, _size), (_COUNTS, _count)):
        for key, name in metrics:
            lines += [thin] + _group(stats, key, name, cell, abbreviated)
    for key, name in _OVERSIZE:
        values = [stats.get(f"{key}.{moment}", 0) for moment in _MOMENTS]
        lines += [thin, _row(name, values, values, _count)]
    lines.append(thick)
    return "".join(f"|{line}|\n" for line in lines)
