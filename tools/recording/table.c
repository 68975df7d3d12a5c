/* SPDX-License-Identifier: MIT
 * table.c: arrays and dictionaries of a recording that is being read; see reading.h. */
#include <recording/reading.h>

#include <base/text.h>
#include <errno.h>
#include <stdlib.h>

bool gp_read_room(struct gp_read *read, void *array_pointer, size_t *room, size_t need, size_t limit, size_t row_bytes)
{
    void **array = array_pointer;
    if (need <= *room)
        return !read->error;
    if (need > limit) {
        read->error = -EFBIG;
        return false;
    }
    /* realloc grows large arrays by mremap, which copies nothing; unused pages take no memory. */
    size_t more = *room ? *room * 2 : 64;
    while (more < need)
        more *= 2;
    char *grown = realloc(*array, more * row_bytes);
    if (!grown) {
        read->error = -ENOMEM;
        return false;
    }
    /* Large arrays of events are not zeroed, so that unused pages stay untouched. */
    if (more <= GP_READ_ROWS / 16 || row_bytes != sizeof(struct gp_rec_event))
        memset(grown + *room * row_bytes, 0, (more - *room) * row_bytes);
    *array = grown;
    *room = more;
    return true;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static uint32_t read_hash(uint64_t key)
{
    key = (key ^ key >> 32) * 0x9e3779b97f4a7c15ull; /* Fibonacci hashing, as ds/map.c */
    return (uint32_t)(key ^ key >> 29);
}

static bool read_map_grow(struct gp_read_map *map)
{
    struct gp_read_map grown = {.room = map->room ? map->room * 2 : 64, .count = map->count};
    grown.keys = calloc(grown.room, sizeof(*grown.keys));
    grown.values = calloc(grown.room, sizeof(*grown.values));
    if (!grown.keys || !grown.values) {
        gp_read_map_free(&grown);
        return false;
    }
    for (uint32_t i = 0; i < map->room; i++) {
        uint32_t at = read_hash(map->keys[i]) & (grown.room - 1);
        if (!map->values[i])
            continue;
        while (grown.values[at])
            at = (at + 1) & (grown.room - 1);
        grown.keys[at] = map->keys[i];
        grown.values[at] = map->values[i];
    }
    gp_read_map_free(map);
    *map = grown;
    return true;
}

uint32_t gp_read_map(struct gp_read *read, struct gp_read_map *map, uint64_t key, uint32_t fresh, bool *added)
{
    *added = false;
    if (map->count * 2 >= map->room && !read_map_grow(map)) {
        read->error = -ENOMEM;
        return UINT32_MAX;
    }
    uint32_t at = read_hash(key) & (map->room - 1);
    for (; map->values[at]; at = (at + 1) & (map->room - 1))
        if (map->keys[at] == key)
            return map->values[at] - 1;
    map->keys[at] = key;
    map->values[at] = fresh + 1;
    map->count++;
    *added = true;
    return fresh;
}

void gp_read_map_free(struct gp_read_map *map)
{
    free(map->keys);
    free(map->values);
    memset(map, 0, sizeof(*map));
}

/* ---- strings, threads, streams, devices -------------------------------------------------------------------------- */

/* Paths are the longest recorded strings. */
#define GP_READ_TEXT 4096

uint32_t gp_read_string(struct gp_read *read, const void *text, size_t length)
{
    struct gp_recording *r = read->recording;
    char clean[GP_READ_TEXT];
    uint64_t hash = 14695981039346656037ull; /* FNV-1a */
    bool added;
    gp_text_clean(clean, sizeof(clean), text, length);
    size_t bytes = strlen(clean) + 1;
    if (bytes == 1)
        return 0;
    for (const char *at = clean; *at; at++)
        hash = (hash ^ (uint8_t)*at) * 1099511628211ull;
    uint32_t offset = gp_read_map(read, &read->interned, hash, r->string_bytes, &added);
    if (read->error || (!added && strcmp(r->strings + offset, clean) == 0))
        return read->error ? 0 : offset;
    offset = r->string_bytes;
    if (!GP_READ_ROOM(read, r->strings, read->strings_room, r->string_bytes + bytes, GP_READ_STRINGS))
        return 0;
    memcpy(r->strings + offset, clean, bytes);
    r->string_bytes += (uint32_t)bytes;
    return offset;
}

uint32_t gp_read_thread(struct gp_read *read, uint32_t tid)
{
    struct gp_recording *r = read->recording;
    bool added;
    uint32_t index = gp_read_map(read, &read->tids, tid, r->thread_count, &added);
    if (read->error || !added)
        return read->error ? 0 : index;
    if (!GP_READ_ROOM(read, r->threads, read->threads_room, r->thread_count + 1, GP_READ_ROWS))
        return 0;
    r->threads[r->thread_count++].tid = tid;
    return index;
}

uint16_t gp_read_stream(struct gp_read *read, uint64_t stream)
{
    struct gp_recording *r = read->recording;
    bool added;
    uint32_t fresh = r->stream_count < GP_REC_OTHERS ? r->stream_count : GP_REC_OTHERS;
    uint32_t index = gp_read_map(read, &read->streams, stream, fresh, &added);
    if (read->error || !added || index == GP_REC_OTHERS)
        return read->error ? 0 : (uint16_t)index;
    if (!GP_READ_ROOM(read, r->streams, read->streams_room, r->stream_count + 1, GP_READ_ROWS))
        return 0;
    r->streams[r->stream_count++] = stream;
    return (uint16_t)index;
}

uint8_t gp_read_device(struct gp_read *read, uint32_t index)
{
    struct gp_recording *r = read->recording;
    if (index >= GP_WIRE_DEVICES)
        return GP_REC_NO_DEVICE;
    if (read->device_of[index])
        return read->device_of[index] - 1;
    if (!GP_READ_ROOM(read, r->devices, read->devices_room, r->device_count + 1, GP_WIRE_DEVICES))
        return GP_REC_NO_DEVICE;
    struct gp_rec_device *device = &r->devices[r->device_count++];
    device->index = (uint8_t)index;
    device->ordinal = index == GP_WIRE_HOST ? -1 : (int32_t)index;
    device->total_bytes = -1;
    read->device_of[index] = (uint8_t)r->device_count;
    return read->device_of[index] - 1;
}
