// SPDX-License-Identifier: MIT
// What held the peak: a flame graph of the stacks (outermost on top), and a table of the same bytes by site and kind.
import { select } from "d3-selection";
import flamegraph from "d3-flame-graph";
import { colour } from "./colours.js";
import { el, hideTip, reduced, section, showTip, table } from "./dom.js";
import { after, bytes, count, exact, percent, plural } from "./format.js";
import { frameLabel, frameText } from "./model.js";

const ROW = 21;
const THEIRS = /^(lib(c|m|pthread|dl|stdc\+\+|cud|cublas|cudnn|nccl|torch|c10|nv)|ld-linux|\[)/;

function frameClass(frame) {
    if (frame.python) return "python";
    return THEIRS.test(frame.module || "") ? "library" : "native";
}

// Makes one tree of all parts, with the outermost frames first; frames of the same name, file and line are merged.
function tree(model, device) {
    const root = { name: `all of ${bytes(device.peak.bytes)}`, value: 0, count: 0, sort: "library", where: "the peak", byKey: new Map() };
    for (const part of device.peak.parts) {
        const frames = [...model.site(part.site).frames].reverse();
        let node = root;
        node.value += part.bytes;
        node.count += part.count;
        for (const frame of frames.length ? frames : [{ function: "[unknown]" }]) {
            const [name, where] = frameText(frame), key = `${name}\n${where}`;
            if (!node.byKey.has(key)) node.byKey.set(key, { name: frameLabel(frame), where, value: 0, count: 0, sort: frameClass(frame), byKey: new Map() });
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

function graph(model, device, status) {
    const total = device.peak.bytes || 1;
    const data = tree(model, device);
    const label = (d) => `${d.data.name}${d.data.where && !d.data.name.includes(d.data.where) ? `, ${d.data.where}` : ""}: ${bytes(d.data.value)}, ${percent(d.data.value / total)} of the peak, ${plural(d.data.count, "block")}`;
    const tip = () => tip;
    tip.show = (event, d) => showTip(event, [d.data.name, d.data.where, `${bytes(d.data.value)} · ${percent(d.data.value / total)} · ${plural(d.data.count, "block")}`]);
    tip.hide = hideTip;
    const holder = el("div", { class: "flame", tabindex: "0", role: "application", "aria-label": "Flame graph of the peak. Arrow keys move between frames, Enter zooms, Escape shows all. The table below has the same numbers." });
    let current = null, root = null;
    const chart = flamegraph().cellHeight(ROW).inverted(true).sort(false).minFrameSize(0.6).transitionDuration(reduced() ? 0 : 220).tooltip(tip)
        .setColorMapper((d) => colour(d.highlight ? "match" : `${d.data.sort}${d.data.shade}`))
        .setSearchMatch((d, term) => Boolean(term) && `${d.data.name} ${d.data.where}`.toLowerCase().includes(term))
        .setSearchHandler((found, sum) => (status.textContent = found.length ? `${plural(found.length, "frame")} found: ${bytes(sum)}, ${percent(sum / total)} of the peak` : "nothing found"))
        .setDetailsHandler(() => {})
        .onClick((d) => mark(d));
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
        if (event.key === "Enter" || event.key === " ") chart.zoomTo(current);
        else if (event.key === "Escape") chart.zoomTo(root);
        else if (keys[event.key]) {
            const next = keys[event.key]();
            if (next && next.value > 0) mark(next);
        } else return;
        event.preventDefault();
    });
    const watch = new ResizeObserver(fit);
    watch.observe(holder);
    return {
        holder, reset: () => root && chart.zoomTo(root), redraw: () => root && chart.update(),
        search: (term) => root && (term ? chart.search(term.toLowerCase()) : (chart.clear(), (status.textContent = ""))),
        destroy: () => (watch.disconnect(), hideTip(), chart.destroy()),
    };
}

function partsTable(model, device) {
    const total = device.peak.bytes || 1, parts = device.peak.parts;
    return table({
        caption: "Memory at the peak, by call site and kind", id: "peak-table", rows: parts, first: 10,
        columns: [
            { name: "Call site", value: (p) => p.site, show: (p) => model.siteCell(p.site), class: "wide" },
            { name: "Kind", value: (p) => p.kind },
            { name: "Bytes", number: true, value: (p) => p.bytes, show: (p) => bytes(p.bytes), title: (p) => exact(p.bytes), bar: (p) => p.bytes / (parts[0].bytes || 1) },
            { name: "Of the peak", number: true, value: (p) => p.bytes / total, show: (p) => percent(p.bytes / total) },
            { name: "Blocks", number: true, value: (p) => p.count, show: (p) => count(p.count) },
        ],
    });
}

// Nothing where no stack says which library asked for the memory, and in documents of older versions.
function ownersTable(device) {
    const owners = device.peak.owners || [], total = device.peak.bytes || 1;
    if (!owners.some((o) => o.owner !== "unknown")) return null;
    return table({
        caption: "Memory at the peak, by owner: the library that asked for it", id: "owner-table", rows: owners, first: 10,
        columns: [
            { name: "Owner", value: (o) => o.owner },
            { name: "Bytes", number: true, value: (o) => o.bytes, show: (o) => bytes(o.bytes), title: (o) => exact(o.bytes), bar: (o) => o.bytes / (owners[0].bytes || 1) },
            { name: "Of the peak", number: true, value: (o) => o.bytes / total, show: (o) => percent(o.bytes / total) },
            { name: "Blocks", number: true, value: (o) => o.count, show: (o) => count(o.count) },
        ],
    });
}

export function flame(model, device) {
    const peak = device.peak, step = model.step(peak.time_ns);
    const lead = peak.bytes ? `The blocks that were live at the peak: ${bytes(peak.bytes)} at ${after(peak.time_ns)}${step ? `, in ${step}` : ""}.` : "Nothing was allocated on this device.";
    const stacks = peak.parts.some((p) => model.site(p.site).frames.length > 1);
    if (!stacks) {
        const why = model.recording.stacks ? null : el("p", { class: "note" }, "This recording has no call stacks. With --stacks=all, this table names lines of the program, and this section has a flame graph.");
        return { node: section("peak", "Memory at the peak", lead, why, partsTable(model, device), ownersTable(device)), redraw() {}, destroy() {} };
    }
    const status = el("p", { class: "readout", role: "status" });
    const view = graph(model, device, status);
    const search = el("input", { type: "search", placeholder: "Find a function or file", "aria-label": "Find a function or file in the flame graph", autocomplete: "off", spellcheck: "false" });
    let waiting = 0;
    search.addEventListener("input", () => (clearTimeout(waiting), (waiting = setTimeout(() => view.search(search.value.trim()), 150))));
    const key = (name, text) => el("span", {}, el("span", { class: `swatch flame-${name}` }), text);
    const bar = el("div", { class: "tools" }, search, el("button", { type: "button", click: view.reset }, "Show all"),
        el("span", { class: "legend" }, key("python", "Python"), key("native", "native"), key("library", "libraries")));
    return { node: section("peak", "Memory at the peak", lead, bar, view.holder, status, partsTable(model, device), ownersTable(device)), redraw: view.redraw, destroy: view.destroy };
}
