// SPDX-License-Identifier: MIT
// Memory over time: allocated bytes, stacked by kind; reserved bytes above them; marks, the peak and failures.
import uPlot from "uplot";
import { colour, isDark, kindColour, UNSUMMED } from "./colours.js";
import { asTable, el, section, table } from "./dom.js";
import { after, bytes, exact, duration, plural } from "./format.js";
import { timePlot, vertical, word } from "./plot.js";
import { isHost } from "./model.js";

const edge = () => (isDark() ? "#ffffff" : "#000000");
const stepped = uPlot.paths.stepped({ align: 1 });

// Samples several step functions at the times of all their points.
function merged(lists, endNs) {
    const times = [...new Set([0, endNs, ...lists.flatMap((list) => list.map((p) => p[0]))])].sort((a, b) => a - b);
    return [times, lists.map((list) => {
        let next = 0, point = [0, 0, 0, 0];
        return times.map((t) => {
            // A point is valid until the next one; before the first point the value is 0.
            while (next < list.length && list[next][0] <= t) point = list[next++];
            return point;
        });
    })];
}

function stacked(columns, visible) {
    const sums = columns[0] ? columns[0].map(() => 0) : [];
    return columns.map((column, k) => (visible[k] ? column.map((point, i) => (sums[i] += point[3])) : column.map(() => null)));
}

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

// Draws a stroke from the lowest to the highest value of each point.  A stretch is usually narrower than a pixel.
function drawExtremes(u, list) {
    const ctx = u.ctx, [low, high] = [u.scales.x.min, u.scales.x.max];
    ctx.save();
    ctx.strokeStyle = edge();
    ctx.lineWidth = 1.25 * devicePixelRatio;
    ctx.setLineDash([]);
    ctx.beginPath();
    for (const p of list) {
        const seconds = p[0] / 1e9;
        if (seconds < low || seconds > high || p[1] === p[2]) continue;
        const x = u.valToPos(seconds, "x", true);
        ctx.moveTo(x, u.valToPos(p[1], "y", true));
        ctx.lineTo(x, u.valToPos(p[2], "y", true));
    }
    ctx.stroke();
    ctx.restore();
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
    return el("div", { class: "legend", role: "group", "aria-label": "Legend; kinds can be switched off" }, entries);
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

function sources(device) {
    const size = (list) => list.reduce((most, p) => Math.max(most, p[2]), 0);
    const all = Object.entries(device.series.kinds).map(([name, list]) => ({ name, list, most: size(list) })).filter((k) => k.most > 0);
    all.sort((a, b) => b.most - a.most);
    return { summed: all.filter((k) => !UNSUMMED.has(k.name)), loose: all.filter((k) => UNSUMMED.has(k.name)) };
}

export function timeline(model, device) {
    const { summed, loose } = sources(device);
    const visible = summed.map(() => true);
    const [times, columns] = merged([device.series.allocated, device.series.reserved, ...summed.map((k) => k.list), ...loose.map((k) => k.list)], model.endNs);
    const [allocated, reserved] = columns, kinds = columns.slice(2, 2 + summed.length), others = columns.slice(2 + summed.length);
    const last = (column) => column.map((p) => p[3]);
    const xs = times.map((t) => t / 1e9);
    // The highest stack first: each later one is painted over it.
    const build = () => [xs, ...stacked(kinds, visible).reverse(), ...others.map(last), last(allocated), last(reserved)];
    const most = Math.max(device.reserved_peak_bytes || 0, device.allocated_peak_bytes || 0, ...loose.map((k) => k.most), 1);
    const top = () => (device.total_bytes > 0 && device.total_bytes < most * 1.4 ? Math.max(most, device.total_bytes) * 1.06 : most * 1.12);
    const pile = (k, i) => ({ paths: stepped, stroke: () => kindColour(k.name, i), fill: () => kindColour(k.name, i), width: 0, points: { show: false } });
    const line = (ink, width, dash) => ({ paths: stepped, stroke: ink, width, dash, points: { show: false } });
    const series = [{}, ...summed.map(pile).reverse(), ...loose.map((k, i) => line(() => kindColour(k.name, i), 1.5, [2, 3])),
        line(edge, 1.25), line(() => colour("reserved"), 1.5, [6, 4])];
    const rose = (p) => (p[2] > p[3] ? ` (up to ${bytes(p[2])} within this point)` : "");
    const readout = (i) => {
        if (i === null || i === undefined) return `Use the pointer or the arrow keys to see the memory at a moment.${model.marks.length ? ` ${plural(model.marks.length, "mark")}.` : ""}`;
        const parts = summed.map((k, n) => [k.name, kinds[n][i][3]]).filter((p) => p[1] > 0).map((p) => `${p[0]} ${bytes(p[1])}`);
        const step = model.step(times[i]);
        return `${duration(times[i] / 1e9)}${step ? `, ${step}` : ""}: allocated ${bytes(allocated[i][3])}${rose(allocated[i])}, reserved ${bytes(reserved[i][3])}${parts.length > 1 ? ` (${parts.join(", ")})` : ""}`;
    };
    const draw = (u) => {
        marksOf(u, model);
        drawExtremes(u, device.series.allocated);
        drawCapacity(u, device);
        drawPeak(u, device);
        model.ooms.filter((o) => o.device === device.device).forEach((o) => {
            const x = vertical(u, o.time_ns / 1e9, colour("bad"), [], 2);
            if (x !== null) word(u, x, u.bbox.top + u.bbox.height - 12 * devicePixelRatio, `out of memory: requested ${bytes(o.requested_bytes)}`, colour("bad"), "right");
        });
    };
    const swatches = [];
    const swatch = (paint, cls) => {
        const box = el("span", { class: `swatch ${cls || ""}` });
        swatches.push(() => box.style.setProperty("--c", paint()));
        return box;
    };
    const toggle = (k, i) => {
        const button = el("button", { type: "button", "aria-pressed": "true" }, swatch(() => kindColour(k.name, i)), `${k.name} `, el("span", { class: "soft" }, `≤ ${bytes(k.most)}`));
        button.addEventListener("click", () => {
            visible[i] = !visible[i];
            button.setAttribute("aria-pressed", String(visible[i]));
            view.plot.setData(build(), false);
            view.plot.redraw();
        });
        return button;
    };
    const keys = legend([...summed.map(toggle),
        ...loose.map((k, i) => el("span", {}, swatch(() => kindColour(k.name, i), "line"), `${k.name} `, el("span", { class: "soft" }, "not part of allocated"))),
        el("span", {}, swatch(() => colour("ink"), "line"), "allocated"), el("span", {}, swatch(() => colour("reserved"), "line dashed"), "reserved from the driver")]);
    const paint = () => swatches.forEach((f) => f());
    paint();
    const view = timePlot({ label: "Memory over time", height: 340, data: build(), series, end: model.endNs / 1e9, top, readout, draw, legend: keys });
    const lead = isHost(device.device) ? "Pinned and registered host memory, by kind." : "Memory that the program held, stacked by kind, and above it the memory reserved from the driver." + (model.marks.length ? " Dotted lines are the marks of the program." : "");
    return {
        node: section("timeline", "Memory over time", lead, view.node, asTable("Show as a table", () => pointsTable(device)),
            model.marks.length > 0 && asTable(`${plural(model.marks.length, "mark")} as a table`, () => marksTable(model))),
        redraw: () => (paint(), view.redraw()),
        destroy: view.destroy,
    };
}
