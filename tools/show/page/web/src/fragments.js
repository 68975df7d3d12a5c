// SPDX-License-Identifier: MIT
// Fragmentation: three figures, each with its meaning, and a plot of the numbers behind them.
import uPlot from "uplot";
import { colour } from "./colours.js";
import { asTable, el, section, table } from "./dom.js";
import { after, bytes, duration, exact, known, percent } from "./format.js";
import { timePlot } from "./plot.js";

const stepped = uPlot.paths.stepped({ align: 1 });
const WHAT = [[1, "Reserved"], [2, "Allocated"], [3, "Requested"], [4, "Largest free piece"]];

function figure(value, name, meaning) {
    return el("div", { class: "figure" }, el("div", { class: "value" }, percent(value)), el("div", { class: "name" }, name), el("p", {}, meaning));
}

function pointsTable(points) {
    return table({
        caption: "Fragmentation over time", id: "fragmentation-table", rows: points,
        columns: [{ name: "At", number: true, value: (p) => p[0], show: (p) => after(p[0]) },
            ...WHAT.map(([i, name]) => ({ name, number: true, value: (p) => p[i], show: (p) => bytes(p[i]), title: (p) => exact(p[i]) }))],
    });
}

// What happens between the points: from the lowest to the highest value of each stretch of the series.
function extremes(u, series) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.fillStyle = colour("band");
    for (const [t, low, high] of series) {
        if (low === high) continue;
        const top = u.valToPos(high, "y", true);
        ctx.fillRect(Math.round(u.valToPos(t / 1e9, "x", true)), top, devicePixelRatio, u.valToPos(low, "y", true) - top);
    }
    ctx.restore();
}

function plotOf(model, device, points, legend) {
    const end = model.endNs / 1e9;
    const data = [points.map((p) => p[0] / 1e9), ...WHAT.map(([i]) => points.map((p) => p[i]))];
    // The last values are valid until the end.
    if (data[0].at(-1) < end) data.forEach((list, i) => list.push(i ? list.at(-1) : end));
    const curves = [device.series.reserved, device.series.allocated];
    const most = curves.flat().reduce((top, p) => Math.max(top, p[2]), points.reduce((top, p) => Math.max(top, p[1] || 0, p[2] || 0, p[4] || 0), 1));
    const line = (ink, width, dash) => ({ paths: stepped, stroke: ink, width, dash, points: { show: false } });
    const series = [{}, line(() => colour("reserved"), 1.5, [6, 4]), line(() => colour("live"), 1.5), line(() => colour("soft"), 1), line(() => colour("idleink"), 2, [2, 3])];
    const bands = [{ series: [1, 2], fill: () => colour("idle") }, { series: [2, 3], fill: () => colour("unmapped") }];
    const readout = (i) => (i === null || i === undefined ? "Use the pointer or the arrow keys to see the four numbers at a moment."
        : `${duration(data[0][i])}: ${WHAT.map(([n, name]) => `${name.toLowerCase()} ${known(data[n][i]) ? bytes(data[n][i]) : "unknown"}`).join(", ")}`);
    return timePlot({ label: "Fragmentation over time", height: 220, load: () => data, series, bands, end, top: () => most * 1.1, readout, draw: (u) => curves.forEach((curve) => extremes(u, curve)), legend });
}

export function fragments(model, device) {
    const f = device.fragmentation;
    if (!f.has_segments && device.series.fine_reserved === null && !(f.internal >= 0.005)) return { empty: "Reserved was allocated at every moment, and nothing was rounded up.", redraw() {}, destroy() {} };
    const figures = el("div", { class: "figures" },
        figure(f.utilisation, "utilisation", "of the memory reserved from the driver was allocated, when the most was reserved. The rest was not in use."),
        figure(f.has_segments ? f.external : null, "external", f.has_segments ? "of the free bytes inside segments at the end are outside the largest free piece: one large request cannot use them." : "is unknown, because the recording has no segments of a cache. It is the share of free bytes that one large request cannot use."),
        figure(f.internal, "internal", "of the allocated bytes at the peak were not requested: they are rounding."));
    if (!f.points.length) return { node: section("fragmentation", "Fragmentation", null, figures), redraw() {}, destroy() {} };
    const key = (cls, text) => el("span", {}, el("span", { class: `swatch ${cls}` }), text);
    const keys = el("div", { class: "legend" }, key("line frag-reserved dashed", "reserved"), key("line frag-allocated", "allocated"), key("line frag-requested", "requested"), 
        key("line frag-largest dashed", "largest free piece"), key("frag-idle", "reserved, not allocated"), key("frag-band", "lowest to highest between the points"));
    const view = plotOf(model, device, f.points, keys);
    return { node: section("fragmentation", "Fragmentation", null, figures, view.node, asTable("Show as a table", () => pointsTable(f.points))), redraw: view.redraw, destroy: view.destroy };
}
