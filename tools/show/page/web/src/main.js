// SPDX-License-Identifier: MIT
// Loads the document and makes the sections of the page for the chosen device.
import { isDark } from "./colours.js";
import { blocks } from "./blocks.js";
import { el, save } from "./dom.js";
import { fragments } from "./fragments.js";
import { flame } from "./flame.js";
import { helps } from "./helps.js";
import { leaks } from "./leaks.js";
import { about, bill, churn, sizes } from "./lists.js";
import { deviceWord, load, text } from "./model.js";
import { overview } from "./overview.js";
import { ranksPage } from "./ranks.js";
import { segments } from "./segments.js";
import { sleep } from "./sleep.js";
import * as address from "./state.js";
import { timeline } from "./timeline.js";

// The sections in their order on the page; a function that returns null has none to show.
const VIEWS = [["timeline", "Over time", timeline], ["peak", "Peak", flame], ["growth", "Growth", leaks], ["helps", "What helps", helps], ["sleep", "Sleep", sleep], ["blocks", "Blocks", blocks], ["fragmentation", "Fragmentation", fragments], ["segments", "Segments", segments],
    ["sizes", "Sizes", sizes], ["churn", "Short-lived", churn], ["bill", "Process", bill], ["about", "About", about]];
const OF_ALL = new Set(["growth", "churn", "about"]);

const main = document.getElementById("report");
let live = [];

function remembered(choice) {
    try {
        if (choice) localStorage.setItem("gpuprof-theme", choice);
    } catch {
        // Some browsers forbid storage for files.  The choice is then lost when the page is closed.
    }
}

function themeButton(redraw) {
    const button = document.getElementById("theme");
    const say = () => {
        button.textContent = isDark() ? "Light" : "Dark";
        button.setAttribute("aria-label", `Change to ${isDark() ? "light" : "dark"} colours`);
    };
    button.addEventListener("click", () => {
        document.documentElement.dataset.theme = isDark() ? "light" : "dark";
        remembered(document.documentElement.dataset.theme);
        say();
        redraw();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (say(), redraw()));
    say();
}

// Paper is white: draw the canvases in light colours for printing, and in the old ones afterwards.
function printing(redraw) {
    let before;
    addEventListener("beforeprint", () => {
        before = document.documentElement.dataset.theme;
        document.documentElement.dataset.theme = "light";
        redraw();
    });
    addEventListener("afterprint", () => {
        if (before) document.documentElement.dataset.theme = before;
        else delete document.documentElement.dataset.theme;
        redraw();
    });
}

// Where a link of the page goes; the address keeps what the reader chose, so a link does not change it.
function goTo(id) {
    const target = document.getElementById(id);
    if (!target) return;
    for (let box = target.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
    target.scrollIntoView();
    const head = target.querySelector("h2");
    if (head) head.focus({ preventScroll: true });
}

// The whole document, as a file.
function downloadButton() {
    const button = el("button", { type: "button", id: "download", title: "Save the data of this page as JSON" }, "JSON");
    button.addEventListener("click", async () => save("gpuprof-report.json", "application/json", await text()));
    document.getElementById("theme").before(button);
}

document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (!link || link.classList.contains("skip") || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    goTo(link.getAttribute("href").slice(1));
});

function navigation(model, device, views, choose) {
    const list = el("ul", {}, views.filter((v) => !v.empty).map(({ id, name }) => el("li", {}, el("a", { href: `#${id}` }, name))));
    const chooser = model.devices.length > 1 && el("select", { id: "device", "aria-label": "Device", change: (e) => choose(model.devices[e.target.selectedIndex]) },
        model.devices.map((d) => el("option", { selected: d === device }, deviceWord(d.device))));
    document.getElementById("nav").replaceChildren(list, chooser || "");
}

// Sections without contents take one line together; opening it says why each is empty.
function folded(views) {
    const empty = views.filter((v) => v.empty);
    return empty.length ? el("details", { class: "empty" }, el("summary", {}, `Nothing in: ${empty.map((v) => v.name.toLowerCase()).join(", ")}`),
        el("ul", {}, empty.map((v) => el("li", { id: v.id }, el("strong", {}, v.name), " ", v.empty)))) : "";
}

function show(model, device) {
    const focus = document.activeElement && document.activeElement.closest("#devices, #device") ? document.activeElement.id : null;
    const scroll = window.scrollY;
    live.forEach((view) => view.destroy());
    const choose = (next) => {
        address.choose({ device: String(next.device), frame: null });
        show(model, next);
    };
    live = VIEWS.filter(([id]) => device || OF_ALL.has(id)).map(([id, name, make]) => [make(model, device), id, name]).filter(([view]) => view).map(([view, id, name]) => ({ ...view, id, name }));
    // To the last moment before a failure: what held the memory when the request came.
    const jump = (oom) => {
        const there = model.devices.find((d) => d.device === oom.device) || device;
        address.choose({ at: oom.time_ns, range: null, zoom: null, device: there === device ? address.state.device : String(there.device) });
        if (there !== device) show(model, there);
        goTo("timeline");
    };
    navigation(model, device, live, choose);
    main.replaceChildren(overview(model, device, choose, jump), ...live.filter((v) => !v.empty).map((view) => view.node), folded(live));
    if (focus !== null) {
        const target = focus ? document.getElementById(focus) : main.querySelector("button.device[aria-pressed=true]");
        if (target) target.focus({ preventScroll: true });
        window.scrollTo({ top: scroll });
    }
}

// The device to show first: one that ran out of memory, else the one that was fullest at its peak.
function first(model) {
    const named = model.devices.find((d) => String(d.device) === address.state.device);
    if (named) return named;
    const failed = model.devices.find((d) => model.ooms.some((o) => o.device === d.device));
    const full = (d) => (d.total_bytes > 0 ? d.allocated_peak_bytes / d.total_bytes : 0);
    return failed || [...model.devices].sort((a, b) => full(b) - full(a) || b.allocated_peak_bytes - a.allocated_peak_bytes)[0];
}

load().then((model) => {
    if (model.schema === "gpuprof.ranks/1") {
        const page = ranksPage(model, main);
        downloadButton();
        themeButton(page.redraw);
        printing(page.redraw);
        if (location.hash.length > 1 && !location.hash.includes("=")) goTo(location.hash.slice(1));
        document.documentElement.dataset.ready = "1";
        return;
    }
    const name = model.recording.comm || "program";
    document.title = `${name}: GPU memory (gpuprof)`;
    document.getElementById("who").textContent = name;
    const redraw = () => live.forEach((view) => view.redraw());
    const section = address.read();
    show(model, first(model));
    downloadButton();
    themeButton(redraw);
    printing(redraw);
    if (section) goTo(section);
    address.follow(() => {
        const next = address.read();
        if (next) goTo(next);
        else show(model, first(model));
    });
    document.documentElement.dataset.ready = "1";
}).catch((error) => {
    main.replaceChildren(el("div", { class: "banner bad", role: "alert" }, el("strong", {}, "This report cannot be shown. "),
        typeof DecompressionStream === "undefined" ? "This browser cannot unpack the data of the page. Use a browser of 2023 or later." : String(error.message || error)));
    document.documentElement.dataset.ready = "failed";
});
