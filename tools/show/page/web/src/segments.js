// SPDX-License-Identifier: MIT
// The segment map: all segments and their blocks to scale, in rows like words in a text; below it the chosen segment
// alone.  Each of the two is one canvas, because there may be 20 000 blocks.
import { colour } from "./colours.js";
import { asTable, el, hideTip, section, showTip, table } from "./dom.js";
import { bytes, count, exact, percent, plural } from "./format.js";

const HIGH = 17, GAP = 4, LEAST = 3;

function hatch(ctx, ground, ink, dots) {
    const ratio = devicePixelRatio || 1, tile = document.createElement("canvas"), size = Math.round(6 * ratio);
    tile.width = tile.height = size;
    const c = tile.getContext("2d");
    c.fillStyle = ground;
    c.fillRect(0, 0, size, size);
    c.strokeStyle = c.fillStyle = ink;
    c.lineWidth = ratio;
    if (dots) c.fillRect(size / 2, size / 2, ratio * 1.3, ratio * 1.3);
    else {
        c.beginPath();
        for (const at of [-size, 0, size]) {
            c.moveTo(at, size);
            c.lineTo(at + size, 0);
        }
        c.stroke();
    }
    return ctx.createPattern(tile, "repeat");
}

// Computes the places of all segments in rows of this width; a segment that does not fit continues in the next row.
function layout(segments, width, rows) {
    const total = segments.reduce((sum, s) => sum + s.bytes, 0) || 1;
    const room = Math.max(width, rows * width - segments.length * (LEAST + 2));
    const scale = room / total, pieces = [];
    let x = 0, row = 0;
    segments.forEach((segment, index) => {
        let left = Math.max(LEAST, segment.bytes * scale), done = 0;
        const whole = left;
        while (left > 0.01) {
            if (width - x < LEAST && x > 0) (x = 0), row++;
            const part = Math.min(left, width - x);
            pieces.push({ index, row, x, width: part, from: (done / whole) * segment.bytes, to: ((done + part) / whole) * segment.bytes });
            done += part;
            left -= part;
            x += part;
        }
        x += 2;
    });
    return { pieces, rows: row + 1 };
}

function painter(ctx) {
    const live = [colour("live"), colour("live2")], idle = hatch(ctx, colour("idle"), colour("idleink")), gone = hatch(ctx, colour("unmapped"), colour("unmappedink"), true);
    const picked = colour("pick");
    return (block, chosen, n) => (block[2] === "idle" ? idle : block[2] === "unmapped" ? gone : chosen && block[3] === chosen ? picked : live[n % 2]);
}

// Draws the stretch [from, to) of a segment into a box.
function drawBlocks(ctx, segment, from, to, x, y, width, height, paint, chosen) {
    const scale = width / (to - from || 1);
    ctx.fillStyle = colour("sunken");
    ctx.fillRect(x, y, width, height);
    let n = segment.index;
    segment.blocks.forEach((block) => {
        if (block[2] === "live") n++;
        const start = Math.max(from, block[0]), end = Math.min(to, block[0] + block[1]);
        if (end <= start) return;
        ctx.fillStyle = paint(block, chosen, n);
        ctx.fillRect(x + (start - from) * scale, y, Math.max(0.4, (end - start) * scale), height);
    });
}

function prepare(canvas, width, height) {
    const ratio = devicePixelRatio || 1, ctx = canvas.getContext("2d");
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    return ctx;
}

const ORDERS = {
    address: ["by address", (a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0)],
    idle: ["the most idle first", (a, b) => b.idle - a.idle],
    size: ["the largest first", (a, b) => b.bytes - a.bytes],
};

function sums(segment, index) {
    const of = (state) => segment.blocks.reduce((sum, b) => sum + (b[2] === state ? b[1] : 0), 0);
    return { ...segment, index, at: address(segment.address), live: of("live"), idle: of("idle"), unmapped: of("unmapped") };
}

function address(text) {
    try {
        return BigInt(text);
    } catch {
        return 0n;
    }
}

function map(model, device, status) {
    let segments = device.segments.map(sums), at = 0, block = -1, placed = { pieces: [], rows: 1 }, width = 0;
    segments.sort(ORDERS.address[1]);
    // No block is chosen yet.  Show the segment with the most idle memory alone.
    at = segments.reduce((best, s, i) => (s.idle > segments[best].idle ? i : best), 0);
    const rows = Math.max(2, Math.min(26, Math.ceil(Math.sqrt(segments.length) * 1.6)));
    const all = el("canvas", { "aria-hidden": "true" }), one = el("canvas", { class: "one", "aria-hidden": "true" });
    const title = el("p", { class: "onetitle" });
    const holder = el("div", { class: "map", tabindex: "0", role: "application", "aria-label": "Segment map. Left and right move between blocks, up and down between segments; the line below describes the block." }, all);
    const said = (s, b) => {
        if (!b) return [`segment ${s.address}`, `${bytes(s.bytes)}, no blocks`];
        const where = `${bytes(b[1])} at 0x${(s.at + BigInt(b[0])).toString(16)}`;
        return [b[2] === "live" ? model.siteName(b[3]) : b[2] === "idle" ? "idle: kept by the cache, not in use" : "unmapped: addresses without memory", b[2] === "live" ? `live, ${where}` : where, `in a segment of ${bytes(s.bytes)} (${s.kind}${s.cached ? ", cached" : ""}), ${percent(s.live / (s.bytes || 1))} live`];
    };
    function draw() {
        if (width <= 0 || !segments.length) return;
        const ctx = prepare(all, width, placed.rows * (HIGH + GAP));
        const paint = painter(ctx), segment = segments[at], chosen = segment.blocks[block] && segment.blocks[block][2] === "live" ? segment.blocks[block][3] : 0;
        for (const p of placed.pieces) drawBlocks(ctx, segments[p.index], p.from, p.to, p.x, p.row * (HIGH + GAP) + 2, p.width, HIGH, paint, chosen);
        ctx.strokeStyle = colour("ink");
        ctx.lineWidth = 2;
        for (const p of placed.pieces) if (p.index === at) ctx.strokeRect(p.x + 0.5, p.row * (HIGH + GAP) + 1.5, Math.max(2, p.width - 1), HIGH + 1);
        const own = prepare(one, width, 34);
        drawBlocks(own, segment, 0, segment.bytes, 0, 4, width, 26, painter(own), chosen);
        const b = segment.blocks[block];
        if (b) {
            own.strokeStyle = colour("ink");
            own.lineWidth = 2;
            own.strokeRect((b[0] / segment.bytes) * width + 1, 3, Math.max(2, (b[1] / segment.bytes) * width - 2), 28);
        }
        title.textContent = `Segment ${segment.address}: ${bytes(segment.bytes)}, ${plural(segment.blocks.length, "block")}, ${bytes(segment.live)} live, ${bytes(segment.idle)} idle${segment.unmapped ? `, ${bytes(segment.unmapped)} unmapped` : ""}`;
    }
    function choose(nextSegment, nextBlock) {
        at = Math.max(0, Math.min(segments.length - 1, nextSegment));
        block = Math.max(0, Math.min(segments[at].blocks.length - 1, nextBlock));
        status.textContent = said(segments[at], segments[at].blocks[block]).join("; ");
        draw();
    }
    const blockAt = (segment, offset) => segment.blocks.findIndex((b) => offset >= b[0] && offset < b[0] + b[1]);
    function hit(event) {
        const box = all.getBoundingClientRect(), x = event.clientX - box.left, row = Math.floor((event.clientY - box.top) / (HIGH + GAP));
        const p = placed.pieces.find((it) => it.row === row && x >= it.x && x <= it.x + it.width);
        return p && { segment: p.index, block: blockAt(segments[p.index], p.from + ((x - p.x) / p.width) * (p.to - p.from)) };
    }
    const hitOne = (event) => {
        const box = one.getBoundingClientRect();
        return { segment: at, block: blockAt(segments[at], ((event.clientX - box.left) / box.width) * segments[at].bytes) };
    };
    const pointer = (find) => ({
        pointermove: (e) => {
            const it = find(e);
            if (it) showTip(e, said(segments[it.segment], segments[it.segment].blocks[it.block]));
            else hideTip();
        },
        pointerleave: hideTip,
        click: (e) => {
            const it = find(e);
            if (it) choose(it.segment, Math.max(0, it.block));
        },
    });
    for (const [canvas, find] of [[all, hit], [one, hitOne]]) for (const [name, act] of Object.entries(pointer(find))) canvas.addEventListener(name, act);
    const step = (by) => {
        const inside = block + by;
        if (inside < 0 && at > 0) choose(at - 1, Infinity);
        else if (inside >= segments[at].blocks.length && at < segments.length - 1) choose(at + 1, 0);
        else choose(at, inside);
    };
    const keys = { ArrowLeft: () => step(-1), ArrowRight: () => step(1), ArrowUp: () => choose(at - 1, 0), ArrowDown: () => choose(at + 1, 0), Home: () => choose(0, 0), End: () => choose(segments.length - 1, 0) };
    holder.addEventListener("keydown", (event) => {
        if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        keys[event.key]();
    });
    function fit() {
        const next = Math.floor(holder.clientWidth);
        if (next <= 0 || next === width) return;
        width = next;
        placed = layout(segments, width, rows);
        draw();
    }
    const watch = new ResizeObserver(fit);
    watch.observe(holder);
    const order = el("select", { "aria-label": "Order of the segments", change: () => {
        const kept = segments[at];
        segments = [...segments].sort(ORDERS[order.value][1]);
        placed = layout(segments, width, rows);
        choose(segments.indexOf(kept), block);
    } }, Object.entries(ORDERS).map(([value, [name]]) => el("option", { value }, name)));
    return { nodes: [holder, title, one], order, draw, destroy: () => (watch.disconnect(), hideTip()) };
}

function blocksTable(model, device) {
    const rows = device.segments.flatMap((s) => s.blocks.map((b) => [s, b]));
    return table({
        caption: "Blocks of all segments", id: "segments-table", rows,
        columns: [
            { name: "Segment", value: (r) => r[0].address, class: "mono" },
            { name: "Offset", number: true, value: (r) => r[1][0], show: (r) => count(r[1][0]) },
            { name: "Bytes", number: true, value: (r) => r[1][1], show: (r) => bytes(r[1][1]), title: (r) => exact(r[1][1]) },
            { name: "State", value: (r) => r[1][2] },
            { name: "Call site", value: (r) => r[1][3], show: (r) => (r[1][2] === "live" ? model.siteName(r[1][3]) : "–"), class: "wide" },
        ],
    });
}

export function segments(model, device) {
    const title = "Segment map";
    if (!device.segments || !device.segments.length)
        return { empty: "No segments are known for this device: it held no memory at the end, or the recording has no segments of a cache.", redraw() {}, destroy() {} };
    const status = el("p", { class: "readout", role: "status" });
    const view = map(model, device, status);
    const out = (name) => device[name] ?? model[name] ?? 0;
    const left = [[out("segments_left_out"), "segment"], [out("blocks_left_out"), "block"]].filter((l) => l[0] > 0).map((l) => plural(l[0], l[1]));
    const key = (state, text) => el("span", {}, el("span", { class: `swatch map-${state}` }), text);
    const bar = el("div", { class: "tools" }, el("label", {}, "Segments ", view.order), el("span", { class: "legend" }, key("live", "live"), key("idle", "idle, kept by the cache"), key("unmapped", "unmapped"), key("pick", "same call site as the chosen block")));
    return {
        node: section("segments", title, "Device memory at the end of the recording, to scale. Hatched holes between live blocks are fragmentation.",
            bar, ...view.nodes, status, left.length > 0 && el("p", { class: "note" }, `Not shown, because the report has limits: ${left.join(" and ")}.`),
            asTable("Show as a table", () => blocksTable(model, device))),
        redraw: view.draw, destroy: view.destroy,
    };
}
