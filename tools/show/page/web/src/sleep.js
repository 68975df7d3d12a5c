// SPDX-License-Identifier: MIT
// Sleep: times in which tensors lost the memory under them, what was released then, what stayed, and the wake.
import { el, section, table } from "./dom.js";
import { after, bytes, count, exact, known, NONE, percent, plural } from "./format.js";

const size = (name, field, help) => ({ name, number: true, help, value: (s) => s[field], show: (s) => bytes(s[field]), title: (s) => exact(s[field]) });

function parts(model, id, caption, rows, none) {
    const sum = rows.reduce((all, p) => all + p.bytes, 0) || 1;
    if (!rows.length) return el("p", { class: "note" }, none);
    return table({
        caption, id, rows: model.rows(rows), first: 10, hideCaption: false,
        columns: [
            { name: "Call site", value: (p) => p.site, show: (p) => model.siteCell(p.site), csv: (p) => model.siteName(p.site), class: "wide" },
            { name: "What", value: (p) => model.what(p.site, p.kind) },
            { name: "Owner", value: (p) => ownerOf(model, p) },
            { name: "Blocks", number: true, value: (p) => p.count, show: (p) => count(p.count) },
            { name: "Bytes", number: true, value: (p) => p.bytes, show: (p) => bytes(p.bytes), title: (p) => exact(p.bytes), bar: (p) => p.bytes / sum },
            { name: "Share", number: true, value: (p) => p.bytes / sum, show: (p) => percent(p.bytes / sum) },
        ],
    });
}

const ownerOf = (model, p) => (p.site < 0 ? "other sites" : model.site(p.site).owner || "unknown");

// Whose it is that stayed, in words.
function owners(model, rows) {
    const sums = new Map();
    rows.forEach((p) => sums.set(ownerOf(model, p), (sums.get(ownerOf(model, p)) || 0) + p.bytes));
    return [...sums].sort((a, b) => b[1] - a[1]).slice(0, 6).map(([name, sum]) => `${name} ${bytes(sum)}`).join(", ");
}

function details(model, one) {
    const stayed = one.stayed.reduce((all, p) => all + p.bytes, 0), late = one.late_bytes > 0 && known(one.late_end_ns);
    return [
        el("p", { class: "lead" }, `${bytes(one.asleep_bytes)} fell asleep ${after(one.begin_ns)} into the recording, within ${after(one.end_ns - one.begin_ns)}. `,
            late ? `${bytes(one.late_bytes)} came back to the device late, up to ${after(one.late_end_ns - one.end_ns)} after that. ` : "",
            known(one.wake_begin_ns) ? `${bytes(one.woken_bytes)} woke at ${after(one.wake_begin_ns)}, within ${after(one.wake_end_ns - one.wake_begin_ns)}. ` : "Nothing woke. ",
            one.freed_asleep_bytes > 0 ? `${bytes(one.freed_asleep_bytes)} were freed asleep. ` : "",
            `${bytes(one.reserved_bytes)} were reserved meanwhile${stayed > 0 ? `; ${bytes(stayed)} stayed allocated: ${owners(model, one.stayed)}` : ", and nothing stayed allocated"}.`),
        parts(model, "released-table", "What was released, by call site", one.released, "What was released is not known."),
        parts(model, "stayed-table", "What stayed, by call site", one.stayed, "Nothing stayed allocated."),
    ];
}

export function sleep(model, device) {
    const times = device.sleeps || [];
    if (!times.length) return null;
    const shown = el("div", { id: "sleep-details", "aria-live": "polite" });
    const buttons = new Map();
    const choose = (one) => {
        shown.replaceChildren(...details(model, one));
        buttons.forEach((button, of) => button.setAttribute("aria-pressed", String(of === one)));
    };
    const button = (s) => {
        buttons.set(s, el("button", { type: "button", class: "device", "aria-pressed": "false", click: () => choose(s) }, after(s.begin_ns)));
        return buttons.get(s);
    };
    const list = table({
        caption: "Times of sleep", id: "sleep-table", rows: times, first: 50,
        columns: [
            { name: "At", value: (s) => s.begin_ns, show: button },
            size("Asleep", "asleep_bytes", "Bytes of tensors that lost their memory"),
            { name: "Within", number: true, value: (s) => s.end_ns - s.begin_ns, show: (s) => after(s.end_ns - s.begin_ns) },
            size("Late", "late_bytes", "What the driver got back more than 10 ms after the last tensor had fallen asleep"),
            size("Reserved meanwhile", "reserved_bytes", "What the process still held from the driver"),
            { name: "Woke at", number: true, value: (s) => s.wake_begin_ns, show: (s) => (known(s.wake_begin_ns) ? after(s.wake_begin_ns) : NONE) },
            size("Woken", "woken_bytes"), size("Freed asleep", "freed_asleep_bytes"),
        ],
    });
    choose(times.reduce((most, s) => (s.asleep_bytes > most.asleep_bytes ? s : most)));
    return {
        node: section("sleep", "Sleep", `${plural(times.length, "time")} in which tensors lost the memory under them, as in the sleep mode of vLLM. They count as asleep, and as neither allocated nor reserved. Choose one to see what was released and what stayed.`, list, shown),
        redraw() {}, destroy() {},
    };
}
