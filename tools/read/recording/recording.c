/* SPDX-License-Identifier: MIT
 *
 * recording.c: a recording in memory: its end, its sites that are one place, and the frees of its
 * allocations; see recording.h.
 */
#include <base/numbers.h>
#include <errno.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>
#include <stdlib.h>

/* ==== the recording =============================================================================================== */
/* Frees a recording in memory, and looks up memory from before an attach; see recording.h. */

void gp_recording_free(struct gp_recording *recording)
{
    if (!recording)
        return;
    void *parts[] = {recording->events,  recording->peer,    recording->baseline, recording->devices,
                     recording->samples, recording->sites,   recording->frames,   recording->modules,
                     recording->threads, recording->streams, recording->strings,  recording->befores,
                     recording->sleeps,  recording->names};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        free(parts[i]);
    free(recording);
}

struct gp_wire_before_device gp_rec_before_at(const struct gp_recording *recording, uint32_t device, uint64_t time_ns)
{
    static const struct gp_wire_before_device none, unknown = {.bytes = -1,
                                                               .at_attach_bytes = -1,
                                                               .count = -1,
                                                               .framework_allocated_bytes = -1,
                                                               .framework_reserved_bytes = -1};
    const struct gp_rec_before *best = NULL;
    bool host = device < recording->device_count && recording->devices[device].index == GP_WIRE_HOST;
    if (recording->attached == GP_REC_ATTACHED_NO || (recording->attached && host))
        return none;
    for (size_t i = 0; i < recording->before_count; i++) {
        const struct gp_rec_before *row = &recording->befores[i];
        if (row->device != device || row->is.source == GP_BEFORE_NONE)
            continue;
        bool early = row->time_ns <= time_ns;
        /* The last one up to that time; without one, the first after it. */
        if (!best || (early ? best->time_ns > time_ns || row->time_ns >= best->time_ns : row->time_ns < best->time_ns))
            best = row;
    }
    return best ? best->is : unknown;
}

/* ==== sites that are one place ==================================================================================== */
/* Makes one site of several, for readers to whom they are the same place. */

static void join_events(struct gp_rec_event *events, size_t count, const uint32_t *to)
{
    for (size_t i = 0; i < count; i++)
        events[i].site = to[events[i].site];
}

static int join_holder_order(const void *one, const void *other)
{
    const struct gp_wire_oom_holder *a = one, *b = other;
    double left = (double)a->block_bytes * (double)a->count, right = (double)b->block_bytes * (double)b->count;
    return left != right ? (left < right ? 1 : -1) : (a->site > b->site) - (a->site < b->site);
}

void gp_recording_join_oom(struct gp_wire_oom *oom, const uint32_t *to)
{
    uint32_t kept = 0;
    oom->site = to[oom->site];
    for (uint32_t i = 0; i < oom->holder_count; i++) {
        struct gp_wire_oom_holder holder = oom->holders[i];
        uint32_t k = 0;
        holder.site = to[holder.site];
        while (k < kept && (oom->holders[k].site != holder.site || oom->holders[k].kind != holder.kind ||
                            oom->holders[k].block_bytes != holder.block_bytes))
            k++;
        if (k == kept)
            oom->holders[kept++] = holder;
        else
            oom->holders[k].count += holder.count;
    }
    oom->holder_count = kept;
    qsort(oom->holders, kept, sizeof(oom->holders[0]), join_holder_order);
}

void gp_recording_join(struct gp_recording *recording, const uint32_t *to)
{
    for (uint32_t i = 1; i < recording->site_count; i++) {
        struct gp_rec_site *from = &recording->sites[i], *site = &recording->sites[to[i]];
        if (from == site)
            continue;
        int64_t *const sums[] = {&site->live_bytes,    &site->live_count,      &site->peak_bytes,
                                 &site->at_peak_bytes, &site->allocated_bytes, &site->calls};
        int64_t *const parts[] = {&from->live_bytes,    &from->live_count,      &from->peak_bytes,
                                  &from->at_peak_bytes, &from->allocated_bytes, &from->calls};
        for (size_t k = 0; k < sizeof(sums) / sizeof(sums[0]); k++) {
            *sums[k] = (int64_t)((uint64_t)*sums[k] + (uint64_t)*parts[k]);
            *parts[k] = 0;
        }
    }
    join_events(recording->events, recording->event_count, to);
    for (size_t i = 0; i < recording->sleep_count; i++)
        recording->sleeps[i].site = to[recording->sleeps[i].site];
    join_events(recording->baseline, recording->baseline_count, to);
    if (recording->has_oom)
        gp_recording_join_oom(&recording->oom, to);
}

/* ==== the ends of allocations ===================================================================================== */
/* Finds the free that ends each allocation. */

/* The map has the index of each live allocation. It grows with their number, not with that of all
 * allocations: that fits into a processor's caches. */
struct gp_match {
    struct gp_hash live;
    struct gp_recording *recording;
    gp_hash_same_fn *same; /* NULL: events with one hash have one key */
};

struct gp_match_key {
    const struct gp_recording *recording;
    const struct gp_rec_event *event;
    uint64_t hash;
};

/* Whether another event can end this one. Segments of a growable cache are mapped in runs and
 * unmapped page by page, so they have no pairs. */
static bool match_opens(const struct gp_rec_event *event)
{
    return event->type == GP_EVENT_ALLOC || event->type == GP_EVENT_SEGMENT_ALLOC ||
           (event->type == GP_EVENT_SEGMENT_MAP && event->kind != GP_KIND_LINEAR);
}

static bool match_closes(const struct gp_rec_event *event)
{
    return event->type == GP_EVENT_FREE || event->type == GP_EVENT_SEGMENT_FREE ||
           (event->type == GP_EVENT_SEGMENT_UNMAP && event->kind != GP_KIND_LINEAR);
}

/* The address space of an event: handles of physical memory and arrays are not addresses, and a
 * segment has the address of its first block. */
static unsigned match_space(const struct gp_rec_event *event)
{
    if (event->type == GP_EVENT_SEGMENT_ALLOC || event->type == GP_EVENT_SEGMENT_FREE)
        return event->kind == GP_KIND_LINEAR ? GP_KINDS : GP_KINDS + 1;
    if (event->type == GP_EVENT_SEGMENT_MAP || event->type == GP_EVENT_SEGMENT_UNMAP)
        return GP_KINDS + 2;
    return gp_kind_is(event->kind, GP_TRAIT_APART) ? event->kind : GP_KIND_LINEAR;
}

static const struct gp_rec_event *match_event(const struct gp_recording *recording, uint32_t index)
{
    return index < recording->event_count ? &recording->events[index]
                                          : &recording->baseline[index - recording->event_count];
}

static bool match_same(const void *key, uint32_t index)
{
    const struct gp_match_key *wanted = key;
    const struct gp_rec_event *one = match_event(wanted->recording, index), *other = wanted->event;
    return one->address == other->address && one->device == other->device && match_space(one) == match_space(other);
}

/* Device, space and an address of so many bits make one number, and numbers have hashes of their own.
 * To compare the events would touch two cache lines of the recording that nothing else needs. */
#define GP_MATCH_ADDRESS_BITS 48

static gp_hash_same_fn *match_needs(const struct gp_recording *recording)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < recording->baseline_count; i++)
        bits |= recording->baseline[i].address;
    for (size_t i = 0; i < recording->event_count; i++)
        bits |= recording->events[i].address;
    return bits >> GP_MATCH_ADDRESS_BITS ? match_same : NULL;
}

static struct gp_match_key match_key(const struct gp_recording *recording, const struct gp_rec_event *event)
{
    uint64_t number =
        event->address ^ (uint64_t)event->device << 56 ^ (uint64_t)match_space(event) << GP_MATCH_ADDRESS_BITS;
    return (struct gp_match_key){recording, event, gp_hash_of_number(number)};
}

/* A free may have a later time than the driver's: where a recording has the end of the call,
 * another thread may have got the address, and recorded that, before. Such a late free ends the
 * earlier allocation at the address: the one that was live until the address was allocated again.
 * If events were lost, it may also be the free of the newer allocation, the older one's free being
 * lost; then a free counts as late only within this time. A thread is rarely stopped for longer
 * between two instructions. */
#define GP_MATCH_LATE_NS 1000000ull

/* While an allocation is live, its peer is the older one (with a smaller index) whose address it
 * got, if any. */
static bool match_late(const struct gp_recording *recording, uint32_t alloc, size_t close)
{
    if (alloc >= recording->event_count || recording->peer[alloc] == GP_REC_NONE)
        return false;
    return recording->dropped == 0 ||
           recording->events[close].time_ns - recording->events[alloc].time_ns < GP_MATCH_LATE_NS;
}

static bool match_open(struct gp_match *match, const struct gp_match_key *key, uint32_t index)
{
    struct gp_recording *recording = match->recording;
    bool added;
    uint32_t *live = gp_hash_add(&match->live, key->hash, match->same, key, index, &added);
    if (live && !added && *live < recording->event_count) {
        recording->peer[*live] = index;
        recording->peer[index] = *live;
    }
    if (live)
        *live = index;
    return live;
}

static void match_close(struct gp_match *match, const struct gp_match_key *key, uint32_t index)
{
    struct gp_recording *recording = match->recording;
    uint32_t *live = gp_hash_find(&match->live, key->hash, match->same, key);
    if (!live)
        return;
    uint32_t alloc = *live;
    if (match_late(recording, alloc, index)) {
        recording->peer[index] = recording->peer[alloc];
        recording->peer[alloc] = GP_REC_NONE;
        return;
    }
    recording->peer[index] = alloc;
    if (alloc < recording->event_count)
        recording->peer[alloc] = index;
    gp_hash_remove_at(&match->live, live);
}

#define GP_MATCH_AHEAD 16u /* events: so long takes a load from memory */

int gp_recording_match(struct gp_recording *recording)
{
    struct gp_match match = {.recording = recording, .same = match_needs(recording)};
    size_t count = recording->event_count;
    bool ok = true;
    for (size_t i = 0; ok && i < recording->baseline_count; i++) {
        const struct gp_match_key key = match_key(recording, &recording->baseline[i]);
        ok = match_open(&match, &key, (uint32_t)(recording->event_count + i));
    }
    for (size_t i = 0; ok && i < count; i++) {
        const struct gp_match_key key = match_key(recording, &recording->events[i]);
        if (i + GP_MATCH_AHEAD < count)
            gp_hash_fetch(&match.live, match_key(recording, &recording->events[i + GP_MATCH_AHEAD]).hash);
        recording->peer[i] = GP_REC_NONE;
        if (match_opens(key.event))
            ok = match_open(&match, &key, (uint32_t)i);
        else if (match_closes(key.event))
            match_close(&match, &key, (uint32_t)i);
    }
    for (uint32_t i = 0; ok && i < match.live.room; i++) {
        const struct gp_hash_slot *slot = &match.live.slots[i];
        if (slot->used && slot->number < recording->event_count)
            recording->peer[slot->number] = GP_REC_NONE;
    }
    gp_hash_free(&match.live);
    return ok ? 0 : -ENOMEM;
}
