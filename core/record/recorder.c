/* SPDX-License-Identifier: MIT
 * recorder.c: copies events and state from a session to a recording; see recorder.h. */
#include "record/recorder.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/text.h"
#include "record/blocks.h"
#include "record/file.h"
#include "record/format.h"
#include "record/modules.h"
#include "record/pack.h"
#include "record/ringread.h"
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/wire.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define GP_RECORDER_SECOND 1000000000ull
#define GP_RECORDER_FIRST  20000000ull /* the first interval; they grow to a second */
/* How often an idle process is sampled and all devices' numbers are written: a process that is
 * killed later has at least these. */
#define GP_RECORDER_IDLE (10 * GP_RECORDER_SECOND)
/* Threads whose names are recorded; the hash table has twice as many places. */
#define GP_RECORDER_TIDS 16384u
/* The deadline is checked once per this many events, which take some 50 us, and some milliseconds
 * when they fill a block. */
#define GP_RECORDER_ASK 1024
/* Rows copied at a time. */
#define GP_RECORDER_ROWS 1024u

_Static_assert(offsetof(struct gp_wire_header, flags) % 8 == 0 && offsetof(struct gp_wire_header, lost) % 8 == 0 &&
                   offsetof(struct gp_wire_header, publish_seq) % 8 == 0,
               "these fields are copied in words of 8 bytes");

struct gp_recorder {
    struct gp_recorder_setup setup;
    struct gp_file *file;
    struct gp_ringread *ring;
    struct gp_modules modules;
    uint64_t begin_ns, begin_unix_ns;
    uint64_t started_ns;
    uint64_t second_ns, idle_ns; /* times of the next writes */
    uint64_t events_then;        /* delivered by the ring at the last write */
    uint64_t lost_then;          /* header.lost[GP_LOST_RING] at the start */
    uint64_t lost[GP_LOSTS];
    uint64_t oom_count;
    uint32_t sites, frames, strings; /* written */
    bool named_none;                 /* row 0 was written with its name */
    uint32_t named_site;             /* highest site that an event named */
    uint32_t source, driver_version; /* as last written */
    char allocator[sizeof(((struct gp_wire_header *)0)->allocator)];
    uint64_t seen;                     /* events of the ring that the file had before (setup.in_file) */
    uint64_t late;                     /* written after the start with a time before it: the baseline has the change */
    uint64_t left;                     /* events taken from the ring that were not written in time */
    uint64_t gpus;                     /* one bit for each GPU that an event named */
    char comm[64], command_line[4096]; /* as last seen: a process that has ended has none */
    bool baseline, process_written, began;
    bool modules_due;                      /* a frame was in no known module since the last read */
    bool lost_told;                        /* a block of counts has the reason of lost events */
    uint8_t device_flags[GP_WIRE_DEVICES]; /* as last written */
    struct gp_wire_before before;
    struct gp_wire_before_device before_told[GP_WIRE_GPUS]; /* as last written */
    uint64_t modules_ns;                                    /* time of the last read */
    uint32_t tids, tid_count_named;
    uint32_t tid[2 * GP_RECORDER_TIDS];
    uint32_t tid_new[GP_RECORDER_TIDS];
    struct gp_wire_device device;
    union {
        struct gp_wire_site site[GP_RECORDER_ROWS];
        struct gp_wire_frame frame[GP_RECORDER_ROWS];
        char text[64u << 10];
        struct gp_wire_oom oom;
    } buffer;
};

static int recorder_copy(struct gp_recorder *r, void *into, size_t bytes, uint64_t offset)
{
    return r->setup.copy(r->setup.copy_arg, into, bytes, offset);
}

static int recorder_ring_copy(void *arg, void *into, size_t bytes, uint64_t offset)
{
    struct gp_recorder *r = arg;
    return recorder_copy(r, into, bytes, r->setup.header.ring_offset + offset);
}

/* ---- process ----------------------------------------------------------------------------------------------------- */

/* The process's own recorder must not open a file then. */
static bool recorder_confined(const struct gp_recorder *r)
{
    return r->setup.confined && r->setup.confined(r->setup.arg);
}

/* The directory of its memory. */
static const char *recorder_memory(const struct gp_recorder *r)
{
    return r->setup.memory ? r->setup.memory : r->setup.proc;
}

static void recorder_proc_text(const struct gp_recorder *r, const char *proc, const char *name, char *text,
                               size_t bytes)
{
    char path[80];
    text[0] = '\0';
    if (recorder_confined(r))
        return;
    snprintf(path, sizeof(path), "%.50s/%s", proc, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t got = read(fd, text, bytes - 1);
    close(fd);
    size_t length = got > 0 ? (size_t)got : 0;
    while (length && (text[length - 1] == '\n' || text[length - 1] == '\0'))
        length--;
    for (size_t i = 0; i < length; i++)
        text[i] = text[i] == '\0' ? ' ' : text[i];
    text[length] = '\0';
}

static bool recorder_has_before(const struct gp_recorder *r)
{
    return r->setup.header.before_offset && r->setup.header.before_bytes >= sizeof(r->before);
}

/* The word is written once, when the library starts. A library without this part cannot be
 * attached. */
static enum gp_format_attached recorder_attached(struct gp_recorder *r)
{
    uint64_t word;
    if (!recorder_has_before(r))
        return GP_FORMAT_ATTACHED_NO;
    if (recorder_copy(r, &word, sizeof(word), r->setup.header.before_offset) != 0)
        return GP_FORMAT_ATTACHED_UNKNOWN;
    return (uint32_t)word == 1 ? GP_FORMAT_ATTACHED_YES : GP_FORMAT_ATTACHED_NO;
}

/* Written again when the source, the driver or the allocator becomes known. */
static void recorder_process(struct gp_recorder *r)
{
    const size_t at = offsetof(struct gp_wire_header, flags);
    struct gp_wire_header now;
    char comm[sizeof(r->comm)], command_line[sizeof(r->command_line)];
    struct utsname host;
    if (recorder_copy(r, (char *)&now + at, sizeof(now) - at, at) != 0)
        return;
    now.allocator[sizeof(now.allocator) - 1] = '\0';
    memcpy(r->lost, now.lost, sizeof(r->lost));
    if (r->process_written && now.source == r->source && now.driver_version == r->driver_version &&
        strcmp(now.allocator, r->allocator) == 0)
        return;
    recorder_proc_text(r, r->setup.proc, "comm", comm, sizeof(comm));
    recorder_proc_text(r, recorder_memory(r), "cmdline", command_line, sizeof(command_line));
    if (comm[0])
        memcpy(r->comm, comm, sizeof(comm));
    if (command_line[0])
        memcpy(r->command_line, command_line, sizeof(command_line));
    if (recorder_confined(r) || uname(&host) != 0)
        host.nodename[0] = '\0';
    const struct gp_block_process process = {.pid = r->setup.header.pid,
                                             .source = now.source,
                                             .driver_version = now.driver_version,
                                             .from_start = r->setup.from_start,
                                             .begin_ns = r->begin_ns,
                                             .begin_unix_ns = r->begin_unix_ns,
                                             .comm = r->comm,
                                             .command_line = r->command_line,
                                             .host = host.nodename,
                                             .allocator = now.allocator,
                                             .rank = r->setup.rank,
                                             .attached = recorder_attached(r)};
    gp_block_process(gp_file_pack(r->file), &process);
    if (gp_file_block(r->file, GP_BLOCK_PROCESS, 1, false) != 0)
        return;
    r->process_written = true;
    r->source = now.source;
    r->driver_version = now.driver_version;
    memcpy(r->allocator, now.allocator, sizeof(r->allocator));
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static void recorder_tid(struct gp_recorder *r, uint32_t tid)
{
    uint32_t at = tid * 0x9e3779b9u % GP_COUNT(r->tid);
    if (!tid || r->tids == GP_RECORDER_TIDS)
        return;
    for (; r->tid[at]; at = (at + 1) % GP_COUNT(r->tid))
        if (r->tid[at] == tid)
            return;
    r->tid[at] = tid;
    r->tid_new[r->tids++] = tid;
}

static void recorder_threads(struct gp_recorder *r)
{
    uint32_t count = r->tids - r->tid_count_named;
    if (!count)
        return;
    struct gp_pack *pack = gp_file_pack(r->file);
    for (uint32_t i = r->tid_count_named; i < r->tids; i++) {
        char file[48], name[64];
        snprintf(file, sizeof(file), "task/%u/comm", r->tid_new[i]);
        recorder_proc_text(r, r->setup.proc, file, name, sizeof(name));
        gp_block_thread(pack, r->tid_new[i], name);
    }
    if (gp_file_block(r->file, GP_BLOCK_THREADS, count, false) == 0)
        r->tid_count_named = r->tids;
}

/* ---- sites ------------------------------------------------------------------------------------------------------- */

static bool recorder_inside(uint64_t offset, uint64_t rows, uint64_t row_bytes, uint64_t bytes)
{
    return offset % 8 == 0 && offset <= bytes && rows <= (bytes - offset) / row_bytes;
}

/* Stacks may be switched on while the recording runs: the tables come then. */
static void recorder_find_tables(struct gp_recorder *r)
{
    struct gp_wire_header *header = &r->setup.header;
    const size_t at = offsetof(struct gp_wire_header, sites_offset);
    uint64_t now[2]; /* the offset and the bytes */
    if (header->sites_offset || recorder_copy(r, now, sizeof(now), at) != 0 || !now[0] || now[0] % 8 != 0 ||
        now[0] > header->total_bytes || now[1] > header->total_bytes - now[0])
        return;
    header->sites_offset = now[0];
    header->sites_bytes = now[1];
}

/* Reads the tables' head. The count of rows is copied first: everything that those rows name is
 * then covered by the counts of the second copy. */
static bool recorder_tables(struct gp_recorder *r, struct gp_wire_sites *sites)
{
    const struct gp_wire_header *header = &r->setup.header;
    struct gp_wire_sites first;
    recorder_find_tables(r);
    if (!header->sites_offset || header->sites_bytes < sizeof(*sites) ||
        recorder_copy(r, &first, sizeof(first), header->sites_offset) != 0 ||
        recorder_copy(r, sites, sizeof(*sites), header->sites_offset) != 0)
        return false;
    sites->rows = first.rows;
    return sites->row_bytes == sizeof(struct gp_wire_site) && sites->frame_bytes == sizeof(struct gp_wire_frame) &&
           recorder_inside(sites->rows_offset, sites->rows, sizeof(struct gp_wire_site), header->sites_bytes) &&
           recorder_inside(sites->frames_offset, sites->frames, sizeof(struct gp_wire_frame), header->sites_bytes) &&
           recorder_inside(sites->strings_offset, ((uint64_t)sites->strings + 7) / 8, 8, header->sites_bytes);
}

static bool recorder_strings(struct gp_recorder *r, const struct gp_wire_sites *sites)
{
    while (r->strings < sites->strings) {
        uint32_t from = r->strings & ~7u, most = sites->strings - from;
        uint32_t bytes = most < sizeof(r->buffer.text) ? most : (uint32_t)sizeof(r->buffer.text);
        if (recorder_copy(r, r->buffer.text, (bytes + 7) & ~7u,
                          r->setup.header.sites_offset + sites->strings_offset + from) != 0)
            return false;
        struct gp_pack *pack = gp_file_pack(r->file);
        gp_block_first(pack, r->strings);
        gp_pack_raw(pack, r->buffer.text + (r->strings - from), from + bytes - r->strings);
        if (gp_file_block(r->file, GP_BLOCK_STRINGS, from + bytes - r->strings, false) != 0)
            return false;
        r->strings = from + bytes;
    }
    return true;
}

static bool recorder_has_module(const struct gp_modules *modules, const struct gp_module *module)
{
    const struct gp_module *old = gp_modules_find(modules, module->start);
    return old && old->start == module->start && old->end == module->end && strcmp(old->path, module->path) == 0;
}

/* Writes the modules loaded since the last read. */
static void recorder_modules(struct gp_recorder *r)
{
    struct gp_modules now;
    uint32_t count = 0;
    if (recorder_confined(r))
        return;
    if (gp_modules_read(&now, recorder_memory(r), r->setup.open_module) != 0)
        return;
    struct gp_pack *pack = gp_file_pack(r->file);
    for (uint32_t i = 0; i < now.count; i++) {
        const struct gp_module *module = &now.rows[i];
        if (recorder_has_module(&r->modules, module))
            continue;
        gp_block_module(pack, module->start, module->end, module->offset, module->path, module->build_id,
                        module->build_id_bytes);
        count++;
    }
    if (count && gp_file_block(r->file, GP_BLOCK_MODULES, count, false) != 0) {
        gp_modules_free(&now);
        return;
    }
    gp_modules_free(&r->modules);
    r->modules = now;
}

/* Reads the maps after a frame that is in no known module, at most once a second: a pc that is in
 * no module (code made at run time) must not cause a read for every stack. The last write reads
 * them too: a library may have been loaded since. */
static void recorder_look(struct gp_recorder *r, bool last)
{
    uint64_t now = gp_clock_ns();
    if (!r->modules_due || (!last && r->modules_ns && now - r->modules_ns < GP_RECORDER_SECOND))
        return;
    r->modules_due = false;
    r->modules_ns = now;
    recorder_modules(r);
}

static void recorder_known(struct gp_recorder *r, uint32_t count)
{
    for (uint32_t i = 0; i < count && !r->modules_due; i++) {
        const struct gp_wire_frame *frame = &r->buffer.frame[i];
        r->modules_due = frame->type == GP_FRAME_NATIVE && !gp_modules_find(&r->modules, frame->pc);
    }
    recorder_look(r, false);
}

static bool recorder_frames(struct gp_recorder *r, const struct gp_wire_sites *sites)
{
    while (r->frames < sites->frames) {
        uint32_t left = sites->frames - r->frames, count = left < GP_RECORDER_ROWS ? left : GP_RECORDER_ROWS;
        if (recorder_copy(r, r->buffer.frame, count * sizeof(struct gp_wire_frame),
                          r->setup.header.sites_offset + sites->frames_offset +
                              (uint64_t)r->frames * sizeof(struct gp_wire_frame)) != 0)
            return false;
        recorder_known(r, count);
        struct gp_pack *pack = gp_file_pack(r->file);
        gp_block_first(pack, r->frames);
        for (uint32_t i = 0; i < count; i++)
            gp_block_frame(pack, &r->buffer.frame[i]);
        if (gp_file_block(r->file, GP_BLOCK_FRAMES, count, false) != 0)
            return false;
        r->frames += count;
    }
    return true;
}

static uint32_t recorder_site_rows(struct gp_recorder *r, const struct gp_wire_sites *sites, uint32_t from)
{
    uint32_t left = sites->rows - from, count = left < GP_RECORDER_ROWS ? left : GP_RECORDER_ROWS;
    bool copied = recorder_copy(r, r->buffer.site, count * sizeof(struct gp_wire_site),
                                r->setup.header.sites_offset + sites->rows_offset +
                                    (uint64_t)from * sizeof(struct gp_wire_site)) == 0;
    return copied ? count : 0;
}

/* Row 0 gets its name when stacks are switched, which may be after it was written. */
static void recorder_name_none(struct gp_recorder *r, const struct gp_wire_sites *sites)
{
    struct gp_wire_site none;
    if (r->named_none ||
        recorder_copy(r, &none, sizeof(none), r->setup.header.sites_offset + sites->rows_offset) != 0 ||
        !none.frame_count || none.first_frame >= r->frames)
        return;
    struct gp_pack *pack = gp_file_pack(r->file);
    gp_block_first(pack, 0);
    gp_block_site(pack, &none);
    r->named_none = gp_file_block(r->file, GP_BLOCK_SITES, 1, false) == 0;
}

/* Writes the new rows of the tables; a block that could not be written is tried again next time. */
static void recorder_sites(struct gp_recorder *r)
{
    struct gp_wire_sites sites;
    if (!recorder_tables(r, &sites) || !recorder_strings(r, &sites) || !recorder_frames(r, &sites))
        return;
    recorder_name_none(r, &sites);
    while (r->sites < sites.rows) {
        uint32_t count = recorder_site_rows(r, &sites, r->sites);
        struct gp_pack *pack = gp_file_pack(r->file);
        gp_block_first(pack, r->sites);
        for (uint32_t i = 0; i < count; i++)
            gp_block_site(pack, &r->buffer.site[i]);
        if (!count || gp_file_block(r->file, GP_BLOCK_SITES, count, false) != 0)
            return;
        r->sites += count;
    }
}

static void recorder_site_numbers(struct gp_recorder *r)
{
    struct gp_wire_sites sites;
    if (!recorder_tables(r, &sites))
        return;
    for (uint32_t from = 0, count; from < r->sites && from < sites.rows; from += count) {
        count = recorder_site_rows(r, &sites, from);
        count = count < r->sites - from ? count : r->sites - from;
        struct gp_pack *pack = gp_file_pack(r->file);
        gp_block_first(pack, from);
        for (uint32_t i = 0; i < count; i++) {
            struct gp_wire_site *site = &r->buffer.site[i];
            if (site->device >= GP_WIRE_DEVICES || site->peak_seq != sites.devices[site->device].peak_seq)
                site->at_peak_bytes = site->live_bytes;
            gp_block_site_numbers(pack, site);
        }
        if (!count || gp_file_block(r->file, GP_BLOCK_SITE_NUMBERS, count, true) != 0)
            return;
    }
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

/* Copies published numbers between two equal even values of publish_seq: see wire.h. */
static bool recorder_published(struct gp_recorder *r, void *into, size_t bytes, uint64_t at)
{
    const uint64_t seq_at = offsetof(struct gp_wire_header, publish_seq);
    for (int attempt = 0; attempt < 16; attempt++) {
        uint64_t before, after;
        if (recorder_copy(r, &before, sizeof(before), seq_at) != 0 || recorder_copy(r, into, bytes, at) != 0 ||
            recorder_copy(r, &after, sizeof(after), seq_at) != 0)
            return false;
        if (before == after && before % 2 == 0)
            return true;
    }
    return false;
}

static bool recorder_row(struct gp_recorder *r, unsigned index)
{
    const struct gp_wire_header *header = &r->setup.header;
    const uint64_t at = header->devices_offset + (uint64_t)index * header->device_bytes;
    uint64_t flags = 0;
    if (recorder_copy(r, &flags, sizeof(flags), at) != 0 || !((uint32_t)flags & GP_DEVICE_PRESENT))
        return false;
    return recorder_published(r, &r->device, sizeof(r->device), at);
}

static void recorder_sample(struct gp_recorder *r, struct gp_pack *samples, unsigned index, uint64_t now,
                            const char *uuid)
{
    const struct gp_wire_device *device = &r->device;
    struct gp_block_sample sample = {
        .time_ns = now,
        .device = index,
        .allocated_bytes = device->stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current,
        .reserved_bytes = device->stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current,
        .active_bytes = device->flags & GP_DEVICE_FRAMEWORK /* which does not tell it */
                            ? -1
                            : device->stats[GP_STAT_ACTIVE_BYTES][GP_POOL_ALL].current,
        .inactive_split_bytes = device->stats[GP_STAT_INACTIVE_SPLIT_BYTES][GP_POOL_ALL].current,
        .used_bytes = -1,
        .process_bytes = -1,
    };
    if (r->setup.measure && uuid[0])
        r->setup.measure(r->setup.arg, uuid, &sample.used_bytes, &sample.process_bytes);
    gp_block_sample(samples, &sample);
}

/* Writes the memory from before the attach where it has changed; `present` has a bit for each GPU. */
static void recorder_before(struct gp_recorder *r, uint64_t present, uint64_t now, bool final)
{
    uint32_t count = 0;
    if (!recorder_has_before(r) ||
        !recorder_published(r, &r->before, sizeof(r->before), r->setup.header.before_offset) || r->before.attached != 1)
        return;
    struct gp_pack *pack = gp_file_pack(r->file);
    for (unsigned i = 0; i < GP_WIRE_GPUS; i++) {
        const struct gp_wire_before_device *row = &r->before.devices[i];
        if (!(present >> i & 1) || memcmp(row, &r->before_told[i], sizeof(*row)) == 0)
            continue;
        gp_block_before(pack, now, i, row);
        r->before_told[i] = *row;
        count++;
    }
    if (count && gp_file_block(r->file, GP_BLOCK_BEFORE, count, final) != 0)
        memset(r->before_told, 0, sizeof(r->before_told));
}

/* Writes samples of all devices, and full rows of those that are new or changed their flags, or of
 * all if `whole`. */
static void recorder_devices(struct gp_recorder *r, bool whole, bool final)
{
    uint8_t sample_bytes[GP_WIRE_DEVICES * 90];
    struct gp_pack samples = {sample_bytes, sample_bytes, sample_bytes + sizeof(sample_bytes), false};
    struct gp_pack *pack = gp_file_pack(r->file);
    uint32_t count = 0, sampled = 0;
    uint64_t now = gp_clock_ns(), present = 0;
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++) {
        char uuid[48], name[sizeof(r->device.name) + 1] = "";
        if (!recorder_row(r, i))
            continue;
        present |= i < GP_WIRE_GPUS ? 1ull << i : 0;
        memcpy(name, r->device.name, sizeof(r->device.name));
        gp_text_uuid(uuid, sizeof(uuid), r->device.uuid);
        recorder_sample(r, &samples, i, now, uuid);
        sampled++;
        if (!whole && r->device_flags[i] == (uint8_t)r->device.flags)
            continue;
        gp_block_device(pack, i, r->device.ordinal, uuid, name, r->device.total_bytes, &r->device, final);
        r->device_flags[i] = (uint8_t)r->device.flags;
        count++;
    }
    if (count && gp_file_block(r->file, GP_BLOCK_DEVICES, count, final) != 0)
        memset(r->device_flags, 0, sizeof(r->device_flags));
    recorder_before(r, present, now, final);
    pack = gp_file_pack(r->file);
    gp_pack_raw(pack, samples.start, gp_pack_bytes(&samples));
    if (sampled && !r->setup.in_file) /* else the numbers are from an earlier moment */
        gp_file_block(r->file, GP_BLOCK_SAMPLES, sampled, final);
}

static void recorder_oom(struct gp_recorder *r)
{
    struct gp_wire_oom *oom = &r->buffer.oom;
    uint64_t offset = r->setup.header.oom_offset, seq;
    if (!offset || r->setup.header.oom_bytes < sizeof(*oom))
        return;
    if (recorder_copy(r, oom, sizeof(*oom), offset) != 0 || recorder_copy(r, &seq, sizeof(seq), offset) != 0)
        return;
    if (oom->seq != seq || seq % 2 || !oom->count || oom->seq == r->oom_count)
        return;
    gp_block_oom(gp_file_pack(r->file), oom);
    if (gp_file_block(r->file, GP_BLOCK_OOM, 1, false) == 0)
        r->oom_count = seq;
}

/* ---- counts ------------------------------------------------------------------------------------------------------ */

static void recorder_count(const struct gp_recorder *r, struct gp_block_counts *out)
{
    struct gp_ringread_stats ring;
    struct gp_file_stats file;
    gp_ringread_stats(r->ring, &ring);
    gp_file_stats(r->file, &file);
    memset(out, 0, sizeof(*out));
    out->time_ns = gp_clock_ns();
    out->error = file.error;
    out->lost_error = file.lost_error;
    out->lost_ns = file.lost_ns;
    out->lost_after = file.lost_after;
    /* Of the events that the file had before, some are not in the ring any more. */
    uint64_t gone = r->setup.file_events > r->seen ? r->setup.file_events - r->seen : 0;
    uint64_t before = ring.before > gone ? ring.before - gone : 0;
    out->delivered = file.events + r->setup.file_events;
    out->dropped[GP_DROP_RING] = r->lost[GP_LOST_RING] - r->lost_then;
    out->dropped[GP_DROP_OVERWRITTEN] = ring.overwritten + (r->setup.from_start ? before : 0);
    out->dropped[GP_DROP_DAMAGED] = ring.damaged;
    out->dropped[GP_DROP_FILE] = file.given_up;
    out->tried = ring.delivered - r->late + gone;
    for (unsigned i = 0; i < GP_DROP_FILE; i++)
        out->tried += out->dropped[i];
    out->tried += ring.left;
    out->dropped[GP_DROP_END] = ring.left + r->left;
    memcpy(out->lost, r->lost, sizeof(out->lost));
}

void gp_recorder_stats(const struct gp_recorder *r, struct gp_recorder_stats *out)
{
    struct gp_block_counts counts;
    struct gp_file_stats file;
    recorder_count(r, &counts);
    gp_file_stats(r->file, &file);
    *out = (struct gp_recorder_stats){.recorded = counts.delivered,
                                      .bytes = file.bytes,
                                      .error = file.error,
                                      .lost_error = file.lost_error,
                                      .dead = file.dead};
    for (unsigned i = 0; i < GP_DROPS; i++)
        out->lost += counts.dropped[i];
    out->waiting = counts.tried - counts.delivered - out->lost;
}

/* The counts that tell of the first events given up may use the kept space: a process that is killed
 * later has the reason in its file. Further ones would use it up. */
static int recorder_counts(struct gp_recorder *r, enum gp_format_type type, enum gp_format_why why)
{
    struct gp_block_counts counts;
    recorder_count(r, &counts);
    counts.why = why;
    gp_block_counts(gp_file_pack(r->file), &counts);
    bool news = counts.lost_error && !r->lost_told;
    int error = gp_file_block(r->file, type, 1, news || type == GP_BLOCK_END);
    r->lost_told |= news && !error;
    return error;
}

/* ---- the work ---------------------------------------------------------------------------------------------------- */

/* A second, and less in the first two: then a process that is killed soon after its start has left the
 * names and numbers of its call sites too. */
static uint64_t recorder_interval(const struct gp_recorder *r, uint64_t now)
{
    uint64_t half = (now - r->started_ns) / 2;
    return half < GP_RECORDER_FIRST ? GP_RECORDER_FIRST : half < GP_RECORDER_SECOND ? half : GP_RECORDER_SECOND;
}

static void recorder_second(struct gp_recorder *r, uint64_t now, bool last)
{
    struct gp_ringread_stats ring;
    gp_ringread_stats(r->ring, &ring);
    bool idle = ring.delivered == r->events_then, long_idle = now >= r->idle_ns;
    r->second_ns = now + recorder_interval(r, now);
    if (idle && !long_idle && !last && !r->setup.measure)
        return;
    if (r->setup.refresh)
        r->setup.refresh(r->setup.arg);
    r->events_then = ring.delivered;
    if (!r->setup.in_file) /* else the process is gone, and the file has what it was */
        recorder_process(r);
    recorder_sites(r);
    recorder_look(r, last);
    if (!r->setup.in_file)
        recorder_threads(r);
    recorder_oom(r);
    gp_file_flush(r->file, GP_BLOCK_EVENTS);
    recorder_devices(r, long_idle || last, last && !r->setup.in_file);
    if (long_idle)
        r->idle_ns = now + GP_RECORDER_IDLE;
    if (!last)
        recorder_counts(r, GP_BLOCK_COUNTS, GP_END_RUNNING);
}

/* Notes the threads, sites and GPUs that the events name. */
static void recorder_names(struct gp_recorder *r, const struct gp_wire_event *events, ssize_t count)
{
    uint64_t gpus = r->gpus;
    uint32_t tid = 0;
    for (ssize_t i = 0; i < count; i++) {
        if (events[i].site > r->named_site)
            r->named_site = events[i].site;
        if (events[i].tid != tid)
            recorder_tid(r, tid = events[i].tid);
        if (events[i].device < GP_WIRE_GPUS)
            gpus |= 1ull << events[i].device;
    }
    if (gpus != r->gpus && r->setup.appeared)
        r->setup.appeared(r->setup.arg);
    r->gpus = gpus;
}

static ssize_t recorder_take(struct gp_recorder *r, uint64_t horizon_ns)
{
    const struct gp_wire_event *events;
    ssize_t count = gp_ringread_poll(r->ring, horizon_ns, &events);
    recorder_names(r, events, count);
    /* A block may fill up and be written: write the sites that it names before it. */
    if (count > 0 && r->named_site >= r->sites && (size_t)count > GP_FORMAT_EVENTS / 4)
        recorder_sites(r);
    for (ssize_t i = 0; i < count; i++) {
        if (i % GP_RECORDER_ASK == 0 && r->setup.late && r->setup.late(r->setup.arg)) {
            r->left += (uint64_t)(count - i);
            break;
        }
        if (!r->setup.from_start && events[i].time_ns < r->begin_ns)
            r->late++;
        else if (r->setup.in_file && r->setup.in_file(r->setup.arg, &events[i]))
            r->seen++;
        else
            gp_file_add(r->file, &events[i], GP_BLOCK_EVENTS);
    }
    return count;
}

void gp_recorder_begin(struct gp_recorder *r)
{
    r->modules_ns = gp_clock_ns();
    recorder_modules(r);
}

ssize_t gp_recorder_poll(struct gp_recorder *r)
{
    uint64_t now = gp_clock_ns();
    if (r->baseline)
        gp_file_flush(r->file, GP_BLOCK_BASELINE);
    r->baseline = false;
    ssize_t count = recorder_take(r, now);
    if (count > 0 && !r->began) { /* the intervals count from the first events on */
        r->began = true;
        r->started_ns = r->second_ns = now;
    }
    if (now >= r->second_ns)
        recorder_second(r, now, false);
    return count;
}

void gp_recorder_baseline(struct gp_recorder *r, const struct gp_wire_event *event)
{
    r->baseline = true;
    gp_file_add(r->file, event, GP_BLOCK_BASELINE);
}

/* Threads may still be writing, and a chunk may change during every attempt; then its events are at
 * least counted. */
static void recorder_take_last(struct gp_recorder *r)
{
    struct gp_ringread_stats ring = {.unsettled = 1};
    for (int round = 0; round < 5 && ring.unsettled; round++) {
        if (round == 4)
            gp_ringread_leave(r->ring);
        recorder_take(r, UINT64_MAX);
        gp_ringread_stats(r->ring, &ring);
    }
}

static void recorder_free(struct gp_recorder *r)
{
    gp_ringread_free(r->ring);
    gp_modules_free(&r->modules);
    munmap(r, sizeof(*r));
}

int gp_recorder_end(struct gp_recorder *r, enum gp_format_why why, struct gp_recorder_stats *out)
{
    if (r->baseline)
        gp_file_flush(r->file, GP_BLOCK_BASELINE);
    recorder_take_last(r);
    recorder_second(r, gp_clock_ns(), true);
    recorder_site_numbers(r);
    int error = recorder_counts(r, GP_BLOCK_END, why);
    gp_recorder_stats(r, out);
    int closed = gp_file_end(r->file);
    recorder_free(r);
    return error ? error : closed;
}

int gp_recorder_new(struct gp_recorder **out, int fd, const struct gp_recorder_setup *setup)
{
    struct timespec wall;
    struct gp_recorder *r = mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r == MAP_FAILED) {
        close(fd);
        return -ENOMEM;
    }
    r->setup = *setup;
    clock_gettime(CLOCK_REALTIME, &wall);
    uint64_t now = gp_clock_ns();
    r->begin_ns = setup->from_start ? setup->header.start_ns : now;
    r->begin_unix_ns = (uint64_t)wall.tv_sec * GP_RECORDER_SECOND + (uint64_t)wall.tv_nsec -
                       (now - (now > r->begin_ns ? r->begin_ns : now));
    r->second_ns = r->started_ns = now;
    r->idle_ns = now + GP_RECORDER_IDLE;
    /* The first second is never treated as idle: memory that was live before has sites, and the
     * code that they name can be unloaded soon. */
    r->events_then = setup->from_start ? 0 : UINT64_MAX;
    struct gp_file_who who = {
        .pid = setup->header.pid, .begin_unix_ns = r->begin_unix_ns, .run_unix_ns = setup->run_unix_ns};
    memcpy(who.session_id, setup->header.session_id, sizeof(who.session_id));
    const uint64_t lost_at = offsetof(struct gp_wire_header, lost) + GP_LOST_RING * sizeof(uint64_t);
    if (!setup->from_start)
        recorder_copy(r, &r->lost_then, sizeof(r->lost_then), lost_at);
    r->lost[GP_LOST_RING] = r->lost_then;
    int error = gp_ringread_new(&r->ring, recorder_ring_copy, r, setup->header.chunk_count,
                                setup->from_start ? GP_RINGREAD_OLDEST : GP_RINGREAD_NOW);
    if (error)
        close(fd);
    else
        error = setup->in_file ? gp_file_resume(&r->file, fd) : gp_file_new(&r->file, fd, &who);
    if (error) {
        recorder_free(r);
        return error;
    }
    gp_ringread_hurry(r->ring, setup->late, setup->arg);
    gp_file_confine(r->file, setup->confined, setup->arg);
    if (!setup->in_file)
        recorder_process(r);
    *out = r;
    return 0;
}
