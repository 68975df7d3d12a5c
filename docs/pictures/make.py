#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the pictures of README.md and docs/report.md from real runs on the simulated GPU: `make pictures`, or
make.py [BUILD] [top] [report] [screens].

top.png     `gpuprof top` in a tmux of its own, over four example programs; the screen is captured with its colours.
report.png  the page of `gpuprof report -o`, from a recording of examples/leak.py.
screens.png the first screens of such pages, of seven programs.

top.png shows the path of the build, so make it in a folder with a plain name such as /opt/gpuprof.

Headless Chromium draws both.  Needs tmux and chromium (deploy/needs.sh all).  Ends only the programs that it started.
"""
import base64
import html
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(TREE, "tests", "web"))
import cdp  # noqa: E402

COLUMNS, ROWS = 120, 36
SIM = "--sim=devices=2,memory=24GiB,shared=pictures"  # all programs have the same two GPUs
# Visible devices (a program uses the first one), options of `gpuprof run`, command.  Rows are sorted by allocated bytes;
# the last row is selected, which is the server: it shows the most kinds of memory.
PROGRAMS = (
    ("0,1", (), ("serve", "--pace", "1")),
    ("0,1", (), ("leak_rt", "--pace", "1")),
    ("0,1", ("--allocator=pytorch",), ("train_rt", "--pace", "1")),
    ("1,0", (), ("train_rt", "--pace", "1")),
)
# Title, options of `gpuprof run`, command below BUILD.
SCREENS = (
    ("A Python program that leaks", (), ("python3", "leak.py")),
    ("Training, with an allocator as PyTorch's", ("--allocator=pytorch",), ("examples/train_rt", "--seconds", "2")),
    ("Serving", (), ("examples/serve", "--seconds", "2")),
    ("A leak in C", (), ("examples/leak_rt", "--steps", "60")),
    ("All memory through one wrapper", (), ("tests/programs/who", "wrapper")),
    ("Four threads", (), ("tests/programs/who", "threads")),
    ("Out of memory", (), ("tests/programs/who", "oom")),
)
COLOURS = ("#1e2127", "#e06c75", "#98c379", "#d19a66", "#61afef", "#c678dd", "#56b6c2", "#d7dae0")
# The report down to the end of its flame graph.
REPORT_END = "document.querySelector('.flame').getBoundingClientRect().bottom + window.scrollY + 20"
INK, PAPER = "#d7dae0", "#16181d"


# ---- gpuprof top -----------------------------------------------------------------------------------------------------


def colour(number):
    """The CSS colour of a terminal's 256-colour number: 16 named ones, a cube of 6x6x6, 24 greys."""
    if number < 16:
        return COLOURS[number % 8]
    if number < 232:
        steps = (0, 95, 135, 175, 215, 255)
        cube = number - 16
        return "#%02x%02x%02x" % (steps[cube // 36], steps[cube // 6 % 6], steps[cube % 6])
    return "#%02x%02x%02x" % ((8 + 10 * (number - 232),) * 3)


class Style:
    """What the escape sequences so far ask for: colours, bold, reverse."""

    def __init__(self):
        self.ink = self.paper = None
        self.bold = self.reverse = False

    def apply(self, codes):
        codes = [int(code or 0) for code in codes.split(";")]
        while codes:
            code = codes.pop(0)
            if code == 0:
                self.__init__()
            elif code == 1:
                self.bold = True
            elif code == 7:
                self.reverse = True
            elif code == 22:
                self.bold = False
            elif code == 27:
                self.reverse = False
            elif 30 <= code <= 37:
                self.ink = colour(code - 30)
            elif 40 <= code <= 47:
                self.paper = colour(code - 40)
            elif code in (39, 49):
                setattr(self, "ink" if code == 39 else "paper", None)
            elif code in (38, 48) and codes[:1] == [5]:
                setattr(self, "ink" if code == 38 else "paper", colour(codes[1]))
                del codes[:2]

    def css(self):
        ink, paper = self.ink or INK, self.paper or PAPER
        if self.reverse:
            ink, paper = paper, ink
        return f"color:{ink};background:{paper};font-weight:{'bold' if self.bold else 'normal'}"


def cell(match):
    """A dot pattern as wide as a cell: the page takes it from another font than the letters."""
    return f"<b style='display:inline-block;width:1ch;height:17px;overflow:hidden;vertical-align:top;font-weight:normal'>{match.group()}</b>"


def screen_to_html(screen):
    """A captured terminal as a page: one span for each run of equal style."""
    style, out = Style(), []
    for index, part in enumerate(re.split(r"\x1b\[([0-9;]*)m", screen.rstrip("\n"))):
        if index % 2:
            style.apply(part)
        elif part:
            text = re.sub("[\u2800-\u28ff]", cell, html.escape(part))
            out.append(f'<span style="{style.css()}">{text}</span>')
    return (
        f"<!doctype html><meta charset=utf-8><body style='margin:0;background:{PAPER}'>"
        f"<pre id=screen style='display:inline-block;margin:0;padding:14px 16px;"
        f"font:14px/17px DejaVu Sans Mono,monospace'>{''.join(out)}</pre>"
    )


def start_programs(build):
    """The example programs, each below a `gpuprof run`, which passes signals on to it."""
    path = os.path.join(build, "examples") + ":" + os.environ["PATH"]
    running = []
    for devices, options, program in PROGRAMS:
        command = [os.path.join(build, "bin", "gpuprof"), "run", SIM, *options, "--", *program, "--seconds", "60"]
        environment = dict(os.environ, PATH=path, CUDA_VISIBLE_DEVICES=devices)
        running.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL))
    return running


def child_of(process):
    """The pid of the program that a `gpuprof run` started."""
    for _ in range(100):
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as file:
            children = file.read().split()
        if children:
            return children[0]
        time.sleep(0.05)
    sys.exit("make.py: 'gpuprof run' started no program")


def capture_top(build, work):
    """The screen of `gpuprof top`, which has watched the example programs, and nothing else, for some seconds."""
    tmux = ["tmux", "-S", os.path.join(work, "tmux"), "-f", os.path.join(work, "tmux.conf")]
    with open(os.path.join(work, "tmux.conf"), "w", encoding="ascii") as file:
        file.write("set -g default-terminal tmux-256color\nset -g status off\n")
    running = start_programs(build)
    try:
        pids = ",".join(map(child_of, running))
        command = f"{os.path.join(build, 'bin', 'gpuprof')} top -d 0.3 -p {pids}"
        for _ in range(100):  # the screen ends at once if one of them is not profiled yet
            if subprocess.run([*command.split(), "--once"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0:
                break
            time.sleep(0.1)
        subprocess.run([*tmux, "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), command], check=True)
        time.sleep(8)
        subprocess.run([*tmux, "send-keys", "G"], check=True)
        time.sleep(2)
        screen = subprocess.run([*tmux, "capture-pane", "-e", "-p"], check=True, stdout=subprocess.PIPE, text=True)
        return screen.stdout
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            process.wait(20)


# ---- gpuprof report --------------------------------------------------------------------------------------------------


def make_report(build, work, options=(), program=("python3", "leak.py")):
    """The report page of a program, with this machine's paths cut short.  The program may fail."""
    gpuprof, page = os.path.join(build, "bin", "gpuprof"), os.path.join(work, "report.html")
    recording = os.path.join(work, "program.gpuprof")
    python = os.path.realpath(sys.executable)
    examples = os.path.join(TREE, "examples")
    first = python if program[0] == "python3" else os.path.join(build, program[0])
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": examples}
    run = [gpuprof, "run", "--sim=memory=4GiB", f"--record={recording}", *options, "--", first, *program[1:]]
    subprocess.run(run, check=False, **quiet)
    subprocess.run([gpuprof, "report", recording, "-o", page], check=True, **quiet)
    with open(page, encoding="utf-8") as file:
        text = file.read()
    for long, short in ((examples + "/", ""), (python, "python3"), (build + "/", "")):
        text = text.replace(long, short)
    with open(page, "w", encoding="utf-8") as file:
        file.write(text)
    return page


def make_screens(browser, build, work):
    """A page of the first screens of all SCREENS."""
    parts = []
    for title, options, program in SCREENS:
        page, picture = make_report(build, work, options, program), os.path.join(work, "screen.png")
        shoot(browser, page, picture, 1200, "760", 0.45)
        with open(picture, "rb") as file:
            data = base64.b64encode(file.read()).decode()
        parts.append(f"<figure><figcaption>{html.escape(title)}</figcaption><img src='data:image/png;base64,{data}'></figure>")
        os.remove(page)
        os.remove(os.path.join(work, "program.gpuprof"))
    page = os.path.join(work, "screens.html")
    with open(page, "w", encoding="utf-8") as file:
        file.write("<!doctype html><meta charset=utf-8><body style='margin:0'><div id=screen style='display:grid;width:1120px;"
                   "grid-template-columns:1fr 1fr;gap:12px'><style>figure{margin:6px}img{border:1px solid #aaa}"
                   f"figcaption{{font:bold 14px system-ui,sans-serif}}</style>{''.join(parts)}</div>")
    return page


# ---- drawing ---------------------------------------------------------------------------------------------------------


def shoot(browser, page, target, width, end, scale=1):
    """Draws the page down to `end`, a JavaScript expression for pixels from its top."""
    tab = cdp.Page(browser, width, 800)
    tab.open(page, ready="document.documentElement?.dataset.ready || !!document.querySelector('#screen')")
    width = tab.eval("document.querySelector('#screen')?.offsetWidth") or width
    height = tab.eval(f"Math.ceil({end})")
    tab.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)
    time.sleep(0.5)  # the page draws its graphs again in the new size
    tab.shot(target)
    tab.close()


def main():
    arguments = sys.argv[1:]
    build = os.path.abspath(arguments.pop(0) if arguments and os.path.isdir(arguments[0]) else os.path.join(TREE, "build"))
    wanted = arguments or ["top", "report", "screens"]
    chromium = cdp.find()
    if not chromium:
        sys.exit("make.py: chromium is missing: deploy/needs.sh check installs it")
    with tempfile.TemporaryDirectory(prefix="gpuprof-pictures-") as work:
        browser = cdp.Browser(chromium)
        try:
            if "top" in wanted:
                page = os.path.join(work, "top.html")
                with open(page, "w", encoding="utf-8") as file:
                    file.write(screen_to_html(capture_top(build, work)))
                shoot(browser, page, os.path.join(HERE, "top.png"), 1400, "document.querySelector('#screen').offsetHeight")
            if "report" in wanted:
                page = make_report(build, work)
                shoot(browser, page, os.path.join(HERE, "report.png"), 1200, REPORT_END, 0.75)
            if "screens" in wanted:
                page = make_screens(browser, build, work)
                shoot(browser, page, os.path.join(HERE, "screens.png"), 1120, "document.querySelector('#screen').offsetHeight")
        finally:
            browser.close()
    for name in sorted(wanted):
        path = os.path.join(HERE, name + ".png")
        print(f"{os.path.relpath(path)}: {os.path.getsize(path) / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
