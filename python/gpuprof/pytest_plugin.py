# SPDX-License-Identifier: MIT
"""GPU memory limits for tests: the plugin that pytest finds by its entry point.

    @pytest.mark.limit_gpu_memory("2 GiB")                 # the most that the test adds
    @pytest.mark.limit_gpu_leaks("0 B", warmup=2)          # what it leaves behind, after two runs more
    def test_forward(gpu_memory): ...

Start the tests under gpuprof: `gpuprof run -- pytest`, without a GPU `gpuprof run --sim -- pytest`.
Otherwise the tests run, their limits are not checked, and the summary says so.  Nothing of gpuprof
is imported before a test needs it.
"""
from __future__ import annotations

import functools
import gc
import inspect
import json
import os
from typing import Any, Callable, Dict, Generator, List, Optional, Tuple

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._memory import GpuMemory

_PROPERTY = "gpu_memory_"
_HINT = "start pytest under gpuprof: 'gpuprof run -- pytest', without a GPU 'gpuprof run --sim -- pytest'"
_LINES = 5  # of a failure


def _is_started() -> bool:
    """Whether this process is profiled, or will be when it first uses CUDA."""
    if os.environ.get("CUDA_INJECTION64_PATH"):
        return True
    from . import _library

    return _library.is_active()


# ---- limits ----------------------------------------------------------------------------------------------------------


def _limit(item: Any, name: str) -> Optional[Tuple[int, Dict[str, Any]]]:
    mark = item.get_closest_marker(name)
    if mark is None:
        return None
    options = dict(mark.kwargs)
    from ._memory import parse_size

    try:
        (size,) = mark.args or (options.pop("limit"),)
        return parse_size(size), options
    except (KeyError, ValueError) as error:
        pytest.fail(f"{name}: one size is needed, such as '2 GiB': {error}", pytrace=False)


def _held(what: str, limit: int, count: int, lines: List[Tuple[str, int]]) -> None:
    from ._memory import size_text

    if count <= limit:
        return
    text = f"GPU memory: the test {what} {size_text(count)}, {size_text(count - limit)} over its limit of {size_text(limit)}"
    for place, size in lines[:_LINES]:
        text += f"\n    {size_text(size):>10}  {place}"
    if not lines and os.environ.get("GPUPROF_RECORD"):
        text += "\n    'gpuprof peak' names the lines: the recording has a mark at the start and the end of the test"
    elif not lines and os.environ.get("GPUPROF_STACKS", "off") == "off":
        text += "\n    to see the lines that hold it, add --stacks=all to 'gpuprof run'"
    pytest.fail(text, pytrace=False)


class _Test:
    """The function of a test with limits, and what is kept for the report."""

    def __init__(self, item: Any) -> None:
        self.item = item
        self.memory = _limit(item, "limit_gpu_memory")
        self.leaks = _limit(item, "limit_gpu_leaks")
        self.warmup = 0
        if self.leaks:
            options = self.leaks[1]
            self.warmup = int(options.pop("warmup", options.pop("warmups", 0)))
        for name, found in ("limit_gpu_memory", self.memory), ("limit_gpu_leaks", self.leaks):
            if found and found[1]:
                pytest.fail(f"{name}: no such argument: {', '.join(found[1])}", pytrace=False)

    def _begin(self) -> GpuMemory:
        from ._memory import GpuMemory
        from ._scope import _write

        gc.collect()
        measured = GpuMemory()
        measured.mark(lines=self.leaks is not None)
        _write(self.item.name)
        return measured

    def _end(self, measured: GpuMemory, failed: bool) -> None:
        from ._scope import _write

        measured.close()
        _write("/" + self.item.name)
        added, peak = measured.added(), measured.peak()
        lines = measured.by_line() if self.memory and added > self.memory[0] and not failed else []
        gc.collect()
        left = measured.left()
        kept = measured.by_line(peak=False) if self.leaks and left > self.leaks[0] and not failed else []
        for name, value in ("peak", peak), ("added", added), ("left", left):
            self.item.user_properties.append((f"{_PROPERTY}{name}_bytes", value))
        if failed:
            return
        if self.memory:
            _held("needed", self.memory[0], added, lines)
        if self.leaks:
            _held("left behind", self.leaks[0], left, kept)

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with its warm-up runs and the measurement, for pytest and unittest."""

        @functools.wraps(function)
        def plain(*arguments: Any, **keywords: Any) -> Any:
            for _ in range(self.warmup):
                function(*arguments, **keywords)
            measured, failed = self._begin(), True
            try:
                result = function(*arguments, **keywords)
                failed = False
            finally:
                if failed:
                    self._end(measured, failed)
            self._end(measured, failed)
            return result

        @functools.wraps(function)
        async def coroutine(*arguments: Any, **keywords: Any) -> Any:
            for _ in range(self.warmup):
                await function(*arguments, **keywords)
            measured, failed = self._begin(), True
            try:
                result = await function(*arguments, **keywords)
                failed = False
            finally:
                if failed:
                    self._end(measured, failed)
            self._end(measured, failed)
            return result

        return coroutine if inspect.iscoroutinefunction(function) else plain


# ---- pytest ----------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("gpuprof", "GPU memory")
    # Two options: one with an optional name would take the name of a test for it, and write over that.
    group.addoption("--gpuprof-report", action="store_true", help="measure the GPU memory of every test, and print the tests with the most")
    group.addoption("--gpuprof-json", metavar="FILE", help="measure the GPU memory of every test, and write all to FILE")


_JSON_START = b'{\n "schema": "gpuprof.'


def _json_check(path: Optional[str]) -> None:
    """A mistyped name must not destroy another file."""
    if path and os.path.isfile(path):
        with open(path, "rb") as file:
            start = file.read(len(_JSON_START))
        if start not in (b"", _JSON_START):
            raise pytest.UsageError(f"--gpuprof-json={path}: exists and was not written by gpuprof: choose another name")


def pytest_configure(config: Any) -> None:
    _json_check(config.getoption("--gpuprof-json", None))
    config.addinivalue_line("markers", "limit_gpu_memory(size): fail if the test adds more GPU memory than that, on one device (not that of processes it starts)")
    config.addinivalue_line(
        "markers", "limit_gpu_leaks(size, warmup=0): fail if the test leaves more GPU memory behind, after that many runs before (not in processes it starts)"
    )


def _is_measured(item: Any) -> bool:
    marked = item.get_closest_marker("limit_gpu_memory") or item.get_closest_marker("limit_gpu_leaks")
    option = item.config.getoption
    return bool(marked) or bool(option("--gpuprof-report", False) or option("--gpuprof-json", None))


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_call(item: Any) -> Generator[None, Any, None]:
    function = getattr(item, "obj", None)
    if function is None or not callable(function) or not _is_measured(item):
        yield
        return
    if not _is_started():
        item.user_properties.append((f"{_PROPERTY}unchecked", True))
        yield
        return
    try:
        item.obj = _Test(item).wrap(function)
    except pytest.fail.Exception as error:  # of a marker: the test itself reports it
        message = str(error)

        def refused(*_arguments: Any, **_keywords: Any) -> None:
            pytest.fail(message, pytrace=False)

        item.obj = functools.wraps(function)(refused)
    try:
        yield
    finally:
        item.obj = function


@pytest.fixture
def gpu_memory() -> Generator[GpuMemory, None, None]:
    """GPU memory since the test began, or since `gpu_memory.mark()`."""
    if not _is_started():
        pytest.skip(f"gpu_memory: this process is not profiled: {_HINT}")
    from ._memory import GpuMemory

    measured = GpuMemory()
    measured.mark()
    yield measured
    measured.close()


def _rows(reporter: Any) -> List[Dict[str, Any]]:
    rows = []
    for reports in reporter.stats.values():
        for report in reports:
            found = {name: value for name, value in getattr(report, "user_properties", ()) if name.startswith(_PROPERTY)}
            if found and getattr(report, "when", None) == "call":
                row = {"test": report.nodeid, "outcome": report.outcome}
                row.update((name[len(_PROPERTY) :], value) for name, value in found.items())
                rows.append(row)
    return sorted(rows, key=lambda row: (-row.get("added_bytes", 0), row["test"]))


def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
    from . import _files
    from ._memory import size_text

    path = config.getoption("--gpuprof-json", None)
    rows = _rows(terminalreporter)
    unchecked = [row for row in rows if "unchecked" in row]
    measured = [row for row in rows if "unchecked" not in row]
    if unchecked:
        terminalreporter.section("GPU memory", yellow=True)
        terminalreporter.write_line(f"{len(unchecked)} tests ran without gpuprof, and their memory was not checked: {_HINT}")
    if config.getoption("--gpuprof-report", False) and measured:
        terminalreporter.section("GPU memory of tests")
        terminalreporter.write_line(f"{'added':>11} {'peak':>11} {'left':>11}  test")
        for row in measured[:30]:
            sizes = " ".join(f"{size_text(row.get(name, 0)):>11}" for name in ("added_bytes", "peak_bytes", "left_bytes"))
            terminalreporter.write_line(f"{sizes}  {row['test']}")
        if len(measured) > 30:
            terminalreporter.write_line(f"{len(measured) - 30} more: --gpuprof-json=FILE writes all")
    if path:
        text = json.dumps({"schema": "gpuprof.pytest/1", "unchecked": len(unchecked), "tests": measured}, indent=1)
        _files.write(path, (text + "\n").encode())
