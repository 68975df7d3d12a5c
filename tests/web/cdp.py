# SPDX-License-Identifier: MIT
"""Drives a headless Chromium over its debugging pipe: JSON messages that end with NUL on descriptors 3 and 4.

It needs only the standard library, and opens no port that another program could connect to.
"""
import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find():
    return os.environ.get("CHROMIUM") or next((path for path in map(shutil.which, NAMES) if path), None)


class Failed(Exception):
    pass


class Browser:
    def __init__(self, path):
        self.profile = tempfile.mkdtemp(prefix="gpuprof-test-web-")
        to_read, self.write_end = os.pipe()
        self.read_end, to_write = os.pipe()

        def child():
            os.setsid()
            # Move both above 4 first, because each may have the number that the other must get.
            a, b = os.dup(to_read), os.dup(to_write)
            a, b = (os.dup(a), os.dup(b)) if min(a, b) < 5 else (a, b)
            os.dup2(a, 3)
            os.dup2(b, 4)

        arguments = ["--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "--no-first-run", "--disable-gpu", "--disable-extensions",
                     "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--force-color-profile=srgb", "--hide-scrollbars"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")
        self.log = open(os.path.join(self.profile, "log"), "wb")
        self.child = subprocess.Popen([path, *arguments, "about:blank"], preexec_fn=child, close_fds=False, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        os.close(to_read)
        os.close(to_write)
        self.number, self.rest, self.events, self.answers = 0, b"", [], {}

    def pump(self, seconds):
        """Reads the messages that have arrived; waits at most `seconds` for one."""
        if not select.select([self.read_end], [], [], max(0, seconds))[0]:
            return
        part = os.read(self.read_end, 1 << 20)
        if not part:
            raise Failed("the browser is gone")
        *whole, self.rest = (self.rest + part).split(b"\0")
        for text in whole:
            message = json.loads(text)
            if "id" in message:
                self.answers[message["id"]] = message
            else:
                self.events.append(message)

    def call(self, method, session=None, timeout=60, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write_end, data):]
        end = time.monotonic() + timeout
        while self.number not in self.answers:
            if time.monotonic() > end:
                raise Failed(f"{method}: no answer within {timeout} s")
            self.pump(end - time.monotonic())
        answer = self.answers.pop(self.number)
        if "error" in answer:
            raise Failed(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def close(self):
        try:
            self.call("Browser.close", timeout=5)
            self.child.wait(10)
        except (Failed, OSError, subprocess.TimeoutExpired):
            pass
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)  # its own session: see child()
            self.child.wait()
        self.log.close()
        shutil.rmtree(self.profile, ignore_errors=True)


class Page:
    """One tab.  Keeps all of its requests, warnings and errors."""

    def __init__(self, browser, width=1280, height=800, dark=False, mobile=False, scripts=True, reduced=True):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.media(dark, reduced)
        if not scripts:
            self.call("Emulation.setScriptExecutionDisabled", value=True)

    def media(self, dark, reduced=True, kind=""):
        self.call("Emulation.setEmulatedMedia", media=kind, features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                                                                     {"name": "prefers-reduced-motion", "value": "reduce" if reduced else "no-preference"}])

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def open(self, path, ready="document.documentElement?.dataset.ready", timeout=60):
        """Opens a file; returns the seconds until the page is ready."""
        begin = time.monotonic()
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        while ready and not self.eval(ready):
            if time.monotonic() - begin > timeout:
                raise Failed(f"{path}: not ready after {timeout} s: {self.complaints()}")
            time.sleep(0.01)
        return time.monotonic() - begin

    def eval(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise Failed(f"{expression[:200]}: {answer['exceptionDetails'].get('exception', {}).get('description', answer['exceptionDetails'])}")
        return answer["result"].get("value")

    def key(self, key, shift=False, text=None):
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        text = text if text is not None else "\r" if key == "Enter" else key if len(key) == 1 else None
        base = dict(key=key, modifiers=8 if shift else 0, windowsVirtualKeyCode=codes.get(key, ord(key[0].upper())))
        self.call("Input.dispatchKeyEvent", type="keyDown", **base, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **base)

    def mouse(self, kind, x, y, buttons=0):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left" if kind != "mouseMoved" else "none", buttons=buttons, clickCount=1)

    def shot(self, path, whole=False):
        clip = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = dict(clip=dict(x=0, y=0, width=size["width"], height=size["height"], scale=1), captureBeyondViewport=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png", **clip)["data"]))

    def mine(self, *methods):
        self.browser.pump(0)
        return [e["params"] for e in self.browser.events if e.get("sessionId") == self.session and e["method"] in methods]

    def requests(self):
        return [p["request"]["url"] for p in self.mine("Network.requestWillBeSent")]

    def complaints(self):
        said = [p["exceptionDetails"].get("exception", {}).get("description") or p["exceptionDetails"]["text"] for p in self.mine("Runtime.exceptionThrown")]
        said += [p["entry"]["text"] for p in self.mine("Log.entryAdded") if p["entry"]["level"] in ("error", "warning")]
        return said + [str(p["args"]) for p in self.mine("Runtime.consoleAPICalled") if p["type"] in ("error", "warning", "assert")]

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
