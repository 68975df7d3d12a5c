// SPDX-License-Identifier: MIT
// A plot over time.  It adds to uPlot: keys, buttons, a line of text about the point under the cursor, themes, and widths.
import uPlot from "uplot";
import { colour } from "./colours.js";
import { el } from "./dom.js";
import { tick, tickTimes } from "./format.js";

// Steps of the axis in seconds: decimal below a minute, as on a clock above.
const CLOCK = [...Array.from({ length: 10 }, (_, k) => [1, 2, 5].map((n) => +`${n}e${k - 9}`)).flat(), 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800];
const POWERS = Array.from({ length: 54 }, (_, i) => 2 ** i);
const FONT = "12px system-ui, sans-serif";

function axes() {
    const common = { stroke: () => colour("soft"), grid: { stroke: () => colour("line"), width: 1 }, ticks: { stroke: () => colour("line"), width: 1 }, font: FONT };
    return [
        { ...common, values: (u, splits) => tickTimes(splits), incrs: CLOCK, space: 80, size: 34 },
        { ...common, values: (u, splits) => splits.map(tick), incrs: POWERS, size: 74, space: 34 },
    ];
}

/* label; height; data; series; end: seconds; top(): highest value to show; readout(index) -> text; draw(u): on the canvas */
export function timePlot({ label, height, data, series, end, top, readout, draw, legend }) {
    const holder = el("div", { class: "plot", tabindex: "0", role: "application", "aria-label": `${label}. Arrow keys move the cursor, plus and minus zoom, shift with arrows pans, zero shows all.` });
    const line = el("p", { class: "readout", role: "status" }, readout(null));
    const plot = new uPlot({
        width: 600, height, legend: { show: false }, padding: [14, 26, 0, 0],
        cursor: { y: false, drag: { x: true, y: false, setScale: true }, points: { show: false } },
        scales: { x: { time: false, range: (u, low, high) => clamp(low, high) }, y: { range: () => [0, Math.max(1, top())] } },
        axes: axes(), series,
        hooks: { setCursor: [(u) => (line.textContent = readout(u.cursor.idx))], draw: [draw], setScale: [() => buttons()] },
    }, data, holder);
    function clamp(low, high) {
        low = Math.max(0, low ?? 0);
        high = Math.min(end, high ?? end);
        return high - low < end * 1e-6 ? [0, end] : [low, high];
    }
    const range = () => [plot.scales.x.min ?? 0, plot.scales.x.max ?? end];
    const show = (low, high) => plot.setScale("x", { min: low, max: high });
    function zoom(factor) {
        const [low, high] = range(), width = Math.min(end, (high - low) * factor);
        const at = plot.cursor.idx !== null && plot.cursor.idx !== undefined ? plot.data[0][plot.cursor.idx] : (low + high) / 2;
        const start = Math.max(0, Math.min(end - width, at - (at - low) * factor));
        show(start, start + width);
    }
    function pan(part) {
        const [low, high] = range(), width = high - low;
        const start = Math.max(0, Math.min(end - width, low + width * part));
        show(start, start + width);
    }
    function move(by) {
        const xs = plot.data[0], [low, high] = range();
        let at = plot.cursor.idx ?? xs.findIndex((x) => x >= low);
        at = Math.max(0, Math.min(xs.length - 1, at + by));
        if (xs[at] < low || xs[at] > high) pan(xs[at] < low ? -0.5 : 0.5);
        plot.setCursor({ left: plot.valToPos(xs[at], "x"), top: 10 });
    }
    // Points per key press: one point of 2000 is less than a pixel.
    const stride = () => Math.max(1, Math.round(plot.data[0].filter((x) => x >= range()[0] && x <= range()[1]).length / 100));
    const button = (text, name, act) => el("button", { type: "button", "aria-label": name, title: name, click: act }, text);
    const reset = button("Show all", "Show all", () => show(0, end));
    const bar = el("div", { class: "tools", role: "group", "aria-label": `${label}: zoom` }, button("+", "Zoom in", () => zoom(0.5)), button("−", "Zoom out", () => zoom(2)),
        button("◂", "Earlier", () => pan(-0.4)), button("▸", "Later", () => pan(0.4)), reset, el("span", { class: "hint" }, "drag to zoom"), legend);
    function buttons() {
        const [low, high] = range();
        reset.disabled = low <= 0 && high >= end;
    }
    const keys = {
        ArrowLeft: (e) => (e.shiftKey ? pan(-0.2) : move(-stride())), ArrowRight: (e) => (e.shiftKey ? pan(0.2) : move(stride())),
        "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => show(0, end), Escape: () => show(0, end),
        Home: () => move(-Infinity), End: () => move(plot.data[0].length),
    };
    holder.addEventListener("keydown", (event) => {
        if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        keys[event.key](event);
    });
    const watch = new ResizeObserver(() => {
        const width = Math.floor(holder.clientWidth);
        if (width > 0 && width !== plot.width) plot.setSize({ width, height });
    });
    watch.observe(holder);
    return {
        plot, node: el("div", { class: "plotbox" }, bar, holder, line), show,
        redraw: () => plot.redraw(false, true),
        destroy: () => (watch.disconnect(), plot.destroy()),
    };
}

// Draws a vertical line; returns its position, or null if that is outside of the plot.  A label (word) says in words
// what the line means, so that its colour is not needed.
export function vertical(u, x, stroke, dash, width = 1) {
    const ctx = u.ctx, at = Math.round(u.valToPos(x, "x", true)) + 0.5;
    if (at < u.bbox.left || at > u.bbox.left + u.bbox.width) return null;
    ctx.save();
    ctx.strokeStyle = stroke;
    ctx.lineWidth = width * devicePixelRatio;
    ctx.setLineDash(dash.map((d) => d * devicePixelRatio));
    ctx.beginPath();
    ctx.moveTo(at, u.bbox.top);
    ctx.lineTo(at, u.bbox.top + u.bbox.height);
    ctx.stroke();
    ctx.restore();
    return at;
}

export function word(u, x, y, text, ink, align = "left") {
    const ctx = u.ctx, ratio = devicePixelRatio;
    ctx.save();
    ctx.font = `600 ${12 * ratio}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left"; // the axes have changed it
    const width = ctx.measureText(text).width, pad = 4 * ratio, high = 18 * ratio;
    let left = align === "left" ? x + pad : x - width - 3 * pad;
    left = Math.max(u.bbox.left, Math.min(u.bbox.left + u.bbox.width - width - 2 * pad, left));
    ctx.fillStyle = colour("panel");
    ctx.globalAlpha = 0.88;
    ctx.fillRect(left, y - high / 2, width + 2 * pad, high);
    ctx.globalAlpha = 1;
    ctx.fillStyle = ink;
    ctx.fillText(text, left + pad, y + ratio);
    ctx.restore();
}
