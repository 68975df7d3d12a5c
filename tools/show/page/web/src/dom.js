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

// A button adds the rows beyond this: a browser lays out a thousand at once without a pause.
const CHUNK = 1000;

/* columns: [{name, value(row) -> raw value, csv(row) -> what a CSV file has instead, show(row) -> text or element, number, bar(row) -> 0..1, help}]
 * The raw value is in data-value, for scripts and for the tests. */
export function table({ caption, columns, rows, first = CHUNK, id, hideCaption = true }) {
    const body = el("tbody");
    // A click on a head sorts by its column: the largest number or the first name at the top, and a second click turns it around.
    const head = el("tr", {}, columns.map((c) => el("th", { scope: "col", class: c.number && "number", title: c.help }, c.name && rows.length > 1 ? el("button", { type: "button", class: "sort", click: (e) => sort(c, e.currentTarget.parentElement) }, c.name) : c.name)));
    const given = rows;
    const whole = el("table", { id }, el("caption", { class: hideCaption && "hidden" }, caption), el("thead", {}, head), body);
    const more = el("button", { type: "button", class: "more", click: () => add(CHUNK) });
    let shown = 0;
    // A site is a number in the document; the file has its name too.
    const csv = () => [columns.map((c) => c.name), ...rows.map((row) => columns.map((c) => (c.csv ? c.csv(row) : c.value(row))))].map((line) => line.map(csvCell).join(",")).join("\n");
    const download = el("button", { type: "button", class: "csv", "aria-label": `Save as CSV: ${caption}`, click: () => save(`gpuprof-${id || "table"}.csv`, "text/csv", `${csv()}\n`) }, "CSV");
    const cell = (column, row, index) => {
        const raw = column.value(row);
        const content = column.show ? column.show(row) : String(raw ?? "–");
        const props = { class: column.number ? "number" : column.class, "data-value": String(raw ?? ""), title: column.title && column.title(row) };
        if (column.bar) {
            props.style = { "--part": String(Math.max(0, Math.min(1, column.bar(row) || 0))) };
            props.class = `${props.class || ""} bar`;
        }
        return index === 0 ? el("th", { scope: "row", ...props }, content) : el("td", props, content);
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
        for (; shown < until; shown++) fresh.append(el("tr", {}, columns.map((c, i) => cell(c, rows[shown], i))));
        body.append(fresh);
        more.hidden = shown >= rows.length;
        more.textContent = `Show ${Math.min(CHUNK, rows.length - shown)} more of ${plural(rows.length, "row")}`;
    }
    add(first);
    return el("div", { class: "tablebox" }, el("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": `Table: ${caption}` }, whole), el("div", { class: "under" }, more, download));
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
