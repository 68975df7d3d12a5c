// SPDX-License-Identifier: MIT
// What would help: the changes that a dry run has tried, else what the recording tells with evidence, else how to try.
import { asTable, el, section, table } from "./dom.js";
import { bytes, exact, known, NONE, plural } from "./format.js";
import { isHost } from "./model.js";

const kernels = (row) => (known(row.cost.kernels_percent) ? `${row.cost.kernels_percent < 0 ? "−" : "+"}${Math.abs(row.cost.kernels_percent).toFixed(0)} %` : NONE);
const saved = (row) => (row.status !== "ok" ? "failed" : row.saved_bytes === 0 ? "nothing" : bytes(row.saved_bytes));

// The advice of the report of the last failure, one string for each piece: the paragraph "what helps" of its text.
export function adviceOf(text) {
    const lines = (text || "").split("\n"), from = lines.findIndex((l) => /^what helps\s/.test(l)), list = [];
    for (let i = from; from >= 0 && i < lines.length && (i === from || /^\s+\S/.test(lines[i])); i++) {
        const line = lines[i].replace(/^what helps/, "").trim();
        if (line.startsWith("- ")) list.push(line.slice(2));
        else if (list.length) list.push(`${list.pop()} ${line}`);
    }
    return list;
}

// The last failure was on this device, or it is not known on which.
function failedHere(model, device) {
    const last = model.ooms.at(-1);
    return model.oom && (!last || last.device === null || last.device === device.device) ? adviceOf(model.oom) : [];
}

// Sentences of what is known without a change that was run: those of the failure, of the dry run, of the recording.
const told = (model, device) => [...failedHere(model, device), ...(model.dryrun ? model.dryrun.helps : device.helps || [])];

const commandOf = (model) => `gpuprof dryrun --try -- ${model.recording.command_line || "CMD"}`;

/* The short answer: {value, details} of a dry run that has tried changes; null: none has. */
function triedAnswer(dryrun) {
    if (!dryrun || !dryrun.tried) return null;
    const ran = dryrun.tried.filter((r) => r.status === "ok"), [best] = ran;
    if (!dryrun.tried.length) return { value: "not known", details: [`${dryrun.why}.`] };
    if (!best || best.saved_bytes <= 0) return { value: "none that was tried", details: [`${plural(ran.length, "change")} ran, and none needs less memory.`] };
    const fits = dryrun.fits === false ? (best.fits ? `; it then fits ${dryrun.gpu}` : `; nothing makes it fit ${dryrun.gpu}`) : "";
    return { value: `${bytes(best.saved_bytes)} less`, details: [`${best.change}: ${known(best.cost.kernels_percent) ? `${kernels(best)} kernels` : "tried in a dry run"}${fits}.`, ran.length > 1 && `${plural(ran.length - 1, "more change")} ran.`] };
}

export function helpAnswer(model, device) {
    const tried = triedAnswer(model.dryrun);
    if (tried) return tried;
    const [first, ...more] = told(model, device);
    if (first) return { value: first, details: [more.length > 0 && `${plural(more.length, "more hint")} below.`] };
    return { value: "not known", details: [isHost(device.device) ? "Nothing in the recording tells." : ["Nothing in the recording tells. ", el("code", {}, "gpuprof dryrun --try"), " runs a program of PyTorch without a GPU, one change after the other."]] };
}

function triedTable(dryrun) {
    const rows = dryrun.tried.filter((r) => r.status !== "not possible"), most = Math.max(1, ...rows.map((r) => r.saved_bytes || 0));
    return rows.length > 0 && table({
        caption: "Changes that were run, what fits first", id: "tried-table", rows, columns: [
            { name: "Change", value: (r) => r.change, class: "wide" },
            { name: "Needed", number: true, value: (r) => r.needed_bytes, show: (r) => bytes(r.needed_bytes), title: (r) => exact(r.needed_bytes) },
            { name: "Saved", number: true, value: (r) => r.saved_bytes, show: saved, title: (r) => (r.status === "ok" ? exact(r.saved_bytes) : r.why), bar: (r) => (r.saved_bytes || 0) / most },
            { name: "More kernels", number: true, value: (r) => r.cost.kernels_percent, show: kernels, help: "How many more kernels the whole run starts: not time" },
            { name: `Fits ${dryrun.gpu}`, value: (r) => r.fits, show: (r) => (r.fits === null ? NONE : r.fits ? "yes" : "no") },
            rows.some((r) => r.why || r.note) && { name: "Note", value: (r) => r.why || r.note, class: "wide" },
        ].filter(Boolean),
    });
}

function tried(dryrun) {
    const not = dryrun.tried.filter((r) => r.status === "not possible");
    const lead = dryrun.why ? `${dryrun.why}.` : `Each change was made in a run of the program on a simulated ${dryrun.name}, where the program as it is needs ${bytes(dryrun.needed_bytes)}${dryrun.fits === false ? ` and does not fit` : ""}. No file of the program was changed.`;
    return section("helps", "What would help", lead, triedTable(dryrun),
        not.length > 0 && asTable(`${plural(not.length, "change")} could not be run`, () => el("ul", {}, not.map((r) => el("li", {}, `${r.change}: ${r.why}.`)))));
}

const list = (head, lines) => lines.length > 0 && [el("h3", {}, head), el("ul", {}, lines.map((l) => el("li", {}, l)))];

// Of several ranks: the section of their dry run, and the short answer.
export function ranksHelps(dryrun) {
    const some = dryrun && !dryrun.tried && dryrun.helps.length > 0;
    return {
        ...(triedAnswer(dryrun) || (some ? { value: dryrun.helps[0], details: [] } : { value: "see one rank", details: ["gpuprof explain FILE says it of the recording of one rank."] })),
        section: dryrun && dryrun.tried ? tried(dryrun) : some ? section("helps", "What would help", "By the process that needs most of a GPU.", el("ul", {}, dryrun.helps.map((l) => el("li", {}, l)))) : null,
    };
}

export function helps(model, device) {
    const view = (node) => ({ node, redraw() {}, destroy() {} });
    if (model.dryrun && model.dryrun.tried) return view(tried(model.dryrun));
    const failed = failedHere(model, device), rest = told(model, device).slice(failed.length);
    if (isHost(device.device) && !failed.length && !rest.length) return { empty: "Nothing in the recording tells what would help the host.", redraw() {}, destroy() {} };
    return view(section("helps", "What would help", failed.length || rest.length ? null : "Nothing in the recording tells.",
        list("The last failed request", failed), list(model.dryrun ? "The dry run, of which nothing was tried" : "The recording", rest),
        el("p", { class: "note" }, "To try changes to a program of PyTorch, each in a run without a GPU: ", el("code", {}, commandOf(model)))));
}
