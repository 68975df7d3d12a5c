/* SPDX-License-Identifier: MIT
 *
 * events.c: decodes the columns of a block into events; see internal.h, and record/columns.c, which
 * encodes them.
 */
#include <gpuprof/wire.h>
#include <read/recording/internal.h>
#include <read/recording/recording.h>
#include <record/format.h>
#include <record/pack.h>

#include <base/compiler.h>
#include <errno.h>
#include <stdlib.h>

struct gp_read_place { /* an address, and the fields of its last event */
    uint64_t address, bytes, unused;
    uint16_t stream[2];
    uint32_t site;
};

struct gp_read_tag {
    uint8_t type, kind, device, mask;
};

struct gp_read_columns {
    struct gp_unpack column[GP_COLUMNS];
    struct gp_read_tag tags[GP_FORMAT_TAGS + 1];
    uint32_t tag_count, tid_count, stream_count, place_count;
    uint32_t thread_of[GP_FORMAT_TIDS];
    uint16_t stream_of[GP_FORMAT_STREAMS];
    /* The previous event: */
    uint64_t time_ns, address;
    uint32_t site, last_site, thread;
    uint16_t stream;
    bool bad;
};

struct gp_read_work {
    struct gp_read_columns columns;
    struct gp_read_place places[GP_FORMAT_EVENTS];
};

static bool read_split(struct gp_read_columns *columns, struct gp_unpack *payload)
{
    uint64_t bytes[GP_COLUMNS] = {0}, times[3];
    const uint8_t *raw = gp_unpack_raw(payload, sizeof(times));
    uint64_t count = gp_unpack_number(payload);
    if (!raw || count < GP_COLUMNS_FIRST || count > 256)
        return false;
    memcpy(times, raw, sizeof(times));
    columns->time_ns = times[0];
    for (uint64_t i = 0; i < count; i++) {
        uint64_t size = gp_unpack_number(payload);
        if (i < GP_COLUMNS)
            bytes[i] = size;
    }
    for (unsigned i = 0; i < GP_COLUMNS; i++) {
        const uint8_t *start = gp_unpack_raw(payload, bytes[i]);
        if (!start)
            return false;
        columns->column[i] = (struct gp_unpack){.at = start, .end = start + bytes[i]};
    }
    return true;
}

static bool read_tags(struct gp_read *read, struct gp_read_columns *columns)
{
    struct gp_unpack *column = &columns->column[GP_COLUMN_TAGS];
    size_t count = gp_unpack_left(column) / 4;
    if (count > GP_FORMAT_TAGS)
        return false;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *entry = gp_unpack_raw(column, 4);
        if (entry[0] == GP_EVENT_NONE || entry[0] >= GP_EVENT_TYPES || entry[1] >= GP_KINDS)
            return false;
        columns->tags[i] = (struct gp_read_tag){entry[0], entry[1], gp_read_device(read, entry[2]), entry[3]};
    }
    columns->tag_count = (uint32_t)count;
    return true;
}

static bool read_names(struct gp_read *read, struct gp_read_columns *columns)
{
    struct gp_unpack *tids = &columns->column[GP_COLUMN_TIDS], *streams = &columns->column[GP_COLUMN_STREAMS];
    for (; gp_unpack_left(tids) && columns->tid_count < GP_FORMAT_TIDS; columns->tid_count++)
        columns->thread_of[columns->tid_count] = gp_read_thread(read, (uint32_t)gp_unpack_number(tids));
    for (; gp_unpack_left(streams) && columns->stream_count < GP_FORMAT_STREAMS; columns->stream_count++)
        columns->stream_of[columns->stream_count] = gp_read_stream(read, gp_unpack_number(streams));
    return !tids->bad && !streams->bad && !read->error;
}

static inline uint64_t read_next(struct gp_read_columns *columns, enum gp_format_column column)
{
    return gp_unpack_number(&columns->column[column]);
}

static inline int64_t read_step(struct gp_read_columns *columns, enum gp_format_column column)
{
    return gp_unpack_signed(&columns->column[column]);
}

static struct gp_read_place *read_place(struct gp_read *read, struct gp_read_columns *columns, uint8_t mask)
{
    if (mask & GP_TAG_SEEN) {
        uint64_t index = read_next(columns, GP_COLUMN_PLACE);
        if (GP_LIKELY(index < columns->place_count))
            return &read->work->places[index];
        columns->bad = true;
        return &read->work->places[0];
    }
    struct gp_read_place *place = &read->work->places[columns->place_count++];
    columns->address += (uint64_t)read_step(columns, GP_COLUMN_ADDRESS);
    *place = (struct gp_read_place){
        .address = columns->address, .stream = {columns->stream, columns->stream}, .site = columns->site};
    return place;
}

static void read_block(struct gp_read *read, struct gp_read_columns *columns, const struct gp_read_tag *tag,
                       struct gp_rec_event *event)
{
    struct gp_read_place *place = read_place(read, columns, tag->mask);
    bool other = tag->type != GP_EVENT_FREE;
    if (tag->mask & GP_TAG_BYTES)
        place->bytes = read_next(columns, GP_COLUMN_BYTES);
    if (tag->mask & GP_TAG_UNUSED)
        place->unused = (uint64_t)read_step(columns, GP_COLUMN_UNUSED);
    if (tag->mask & GP_TAG_SITE)
        place->site = columns->last_site += (uint32_t)read_step(columns, GP_COLUMN_SITE);
    if (tag->mask & GP_TAG_STREAM) {
        uint64_t index = read_next(columns, GP_COLUMN_STREAM);
        columns->bad |= index >= columns->stream_count;
        place->stream[other] = index < columns->stream_count ? columns->stream_of[index] : 0;
        if (!(tag->mask & GP_TAG_SEEN))
            place->stream[!other] = place->stream[other];
    }
    columns->site = place->site;
    columns->stream = place->stream[other];
    event->address = place->address;
    event->bytes = place->bytes < GP_READ_ALLOCATION_LIMIT ? place->bytes : GP_READ_ALLOCATION_LIMIT;
    uint64_t most = event->bytes < UINT32_MAX ? event->bytes : UINT32_MAX;
    event->unused = (uint32_t)((int64_t)place->unused < 0 ? 0 : place->unused < most ? place->unused : most);
    event->site = place->site;
    event->stream = place->stream[other];
}

static void read_mark(struct gp_read *read, struct gp_read_columns *columns, struct gp_rec_event *event)
{
    uint64_t length = read_next(columns, GP_COLUMN_NAME);
    const uint8_t *name = gp_unpack_raw(&columns->column[GP_COLUMN_NAME], length);
    event->bytes = name ? gp_read_string(read, name, length) : 0;
}

/* A free, an allocation or a snapshot event may be marked. */
static void read_sleep(struct gp_read *read, struct gp_read_columns *columns, const struct gp_rec_event *event,
                       uint64_t mark)
{
    static const uint8_t types[] = {
        [GP_SLEEP_FALLS] = GP_EVENT_FREE, [GP_SLEEP_WAKES] = GP_EVENT_ALLOC, [GP_SLEEP_ENDS] = GP_EVENT_SNAPSHOT};
    struct gp_recording *r = read->recording;
    if (mark == 0 || mark > GP_SLEEP_ENDS || types[mark] != event->type || event->device == GP_REC_NO_DEVICE)
        return;
    if (!GP_READ_ROOM(read, r->sleeps, read->sleeps_room, r->sleep_count + 1, GP_READ_EVENTS)) {
        columns->bad = true;
        return;
    }
    r->sleeps[r->sleep_count++] = (struct gp_rec_sleep){.time_ns = event->time_ns,
                                                        .bytes = event->bytes,
                                                        .site = event->site,
                                                        .device = event->device,
                                                        .what = (uint8_t)mark};
}

static void read_event(struct gp_read *read, struct gp_read_columns *columns, struct gp_rec_event *event)
{
    uint8_t number = *columns->column[GP_COLUMN_TAG].at++;
    const struct gp_read_tag *tag = &columns->tags[number];
    memset(event, 0, sizeof(*event));
    columns->bad |= number >= columns->tag_count;
    columns->time_ns += (uint64_t)read_step(columns, GP_COLUMN_TIME);
    event->time_ns = columns->time_ns;
    event->type = tag->type & 15;
    event->kind = tag->kind & 15;
    event->device = tag->device;
    if (tag->type == GP_EVENT_MARK)
        read_mark(read, columns, event);
    else
        read_block(read, columns, tag, event);
    if (tag->mask & GP_TAG_THREAD) {
        uint64_t index = read_next(columns, GP_COLUMN_THREAD);
        columns->bad |= index >= columns->tid_count;
        columns->thread = index < columns->tid_count ? columns->thread_of[index] : 0;
    }
    if (GP_UNLIKELY(columns->thread == GP_REC_NONE))
        columns->thread = gp_read_thread(read, 0);
    event->thread = columns->thread;
    if (tag->mask & GP_TAG_ERROR) {
        uint64_t mark = read_next(columns, GP_COLUMN_ERROR);
        if (mark == GP_FREE_SEGMENT && event->type == GP_EVENT_FREE) {
            event->type = GP_READ_TURNED;
            read->has_turned = true;
        }
        read_sleep(read, columns, event, mark);
    }
    const uint8_t *cost = tag->mask & GP_TAG_COST ? gp_unpack_raw(&columns->column[GP_COLUMN_COST], 1) : NULL;
    event->cost = cost ? *cost : 0;
}

static bool read_all(struct gp_read *read, struct gp_read_columns *columns, struct gp_rec_event *events, uint32_t count)
{
    columns->bad = gp_unpack_left(&columns->column[GP_COLUMN_TAG]) != count || !read_tags(read, columns) ||
                   !read_names(read, columns);
    for (uint32_t i = 0; i < count && !columns->bad; i++)
        read_event(read, columns, &events[i]);
    for (unsigned i = 0; i < GP_COLUMNS; i++)
        columns->bad |= columns->column[i].bad;
    return !columns->bad && !read->error;
}

bool gp_read_events(struct gp_read *read, const struct gp_format_block *block, const void *payload)
{
    struct gp_recording *r = read->recording;
    struct gp_unpack unpack = {.at = payload, .end = (const uint8_t *)payload + block->bytes};
    bool baseline = block->type == GP_BLOCK_BASELINE;
    size_t *count = baseline ? &r->baseline_count : &r->event_count;
    if (block->count == 0 || block->count > GP_FORMAT_EVENTS)
        return block->count == 0;
    if (!read->work && !(read->work = malloc(sizeof(*read->work)))) {
        read->error = -ENOMEM;
        return false;
    }
    if (!(baseline ? GP_READ_ROOM(read, r->baseline, read->baseline_room, *count + block->count, GP_READ_EVENTS)
                   : GP_READ_ROOM(read, r->events, read->events_room, *count + block->count, GP_READ_EVENTS)))
        return false;
    struct gp_read_columns *columns = &read->work->columns;
    memset(columns, 0, sizeof(*columns));
    columns->thread = GP_REC_NONE;
    if (!read_split(columns, &unpack) ||
        !read_all(read, columns, (baseline ? r->baseline : r->events) + *count, block->count))
        return false;
    *count += block->count;
    return true;
}
