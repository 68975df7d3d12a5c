// SPDX-License-Identifier: MIT
// The memory of a device at every moment that the document has: all changes if it has every block, else two moments of
// each stretch of time.  Both become one list of states, with the changes that lead from each to the next.
import { shorter } from "./format.js";

export const STACKS = [["site", "call site"], ["owner", "owner"], ["kind", "kind"], ["use", "use"]];
export const UNKNOWN_USE = "not known";
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

/* A colour for each name, the same on every page that has the name: by its text, not by its place.  Two names that fall on one
 * colour share it on no page: the smaller one takes the next that is free. */
function huesOf(names) {
    const taken = new Set();
    return names.map((name) => {
        let hash = 2166136261;
        for (const letter of shorter(name)) hash = Math.imul(hash ^ letter.codePointAt(0), 16777619) >>> 0;
        let hue = hash % MOST_LAYERS;
        while (taken.has(hue)) hue = (hue + 1) % MOST_LAYERS;
        taken.add(hue);
        return hue;
    });
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

// uses: what each row is for; null: not known.
function ofBlocks(rows, uses) {
    const steps = new Steps(), numbers = new Map(), ends = rows.filter((r) => r[1] !== null).sort((a, b) => a[1] - b[1]);
    const parts = new Map(rows.map((row, i) => {
        const use = uses[i] ?? null, key = `${row[3]} ${row[4]} ${use}`;
        if (!numbers.has(key)) numbers.set(key, steps.parts.push({ site: row[3], kind: row[4], use }) - 1);
        return [row, numbers.get(key)];
    }));
    const part = (row) => parts.get(row);
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

function ofMoments({ parts, uses = [], rows }) {
    const steps = new Steps(), held = parts.map(() => [0, 0]), rest = parts.length;
    steps.parts = [...parts.map(([site, kind], i) => ({ site, kind, use: uses[i] ?? null })), { site: -1, kind: "other" }];
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
        this.steps = this.exact ? ofBlocks(this.lives, device.lifetimes.uses || []) : device.moments ? ofMoments(device.moments) : new Steps();
        this.total = this.sums(() => 0, 1)[0];
        const { allocated, reserved, fine, fine_reserved: more } = device.series;
        // Allocated as fine as the document has it, and reserved; null if that is the same at every moment.
        this.allocated = this.exact ? { times: this.steps.times, tops: this.total, bottoms: this.total } : states(fine || allocated);
        this.reserved = more === null ? null : states(more || reserved);
        this.shown = this.exact ? null : this.stretches();
        this.made = new Map();
    }

    // The states that a plot shows: of each stretch the highest, from its start to its end.
    stretches() {
        const { times } = this.steps, width = this.device.moments ? this.device.moments.stretch_ns : 0;
        if (!width || !times.length) return null;
        // One more than have changes: the last column shows what stays until the end.
        const count = Math.floor(times.at(-1) / width) + 2, { t, high } = columns(times, this.total, this.total, 0, count * width, count);
        return { times: t, states: high, width };
    }

    /* What a plot of `cells` columns shows between two times: the times of its columns, the states of which the layers are
     * drawn, the highest and the lowest allocated and the highest reserved bytes, and when the highest was. */
    view(stack, low, high, cells) {
        const { times, total } = this.layers(stack), exact = this.exact || !this.shown, value = (list, i) => (i < 0 ? 0 : list[i]);
        let from = low, to = high, whole = false;
        if (!exact) {
            // Columns about as wide as a stretch are stretches, so that layers, total and reserve are of the same ones.
            const { width } = this.shown, first = Math.floor(low / width), count = Math.ceil(high / width) - first, each = Math.ceil(count / cells);
            whole = count >= cells / 3;
            if (whole) [from, to, cells] = [first * width, (first + Math.ceil(count / each) * each) * width, Math.ceil(count / each)];
        }
        const all = columns(this.allocated.times, this.allocated.tops, this.allocated.bottoms, from, to, cells);
        const totals = exact ? total : this.shown.states.map((s) => value(total, s)), own = columns(exact ? times : this.shown.times, totals, totals, from, to, cells);
        const kept = this.reserved && columns(this.reserved.times, this.reserved.tops, this.reserved.bottoms, from, to, cells);
        const inside = [...all.t, ...own.t, ...(kept ? kept.t : [])].filter((t) => t > low && t < high);
        const xs = [...new Set([low, ...inside, high])].sort((a, b) => a - b);
        const pick = (from, of) => {
            let next = 0;
            return xs.map((x) => {
                while (next + 1 < from.t.length && from.t[next + 1] <= x) next++;
                return of(next);
            });
        };
        const at = pick(own, (i) => (exact ? own.high[i] : value(this.shown.states, own.high[i]))), top = pick(all, (i) => value(this.allocated.tops, all.high[i]));
        const highest = whole ? at.map((s) => value(total, s)) : top, lowest = pick(all, (i) => value(this.allocated.bottoms, all.low[i])).map((v, i) => Math.min(v, highest[i]));
        const when = whole ? at.map((s, i) => Math.max(value(times, s), i ? xs[i] : low)) : pick(all, (i) => Math.max(low, all.t[i], value(this.allocated.times, all.high[i])));
        return { xs, at, highest, lowest, when, reserved: kept ? pick(kept, (i) => value(this.reserved.tops, kept.high[i])) : highest };
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
        if (stack === "use") return (this.device.uses || {})[part.use]?.text || UNKNOWN_USE;
        return stack === "owner" ? this.model.site(part.site).owner || "unknown" : this.model.siteName(part.site);
    }

    // {times, total, layers: [{name, most, list}]}: the layers of the stack from the bottom; the last may be the rest.
    layers(stack) {
        if (!this.made.has(stack)) this.made.set(stack, this.known ? this.ofParts(stack) : this.ofKinds());
        return this.made.get(stack);
    }

    ofKinds() {
        const kinds = Object.entries(this.device.series.kinds).filter(([name]) => !this.model.unsummed.has(name));
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
        const hues = huesOf(order.map((g) => names[g]));
        const layers = lists.map((list, i) => ({ hue: hues[i], name: i < order.length ? names[order[i]] : "all others", rest: i === order.length, list, most: list.reduce((a, b) => Math.max(a, b), 0) }));
        // The steadiest at the bottom: a layer that comes and goes would move all those above it.
        const mean = (l) => (l.rest ? -1 : l.list.reduce((sum, v, i) => sum + v * ((times[i + 1] ?? this.model.endNs) - times[i]), 0));
        return { times, total: this.total, layers: layers.filter((l) => l.most > 0).sort((a, b) => mean(b) - mean(a)) };
    }

    // Whether a stack says more than the others: of the uses at least one must be known.
    offers(stack) {
        if (stack === "kind") return true;
        const { layers } = this.known ? this.layers(stack) : { layers: [] };
        return stack === "use" ? layers.some((l) => !l.rest && l.name !== UNKNOWN_USE) : layers.length > 0;
    }

    // The parts of the memory in state s, by call site and kind, the largest first.
    partsAt(s) {
        const { parts, state, part, bytes, count } = this.steps, rows = new Map();
        const held = parts.map(({ site, kind }) => {
            const key = `${site} ${kind}`;
            if (!rows.has(key)) rows.set(key, { site, kind, bytes: 0, count: 0 });
            return rows.get(key);
        });
        for (let i = 0; i < state.length && state[i] <= s; i++) {
            held[part[i]].bytes += bytes[i];
            held[part[i]].count += count[i];
        }
        return [...rows.values()].filter((p) => p.bytes || p.count).sort((a, b) => b.bytes - a.bytes);
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

/* What a plot of `cells` columns of pixels shows between two times: the columns at which something changes, each with the index
 * of the highest and of the lowest state that was there in it.  tops, bottoms: the values of the states, which are valid from
 * their time until the next one's.  -1 is the time before the first state. */
export function columns(times, tops, bottoms, low, high, cells) {
    const from = before(times, low), to = before(times, high), out = { t: [low], high: [from], low: [from] };
    const put = (t, top, bottom) => {
        const last = out.t.length - 1, fresh = out.t[last] < t;
        if (fresh && out.high[last] === top && out.low[last] === bottom) return;
        out.t[fresh ? last + 1 : last] = t;
        out.high[fresh ? last + 1 : last] = top;
        out.low[fresh ? last + 1 : last] = bottom;
    };
    const width = (high - low) / cells, top = (i) => (i < 0 ? 0 : tops[i]), bottom = (i) => (i < 0 ? 0 : bottoms[i]);
    for (let i = from + 1; i <= to;) {
        const cell = Math.min(cells - 1, Math.floor((times[i] - low) / width)), begin = low + cell * width;
        // The state before is there too, unless this one comes right at the beginning.
        let best = times[i] > begin ? i - 1 : i, least = best;
        for (; i <= to && Math.min(cells - 1, Math.floor((times[i] - low) / width)) === cell; i++) {
            if (top(i) > top(best)) best = i;
            if (bottom(i) < bottom(least)) least = i;
        }
        put(begin, best, least);
        // What comes next stays until something changes.
        if (cell + 1 < cells) put(low + (cell + 1) * width, i - 1, i - 1);
    }
    return out;
}

// Points [t, lowest, highest, last] as states for columns(): a point is valid until the next one.
export function states(points) {
    return { times: points.map((p) => p[0]), tops: points.map((p) => p[2]), bottoms: points.map((p) => p[1]) };
}
