/* SPDX-License-Identifier: MIT
 *
 * read.c: opens a file of any format that recording.h knows, and finds the blocks of a recording, in a
 * file or in memory; see recording.h and docs/format.md.
 *
 * Bounds of a recording: a block is unpacked once, and its rows and bytes are counted before they
 * are decoded: at most GP_READ_PACKED and GP_READ_UNPACKED in all.  A byte of a real file holds a
 * fifth of an event, so work and memory follow from the size of the file, however well it is
 * packed.  Damage is searched through at most as often as reader_exhausted says.
 */
#include <base/text.h>
#include <errno.h>
#include <gpuprof/wire.h>
#include <read/common/hash.h>
#include <read/recording/internal.h>
#include <read/recording/recording.h>
#include <record/format.h>
#include <record/pack.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zstd.h>

/* ==== after the last block ======================================================================================== */
/* Establishes what recording.h promises and single blocks cannot provide: order, indexes in range,
 * one array of strings, and numbers of sites if the writer did not get to write them. See internal.h. */

/* ---- order of events --------------------------------------------------------------------------------------------- */

/* Stable: equal times keep the order of the file. */
static int finish_sort(struct gp_rec_event *events, size_t count)
{
    struct gp_rec_event *other = malloc(count * sizeof(*other)), *from = events, *to = other;
    if (!other)
        return -ENOMEM;
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t at = 0; at < count; at += 2 * width) {
            size_t middle = at + width < count ? at + width : count;
            size_t end = at + 2 * width < count ? at + 2 * width : count;
            for (size_t left = at, right = middle, put = at; put < end; put++) {
                bool second = right < end && (left == middle || from[right].time_ns < from[left].time_ns);
                to[put] = from[second ? right++ : left++];
            }
        }
        struct gp_rec_event *swap = from;
        from = to;
        to = swap;
    }
    if (from != events)
        memcpy(events, from, count * sizeof(*events));
    free(other);
    return 0;
}

/* Takes out the few late events (their thread was stopped between its time stamp and the ring),
 * sorts them, and merges them in from the end: no second array of all events is needed. */
static int finish_order(struct gp_rec_event *events, size_t count)
{
    size_t late = 0, kept = 0;
    uint64_t newest = 0;
    for (size_t i = 0; i < count; i++) {
        late += events[i].time_ns < newest;
        newest = events[i].time_ns > newest ? events[i].time_ns : newest;
    }
    if (!late)
        return 0;
    struct gp_rec_event *out = malloc(late * sizeof(*out));
    if (!out)
        return -ENOMEM;
    newest = late = 0;
    for (size_t i = 0; i < count; i++) {
        if (events[i].time_ns < newest) {
            out[late++] = events[i];
        } else {
            newest = events[i].time_ns;
            events[kept++] = events[i];
        }
    }
    int error = finish_sort(out, late);
    for (size_t to = count; late && !error; to--) {
        bool from_kept = kept && events[kept - 1].time_ns > out[late - 1].time_ns;
        events[to - 1] = from_kept ? events[--kept] : out[--late];
    }
    free(out);
    return error;
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

/* Replaces every unprintable byte by '?', in place, so that offsets stay valid. */
static void finish_clean(char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        uint32_t code = 0;
        size_t length = text[at] ? gp_utf8_decode((const unsigned char *)text + at, bytes - at, &code) : 1;
        if (text[at] && (!length || !gp_utf8_printable(code)))
            memset(text + at, '?', length ? length : 1);
        at += length ? length : 1;
    }
}

static uint32_t finish_offset(const struct gp_read *read, uint32_t offset, uint32_t base)
{
    bool inside = offset && offset < read->site_string_bytes;
    /* The offset must not point into the middle of a character. */
    return inside && ((unsigned char)read->site_strings[offset] & 0xc0) != 0x80 ? base + offset : 0;
}

/* Appends the strings of the site tables to the others. Only frames refer to them. */
static bool finish_strings(struct gp_read *read)
{
    struct gp_recording *r = read->recording;
    uint32_t base = r->string_bytes;
    size_t more = read->site_string_bytes ? read->site_string_bytes + 1 : 0;
    if (!GP_READ_ROOM(read, r->strings, read->strings_room, base + more, 2 * (size_t)GP_READ_STRINGS))
        return false;
    if (more) {
        finish_clean(read->site_strings, read->site_string_bytes);
        memcpy(r->strings + base, read->site_strings, read->site_string_bytes);
        r->strings[base + read->site_string_bytes] = '\0';
        r->string_bytes += (uint32_t)more;
    }
    for (uint32_t i = 0; i < r->frame_count; i++) {
        r->frames[i].function = finish_offset(read, r->frames[i].function, base);
        r->frames[i].file = finish_offset(read, r->frames[i].file, base);
    }
    r->comm = r->strings + read->comm;
    r->command_line = r->strings + read->command_line;
    r->host = r->strings + read->host;
    r->allocator = read->allocator ? r->strings + read->allocator : "off";
    return true;
}

/* ---- sites ------------------------------------------------------------------------------------------------------- */

static void finish_sites(struct gp_recording *r)
{
    /* The site of memory without a stack: no numbers, but it may have a name ("before stacks"). */
    r->sites[0] =
        (struct gp_rec_site){.first_frame = r->sites[0].first_frame, .frame_count = r->sites[0].frame_count == 1};
    for (uint32_t i = 0; i < r->site_count; i++) {
        struct gp_rec_site *site = &r->sites[i];
        if (site->first_frame > r->frame_count || site->frame_count > r->frame_count - site->first_frame)
            site->first_frame = site->frame_count = 0;
    }
    for (size_t i = 0; i < r->event_count; i++)
        if (r->events[i].site >= r->site_count)
            r->events[i].site = 0;
    for (size_t i = 0; i < r->baseline_count; i++)
        if (r->baseline[i].site >= r->site_count)
            r->baseline[i].site = 0;
    for (size_t i = 0; i < r->sleep_count; i++)
        if (r->sleeps[i].site >= r->site_count)
            r->sleeps[i].site = 0;
    if (r->oom.site >= r->site_count)
        r->oom.site = 0;
    for (uint32_t i = 0; r->has_oom && i < r->oom.holder_count; i++)
        if (r->oom.holders[i].site >= r->site_count)
            r->oom.holders[i].site = 0;
}

/* A handle of cuMemCreate has a site, other segments have none. An event whose size would overflow a
 * sum is left out: only a hostile file has one. */
static void finish_site_move(struct gp_rec_site *site, const struct gp_rec_event *event)
{
    bool handle = event->kind == GP_KIND_VMM;
    if (event->type == GP_EVENT_ALLOC || (handle && event->type == GP_EVENT_SEGMENT_ALLOC)) {
        int64_t sum;
        if (__builtin_add_overflow(site->allocated_bytes, event->bytes, &sum))
            return;
        site->allocated_bytes = sum;
        site->live_bytes += (int64_t)event->bytes; /* never above the allocated bytes */
        site->live_count++;
        site->calls++;
        site->peak_bytes = site->live_bytes > site->peak_bytes ? site->live_bytes : site->peak_bytes;
    } else if (event->type == GP_EVENT_FREE || (handle && event->type == GP_EVENT_SEGMENT_FREE)) {
        int64_t rest;
        if (__builtin_sub_overflow(site->live_bytes, event->bytes, &rest))
            return;
        site->live_bytes = rest;
        site->live_count--;
    }
}

/* For a cut recording: computes the numbers of the sites from the events. The bytes at the device's
 * peak cannot be computed. */
static void finish_site_numbers(struct gp_recording *r)
{
    for (size_t i = 0; i < r->baseline_count; i++)
        finish_site_move(&r->sites[r->baseline[i].site], &r->baseline[i]);
    for (size_t i = 0; i < r->event_count; i++)
        finish_site_move(&r->sites[r->events[i].site], &r->events[i]);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static void finish_counts(struct gp_read *read)
{
    struct gp_recording *r = read->recording;
    uint64_t last = r->event_count ? r->events[r->event_count - 1].time_ns : r->begin_ns;
    if (!r->complete && r->event_count > r->delivered) { /* a cut file with blocks after the last count */
        r->tried += r->event_count - r->delivered;
        r->delivered = r->event_count;
    }
    if (!read->has_process)
        r->begin_ns = r->event_count ? r->events[0].time_ns : 0;
    if (!read->has_counts || (!r->complete && last > r->end_ns))
        r->end_ns = last;
    r->stopped_ns = r->end_ns;
}

/* If no event was written after the first that could not be, the recorded time ends there: what the
 * program did later is unknown, and a sample from its end would be a false last value. */
static void finish_end(struct gp_recording *r)
{
    uint64_t last = r->event_count ? r->events[r->event_count - 1].time_ns : r->begin_ns;
    r->ended_early &= r->write_error_ns <= r->end_ns && r->delivered == r->event_count;
    if (!r->ended_early)
        return;
    r->end_ns = r->write_error_ns > last ? r->write_error_ns : last; /* threads' events mix at the seam */
    while (r->sample_count && r->samples[r->sample_count - 1].time_ns > r->end_ns)
        r->sample_count--;
}

static int finish_sleeps(const void *one, const void *other)
{
    const struct gp_rec_sleep *a = one, *b = other;
    return a->time_ns != b->time_ns ? (a->time_ns > b->time_ns ? 1 : -1) : (int)a->what - (int)b->what;
}

static int finish_samples(const void *one, const void *other)
{
    const struct gp_rec_sample *a = one, *b = other;
    if (a->time_ns != b->time_ns)
        return a->time_ns < b->time_ns ? -1 : 1;
    return a->device < b->device ? -1 : a->device > b->device;
}

static int finish_names(const void *one, const void *other)
{
    const struct gp_rec_name *a = one, *b = other;
    if (a->module != b->module)
        return a->module < b->module ? -1 : 1;
    if (a->pc != b->pc)
        return a->pc < b->pc ? -1 : 1;
    return a->depth < b->depth ? -1 : a->depth > b->depth;
}

/* After the last block: order, indexes, strings, peers, numbers.  0 or -errno. */
static int read_finish(struct gp_read *read)
{
    struct gp_recording *r = read->recording;
    int error = finish_order(r->events, r->event_count);
    r->recorded = r->event_count;
    if (!error)
        error = finish_order(r->baseline, r->baseline_count);
    if (!error && read->has_turned)
        error = gp_read_turned(r);
    if (error)
        return error;
    if (!finish_strings(read) ||
        !GP_READ_ROOM(read, r->sites, read->sites_room, r->site_count ? r->site_count : 1, GP_READ_ROWS))
        return read->error;
    r->site_count += r->site_count == 0;
    finish_sites(r);
    if (!read->has_numbers)
        finish_site_numbers(r);
    finish_counts(read);
    if (r->sample_count)
        qsort(r->samples, r->sample_count, sizeof(*r->samples), finish_samples);
    if (r->sleep_count)
        qsort(r->sleeps, r->sleep_count, sizeof(*r->sleeps), finish_sleeps);
    if (r->name_count)
        qsort(r->names, r->name_count, sizeof(*r->names), finish_names);
    finish_end(r);
    error = gp_read_imports(r);
    if (!error)
        error = gp_read_polls(r);
    if (error)
        return error;
    r->peer = malloc((r->event_count + 1) * sizeof(*r->peer));
    return r->peer ? gp_recording_match(r) : -ENOMEM;
}

/* ==== the blocks ================================================================================================== */

struct gp_source { /* a file, or a buffer */
    int fd;
    const uint8_t *bytes;
    uint64_t size;
};

struct gp_reader {
    struct gp_source source;
    struct gp_read read;
    uint64_t at;
    uint8_t *stored, *payload; /* a block as stored, and unpacked */
    ZSTD_DCtx *zstd;
    uint64_t sound;          /* number of sound blocks */
    uint64_t rows, unpacked; /* of these, and their bytes */
    bool dense;              /* more rows or bytes than a file of its size ever has */
    uint64_t wasted;         /* bytes whose checksum was wrong */
};

static int source_read(const struct gp_source *source, void *into, size_t bytes, uint64_t offset)
{
    size_t done = 0;
    if (offset > source->size || bytes > source->size - offset)
        return -EPROTO;
    if (source->bytes) {
        memcpy(into, source->bytes + offset, bytes);
        return 0;
    }
    while (done < bytes) {
        ssize_t got = pread(source->fd, (char *)into + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EPROTO; /* it shrank */
        done += (size_t)got;
    }
    return 0;
}

/* ---- head -------------------------------------------------------------------------------------------------------- */

static int reader_head(struct gp_reader *reader, char *why, size_t why_bytes)
{
    struct gp_recording *r = reader->read.recording;
    struct gp_format_head head;
    int error = source_read(&reader->source, &head, sizeof(head), 0);
    if (error == -EPROTO || (!error && memcmp(head.magic, GP_RECORD_MAGIC, sizeof(head.magic)) != 0)) {
        snprintf(why, why_bytes, "not a recording of gpuprof");
        return -EPROTO;
    }
    if (error)
        return error;
    reader->at = sizeof(head);
    if (head.crc != gp_file_crc32c(0, &head, offsetof(struct gp_format_head, crc))) {
        r->damaged_blocks++; /* the blocks repeat its important fields */
        return 0;
    }
    if (head.order != GP_FORMAT_ORDER || head.major != GP_FORMAT_MAJOR) {
        snprintf(why, why_bytes,
                 "written by a newer gpuprof (format %u.%u, this one reads %u): open it with the newer one", head.major,
                 head.minor, GP_FORMAT_MAJOR);
        return -EPROTO;
    }
    if (head.head_bytes > sizeof(head) && head.head_bytes < 4096)
        reader->at = head.head_bytes;
    r->pid = head.pid;
    r->begin_unix_ns = head.begin_unix_ns;
    return 0;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* Reads the block at reader->at and unpacks its payload. 0; 1: no sound block there; -errno. */
static int reader_block(struct gp_reader *reader, struct gp_format_block *block)
{
    uint64_t left = reader->source.size - reader->at;
    if (left < sizeof(*block))
        return 1;
    int error = source_read(&reader->source, block, sizeof(*block), reader->at);
    if (error)
        return error;
    if (memcmp(block->mark, GP_FORMAT_MARK, sizeof(block->mark)) != 0 || block->stored_bytes > left - sizeof(*block) ||
        block->stored_bytes > GP_FORMAT_BLOCK_BYTES || block->bytes > GP_FORMAT_BLOCK_BYTES ||
        block->coding > GP_CODING_ZSTD || (block->coding == GP_CODING_PLAIN && block->stored_bytes != block->bytes))
        return 1;
    error = source_read(&reader->source, reader->stored, block->stored_bytes, reader->at + sizeof(*block));
    if (error)
        return error;
    uint32_t crc = gp_file_crc32c(gp_file_crc32c(0, block, offsetof(struct gp_format_block, crc)), reader->stored,
                                  block->stored_bytes);
    if (crc != block->crc) {
        reader->wasted += block->stored_bytes;
        return 1;
    }
    if (block->coding == GP_CODING_PLAIN)
        memcpy(reader->payload, reader->stored, block->bytes);
    else if (ZSTD_decompressDCtx(reader->zstd, reader->payload, GP_FORMAT_BLOCK_BYTES, reader->stored,
                                 block->stored_bytes) != block->bytes)
        return 1;
    return 0;
}

/* Crafted bytes that look like heads of nested large blocks could cost hours of checking: gives up
 * after this many. */
static bool reader_exhausted(const struct gp_reader *reader)
{
    return reader->wasted > 4 * reader->source.size + 16 * (uint64_t)GP_FORMAT_BLOCK_BYTES;
}

/* Moves behind damage, to the next block mark or the end. */
static int reader_seek(struct gp_reader *reader)
{
    const size_t window = 64u << 10;
    for (reader->at++; reader->at < reader->source.size;) {
        uint64_t left = reader->source.size - reader->at;
        size_t bytes = left < window ? (size_t)left : window;
        int error = source_read(&reader->source, reader->stored, bytes, reader->at);
        if (error)
            return error;
        const uint8_t *found = bytes < 4 ? NULL : memmem(reader->stored, bytes, GP_FORMAT_MARK, 4);
        if (found) {
            reader->at += (size_t)(found - reader->stored);
            return 0;
        }
        reader->at += bytes == left ? left : bytes - 3;
    }
    return 0;
}

static int reader_take(struct gp_reader *reader, const struct gp_format_block *block)
{
    struct gp_read *read = &reader->read;
    bool events = block->type == GP_BLOCK_EVENTS || block->type == GP_BLOCK_BASELINE;
    reader->rows += events ? block->count / 64 : block->count;
    reader->unpacked += events ? block->bytes / 16 : block->bytes;
    if (reader->rows > GP_READ_PACKED(reader->source.size) ||
        reader->unpacked > GP_READ_UNPACKED(reader->source.size)) {
        reader->dense = true;
        return -EPROTO;
    }
    bool good = events ? gp_read_events(read, block, reader->payload) : gp_read_payload(read, block, reader->payload);
    if (read->error)
        return read->error;
    reader->sound += good;
    read->recording->damaged_blocks += !good;
    reader->at += sizeof(*block) + block->stored_bytes;
    return 0;
}

static int reader_blocks(struct gp_reader *reader, gp_rec_progress_fn *progress, void *arg)
{
    unsigned reported = 0;
    bool damage = false; /* one damaged stretch counts as one block */
    while (reader->at < reader->source.size) {
        struct gp_format_block block;
        int error = reader_block(reader, &block);
        if (error < 0)
            return error;
        if (error) {
            reader->read.recording->damaged_blocks += !damage;
            damage = true;
            error = reader_exhausted(reader) ? -EPROTO : reader_seek(reader);
        } else {
            damage = false;
            error = reader_take(reader, &block);
        }
        if (error == -EPROTO && reader_exhausted(reader))
            return 0; /* damaged up to the end */
        if (error)
            return error;
        unsigned parts = (unsigned)(reader->at * 1000 / reader->source.size);
        if (progress && parts != reported)
            progress(arg, reported = parts);
    }
    /* Damage at the end is not counted: it is the block that the writer was writing when it was
     * killed, or, behind the end block, the index, which is not needed. */
    if (damage)
        reader->read.recording->damaged_blocks--;
    return 0;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static int reader_explain(int error, char *why, size_t why_bytes)
{
    if (error == -EFBIG)
        snprintf(why, why_bytes, "more events or sites than this version opens (%u events)", GP_READ_EVENTS);
    else if (error == -EPROTO && !why[0])
        snprintf(why, why_bytes, "the file changed while it was read");
    else if (!why[0])
        snprintf(why, why_bytes, "%s", strerror(-error));
    return error;
}

static int reader_begin(struct gp_reader *reader)
{
    struct gp_read *read = &reader->read;
    struct gp_recording *r = calloc(1, sizeof(*r));
    read->recording = r;
    reader->stored = malloc(GP_FORMAT_BLOCK_BYTES);
    reader->payload = malloc(GP_FORMAT_BLOCK_BYTES);
    reader->zstd = ZSTD_createDCtx();
    if (!r || !reader->stored || !reader->payload || !reader->zstd ||
        !GP_READ_ROOM(read, r->strings, read->strings_room, 1, GP_READ_STRINGS) ||
        !GP_READ_ROOM(read, r->streams, read->streams_room, 1, GP_READ_ROWS))
        return -ENOMEM;
    r->comm = r->command_line = r->host = "";
    r->allocator = "off";
    r->string_bytes = 1;
    gp_read_stream(read, 0); /* the default stream is number 0 */
    return read->error;
}

static void reader_end(struct gp_reader *reader)
{
    free(reader->stored);
    free(reader->payload);
    ZSTD_freeDCtx(reader->zstd);
    free(reader->read.site_strings);
    free(reader->read.work);
    free(reader->read.mapped);
    gp_hash_free(&reader->read.interned);
    gp_hash_free(&reader->read.tids);
    gp_hash_free(&reader->read.streams);
}

static int reader_recording(struct gp_reader *reader, char *why, size_t why_bytes, gp_rec_progress_fn *progress,
                            void *arg)
{
    reader->read.file_bytes = reader->source.size;
    int error = reader_head(reader, why, why_bytes);
    if (!error)
        error = reader_blocks(reader, progress, arg);
    if (reader->dense)
        snprintf(why, why_bytes, "its blocks have more rows than a recording of its size ever has");
    if (!error && !reader->sound) {
        snprintf(why, why_bytes, "it has no readable block: it was cut at its start, or damaged");
        error = -EPROTO;
    }
    return error;
}

/* The whole file, or the bytes that were inside a compressed one. */
static int reader_format(struct gp_reader *reader, struct gp_input *file, char *why, size_t why_bytes,
                         gp_rec_progress_fn *progress, void *arg)
{
    const struct gp_source *source = &reader->source;
    int error = source->bytes ? gp_input_unwrap(file, source->bytes, source->size, why, why_bytes) : 0;
    if (error)
        return error;
    switch (source->bytes ? file->format : GP_INPUT_RECORDING) {
    case GP_INPUT_PICKLE:
    case GP_INPUT_JSON:
        return gp_read_values(&reader->read, file, why, why_bytes);
    case GP_INPUT_RMM:
        return gp_read_rmm(&reader->read, file, why, why_bytes);
    case GP_INPUT_PPROF:
        return gp_read_pprof(&reader->read, file, why, why_bytes);
    case GP_INPUT_RECORDING:
        if (source->bytes)
            reader->source = (struct gp_source){.fd = -1, .bytes = file->data, .size = file->bytes};
        return reader_recording(reader, why, why_bytes, progress, arg);
    default:
        snprintf(why, why_bytes, "a trace of allocations without times: only 'gpuprof replay' reads it");
        return -EPROTO;
    }
}

static int reader_run(struct gp_recording **out, const struct gp_source *source, char *why, size_t why_bytes,
                      gp_rec_progress_fn *progress, void *arg)
{
    struct gp_reader reader = {.source = *source};
    struct gp_input file = {0};
    if (why_bytes)
        why[0] = '\0';
    int error = reader_begin(&reader);
    if (!error)
        error = reader_format(&reader, &file, why, why_bytes, progress, arg);
    gp_input_free(&file);
    if (!error)
        error = read_finish(&reader.read);
    if (error)
        gp_recording_free(reader.read.recording);
    else
        *out = reader.read.recording;
    reader_end(&reader);
    return error ? reader_explain(error, why, why_bytes) : 0;
}

int gp_recording_parse(struct gp_recording **out, const void *bytes, size_t size, char *why, size_t why_bytes)
{
    const struct gp_source source = {.fd = -1, .bytes = bytes, .size = size};
    return reader_run(out, &source, why, why_bytes, NULL, NULL);
}

/* Recordings in files are read block by block, everything else as a whole. */
static bool reader_in_place(const struct gp_source *source)
{
    uint8_t head[sizeof(struct gp_format_head)];
    size_t bytes = source->size < sizeof(head) ? (size_t)source->size : sizeof(head);
    return source_read(source, head, bytes, 0) == 0 && gp_input_format(head, bytes) == GP_INPUT_RECORDING;
}

int gp_recording_open_as(struct gp_recording **out, const char *path, bool listed, char *why, size_t why_bytes,
                         gp_rec_progress_fn *progress, void *arg)
{
    int64_t size = 0;
    uint8_t *data = NULL;
    size_t bytes;
    why[0] = '\0';
    int fd = listed ? gp_input_open_regular(path, &size, why, why_bytes) : gp_input_open(path, &size);
    struct gp_source source = {.fd = fd, .size = size > 0 ? (uint64_t)size : 0};
    int error = fd < 0 ? fd : 0;
    if (!error && !(size > 0 && reader_in_place(&source))) {
        error = gp_input_slurp(source.fd, size, &data, &bytes, why, why_bytes, progress, arg);
        if (!error)
            source = (struct gp_source){.fd = source.fd, .bytes = data, .size = bytes};
    }
    error = error ? reader_explain(error, why, why_bytes) : reader_run(out, &source, why, why_bytes, progress, arg);
    if (source.fd >= 0)
        close(source.fd);
    free(data);
    return error;
}

int gp_recording_open(struct gp_recording **out, const char *path, char *why, size_t why_bytes,
                      gp_rec_progress_fn *progress, void *arg)
{
    return gp_recording_open_as(out, path, false, why, why_bytes, progress, arg);
}
