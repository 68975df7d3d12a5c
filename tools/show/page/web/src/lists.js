// SPDX-License-Identifier: MIT
// The sections that are tables with bars: sizes, churn and the bill; and the facts about the recording.
import { asTable, el, section, table } from "./dom.js";
import { after, bytes, count, decimal, exact, known, moment, duration, NONE, percent, plural } from "./format.js";
import { stepWords } from "./leaks.js";

const view = (node) => ({ node, redraw() {}, destroy() {} });
const nothing = (empty) => ({ empty, redraw() {}, destroy() {} });

export function sizes(model, device) {
    const rows = device.sizes;
    if (!rows.length) return nothing("No allocation was seen on this device.");
    const most = (field) => Math.max(1, ...rows.map((r) => r[field]));
    const number = (name, field) => ({ name, number: true, value: (r) => r[field], show: (r) => count(r[field]), bar: (r) => r[field] / most(field) });
    const size = (name, field) => ({ name, number: true, value: (r) => r[field], show: (r) => bytes(r[field]), title: (r) => exact(r[field]), bar: (r) => r[field] / most(field) });
    return view(section("sizes", "Allocation sizes", "How often each size was allocated, how many bytes that was, and how much of it is still live at the end.", table({
        caption: "Allocations by size", id: "sizes-table", rows,
        columns: [
            { name: "Size", value: (r) => r.from_bytes, show: (r) => `${bytes(r.from_bytes)} and more`, class: "nowrap" },
            number("Allocations", "count"), size("Bytes", "bytes"), number("Live at the end", "live_count"), size("Live bytes", "live_bytes"),
        ],
    })));
}

export function churn(model) {
    const { sites, pairs, pairs_per_step: each } = model.churn;
    if (!pairs) return nothing(`No block was allocated and freed within one ${model.stepWord()}.`);
    const lead = `${plural(pairs, "block")} were freed within the ${model.stepWord()} that allocated them: ${decimal(each)} per ${model.stepWord()}, of ${plural(model.churn.allocations, "allocation")} and ${plural(model.churn.frees, "free")}. Each pair of driver calls takes microseconds to milliseconds and may stop the GPU. A cache, or reusing the block, avoids this cost.`;
    const most = Math.max(1, ...sites.map((s) => s.pairs));
    return view(section("churn", `Allocated and freed within one ${model.stepWord()}`, lead, table({
        caption: `Sites that allocate and free within one ${model.stepWord()}`, id: "churn-table", rows: sites, first: 10,
        columns: [
            { name: "Call site", value: (s) => s.site, show: (s) => model.siteCell(s.site), csv: (s) => model.siteName(s.site), class: "wide" },
            { name: "Pairs", number: true, value: (s) => s.pairs, show: (s) => count(s.pairs), bar: (s) => s.pairs / most },
            { name: `Per ${model.stepWord()}`, number: true, value: (s) => s.pairs_per_step, show: (s) => decimal(s.pairs_per_step) },
            { name: "Bytes in all", number: true, value: (s) => s.bytes, show: (s) => bytes(s.bytes), title: (s) => exact(s.bytes) },
            { name: "Mean lifetime", number: true, value: (s) => s.mean_life_ns, show: (s) => after(s.mean_life_ns) },
        ],
    })));
}

export function bill(model, device) {
    const { rows, process_bytes: process } = device.bill;
    const lead = known(process) ? `NVML, the driver's management library, reports that this process uses ${bytes(process)} of the device. These are its parts.`
        : "The recording has no total from NVML, the driver's management library, for this process. These are the parts that gpuprof knows.";
    if (!rows.length) return nothing("No part is known for this device.");
    const most = Math.max(1, ...rows.map((r) => r.bytes || 0));
    return view(section("bill", "Where the memory of the process went", lead, table({
        caption: "Memory of the process, by what it is", id: "bill-table", rows,
        columns: [
            { name: "What", value: (r) => r.what, class: "wide" },
            { name: "Bytes", number: true, value: (r) => r.bytes, show: (r) => (known(r.bytes) ? bytes(r.bytes) : "unknown"), title: (r) => exact(r.bytes), bar: (r) => (r.bytes || 0) / most },
            { name: "Of the process", number: true, value: (r) => (known(process) && known(r.bytes) && process ? r.bytes / process : null), show: (r) => (known(process) && known(r.bytes) && process ? percent(r.bytes / process) : NONE) },
            { name: "Source", value: (r) => r.estimated, show: (r) => (r.estimated ? "estimated" : "counted") },
        ],
    })));
}

const SOURCES = { cupti: "CUPTI callbacks", hooks: "driver hooks", none: "none" };
const FORMATS = { pytorch: "a snapshot of PyTorch", rmm: "a log of RMM" };
const LOST = {
    ring_full: "events dropped because the ring was full", map_full: "allocations that did not fit into the pointer map", nested: "callbacks that interrupted gpuprof itself",
    unknown_free: "frees of memory whose allocation was not seen", missed_free: "addresses allocated again without a free", frames_full: "calls in progress that did not fit into the table",
    legacy: "calls of entry points older than CUDA 3.2", device_unknown: "allocations on an unknown device", failures_full: "failed calls that did not fit into the table",
    unsent: "events that no batch carried to the agent", annotation: "NVTX heaps or regions that contradict what is known",
};

export const lostOf = (model) => Object.entries(model.recording.lost || {}).filter((entry) => entry[1] > 0);

// "PID 1234", or null: a file of another program does not say whose it is.
export const processOf = (r) => (FORMATS[r.format] ? null : `PID ${r.pid}`);

// "rank 3 of 8 (local rank 1)", or null.
export const rankOf = (r) => (known(r.rank) ? `rank ${r.rank}${known(r.world_size) ? ` of ${r.world_size}` : ""}${known(r.local_rank) ? ` (local rank ${r.local_rank})` : ""}` : null);

export function about(model) {
    const r = model.recording;
    const facts = [
        ["File", r.file], ["Command", r.command_line || NONE], ["Process", FORMATS[r.format] ? `unknown: ${FORMATS[r.format]} does not name it` : `${r.comm} (PID ${r.pid})${r.host ? ` on ${r.host}` : ""}`], ...(rankOf(r) ? [["Rank", rankOf(r)]] : []), ["Started", moment(r.begin_unix_ns)], ["Length", duration(r.seconds)],
        ["Source", SOURCES[r.source] || r.source], ["Allocator", r.allocator === "off" ? "the program's own" : r.allocator], ["Driver", r.driver || "unknown"], ["Call stacks", r.stacks ? "yes" : "no"], ["Steps", stepWords(model)],
        ["Start", r.from_start ? "at the process's first event" : r.format === "pytorch" ? "with the first entry of the trace: memory from before it is included" : "while the process was running: memory that was live then is included, with its call sites if stacks were recorded"],
        ["End", r.complete ? "complete: closed by its writer" : "incomplete: the end is missing"],
        ["Call sites", model.sites_left_out > 0 ? `${count(model.sites.length)} shown; ${plural(model.sites_left_out, "smaller one")} left out` : count(model.sites.length)],
        ["Events", `${count(r.tried)} attempted = ${count(r.delivered)} recorded + ${count(r.dropped)} dropped`],
    ];
    const list = el("dl", { class: "facts" }, facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))]));
    const rows = Object.entries(r.lost || {});
    const some = rows.filter((row) => row[1] > 0).length;
    // Eleven zeros say less than this line.
    const losses = rows.length > 0 && asTable(`Losses in the process, by cause: ${some ? plural(some, "cause") : "none"}`, () => table({
        caption: "Losses in the process, by cause", id: "lost-table", rows, hideCaption: false,
        columns: [{ name: "Cause", value: (l) => l[0], class: "mono" }, { name: "Meaning", value: (l) => (Object.hasOwn(LOST, l[0]) ? LOST[l[0]] : NONE) }, { name: "Count", number: true, value: (l) => l[1], show: (l) => count(l[1]) }],
    }));
    const oom = model.oom && el("details", { class: "oom", id: "oom", open: true }, el("summary", {}, "The report of the last out-of-memory error"), el("pre", { tabindex: "0", role: "region", "aria-label": "Report of the last out-of-memory error" }, model.oom));
    return view(section("about", "About this recording", null, oom, list, losses));
}
