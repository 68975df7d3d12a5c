// SPDX-License-Identifier: MIT
// The page of several ranks, schema gpuprof.ranks/1: the verdict, the figures, the skew over time, the ranks with the worst
// first, and what the worst holds that the median does not.
import uPlot from "uplot";
import { layerColour, colour } from "./colours.js";
import { asTable, el, section, table } from "./dom.js";
import { after, bytes, count, duration, exact, known, moment, NONE, plural, rough } from "./format.js";
import { ranksHelps } from "./helps.js";
import { answer } from "./overview.js";
import { ledges, timePlot } from "./plot.js";

const steps = uPlot.paths.stepped({ align: 1 });
const LINES = 6; // ranks with a line of their own; more could not be told apart

// "0-3, 6, 8-255" of numbers in any order; the first eight parts.
function spans(numbers) {
    const parts = [];
    for (const n of [...numbers].sort((a, b) => a - b)) {
        const last = parts[parts.length - 1];
        if (last && n <= last[1] + 1) last[1] = n;
        else parts.push([n, n]);
    }
    return ranges(parts);
}

const ranges = (parts) => parts.slice(0, 8).map(([a, b]) => (a === b ? String(a) : `${a}-${b}`)).join(", ") + (parts.length > 8 ? ", .." : "");

// Rows of ranks that are alike: each is the worst of them, with the others in `all`.
function groups(doc) {
    const rows = new Map();
    doc.ranks.forEach((r, i) => {
        const key = r.group ?? -1 - i, row = rows.get(key);
        if (row) row.all.push(r);
        else rows.set(key, { ...r, all: [r] });
    });
    const why = new Map((doc.unlike ?? []).map((u) => [u.group, u.why]));
    return [...rows.values()].map((row) => ({ ...row, why: why.get(row.group) ?? "", spread: Math.max(...row.all.map((r) => r.allocated_peak_bytes)) - Math.min(...row.all.map((r) => r.allocated_peak_bytes)) }));
}

const rankName = (r) => `rank ${r.rank}`;
const others = (r) => (r.gpus ?? []).filter((g) => !g.fullest);
const signed = (value) => `${value > 0 ? "+" : ""}${bytes(value)}`;
const size = (name, value, more = {}) => ({ name, number: true, value, show: (row) => bytes(value(row)), title: (row) => exact(value(row)), ...more });

// The least headroom is not always the worst rank's: one that ran out of memory comes first.
function figures(doc, help) {
    const [worst] = doc.ranks, tight = doc.ranks.filter((r) => known(r.headroom_bytes)).sort((a, b) => a.headroom_bytes - b.headroom_bytes)[0];
    const growing = doc.ranks.filter((r) => r.growth_bytes_per_second > 0), fastest = [...growing].sort((a, b) => b.growth_bytes_per_second - a.growth_bytes_per_second)[0];
    const failed = doc.ranks.filter((r) => r.ooms > 0);
    const box = (href, ...rest) => answer(`#${href}`, ...rest);
    const [site] = doc.sites;
    return el("ul", { class: "answers" },
        box("ranks", "Worst rank", rankName(worst), `${bytes(worst.allocated_peak_bytes)} at its peak, ${after(worst.peak_ns)} after the start; reserved ${bytes(worst.reserved_peak_bytes)}.`, failed.length > 0 && `${plural(failed.length, "rank")} ran out of memory.`),
        box("skew", "Skew of the peaks", bytes(doc.highest_peak_bytes - doc.lowest_peak_bytes), `From ${bytes(doc.lowest_peak_bytes)} to ${bytes(doc.highest_peak_bytes)}; the median is ${bytes(doc.median_peak_bytes)}.`),
        box("more", "The worst holds more at", site && site.excess_bytes > 0 ? site.site : "no call site", site && site.excess_bytes > 0 && `${bytes(site.worst_bytes)}, and ${bytes(site.median_bytes)} on the median rank.`),
        box("ranks", "Least headroom", tight ? `${bytes(tight.headroom_bytes)} on ${rankName(tight)}` : "unknown", tight && `Of the ${bytes(tight.total_bytes)} of its device, above the most that it had reserved.`),
        box("ranks", "Growth", fastest ? `${plural(growing.length, "rank")} of ${count(doc.ranks.length)}` : doc.ranks.some((r) => r.may_grow) ? "not known" : "none", fastest && `Fastest: ${rankName(fastest)}, ${bytes(fastest.growth_bytes_per_second)}/s at ${fastest.grows}.`, fastest && known(fastest.seconds_to_oom) && `Its device is full in about ${rough(fastest.seconds_to_oom)}.`),
        box(help.section ? "helps" : "ranks", "What would help", help.value, ...help.details));
}

function title(doc) {
    const hosts = new Set(doc.ranks.map((r) => r.host).filter(Boolean)), names = [...new Set(doc.ranks.map((r) => r.comm))];
    const facts = [plural(doc.ranks.length, "rank"), hosts.size > 0 && (hosts.size === 1 ? `on ${[...hosts][0]}` : `on ${count(hosts.size)} machines`), duration(doc.seconds), moment(doc.begin_unix_ns)];
    return el("div", { class: "title" }, el("h1", {}, `${names.length === 1 ? names[0] : "Job"}: ${plural(doc.ranks.length, "rank")}`), el("p", { class: "verdict" }, doc.verdict),
        el("p", { class: "facts-line" }, facts.filter(Boolean).map((f) => el("span", {}, f))));
}

function banners(doc) {
    const list = [], say = (kind, head, text) => list.push(el("div", { class: `banner ${kind}`, role: "note" }, el("strong", {}, head), " ", text));
    const cut = doc.ranks.filter((r) => !r.complete || r.missing_events > 0), unnamed = doc.ranks.filter((r) => r.rank_from === "order");
    if (cut.length) say("bad", "Incomplete.", `${plural(cut.length, "recording")} ended early or lost events (${cut.slice(0, 8).map(rankName).join(", ")}): their peaks may be too low.`);
    if (doc.missing_ranks?.length) say("bad", "Missing ranks.", `Of the job's ${count(doc.world_size)} ranks these have no recording here: ${ranges(doc.missing_ranks)}.`);
    if (doc.left_out?.length) say("bad", "Left out.", `${plural(doc.left_out.length, "file")} in no number here: ${doc.left_out.slice(0, 8).map((f) => `${f.file} (${f.why})`).join("; ")}${doc.left_out.length > 8 ? "; .." : ""}.`);
    if (unnamed.length) say("info", "No rank numbers.", `${plural(unnamed.length, "recording")} and their file names have no rank: the numbers here are the order of the files, from 0.`);
    return list;
}

function skew(doc) {
    const end = Math.max(doc.seconds, 1e-6), times = doc.times_ns.map((t) => t / 1e9), at = new Map(doc.skew.map((p) => [p[0], p]));
    const rows = doc.times_ns.map((t) => at.get(t)), column = (i) => rows.map((r) => (r ? r[i] : null));
    // The worst, and those that differ: lines of equal ranks would only cover each other.
    const far = (r) => Math.abs(r.above_median_bytes) > doc.median_peak_bytes / 100 || r.ooms > 0;
    const curves = doc.ranks.filter((r, i) => r.curve && (i === 0 || far(r))).slice(0, LINES);
    const data = [times, column(3), column(1), column(2), ...curves.map((r) => r.curve)];
    const none = { paths: steps, stroke: "transparent", width: 0, points: { show: false } };
    const series = [{}, none, none, { paths: ledges, stroke: () => colour("ink"), width: 2, dash: [6, 4], points: { show: false } },
        ...curves.map((_, i) => ({ paths: ledges, stroke: () => layerColour(i), width: i ? 1.25 : 2.5, points: { show: false } }))];
    const text = (i) => {
        const row = i === null || i === undefined ? null : rows[i];
        if (!row) return "Use the pointer or the arrow keys to see the ranks at a moment.";
        const own = curves.filter((r) => known(r.curve[i])).map((r) => `${rankName(r)} ${bytes(r.curve[i])}`);
        return `${duration(times[i])}: ${bytes(row[1])} to ${bytes(row[3])}, median ${bytes(row[2])} of ${plural(row[4], "rank")} (${own.join(", ")})`;
    };
    const highest = Math.max(1, ...doc.skew.map((p) => p[3]));
    const plot = timePlot({ label: "Allocated memory of all ranks over time", height: 260, load: () => data, series, bands: [{ series: [1, 2], fill: () => colour("band") }], end, top: () => highest * 1.1, readout: text, draw: () => {} });
    const swatch = (make, kind) => el("span", { class: `swatch ${kind}`, style: { "--c": make() } });
    const legend = () => [el("span", {}, swatch(() => colour("band"), ""), "lowest to highest rank"), el("span", {}, swatch(() => colour("ink"), "line dashed"), "median"), ...curves.map((r, i) => el("span", {}, swatch(() => layerColour(i), "line"), i ? rankName(r) : `${rankName(r)}, the worst`))];
    const keys = el("div", { class: "legend" }, legend());
    const numbers = () => table({ caption: "Allocated memory of all ranks over time", id: "skew-table", rows: doc.skew, columns: [{ name: "Time", number: true, value: (p) => p[0], show: (p) => after(p[0]) }, size("Lowest", (p) => p[1]), size("Median", (p) => p[2]), size("Highest", (p) => p[3]), { name: "Ranks", number: true, value: (p) => p[4] }] });
    return { node: section("skew", "Skew over time", `Allocated memory: the highest value in each moment. Here, ${doc.clock_text}.`, plot.node, keys, asTable("Show as a table", numbers)), redraw: () => (keys.replaceChildren(...legend()), plot.redraw()) };
}

function ranks(doc) {
    const most = Math.max(1, ...doc.ranks.map((r) => r.allocated_peak_bytes));
    const rows = groups(doc), together = rows.length < doc.ranks.length;
    const several = !together && new Set(doc.ranks.map((r) => r.host)).size > 1, devices = new Set(doc.ranks.map((r) => r.device)).size > 1;
    const unlike = rows.filter((r) => r.why);
    const why = unlike.length > 0 && table({ caption: "Ranks that are unlike the others", id: "unlike-table", rows: unlike, first: 12, hideCaption: false, columns: [
        { name: "Ranks", value: (r) => r.rank, show: (r) => spans(r.all.map((x) => x.rank)) }, { name: "What is unlike", value: (r) => r.why, class: "wide" }] });
    return section("ranks", "Ranks, the worst first", "A rank that ran out of memory comes first, then the one with the least headroom. Numbers are of the device that was fullest in each process. Ranks that are alike are one row, with the numbers of the worst of them.",
        table({ caption: "Ranks", id: "ranks-table", rows, first: 64, columns: [
            { name: together ? "Ranks" : "Rank", value: (r) => r.rank, show: (r) => spans(r.all.map((x) => x.rank)), title: (r) => r.file, class: together ? "wide" : "" },
            together && { name: "Count", number: true, value: (r) => r.all.length }, several && { name: "Machine", value: (r) => r.host, class: "name" }, devices && { name: "Device", number: true, value: (r) => r.device },
            size("Peak", (r) => r.allocated_peak_bytes, { bar: (r) => r.allocated_peak_bytes / most }),
            size("Off median", (r) => r.above_median_bytes, { show: (r) => signed(r.above_median_bytes) }), size("Reserved", (r) => r.reserved_peak_bytes), size("Headroom", (r) => r.headroom_bytes), size("At the end", (r) => r.allocated_end_bytes),
            together && size("Peaks within", (r) => r.spread),
            { name: "Growth", value: (r) => r.growth_bytes_per_second, show: (r) => (r.growth_bytes_per_second > 0 ? `${bytes(r.growth_bytes_per_second)}/s at ${r.grows}` : r.may_grow ? `perhaps at ${r.may_grow}` : NONE), class: "wide" },
            doc.ranks.some((r) => others(r).length > 0) && { name: "Other GPUs", value: (r) => others(r).length, show: (r) => others(r).map((g) => `${bytes(g.allocated_peak_bytes)} on GPU ${g.device}${g.shared ? ", as another rank" : ""}: ${g.site}`).join("; ") || NONE, class: "wide" },
            doc.ranks.some((r) => r.ooms > 0) && { name: "Out of memory", number: true, value: (r) => r.ooms },
        ].filter(Boolean) }), why);
}

function more(doc) {
    const [worst] = doc.ranks, rows = doc.sites.filter((s) => s.excess_bytes !== 0), most = Math.max(1, ...rows.map((s) => s.excess_bytes));
    const columns = (name, key) => [{ name, value: (s) => s[key], class: "wide" }, key === "site" && { name: "Owner", value: (s) => s.owner }, size("More", (s) => s.excess_bytes, { show: (s) => signed(s.excess_bytes), bar: (s) => s.excess_bytes / most }),
        size(`Rank ${worst.rank}`, (s) => s.worst_bytes), size("Median", (s) => s.median_bytes), { name: "Held by", number: true, value: (s) => s.holders, show: (s) => plural(s.holders, "rank") }].filter(Boolean);
    const list = rows.length ? table({ caption: `By call site: rank ${worst.rank} against the median rank`, id: "more-table", rows, first: 12, hideCaption: false, columns: columns("Call site", "site") }) : el("p", { class: "note" }, "All ranks hold the same at every call site.");
    const note = doc.sites_left_out > 0 && el("p", { class: "hint" }, `${plural(doc.sites_left_out, "call site")} with smaller differences left out.`);
    const owners = table({ caption: "By owner: the library that asked for it", id: "owner-table", rows: doc.owners, first: 12, hideCaption: false, columns: columns("Owner", "owner") });
    return section("more", `What rank ${worst.rank} holds and the median does not`, "Each rank at its own peak; the median is that of all ranks, for each row by itself.", list, note, owners);
}

export function ranksPage(doc, main) {
    const plot = skew(doc), help = ranksHelps(doc.dryrun);
    document.title = `${plural(doc.ranks.length, "rank")}: GPU memory (gpuprof)`;
    document.getElementById("who").textContent = plural(doc.ranks.length, "rank");
    document.getElementById("nav").replaceChildren(el("ul", {}, [["skew", "Over time"], ["more", "What the worst has"], ["ranks", "Ranks"]].map(([id, name]) => el("li", {}, el("a", { href: `#${id}` }, name)))));
    main.replaceChildren(title(doc), ...banners(doc), figures(doc, help), plot.node, more(doc), ranks(doc), ...(help.section ? [help.section] : []));
    return { redraw: plot.redraw };
}
