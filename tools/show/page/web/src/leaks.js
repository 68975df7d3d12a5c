// SPDX-License-Identifier: MIT
// Growth: call sites that hold more with every step, with the slope and the time until the device is full.
import { el, section, svg, table } from "./dom.js";
import { base, bytes, count, duration, exact, known, percent, plural, rough } from "./format.js";
import { deviceWord } from "./model.js";

const SOURCES = { marks: "the program's marks", nvtx: "NVTX ranges", period: "a period found in its allocations", time: "equal stretches of time", stacks: "calls on the stacks:" };

export function sureness(confidence) {
    if (!known(confidence)) return "unknown";
    return confidence >= 0.9 ? "almost certain" : confidence >= 0.7 ? "likely" : confidence >= 0.4 ? "possible" : "weak";
}

export function stepWords(model) {
    const { source, name, count: steps, word, sure } = model.steps;
    const named = name && source !== "time" ? ` “${name.slice(0, 60)}”` : "";
    const doubt = word === "repeat" ? `, ${percent(sure)} even, which may be parts of a step` : "";
    return `${plural(steps, model.stepWord())}, from ${SOURCES[source] || source}${named}${doubt}`;
}

function sparkline(values) {
    if (!Array.isArray(values) || values.length < 2) return el("span", { class: "soft" }, "–");
    const top = Math.max(1, ...values), w = 150, h = 30;
    // What was held from the start of each step to the next one's.
    const x = (i) => ((i * w) / values.length).toFixed(1), y = (v) => (h - (v / top) * (h - 3) - 1).toFixed(1);
    const points = values.map((v, i) => `${x(i)},${y(v)} ${x(i + 1)},${y(v)}`);
    return svg("svg", { viewBox: `0 0 ${w} ${h}`, width: w, height: h, role: "img", class: "spark", "aria-label": `from ${bytes(values[0])} to ${bytes(values.at(-1))}` },
        svg("polygon", { points: `0,${h} ${points.join(" ")} ${w},${h}` }), svg("polyline", { points: points.join(" ") }));
}

const oomWords = (seconds) => (known(seconds) ? `in about ${rough(seconds)}` : "unknown");

function suspectName(suspect, model) {
    const place = suspect.file ? `${base(suspect.file)}${suspect.line ? `:${suspect.line}` : ""}` : "";
    return suspect.function ? `${suspect.function}${place ? ` (${place})` : ""}` : model.siteName(suspect.site);
}

function columnsOf(model, rows, candidates) {
    const steepest = Math.max(...rows.map((s) => s.bytes_per_step), 1);
    return [
        { name: "#", number: true, value: (s) => s.rank },
        { name: "Call site", value: (s) => s.site, show: (s) => model.siteCell(s.site, suspectName(s, model)), csv: (s) => suspectName(s, model), class: "wide" },
        { name: "On", value: (s) => s.device, show: (s) => deviceWord(s.device).replace(" ", "\u00a0") },
        { name: candidates ? "Growth, if these are steps" : `Growth per ${model.stepWord()}`, number: true, value: (s) => s.bytes_per_step, show: (s) => `+${bytes(s.bytes_per_step)}`, bar: (s) => s.bytes_per_step / steepest },
        { name: `At each ${model.stepWord()}`, value: (s) => (s.live_bytes_at_bounds || []).join(" "), show: (s) => sparkline(s.live_bytes_at_bounds) },
        { name: "Holds now", number: true, value: (s) => s.live_bytes, show: (s) => bytes(s.live_bytes), title: (s) => exact(s.live_bytes) },
        { name: "Blocks", number: true, value: (s) => s.live_count, show: (s) => count(s.live_count) },
        !candidates && { name: "Oldest", number: true, value: (s) => s.oldest_seconds, show: (s) => duration(s.oldest_seconds) },
        { name: "Confidence", value: (s) => s.confidence, show: (s) => el("span", {}, `${sureness(s.confidence)}, `, el("span", { class: "nowrap" }, percent(s.confidence))) },
        candidates ? { name: "Why it is not known", value: (s) => s.because, class: "wide" }
            : { name: "Device full", value: (s) => s.seconds_to_oom, show: (s) => oomWords(s.seconds_to_oom) },
    ].filter(Boolean);
}

export function leaks(model) {
    const { suspects, candidates = [], why } = model.leaks;
    if (!suspects.length && !candidates.length) return { empty: `No suspect${why ? `: ${why}` : ""}. The analysis covers ${stepWords(model)}.`, redraw() {}, destroy() {} };
    const said = suspects.length ? `Call sites that hold more with every ${model.stepWord()}, over ${stepWords(model)}. Open a site to see its stack.`
        : `No suspect: ${why}. The analysis covers ${stepWords(model)}.`;
    return {
        node: section("growth", "Growth", said,
            suspects.length > 0 && table({ caption: "Leak suspects, the fastest growing first", id: "leaks-table", rows: suspects, columns: columnsOf(model, suspects, false), first: 50 }),
            candidates.length > 0 && table({ caption: "Call sites whose memory grew, of which it is not known whether they leak", id: "candidates-table", rows: candidates, columns: columnsOf(model, candidates, true), first: 10, hideCaption: false })),
        redraw() {}, destroy() {},
    };
}
