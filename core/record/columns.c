/* SPDX-License-Identifier: MIT
 *
 * columns.c: encodes events as columns; see file.h. A free repeats the fields of its allocation,
 * and a program that works in steps allocates the same sizes at the same addresses again. So an
 * event refers to the last one with its address and stores only the fields that differ. Equal steps
 * become equal bytes, which zstd finds.
 */
#include "base/compiler.h"
#include "record/file.h"

/* The most bytes that an event can add to a column. */
static const uint8_t column_most[GP_COLUMNS] = {
    [GP_COLUMN_TAG] = 1,     [GP_COLUMN_TIME] = 10,   [GP_COLUMN_PLACE] = 10, [GP_COLUMN_ADDRESS] = 10,
    [GP_COLUMN_BYTES] = 10,  [GP_COLUMN_UNUSED] = 10, [GP_COLUMN_SITE] = 10,  [GP_COLUMN_THREAD] = 10,
    [GP_COLUMN_STREAM] = 10, [GP_COLUMN_ERROR] = 10,  [GP_COLUMN_NAME] = 42,  [GP_COLUMN_COST] = 1,
};

static size_t column_bytes(unsigned column)
{
    switch (column) {
    case GP_COLUMN_TAGS:
        return GP_FORMAT_TAGS * 4;
    case GP_COLUMN_TIDS:
    case GP_COLUMN_STREAMS:
        return GP_FORMAT_TIDS * 10 + 10;
    default:
        return (size_t)column_most[column] * GP_FORMAT_EVENTS + 10;
    }
}
_Static_assert(GP_FORMAT_TIDS == GP_FORMAT_STREAMS, "column_bytes treats both dictionaries alike");

size_t gp_columns_bytes(void)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < GP_COLUMNS; i++)
        bytes += column_bytes(i);
    return bytes;
}

void gp_columns_init(struct gp_columns *columns, uint8_t *memory)
{
    for (unsigned i = 0; i < GP_COLUMNS; i++) {
        struct gp_pack *column = &columns->column[i];
        column->start = column->at = memory;
        column->end = memory += column_bytes(i);
    }
}

void gp_columns_clear(struct gp_columns *columns)
{
    if (columns->count) {
        memset(columns->slot_of, 0, sizeof(columns->slot_of));
        memset(columns->tag_key, 0, sizeof(columns->tag_key));
        memset(columns->tid_of, 0, sizeof(columns->tid_of));
        memset(columns->stream_of, 0, sizeof(columns->stream_of));
    }
    for (unsigned i = 0; i < GP_COLUMNS; i++)
        columns->column[i].at = columns->column[i].start;
    columns->count = columns->places = columns->tags = columns->tids = columns->streams = 0;
    columns->time_ns = columns->base_ns = columns->address = columns->stream = 0;
    columns->site = columns->last_site = columns->tid = 0;
}

static uint64_t columns_hash(uint64_t key)
{
    key = (key ^ key >> 32) * 0x9e3779b97f4a7c15ull; /* Fibonacci hashing, as base/map.c */
    return key ^ key >> 29;
}

/* Whether there is room for one more entry of everything that an event may need. */
static bool columns_room(const struct gp_columns *columns)
{
    return columns->count < GP_FORMAT_EVENTS && columns->tags < GP_FORMAT_TAGS && columns->tids < GP_FORMAT_TIDS &&
           columns->streams < GP_FORMAT_STREAMS;
}

static uint32_t columns_tid(struct gp_columns *columns, uint32_t tid)
{
    uint32_t at = (uint32_t)columns_hash(tid) & (GP_COLUMNS_NAMES - 1);
    for (; columns->tid_of[at]; at = (at + 1) & (GP_COLUMNS_NAMES - 1))
        if (columns->tid_key[at] == tid)
            return columns->tid_of[at] - 1u;
    columns->tid_key[at] = tid;
    columns->tid_of[at] = (uint16_t)++columns->tids;
    gp_pack_number(&columns->column[GP_COLUMN_TIDS], tid);
    return columns->tids - 1;
}

static uint32_t columns_stream(struct gp_columns *columns, uint64_t stream)
{
    uint32_t at = (uint32_t)columns_hash(stream) & (GP_COLUMNS_NAMES - 1);
    for (; columns->stream_of[at]; at = (at + 1) & (GP_COLUMNS_NAMES - 1))
        if (columns->stream_key[at] == stream)
            return columns->stream_of[at] - 1u;
    columns->stream_key[at] = stream;
    columns->stream_of[at] = (uint16_t)++columns->streams;
    gp_pack_number(&columns->column[GP_COLUMN_STREAMS], stream);
    return columns->streams - 1;
}

static void columns_tag(struct gp_columns *columns, const struct gp_wire_event *event, uint8_t mask)
{
    uint32_t key =
        ((uint32_t)event->type | (uint32_t)event->kind << 4 | (uint32_t)event->device << 8 | (uint32_t)mask << 16) + 1;
    uint32_t at = (uint32_t)columns_hash(key) & (GP_COLUMNS_TAGS - 1);
    while (columns->tag_key[at] && columns->tag_key[at] != key)
        at = (at + 1) & (GP_COLUMNS_TAGS - 1);
    if (!columns->tag_key[at]) {
        const uint8_t entry[4] = {event->type, event->kind, event->device, mask};
        columns->tag_key[at] = key;
        columns->tag_of[at] = (uint8_t)columns->tags++;
        gp_pack_raw(&columns->column[GP_COLUMN_TAGS], entry, sizeof(entry));
    }
    *columns->column[GP_COLUMN_TAG].at++ = columns->tag_of[at];
}

/* The place of the address; a new place gets the expected values. */
static struct gp_columns_place *columns_place(struct gp_columns *columns, uint64_t address, uint8_t *mask)
{
    uint64_t at = columns_hash(address) & (GP_COLUMNS_SLOTS - 1);
    for (uint32_t index; (index = columns->slot_of[at]); at = (at + 1) & (GP_COLUMNS_SLOTS - 1)) {
        if (columns->place[index - 1].address == address) {
            gp_pack_number(&columns->column[GP_COLUMN_PLACE], index - 1);
            *mask |= GP_TAG_SEEN;
            return &columns->place[index - 1];
        }
    }
    struct gp_columns_place *place = &columns->place[columns->places++];
    *place = (struct gp_columns_place){
        .address = address, .stream = {columns->stream, columns->stream}, .site = columns->site};
    columns->slot_of[at] = columns->places;
    gp_pack_signed(&columns->column[GP_COLUMN_ADDRESS], (int64_t)(address - columns->address));
    columns->address = address;
    return place;
}

/* Encodes address, bytes, requested_bytes, stream and site. Returns the bits of the fields
 * stored. */
static uint8_t columns_block(struct gp_columns *columns, const struct gp_wire_event *event)
{
    uint8_t mask = 0;
    struct gp_columns_place *place = columns_place(columns, event->address, &mask);
    uint64_t unused = event->bytes - event->requested_bytes;
    bool other = event->type != GP_EVENT_FREE;
    if (place->bytes != event->bytes) {
        mask |= GP_TAG_BYTES;
        gp_pack_number(&columns->column[GP_COLUMN_BYTES], event->bytes);
    }
    if (place->unused != unused) {
        mask |= GP_TAG_UNUSED;
        gp_pack_signed(&columns->column[GP_COLUMN_UNUSED], (int64_t)unused);
    }
    if (place->site != event->site) {
        mask |= GP_TAG_SITE;
        gp_pack_signed(&columns->column[GP_COLUMN_SITE], (int64_t)event->site - columns->last_site);
        columns->last_site = event->site;
    }
    if (place->stream[other] != event->stream) {
        mask |= GP_TAG_STREAM;
        gp_pack_number(&columns->column[GP_COLUMN_STREAM], columns_stream(columns, event->stream));
        if (!(mask & GP_TAG_SEEN))
            place->stream[!other] = event->stream;
    }
    place->bytes = event->bytes;
    place->unused = unused;
    place->site = columns->site = event->site;
    place->stream[other] = columns->stream = event->stream;
    return mask;
}

bool gp_columns_add(struct gp_columns *columns, const struct gp_wire_event *event)
{
    uint8_t mask = 0;
    if (GP_UNLIKELY(!columns_room(columns)))
        return false;
    if (columns->count == 0)
        columns->base_ns = columns->time_ns = columns->first_ns = columns->last_ns = event->time_ns;
    gp_pack_signed(&columns->column[GP_COLUMN_TIME], (int64_t)(event->time_ns - columns->time_ns));
    columns->time_ns = event->time_ns;
    columns->first_ns = event->time_ns < columns->first_ns ? event->time_ns : columns->first_ns;
    columns->last_ns = event->time_ns > columns->last_ns ? event->time_ns : columns->last_ns;
    if (event->type == GP_EVENT_MARK)
        gp_pack_string(&columns->column[GP_COLUMN_NAME], event->name, strnlen(event->name, sizeof(event->name)));
    else
        mask = columns_block(columns, event);
    if (event->tid != columns->tid) {
        mask |= GP_TAG_THREAD;
        gp_pack_number(&columns->column[GP_COLUMN_THREAD], columns_tid(columns, event->tid));
        columns->tid = event->tid;
    }
    if (event->error) {
        mask |= GP_TAG_ERROR;
        gp_pack_number(&columns->column[GP_COLUMN_ERROR], event->error);
    }
    if (event->cost) {
        mask |= GP_TAG_COST;
        gp_pack_raw(&columns->column[GP_COLUMN_COST], &event->cost, 1);
    }
    columns_tag(columns, event, mask);
    columns->count++;
    return true;
}

void gp_columns_payload(const struct gp_columns *columns, struct gp_pack *out)
{
    const uint64_t times[3] = {columns->base_ns, columns->first_ns, columns->last_ns};
    gp_pack_raw(out, times, sizeof(times));
    gp_pack_number(out, GP_COLUMNS);
    for (unsigned i = 0; i < GP_COLUMNS; i++)
        gp_pack_number(out, gp_pack_bytes(&columns->column[i]));
    for (unsigned i = 0; i < GP_COLUMNS; i++)
        gp_pack_raw(out, columns->column[i].start, gp_pack_bytes(&columns->column[i]));
}
