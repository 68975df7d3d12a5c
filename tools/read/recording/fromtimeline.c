/* SPDX-License-Identifier: MIT
 * fromtimeline.c: makes a recording of what export_memory_timeline of PyTorch's profiler writes for one device, in JSON;
 * see internal.h.  A file .raw.json has rows [time, action, bytes, category] without addresses: the newest block of that
 * size and category ends.  A file .json has the times, and for each the sums of the categories: a change of such a sum
 * is a block here, and a sum that falls ends the newest ones.
 *
 * Bounds: of a raw file a row becomes at most one event; of sums a number becomes at most two blocks, and each ends
 * once. */
#include <errno.h>
#include <read/common/hash.h>
#include <read/recording/fromtorch.h>
#include <read/recording/internal.h>
#include <read/recording/pickleread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GP_TIMELINE_CATEGORIES 8u
/* Profilers in use have these; the numbers are places in this list. */
static const char *const category_names[GP_TIMELINE_CATEGORIES] = {
    "PARAMETER", "OPTIMIZER_STATE", "INPUT", "TEMPORARY", "ACTIVATION", "GRADIENT", "AUTOGRAD_DETAIL", "Unknown",
};

enum { GP_TIMELINE_BEFORE = 1, GP_TIMELINE_CREATE, GP_TIMELINE_VERSION, GP_TIMELINE_DESTROY }; /* of the raw file */

struct gp_timeline {
    struct gp_read *read;
    struct gp_torch_sites sites;
    struct gp_hash live; /* size and category, or a category -> its newest block */
    struct gp_timeline_block {
        uint64_t bytes;
        uint32_t older; /* of the same key, + 1 */
    } * blocks;
    size_t block_count, block_room;
    uint32_t category_sites[GP_TIMELINE_CATEGORIES];
    uint64_t first_ns, last_ns;
};

static bool timeline_number(const struct gp_pickle *value, int64_t *number)
{
    bool is = value && value->type == GP_PICKLE_INT;
    *number = is ? value->number : 0;
    return is;
}

static uint32_t timeline_site(struct gp_timeline *timeline, uint32_t category)
{
    if (!timeline->category_sites[category])
        timeline->category_sites[category] =
            gp_torch_site_named(timeline->read, &timeline->sites, category_names[category]);
    return timeline->category_sites[category];
}

static void timeline_add(struct gp_timeline *timeline, bool baseline, struct gp_rec_event event)
{
    struct gp_read *read = timeline->read;
    struct gp_recording *r = read->recording;
    if (baseline && GP_READ_ROOM(read, r->baseline, read->baseline_room, r->baseline_count + 1, GP_READ_EVENTS)) {
        r->baseline[r->baseline_count++] = event;
        r->before_bytes += event.bytes;
        r->before_blocks++;
    } else if (!baseline && GP_READ_ROOM(read, r->events, read->events_room, r->event_count + 1, GP_READ_EVENTS)) {
        r->events[r->event_count++] = event;
    }
}

/* Blocks have no addresses: their number is one, from 4096 on. */
static struct gp_rec_event timeline_event(struct gp_timeline *timeline, uint32_t block, uint32_t category,
                                          uint64_t time_ns, uint8_t type)
{
    return (struct gp_rec_event){.type = type,
                                 .kind = GP_KIND_POOL,
                                 .time_ns = time_ns,
                                 .address = 4096ull * (block + 1ull),
                                 .bytes = timeline->blocks[block].bytes,
                                 .site = timeline_site(timeline, category)};
}

static void timeline_alloc(struct gp_timeline *timeline, uint64_t key, uint64_t bytes, uint32_t category,
                           uint64_t time_ns, bool baseline)
{
    struct gp_read *read = timeline->read;
    uint32_t older = 0, block = (uint32_t)timeline->block_count;
    if (!GP_READ_ROOM(read, timeline->blocks, timeline->block_room, timeline->block_count + 1, GP_READ_EVENTS))
        return;
    gp_hash_get(&timeline->live, key, &older);
    timeline->blocks[timeline->block_count++] = (struct gp_timeline_block){bytes, older};
    if (gp_hash_set(&timeline->live, key, block + 1) != 0)
        read->error = -ENOMEM;
    timeline_add(timeline, baseline, timeline_event(timeline, block, category, time_ns, GP_EVENT_ALLOC));
}

/* The bytes of the block that ends; 0: none lives. */
static uint64_t timeline_free(struct gp_timeline *timeline, uint64_t key, uint32_t category, uint64_t time_ns)
{
    uint32_t newest;
    if (!gp_hash_get(&timeline->live, key, &newest) || !newest)
        return 0;
    if (gp_hash_set(&timeline->live, key, timeline->blocks[newest - 1].older) != 0)
        timeline->read->error = -ENOMEM;
    timeline_add(timeline, false, timeline_event(timeline, newest - 1, category, time_ns, GP_EVENT_FREE));
    return timeline->blocks[newest - 1].bytes;
}

static void timeline_seen(struct gp_timeline *timeline, uint64_t time_ns)
{
    timeline->first_ns = time_ns < timeline->first_ns ? time_ns : timeline->first_ns;
    timeline->last_ns = time_ns > timeline->last_ns ? time_ns : timeline->last_ns;
}

/* ---- the raw file ------------------------------------------------------------------------------------------------ */

/* NULL, or what is wrong. */
static const char *timeline_row(struct gp_timeline *timeline, const struct gp_pickle *row)
{
    int64_t time, action, bytes, category;
    if (gp_pickle_count(row) != 4 || !timeline_number(gp_pickle_at(row, 0), &time) ||
        !timeline_number(gp_pickle_at(row, 1), &action) || !timeline_number(gp_pickle_at(row, 2), &bytes) ||
        !timeline_number(gp_pickle_at(row, 3), &category))
        return "a row is not [time, action, bytes, category]";
    if (time < -1 || time > INT64_MAX / 2 || action < GP_TIMELINE_BEFORE || action > GP_TIMELINE_DESTROY ||
        category < 0 || category >= GP_TIMELINE_CATEGORIES || bytes > (int64_t)GP_READ_ALLOCATION_LIMIT ||
        bytes < -(int64_t)GP_READ_ALLOCATION_LIMIT)
        return "a row has an impossible time, action, size or category";
    bool before = action == GP_TIMELINE_BEFORE || time < 0;
    uint64_t size = (uint64_t)(bytes < 0 ? -bytes : bytes), key = size << 3 | (uint64_t)category;
    uint64_t time_ns = time < (int64_t)timeline->last_ns ? timeline->last_ns : (uint64_t)time;
    if (!before)
        timeline_seen(timeline, time_ns);
    if (bytes > 0)
        timeline_alloc(timeline, key, size, (uint32_t)category, before ? 0 : time_ns, before);
    else if (bytes < 0 && !timeline_free(timeline, key, (uint32_t)category, time_ns))
        timeline->read->recording->dropped++; /* its allocation is missing */
    return NULL;
}

static const char *timeline_rows(struct gp_timeline *timeline, const struct gp_pickle *root)
{
    const char *wrong = NULL;
    for (uint32_t i = 0; i < gp_pickle_count(root) && !wrong && !timeline->read->error; i++)
        wrong = timeline_row(timeline, gp_pickle_at(root, i));
    return wrong;
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static void timeline_fall(struct gp_timeline *timeline, uint32_t category, uint64_t bytes, uint64_t time_ns)
{
    while (bytes && !timeline->read->error) {
        uint64_t freed = timeline_free(timeline, category, category, time_ns);
        if (!freed)
            return;
        if (freed > bytes)
            timeline_alloc(timeline, category, freed - bytes, category, time_ns, false);
        bytes -= freed < bytes ? freed : bytes;
    }
}

/* What falls, and then what rises, so that no sum between them is above both.  first: from before the trace. */
static const char *timeline_sums(struct gp_timeline *timeline, const struct gp_pickle *row, int64_t *sums,
                                 uint64_t time_ns, bool first)
{
    int64_t next[GP_TIMELINE_CATEGORIES];
    for (uint32_t c = 0; c < GP_TIMELINE_CATEGORIES; c++)
        if (!timeline_number(gp_pickle_at(row, c + 1), &next[c]) || next[c] > (int64_t)GP_READ_ALLOCATION_LIMIT)
            return "a row of sums has an impossible number";
    for (uint32_t c = 0; c < GP_TIMELINE_CATEGORIES; c++) {
        next[c] = next[c] < 0 ? 0 : next[c];
        if (next[c] < sums[c])
            timeline_fall(timeline, c, (uint64_t)(sums[c] - next[c]), time_ns);
    }
    for (uint32_t c = 0; c < GP_TIMELINE_CATEGORIES; c++) {
        if (next[c] > sums[c])
            timeline_alloc(timeline, c, (uint64_t)(next[c] - sums[c]), c, first ? 0 : time_ns, first);
        sums[c] = next[c];
    }
    return NULL;
}

/* The first row is what was there before if the second one has the same time. */
static const char *timeline_all_sums(struct gp_timeline *timeline, const struct gp_pickle *times,
                                     const struct gp_pickle *rows)
{
    int64_t sums[GP_TIMELINE_CATEGORIES] = {0}, time = 0, second = -1;
    const char *wrong = NULL;
    timeline_number(gp_pickle_at(times, 1), &second);
    for (uint32_t i = 0; i < gp_pickle_count(times) && !wrong && !timeline->read->error; i++) {
        const struct gp_pickle *row = gp_pickle_at(rows, i);
        if (!timeline_number(gp_pickle_at(times, i), &time) || time < 0 || time > INT64_MAX / 2000 ||
            gp_pickle_count(row) != GP_TIMELINE_CATEGORIES + 1)
            return "a row has an impossible time, or not nine sums";
        uint64_t time_ns = (uint64_t)time * 1000;
        time_ns = time_ns < timeline->last_ns ? timeline->last_ns : time_ns;
        timeline_seen(timeline, time_ns);
        wrong = timeline_sums(timeline, row, sums, time_ns, i == 0 && second == time);
    }
    return wrong;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

int gp_read_timeline(struct gp_read *read, struct gp_pickle_file *values, char *why, size_t why_bytes)
{
    struct gp_recording *r = read->recording;
    const struct gp_pickle *root = &values->root, *rows = gp_pickle_at(root, 1), *first = gp_pickle_at(rows, 0);
    bool sums = gp_pickle_count(root) == 2 && first && first->type == GP_PICKLE_LIST &&
                gp_pickle_count(gp_pickle_at(root, 0)) == gp_pickle_count(rows);
    struct gp_timeline timeline = {.read = read, .first_ns = UINT64_MAX};
    if (!GP_READ_ROOM(read, r->sites, read->sites_room, 1, GP_READ_ROWS))
        return read->error;
    r->site_count = 1;
    gp_read_thread(read, 0);
    gp_read_stream(read, 0);
    gp_read_device(read, 0); /* the file does not name its device */
    const char *wrong =
        sums ? timeline_all_sums(&timeline, gp_pickle_at(root, 0), rows) : timeline_rows(&timeline, root);
    gp_torch_sites_free(&timeline.sites);
    gp_hash_free(&timeline.live);
    free(timeline.blocks);
    if (wrong && !read->error) {
        snprintf(why, why_bytes, "lists in JSON, and no memory timeline of PyTorch's profiler: %s", wrong);
        return -EPROTO;
    }
    r->begin_ns = r->begin_unix_ns = timeline.first_ns == UINT64_MAX ? 0 : timeline.first_ns;
    for (size_t i = 0; i < r->baseline_count; i++)
        r->baseline[i].time_ns = r->begin_ns;
    for (uint32_t i = 1; i < r->site_count; i++)
        r->sites[i].kind = GP_KIND_POOL;
    r->end_ns = timeline.last_ns > r->begin_ns ? timeline.last_ns : r->begin_ns;
    /* A peak may be older than the trace; sums are those at the end of a microsecond. */
    r->devices[0].bound = r->dropped ? GP_REC_ABOUT : r->before_bytes || sums ? GP_REC_AT_LEAST : GP_REC_EXACT;
    r->from_torch = r->complete = r->polled = true;
    r->timeline = sums ? GP_REC_SUMS : GP_REC_SIZES;
    r->before_sum = sums && r->before_bytes;
    r->delivered = r->event_count;
    r->tried = r->delivered + r->dropped;
    read->comm = gp_read_string(read, "PyTorch timeline", strlen("PyTorch timeline"));
    read->has_process = read->has_counts = true;
    return read->error;
}
