/* SPDX-License-Identifier: MIT
 * recmake.c: see recmake.h. */
#include "lib/recmake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000ull

struct recmake {
    struct gp_recording *recording;
    uint64_t now_ns;
};

/* Makes room for one more row. The array doubles at counts that are powers of two. */
static void *recmake_room(void *array, size_t count, size_t bytes)
{
    if (count & (count - 1))
        return array;
    array = realloc(array, (count ? count * 2 : 1) * bytes);
    if (array == NULL)
        abort();
    memset((char *)array + count * bytes, 0, (count ? count : 1) * bytes);
    return array;
}
#define RECMAKE_ADD(_array, _count)                                                                                    \
    ({                                                                                                                 \
        (_array) = recmake_room((_array), (_count), sizeof(*(_array)));                                                \
        &(_array)[(_count)++];                                                                                         \
    })

struct recmake *recmake_new(int64_t total_bytes)
{
    struct recmake *make = calloc(1, sizeof(*make));
    struct gp_recording *recording = calloc(1, sizeof(*recording));
    if (make == NULL || recording == NULL)
        abort();
    make->recording = recording;
    make->now_ns = 1000 * MS;
    recording->pid = 4242;
    recording->comm = "train";
    recording->command_line = "train --steps 20";
    recording->host = "box";
    recording->allocator = "off";
    recording->source = GP_SOURCE_CUPTI;
    recording->driver_version = 13000;
    recording->begin_ns = make->now_ns;
    recording->begin_unix_ns = 1700000000000000000ull;
    recording->complete = recording->from_start = true;
    *RECMAKE_ADD(recording->strings, recording->string_bytes) = '\0';
    (void)RECMAKE_ADD(recording->sites, recording->site_count);
    (void)RECMAKE_ADD(recording->streams, recording->stream_count);
    *RECMAKE_ADD(recording->threads, recording->thread_count) = (struct gp_rec_thread){.tid = 4242};
    recmake_device(make, 0, total_bytes);
    return make;
}

uint32_t recmake_string(struct recmake *make, const char *text)
{
    struct gp_recording *recording = make->recording;
    uint32_t at = recording->string_bytes;
    for (;; text++) {
        *RECMAKE_ADD(recording->strings, recording->string_bytes) = *text;
        if (*text == '\0')
            return at;
    }
}

uint32_t recmake_device(struct recmake *make, uint8_t index, int64_t total_bytes)
{
    struct gp_recording *recording = make->recording;
    struct gp_rec_device *device = RECMAKE_ADD(recording->devices, recording->device_count);
    device->index = index;
    device->ordinal = index == GP_WIRE_HOST ? -1 : index;
    device->total_bytes = total_bytes;
    snprintf(device->name, sizeof(device->name), "Test GPU");
    snprintf(device->uuid, sizeof(device->uuid), "GPU-00000000-0000-0000-0000-0000000000%02x", index);
    return recording->device_count - 1;
}

uint32_t recmake_site(struct recmake *make, uint8_t kind, const struct recmake_frame *frames)
{
    struct gp_recording *recording = make->recording;
    struct gp_rec_site *site;
    uint32_t first = recording->frame_count;
    for (; frames->function != NULL; frames++) {
        struct gp_rec_frame frame = {.function = recmake_string(make, frames->function),
                                     .file = recmake_string(make, frames->file),
                                     .line = frames->line,
                                     .module = GP_REC_NONE};
        *RECMAKE_ADD(recording->frames, recording->frame_count) = frame;
    }
    site = RECMAKE_ADD(recording->sites, recording->site_count);
    site->first_frame = first;
    site->frame_count = recording->frame_count - first;
    site->kind = kind;
    return recording->site_count - 1;
}

uint32_t recmake_native_site(struct recmake *make, uint8_t kind, const char *const *modules)
{
    struct gp_recording *recording = make->recording;
    struct gp_rec_site *site;
    uint32_t first = recording->frame_count;
    for (; *modules != NULL; modules++) {
        uint32_t module = GP_REC_NONE;
        if (**modules != '\0') {
            struct gp_rec_module *row;
            uint32_t path = recmake_string(make, *modules);
            module = recording->module_count;
            row = RECMAKE_ADD(recording->modules, recording->module_count);
            *row = (struct gp_rec_module){.start = (module + 1ull) << 32, .end = (module + 2ull) << 32, .path = path};
        }
        struct gp_rec_frame frame = {.pc = (module + 1ull) << 32 | 16, .module = module};
        *RECMAKE_ADD(recording->frames, recording->frame_count) = frame;
    }
    site = RECMAKE_ADD(recording->sites, recording->site_count);
    site->first_frame = first;
    site->frame_count = recording->frame_count - first;
    site->kind = kind;
    return recording->site_count - 1;
}

void recmake_at(struct recmake *make, uint64_t time_ns)
{
    make->now_ns = time_ns;
}

void recmake_event(struct recmake *make, const struct gp_rec_event *event)
{
    struct gp_recording *recording = make->recording;
    while (recording->thread_count <= event->thread) {
        int tid = 4242 + (int)recording->thread_count;
        *RECMAKE_ADD(recording->threads, recording->thread_count) = (struct gp_rec_thread){.tid = tid};
    }
    *RECMAKE_ADD(recording->events, recording->event_count) = *event;
}

void recmake_alloc(struct recmake *make, uint32_t device, uint8_t kind, uint64_t address, uint64_t bytes, uint32_t site)
{
    recmake_event(make, &(struct gp_rec_event){.time_ns = make->now_ns,
                                               .address = address,
                                               .bytes = bytes,
                                               .site = site,
                                               .type = GP_EVENT_ALLOC,
                                               .kind = kind & 15,
                                               .device = (uint8_t)device});
}

void recmake_free(struct recmake *make, uint32_t device, uint8_t kind, uint64_t address)
{
    const struct gp_recording *recording = make->recording;
    struct gp_rec_event event = {.time_ns = make->now_ns,
                                 .address = address,
                                 .type = GP_EVENT_FREE,
                                 .kind = kind & 15,
                                 .device = (uint8_t)device};
    size_t i;
    for (i = recording->event_count; i-- > 0;) { /* a free has the size and the site of its allocation */
        const struct gp_rec_event *old = &recording->events[i];
        if (old->type == GP_EVENT_ALLOC && old->address == address && old->device == device) {
            event.bytes = old->bytes;
            event.unused = old->unused;
            event.site = old->site;
            break;
        }
    }
    recmake_event(make, &event);
}

void recmake_mark(struct recmake *make, const char *name)
{
    recmake_event(make, &(struct gp_rec_event){.time_ns = make->now_ns,
                                               .bytes = recmake_string(make, name),
                                               .type = GP_EVENT_MARK,
                                               .device = GP_REC_NO_DEVICE});
}

void recmake_sample(struct recmake *make, const struct gp_rec_sample *sample)
{
    struct gp_recording *recording = make->recording;
    *RECMAKE_ADD(recording->samples, recording->sample_count) = *sample;
}

static void recmake_count_sites(struct gp_recording *recording)
{
    size_t i;
    for (i = 0; i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        struct gp_rec_site *site = &recording->sites[event->site];
        if (event->type == GP_EVENT_ALLOC) {
            site->device = recording->devices[event->device].index;
            site->live_bytes += (int64_t)event->bytes;
            site->live_count++;
            site->allocated_bytes += (int64_t)event->bytes;
            site->calls++;
        } else if (event->type == GP_EVENT_FREE) {
            site->live_bytes -= (int64_t)event->bytes;
            site->live_count--;
        }
        if (site->live_bytes > site->peak_bytes)
            site->peak_bytes = site->live_bytes;
    }
}

struct gp_recording *recmake_done(struct recmake *make)
{
    struct gp_recording *recording = make->recording;
    recording->end_ns = make->now_ns + MS;
    recording->tried = recording->delivered = recording->event_count;
    recording->peer = calloc(recording->event_count + 1, sizeof(uint32_t));
    if (recording->peer == NULL || gp_recording_match(recording) != 0)
        abort();
    recmake_count_sites(recording);
    free(make);
    return recording;
}
