// SPDX-License-Identifier: MIT
// Every colour of the page, for light and dark.  build.mjs makes the variables of the style sheet from this table, and
// canvases read it here.  Text has a contrast of at least 4.5:1, marks of 3:1.  Kinds also differ in lightness, so that
// hue is not needed to distinguish them.
export const TABLE = {
    ground: ["#f5f6f8", "#12151a"],
    panel: ["#ffffff", "#1a1e25"],
    sunken: ["#eef0f4", "#232831"],
    line: ["#d5d9e0", "#343b46"],
    strong: ["#7d8795", "#76808f"],
    ink: ["#171b21", "#e8ebf0"],
    soft: ["#545d6a", "#a6afbc"],
    accent: ["#1f56b8", "#8cb6ff"],
    onaccent: ["#ffffff", "#0d1420"],
    reserved: ["#7b3fb5", "#cda6f7"],
    band: ["#17203052", "#ffffff52"],
    bad: ["#b3261e", "#ff9a90"],
    badground: ["#fdecea", "#3a1d1c"],
    warn: ["#855400", "#f1bd62"],
    warnground: ["#fff4dc", "#352a14"],
    good: ["#186a3b", "#7fd6a0"],
    bar: ["#c3d5f3", "#2f4770"],
    live: ["#2f69bd", "#5c94e6"],
    live2: ["#4f88d6", "#447cc9"],
    idle: ["#f2d9a6", "#4c3f24"],
    idleink: ["#a36a00", "#dba545"],
    unmapped: ["#e4e7ec", "#252a33"],
    unmappedink: ["#8b94a1", "#6d7685"],
    pick: ["#c2185b", "#ff7fb0"],
    python0: ["#a9c8f5", "#2c5494"],
    python1: ["#bcd5f8", "#335fa6"],
    native0: ["#f7cf97", "#7d541c"],
    native1: ["#fadcb1", "#8a6024"],
    library0: ["#d9dde4", "#3f4753"],
    library1: ["#e4e7ec", "#49525f"],
    match: ["#f08fc0", "#a83a75"],
};

// Kinds of memory.  A kind that is not here gets a spare colour.
export const KINDS = {
    linear: ["#3f7ac6", "#4c82cf"],
    pool: ["#d8912b", "#c98a2c"],
    vmm: ["#2f9c7b", "#2f9877"],
    array: ["#b262a5", "#b76aab"],
    pitched: ["#5fb0d8", "#5ea9cf"],
    pinned: ["#9a8a1f", "#ab9c34"],
    registered: ["#9d5f41", "#ad6f52"],
    context: ["#7b8490", "#818b98"],
    module: ["#5d6570", "#a2abb8"],
    managed: ["#6a4fb8", "#a68df0"],
    graph: ["#b0543c", "#e08a73"],
    imported: ["#2b7f8f", "#5fbccd"],
    virtual: ["#6b6f76", "#b3b8c0"],
};
// Layers of a stack by call site, owner or use, the largest first; neighbours differ in lightness.
const LAYERS = [["#2f69bd", "#5c94e6"], ["#e0a030", "#c98a2c"], ["#1f8a68", "#3fb08c"], ["#d68fc4", "#8f4a80"], ["#8a4a2f", "#d08a68"], ["#7cc0e0", "#2f7590"],
    ["#6a4fb8", "#a68df0"], ["#9fb84a", "#6f8430"], ["#a3334f", "#e87a94"], ["#b9a88a", "#7d6f58"]];
const REST = ["#c3c8d0", "#4a525e"], UNKNOWN = ["#8f97a3", "#767f8c"];

export const layerColour = (index, rest, unknown) => (rest ? REST : unknown ? UNKNOWN : LAYERS[index % LAYERS.length])[isDark() ? 1 : 0];

const SPARE = [["#8b5fbf", "#a683d6"], ["#5b8c3a", "#7cb057"], ["#c0504d", "#d97a77"]];

// Asked for every bar and band: one query answers all.
let system = null;

export function isDark() {
    const chosen = document.documentElement.dataset.theme;
    system ??= matchMedia("(prefers-color-scheme: dark)");
    return chosen ? chosen === "dark" : system.matches;
}

export const colour = (name) => TABLE[name][isDark() ? 1 : 0];

export function kindColour(kind, index = 0) {
    const pair = Object.hasOwn(KINDS, kind) ? KINDS[kind] : SPARE[index % SPARE.length];
    return pair[isDark() ? 1 : 0];
}
