// SPDX-License-Identifier: MIT
// The document, with functions that all sections use: sites by number, the step at a moment, names of devices.
import { base, count, NONE, shorter } from "./format.js";
import { el } from "./dom.js";
import { History } from "./history.js";

const UNKNOWN = { site: 0, name: "[unknown]", frames: [], live_bytes: 0 };

export async function text() {
    const plain = document.getElementById("gpuprof-data");
    if (plain.type === "application/json") return plain.textContent;
    const raw = atob(plain.textContent), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

export async function load() {
    const doc = JSON.parse(await text());
    if (doc.schema === "gpuprof.ranks/1") return doc;
    if (doc.schema !== "gpuprof.report/1") throw new Error(`schema ${doc.schema}: this page reads gpuprof.report/1 and gpuprof.ranks/1`);
    return new Model(doc);
}

export const isHost = (device) => device === "host" || device === -1;
export const deviceWord = (device) => (isHost(device) ? "host" : `GPU ${device}`);

class Model {
    constructor(doc) {
        Object.assign(this, doc);
        this.endNs = Math.max(1, Math.round((doc.recording.seconds || 0) * 1e9));
        this.bySite = new Map(doc.sites.map((site) => [site.site, site]));
        this.histories = new Map();
        this.unsummed = new Set(doc.unsummed_kinds);
        this.kinds = [...new Set(doc.devices.flatMap((d) => Object.keys(d.series.kinds)))];
    }

    // What was live when, on this device.
    history(device) {
        if (!this.histories.has(device)) this.histories.set(device, new History(this, device));
        return this.histories.get(device);
    }

    stretch(device) {
        return device.moments ? device.moments.stretch_ns : null;
    }

    site(id) {
        return this.bySite.get(id) || UNKNOWN;
    }

    siteName(id) {
        return id < 0 ? "all other call sites" : this.site(id).name || "[unknown]";
    }

    // For headlines: leaves out the folders of a path.
    shortName(id) {
        return shorter(this.siteName(id));
    }

    // "step", or "repeat" where what was found may be a part of one.
    stepWord() {
        return this.steps.word === "repeat" ? "repeat" : "step";
    }

    // "step 14 of 20": the step at a moment; "" before the first and after the last.
    step(ns) {
        const { bounds_ns: bounds, count: steps, source } = this.steps;
        if (source === "time" || !steps || ns < bounds[0] || ns > bounds[steps]) return "";
        let low = 0, high = steps;
        while (high - low > 1) {
            const middle = (low + high) >> 1;
            if (bounds[middle] <= ns) low = middle;
            else high = middle;
        }
        return `${this.stepWord()} ${count(low + 1)} of ${count(steps)}`;
    }

    // Parts of a moment as a reader takes them: several blocks of one operation below one line are one row.
    rows(parts) {
        const rows = new Map();
        for (const part of parts) {
            const site = part.site < 0 ? {} : this.site(part.site), key = `${site.row ?? part.site} ${part.kind} ${site.owner} ${site.use_text}`, row = rows.get(key);
            if (row) Object.assign(row, { bytes: row.bytes + part.bytes, count: row.count + part.count });
            else rows.set(key, { ...part });
        }
        return [...rows.values()].sort((a, b) => b.bytes - a.bytes);
    }

    // What the memory of a site is for; null where that is not known.
    use(id) {
        return id < 0 ? null : this.site(id).use_text || null;
    }

    // The same, else its kind.
    what(id, kind) {
        return this.use(id) || kind;
    }

    // The frames of a site, innermost first: "all" of them, the "user"'s own, or these and the framework's "operation";
    // without one, those that are not of an interpreter or a start.
    frames(id, which) {
        const { frames, operation } = this.site(id);
        if (which === "all" || !frames) return frames || [];
        const own = frames.filter((f) => f.role === "user" || f.role === "wrapper"), told = frames.filter((f) => !f.folded);
        if (!operation) return which === "user" && own.length ? own : told.length ? told : frames;
        return which === "user" && own.length ? own : [{ function: operation, operation: true }, ...own];
    }

    // A site in a table: its name; opening it shows its stack.
    siteCell(id, name = this.siteName(id)) {
        const site = this.site(id);
        const shown = site.operation && name.endsWith(`  ${site.operation}`) ? [...placed(name.slice(0, -site.operation.length - 2)), " ", el("span", { class: "operation" }, site.operation)] : placed(name);
        if (!site.frames || site.frames.length < 2) return el("span", { class: "site" }, shown);
        const box = el("details", { class: "site" }, el("summary", {}, shown));
        box.addEventListener("toggle", () => box.open && box.childElementCount === 1 && box.append(stack(site)));
        return box;
    }
}

// The function is large and the path small: the eye looks for the function.
function placed(name) {
    const parts = name.match(/^(.*?) (\([^()]*\))(.*)$/s);
    return parts ? [parts[1], " ", el("span", { class: "where" }, parts[2]), parts[3]] : [name];
}

export function frameText(frame) {
    const where = frame.file ? `${frame.file}${frame.line ? `:${frame.line}` : ""}` : frame.module;
    return [frame.function || "[unknown]", where || ""];
}

export function frameLabel(frame) {
    const place = frame.file ? `${base(frame.file)}${frame.line ? `:${frame.line}` : ""}` : frame.module;
    return place ? `${frame.function} (${place})` : frame.function || NONE;
}

export function stack(site) {
    return el("ol", { class: "stack", "aria-label": "Call stack, innermost first" }, site.frames.map((frame) => {
        const [name, where] = frameText(frame);
        return el("li", { class: frame.folded && "folded" }, el("span", { class: "function" }, name), frame.inlined && el("span", { class: "tag" }, "inlined"), el("span", { class: "where" }, where));
    }));
}
