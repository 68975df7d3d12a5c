/* SPDX-License-Identifier: MIT
 *
 * recsave.c: see recsave.h. With the recorder's own writer.
 */
#include <lib/recsave.h>

#include "record/format.h"
#include "record/pack.h"
#include <gpuprof/wire.h>
#include <record/blocks.h>
#include <record/file.h>
#include <record/recorder.h>

#include <stdio.h>
#include <unistd.h>

/* A payload is written when it reaches this size; its largest row (a device) has 8 KiB. */
#define RECSAVE_ENOUGH (GP_FORMAT_BLOCK_BYTES / 2)

struct save {
    const struct gp_recording *recording;
    struct gp_file *file;
    struct gp_pack *pack;
    uint32_t count; /* rows in the payload */
    int error;
};

static void save_begin(struct save *save)
{
    save->pack = gp_file_pack(save->file);
    save->count = 0;
}

static void save_block(struct save *save, enum gp_format_type type)
{
    int error = save->count ? gp_file_block(save->file, type, save->count, true) : 0;
    if (error && !save->error)
        save->error = error;
    save_begin(save);
}

/* Called after each row; writes the payload if it is large enough. True: the next row starts a new
 * one. */
static bool save_row(struct save *save, enum gp_format_type type)
{
    save->count++;
    if (gp_pack_bytes(save->pack) < RECSAVE_ENOUGH)
        return false;
    save_block(save, type);
    return true;
}

static void save_process(struct save *save)
{
    const struct gp_recording *r = save->recording;
    const struct gp_block_process process = {
        .pid = r->pid,
        .source = r->source,
        .driver_version = r->driver_version,
        .from_start = r->from_start,
        .begin_ns = r->begin_ns,
        .begin_unix_ns = r->begin_unix_ns,
        .comm = r->comm,
        .command_line = r->command_line,
        .host = r->host,
        .allocator = r->allocator,
        .rank = r->has_rank ? (struct gp_rank){r->rank, r->local_rank, r->world_size} : (struct gp_rank){-1, -1, -1},
        .attached = (enum gp_format_attached)r->attached};
    gp_block_process(save->pack, &process);
    save->count = 1;
    save_block(save, GP_BLOCK_PROCESS);
}

/* All strings of the recording are written as the site tables' strings, whose offsets the frames
 * use. */
static void save_strings(struct save *save)
{
    const struct gp_recording *r = save->recording;
    for (uint32_t at = 0, part; at < r->string_bytes; at += part) {
        part = r->string_bytes - at < RECSAVE_ENOUGH ? r->string_bytes - at : RECSAVE_ENOUGH;
        gp_block_first(save->pack, at);
        gp_pack_raw(save->pack, r->strings + at, part);
        save->count = part;
        save_block(save, GP_BLOCK_STRINGS);
    }
}

static void save_modules(struct save *save)
{
    const struct gp_recording *r = save->recording;
    for (uint32_t i = 0; i < r->module_count; i++) {
        const struct gp_rec_module *module = &r->modules[i];
        const char *hex = r->strings + module->build_id;
        uint8_t id[32];
        size_t bytes = 0;
        for (unsigned byte; bytes < sizeof(id) && hex[0] && hex[1] && sscanf(hex, "%2x", &byte) == 1; hex += 2)
            id[bytes++] = (uint8_t)byte;
        gp_block_module(save->pack, module->start, module->end, module->offset, r->strings + module->path, id, bytes);
        save_row(save, GP_BLOCK_MODULES);
    }
    save_block(save, GP_BLOCK_MODULES);
}

static void save_frames(struct save *save)
{
    const struct gp_recording *r = save->recording;
    bool begin = true;
    for (uint32_t i = 0; i < r->frame_count; i++) {
        const struct gp_rec_frame *from = &r->frames[i];
        struct gp_wire_frame frame = {.line = from->line, .type = from->pc ? GP_FRAME_NATIVE : GP_FRAME_PYTHON};
        if (from->pc) {
            frame.pc = from->pc;
        } else {
            frame.function = from->function;
            frame.file = from->file;
        }
        if (begin)
            gp_block_first(save->pack, i);
        gp_block_frame(save->pack, &frame);
        begin = save_row(save, GP_BLOCK_FRAMES);
    }
    save_block(save, GP_BLOCK_FRAMES);
}

static void save_sites(struct save *save, enum gp_format_type type)
{
    const struct gp_recording *r = save->recording;
    bool begin = true;
    for (uint32_t i = 0; i < r->site_count; i++) { /* the first may have a name: "before stacks" */
        const struct gp_rec_site *from = &r->sites[i];
        const struct gp_wire_site site = {.first_frame = from->first_frame,
                                          .frame_count = from->frame_count,
                                          .kind = from->kind,
                                          .device = from->device,
                                          .truncated = from->truncated,
                                          .live_bytes = from->live_bytes,
                                          .live_count = from->live_count,
                                          .peak_bytes = from->peak_bytes,
                                          .at_peak_bytes = from->at_peak_bytes,
                                          .allocated_bytes = from->allocated_bytes,
                                          .calls = from->calls};
        if (begin)
            gp_block_first(save->pack, i);
        if (type == GP_BLOCK_SITES)
            gp_block_site(save->pack, &site);
        else
            gp_block_site_numbers(save->pack, &site);
        begin = save_row(save, type);
    }
    save_block(save, type);
}

static void save_threads(struct save *save)
{
    const struct gp_recording *r = save->recording;
    for (uint32_t i = 0; i < r->thread_count; i++) {
        gp_block_thread(save->pack, r->threads[i].tid, r->strings + r->threads[i].name);
        save_row(save, GP_BLOCK_THREADS);
    }
    save_block(save, GP_BLOCK_THREADS);
}

static uint8_t save_index(const struct gp_recording *r, uint32_t device)
{
    return device < r->device_count ? r->devices[device].index : GP_REC_NO_DEVICE;
}

/* The mark of an event at which a block falls asleep or wakes: rows of sleeps and events are in the order of time. */
static uint32_t save_sleep(const struct gp_recording *r, const struct gp_rec_event *event, size_t *next)
{
    if (*next == r->sleep_count)
        return 0;
    const struct gp_rec_sleep *sleep = &r->sleeps[*next];
    unsigned type = sleep->what == GP_SLEEP_FALLS ? GP_EVENT_FREE : GP_EVENT_ALLOC;
    if (sleep->time_ns != event->time_ns || type != event->type)
        return 0;
    return r->sleeps[(*next)++].what;
}

static void save_events(struct save *save, const struct gp_rec_event *events, size_t count, enum gp_format_type type)
{
    const struct gp_recording *r = save->recording;
    size_t sleep = 0;
    for (size_t i = 0; i < count; i++) {
        const struct gp_rec_event *from = &events[i];
        struct gp_wire_event event = {.time_ns = from->time_ns,
                                      .cost = (uint8_t)from->cost,
                                      .tid = r->threads[from->thread].tid,
                                      .site = from->site,
                                      .type = from->type,
                                      .kind = from->kind,
                                      .device = save_index(r, from->device)};
        if (from->type == GP_EVENT_MARK) {
            snprintf(event.name, sizeof(event.name), "%s", r->strings + from->bytes);
        } else {
            event.address = from->address;
            event.bytes = from->bytes;
            event.requested_bytes = gp_rec_requested(from);
            event.stream = from->stream < r->stream_count ? r->streams[from->stream] : 0;
            event.error = save_sleep(r, from, &sleep);
        }
        gp_file_add(save->file, &event, type);
    }
    gp_file_flush(save->file, type);
}

static void save_samples(struct save *save)
{
    const struct gp_recording *r = save->recording;
    for (size_t i = 0; i < r->sample_count; i++) {
        const struct gp_rec_sample *from = &r->samples[i];
        const struct gp_block_sample sample = {
            from->time_ns,      save_index(r, from->device), from->allocated_bytes, from->reserved_bytes,
            from->active_bytes, from->inactive_split_bytes,  from->used_bytes,      from->process_bytes};
        gp_block_sample(save->pack, &sample);
        save_row(save, GP_BLOCK_SAMPLES);
    }
    save_block(save, GP_BLOCK_SAMPLES);
}

static void save_devices(struct save *save)
{
    const struct gp_recording *r = save->recording;
    for (uint32_t i = 0; i < r->device_count; i++) {
        const struct gp_rec_device *device = &r->devices[i];
        gp_block_device(save->pack, device->index, device->ordinal, device->uuid, device->name, device->total_bytes,
                        device->has_last ? &device->last : NULL, device->has_last);
        save_row(save, GP_BLOCK_DEVICES);
    }
    save_block(save, GP_BLOCK_DEVICES);
}

static void save_befores(struct save *save)
{
    const struct gp_recording *r = save->recording;
    for (size_t i = 0; i < r->before_count; i++) {
        gp_block_before(save->pack, r->befores[i].time_ns, save_index(r, r->befores[i].device), &r->befores[i].is);
        save_row(save, GP_BLOCK_BEFORE);
    }
    save_block(save, GP_BLOCK_BEFORE);
}

static void save_end(struct save *save)
{
    const struct gp_recording *r = save->recording;
    struct gp_block_counts counts = {.why = GP_END_STOPPED,
                                     .time_ns = r->ended_early ? r->stopped_ns : r->end_ns,
                                     .tried = r->tried,
                                     .delivered = r->delivered};
    if (r->has_oom) {
        gp_block_oom(save->pack, &r->oom);
        save->count = 1;
        save_block(save, GP_BLOCK_OOM);
    }
    counts.dropped[GP_DROP_FILE] = r->unwritten;
    counts.dropped[GP_DROP_RING] = r->dropped - r->unwritten;
    counts.lost_error = r->write_error;
    counts.lost_ns = r->write_error_ns;
    counts.lost_after = r->ended_early ? r->delivered : 0;
    for (unsigned i = 0; i < GP_LOSTS; i++)
        counts.lost[i] = r->lost[i];
    gp_block_counts(save->pack, &counts);
    save->count = 1;
    save_block(save, r->complete ? GP_BLOCK_END : GP_BLOCK_COUNTS);
}

int recsave(const struct gp_recording *recording, const char *path)
{
    struct save save = {.recording = recording};
    const struct gp_file_who who = {.pid = recording->pid, .begin_unix_ns = recording->begin_unix_ns};
    struct gp_file_stats stats;
    unlink(path);
    int fd = gp_file_open(path, true);
    int error = fd < 0 ? fd : gp_file_new(&save.file, fd, &who);
    if (error)
        return error;
    save_begin(&save);
    save_process(&save);
    save_strings(&save);
    save_modules(&save);
    save_frames(&save);
    save_sites(&save, GP_BLOCK_SITES);
    save_devices(&save);
    save_threads(&save);
    save_events(&save, recording->baseline, recording->baseline_count, GP_BLOCK_BASELINE);
    save_events(&save, recording->events, recording->event_count, GP_BLOCK_EVENTS);
    save_begin(&save);
    save_samples(&save);
    save_befores(&save);
    save_sites(&save, GP_BLOCK_SITE_NUMBERS);
    save_end(&save);
    gp_file_stats(save.file, &stats);
    error = gp_file_end(save.file);
    return save.error ? save.error : stats.given_up ? -stats.lost_error : error;
}
