// SPDX-License-Identifier: MIT
// The lifetimes of blocks: one band per block, from its allocation to its free and as high as its bytes, in the order of
// allocation.  When a block is freed, those above it move down, so that the top is the sum.
import { colour, kindColour, layerColour } from "./colours.js";
import { asTable, el, section, table } from "./dom.js";
import { after, bytes, count, duration, exact, plural } from "./format.js";
import { before } from "./history.js";
import { ledges, timePlot, vertical } from "./plot.js";
import { choose, state, watch } from "./state.js";

// More bands, or more corners of them, would take longer to draw than a screen can show.
const MOST = 3000, CORNERS = 400000;

const held = (row, endNs) => row[2] * ((row[1] ?? endNs) - row[0] + 1);

// The bands of some blocks: {row, t: times of its corners, y: where its lower edge is from then on}; null: too many.
function stack(rows, endNs) {
    const bands = rows.map((row) => ({ row, t: [], y: [] })), live = [];
    const changes = [...bands.map((b) => [b.row[0], 1, b]), ...bands.filter((b) => b.row[1] !== null).map((b) => [b.row[1], 0, b])];
    // At equal times ends come first, except of a block that ends where it starts.
    changes.sort((a, b) => a[0] - b[0] || (a[1] === 0 && a[2].row[0] === a[0]) - (b[1] === 0 && b[2].row[0] === b[0]) || a[1] - b[1]);
    let sum = 0, corners = 0;
    for (const [t, opens, band] of changes) {
        if (opens) {
            band.t.push(t);
            band.y.push(sum);
            live.push(band);
            sum += band.row[2];
            continue;
        }
        const at = live.lastIndexOf(band);
        live.splice(at, 1);
        sum -= band.row[2];
        for (let i = at; i < live.length; i++) {
            live[i].t.push(t);
            live[i].y.push(live[i].y.at(-1) - band.row[2]);
        }
        corners += live.length - at;
        if (corners > CORNERS) return null;
    }
    return bands.map((b) => ({ ...b, end: b.row[1] ?? endNs }));
}

function bandsOf(lives, endNs) {
    const order = [...lives].sort((a, b) => held(b, endNs) - held(a, endNs));
    for (let most = Math.min(MOST, order.length); most > 0; most = Math.floor(most / 2)) {
        const bands = stack(order.slice(0, most).sort((a, b) => a[0] - b[0]), endNs);
        if (bands) return bands;
    }
    return [];
}

// The outline of a band between two times, in pixels; corners in one column of pixels are one.
function outline(ctx, band, x, y) {
    const top = [], size = band.row[2];
    let last = null;
    for (let i = Math.max(0, before(band.t, x.low)); i < band.t.length && band.t[i] <= x.high; i++) {
        const at = Math.round(x.of(Math.max(x.low, band.t[i])));
        if (last && last[0] === at) last[1] = band.y[i];
        else top.push((last = [at, band.y[i]]));
    }
    if (!top.length) return false;
    const end = Math.max(top.at(-1)[0] + 1, Math.round(x.of(Math.min(x.high, band.end))));
    ctx.beginPath();
    for (let i = 0; i < top.length; i++) {
        ctx.lineTo(top[i][0], y(top[i][1] + size));
        ctx.lineTo(i + 1 < top.length ? top[i + 1][0] : end, y(top[i][1] + size));
    }
    for (let i = top.length - 1; i >= 0; i--) {
        ctx.lineTo(i + 1 < top.length ? top[i + 1][0] : end, y(top[i][1]));
        ctx.lineTo(top[i][0], y(top[i][1]));
    }
    ctx.closePath();
    return true;
}

function blocksTable(model, bands) {
    const rows = bands.map((b) => b.row).sort((a, b) => held(b, model.endNs) - held(a, model.endNs));
    return table({
        caption: "Blocks, those that held the most bytes times time first", id: "blocks-table", rows,
        columns: [
            { name: "Call site", value: (r) => r[3], show: (r) => model.siteCell(r[3]), csv: (r) => model.siteName(r[3]), class: "wide" }, { name: "Kind", value: (r) => r[4] },
            { name: "Bytes", number: true, value: (r) => r[2], show: (r) => bytes(r[2]), title: (r) => exact(r[2]) },
            { name: "From", number: true, value: (r) => r[0], show: (r) => after(r[0]) },
            { name: "To", number: true, value: (r) => r[1], show: (r) => (r[1] === null ? "live at the end" : after(r[1])) },
            { name: "Lifetime", number: true, value: (r) => (r[1] ?? model.endNs) - r[0], show: (r) => after((r[1] ?? model.endNs) - r[0]) },
        ],
    });
}

export function blocks(model, device) {
    const past = model.history(device), lives = past.lives, end = model.endNs / 1e9;
    if (!lives.length) return { empty: device.lifetimes ? "No block was allocated on this device." : "The document has no lifetimes of blocks.", redraw() {}, destroy() {} };
    const bands = bandsOf(lives, model.endNs), { layers } = past.layers(model.recording.stacks && past.known ? "site" : "kind");
    const places = new Map(layers.map((l, i) => [l.name, [l.hue ?? i, l.rest]])), rest = [0, true];
    const paint = ({ row }) => (model.recording.stacks ? layerColour(...(places.get(model.siteName(row[3])) || rest)) : kindColour(row[4]));
    let picked = null, now = null;
    const ns = (seconds) => Math.round(seconds * 1e9);
    const load = (low, high, cells) => {
        const seen = past.view("kind", ns(low), ns(high), cells);
        now = seen.xs;
        return [now.map((t) => t / 1e9), seen.highest];
    };
    const yAt = (band, t) => band.y[before(band.t, t)];
    const liveAt = (t) => bands.filter((b) => b.row[0] <= t && (b.row[1] === null || b.end > t));
    const words = ({ row }) => `${bytes(row[2])} (${row[4]}) by ${model.shortName(row[3])}, from ${after(row[0])} ${row[1] === null ? "and live at the end" : `to ${after(row[1])}, for ${after(row[1] - row[0])}`}`;
    const hit = (t, value) => liveAt(t).find((b) => yAt(b, t) <= value && yAt(b, t) + b.row[2] > value);
    const under = (u) => {
        const { ctx, bbox } = u, low = u.scales.x.min * 1e9, high = u.scales.x.max * 1e9;
        const x = { low, high, of: (t) => bbox.left + ((t - low) / (high - low)) * bbox.width }, y = (v) => bbox.top + bbox.height * (1 - v / u.scales.y.max);
        ctx.save();
        ctx.beginPath();
        ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
        ctx.clip();
        ctx.lineWidth = 0.5 * devicePixelRatio;
        ctx.strokeStyle = colour("panel");
        for (const band of bands) {
            if (band.row[0] > high || band.end < low || !outline(ctx, band, x, y)) continue;
            ctx.fillStyle = band === picked ? colour("pick") : paint(band);
            ctx.fill();
            if ((band.row[2] / u.scales.y.max) * bbox.height > 2.5 * devicePixelRatio) ctx.stroke();
        }
        ctx.restore();
    };
    const say = () => picked && view.say(words(picked));
    const choosing = (band) => {
        picked = band || null;
        view.plot.redraw(false);
        say();
    };
    // The next block above or below at the moment of the cursor.
    const step = (by) => {
        const t = view.time() === null ? state.at ?? device.allocated_peak_ns : ns(view.time());
        const list = liveAt(t).sort((a, b) => yAt(a, t) - yAt(b, t)), at = list.indexOf(picked);
        choosing(list[at < 0 ? (by > 0 ? 0 : list.length - 1) : Math.max(0, Math.min(list.length - 1, at + by))]);
    };
    const readout = (i) => (i === null || i === undefined || !now || i >= now.length ? "Use the pointer, or the arrow keys: left and right move in time, up and down choose a block." : `${duration(now[i] / 1e9)}: ${plural(liveAt(now[i]).length, "block")} shown`);
    const tip = (i, value) => {
        const x = view.pointerTime();
        const band = x === null ? null : hit(x, value);
        return band ? [`${bytes(band.row[2])} by ${model.shortName(band.row[3])}`, `${band.row[4]}, ${after(band.row[0])} – ${band.row[1] === null ? "end" : after(band.row[1])}, for ${after(band.end - band.row[0])}`] : null;
    };
    let own = false;
    const view = timePlot({
        label: "Lifetimes of blocks", height: 320, load, end, top: (u, high) => Math.max(high || 0, 1) * 1.06, readout, tip, under, legend: null,
        series: [{}, { paths: ledges, stroke: () => colour("ink"), width: 1.25, points: { show: false } }], draw: (u) => state.at !== null && vertical(u, state.at / 1e9, colour("accent"), [], 2),
        zoom: state.zoom && state.zoom.map((t) => Math.min(end, t / 1e9)), pick: (x, y) => (y === null ? say() : choosing(hit(ns(x), y))),
        keys: { ArrowUp: () => step(1), ArrowDown: () => step(-1) },
        moved: (low, high) => {
            own = true;
            choose({ zoom: low <= 0 && high >= end ? null : [ns(low), ns(high)] });
            own = false;
        },
    });
    const stop = watch((change) => {
        if (own) return;
        if ("zoom" in change) view.show(...(state.zoom ? state.zoom.map((t) => t / 1e9) : [0, end]));
        if ("at" in change) view.plot.redraw(false);
    });
    const all = device.lifetimes.blocks, missing = bands.length < all ? ` The ${count(bands.length)} of ${count(all)} blocks that held the most bytes times time are shown; the space up to the line is the others.` : "";
    return {
        node: section("blocks", "Lifetimes of blocks", `A band is a block, from its allocation to its free, as high as its size; its colour is that of its call site above.${missing}`, view.node,
            asTable("Show as a table", () => blocksTable(model, bands))),
        redraw: view.redraw, destroy: () => (stop(), view.destroy()),
    };
}
