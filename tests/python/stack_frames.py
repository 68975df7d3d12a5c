# SPDX-License-Identifier: MIT
"""Compares the stack that libgpuprof reads with the interpreter's own: function, file and line of every frame.

    python3 stack_frames.py PROBE.so

The probe takes the stack and then, before it returns, calls back into Python, which walks sys._getframe(): both saw the same
frames at the same instructions.  Everything runs with the GIL held and released, on the main thread and on others.
"""
import asyncio
import contextlib
import ctypes
import functools
import gc
import os
import sys
import threading

PROBE = os.path.abspath(sys.argv[1])
ROOM = 128
LIBRARIES = {"released": ctypes.CDLL(PROBE), "held": ctypes.PyDLL(PROBE)}
CALLBACK = ctypes.CFUNCTYPE(None)
for library in LIBRARIES.values():
    library.probe_note.restype = ctypes.c_char_p

here = threading.local()
results = {"passed": 0, "failed": 0}


def text(string):
    return string.encode("utf-8", "backslashreplace").decode()[:4096]


def own_frames(frame):
    frames = []
    while frame is not None:
        code = frame.f_code
        frames.append((text(getattr(code, "co_qualname", code.co_name)), text(code.co_filename), frame.f_lineno or 0))
        frame = frame.f_back
    return frames


def take(library, room=ROOM):
    """The frames that the library reads here, those that Python reports, and whether there were more."""
    out = ctypes.create_string_buffer(1 << 20)
    more = ctypes.c_int()
    want = []

    @CALLBACK
    def then():
        want.extend(own_frames(sys._getframe(1)))

    count = library.probe_stack(out, ctypes.c_size_t(len(out)), room, ctypes.byref(more), then)
    got = []
    for line in out.value.decode().split("\x1e")[:-1]:
        function, file, number = line.split("\x1f")
        got.append((function, file, int(number)))
    assert count == len(got), count
    return got, want, bool(more.value)


def probe():
    """The cases call this at the depth that they reached."""
    here.count += 1
    got, want, more = take(here.library)
    if got != want[:ROOM] or more != (len(want) > ROOM):
        here.wrong.append((got, want, more))


CASES = []


def case(function):
    CASES.append(function)
    return function


@case
def plain():
    probe()


@case
def nested():
    def outer(n):
        def inner():
            return probe() if n == 0 else outer(n - 1)
        return inner()
    outer(7)


@case
def lines():
    for _ in range(3):
        probe()
    if here.count:
        probe(
        )
    (lambda first, second:
        probe())(
            1,
            2)
    value = [
        0,
        probe(),
        1
    ]; probe()
    try:
        probe()
        raise KeyError(value)
    except KeyError:
        probe()
    finally:
        probe()
    while True:
        probe()
        break
    with contextlib.suppress(Exception):
        probe()
    return (probe()
            or probe())


@case
def many_lines():
    body = "".join("x = %d\n" % i + "\n" * (i % 7) + "if x < 0:\n    x = (x +\n   1)\n" for i in range(2000))
    exec(compile(body + "probe()\n" + "\n" * 300 + "probe()\n", "<many>", "exec"), {"probe": probe})


@case
def generators():
    def count(n):
        for i in range(n):
            probe()
            yield i
        if n:
            yield from count(n - 1)
    list(count(3))
    sum(x for x in count(2) if probe() is None)
    waiting = count(1)
    next(waiting)
    [next(waiting, None) for _ in range(2)]


@case
def comprehensions():
    [probe() for _ in range(2)]
    {probe() for _ in range(2)}
    {i: probe() for i in range(2)}
    [[probe() for _ in range(2)] for _ in range(2)]


@case
def coroutines():
    async def leaf(n):
        probe()
        await asyncio.sleep(0)
        probe()
        return n

    async def stream():
        for i in range(3):
            probe()
            yield await leaf(i)

    async def main():
        async for _ in stream():
            probe()
        await asyncio.gather(*(leaf(i) for i in range(3)))
        async with contextlib.AsyncExitStack():
            probe()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@case
def decorators():
    def wrap(function):
        @functools.wraps(function)
        def wrapper(*args, **more):
            probe()
            return function(*args, **more)
        return wrapper

    @wrap
    @functools.lru_cache(None)
    @wrap
    def decorated(a, *, b=2):
        probe()
        return a + b
    decorated(1, b=3)


@case
def classes():
    class Base:
        probe()

        def __init__(self):
            probe()

        def __len__(self):
            probe()
            return 1

        @property
        def value(self):
            probe()
            return 1

        @staticmethod
        def static():
            probe()

        @classmethod
        def made(cls):
            probe()
            return cls()

        def __del__(self):
            probe()

        def __lt__(self, other):
            probe()
            return id(self) < id(other)

    class Derived(Base):
        def __init__(self):
            super().__init__()
            self.static()
    one = Derived.made()
    len(one)
    one.value
    sorted([one, Derived()])
    del one
    sorted([1, 2], key=lambda _: probe() or 0)
    list(map(lambda _: probe(), range(2)))
    functools.reduce(lambda a, b: probe(), range(3))


@case
def odd_code():
    space = {"probe": probe}
    for name in ("<odd>", "", "a" * 300, "tab\there", "ünïcode/ñame.py", "日本/語.py", "\U0001f40d.py", "/bad/\udcff\udc80.py",
                 "latin\xe9", "mixed é 日 \U0001f40d"):
        exec(compile("probe()\ndef inner():\n\n    probe()\ninner()\n", name, "exec"), dict(space))
        eval(compile("[probe() for _ in range(1)]", name, "eval"), dict(space))
    exec("def größe():\n    probe()\ndef 関数():\n    größe()\nclass Ünï:\n    def μ(self): probe(); 関数()\nÜnï().μ()", dict(space))
    odd = (lambda: probe()).__code__.replace(co_name="no such \u2028 name", co_firstlineno=1 << 20)
    eval(odd, dict(space))
    exec("\n" * 70000 + "probe()", dict(space))


@case
def deep():
    def down(n):
        return down(n - 1) if n else probe()
    down(100)
    down(400)


@case
def mixed_calls():
    # With C in between: each of these enters the interpreter again.
    def by_callback(n):
        again = CALLBACK(lambda: by_callback(n - 1))
        probe() if n == 0 else again()
    by_callback(4)
    list(map(lambda _: [probe() for _ in range(1)], sorted([2, 1], key=lambda x: probe() or x)))
    exec("import functools\nfunctools.partial(probe)()", {"probe": probe})


@case
def traced():
    inside = []

    def tracer(frame, event, arg):
        if not inside and frame.f_code.co_name == "watched":
            inside.append(event)
            probe()
            inside.pop()
        return tracer

    def watched():
        x = 1
        for _ in range(2):
            x += 1
        probe()
        return x
    old = sys.gettrace()
    sys.settrace(tracer)
    try:
        watched()
    finally:
        sys.settrace(old)
    sys.setprofile(tracer)
    try:
        watched()
    finally:
        sys.setprofile(None)
    watched()


@case
def collected():
    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            probe()
    Cycle()
    gc.collect()

    # Until 3.11 a collection may start while the frame of a function with cells, or of a generator, is being set up.
    def cells(first):
        second = third = [first]

        def inner():
            return first, second, third
        yield inner

    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(40):
            Cycle()
            cells(0)
            list(cells(1))
    finally:
        gc.set_threshold(*before)


@case
def truncated():
    def down(n):
        return down(n - 1) if n else [take(here.library, room) for room in (0, 1, 5, 64)]
    for room, (got, want, more) in zip((0, 1, 5, 64), down(70)):
        here.count += 1
        if got != want[:room] or not more:
            here.wrong.append((got, want, more))


@case
def python_on_a_c_thread():
    kept = dict(here.__dict__)

    def inside():
        here.__dict__.update(kept)
        probe()
        nested()
        kept["count"] = here.count
    # Waiting for that thread releases the GIL; inside it, the case decides whether the GIL is held.
    LIBRARIES["released"].probe_call(CALLBACK(inside))
    here.count = kept["count"]


@case
def forked():
    child = os.fork()
    if child == 0:
        try:
            nested()
            os._exit(1 if here.wrong else 0)
        except BaseException:
            os._exit(2)
    status = os.waitpid(child, 0)[1]
    here.count += 1
    if status:
        here.wrong.append(("a forked child", status, None))


def run(function, way, where):
    here.library, here.count, here.wrong = LIBRARIES[way], 0, []
    error = None
    try:
        function()
        if here.count == 0:
            error = "took no stack"
    except BaseException as caught:  # noqa: B902 a failed case must not stop the others
        error = repr(caught)
    if error or here.wrong:
        results["failed"] += 1
        print(f"FAILED {function.__name__}, GIL {way}, {where}: {error or ''} {len(here.wrong)} of {here.count} wrong")
        for got, want, more in here.wrong[:2]:
            print("   got", got, "more" if more else "")
            print("  want", want)
    else:
        results["passed"] += 1


def expect(what, value, wanted):
    results["passed" if value == wanted else "failed"] += 1
    if value != wanted:
        print(f"FAILED {what}: {value!r}, not {wanted!r}")


def foreign_threads(way, library):
    expect(f"a thread that never ran Python, GIL {way}", library.probe_foreign(None), 0)
    seen = []
    after = CALLBACK(lambda: seen.append(len(own_frames(sys._getframe()))))
    expect(f"a thread after Ensure and Release, GIL {way}", library.probe_foreign(after), 0)
    expect(f"... which was in Python, GIL {way}", seen, [1])


def main():
    for function in CASES:
        for way in LIBRARIES:
            run(function, way, "main thread")
            thread = threading.Thread(target=run, args=(function, way, "another thread"))
            thread.start()
            thread.join()
    foreign_threads("released", LIBRARIES["released"])
    expect("the note", LIBRARIES["held"].probe_note(), None)
    print("%(passed)d passed, %(failed)d failed, 0 skipped" % results, "(Python %s)" % sys.version.split()[0])
    sys.stdout.flush()
    sys.exit(results["failed"] != 0)


main()
