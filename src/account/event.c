/* SPDX-License-Identifier: MIT
 *
 * event.c: writes events into the ring, and failed calls into their table.
 */
#include "account/event.h"
#include "account/feed/failed.h"
#include "account/feed/feed.h"
#include "account/framework.h"
#include "account/internal.h"
#include "account/oomfacts.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/gauge.h"
#include "base/map.h"
#include "base/ring.h"
#include "base/thread.h"
#include "stack/stack.h"
#include <gpuprof/wire.h>
#include <string.h>

/* Whether the event moves memory that sites sum. A handle of cuMemCreate is a segment, and a framework's
 * or cache's segment is linear memory, whose blocks have sites. */
static bool event_is_summed(const struct gp_wire_event *event)
{
    bool block = event->type == GP_EVENT_ALLOC || event->type == GP_EVENT_FREE;
    bool handle = event->type == GP_EVENT_SEGMENT_ALLOC || event->type == GP_EVENT_SEGMENT_FREE;
    return (block && gp_gauge_parts(event->kind) & (GP_PART_ALLOCATED | GP_PART_RESERVED)) ||
           (handle && event->kind == GP_KIND_VMM);
}

static GP_COLD void event_plain(const struct gp_wire_event *event)
{
    if (!event_is_summed(event))
        return;
    if (event->type == GP_EVENT_ALLOC || event->type == GP_EVENT_SEGMENT_ALLOC)
        gp_site_plain_alloc(event->device, event->bytes);
    else
        gp_site_plain_free(event->device, event->bytes);
}

/* This is the only place that reports allocations and frees to the call sites. */
static void event_site(const struct gp_wire_event *event)
{
    bool segment = event->kind == GP_KIND_LINEAR && (event->type == GP_EVENT_SEGMENT_ALLOC ||
                                                     event->type == GP_EVENT_SEGMENT_FREE); /* its blocks count */
    if (segment)
        return;
    if (!event->site)
        event_plain(event);
    else if (event->type == GP_EVENT_ALLOC || event->type == GP_EVENT_SEGMENT_ALLOC)
        gp_site_alloc(event->site, event->bytes);
    else if (event->type == GP_EVENT_FREE || event->type == GP_EVENT_SEGMENT_FREE)
        gp_site_free(event->site, event->bytes);
}

/* Blocks without a site are summed only for the row of what has none. */
static inline bool event_sums_site(uint32_t site)
{
    return GP_UNLIKELY(site || gp_site_is_partial());
}

void gp_event_write(struct gp_wire_event *event)
{
    struct gp_thread *me = &gp_thread;
    struct gp_ring_cursor cursor = {.turn = me->chunk_turn, .used = me->chunk_used};
    if (!event->time_ns)
        event->time_ns = gp_clock_ns();
    event->tid = me->tid;
    event->cost = me->cost;
    bool armed = __atomic_load_n(gp_accounts.setup.armed, __ATOMIC_RELAXED);
    if (GP_UNLIKELY(armed))
        gp_accounts.setup.coming(event->time_ns);
    if (event_sums_site(event->site))
        event_site(event);
    gp_ring_write(gp_accounts.setup.ring, &cursor, event, me->tid); /* the ring counts drops */
    me->chunk_turn = cursor.turn;
    me->chunk_used = (uint8_t)cursor.used;
    if (GP_UNLIKELY(armed))
        gp_accounts.setup.heard();
}

uint32_t gp_event_here(int device, enum gp_wire_kind kind)
{
    const unsigned summed = GP_PART_ALLOCATED | GP_PART_RESERVED;
    /* An imported block belongs to another process, and its size is learned later. */
    return gp_site_on() && kind != GP_KIND_IMPORTED ? gp_site_here(device, kind, gp_gauge_parts(kind) & summed) : 0;
}

uint32_t gp_event_site_of(const struct gp_record *record)
{
    /* The blocks of a segment are summed, so its own site is not.  GP_NO_DEVICE has no site. */
    if (record->segment)
        return gp_site_on() ? gp_site_here(record->device, record->kind, false) : 0;
    return gp_event_here(record->device, record->kind);
}

/* Segments of a framework look like those of our cache: linear memory, which a growable segment maps
 * piece by piece. So the handles of its pieces make no events of their own: false. */
static bool event_segment(const struct gp_record *record, struct gp_wire_event *event)
{
    event->kind = GP_KIND_LINEAR;
    if (record->kind == GP_KIND_VMM)
        return event->type == GP_EVENT_SEGMENT_MAP || event->type == GP_EVENT_SEGMENT_UNMAP;
    event->type = event->type == GP_EVENT_ALLOC ? GP_EVENT_SEGMENT_ALLOC : GP_EVENT_SEGMENT_FREE;
    return true;
}

static __attribute__((noinline)) void event_record(enum gp_wire_event_type type, const struct gp_record *record,
                                                   uint64_t stream, uint64_t time_ns)
{
    struct gp_wire_event event = {
        .time_ns = time_ns,
        .type = (uint8_t)type,
        .kind = record->kind,
        .device = record->device,
        .site = record->site,
    };
    event.address = record->key;
    event.bytes = record->bytes;
    event.requested_bytes = record->requested_bytes;
    event.stream = stream;
    if (GP_LIKELY(!record->segment) || event_segment(record, &event))
        gp_event_write(&event);
}

/* The words of an event that only the ring wants need not be put together in memory. */
void gp_event_record_at(enum gp_wire_event_type type, const struct gp_record *record, uint64_t stream, uint64_t time_ns)
{
    struct gp_thread *me = &gp_thread;
    if (GP_UNLIKELY(!time_ns || record->segment || event_sums_site(record->site) ||
                    __atomic_load_n(gp_accounts.setup.armed, __ATOMIC_RELAXED))) {
        event_record(type, record, stream, time_ns);
        return;
    }
    const uint64_t words[GP_RING_WORDS] = {
        [1] = time_ns,
        [2] = record->key,
        [3] = record->bytes,
        [4] = record->requested_bytes,
        [5] = stream,
        [6] = me->tid, /* and no site */
        [7] = (uint64_t)type | (uint64_t)record->kind << 8 | (uint64_t)record->device << 16 | (uint64_t)me->cost << 24,
    };
    if (GP_LIKELY(gp_ring_put(gp_accounts.setup.ring, me->chunk_turn, me->chunk_used, words)))
        me->chunk_used++;
    else
        event_record(type, record, stream, time_ns);
}

#define EVENT_AT(_field, _byte) _Static_assert(offsetof(struct gp_wire_event, _field) == (_byte), "a word above")
EVENT_AT(time_ns, 8);
EVENT_AT(address, 16);
EVENT_AT(bytes, 24);
EVENT_AT(requested_bytes, 32);
EVENT_AT(stream, 40);
EVENT_AT(tid, 48);
EVENT_AT(site, 52);
EVENT_AT(type, 56);
EVENT_AT(kind, 57);
EVENT_AT(device, 58);
EVENT_AT(cost, 59);
EVENT_AT(error, 60);

void gp_event_record(enum gp_wire_event_type type, const struct gp_record *record, uint64_t stream)
{
    gp_event_record_at(type, record, stream, type == GP_EVENT_ALLOC ? record->time_ns : 0);
}

void gp_event_write_if_heard(struct gp_wire_event *event)
{
    if (event->time_ns && GP_LIKELY(gp_event_heard()))
        gp_event_write(event);
    else if (event_sums_site(event->site))
        event_site(event);
}

void gp_event_block(enum gp_wire_event_type type, const struct gp_record *record, uint64_t time_ns)
{
    if (GP_UNLIKELY(gp_event_heard()))
        gp_event_record_at(type, record, 0, time_ns);
    else if (event_sums_site(record->site))
        event_site(&(struct gp_wire_event){.type = (uint8_t)type,
                                           .kind = record->kind,
                                           .device = record->device,
                                           .site = record->site,
                                           .bytes = record->bytes});
}

void gp_event_marked(uint32_t mark, const struct gp_record *record, uint64_t time_ns)
{
    static const uint8_t types[] = {[GP_SLEEP_FALLS] = GP_EVENT_FREE,
                                    [GP_SLEEP_WAKES] = GP_EVENT_ALLOC,
                                    [GP_SLEEP_ENDS] = GP_EVENT_SNAPSHOT, /* it moves nothing */
                                    [GP_FREE_SEGMENT] = GP_EVENT_FREE};
    struct gp_wire_event event = {
        .time_ns = time_ns,
        .type = types[mark],
        .kind = record->kind,
        .device = record->device,
        .site = record->site,
        .error = mark,
    };
    event.address = record->key;
    event.bytes = event.requested_bytes = record->bytes;
    if (mark == GP_FREE_SEGMENT)
        gp_event_write(&event);
    else
        gp_event_write_if_heard(&event);
}

void gp_feed_event(enum gp_wire_event_type type, const char *name)
{
    struct gp_wire_event event = {.type = (uint8_t)type, .device = 255};
    strncpy(event.name, name ? name : "", sizeof(event.name) - 1);
    gp_event_write(&event);
}

/* ---- failures ------------------------------------------------------------------------------------------------- */

static bool failure_matches(const struct gp_wire_failure *row, const char *api, uint32_t error)
{
    return row->error == error && strncmp(row->api, api, sizeof(row->api)) == 0;
}

/* A row is claimed once and its name never changes: error 0 -> busy -> error. A reader that sees
 * the error also sees the name. */
static void failure_count(const char *api, uint32_t error)
{
    const uint32_t busy = UINT32_MAX;
    for (unsigned i = 0; i < GP_WIRE_FAILURES; i++) {
        struct gp_wire_failure *row = &gp_accounts.setup.failures[i];
        uint32_t free_row = 0;
        /* [failure.A] acquire: the name; pairs with [failure.R]. */
        uint32_t seen = __atomic_load_n(&row->error, __ATOMIC_ACQUIRE);
        if (seen == 0 &&
            __atomic_compare_exchange_n(&row->error, &free_row, busy, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            strncpy(row->api, api, sizeof(row->api) - 1);
            __atomic_fetch_add(&row->count, 1, __ATOMIC_RELAXED);
            __atomic_store_n(&row->error, error, __ATOMIC_RELEASE); /* [failure.R] pairs with [failure.A] */
            return;
        }
        if (seen == error && failure_matches(row, api, error)) {
            __atomic_fetch_add(&row->count, 1, __ATOMIC_RELAXED);
            return;
        }
    }
    gp_feed_lost(GP_LOST_FAILURE);
}

GP_COLD void gp_event_oom(const char *api, uint64_t requested_bytes, int device, int failures)
{
    struct gp_account *account = device < 0 ? NULL : gp_account_of(device);
    /* The kind that was asked for is not known here; it only keeps rows of sites apart. */
    uint32_t site = device < 0 ? 0 : gp_event_here(device, GP_KIND_LINEAR);
    if (account)
        __atomic_fetch_add(&account->x_ooms, 1, __ATOMIC_RELAXED);
    struct gp_wire_event event = {
        .type = GP_EVENT_OOM, .device = device < 0 ? 255 : (uint8_t)device, .error = GP_ERROR_OUT_OF_MEMORY};
    event.bytes = requested_bytes;
    event.requested_bytes = requested_bytes;
    event.site = site;
    gp_event_write(&event);
    gp_oom_capture(api, requested_bytes, device, site, failures);
}

void gp_feed_failed(const char *api, uint32_t error, uint64_t requested_bytes, int device, enum gp_wire_kind kind)
{
    failure_count(api, error);
    if (error == GP_ERROR_OUT_OF_MEMORY && !gp_framework_failed(device, kind))
        gp_event_oom(api, requested_bytes, device, -1);
}
