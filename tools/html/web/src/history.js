// SPDX-License-Identifier: MIT
// The memory of a device at every moment that the document has: all changes if it has every block, else two moments of
// each stretch of time.  Both become one list of states, with the changes that lead from each to the next.
import { UNSUMMED } from "./colours.js";

export const STACKS = [["site", "call site"], ["owner", "owner"], ["kind", "kind"]];
const MOST_LAYERS = 10;

// Samples several step functions at the times of all their points.
function merged(lists, endNs) {
    const times = [...new Set([0, endNs, ...lists.flatMap((list) => list.map((p) => p[0]))])].sort((a, b) => a - b);
    return [times, lists.map((list) => stepped(list, times, 3))];
}

// The value of column `which` of a series at each of these times; 0 before its first point.
export function stepped(list, times, which) {
    let next = 0, value = 0;
    return times.map((t) => {
        while (next < list.length && list[next][0] <= t) value = list[next++][which];
        return value;
    });
}

// The index of the last element that is not above x; -1 if there is none.
export function before(list, x, at = (v) => v) {
    let low = -1, high = list.length;
    while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (at(list[middle]) <= x) low = middle;
        else high = middle;
    }
    return low;
}

class Steps {
    constructor() {
        Object.assign(this, { times: [], state: [], part: [], bytes: [], count: [], parts: [] });
    }

    at(t) {
        if (this.times.at(-1) !== t) this.times.push(t);
    }

    add(part, bytes, count) {
        this.state.push(this.times.length - 1);
        this.part.push(part);
        this.bytes.push(bytes);
        this.count.push(count);
    }
}

function ofBlocks(rows) {
    const steps = new Steps(), numbers = new Map(), ends = rows.filter((r) => r[1] !== null).sort((a, b) => a[1] - b[1]);
    const part = (row) => {
        const key = `${row[3]} ${row[4]}`;
        if (!numbers.has(key)) numbers.set(key, steps.parts.push({ site: row[3], kind: row[4] }) - 1);
        return numbers.get(key);
    };
    let next = 0;
    const close = (until) => {
        for (; next < ends.length && ends[next][1] <= until; next++) {
            steps.at(ends[next][1]);
            steps.add(part(ends[next]), -ends[next][2], -1);
        }
    };
    for (const row of rows) {
        // A block that ends where it starts must not end before its start.
        close(row[0] - 1);
        steps.at(row[0]);
        steps.add(part(row), row[2], 1);
    }
    close(Infinity);
    return steps;
}

function ofMoments({ parts, rows }) {
    const steps = new Steps(), held = parts.map(() => [0, 0]), rest = parts.length;
    steps.parts = [...parts.map(([site, kind]) => ({ site, kind })), { site: -1, kind: "other" }];
    let others = [0, 0];
    for (const row of rows) {
        steps.at(row[0]);
        for (let i = 4; i + 2 < row.length; i += 3) {
            const old = held[row[i]];
            steps.add(row[i], row[i + 1] - old[0], row[i + 2] - old[1]);
            held[row[i]] = [row[i + 1], row[i + 2]];
        }
        steps.add(rest, row[2] - others[0], row[3] - others[1]);
        others = [row[2], row[3]];
    }
    return steps;
}

export class History {
    constructor(model, device) {
        this.model = model;
        this.device = device;
        this.lives = device.lifetimes ? device.lifetimes.rows : [];
        this.exact = Boolean(device.lifetimes && device.lifetimes.complete);
        this.known = this.exact || Boolean(device.moments);
        this.steps = this.exact ? ofBlocks(this.lives) : device.moments ? ofMoments(device.moments) : new Steps();
        this.total = this.sums(() => 0, 1)[0];
        this.made = new Map();
    }

    // The sums of groups of parts in each state: one list for each group.
    sums(groupOf, groups) {
        const { times, state, part, bytes, parts } = this.steps, of = parts.map(groupOf), now = new Float64Array(groups);
        const lists = Array.from({ length: groups }, () => new Float64Array(times.length));
        for (let s = 0, i = 0; s < times.length; s++) {
            for (; i < state.length && state[i] === s; i++) now[of[part[i]]] += bytes[i];
            for (let g = 0; g < groups; g++) lists[g][s] = now[g];
        }
        return lists;
    }

    nameOf(part, stack) {
        if (part.site < 0) return "";
        if (stack === "kind") return part.kind;
        return stack === "owner" ? this.model.site(part.site).owner || "unknown" : this.model.siteName(part.site);
    }

    // {times, total, layers: [{name, most, list}]}: the layers of the stack from the bottom; the last may be the rest.
    layers(stack) {
        if (!this.made.has(stack)) this.made.set(stack, stack === "kind" && !this.exact || !this.known ? this.ofKinds() : this.ofParts(stack));
        return this.made.get(stack);
    }

    ofKinds() {
        const kinds = Object.entries(this.device.series.kinds).filter(([name]) => !UNSUMMED.has(name));
        const [times, lists] = merged(kinds.map((k) => k[1]), this.model.endNs);
        const total = new Float64Array(times.length);
        lists.forEach((list) => list.forEach((v, i) => (total[i] += v)));
        const layers = kinds.map(([name, list], i) => ({ name, most: list.reduce((top, p) => Math.max(top, p[2]), 0), list: lists[i] }));
        return { times, total, layers: layers.filter((l) => l.most > 0).sort((a, b) => b.most - a.most) };
    }

    ofParts(stack) {
        const { parts, times, state, part, bytes } = this.steps;
        const names = [...new Set(parts.map((p) => this.nameOf(p, stack)))], numbers = new Map(names.map((n, i) => [n, i]));
        const group = parts.map((p) => numbers.get(this.nameOf(p, stack)));
        const now = names.map(() => 0), most = names.map(() => 0);
        for (let i = 0; i < state.length; i++) {
            const g = group[part[i]];
            now[g] += bytes[i];
            // A state may take several changes, and only the sum of all of them counts.
            if (i + 1 === state.length || state[i + 1] !== state[i] || bytes[i] > 0) most[g] = Math.max(most[g], now[g]);
        }
        const order = names.map((_, i) => i).filter((i) => names[i] && most[i] > 0).sort((a, b) => most[b] - most[a]).slice(0, MOST_LAYERS);
        const place = names.map(() => order.length);
        order.forEach((g, i) => (place[g] = i));
        const lists = this.sums((_, i) => place[group[i]], order.length + 1);
        const layers = lists.map((list, i) => ({ name: i < order.length ? names[order[i]] : "all others", rest: i === order.length, list, most: list.reduce((a, b) => Math.max(a, b), 0) }));
        // The steadiest at the bottom: a layer that comes and goes would move all those above it.
        const mean = (l) => (l.rest ? -1 : l.list.reduce((a, b) => a + b, 0));
        return { times, total: this.total, layers: layers.filter((l) => l.most > 0).sort((a, b) => mean(b) - mean(a)) };
    }

    // The parts of the memory in state s, the largest first.
    partsAt(s) {
        const { parts, state, part, bytes, count } = this.steps, held = parts.map(({ site, kind }) => ({ site, kind, bytes: 0, count: 0 }));
        for (let i = 0; i < state.length && state[i] <= s; i++) {
            held[part[i]].bytes += bytes[i];
            held[part[i]].count += count[i];
        }
        return held.filter((p) => p.bytes || p.count).sort((a, b) => b.bytes - a.bytes);
    }

    // The state with the most memory between two moments; -1: before the first.
    highest(low, high) {
        const from = before(this.steps.times, low), to = before(this.steps.times, high);
        let best = from < 0 && to >= 0 ? 0 : from;
        for (let s = Math.max(0, from); s <= to; s++) if (this.total[s] > this.total[best]) best = s;
        return best;
    }

    /* What the sections show: {time_ns, bytes, parts, owners, why}.  at: a moment; range: its highest moment counts.
     * Without either it is the peak of the recording, of which the document has all parts. */
    moment({ at, range }) {
        const { peak } = this.device, { times } = this.steps;
        if (!this.known || !times.length || (at === null && !range)) return { ...peak, why: "peak" };
        const s = at !== null ? before(times, at) : this.highest(...range);
        if (at === null && Math.max(times[s] ?? 0, range[0]) === peak.time_ns) return { ...peak, why: "range", range };
        const parts = s < 0 ? [] : this.partsAt(s), owners = new Map();
        for (const part of parts) {
            const name = part.site < 0 ? "others" : this.nameOf(part, "owner");
            const row = owners.get(name) || { owner: name, bytes: 0, count: 0 };
            owners.set(name, { owner: name, bytes: row.bytes + part.bytes, count: row.count + part.count });
        }
        return {
            time_ns: at !== null ? at : Math.max(times[s] ?? 0, range[0]), since_ns: s < 0 ? 0 : times[s], bytes: s < 0 ? 0 : this.total[s], parts,
            owners: [...owners.values()].sort((a, b) => b.bytes - a.bytes), why: at !== null ? "moment" : "range", range,
        };
    }
}

// Indices of at most 2 * room elements of times between low and high: all, or the highest and the last of each stretch.
export function chosen(times, total, low, high, room) {
    const from = Math.max(0, before(times, low)), to = before(times, high), out = [];
    if (to - from + 1 <= 2 * room) {
        for (let i = from; i <= to; i++) out.push(i);
        return out;
    }
    const width = (high - low) / room;
    for (let i = from; i <= to;) {
        const end = Math.max(0, Math.floor((times[i] - low) / width)) * width + width + low;
        let best = i, last = i;
        // At least one element, also where rounding puts the end at it.
        for (i++; i <= to && times[i] < end; i++) {
            if (total[i] > total[best]) best = i;
            last = i;
        }
        out.push(best);
        if (last !== best) out.push(last);
    }
    return out;
}

// Points [t, low, high, last] between two moments, joined until they are at most `room`.
export function joined(points, low, high, room) {
    const from = Math.max(0, before(points, low, (p) => p[0])), to = before(points, high, (p) => p[0]), out = [];
    const width = to - from + 1 <= room ? 0 : (high - low) / room;
    // The extremes of a stretch must not last until a later one begins.
    const close = (t) => {
        const last = out.at(-1);
        if (width && last && last[1] !== last[2] && last[0] + width < t) out.push([last[0] + width, last[3], last[3], last[3]]);
    };
    for (let i = from; i <= to; i++) {
        const p = points[i], t = width ? Math.max(low, low + Math.floor((p[0] - low) / width) * width) : p[0], last = out.at(-1);
        if (last && last[0] === t) {
            last[1] = Math.min(last[1], p[1]);
            last[2] = Math.max(last[2], p[2]);
            last[3] = p[3];
        } else {
            close(t);
            out.push([t, p[1], p[2], p[3]]);
        }
    }
    close(high);
    return out;
}
