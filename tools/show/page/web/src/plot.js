// SPDX-License-Identifier: MIT
// A plot over time.  It adds to uPlot: keys, buttons, a line of text about the point under the cursor, themes, and widths.
import uPlot from "uplot";
import { colour } from "./colours.js";
import { el, hideTip, showTip } from "./dom.js";
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

/* label; height; end: seconds; series; load(low, high, columns) -> data for what is between two
 * times, for a plot of so many columns of pixels; top(u, low, high): highest
 * value to show; readout(index) -> text; draw(u), under(u): on the canvas, above and below the series.
 * Optional: tip(index, value) -> lines at the pointer; keys: more of them; moved(low, high): the zoom has changed;
 * pick(seconds): a click or Enter; range(low, high): dragged with shift; clear() -> whether something was chosen, for Escape. */
export function timePlot({ label, height, load, series, bands, end, top, readout, draw, under, legend, tip, keys: more, moved, pick, range: select, clear, zoom: first }) {
    const hints = `Arrow keys move the cursor, plus and minus zoom, shift with arrows pans, zero shows all${pick ? ", Enter chooses the moment, brackets the start and the end of a range" : ""}.`;
    const holder = el("div", { class: "plot", tabindex: "0", role: "application", "aria-label": `${label}. ${hints}` });
    const line = el("p", { class: "readout", role: "status" });
    let pointer = null, open = null, from = first || [0, end];
    const plot = new uPlot({
        width: 600, height, legend: { show: false }, padding: [14, 26, 0, 0], bands,
        cursor: { y: false, drag: { x: true, y: false, setScale: false }, points: { show: false }, bind: { dblclick: () => () => show(0, end) } },
        scales: { x: { time: false, range: (u, low, high) => clamp(low, high) }, y: { range: (u, low, high) => [0, Math.max(1, top(u, high))] } },
        axes: axes(), series,
        hooks: { setCursor: [cursor], draw: [draw], drawAxes: under ? [under] : [], setScale: [() => buttons()], setSelect: [selected], ready: [(u) => u.setScale("x", { min: from[0], max: from[1] })] },
    }, load(...from, 600), holder);
    const data = () => load(...from, Math.max(1, Math.round(plot.bbox.width / devicePixelRatio)));
    line.textContent = readout(null);
    function clamp(low, high) {
        low = Math.max(0, low ?? 0);
        high = Math.min(end, high ?? end);
        return high - low < end * 1e-9 ? [0, end] : [low, high];
    }
    // The point whose step is under the cursor; uPlot's is the nearest, which may come after it.
    function hovered() {
        const idx = plot.cursor.idx;
        if (idx === null || idx === undefined || !(plot.cursor.left >= 0)) return idx;
        return idx > 0 && plot.valToPos(plot.data[0][idx], "x") > plot.cursor.left + 0.5 ? idx - 1 : idx;
    }
    function cursor(u) {
        const at = hovered();
        line.textContent = readout(at);
        const lines = pointer && tip && u.cursor.left >= 0 && tip(at, u.posToVal(u.cursor.top, "y"));
        if (lines) showTip(pointer, lines);
        else if (tip) hideTip();
    }
    const range = () => from;
    function reload() {
        plot.batch(() => {
            plot.setData(data(), false);
            plot.setScale("x", { min: from[0], max: from[1] });
        });
    }
    function show(low, high) {
        const next = clamp(low, high);
        if (next[0] === from[0] && next[1] === from[1]) return;
        from = next;
        reload();
        // What the cursor pointed at is elsewhere now.
        line.textContent = readout(null);
        buttons();
        if (moved) moved(...from);
    }
    function selected(u) {
        const { left, width } = u.select, shift = pointer && pointer.shiftKey;
        if (width < 3) return;
        const low = Math.max(0, u.posToVal(left, "x")), high = Math.min(end, u.posToVal(left + width, "x"));
        u.setSelect({ left: 0, width: 0 }, false);
        if (shift && select) select(low, high);
        else show(low, high);
    }
    const x = () => {
        const at = hovered();
        return at === null || at === undefined ? null : plot.data[0][at];
    };
    function zoom(factor) {
        const [low, high] = range(), width = Math.min(end, (high - low) * factor), now = x();
        const at = now !== null && now >= low && now <= high ? now : (low + high) / 2;
        const start = Math.max(0, Math.min(end - width, at - (at - low) * factor));
        show(start, start + width);
        if (now !== null) place(now);
    }
    function pan(part) {
        const [low, high] = range(), width = high - low;
        const start = Math.max(0, Math.min(end - width, low + width * part));
        show(start, start + width);
    }
    // The point nearest to a time gets the cursor.
    const place = (seconds) => plot.setCursor({ left: plot.valToPos(plot.data[0][plot.valToIdx(seconds)], "x"), top: 10 });
    function move(by) {
        const [low, high] = range(), now = x();
        pointer = null;
        hideTip();
        let xs = plot.data[0], at = now === null ? xs.findIndex((v) => v >= low) : hovered();
        const next = Math.max(0, Math.min(xs.length - 1, at + by));
        if (Number.isFinite(by) && (at + by < 0 || at + by >= xs.length || xs[next] < low || xs[next] > high)) {
            pan(by < 0 ? -0.5 : 0.5);
            xs = plot.data[0];
            at = Math.max(0, Math.min(xs.length - 1, plot.valToIdx(now ?? low) + by));
        } else at = next;
        place(xs[at]);
    }
    // Points per key press: one point of 2000 is less than a pixel.
    const stride = () => Math.max(1, Math.round(plot.data[0].filter((v) => v >= from[0] && v <= from[1]).length / 100));
    function bracket(last) {
        const now = x();
        if (now === null || !select) return;
        if (open === null || (last ? now <= open : now >= open)) open = now;
        else {
            select(Math.min(open, now), Math.max(open, now));
            open = null;
        }
    }
    const button = (text, name, act) => el("button", { type: "button", "aria-label": name, title: name, click: act }, text);
    const reset = button("Show all", "Show all", () => show(0, end));
    const hint = select ? "drag to zoom, click for a moment, shift and drag for a range" : pick ? "drag to zoom, click a block" : "drag to zoom";
    const bar = el("div", { class: "tools", role: "group", "aria-label": `${label}: zoom` }, button("+", "Zoom in", () => zoom(0.5)), button("−", "Zoom out", () => zoom(2)),
        button("◂", "Earlier", () => pan(-0.4)), button("▸", "Later", () => pan(0.4)), reset, el("span", { class: "hint" }, hint), legend);
    function buttons() {
        reset.disabled = from[0] <= 0 && from[1] >= end;
    }
    const keys = {
        ArrowLeft: (e) => (e.shiftKey ? pan(-0.2) : move(-stride())), ArrowRight: (e) => (e.shiftKey ? pan(0.2) : move(stride())),
        "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => show(0, end), Escape: () => (clear && clear()) || show(0, end),
        Home: () => move(-Infinity), End: () => move(Infinity), "[": () => bracket(false), "]": () => bracket(true), ...more,
        ...(pick && { Enter: () => x() !== null && pick(x(), null) }),
    };
    holder.addEventListener("keydown", (event) => {
        if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        keys[event.key](event);
    });
    // The wheel alone scrolls the page.
    plot.over.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        const [low, high] = range(), factor = 2 ** Math.max(-1, Math.min(1, event.deltaY / 100));
        const at = plot.posToVal(event.clientX - plot.over.getBoundingClientRect().left, "x"), width = Math.min(end, (high - low) * factor);
        const start = Math.max(0, Math.min(end - width, at - (at - low) * (width / (high - low))));
        show(start, start + width);
    }, { passive: false });
    let down = null;
    plot.over.addEventListener("mousemove", (event) => (pointer = event), true);
    plot.over.addEventListener("mousedown", (event) => (down = event));
    plot.over.addEventListener("mouseleave", () => ((pointer = null), hideTip()));
    plot.over.addEventListener("click", (event) => {
        if (!pick || !down || event.detail > 1 || Math.abs(event.clientX - down.clientX) > 2) return;
        const box = plot.over.getBoundingClientRect();
        pick(Math.max(0, Math.min(end, plot.posToVal(event.clientX - box.left, "x"))), plot.posToVal(event.clientY - box.top, "y"));
    });
    const watch = new ResizeObserver(() => {
        const width = Math.floor(holder.clientWidth);
        if (width <= 0 || width === plot.width) return;
        plot.setSize({ width, height });
        reload();
    });
    watch.observe(holder);
    buttons();
    holder.view = { plot, show }; // where tests see what is drawn
    return {
        plot, node: el("div", { class: "plotbox" }, bar, holder, line, select && el("p", { class: "hint keys" }, "Keys, after a click on the plot: ← → move · + − zoom · shift ← → pan · 0 all · Enter chooses the moment · [ ] a range · Esc clears. Ctrl and the wheel zoom, a double click shows all.")), show,
        // The same times, with other data.
        reload,
        say: (text) => (line.textContent = text),
        time: x,
        // Where the pointer is, in ns; the cursor is at the point nearest to it.
        pointerTime: () => (plot.cursor.left >= 0 ? plot.posToVal(plot.cursor.left, "x") * 1e9 : null),
        redraw: () => plot.redraw(false, true),
        destroy: () => (watch.disconnect(), hideTip(), plot.destroy()),
    };
}

/* A path of steps as ledges: a line down or up joins two of them only where both are wide enough to be seen as steps.  Where
 * spikes of one pixel follow each other, these lines would hide all else. */
export function ledges(u, series, first, last) {
    const stroke = new Path2D(), xs = u.data[0], ys = u.data[series], wide = 3 * devicePixelRatio;
    const known = (y) => y !== null && y !== undefined;
    let joins = false, to = 0;
    for (let i = first; i < last;) {
        const y = ys[i], from = u.valToPos(xs[i], "x", true);
        while (i < last && ys[i] === y) i++;
        to = u.valToPos(xs[i], "x", true);
        if (known(y)) {
            const at = u.valToPos(y, "y", true);
            if (joins && to - from >= wide) stroke.lineTo(from, at);
            else stroke.moveTo(from, at);
            stroke.lineTo(to, at);
        }
        joins = known(y) && to - from >= wide;
    }
    return { stroke, fill: null, clip: null, band: null, gaps: null, flags: 1 };
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
