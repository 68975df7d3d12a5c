// SPDX-License-Identifier: MIT
// What the reader chose: device, stacking, zoom, moment, range, frame, which frames, which of them is on top.  It is in the fragment of the address, so that a
// link shows the same view; a fragment without "=" is the id of a section.
export const state = { device: null, stack: null, zoom: null, range: null, at: null, frame: null, frames: null, order: null };

const watchers = new Set();
let timer = 0, written = "";

const seconds = (ns) => String(+(ns / 1e9).toFixed(9));
const span = (pair) => `${seconds(pair[0])}-${seconds(pair[1])}`;
const ns = (text) => (/^\d+(\.\d+)?$/.test(text) ? Math.round(Number(text) * 1e9) : null);
function pair(text) {
    const both = text.split("-").map(ns);
    return both.length === 2 && both.every((v) => v !== null) && both[1] > both[0] ? both : null;
}

function fragment() {
    const words = [["device", state.device], ["stack", state.stack], ["zoom", state.zoom && span(state.zoom)], ["range", state.range && span(state.range)],
        ["at", state.at === null ? null : seconds(state.at)], ["frame", state.frame], ["frames", state.frames], ["order", state.order]];
    return words.filter((w) => w[1] !== null && w[1] !== undefined).map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
}

// Browsers slow down pages that change their address more than a few times per second.
function write() {
    timer = 0;
    written = fragment();
    try {
        history.replaceState(null, "", `#${written}`);
    } catch {
        // Where a page may not change its address, a link shows the first view.
    }
}

// Changes some of it, and tells those who watch.
export function choose(change) {
    Object.assign(state, change);
    if (!timer) timer = setTimeout(write, 250);
    watchers.forEach((watch) => watch(change));
}

export function watch(f) {
    watchers.add(f);
    return () => watchers.delete(f);
}

// Takes the state from the address; returns the id of a section to go to, or "".
export function read() {
    const text = location.hash.slice(1);
    if (!text.includes("=")) return text;
    const words = new Map(text.split("&").map((w) => [w.split("=")[0], w.slice(w.indexOf("=") + 1)]));
    const get = (name) => {
        try {
            return words.has(name) ? decodeURIComponent(words.get(name)) : null;
        } catch {
            return null;
        }
    };
    const some = (name, f) => (get(name) === null ? null : f(get(name)));
    Object.assign(state, { device: get("device"), stack: get("stack"), zoom: some("zoom", pair), range: some("range", pair), at: some("at", ns), frame: get("frame"), frames: get("frames"), order: get("order") });
    return "";
}

// Calls back when the user edits the address or follows a link of the page.
export const follow = (f) => addEventListener("hashchange", () => location.hash.slice(1) !== written && f());
