// SPDX-License-Identifier: MIT
// Numbers as text.  Unknown (null) is an en dash.
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
export const NONE = "–";

export const known = (value) => typeof value === "number" && Number.isFinite(value);

const digits = (value) => (value >= 100 ? 0 : value >= 10 ? 1 : 2);

// Four digits, as the texts of gpuprof have them: a size can be searched for in all of them.
export function bytes(value) {
    if (!known(value)) return NONE;
    let size = Math.abs(value), unit = 0;
    // From 1023.95 on, the number would be rounded to 1024: use the next unit.
    while (size >= 1023.95 && unit < UNITS.length - 1) {
        size /= 1024;
        unit++;
    }
    return `${value < 0 ? "−" : ""}${unit ? size.toFixed(size >= 99.995 ? 1 : size >= 9.9995 ? 2 : 3) : Math.round(size)} ${UNITS[unit]}`;
}

// For axes, whose ticks are powers of two: whole numbers have no decimals.
export function tick(value) {
    if (value === 0) return "0";
    const unit = Math.min(UNITS.length - 1, Math.floor(Math.log2(Math.abs(value)) / 10));
    return `${+(value / 1024 ** unit).toFixed(2)} ${UNITS[Math.max(0, unit)]}`;
}

export const exact = (value) => (known(value) ? `${value.toLocaleString("en-US")} bytes` : "unknown");
export const count = (value) => (known(value) ? value.toLocaleString("en-US") : NONE);
export const decimal = (value) => (known(value) ? value.toLocaleString("en-US", { maximumFractionDigits: value < 10 ? 2 : value < 100 ? 1 : 0 }) : NONE);

export function percent(part) {
    if (!known(part)) return NONE;
    const value = part * 100;
    return `${value > 0 && value < 0.1 ? "< 0.1" : value.toFixed(value >= 99.95 || value < 0.05 ? 0 : 1)} %`;
}

export function duration(seconds) {
    if (!known(seconds)) return NONE;
    const size = Math.abs(seconds);
    if (size === 0) return "0 s";
    if (size < 1e-6) return `${(seconds * 1e9).toFixed(0)} ns`;
    if (size < 1e-3) return `${(seconds * 1e6).toFixed(digits(size * 1e6))} µs`;
    if (size < 1) return `${(seconds * 1e3).toFixed(digits(size * 1e3))} ms`;
    if (size < 120) return `${seconds.toFixed(digits(size))} s`;
    if (size < 7200) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
    if (size < 172800) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
    return `${Math.round(seconds / 86400).toLocaleString("en-US")} days`;
}

// A time between others that are `step` seconds apart: with as many digits as tell it from its neighbours.
export function instant(seconds, step) {
    if (!known(seconds) || !(step > 0)) return duration(seconds);
    const [unit, name] = seconds < 1e-3 ? [1e-6, "µs"] : seconds < 1 ? [1e-3, "ms"] : [1, "s"], size = seconds / unit;
    const places = Math.max(size >= 120 ? 0 : digits(size), Math.min(9, Math.ceil(-Math.log10(step / unit))));
    if (seconds < 120) return seconds === 0 ? "0 s" : `${size.toFixed(places)} ${name}`;
    const rest = (seconds % 60).toFixed(places), minutes = Math.floor(seconds / 60);
    return minutes < 120 ? `${minutes} min ${rest} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min ${rest} s`;
}

// Times on an axis: one unit for all, and no more digits than are needed to distinguish them.
export function tickTimes(splits) {
    const most = Math.max(...splits.map((s) => Math.abs(s ?? 0)));
    const [unit, name] = most >= 600 ? [60, "min"] : most >= 1 ? [1, "s"] : most >= 1e-3 ? [1e-3, "ms"] : [1e-6, "µs"];
    return splits.map((s) => (s === null ? "" : `${+(s / unit).toPrecision(7)} ${name}`));
}

// A forecast has two digits, because it is not more precise.
export function rough(seconds) {
    if (!known(seconds)) return NONE;
    const [unit, name] = [[31557600, "year"], [86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]].find(([size]) => seconds >= 1.5 * size) || [1, "second"];
    const value = +(seconds / unit).toPrecision(2);
    return value < 1 ? "a second" : plural(value, name);
}

export const after = (ns) => (known(ns) ? duration(ns / 1e9) : NONE);

export function moment(unixNs) {
    if (!known(unixNs) || unixNs <= 0) return NONE;
    return new Date(unixNs / 1e6).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

// Without the folders of a path.
export const shorter = (name) => name.replace(/\([^()]*\/([^()/]+)\)/, "($1)");
export const base = (path) => String(path || "").replace(/^.*\//, "");
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
