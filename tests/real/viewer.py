#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""viewer.py VIEWER D3 SNAPSHOT...: opens snapshots in PyTorch's own viewer, in a headless Chromium.

VIEWER is PyTorch's torch/utils/viz/MemoryViz.js, D3 the file d3.js of d3 7, which VIEWER loads from the network otherwise. In
each of its views, for every GPU: every shape is hovered and clicked, and every event is selected (or 400 of them, first, last
and evenly between). An exception is a failure, and so is a view without any shape. The sizes that the viewer computes are
compared with the snapshot's: what the segments reserve, and what their blocks allocate, after each event that is selected.
Prints "N passed, N failed"."""
import base64
import json
import os
import pickle
import re
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "web"))
import cdp

PAGE = """<!DOCTYPE html><meta charset="utf-8"><body><script>window.thrown = [];
addEventListener('error', e => thrown.push(String(e.error && e.error.stack || e.message)));
addEventListener('unhandledrejection', e => thrown.push(String(e.reason && e.reason.stack || e.reason)));</script>
<script>D3_SOURCE</script><script type="module">VIEWER_SOURCE
window.page_open = (name, base64) => add_local_files([{name, base64}], 'Active Memory Timeline');
document.documentElement.dataset.ready = '1';</script>"""

# Events are sent to each shape itself: one that is covered by another is as much a part of the picture. The small map, where
# d3 selects a part of the time, is left out: it expects a whole gesture of a mouse.
TOUCH = """(async () => {
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    const shown = [...document.body.children].filter(e => e.tagName === 'DIV' && e.style.display !== 'none' && e.querySelector('svg, pre'));
    const some = (list, most) => list.length <= most ? list : Array.from({length: most}, (_, i) => list[Math.round(i * (list.length - 1) / (most - 1))]);
    const totals = [];
    let shapes = 0;
    const touch = e => ['mouseover', 'mousemove', 'mousedown', 'mouseup', 'click', 'mouseleave'].forEach(kind =>
        e.dispatchEvent(new MouseEvent(kind, {bubbles: true, cancelable: true, view: window, clientX: 200, clientY: 200})));
    for (const top of shown) {
        const texts = [...top.querySelectorAll('pre')], rows = texts.filter(e => e.parentNode !== texts[0].parentNode);
        for (const e of some(rows, 400)) {
            touch(e);
            const said = /\\((\\d+) bytes\\) allocated \\/ .*?\\((\\d+) bytes\\) reserved/.exec(texts[0].textContent);
            totals.push([rows.indexOf(e), said && +said[1], said && +said[2]]);
        }
        for (const e of some([...top.querySelectorAll('svg polygon, svg rect, svg path')]
            .filter(e => !e.closest('svg:has(> .overlay)')), 2000)) { touch(e); shapes++; }
    }
    for (const key of ['ArrowDown', 'ArrowDown', 'ArrowUp'])
        document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
    return {shapes, totals};
})()"""
CHOOSE = """((select, value) => { select.value = value; select.dispatchEvent(new Event('change')); })
    (document.querySelectorAll('select')[%d], %s)"""
OPTIONS = "[...document.querySelectorAll('select')].map(s => [...s.options].map(o => o.value))"


def page_source(viewer, d3):
    """The viewer imports d3 from the network, and a module of a file may import nothing: both are put into the page."""
    with open(viewer) as file:
        source = file.read()
    names = [name for part in re.findall(r"^import \{([^}]*)\}", source, re.M) for name in part.split(",")]
    source = re.sub(r"^import .*$", "", source, flags=re.M)
    source = re.sub(r"^export \{[^}]*\};?", "", re.sub(r"^export (function)", r"\1", source, flags=re.M), flags=re.M)
    with open(d3) as file:
        library = file.read()
    source = "const d3 = window.d3; const {%s} = d3;\n" % ", ".join(name.strip() for name in names) + source
    return PAGE.replace("D3_SOURCE", library).replace("VIEWER_SOURCE", source)


# What an event adds to the allocated and to the reserved bytes, in their sizes.
MOVES = {"alloc": (1, 0), "free": (-1, 0), "free_completed": (-1, 0), "segment_alloc": (0, 1), "segment_map": (0, 1), "segment_free": (0, -1), "segment_unmap": (0, -1)}


def totals_after(content, device):
    """Allocated and reserved bytes after each event: from the segments at the end backwards."""
    segments = [s for s in content["segments"] if s["device"] == device]
    now = (sum(b.get("requested_size", b["size"]) for s in segments for b in s["blocks"] if b["state"] != "inactive"), sum(s["total_size"] for s in segments))
    after, later = [], {}
    for event in reversed(content["device_traces"][device]):
        # The viewer shows a request to free and the end of it that follows at once as one event.
        if not (event["action"] == "free_requested" and later.get("action") == "free_completed" and later["addr"] == event["addr"]):
            after.append(now)
        sign = MOVES.get(event["action"], (0, 0))
        now, later = (now[0] - sign[0] * event["size"], now[1] - sign[1] * event["size"]) if any(sign) else now, event
    return after[::-1]


def look(browser, path, snapshot):
    """Every view of every GPU of one snapshot; returns what is wrong, and what was touched."""
    with open(snapshot, "rb") as file:
        data = file.read()
    content = pickle.loads(data)
    used = {s["device"] for s in content["segments"]} | {i for i, t in enumerate(content["device_traces"]) if t}
    if not used:
        return [], "empty: there is no GPU to choose"
    page, wrong, seen = cdp.Page(browser, width=1400, height=1000), [], []
    page.open(path)
    page.eval("page_open(%s, %s)" % (json.dumps(os.path.basename(snapshot)), json.dumps(base64.b64encode(data).decode())))
    _, views, devices = [o for o in page.eval(OPTIONS) if o][:3]
    if {int(d) for d in devices} != used:
        wrong.append(f"GPUs {devices} instead of {sorted(used)}")
    for device in devices:
        for view in views:
            page.eval(CHOOSE % (1, json.dumps(view)))
            page.eval(CHOOSE % (2, json.dumps(device)))
            touched = page.eval(TOUCH)
            thrown = page.eval("thrown.splice(0)")
            wrong += [f"{view}, GPU {device}: {one}" for one in thrown[:3]]
            seen.append(f"{touched['shapes']}+{len(touched['totals'])}")
            after = totals_after(content, int(device))
            differ = [(i, got, after[i]) for i, *got in touched["totals"] if tuple(got) != after[i]]
            if differ or "History" in view and not touched["totals"] and after:
                wrong.append(f"{view}, GPU {device}: totals after an event differ: {differ[:3]}")
            drawn = content["device_traces"][int(device)] if "Timeline" in view else [s for s in content["segments"] if s["device"] == int(device)]
            if "Settings" not in view and drawn and not touched["shapes"]:
                wrong.append(f"{view}, GPU {device}: nothing is drawn")
    page.close()
    return wrong, " ".join(seen)


def main():
    viewer, d3, *snapshots = sys.argv[1:]
    path = cdp.find()
    if not path:
        print("no browser")
        sys.exit(77)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="gpuprof-test-viewer-") as folder:
        page = os.path.join(folder, "page.html")
        with open(page, "w") as file:
            file.write(page_source(viewer, d3))
        browser = cdp.Browser(path)
        try:
            for snapshot in snapshots:
                try:
                    wrong, seen = look(browser, page, snapshot)
                except cdp.Failed as error:
                    wrong, seen = [str(error)], ""
                failed += bool(wrong)
                print("FAILED" if wrong else "ok", os.path.basename(snapshot), seen)
                for one in wrong[:6]:
                    print("       ", one)
        finally:
            browser.close()
    print(f"{len(snapshots) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
