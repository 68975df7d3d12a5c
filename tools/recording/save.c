/* SPDX-License-Identifier: MIT
 * save.c: a recording in memory into a file, by the recorder's own writer; see recording.h. */
#include <recording/recording.h>

#include <record/blocks.h>
#include <record/file.h>

#include <errno.h>
#include <stdio.h>

/* A payload is written when it has grown so far; its largest row (a device) is 8 KiB. */
#define GP_WRITE_ENOUGH (GP_FORMAT_BLOCK_BYTES / 2)

struct gp_write {
    const struct gp_recording *recording;
    struct gp_file *file;
    struct gp_pack *pack;
    uint32_t count; /* rows in the payload */
    int error;
};

static void write_begin(struct gp_write *write)
{
    write->pack = gp_file_pack(write->file);
    write->count = 0;
}

static void write_block(struct gp_write *write, enum gp_format_type type)
{
    int error = write->count ? gp_file_block(write->file, type, write->count, true) : 0;
    if (error && !write->error)
        write->error = error;
    write_begin(write);
}

/* After a row: the payload may be large enough.  True: the next row begins one. */
static bool write_row(struct gp_write *write, enum gp_format_type type)
{
    write->count++;
    if (gp_pack_bytes(write->pack) < GP_WRITE_ENOUGH)
        return false;
    write_block(write, type);
    return true;
}

static void write_process(struct gp_write *write)
{
    const struct gp_recording *r = write->recording;
    const struct gp_block_process process = {.pid = r->pid,
                                             .source = r->source,
                                             .driver_version = r->driver_version,
                                             .from_start = r->from_start,
                                             .begin_ns = r->begin_ns,
                                             .begin_unix_ns = r->begin_unix_ns,
                                             .comm = r->comm,
                                             .command_line = r->command_line,
                                             .host = r->host,
                                             .allocator = r->allocator};
    gp_block_process(write->pack, &process);
    write->count = 1;
    write_block(write, GP_BLOCK_PROCESS);
}

/* All strings of the recording stand where the site tables' do: the offsets are theirs. */
static void write_strings(struct gp_write *write)
{
    const struct gp_recording *r = write->recording;
    for (uint32_t at = 0, part; at < r->string_bytes; at += part) {
        part = r->string_bytes - at < GP_WRITE_ENOUGH ? r->string_bytes - at : GP_WRITE_ENOUGH;
        gp_block_first(write->pack, at);
        gp_pack_raw(write->pack, r->strings + at, part);
        write->count = part;
        write_block(write, GP_BLOCK_STRINGS);
    }
}

static void write_modules(struct gp_write *write)
{
    const struct gp_recording *r = write->recording;
    for (uint32_t i = 0; i < r->module_count; i++) {
        const struct gp_rec_module *module = &r->modules[i];
        const char *hex = r->strings + module->build_id;
        uint8_t id[32];
        size_t bytes = 0;
        for (unsigned byte; bytes < sizeof(id) && hex[0] && hex[1] && sscanf(hex, "%2x", &byte) == 1; hex += 2)
            id[bytes++] = (uint8_t)byte;
        gp_block_module(write->pack, module->start, module->end, module->offset, r->strings + module->path, id, bytes);
        write_row(write, GP_BLOCK_MODULES);
    }
    write_block(write, GP_BLOCK_MODULES);
}

static void write_frames(struct gp_write *write)
{
    const struct gp_recording *r = write->recording;
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
            gp_block_first(write->pack, i);
        gp_block_frame(write->pack, &frame);
        begin = write_row(write, GP_BLOCK_FRAMES);
    }
    write_block(write, GP_BLOCK_FRAMES);
}

static void write_sites(struct gp_write *write, enum gp_format_type type)
{
    const struct gp_recording *r = write->recording;
    bool begin = true;
    for (uint32_t i = 1; i < r->site_count; i++) {
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
            gp_block_first(write->pack, i);
        if (type == GP_BLOCK_SITES)
            gp_block_site(write->pack, &site);
        else
            gp_block_site_numbers(write->pack, &site);
        begin = write_row(write, type);
    }
    write_block(write, type);
}

static void write_threads(struct gp_write *write)
{
    const struct gp_recording *r = write->recording;
    for (uint32_t i = 0; i < r->thread_count; i++) {
        gp_block_thread(write->pack, r->threads[i].tid, r->strings + r->threads[i].name);
        write_row(write, GP_BLOCK_THREADS);
    }
    write_block(write, GP_BLOCK_THREADS);
}

static uint8_t write_index(const struct gp_recording *r, uint32_t device)
{
    return device < r->device_count ? r->devices[device].index : GP_REC_NO_DEVICE;
}

static void write_events(struct gp_write *write, const struct gp_rec_event *events, size_t count,
                         enum gp_format_type type)
{
    const struct gp_recording *r = write->recording;
    for (size_t i = 0; i < count; i++) {
        const struct gp_rec_event *from = &events[i];
        struct gp_wire_event event = {.time_ns = from->time_ns,
                                      .cost = (uint8_t)from->cost,
                                      .tid = r->threads[from->thread].tid,
                                      .site = from->site,
                                      .type = from->type,
                                      .kind = from->kind,
                                      .device = write_index(r, from->device)};
        if (from->type == GP_EVENT_MARK) {
            snprintf(event.name, sizeof(event.name), "%s", r->strings + from->bytes);
        } else {
            event.address = from->address;
            event.bytes = from->bytes;
            event.requested_bytes = gp_rec_requested(from);
            event.stream = from->stream < r->stream_count ? r->streams[from->stream] : 0;
        }
        gp_file_add(write->file, &event, type);
    }
    gp_file_flush(write->file, type);
}

static void write_samples(struct gp_write *write)
{
    const struct gp_recording *r = write->recording;
    for (size_t i = 0; i < r->sample_count; i++) {
        const struct gp_rec_sample *from = &r->samples[i];
        const struct gp_block_sample sample = {
            from->time_ns,      write_index(r, from->device), from->allocated_bytes, from->reserved_bytes,
            from->active_bytes, from->inactive_split_bytes,   from->used_bytes,      from->process_bytes};
        gp_block_sample(write->pack, &sample);
        write_row(write, GP_BLOCK_SAMPLES);
    }
    write_block(write, GP_BLOCK_SAMPLES);
}

static void write_devices(struct gp_write *write)
{
    const struct gp_recording *r = write->recording;
    for (uint32_t i = 0; i < r->device_count; i++) {
        const struct gp_rec_device *device = &r->devices[i];
        gp_block_device(write->pack, device->index, device->ordinal, device->uuid, device->name, device->total_bytes,
                        device->has_last ? &device->last : NULL, device->has_last);
        write_row(write, GP_BLOCK_DEVICES);
    }
    write_block(write, GP_BLOCK_DEVICES);
}

static void write_end(struct gp_write *write)
{
    const struct gp_recording *r = write->recording;
    struct gp_block_counts counts = {
        .why = GP_END_STOPPED, .time_ns = r->end_ns, .tried = r->tried, .delivered = r->delivered};
    if (r->has_oom) {
        gp_block_oom(write->pack, &r->oom);
        write->count = 1;
        write_block(write, GP_BLOCK_OOM);
    }
    counts.dropped[GP_DROP_RING] = r->dropped;
    for (unsigned i = 0; i < GP_LOSTS; i++)
        counts.lost[i] = r->lost[i];
    gp_block_counts(write->pack, &counts);
    write->count = 1;
    write_block(write, r->complete ? GP_BLOCK_END : GP_BLOCK_COUNTS);
}

int gp_recording_write(const struct gp_recording *recording, const char *path)
{
    struct gp_write write = {.recording = recording};
    const struct gp_file_who who = {.pid = recording->pid, .begin_unix_ns = recording->begin_unix_ns};
    struct gp_file_stats stats;
    int fd = gp_file_open(path, true);
    int error = fd < 0 ? fd : gp_file_new(&write.file, fd, &who);
    if (error)
        return error;
    write_begin(&write);
    write_process(&write);
    write_strings(&write);
    write_modules(&write);
    write_frames(&write);
    write_sites(&write, GP_BLOCK_SITES);
    write_devices(&write);
    write_threads(&write);
    write_events(&write, recording->baseline, recording->baseline_count, GP_BLOCK_BASELINE);
    write_events(&write, recording->events, recording->event_count, GP_BLOCK_EVENTS);
    write_begin(&write);
    write_samples(&write);
    write_sites(&write, GP_BLOCK_SITE_NUMBERS);
    write_end(&write);
    gp_file_stats(write.file, &stats);
    error = gp_file_end(write.file);
    return write.error ? write.error : stats.given_up ? -(stats.error ? stats.error : EIO) : error;
}
