// SPDX-License-Identifier: MIT
// Memory over time: allocated bytes, stacked by call site, owner, kind or use; reserved bytes above them; marks, the peak and
// failures.  Zooming samples the document again, so that the plot has as many points at every zoom.
import uPlot from "uplot";
import { colour, isDark, kindColour, layerColour } from "./colours.js";
import { asTable, el, section, table } from "./dom.js";
import { after, bytes, count, exact, instant, percent, plural, shorter } from "./format.js";
import { before, columns, states, STACKS, UNKNOWN_USE } from "./history.js";
import { ledges, timePlot, vertical, word } from "./plot.js";
import { isHost } from "./model.js";
import { choose, state, watch } from "./state.js";

const edge = () => (isDark() ? "#ffffff" : "#000000");
const steps = uPlot.paths.stepped({ align: 1 });
const layer = (u, ...range) => ({ ...steps(u, ...range), stroke: ledges(u, ...range).stroke });

function marksOf(u, model) {
    const [low, high] = [u.scales.x.min, u.scales.x.max];
    const seen = model.marks.filter((m) => m.time_ns / 1e9 >= low && m.time_ns / 1e9 <= high);
    // Lines less than six pixels apart would make the plot grey, so then none is drawn.
    if (seen.length * 6 * devicePixelRatio > u.bbox.width) return;
    seen.forEach((m) => vertical(u, m.time_ns / 1e9, colour("strong"), [1, 4]));
}

function drawPeak(u, device) {
    const x = u.valToPos(device.allocated_peak_ns / 1e9, "x", true), y = u.valToPos(device.allocated_peak_bytes, "y", true);
    if (x < u.bbox.left || x > u.bbox.left + u.bbox.width || !device.allocated_peak_bytes) return;
    const ctx = u.ctx, size = 4.5 * devicePixelRatio;
    ctx.save();
    ctx.fillStyle = colour("pick");
    ctx.strokeStyle = colour("panel");
    ctx.lineWidth = 2 * devicePixelRatio;
    ctx.beginPath();
    ctx.arc(x, y, size, 0, 7);
    ctx.stroke();
    ctx.fill();
    ctx.restore();
    word(u, x + size, y - 2.6 * size, `peak ${bytes(device.allocated_peak_bytes)}`, colour("pick"), x > u.bbox.left + u.bbox.width * 0.7 ? "right" : "left");
}

// The chosen range is shaded, the chosen moment is a line.
function drawChoice(u) {
    const ctx = u.ctx, { left, top, width, height } = u.bbox;
    if (state.range) {
        const [low, high] = state.range.map((ns) => Math.max(left, Math.min(left + width, u.valToPos(ns / 1e9, "x", true))));
        ctx.save();
        ctx.fillStyle = colour("accent");
        ctx.globalAlpha = 0.16;
        ctx.fillRect(low, top, high - low, height);
        ctx.restore();
        state.range.forEach((ns) => vertical(u, ns / 1e9, colour("accent"), [], 1));
    }
    const x = state.at === null ? null : vertical(u, state.at / 1e9, colour("accent"), [], 2);
    if (x !== null) word(u, x, top + 12 * devicePixelRatio, after(state.at), colour("accent"), x > left + width * 0.8 ? "right" : "left");
}

function drawCapacity(u, device) {
    if (!(device.total_bytes > 0) || device.total_bytes > u.scales.y.max) return;
    const ctx = u.ctx, y = Math.round(u.valToPos(device.total_bytes, "y", true)) + 0.5;
    ctx.save();
    ctx.strokeStyle = colour("bad");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([]);
    ctx.beginPath();
    ctx.moveTo(u.bbox.left, y);
    ctx.lineTo(u.bbox.left + u.bbox.width, y);
    ctx.stroke();
    ctx.restore();
    word(u, u.bbox.left, y + 11 * devicePixelRatio, `device memory: ${bytes(device.total_bytes)}`, colour("bad"));
}

function legend(entries) {
    return el("div", { class: "legend", role: "group", "aria-label": "Legend; layers can be switched off" }, entries);
}

function pointsTable(device) {
    const kinds = Object.entries(device.series.kinds);
    const rows = [["allocated", device.series.allocated], ["reserved", device.series.reserved], ...kinds.map(([k, l]) => [`kind ${k}`, l])]
        .flatMap(([name, list]) => list.map((p) => [name, ...p]));
    const size = (name, i) => ({ name, number: true, value: (r) => r[i], show: (r) => bytes(r[i]), title: (r) => exact(r[i]) });
    return table({
        caption: "Memory over time: each row is a stretch of time that starts at its time", id: "timeline-table", rows,
        columns: [{ name: "What", value: (r) => r[0] }, { name: "From", number: true, value: (r) => r[1], show: (r) => after(r[1]) },
            size("Lowest", 2), size("Highest", 3), size("At its end", 4)],
    });
}

function marksTable(model) {
    return table({
        caption: "Marks", id: "marks-table", rows: model.marks,
        columns: [{ name: "Mark", value: (m) => m.name }, { name: "At", number: true, value: (m) => m.time_ns, show: (m) => after(m.time_ns) }],
    });
}

function resolution(model, device, past) {
    if (past.exact) return `This page has every one of the ${count(past.lives.length)} blocks of this device, so zooming in shows single allocations.`;
    if (!past.known) return "";
    const fine = device.series.fine, { stretch_ns: stretch, rows, parts } = device.moments;
    return `${count(device.lifetimes.blocks)} blocks are too many for a page: it has the total in ${count((fine || device.series.allocated).length)} points, and the call sites (the ${count(new Set(parts.map((p) => p[0])).size)} largest, and all others as one) at ${count(rows.length)} moments: the highest and the last of every ${after(stretch)}.`;
}

// At the moments of the plot.
function layersTable(model, past, stack) {
    const { times, layers, total } = past.layers(stack), [low, high] = state.zoom || [0, model.endNs], seen = columns(times, total, total, low, high, ROOM);
    const word = STACKS.find((s) => s[0] === stack)[1], size = (name, value) => ({ name, number: true, value, show: (i) => bytes(value(i)), title: (i) => exact(value(i)) });
    return table({
        caption: `Memory over time, by ${word}`, id: "layers-table", rows: [...new Set([...seen.high, ...seen.low])].filter((i) => i >= 0).sort((a, b) => a - b),
        columns: [{ name: "From", number: true, value: (i) => times[i], show: (i) => after(times[i]) }, size("Allocated", (i) => total[i]), ...layers.map((l) => size(l.name, (i) => l.list[i]))],
    });
}

// Moments of the table, by their highest and their lowest.
const ROOM = 700;

// The numbers of the plot between two times, by layer and as uPlot wants them.
function sampled(past, stack, visible, low, high, cells) {
    const { layers } = past.layers(stack), seen = past.view(stack, low, high, cells), { xs, at, highest, reserved } = seen;
    const piles = layers.map((l) => at.map((s) => (s < 0 ? 0 : l.list[s]))), sums = xs.map(() => 0);
    const stacked = piles.map((pile, k) => (visible[k] ? pile.map((v, i) => (sums[i] += v)) : pile.map(() => null)));
    return { ...seen, piles, stacked, apart: reserved.map((v, i) => (v === highest[i] ? null : v)), step: (high - low) / cells / 1e9 };
}

// The highest value of a series in each column.
function tops(list, xs, cells) {
    const { times, tops: high, bottoms } = states(list), seen = columns(times, high, bottoms, xs[0], xs.at(-1), cells);
    let next = 0;
    return xs.map((x) => {
        while (next + 1 < seen.t.length && seen.t[next + 1] <= x) next++;
        return seen.high[next] < 0 ? 0 : high[seen.high[next]];
    });
}

export function timeline(model, device) {
    const past = model.history(device), stacks = STACKS.filter(([id]) => past.offers(id));
    const box = el("div"), lead = isHost(device.device) ? "Pinned and registered host memory" : "Memory that the program held, and above it the memory reserved from the driver";
    let inner = null;
    const fallback = model.recording.stacks && stacks.some((s) => s[0] === "site") ? "site" : "kind";
    function make() {
        const stack = stacks.some((s) => s[0] === state.stack) ? state.stack : fallback;
        const focus = box.contains(document.activeElement) && document.activeElement.closest(".switch");
        if (inner) inner.destroy();
        const choice = stacks.length > 1 && el("div", { class: "switch", role: "group", "aria-label": "Stack the memory by" }, el("span", { class: "hint" }, "stacked by"),
            stacks.map(([id, name]) => el("button", { type: "button", "aria-pressed": String(id === stack), click: () => choose({ stack: id }) }, name)));
        inner = stackedPlot(model, device, past, stack, choice);
        box.replaceChildren(inner.node, inner.keys, el("p", { class: "hint" }, resolution(model, device, past)), asTable(`Show as a table, by ${stack === "site" ? "call site" : stack}`, () => layersTable(model, past, stack)));
        if (focus) box.querySelector(".switch [aria-pressed=true]").focus();
    }
    const stop = watch((change) => ("stack" in change ? make() : inner.follow(change)));
    make();
    return {
        node: section("timeline", "Memory over time", `${lead}.${model.marks.length ? " Dotted lines are the marks of the program." : ""}`, box,
            asTable("Show the totals and kinds as a table", () => pointsTable(device)), model.marks.length > 0 && asTable(`${plural(model.marks.length, "mark")} as a table`, () => marksTable(model))),
        redraw: () => inner.redraw(), destroy: () => (stop(), inner.destroy()),
    };
}

function stackedPlot(model, device, past, stack, choice) {
    const { layers } = past.layers(stack), end = model.endNs / 1e9;
    const loose = Object.entries(device.series.kinds).map(([name, list]) => ({ name, list, most: list.reduce((most, p) => Math.max(most, p[2]), 0) })).filter((k) => model.unsummed.has(k.name) && k.most > 0);
    const paintOf = (l, i) => (stack === "kind" ? kindColour(l.name, i) : layerColour(l.hue ?? i, l.rest, l.name === UNKNOWN_USE && stack === "use"));
    const visible = layers.map(() => true);
    let now = null;
    const load = (low, high, cells) => {
        now = sampled(past, stack, visible, Math.round(low * 1e9), Math.round(high * 1e9), cells);
        // The highest stack first: each later one is painted over it.
        return [now.xs.map((t) => t / 1e9), ...now.stacked.toReversed(), ...loose.map((k) => tops(k.list, now.xs, cells)), now.lowest, now.highest, now.apart];
    };
    const pile = (l, i) => ({ paths: layer, stroke: () => colour("panel"), fill: () => paintOf(l, i), width: 0.5, points: { show: false } });
    const line = (ink, width, dash) => ({ paths: ledges, stroke: ink, width, dash, points: { show: false } });
    const series = [{}, ...layers.map(pile).reverse(), ...loose.map((k, i) => line(() => kindColour(k.name, i), 1.5, [2, 3])), line(edge, 0.75), line(edge, 1.25),
        line(() => colour("reserved"), 1.5, [6, 4])];
    const top = (u, high) => {
        const [low, until] = [now.xs[0], now.xs.at(-1)], whole = low <= 0 && until >= model.endNs, most = Math.max(high || 0, 1);
        return whole && device.total_bytes > 0 && device.total_bytes < most * 1.4 ? Math.max(most, device.total_bytes) * 1.06 : most * 1.12;
    };
    const spread = (i) => (now.highest[i] > now.lowest[i] ? `at most; at least ${bytes(now.lowest[i])} within this pixel` : "");
    const parts = (i) => layers.map((l, n) => [l.name, now.piles[n][i]]).filter((p) => p[1] > 0);
    const head = (i) => `${instant(now.when[i] / 1e9, now.step)}${model.step(now.when[i]) ? `, ${model.step(now.when[i])}` : ""}`;
    const readout = (i) => {
        if (i === null || i === undefined || !now || i >= now.xs.length) return `Use the pointer or the arrow keys to see the memory at a moment.${model.marks.length ? ` ${plural(model.marks.length, "mark")}.` : ""}`;
        const list = parts(i).slice(0, 4).map((p) => `${p[0]} ${bytes(p[1])}`);
        return `${head(i)}: allocated ${bytes(now.highest[i])}${spread(i) && ` ${spread(i)}`}, reserved ${bytes(now.reserved[i])}${list.length > 1 ? ` (${list.join(", ")})` : ""}`;
    };
    const tip = (i, value) => {
        if (i === null || i === undefined || i >= now.xs.length) return null;
        const under = layers.findIndex((l, n) => visible[n] && now.stacked[n][i] >= value && now.piles[n][i] > 0);
        const sum = now.piles.reduce((all, pile) => all + pile[i], 0);
        return [`${bytes(now.highest[i])} at ${head(i)}`, spread(i) || null, `reserved ${bytes(now.reserved[i])}`,
            under >= 0 ? `${layers[under].name}: ${bytes(now.piles[under][i])}, ${percent(now.piles[under][i] / (sum || 1))}` : null].filter(Boolean);
    };
    const draw = (u) => {
        marksOf(u, model);
        drawChoice(u);
        drawCapacity(u, device);
        drawPeak(u, device);
        model.ooms.filter((o) => o.device === device.device).slice(0, 50).forEach((o, i) => {
            const x = vertical(u, o.time_ns / 1e9, colour("bad"), [], 2);
            if (x !== null && i === 0) word(u, x, u.bbox.top + u.bbox.height - 12 * devicePixelRatio, u.bbox.width > 500 * devicePixelRatio ? `out of memory: requested ${bytes(o.requested_bytes)}` : "out of memory", colour("bad"), "right");
        });
    };
    const swatches = [];
    const swatch = (paint, cls) => {
        const box = el("span", { class: `swatch ${cls || ""}` });
        swatches.push(() => box.style.setProperty("--c", paint()));
        return box;
    };
    const toggle = (l, i) => {
        const button = el("button", { type: "button", "aria-pressed": "true", title: l.name }, swatch(() => paintOf(l, i)), `${shorter(l.name)} `, el("span", { class: "soft" }, `≤ ${bytes(l.most)}`));
        button.addEventListener("click", () => {
            visible[i] = !visible[i];
            button.setAttribute("aria-pressed", String(visible[i]));
            view.reload();
        });
        return button;
    };
    const keys = legend([...layers.map(toggle),
        ...loose.map((k, i) => el("span", {}, swatch(() => kindColour(k.name, i), "line"), `${k.name} `, el("span", { class: "soft" }, "not part of allocated"))),
        el("span", {}, swatch(() => colour("ink"), "line"), "allocated: the highest of each pixel"), el("span", {}, swatch(() => colour("ink"), "line thin"), "the lowest"),
        past.reserved && el("span", {}, swatch(() => colour("reserved"), "line dashed"), "reserved from the driver, where it is not what is allocated")].filter(Boolean));
    const paint = () => swatches.forEach((f) => f());
    paint();
    let own = false;
    const chooseOwn = (change) => {
        own = true;
        choose(change);
        own = false;
        view.plot.redraw(false);
    };
    const ns = (seconds) => Math.round(seconds * 1e9);
    // The plot shows the highest moment of each pixel, so that is the one that a click chooses.
    const shownAt = (seconds) => {
        const i = before(now.xs, ns(seconds));
        return i >= 0 && now.highest[i] > now.lowest[i] ? Math.round(now.when[i]) : ns(seconds);
    };
    const view = timePlot({
        label: "Memory over time", height: 340, load, series, end, top, readout, draw, legend: choice, tip, zoom: state.zoom && state.zoom.map((t) => Math.min(end, t / 1e9)),
        moved: (low, high) => chooseOwn({ zoom: low <= 0 && high >= end ? null : [ns(low), ns(high)] }),
        ...(past.known && { pick: (seconds) => chooseOwn({ at: shownAt(seconds) }), range: (low, high) => chooseOwn({ range: [ns(low), ns(high)], at: null }) }),
        clear: () => (state.at !== null || state.range) && (chooseOwn({ at: null, range: null }), true),
    });
    return {
        node: view.node, keys, redraw: () => (paint(), view.redraw()), destroy: view.destroy,
        // Somebody else changed the zoom or the choice.
        follow: (change) => {
            if (own) return;
            if ("zoom" in change) view.show(...(state.zoom ? state.zoom.map((t) => t / 1e9) : [0, end]));
            view.plot.redraw(false);
        },
    };
}
