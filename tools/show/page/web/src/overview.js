// SPDX-License-Identifier: MIT
// The first screen: what was recorded, warnings, six questions with a short answer each, and a row per device.
import { el, section, svg, table } from "./dom.js";
import { after, bytes, count, decimal, duration, exact, known, moment, percent, plural, rough, shorter } from "./format.js";
import { adviceOf, helpAnswer } from "./helps.js";
import { columns } from "./history.js";
import { sureness } from "./leaks.js";
import { lostOf, processOf, rankOf } from "./lists.js";
import { deviceWord, isHost } from "./model.js";

// The failures of the recording; a click goes to the moment of one in the timeline.
function failures(model, jump) {
    if (!model.ooms.length) return null;
    const named = (o) => (o.device === null ? "a device" : deviceWord(o.device)), first = model.ooms[0], more = model.ooms.length - 1;
    const button = (o) => o.device !== null && el("button", { type: "button", click: () => jump(o) }, `Show ${after(o.time_ns)} in the timeline`);
    const step = model.step(first.time_ns), advice = adviceOf(model.oom);
    return el("div", { class: "banner bad oombanner", role: "alert" }, el("strong", {}, "Out of memory. "),
        `${named(first)} had no room for a request of ${bytes(first.requested_bytes)}${first.name ? ` by ${shorter(first.name)}` : ""}, ${after(first.time_ns)} into the recording${step ? `, in ${step}` : ""}${more ? `; ${plural(more, "more failure")} followed` : ""}. `,
        model.ooms.slice(0, 3).flatMap((o) => [button(o), " "]), model.oom && el("a", { href: "#oom" }, "Report of the failure"),
        advice.length > 0 && el("div", { class: "helps" }, el("strong", {}, more > 0 ? "What helps against the last one: " : "What helps: "), advice.length === 1 ? advice[0] : el("ul", {}, advice.map((a) => el("li", {}, a)))));
}

export function banners(model, jump) {
    const r = model.recording, list = [];
    const oom = failures(model, jump);
    if (oom) list.push(oom);
    const say = (kind, head, text) => list.push(el("div", { class: `banner ${kind}`, role: kind === "bad" ? "alert" : "note" }, el("strong", {}, head), " ", text));
    if (!r.complete) say("bad", "Incomplete.", "The end of the recording is missing. “At the end” on this page means at its last valid block.");
    if (r.dropped > 0) say("bad", `${plural(r.dropped, "event")} dropped${r.tried ? ` of ${count(r.tried)}` : ""}.`, "They came faster than they could be written. Peaks may be too low, and blocks that were freed may look live.");
    const lost = lostOf(model).filter(([name]) => name !== "ring_full" || r.dropped === 0);
    if (lost.length) say("warn", "Some calls could not be tracked.", `${lost.map(([name, n]) => `${name}: ${count(n)}`).join(", ")} (see “About this recording”).`);
    const failed = r.write_error;
    if (failed) say("bad", `The file could not be written: ${failed.reason}.`, `${plural(failed.events, "event")} could not be stored ${failed.ends_recording ? `after ${after(failed.time_ns)}. This page ends there.` : `from ${after(failed.time_ns)} on.`}`);
    if (r.damaged_blocks > 0) say("bad", `${plural(r.damaged_blocks, "damaged block")} skipped.`, "Their checksums are wrong, so their events are missing.");
    const lacking = (r.unseen_blocks || 0) + (r.unfreed_blocks || 0);
    if (lacking > 0) say("warn", "The trace lacks entries.", `The allocation or the free of ${plural(lacking, "block")} is in none (skip_actions of PyTorch's memory history). Each counts only where it is certain, so sums over time are lower bounds.`);
    if (r.format === "pytorch") say("info", "A snapshot of PyTorch.", `Its trace has the last entries only. Memory from before the trace is included${r.before_blocks > 0 ? `; ${plural(r.before_blocks, "block")} of it (${bytes(r.before_bytes)}) without a call site` : ""}.`);
    else if (r.attached) say("info", "Attached.", "gpuprof was attached to the running program. Memory that it had allocated before is the column “Before attach” of the devices and a row of the bill, and in no other figure of this page.");
    else if (!r.from_start && r.complete) say("info", "Started late.", "Recording started while the program was running. Memory that was live at that time is included.");
    return list;
}

// A long name is cut in the box: the pointer shows all of it, as does the section that the link leads to.
export function answer(href, question, value, ...details) {
    return el("li", { class: "answer" }, el("a", { href, title: value }, el("span", { class: "question" }, question), el("span", { class: `value${value.length > 15 || /\S{13}/.test(value) ? " long" : ""}` }, value)),
        details.filter(Boolean).map((d) => el("p", { title: typeof d === "string" && d.length > 150 && d }, d)));
}

// In front of sums over time that a trace of PyTorch does not have exactly.
const bound = (device) => ({ at_least: "at least ", at_most: "at most ", about: "about " })[device.bound] || "";

// In no other figure of the page: its pages may lie in the host's memory.
function managedWords(model, { managed }) {
    if (!managed) return null;
    const by = known(managed.site) ? `, ${bytes(managed.site_bytes)} of it by ${model.shortName(managed.site)}` : "";
    return `Managed memory: ${bytes(managed.peak_bytes)} at its own peak${by}; ${bytes(managed.end_bytes)} at the end. This is its virtual size, and in no sum of this page.`;
}

function peakAnswers(model, device) {
    const peak = device.peak, step = model.step(peak.time_ns), total = device.total_bytes, counted = device.counted_peak_bytes ?? device.allocated_peak_bytes;
    const share = total > 0 ? `${percent(counted / total)} of the ${bytes(total)} that ${deviceWord(device.device)} has; ${bytes(device.reserved_peak_bytes)} reserved` : `${bytes(device.reserved_peak_bytes)} reserved`;
    const [first, ...rest] = model.rows(peak.parts);
    const others = rest.slice(0, 2).map((p) => `${model.shortName(p.site)} ${percent(p.bytes / peak.bytes)}`).join("; ");
    return [
        answer("#timeline", "How much?", bound(device) + bytes(counted), `at the peak. ${share}.`, counted !== device.allocated_peak_bytes && `This is from the counters of the process; the recorded events add up to ${bytes(device.allocated_peak_bytes)}.`, managedWords(model, device)),
        answer("#timeline", "When?", after(device.allocated_peak_ns), `${step ? `in ${step}, ` : ""}${percent(device.allocated_peak_ns / model.endNs)} into the recording. At its end, ${bytes(device.allocated_end_bytes)} were allocated.`),
        first ? answer("#peak-table", "Which call site?", model.shortName(first.site), `${bytes(first.bytes)}, ${percent(first.bytes / peak.bytes)} of the peak, in ${plural(first.count, "block")}.`, others && `Then ${others}.`)
            : answer("#peak", "Which call site?", "none", "Nothing was allocated."),
    ];
}

function growthAnswer(model, device) {
    const here = model.leaks.suspects.find((s) => s.device === device.device) || model.leaks.suspects[0];
    const maybe = (model.leaks.candidates || [])[0];
    if (!here && maybe) return answer("#candidates-table", "What grows?", `perhaps ${maybe.function || model.shortName(maybe.site)}`, `It is not known: ${maybe.because}.`);
    if (!here) return answer("#growth", "What grows?", "nothing", `No suspect${model.leaks.why ? `: ${model.leaks.why}` : ""}.`);
    const end = known(here.seconds_to_oom) ? `At this rate, ${deviceWord(here.device)} is full in about ${rough(here.seconds_to_oom)}.` : "";
    return answer("#leaks-table", "What grows?", here.function || model.shortName(here.site),
        `+${bytes(here.bytes_per_step)} per ${model.stepWord()} on ${deviceWord(here.device)}, ${sureness(here.confidence)}, ${percent(here.confidence)}; holds ${bytes(here.live_bytes)}. ${end}`,
        model.leaks.suspects.length > 1 && `${plural(model.leaks.suspects.length - 1, "more suspect")} below.`);
}

function fragmentAnswer(device) {
    const f = device.fragmentation, idle = device.reserved_end_bytes - device.allocated_end_bytes;
    const largest = f.points.length ? f.points.at(-1)[4] : null;
    return answer("#fragmentation", "How fragmented?", `${percent(f.utilisation)} used`,
        `of the reserved memory, at its peak. At the end, ${bytes(Math.max(0, idle))} were reserved and idle${known(largest) && idle > 0 ? `, in pieces of at most ${bytes(largest)}` : ""}.`);
}

function helpsAnswer(model, device) {
    const { value, details } = helpAnswer(model, device);
    return answer("#helps", "What would help?", value, ...details);
}

// The highest of each pixel, in steps.
function spark(past, endNs) {
    const { times, tops, bottoms } = past.allocated, w = 120, h = 26;
    if (!times.length) return el("span", {}, "–");
    const seen = columns(times, tops, bottoms, 0, endNs, w), highs = seen.high.map((i) => (i < 0 ? 0 : tops[i])), top = Math.max(1, ...highs);
    const x = (t) => ((t / endNs) * w).toFixed(1), y = (v) => (h - (v / top) * (h - 2)).toFixed(1);
    const points = seen.t.map((t, i) => `${x(t)},${y(highs[i])} ${x(seen.t[i + 1] ?? endNs)},${y(highs[i])}`);
    return svg("svg", { class: "spark", viewBox: `0 0 ${w} ${h}`, width: w, height: h, "aria-hidden": "true" }, svg("polygon", { points: `0,${h} ${points.join(" ")} ${w},${h}` }));
}

function deviceTable(model, chosen, choose) {
    const button = (d) => el("button", { type: "button", class: "device", "aria-pressed": String(d === chosen), click: () => choose(d) }, deviceWord(d.device));
    const size = (name, field, help) => ({ name, number: true, help, value: (d) => d[field], show: (d) => bytes(d[field]), title: (d) => exact(d[field]) });
    const columns = [
        { name: "Device", value: (d) => d.device, show: button },
        { name: "Name", value: (d) => d.name, show: (d) => (isHost(d.device) ? "pinned and registered memory" : d.name || "–"), title: (d) => d.uuid, class: "name" },
        { name: "Over time", value: () => "", show: (d) => spark(model.history(d), model.endNs) },
        { ...size("Peak allocated", "allocated_peak_bytes"), show: (d) => bound(d) + bytes(d.allocated_peak_bytes) }, // without a bar: it would read as a part of the plot before it
        { name: "At", number: true, value: (d) => d.allocated_peak_ns, show: (d) => after(d.allocated_peak_ns) },
        ...(model.recording.attached ? [{ ...size("Before attach", "before_attach_bytes", "Allocated before gpuprof was attached, and not freed since"), show: (d) => (known(d.before_attach_bytes) ? bytes(d.before_attach_bytes) : "unknown"), title: (d) => (d.before_attach_source ? `source: ${d.before_attach_source}` : "") }] : []),
        size("Peak reserved", "reserved_peak_bytes"), size("At the end", "allocated_end_bytes", "Allocated when the recording ended"), size("Of", "total_bytes", "Memory of the device"),
        { name: "Utilisation", number: true, value: (d) => d.fragmentation.utilisation, show: (d) => percent(d.fragmentation.utilisation) },
    ];
    return table({ caption: "Devices", id: "devices-table", rows: model.devices, columns });
}

export function overview(model, device, choose, jump) {
    const r = model.recording;
    const facts = [moment(r.begin_unix_ns), `${duration(r.seconds)} long`, plural(r.delivered, "event"), r.host, processOf(r), rankOf(r), r.complete && !r.dropped && !lostOf(model).length ? "complete, no losses" : null];
    const head = el("div", { class: "title" }, el("h1", { title: r.command_line || r.comm }, r.command_line || r.comm || "gpuprof report"), el("p", { class: "facts-line" }, facts.filter(Boolean).map((f) => el("span", {}, f))));
    if (!device) return el("div", { id: "overview" }, banners(model, jump), head, el("p", { class: "note" }, "This recording has no device, because the program did not use a GPU while it was recorded."));
    const answers = el("ol", { class: "answers", "aria-label": `In short, for ${deviceWord(device.device)}` }, peakAnswers(model, device), growthAnswer(model, device), fragmentAnswer(device), helpsAnswer(model, device));
    return el("div", { id: "overview" }, banners(model, jump), head, answers, el("section", { id: "devices", "aria-labelledby": "devices-title" }, el("h2", { id: "devices-title", class: "hidden" }, "Devices"), deviceTable(model, device, choose)));
}
