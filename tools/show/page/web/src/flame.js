// SPDX-License-Identifier: MIT
// What held the peak: a flame graph of the stacks (outermost on top, or innermost), and a table of the same bytes by site and kind.
import { select } from "d3-selection";
import flamegraph from "d3-flame-graph";
import { colour } from "./colours.js";
import { el, hideTip, reduced, section, showTip, table } from "./dom.js";
import { after, bytes, count, exact, percent, plural } from "./format.js";
import { frameLabel, frameText } from "./model.js";
import { choose, state, watch } from "./state.js";

const ROW = 21;
const THEIRS = /^(lib(c|m|pthread|dl|stdc\+\+|cud|cublas|cudnn|nccl|torch|c10|nv)|ld-linux|\[)/;

const ORDERS = [["callers", "callers on top"], ["inner", "allocating line on top"]];
const FRAMES = [["operation", "your code and operations"], ["user", "your code"], ["all", "everything"]];

function frameClass(frame) {
    if (frame.operation) return "library";
    if (frame.python) return "python";
    return THEIRS.test(frame.module || "") ? "library" : "native";
}

// Makes one tree of all parts, with the outermost frames first, or the innermost; frames of the same name, file and line are merged.
function tree(model, moment) {
    const root = { name: `all of ${bytes(moment.bytes)}`, value: 0, count: 0, sort: "library", where: "this moment", byKey: new Map() };
    for (const part of moment.parts) {
        const frames = [...model.frames(part.site, state.frames || "operation")];
        if (state.order !== "inner") frames.reverse();
        let node = root;
        node.value += part.bytes;
        node.count += part.count;
        for (const frame of frames.length ? frames : [{ function: part.site < 0 ? "all other call sites" : "[unknown]" }]) {
            const [name, where] = frameText(frame), key = `${name}\n${where}`;
            if (!node.byKey.has(key)) node.byKey.set(key, { name: frameLabel(frame), where, value: 0, count: 0, sort: frameClass(frame), folded: frame.folded, byKey: new Map() });
            node = node.byKey.get(key);
            node.value += part.bytes;
            node.count += part.count;
        }
    }
    const close = (node, depth) => {
        // Alternating shades separate neighbours, which have no border.
        node.children = [...node.byKey.values()].sort((a, b) => b.value - a.value);
        delete node.byKey;
        node.children.forEach((child, i) => ((child.shade = (depth + i) % 2), close(child, depth + 1)));
        return node;
    };
    root.shade = 0;
    return close(root, 1);
}

// A frame in the address: a number made of the names on its path.
function mark32(d) {
    let hash = 5381;
    for (let at = d; at; at = at.parent) for (const c of `${at.data.name}\n`) hash = (Math.imul(hash, 33) ^ c.codePointAt(0)) >>> 0;
    return hash.toString(16);
}

function graph(model, moment, status) {
    const total = moment.bytes || 1;
    const data = tree(model, moment);
    const label = (d) => `${d.data.name}${d.data.where && !d.data.name.includes(d.data.where) ? `, ${d.data.where}` : ""}: ${bytes(d.data.value)}, ${percent(d.data.value / total)} of it, ${plural(d.data.count, "block")}`;
    const tip = () => tip;
    tip.show = (event, d) => showTip(event, [d.data.name, d.data.where, `${bytes(d.data.value)} · ${percent(d.data.value / total)} · ${plural(d.data.count, "block")}`]);
    tip.hide = hideTip;
    const holder = el("div", { class: "flame", tabindex: "0", role: "application", "aria-label": "Flame graph of the live memory. Arrow keys move between frames, Enter zooms, Escape shows all. The table below has the same numbers." });
    let current = null, root = null;
    const chart = flamegraph().cellHeight(ROW).inverted(true).sort(false).minFrameSize(0.6).transitionDuration(reduced() ? 0 : 220).tooltip(tip)
        .setColorMapper((d) => colour(d.highlight ? "match" : `${d.data.folded ? "library" : d.data.sort}${d.data.shade}`))
        .setSearchMatch((d, term) => Boolean(term) && `${d.data.name} ${d.data.where}`.toLowerCase().includes(term))
        .setSearchHandler((found, sum) => (status.textContent = found.length ? `${plural(found.length, "frame")} found: ${bytes(sum)}, ${percent(sum / total)}` : "nothing found"))
        .setDetailsHandler(() => {})
        .onClick((d) => (mark(d), choose({ frame: d.parent ? mark32(d) : null })));
    function mark(d) {
        current = d;
        select(holder).selectAll("g.frame").classed("current", (node) => node === d);
        status.textContent = label(d);
    }
    function fit() {
        const width = Math.floor(holder.clientWidth);
        if (width <= 0) return;
        chart.width(width);
        if (!root) {
            select(holder).datum(data).call(chart);
            root = current = select(holder).datum();
            holder.querySelector("svg").setAttribute("aria-hidden", "true");
            const named = state.frame && root.descendants().find((d) => mark32(d) === state.frame);
            if (named) (mark(named), chart.zoomTo(named));
        } else chart.update();
        holder.querySelector("svg").setAttribute("height", (root.height + 1) * ROW + 2);
    }
    const beside = (d, by) => (d.parent ? d.parent.children[d.parent.children.indexOf(d) + by] : null);
    const keys = {
        ArrowDown: () => current.children && current.children[0], ArrowUp: () => current.parent,
        ArrowLeft: () => beside(current, -1), ArrowRight: () => beside(current, 1), Home: () => root,
    };
    holder.addEventListener("keydown", (event) => {
        if (!root || event.ctrlKey || event.metaKey || event.altKey) return;
        if (event.key === "Enter" || event.key === " ") (chart.zoomTo(current), choose({ frame: current.parent ? mark32(current) : null }));
        else if (event.key === "Escape") (chart.zoomTo(root), choose({ frame: null }));
        else if (keys[event.key]) {
            const next = keys[event.key]();
            if (next && next.value > 0) mark(next);
        } else return;
        event.preventDefault();
    });
    const watch = new ResizeObserver(fit);
    watch.observe(holder);
    return {
        holder, reset: () => root && (chart.zoomTo(root), choose({ frame: null })), redraw: () => root && chart.update(),
        search: (term) => root && (term ? chart.search(term.toLowerCase()) : (chart.clear(), (status.textContent = ""))),
        destroy: () => (watch.disconnect(), hideTip(), chart.destroy()),
    };
}

function partsTable(model, moment) {
    const total = moment.bytes || 1, parts = model.rows(moment.parts);
    const use = (p) => model.use(p.site), known = parts.some(use);
    return table({
        caption: "Live memory, by call site", id: "peak-table", rows: parts, first: 10,
        columns: [
            { name: "Call site", value: (p) => p.site, show: (p) => model.siteCell(p.site), csv: (p) => model.siteName(p.site), class: "wide" },
            known ? { name: "For", value: (p) => use(p) || "unknown" } : { name: "Kind", value: (p) => p.kind },
            { name: "Bytes", number: true, value: (p) => p.bytes, show: (p) => bytes(p.bytes), title: (p) => exact(p.bytes), bar: (p) => p.bytes / (parts[0].bytes || 1) },
            { name: "Share", number: true, value: (p) => p.bytes / total, show: (p) => percent(p.bytes / total) },
            { name: "Blocks", number: true, value: (p) => p.count, show: (p) => count(p.count) },
        ],
    });
}

// Nothing where no stack says which library asked for the memory, and in documents of older versions.
function ownersTable(moment) {
    const owners = moment.owners || [], total = moment.bytes || 1;
    if (!owners.some((o) => o.owner !== "unknown")) return null;
    return table({
        caption: "Live memory, by owner: the library that asked for it", id: "owner-table", rows: owners, first: 10,
        columns: [
            { name: "Owner", value: (o) => o.owner },
            { name: "Bytes", number: true, value: (o) => o.bytes, show: (o) => bytes(o.bytes), title: (o) => exact(o.bytes), bar: (o) => o.bytes / (owners[0].bytes || 1) },
            { name: "Share", number: true, value: (o) => o.bytes / total, show: (o) => percent(o.bytes / total) },
            { name: "Blocks", number: true, value: (o) => o.count, show: (o) => count(o.count) },
        ],
    });
}

// Says which moment it is, and how well the document knows it.
function words(model, past, moment) {
    const step = model.step(moment.time_ns), when = `${after(moment.time_ns)}${step ? `, in ${step}` : ""}`;
    if (!moment.bytes) return moment.why === "peak" ? "Nothing was allocated on this device." : `Nothing was allocated at ${when}.`;
    const held = `The blocks that were live at ${when}: ${bytes(moment.bytes)}`;
    if (moment.why === "peak") return `The blocks that were live at the peak: ${bytes(moment.bytes)} at ${when}. Choose another moment or a range in the plot above.`;
    if (moment.why === "range") return `${held}. This is the highest moment from ${after(moment.range[0])} to ${after(moment.range[1])}.`;
    return `${held}.${past.exact ? "" : ` The document has two moments of each ${after(model.stretch(past.device))}; this is the state since ${after(moment.since_ns)}.`}`;
}

function contents(model, past, moment) {
    const lead = el("p", { class: "lead" }, words(model, past, moment));
    const clear = moment.why !== "peak" && el("p", { class: "tools" }, el("button", { type: "button", class: "wholepeak", click: () => choose({ at: null, range: null, zoom: null }) }, "Show the peak of the whole recording"));
    const nothing = { search() {}, redraw() {}, destroy() {} };
    const stacks = moment.parts.some((p) => model.site(p.site).frames.length > 1);
    if (!stacks) {
        const why = model.recording.stacks ? null : el("p", { class: "note" }, "This recording has no call stacks. With --stacks=all, this table names lines of the program, and this section has a flame graph.");
        return { ...nothing, nodes: [lead, clear, why, partsTable(model, moment), ownersTable(moment)] };
    }
    const status = el("p", { class: "readout", role: "status" });
    const view = graph(model, moment, status);
    const search = el("input", { type: "search", placeholder: "Find a function or file", "aria-label": "Find a function or file in the flame graph", autocomplete: "off", spellcheck: "false" });
    let waiting = 0;
    search.addEventListener("input", () => (clearTimeout(waiting), (waiting = setTimeout(() => view.search(search.value.trim()), 150))));
    const key = (name, text) => el("span", {}, el("span", { class: `swatch flame-${name}` }), text);
    const sites = moment.parts.map((p) => model.site(p.site)), operations = sites.some((s) => s.operation);
    const folds = operations || sites.some((s) => (s.frames || []).some((f) => f.folded));
    const chooser = folds && el("select", { id: "frames", "aria-label": "Frames of the flame graph", change: (e) => choose({ frames: e.target.selectedIndex ? FRAMES[e.target.selectedIndex][0] : null, frame: null }) },
        FRAMES.map(([id, name]) => el("option", { selected: (state.frames || "operation") === id }, id === "operation" && !operations ? "your code and libraries" : name)));
    const order = el("select", { id: "order", "aria-label": "Order of the flame graph", change: (e) => choose({ order: e.target.selectedIndex ? "inner" : null, frame: null }) },
        ORDERS.map(([id, name]) => el("option", { selected: (state.order || "callers") === id }, name)));
    const bar = el("div", { class: "tools" }, search, chooser, order, el("button", { type: "button", click: view.reset }, "Show all"),
        el("span", { class: "legend" }, key("python", "Python"), key("native", "native"), key("library", "libraries")));
    return { nodes: [lead, clear, bar, view.holder, status, partsTable(model, moment), ownersTable(moment)], redraw: view.redraw, destroy: view.destroy };
}

export function flame(model, device) {
    const past = model.history(device), box = el("div");
    let inner = null, shown = null, timer = 0;
    function make() {
        timer = 0;
        const moment = past.moment({ at: state.at, range: state.range || state.zoom });
        const key = [moment.why, moment.time_ns, moment.bytes, moment.range, state.frames, state.order].join();
        if (key === shown) return;
        shown = key;
        if (inner) inner.destroy();
        inner = contents(model, past, moment);
        box.replaceChildren(...inner.nodes.filter(Boolean));
    }
    // A zoom by several keys or wheels makes the section once.
    const stop = watch((change) => ("at" in change || "range" in change || "zoom" in change || "frames" in change || "order" in change) && !timer && (timer = setTimeout(make, 120)));
    make();
    return { node: section("peak", "What held the memory", null, box), redraw: () => inner.redraw(), destroy: () => (stop(), clearTimeout(timer), inner.destroy()) };
}
