# SPDX-License-Identifier: MIT
"""Checks the files that test_export.c wrote: export_check.py FOLDER BLOCKS

Reads each format as its own readers do: csv, json and sqlite3 of Python, the sqlite3 command, protobuf by its wire
rules and by protoc-c, Arrow by those of its stream format, collapsed stacks by flamegraph.pl's expression, traces by Perfetto's rules.  Computes the expected
contents from truth.json, which has the raw events as the test copied them.  Uses no code of the product.
"""
import csv
import gzip
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections import Counter, defaultdict

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../lib"))
import arrow_stream  # noqa: E402

folder, blocks = sys.argv[1], int(sys.argv[2])
here = os.path.dirname(os.path.abspath(__file__))
truth = json.load(open(os.path.join(folder, "truth.json")))
events, stacks = truth["events"], truth["stacks"]
ALLOC, FREE, OOM, MARK = 1, 2, 7, 9
TYPES = {1: "alloc", 2: "free", 7: "oom", 9: "mark"}
KINDS = {0: None, 1: "linear", 2: "pitched", 3: "array", 4: "vmm", 5: "pool", 6: "graph", 7: "managed", 8: "pinned",
         9: "registered", 10: "imported", 11: "virtual"}
COUNTED = {"linear", "pitched", "array", "vmm", "pool", "pinned", "registered"}
HOST = 64


def path(name):
    return os.path.join(folder, name)


def must(condition, *what):
    if not condition:
        raise SystemExit("export_check: " + " ".join(map(str, what)))


def device_name(index):
    session = truth["devices"][index]
    return "host" if session == HOST else str(session)


# ---- the truth: who was live when -----------------------------------------------------------------------------------
allocated, calls = Counter(), Counter()
live_now, live_count = Counter(), Counter()
total, peak, peak_parts, peak_event = Counter(), Counter(), {}, {}
by_kind, series = defaultdict(Counter), defaultdict(list)
for number, e in enumerate(events):
    kind, device = KINDS[e["kind"]], e["device"]
    begin = e if e["type"] == ALLOC else events[e["peer"]] if e["type"] == FREE and e["peer"] >= 0 else None
    if begin is None:
        continue
    sign = 1 if e["type"] == ALLOC else -1
    key = (begin["site"], device, kind)
    by_kind[device][kind] += sign * begin["bytes"]
    if kind in COUNTED:
        if sign > 0:
            allocated[key] += begin["bytes"]
            calls[key] += 1
        live_now[key] += sign * begin["bytes"]
        live_count[key] += sign
        total[device] += sign * begin["bytes"]
        if total[device] > peak[device]:
            peak[device], peak_event[device] = total[device], number
            peak_parts[device] = {k: v for k, v in live_now.items() if k[1] == device and v}
    series[device].append((e["time_ns"], total[device], dict(by_kind[device])))
live = {k: v for k, v in live_now.items() if v}
at_peak = {k: v for parts in peak_parts.values() for k, v in parts.items()}
last = {"live": live, "peak": at_peak, "allocated": dict(allocated)}


# ---- CSV and JSON lines ---------------------------------------------------------------------------------------------
def check_csv():
    raw = open(path("csv"), "rb").read()
    must(raw.endswith(b"\r\n"), "csv: the last record has no CRLF")
    rows = list(csv.DictReader(open(path("csv"), newline="", encoding="utf-8"), strict=True))
    must(len(rows) == len(events), "csv:", len(rows), "records of", len(events))
    for number, (row, e) in enumerate(zip(rows, events)):
        must(None not in row and None not in row.values(), "csv: a record of another length:", row)
        must(row["event"] == str(number) and row["type"] == TYPES[e["type"]], "csv:", row)
        must(row["time_ns"] == str(e["time_ns"]), "csv: time", row)
        must(int(row["unix_ns"]) == truth["begin_unix_ns"] + e["time_ns"] - truth["begin_ns"], "csv: unix time", row)
        must(row["kind"] == (KINDS[e["kind"]] or ""), "csv: kind", row)
        must(row["name"] == (e["name"] or ""), "csv: name", repr(row["name"]), repr(e["name"]))
        must(row["peer"] == ("" if e["peer"] < 0 else str(e["peer"])), "csv: peer", row, e)
        if e["type"] in (ALLOC, FREE):
            must(int(row["size_bytes"]) == e["bytes"] and int(row["address"], 16) == e["address"], "csv:", row)
            must(int(row["requested_bytes"]) == e["requested"], "csv:", row)
            must(row["device"] == device_name(e["device"]), "csv: device", row)
        must((row["site"] == "") == (e["site"] == 0), "csv: site", row)
        must((row["site_name"] != "") == (e["site"] != 0), "csv: site name", row)


def check_jsonl():
    lines = open(path("jsonl"), "rb").read().decode("utf-8").split("\n")
    must(lines.pop() == "" and len(lines) == len(events), "jsonl:", len(lines), "lines of", len(events))
    for number, (line, e) in enumerate(zip(lines, events)):
        row = json.loads(line, parse_constant=lambda word: must(False, "jsonl:", word))
        must(row["schema"] == "gpuprof.event/1" and row["seq"] == number, "jsonl:", line)
        must(row["event"] == TYPES[e["type"]] and row["kind"] == KINDS[e["kind"]], "jsonl:", line)
        must(row["name"] == e["name"], "jsonl: name", line)
        must(row["peer"] == (None if e["peer"] < 0 else e["peer"]), "jsonl: peer", line)
        if e["type"] in (ALLOC, FREE):
            must(row["size_bytes"] == e["bytes"] and int(row["address"], 16) == e["address"], "jsonl:", line)
            must(row["device"] == device_name(e["device"]), "jsonl:", line)
        else:
            must(row["address"] is None and row["device"] is None, "jsonl: unknown is null:", line)


# ---- collapsed stacks -----------------------------------------------------------------------------------------------
def as_frame(text):
    """The part of a name that a format without escapes can keep."""
    return re.sub(r"[\x00-\x20\x7f\x85\xa0\u2028\u2029]", " ", text).strip().replace(";", ":") or "?"


def check_collapsed():
    for weight in ("live", "peak", "allocated", "leaked"):
        text = open(path("collapsed." + weight), encoding="utf-8", newline="").read()
        found = Counter()
        for line in text.split("\n")[:-1]:
            match = re.match(r"^(.*)\s+?(\d+(?:\.\d*)?)$", line)  # the expression of flamegraph.pl
            must(match, "collapsed: flamegraph.pl would not take", repr(line))
            must(len(line.splitlines()) == 1, "collapsed: a line that is two:", repr(line))
            must(int(match[2]) > 0, "collapsed: no weight:", line)
            found[match[1]] += int(match[2])
        if weight == "leaked":  # the tests of 'leaks' check its suspects
            must(all(found[k] <= v for k, v in collapse(live).items() if k in found), "collapsed: more leaked than live")
            continue
        must(found == collapse(last[weight]), "collapsed", weight, found, collapse(last[weight]))


def collapse(weights):
    sums = Counter()
    for (site, device, kind), value in weights.items():
        frames = [as_frame(f["label"]) for f in reversed(stacks[site])]
        sums[";".join(["device " + device_name(device)] + frames + ["[" + kind + "]"])] += value
    return sums


# ---- pprof: protobuf by its wire rules --------------------------------------------------------------------------------
def varint(data, at):
    value = shift = 0
    while True:
        must(at < len(data) and shift < 70, "pprof: a number is cut")
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value & (1 << 64) - 1, at


def message(data):
    """field number -> values in order; packed numbers stay bytes."""
    fields, at = defaultdict(list), 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            must(key & 7 == 2, "pprof: wire type", key & 7)
            length, at = varint(data, at)
            must(at + length <= len(data), "pprof: a part is cut")
            value, at = data[at:at + length], at + length
        fields[key >> 3].append(value)
    return fields


def numbers(values):
    out = []
    for value in values:
        if isinstance(value, int):
            out.append(value)
            continue
        at = 0
        while at < len(value):
            one, at = varint(value, at)
            out.append(one)
    return [n - (1 << 64) if n >> 63 else n for n in out]


def one(fields, number):
    return numbers(fields[number])[-1] if fields[number] else 0


python_names = {f["function"] for frames in stacks for f in frames if f["python"]}


def check_pprof():
    named = [frames[name:] for frames, name in zip(stacks, truth["names"])]
    for weight in ("live", "peak", "allocated", "leaked"):
        check_gzip("pprof." + weight, weight, named)
        check_gzip(weight + ".full", weight, stacks)


def check_gzip(file, weight, stacks):
    raw = open(path(file), "rb").read()
    must(raw[:2] == b"\x1f\x8b", "pprof: not gzipped")
    data = gzip.decompress(raw)
    decoded = subprocess.run(["protoc-c", "--proto_path=" + os.path.join(here, "../../../../tools/convert/export"),
                              "--decode=perftools.profiles.Profile", "profile.proto"], input=data,
                             stdout=subprocess.PIPE, check=True).stdout
    must(re.search(rb"^\d+:", decoded, re.M) is None, "pprof: fields that the schema does not have")
    check_profile(message(data), weight, stacks)


def check_profile(profile, weight, stacks):
    table = [s.decode("utf-8") for s in profile[6]]
    must(table[0] == "" and len(set(table)) == len(table), "pprof: string table")
    types = [(table[one(t, 1)], table[one(t, 2)]) for t in map(message, profile[1])]
    go = [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")]
    ours = [("peak_space", "bytes")] + ([("leaked_space", "bytes")] if weight == "leaked" else [])
    must(types == go + ours, "pprof: sample types", types)
    first = {"live": "inuse_space", "peak": "peak_space", "allocated": "alloc_space", "leaked": "leaked_space"}[weight]
    must(table[one(profile, 14)] == first, "pprof: default_sample_type")
    period = message(profile[11][0])
    must((table[one(period, 1)], table[one(period, 2)], one(profile, 12)) == ("space", "bytes", 1), "pprof: period")
    must(one(profile, 9) == truth["begin_unix_ns"], "pprof: time")
    must(one(profile, 10) == truth["end_ns"] - truth["begin_ns"], "pprof: duration")
    functions = {one(f, 1): f for f in map(message, profile[5])}
    locations = {one(l, 1): l for l in map(message, profile[4])}
    mappings = {one(m, 1): m for m in map(message, profile[3])}
    for what, rows, field in (("function", functions, 5), ("location", locations, 4), ("mapping", mappings, 3)):
        must(0 not in rows and len(rows) == len(profile[field]), "pprof: ids of", what)
    must([[table[one(m, 5)], table[one(m, 6)]] for m in mappings.values()] == truth["modules"], "pprof: mappings")
    sums = defaultdict(Counter)
    for sample in map(message, profile[2]):
        check_sample(sample, table, types, functions, locations, mappings, sums, stacks)
    expect = defaultdict(Counter)
    for name, weights in (("alloc_objects", calls), ("alloc_space", allocated), ("inuse_objects", live_count),
                          ("inuse_space", live), ("peak_space", at_peak)):
        for (site, device, kind), value in weights.items():
            frames = tuple((f["function"], f["file"], f["line"]) for f in stacks[site])
            expect[name][frames, device_name(device), kind] += value
    if any(f["function"] == "export_inlined" for stack in stacks for f in stack):
        must("export_inlined" in table, "pprof: the inlined function is missing", table)
    for name, weights in expect.items():
        got = {k: v for k, v in sums[name].items() if v}
        must(got == {k: v for k, v in weights.items() if v}, "pprof:", name, got, dict(weights))


def check_sample(sample, table, types, functions, locations, mappings, sums, stacks):
    values, frames, addresses = numbers(sample[2]), [], []
    must(len(values) == len(types), "pprof: a sample has", len(values), "values")
    for number in numbers(sample[1]):
        location = locations.get(number)
        must(location is not None, "pprof: no location", number)
        mapping = one(location, 2)
        must(mapping == 0 or mapping in mappings, "pprof: no mapping", mapping)
        must(location[4], "pprof: a location without a line")
        addresses.append((one(location, 3), len(location[4]), mapping))
        for line in map(message, location[4]):
            function = functions.get(one(line, 1))
            must(function is not None, "pprof: no function")
            system = table[one(function, 3)]
            # Of Python empty: pprof takes "<module>" for a template's arguments if it is also the system's name.
            name = table[one(function, 2)]
            must(system == ("" if name in python_names else name), "pprof: system_name", name, system)
            frames.append((table[one(function, 2)], table[one(function, 4)], one(line, 2)))
    labels = {table[one(l, 1)]: table[one(l, 2)] or one(l, 3) for l in map(message, sample[3])}
    must(set(labels) == {"device", "kind", "pid"} and labels["pid"] == truth["pid"], "pprof: labels", labels)
    for (name, _), value in zip(types, values):
        sums[name][tuple(frames), labels["device"], labels["kind"]] += value
    for stack in stacks:  # addresses; inlined lines belong to the location of the code around them
        if [(f["function"], f["file"], f["line"]) for f in stack] == frames and any(f["pc"] for f in stack):
            groups, size = [], 0
            for f in stack:
                size += 1
                if not f["inlined"]:
                    groups.append((f["pc"], size))
                    size = 0
            must(groups == [a[:2] for a in addresses], "pprof: locations", groups, addresses)
            must(all((a[2] != 0) == (a[0] != 0) for a in addresses), "pprof: mappings of addresses", addresses)
            must(("export_inlined" in [f[0] for f in frames]) == (max(a[1] for a in addresses) > 1), "pprof: inlined")


# ---- Chrome trace: Perfetto's rules for JSON ---------------------------------------------------------------------------
def check_chrome():
    def pairs(items):
        must(len({k for k, _ in items}) == len(items), "chrome: a key twice:", items)
        return dict(items)
    raw = open(path("chrome"), "rb").read().decode("utf-8")
    trace = json.loads(raw, object_pairs_hook=pairs, parse_constant=lambda word: must(False, "chrome:", word))
    must(trace["displayTimeUnit"] in ("ns", "ms"), "chrome: displayTimeUnit")
    duration = (truth["end_ns"] - truth["begin_ns"]) / 1000
    counters, open_ids, done = defaultdict(list), {}, Counter()
    drawn = []
    for e in trace["traceEvents"]:
        must(e["ph"] in ("M", "C", "b", "e", "i") and isinstance(e["pid"], int), "chrome:", e)
        if e["ph"] == "M":
            must(isinstance(e["args"]["name"], str), "chrome:", e)
            continue
        must(isinstance(e["ts"], (int, float)) and 0 <= e["ts"] <= duration, "chrome: time", e)
        must(isinstance(e["name"], str), "chrome:", e)
        if e["ph"] == "C":
            must(e["args"] and all(type(v) is int for v in e["args"].values()), "chrome: counter", e)
            counters[e["name"]].append((e["ts"], e["args"]))
        elif e["ph"] in "be":
            key = (e["cat"], e["id2"]["local"])
            if e["ph"] == "b":
                must(key not in open_ids and not done[key], "chrome: an id twice", e)
                open_ids[key] = e
                drawn += [e] if e["cat"] == "memory" else []
            else:
                begin = open_ids.pop(key, None)
                must(begin is not None and begin["name"] == e["name"] and begin["ts"] <= e["ts"], "chrome: end", e)
                done[key] += 1
        else:
            must(e["s"] in "gpt", "chrome: scope", e)
    must(not open_ids, "chrome: never ended", open_ids)
    other = trace["otherData"]
    allocs = [e["bytes"] for e in events if e["type"] == ALLOC]
    must(other["blocks_drawn"] == min(blocks, len(allocs)) == len(drawn), "chrome: drawn", other, len(drawn))
    must(other["blocks_left_out"] == len(allocs) - len(drawn), "chrome: left out", other)
    must(sorted(d["args"]["bytes"] for d in drawn) == sorted(allocs)[len(allocs) - len(drawn):], "chrome: the largest")
    check_counters(counters)


def check_counters(counters):
    for device, points in series.items():
        name = "host" if truth["devices"][device] == HOST else "device " + str(truth["devices"][device])
        got = counters[name + " allocated"]
        must(all(a[0] <= b[0] for a, b in zip(got, got[1:])), "chrome: counters out of order")
        must(max(p[1]["bytes"] for p in got) == peak[device], "chrome: the peak is not shown", device)
        must(got[-1][1]["bytes"] == total[device], "chrome: the end", device)
        values = {p[1] for p in points}
        must(all(p[1]["bytes"] in values for p in got), "chrome: bytes that never were")
        must({k: v for k, v in counters[name + " kinds"][-1][1].items() if v} ==
             {k: v for k, v in by_kind[device].items() if v}, "chrome: kinds at the end")


# ---- SQLite ------------------------------------------------------------------------------------------------------------
def check_sqlite():
    said = subprocess.run(["sqlite3", path("sqlite"), "PRAGMA integrity_check; SELECT count(*) FROM event;"],
                          stdout=subprocess.PIPE, check=True).stdout.decode()
    must(said == "ok\n%d\n" % len(events), "sqlite:", said)
    db = sqlite3.connect(path("sqlite"))
    db.text_factory = lambda raw: raw.decode("utf-8")  # fails on invalid UTF-8
    rows = db.execute("SELECT event, time_ns, type, kind, address, bytes, site, peer FROM event ORDER BY event")
    for row, (number, e) in zip(rows, enumerate(events)):
        sized = e["type"] in (ALLOC, FREE)
        must(row == (number, e["time_ns"], TYPES[e["type"]], KINDS[e["kind"]], e["address"] if sized else None,
                     e["bytes"] if sized else None, e["site"], None if e["peer"] < 0 else e["peer"]), "sqlite:", row, e)
    def grouped(view):
        query = "SELECT site, device, kind, sum(bytes) FROM %s GROUP BY 1, 2, 3" % view
        return {tuple(r[:3]): r[3] for r in db.execute(query)}
    must(grouped("live_at_end") == live, "sqlite: live_at_end", grouped("live_at_end"), live)
    must(grouped("live_at_peak") == at_peak, "sqlite: live_at_peak", grouped("live_at_peak"), at_peak)
    for device, bytes_, event in db.execute("SELECT device, peak_bytes, peak_event FROM device"):
        must((bytes_, event) == (peak[device], peak_event.get(device)), "sqlite: peak", device, bytes_, event)
    names = [r[0] for r in db.execute("SELECT name FROM mark ORDER BY event")]
    must(names == [e["name"] for e in events if e["type"] == MARK], "sqlite: marks", names)
    for site in range(1, len(stacks)):
        frames = db.execute("SELECT function, file FROM frame WHERE site = ? ORDER BY depth", (site,)).fetchall()
        must(frames == [(f["function"], f["file"]) for f in stacks[site]], "sqlite: frames", frames)


# ---- Arrow: the stream format by its wire rules, flatbuffers too (arrow_stream.py) ----------------------------------------
def arrow_read(name):
    try:
        return arrow_stream.read(path(name))
    except ValueError as error:
        raise SystemExit(f"export_check: arrow: {error}") from error


def check_arrow():
    def place(row):
        return "host" if row["on_host"] else row["device"] if row["device"] is None else str(row["device"])
    columns, rows = arrow_read("arrow")
    wanted = dict(job="text", rank="int32", pid="int64", event="int64", time="time", type="text", kind="text",
                  device="int32", on_host="flag", address="int64", bytes="int64", requested_bytes="int64",
                  stream="int64", thread="int32", site="int32", peer="int64", allocated_change="int64")
    must(columns == wanted, "arrow:", columns)
    must(len(rows) == len(events), "arrow:", len(rows), "rows of", len(events))
    sums, highest = Counter(), Counter()
    for number, (row, e) in enumerate(zip(rows, events)):
        must((row["job"], row["rank"], row["pid"]) == ("a job", 3, truth["pid"]), "arrow: keys", row)
        must(row["event"] == number and row["type"] == TYPES[e["type"]] and row["kind"] == KINDS[e["kind"]], "arrow:", row)
        must(row["time"] == truth["begin_unix_ns"] + e["time_ns"] - truth["begin_ns"], "arrow: time", row)
        must(row["peer"] == (None if e["peer"] < 0 else e["peer"]) and row["site"] == e["site"], "arrow:", row, e)
        if e["type"] in (ALLOC, FREE):
            must((row["bytes"], row["requested_bytes"]) == (e["bytes"], e["requested"]), "arrow:", row)
            must(row["address"] == e["address"] and place(row) == device_name(e["device"]), "arrow:", row)
        else:
            must(row["address"] is None and place(row) is None, "arrow: unknown is null:", row)
        if row["allocated_change"]:
            sums[e["device"]] += row["allocated_change"]
            highest[e["device"]] = max(highest[e["device"]], sums[e["device"]])
    must(highest == +peak, "arrow: peaks of the changes", highest, peak)
    _, rows = arrow_read("arrow.blocks")
    begun = [n for n, e in enumerate(events) if e["type"] == ALLOC]
    must([row["from_event"] for row in rows] == begun, "arrow: blocks")
    held = Counter()
    for row in rows:
        e = events[row["from_event"]]
        must(row["to_event"] == (None if e["peer"] < 0 else e["peer"]) and row["bytes"] == e["bytes"], "arrow:", row, e)
        must(row["counted"] == (row["kind"] in COUNTED), "arrow: counted", row)
        at = peak_event.get(e["device"], -1)
        if row["counted"] and row["from_event"] <= at and not (row["to_event"] is not None and row["to_event"] <= at):
            held[row["site"], e["device"], row["kind"]] += row["bytes"]
    must(held == at_peak, "arrow: blocks at the peak", held, at_peak)
    _, rows = arrow_read("arrow.devices")
    must([row["peak_bytes"] for row in rows] == [peak[i] for i in range(len(rows))], "arrow: devices", rows)
    names = [(row["event"], row["name"]) for row in arrow_read("arrow.marks")[1]]
    must(names == [(n, e["name"]) for n, e in enumerate(events) if e["type"] == MARK], "arrow: marks", names)
    frames = defaultdict(list)
    for row in arrow_read("arrow.frames")[1]:
        frames[row["site"]].append((row["function"], row["file"], row["python"], row["inlined"]))
    for site in range(1, len(stacks)):
        must(frames[site] == [(f["function"], f["file"], bool(f["python"]), bool(f["inlined"])) for f in stacks[site]],
             "arrow: frames", frames[site])
    must([row["site"] for row in arrow_read("arrow.sites")[1]] == list(range(len(stacks))), "arrow: sites")
    (job,) = arrow_read("arrow.job")[1]
    must(job["events"] == len(events) and job["begin_time"] == truth["begin_unix_ns"], "arrow: job", job)
    for name in ("samples", "sleeps", "threads"):
        arrow_read("arrow." + name)


checks = (check_csv, check_jsonl, check_collapsed, check_pprof, check_chrome, check_sqlite, check_arrow)
for check in checks:
    check()
print("judged %d formats" % len(checks))
