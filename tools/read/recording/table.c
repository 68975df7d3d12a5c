/* SPDX-License-Identifier: MIT
 * table.c: arrays and dictionaries of a recording that is being read; see internal.h. */
#include <gpuprof/wire.h>
#include <read/common/hash.h>
#include <read/recording/internal.h>
#include <read/recording/recording.h>
#include <string.h>

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
    /* Events are written whole; they are not zeroed, so that unused pages of large arrays stay untouched. */
    if (row_bytes != sizeof(struct gp_rec_event))
        memset(grown + *room * row_bytes, 0, (more - *room) * row_bytes);
    *array = grown;
    *room = more;
    return true;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

/* The number of the key; a new key gets `fresh` (*added). UINT32_MAX: out of memory. */
static uint32_t read_number(struct gp_read *read, struct gp_hash *map, uint64_t key, uint32_t fresh, bool *added)
{
    const uint32_t *number = gp_hash_add(map, gp_hash_of_number(key), NULL, NULL, fresh, added);
    if (!number)
        read->error = -ENOMEM;
    return number ? *number : UINT32_MAX;
}

/* ---- strings, threads, streams, devices -------------------------------------------------------------------------- */

/* Paths are the longest recorded strings. */
#define GP_READ_TEXT 4096

struct gp_read_text {
    const char *strings, *text;
};

static bool read_text_same(const void *key, uint32_t offset)
{
    const struct gp_read_text *wanted = key;
    return strcmp(wanted->strings + offset, wanted->text) == 0;
}

uint32_t gp_read_string(struct gp_read *read, const void *text, size_t length)
{
    struct gp_recording *r = read->recording;
    char clean[GP_READ_TEXT];
    bool added;
    gp_text_clean(clean, sizeof(clean), text, length);
    size_t bytes = strlen(clean) + 1;
    /* After an error the map may hold an offset where no text was stored. */
    if (bytes == 1 || read->error)
        return 0;
    const struct gp_read_text wanted = {r->strings, clean};
    const uint32_t *offset = gp_hash_add(&read->interned, gp_hash_of_bytes(clean, bytes - 1), read_text_same, &wanted,
                                         r->string_bytes, &added);
    if (!offset)
        read->error = -ENOMEM;
    if (!offset || !added)
        return offset ? *offset : 0;
    if (!GP_READ_ROOM(read, r->strings, read->strings_room, r->string_bytes + bytes, GP_READ_STRINGS))
        return 0;
    memcpy(r->strings + r->string_bytes, clean, bytes);
    r->string_bytes += (uint32_t)bytes;
    return *offset;
}

uint32_t gp_read_thread(struct gp_read *read, uint32_t tid)
{
    struct gp_recording *r = read->recording;
    bool added;
    uint32_t index = read_number(read, &read->tids, tid, r->thread_count, &added);
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
    uint32_t index = read_number(read, &read->streams, stream, fresh, &added);
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
