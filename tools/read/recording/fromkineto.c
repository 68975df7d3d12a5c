/* SPDX-License-Identifier: MIT
 * fromkineto.c: makes a recording of a trace of PyTorch's profiler with profile_memory=True (Kineto;
 * export_chrome_trace), which has an event "[memory]" for each block of the allocator; see internal.h.
 *
 * Bounds: each event is looked at a constant number of times; each memory event becomes at most five events.
 *
 * An event has the size that the allocator granted and the totals of the device behind it.  The totals say what was there
 * before the trace, when the reserve changed, and in which order two threads came that had the same microsecond.  Which
 * segment a block lies in is not known, so the reserve is one sum, as that of a driver's pool. */
#include <base/text.h>
#include <errno.h>
#include <read/common/hash.h>
#include <read/recording/fromkineto.h>
#include <read/recording/internal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the memory from before the trace of which only the sum is known, and of the reserve: no block has them. */
#define GP_KINETO_BEFORE  1u
#define GP_KINETO_RESERVE 2u
/* Events of two threads may be so far from their order. */
#define GP_KINETO_AHEAD 32u
#define GP_KINETO_CUDA  1 /* c10::DeviceType */

struct gp_kineto {
    struct gp_read *read;
    struct gp_torch_sites sites;
    struct gp_kineto_span *spans;
    struct gp_kineto_memory *memory;
    size_t span_count, memory_count, span_room, memory_room;
    uint64_t base_ns, first_ns, last_ns, host_events;
    int64_t process;
    bool processes, far_device;
};

struct gp_kineto_item { /* an event of the file */
    const struct gp_pickle *name, *category, *time, *duration, *arguments;
    int64_t process, thread;
};

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static struct gp_kineto_item kineto_item(const struct gp_pickle *from)
{
    struct gp_kineto_item item = {.process = -1, .thread = -1};
    uint32_t count = from->type == GP_PICKLE_DICT ? from->items->count : 0;
    for (uint32_t i = 0; i + 1 < count && i < 64; i += 2) {
        const struct gp_pickle *key = &from->items->at[i], *value = key + 1;
        if (gp_pickle_is(key, "name"))
            item.name = value;
        else if (gp_pickle_is(key, "cat"))
            item.category = value;
        else if (gp_pickle_is(key, "ts"))
            item.time = value;
        else if (gp_pickle_is(key, "dur"))
            item.duration = value;
        else if (gp_pickle_is(key, "args"))
            item.arguments = value;
        else if (gp_pickle_is(key, "pid"))
            item.process = gp_pickle_number(value, -1);
        else if (gp_pickle_is(key, "tid"))
            item.thread = gp_pickle_number(value, -1);
    }
    return item;
}

/* Microseconds with a fraction, in nanoseconds.  UINT64_MAX: no time. */
static uint64_t kineto_time(const struct gp_pickle *value)
{
    double us = -1;
    if (value && value->type == GP_PICKLE_INT)
        us = (double)value->number;
    else if (value && value->type == GP_PICKLE_FLOAT)
        us = value->real;
    if (!(us >= 0 && us < 1e15 * 4)) /* not a number included */
        return UINT64_MAX;
    uint64_t whole = (uint64_t)us;
    return whole * 1000 + (uint64_t)((us - (double)whole) * 1000 + 0.5);
}

static struct gp_torch_text kineto_text(const struct gp_pickle *value)
{
    bool text = value && value->type == GP_PICKLE_TEXT;
    return (struct gp_torch_text){text ? value->text : "", text ? value->length : 0};
}

static void kineto_seen(struct gp_kineto *kineto, uint64_t start_ns, uint64_t end_ns)
{
    kineto->first_ns = start_ns < kineto->first_ns ? start_ns : kineto->first_ns;
    kineto->last_ns = end_ns > kineto->last_ns ? end_ns : kineto->last_ns;
}

static void kineto_take_span(struct gp_kineto *kineto, const struct gp_kineto_item *item, uint64_t time_ns)
{
    uint64_t length = kineto_time(item->duration);
    if (item->thread < 0 || length == UINT64_MAX || !item->name || item->name->type != GP_PICKLE_TEXT ||
        !GP_READ_ROOM(kineto->read, kineto->spans, kineto->span_room, kineto->span_count + 1, GP_READ_EVENTS))
        return;
    kineto->spans[kineto->span_count] =
        (struct gp_kineto_span){.start_ns = time_ns,
                                .end_ns = time_ns + length,
                                .name = kineto_text(item->name),
                                .from = kineto_text(gp_pickle_get(item->arguments, "CallFrom")),
                                .thread = item->thread,
                                .order = (uint32_t)kineto->span_count,
                                .python = gp_pickle_is(item->category, "python_function"),
                                .note = gp_pickle_is(item->category, "user_annotation")};
    kineto->span_count++;
    kineto_seen(kineto, time_ns, time_ns + length);
}

static void kineto_take_memory(struct gp_kineto *kineto, const struct gp_kineto_item *item, uint64_t time_ns, bool oom)
{
    int64_t type = gp_pickle_number(gp_pickle_get(item->arguments, "Device Type"), -1);
    int64_t device = gp_pickle_number(gp_pickle_get(item->arguments, "Device Id"), -1);
    int64_t bytes = gp_pickle_number(gp_pickle_get(item->arguments, "Bytes"), 0);
    kineto->host_events += type == 0;
    if (type != GP_KINETO_CUDA || bytes == 0)
        return;
    kineto->processes |= kineto->memory_count && item->process != kineto->process;
    kineto->far_device |= device < 0 || device >= GP_WIRE_GPUS || bytes > (int64_t)GP_READ_ALLOCATION_LIMIT ||
                          bytes < -(int64_t)GP_READ_ALLOCATION_LIMIT;
    if (kineto->far_device ||
        !GP_READ_ROOM(kineto->read, kineto->memory, kineto->memory_room, kineto->memory_count + 1, GP_READ_EVENTS / 8))
        return;
    kineto->process = item->process;
    int64_t total = gp_pickle_number(gp_pickle_get(item->arguments, "Total Allocated"), -1);
    int64_t reserved = gp_pickle_number(gp_pickle_get(item->arguments, "Total Reserved"), -1);
    kineto->memory[kineto->memory_count] =
        (struct gp_kineto_memory){.time_ns = time_ns,
                                  .address = (uint64_t)gp_pickle_number(gp_pickle_get(item->arguments, "Addr"), 0),
                                  .bytes = bytes,
                                  .total = total > (int64_t)GP_READ_ALLOCATION_LIMIT ? -1 : total,
                                  .reserved = reserved > (int64_t)GP_READ_ALLOCATION_LIMIT ? -1 : reserved,
                                  .thread = item->thread,
                                  .order = (uint32_t)kineto->memory_count,
                                  .device = (uint8_t)device,
                                  .oom = oom};
    kineto->memory_count++;
    kineto_seen(kineto, time_ns, time_ns);
}

static void kineto_take(struct gp_kineto *kineto, const struct gp_pickle *from)
{
    struct gp_kineto_item item = kineto_item(from);
    uint64_t time_ns = kineto_time(item.time);
    if (time_ns == UINT64_MAX || __builtin_add_overflow(time_ns, kineto->base_ns, &time_ns) || time_ns > INT64_MAX / 2)
        return;
    if (gp_pickle_is(item.name, "[memory]"))
        kineto_take_memory(kineto, &item, time_ns, false);
    else if (gp_pickle_is(item.name, "[OutOfMemory]"))
        kineto_take_memory(kineto, &item, time_ns, true);
    else if (gp_pickle_is(item.category, "python_function") || gp_pickle_is(item.category, "cpu_op") ||
             gp_pickle_is(item.category, "user_annotation"))
        kineto_take_span(kineto, &item, time_ns);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static struct gp_rec_event *kineto_add(struct gp_kineto *kineto, bool baseline, struct gp_rec_event event)
{
    struct gp_read *read = kineto->read;
    struct gp_recording *r = read->recording;
    bool room = baseline ? GP_READ_ROOM(read, r->baseline, read->baseline_room, r->baseline_count + 1, GP_READ_EVENTS)
                         : GP_READ_ROOM(read, r->events, read->events_room, r->event_count + 1, GP_READ_EVENTS);
    struct gp_rec_event *at = !room      ? NULL
                              : baseline ? &r->baseline[r->baseline_count++]
                                         : &r->events[r->event_count++];
    if (at)
        *at = event;
    return at;
}

static int kineto_order(const void *one, const void *other)
{
    const struct gp_kineto_memory *a = one, *b = other;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    if (a->time_ns != b->time_ns)
        return a->time_ns < b->time_ns ? -1 : 1;
    return (a->order > b->order) - (a->order < b->order);
}

static bool kineto_follows(const struct gp_kineto_memory *event, int64_t total)
{
    return event->oom || event->total < 0 || event->total - event->bytes == total;
}

/* Two threads may take their times in another order than that of the allocator: the one whose total follows is next. */
static void kineto_mend(struct gp_kineto_memory *events, size_t count, int64_t total)
{
    for (size_t k = 1; k < count && k < GP_KINETO_AHEAD; k++) {
        if (events[k].oom || events[k].total < 0 || !kineto_follows(&events[k], total))
            continue;
        struct gp_kineto_memory next = events[k];
        memmove(events + 1, events, k * sizeof(*events));
        next.time_ns = events[1].time_ns;
        events[0] = next;
        return;
    }
}

static void kineto_reserve(struct gp_kineto *kineto, struct gp_rec_event event, int64_t *told, int64_t reserved)
{
    event.address = GP_KINETO_RESERVE;
    event.site = 0;
    if (reserved < 0 || reserved == *told)
        return;
    if (*told > 0) {
        event.type = GP_EVENT_SEGMENT_UNMAP;
        event.bytes = (uint64_t)*told;
        kineto_add(kineto, false, event);
    }
    if (reserved > 0) {
        event.type = GP_EVENT_SEGMENT_MAP;
        event.bytes = (uint64_t)reserved;
        kineto_add(kineto, false, event);
    }
    *told = reserved;
}

static uint32_t kineto_before(struct gp_kineto *kineto, uint32_t *site)
{
    if (!*site)
        *site = gp_torch_site_named(kineto->read, &kineto->sites, "allocated before the trace");
    return *site;
}

/* A free of what the trace did not allocate: the block was there before it, unless the trace has freed the address already
 * or its allocation is missing. */
static void kineto_unknown(struct gp_kineto *kineto, struct gp_rec_event event, bool gone, uint32_t *before)
{
    struct gp_recording *r = kineto->read->recording;
    event.type = GP_EVENT_ALLOC;
    if (gone) {
        r->dropped++;
        kineto_add(kineto, false, event);
        return;
    }
    event.time_ns = kineto->first_ns;
    event.site = kineto_before(kineto, before);
    if (kineto_add(kineto, true, event))
        r->before_bytes += event.bytes;
}

/* The events of one device, in the order of time. */
static void kineto_device(struct gp_kineto *kineto, struct gp_kineto_memory *events, size_t count, uint32_t *before)
{
    struct gp_read *read = kineto->read;
    struct gp_recording *r = read->recording;
    struct gp_hash live = {0}; /* address -> the site + 1; 0: freed */
    uint8_t device = gp_read_device(read, events[0].device);
    int64_t told = 0, start = events[0].oom || events[0].total < 0 ? 0 : events[0].total - events[0].bytes;
    uint64_t before_bytes = r->before_bytes, breaks = 0;
    struct gp_rec_event event = {.kind = GP_KIND_POOL, .device = device, .time_ns = kineto->first_ns};
    int64_t total = start;
    kineto_reserve(kineto, event, &told, events[0].reserved);
    for (size_t i = 0; i < count && !read->error; i++) {
        if (!kineto_follows(&events[i], total))
            kineto_mend(events + i, count - i, total);
        const struct gp_kineto_memory *now = &events[i];
        bool alloc = now->bytes > 0;
        uint32_t site = 0;
        breaks += !kineto_follows(now, total);
        event.time_ns = now->time_ns;
        event.address = now->address;
        event.bytes = (uint64_t)(alloc ? now->bytes : -now->bytes);
        event.site = now->site;
        event.thread = gp_read_thread(read, (uint32_t)now->thread) & 0xffffff;
        event.type = now->oom ? GP_EVENT_OOM : alloc ? GP_EVENT_ALLOC : GP_EVENT_FREE;
        if (now->oom) {
            kineto_add(kineto, false, event);
            continue;
        }
        total = now->total >= 0 ? now->total : total + now->bytes;
        kineto_reserve(kineto, event, &told, now->reserved);
        bool known = gp_hash_get(&live, now->address, &site);
        if (alloc && known && site)
            r->dropped++; /* its free is missing */
        if (!alloc && (!known || !site))
            kineto_unknown(kineto, event, known, before);
        else if (!alloc)
            event.site = site - 1;
        kineto_add(kineto, false, event);
        if (gp_hash_set(&live, now->address, alloc ? event.site + 1 : 0) != 0)
            read->error = -ENOMEM;
    }
    before_bytes = r->before_bytes - before_bytes;
    if (start > 0 && (uint64_t)start > before_bytes) {
        event = (struct gp_rec_event){.type = GP_EVENT_ALLOC,
                                      .kind = GP_KIND_POOL,
                                      .device = device,
                                      .time_ns = kineto->first_ns,
                                      .address = GP_KINETO_BEFORE,
                                      .bytes = (uint64_t)start - before_bytes,
                                      .site = kineto_before(kineto, before)};
        kineto_add(kineto, true, event);
        r->before_bytes += event.bytes;
    }
    if (start < 0 || (uint64_t)start < before_bytes)
        breaks++; /* more was freed than the totals say was there */
    r->dropped += breaks;
    /* A trace that begins while there is memory may have missed the peak. */
    r->devices[device].bound = breaks ? GP_REC_ABOUT : r->before_bytes ? GP_REC_AT_LEAST : GP_REC_EXACT;
    gp_hash_free(&live);
}

static void kineto_mark(struct gp_kineto *kineto, const struct gp_kineto_span *span, bool end)
{
    char name[512];
    int length = snprintf(name, sizeof(name), "%s%.*s", end ? "/" : "",
                          (int)(span->name.length < 500 ? span->name.length : 500), span->name.at);
    kineto_add(kineto, false,
               (struct gp_rec_event){.type = GP_EVENT_MARK,
                                     .kind = GP_KIND_NONE,
                                     .device = GP_REC_NO_DEVICE,
                                     .time_ns = end ? span->end_ns : span->start_ns,
                                     .bytes = gp_read_string(kineto->read, name, (size_t)length)});
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void kineto_place(struct gp_kineto *kineto, const struct gp_pickle *root)
{
    struct gp_read *read = kineto->read;
    struct gp_recording *r = read->recording;
    const struct gp_pickle *group = gp_pickle_get(root, "distributedInfo");
    const struct gp_pickle *gpus = gp_pickle_get(root, "deviceProperties");
    int64_t rank = gp_pickle_number(gp_pickle_get(group, "rank"), -1);
    int64_t world = gp_pickle_number(gp_pickle_get(group, "world_size"), -1);
    struct gp_torch_text host = kineto_text(gp_pickle_get(root, "host_name"));
    r->pid = kineto->process > 0 && kineto->process <= INT32_MAX ? (uint32_t)kineto->process : 0;
    read->host = gp_read_string(read, host.at, host.length < 256 ? host.length : 256);
    if (rank >= 0 && rank < INT32_MAX && world < INT32_MAX) {
        r->has_rank = true;
        r->rank = (int32_t)rank;
        r->local_rank = -1;
        r->world_size = world > 0 ? (int32_t)world : -1;
    }
    for (uint32_t i = 0; i < gp_pickle_count(gpus) && i < GP_WIRE_GPUS; i++) {
        const struct gp_pickle *gpu = gp_pickle_at(gpus, i), *name = gp_pickle_get(gpu, "name");
        int64_t id = gp_pickle_number(gp_pickle_get(gpu, "id"), -1);
        int64_t bytes = gp_pickle_number(gp_pickle_get(gpu, "totalGlobalMem"), -1);
        for (uint32_t d = 0; d < r->device_count; d++) {
            if (r->devices[d].index != id)
                continue;
            r->devices[d].total_bytes = bytes > 0 && bytes <= (int64_t)GP_READ_ALLOCATION_LIMIT ? bytes : -1;
            gp_text_clean(r->devices[d].name, sizeof(r->devices[d].name), kineto_text(name).at,
                          kineto_text(name).length);
        }
    }
}

static int kineto_build(struct gp_kineto *kineto, const struct gp_pickle *root)
{
    struct gp_read *read = kineto->read;
    struct gp_recording *r = read->recording;
    uint32_t before = 0;
    if (!GP_READ_ROOM(read, r->sites, read->sites_room, 1, GP_READ_ROWS))
        return read->error;
    r->site_count = 1;
    gp_read_thread(read, 0);
    gp_read_stream(read, 0);
    if (!gp_kineto_stacks(read, &kineto->sites, kineto->spans, kineto->span_count, kineto->memory,
                          kineto->memory_count))
        return read->error;
    qsort(kineto->memory, kineto->memory_count, sizeof(*kineto->memory), kineto_order);
    for (size_t i = 0, end; i < kineto->memory_count && !read->error; i = end) {
        for (end = i; end < kineto->memory_count && kineto->memory[end].device == kineto->memory[i].device;)
            end++;
        kineto_device(kineto, kineto->memory + i, end - i, &before);
    }
    for (size_t i = 0; i < kineto->span_count && !read->error; i++) {
        if (!kineto->spans[i].note)
            continue;
        kineto_mark(kineto, &kineto->spans[i], false);
        kineto_mark(kineto, &kineto->spans[i], true);
    }
    for (uint32_t i = 1; i < r->site_count; i++)
        r->sites[i].kind = GP_KIND_POOL;
    kineto_place(kineto, root);
    r->before_sum = r->before_bytes > 0;
    r->begin_ns = r->begin_unix_ns = kineto->first_ns;
    r->end_ns = kineto->last_ns;
    r->from_torch = r->complete = r->polled = true;
    r->delivered = r->event_count;
    r->tried = r->delivered + r->dropped;
    read->comm = gp_read_string(read, "PyTorch profiler", strlen("PyTorch profiler"));
    read->has_process = read->has_counts = true;
    return read->error;
}

static int kineto_refuse(const struct gp_kineto *kineto, char *why, size_t why_bytes)
{
    const char *what = "";
    if (kineto->processes)
        what = "it has the memory of several processes: name the trace of each";
    else if (kineto->far_device)
        what = "it has memory of an impossible device or size";
    else if (!kineto->memory_count && kineto->host_events)
        what = "its memory events are of the CPU alone";
    else if (!kineto->memory_count)
        what =
            "it has no memory events of a GPU: PyTorch's profiler writes them with profile_memory=True, other programs "
            "do not";
    if (what[0])
        snprintf(why, why_bytes, "a trace of events, of Kineto or Chrome, but %s", what);
    return what[0] ? -EPROTO : 0;
}

int gp_read_kineto(struct gp_read *read, struct gp_pickle_file *values, char *why, size_t why_bytes)
{
    const struct gp_pickle *events = gp_pickle_get(&values->root, "traceEvents");
    int64_t base = gp_pickle_number(gp_pickle_get(&values->root, "baseTimeNanoseconds"), 0);
    struct gp_kineto kineto = {.read = read, .base_ns = base > 0 ? (uint64_t)base : 0, .first_ns = UINT64_MAX};
    for (uint32_t i = 0; i < gp_pickle_count(events) && !read->error; i++)
        kineto_take(&kineto, gp_pickle_at(events, i));
    int rc = read->error ? read->error : kineto_refuse(&kineto, why, why_bytes);
    if (!rc)
        rc = kineto_build(&kineto, &values->root);
    gp_torch_sites_free(&kineto.sites);
    free(kineto.spans);
    free(kineto.memory);
    return rc;
}
