// SPDX-License-Identifier: MIT
// Elements and tables.  Text from the document becomes text nodes and attribute values only, so it cannot become markup.
import { plural } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
    for (const [name, value] of Object.entries(props || {})) {
        if (value === null || value === undefined || value === false) continue;
        if (typeof value === "function") element.addEventListener(name, value);
        else if (name === "style") Object.entries(value).forEach(([key, it]) => element.style.setProperty(key, it));
        else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
    return element;
}

export const el = (name, props, ...children) => fill(document.createElement(name), props, children);
export const svg = (name, props, ...children) => fill(document.createElementNS(SVG, name), props, children);

// Saves text as a file; the page's policy allows it, because nothing is loaded.
export function save(name, type, text) {
    const address = URL.createObjectURL(new Blob([text], { type }));
    el("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
}

// A cell of CSV.  Names come from programs: spreadsheets take text with one of these beginnings for a formula.
function csvCell(value) {
    const text = String(value ?? ""), safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/* A table that is wider than the page has a line for each cell instead, with the name of its column.  Whether it is wider is
 * measured again when the page changes its width; new rows can only make it wider. */
const widths = new WeakMap(), grown = new Set();
function fit(box) {
    if (!box.classList.contains("lines") && box.scrollWidth > box.clientWidth) box.classList.add("lines");
    widths.set(box, box.clientWidth);
}
const watcher = new ResizeObserver((entries) => entries.forEach(({ target }) => {
    if (widths.get(target) === target.clientWidth) return;
    target.classList.remove("lines");
    fit(target);
}));
// Measuring lays the page out, so it waits for all rows that are added now.
function fitLater(box) {
    if (!grown.size) requestAnimationFrame(() => (grown.forEach(fit), grown.clear()));
    grown.add(box);
}

// A button adds the rows beyond this: a browser lays out a thousand at once without a pause.
const CHUNK = 1000;

/* columns: [{name, value(row) -> raw value, csv(row) -> what a CSV file has instead, show(row) -> text or element, number, bar(row) -> 0..1, help}]
 * The raw value is in data-value, for scripts and for the tests. */
export function table({ caption, columns, rows, first = CHUNK, id, hideCaption = true }) {
    const body = el("tbody", { role: "rowgroup" });
    // A click on a head sorts by its column: the largest number or the first name at the top, and a second click turns it around.
    const head = el("tr", { role: "row" }, columns.map((c) => el("th", { scope: "col", role: "columnheader", class: [c.number && "number", c.name.length > 24 && "long"].filter(Boolean).join(" "), title: c.help }, c.name && rows.length > 1 ? el("button", { type: "button", class: "sort", click: (e) => sort(c, e.currentTarget.parentElement) }, c.name) : c.name)));
    const given = rows;
    // The roles are those of the elements, which they lose where they are lines.
    const whole = el("table", { id, role: "table" }, el("caption", { class: hideCaption && "hidden" }, caption), el("thead", { role: "rowgroup" }, head), body);
    const box = el("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": `Table: ${caption}` }, whole);
    const more = el("button", { type: "button", class: "more", click: () => add(CHUNK) });
    let shown = 0;
    // A site is a number in the document; the file has its name too.
    const csv = () => [columns.map((c) => c.name), ...rows.map((row) => columns.map((c) => (c.csv ? c.csv(row) : c.value(row))))].map((line) => line.map(csvCell).join(",")).join("\n");
    const download = el("button", { type: "button", class: "csv", "aria-label": `Save as CSV: ${caption}`, click: () => save(`gpuprof-${id || "table"}.csv`, "text/csv", `${csv()}\n`) }, "CSV");
    const cell = (column, row, index) => {
        const raw = column.value(row);
        const content = column.show ? column.show(row) : String(raw ?? "–");
        const props = { class: column.number ? "number" : column.class, "data-value": String(raw ?? ""), "data-name": column.name || false, title: column.title && column.title(row) };
        if (column.bar) {
            props.style = { "--part": String(Math.max(0, Math.min(1, column.bar(row) || 0))) };
            props.class = `${props.class || ""} bar`;
        }
        return index === 0 ? el("th", { scope: "row", role: "rowheader", ...props }, content) : el("td", { role: "cell", ...props }, content);
    };
    function sort(column, cell) {
        const first = column.number ? "descending" : "ascending", other = column.number ? "ascending" : "descending";
        const next = { none: first, [first]: other, [other]: "none" }[cell.getAttribute("aria-sort") || "none"];
        [...head.cells].forEach((c) => c.removeAttribute("aria-sort"));
        if (next !== "none") cell.setAttribute("aria-sort", next);
        const key = (row) => column.csv ? column.csv(row) : column.value(row), empty = (v) => v === null || v === undefined || v === "";
        const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
        // What is unknown comes last in both directions.
        rows = next === "none" ? given : [...given].sort((x, y) => {
            const [a, b] = [key(x), key(y)];
            return empty(a) || empty(b) ? empty(a) - empty(b) : compare(a, b) * (next === "ascending" ? 1 : -1);
        });
        const many = shown;
        shown = 0;
        body.replaceChildren();
        add(many);
    }
    function add(amount) {
        const until = Math.min(rows.length, shown + amount);
        const fresh = document.createDocumentFragment();
        for (; shown < until; shown++) fresh.append(el("tr", { role: "row" }, columns.map((c, i) => cell(c, rows[shown], i))));
        body.append(fresh);
        more.hidden = shown >= rows.length;
        more.textContent = `Show ${Math.min(CHUNK, rows.length - shown)} more of ${plural(rows.length, "row")}`;
        if (box.isConnected) fitLater(box);
    }
    add(first);
    watcher.observe(box);
    return el("div", { class: "tablebox" }, box, el("div", { class: "under" }, more, download));
}

// The table of a picture's numbers, made when it is opened.
export function asTable(summary, make) {
    const box = el("details", { class: "astable" }, el("summary", {}, summary));
    box.addEventListener("toggle", () => box.open && box.childElementCount === 1 && box.append(make()));
    return box;
}

export function section(id, title, lead, ...children) {
    return el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title`, tabindex: "-1" }, title), lead && el("p", { class: "lead" }, lead), ...children);
}

export const reduced = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

// The page has one tooltip.
const tip = el("div", { class: "tip", "aria-hidden": "true", hidden: true });
export function showTip(event, lines) {
    if (!tip.parentNode) document.body.append(tip);
    tip.replaceChildren(...lines.map((line, i) => el("div", { class: i ? "soft" : "name" }, line)));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const x = event.clientX + 14 + box.width > innerWidth ? event.clientX - box.width - 10 : event.clientX + 14;
    const y = event.clientY + 14 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 14;
    tip.style.left = `${Math.max(4, x)}px`;
    tip.style.top = `${Math.max(4, y)}px`;
}
export const hideTip = () => (tip.hidden = true);
