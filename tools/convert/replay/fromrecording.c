/* SPDX-License-Identifier: MIT
 * fromrecording.c: turns recordings, and what is read as one (snapshots, logs of RMM), into traces.
 * Called by open.c, and by tests for a recording that is in memory.
 *
 * A trace takes the allocations that a caching allocator could have served instead of the driver:
 * linear, pitched and pool memory.  Other requests (host memory, arrays, physical memory, segments,
 * contexts) are left out and counted, and so are frees of blocks that the recording did not see
 * allocated. */
#include <convert/replay/trace.h>
#include <read/recording/recording.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GP_MARK_BYTES 200u /* ours have 32; the text form's lines have 1024 */

struct gp_import {
    struct gp_replay_builder *b;
    const struct gp_recording *recording;
    uint32_t *numbers; /* of devices; GP_REC_NONE: the host */
};

static bool import_is_request(const struct gp_import *import, const struct gp_rec_event *event)
{
    bool kind = event->kind == GP_KIND_LINEAR || event->kind == GP_KIND_PITCHED || event->kind == GP_KIND_POOL;
    return kind && event->device < import->recording->device_count && import->numbers[event->device] != GP_REC_NONE;
}

/* The calling thread does not change the order of operations, so threads beyond the limit of a
 * trace share numbers. */
static uint32_t import_thread(const struct gp_rec_event *event)
{
    return event->thread % GP_REPLAY_THREADS;
}

static int import_stream(const struct gp_import *import, const struct gp_rec_event *event, uint32_t *stream)
{
    const struct gp_recording *recording = import->recording;
    uint64_t name = event->stream < recording->stream_count ? recording->streams[event->stream] : 0;
    return gp_replay_stream(import->b, name == 1 ? 0 : name, stream); /* 1: the handle of the default stream */
}

static int import_alloc(const struct gp_import *import, const struct gp_rec_event *event, uint32_t name)
{
    uint32_t stream;
    if (!import_is_request(import, event)) {
        import->b->trace->left_out++;
        return 0;
    }
    int rc = import_stream(import, event, &stream);
    return rc ? rc
              : gp_replay_alloc(import->b, name, gp_rec_requested(event), stream, import_thread(event),
                                import->numbers[event->device]);
}

static int import_free(const struct gp_import *import, size_t index)
{
    const struct gp_rec_event *event = &import->recording->events[index];
    uint32_t stream, name = import->recording->peer[index];
    if (name == GP_REC_NONE) {
        import->b->trace->left_out++;
        return 0;
    }
    int rc = import_stream(import, event, &stream);
    /* Only a stream-ordered free names a stream; any other waits for the device. */
    bool ordered = event->kind == GP_KIND_POOL || import->recording->from_rmm;
    if (!rc)
        rc = gp_replay_free(import->b, name, ordered ? stream : GP_REPLAY_ANY, import_thread(event));
    import->b->trace->left_out += rc == -ENOENT; /* its allocation was left out */
    return rc == -ENOENT ? 0 : rc;
}

/* Marks of the text form are one line, without blanks at its ends. */
static int import_mark(const struct gp_import *import, const struct gp_rec_event *event)
{
    const char *name = import->recording->strings + event->bytes;
    char text[GP_MARK_BYTES];
    size_t length = 0;
    while (*name == ' ' || *name == '\t')
        name++;
    for (; name[length] && length < sizeof(text); length++)
        text[length] = (unsigned char)name[length] < 0x20 ? ' ' : name[length];
    while (length && text[length - 1] == ' ')
        length--;
    if (length == 0) /* no character that a line can hold */
        return gp_replay_mark(import->b, "mark", 4, import_thread(event));
    return gp_replay_mark(import->b, text, length, import_thread(event));
}

static int import_event(const struct gp_import *import, size_t index)
{
    const struct gp_rec_event *event = &import->recording->events[index];
    switch (event->type) {
    case GP_EVENT_ALLOC:
        return import_alloc(import, event, (uint32_t)index);
    case GP_EVENT_FREE:
        return import_free(import, index);
    case GP_EVENT_MARK:
        return import_mark(import, event);
    case GP_EVENT_OOM:
        import->b->trace->left_out++;
        return gp_replay_mark(import->b, "oom", 3, import_thread(event));
    default:
        import->b->trace->left_out++;
        return 0;
    }
}

static int import_all(const struct gp_import *import)
{
    const struct gp_recording *recording = import->recording;
    int rc = 0;
    for (size_t i = 0; i < recording->baseline_count && !rc; i++) {
        if (recording->baseline[i].type == GP_EVENT_ALLOC)
            rc = import_alloc(import, &recording->baseline[i], (uint32_t)(recording->event_count + i));
    }
    for (size_t i = 0; i < recording->event_count && !rc; i++)
        rc = import_event(import, i);
    return rc;
}

int gp_replay_import(struct gp_replay_builder *b, const struct gp_recording *recording)
{
    struct gp_import import = {b, recording, calloc(recording->device_count + 1, sizeof(uint32_t))};
    uint32_t next = 0;
    if (!import.numbers) {
        gp_replay_say(&b->problem, "out of memory");
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < recording->device_count; i++)
        import.numbers[i] = recording->devices[i].index == GP_WIRE_HOST ? GP_REC_NONE : next++;
    int rc = import_all(&import);
    free(import.numbers);
    return rc;
}

int gp_replay_recording(struct gp_replay_builder *b, const uint8_t *data, size_t bytes)
{
    struct gp_recording *recording;
    int rc = gp_recording_parse(&recording, data, bytes, b->problem.text, sizeof(b->problem.text));
    if (rc)
        return rc;
    rc = gp_replay_import(b, recording);
    b->trace->format = recording->from_torch ? "PyTorch snapshot"
                       : recording->from_rmm ? "RMM log"
                                             : "gpuprof recording";
    b->trace->left_out += recording->dropped + recording->damaged_blocks; /* at least one event each */
    b->trace->left_out += recording->torch_unknown;
    gp_recording_free(recording);
    return rc;
}
