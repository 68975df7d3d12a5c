/* SPDX-License-Identifier: MIT
 * fromrmm.c: makes a recording of a log of RMM's logging_resource_adaptor: CSV with the header
 * Thread,Time,Action,Pointer,Size,Stream and the actions `allocate`, `allocate failure` and `free`.
 * Thread ids, pointers and streams are any numbers, decimal or hex.
 *
 * Bounds: each byte is looked at a constant number of times; a line, which has at least 12 bytes,
 * becomes at most one event. */
#include <gpuprof/wire.h>
#include <read/common/hash.h>
#include <read/recording/internal.h>
#include <read/recording/recording.h>
#include <string.h>

#include <base/text.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static const char rmm_header[] = "Thread,Time,Action,Pointer,Size,Stream";

enum { GP_RMM_THREAD, GP_RMM_TIME, GP_RMM_ACTION, GP_RMM_POINTER, GP_RMM_SIZE, GP_RMM_STREAM, GP_RMM_FIELDS };

struct gp_rmm_field {
    const char *at;
    size_t length;
};

struct gp_rmm {
    struct gp_read *read;
    struct gp_hash threads; /* of ids beyond 32 bits: a number */
    struct gp_hash blocks;  /* address -> whether it is live */
    uint64_t last_ns, days_ns;
    const char *wrong;          /* what is wrong in a row */
    struct gp_rmm_field action; /* if that is not known */
};

static bool rmm_is(struct gp_rmm_field field, const char *text)
{
    return field.length == strlen(text) && memcmp(field.at, text, field.length) == 0;
}

static uint8_t rmm_action(struct gp_rmm_field field)
{
    if (rmm_is(field, "allocate"))
        return GP_EVENT_ALLOC;
    if (rmm_is(field, "free"))
        return GP_EVENT_FREE;
    return rmm_is(field, "allocate failure") ? GP_EVENT_OOM : GP_EVENT_NONE;
}

/* ---- fields ------------------------------------------------------------------------------------------------------ */

static int rmm_digit(char c, unsigned base)
{
    int digit = 16;
    if (c >= '0' && c <= '9')
        digit = c - '0';
    else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        digit = (c | 0x20) - 'a' + 10;
    return digit < (int)base ? digit : -1;
}

/* hex: digits without 0x are hexadecimal too, as iostreams print pointers on some systems. */
static bool rmm_number(struct gp_rmm_field field, bool hex, uint64_t *value)
{
    unsigned base = hex ? 16 : 10;
    *value = 0;
    if (rmm_is(field, "(nil)") || rmm_is(field, "nullptr"))
        return true;
    if (field.length > 2 && field.at[0] == '0' && (field.at[1] | 0x20) == 'x') {
        base = 16;
        field.at += 2;
        field.length -= 2;
    }
    for (size_t i = 0; i < field.length; i++) {
        int digit = rmm_digit(field.at[i], base);
        if (digit < 0 || __builtin_mul_overflow(*value, base, value) ||
            __builtin_add_overflow(*value, (uint64_t)digit, value))
            return false;
    }
    return field.length > 0;
}

static bool rmm_split(const char *at, const char *end, struct gp_rmm_field fields[GP_RMM_FIELDS])
{
    for (int i = 0; i < GP_RMM_FIELDS; i++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        if (!comma && i < GP_RMM_FIELDS - 1)
            return false;
        fields[i] = (struct gp_rmm_field){at, (size_t)((comma ? comma : end) - at)};
        while (fields[i].length && fields[i].at[0] == ' ') {
            fields[i].at++;
            fields[i].length--;
        }
        at = comma ? comma + 1 : end;
    }
    return true;
}

/* RMM prints pointers as %p: with 0x.  Decimal ones come from other writers of the same header.
 * Without a prefix a field is decimal unless it has a letter. */
static bool rmm_pointer(struct gp_rmm_field field, uint64_t *value)
{
    return rmm_number(field, false, value) || rmm_number(field, true, value);
}

/* HH:MM:SS and a fraction behind '.' or ':', in nanoseconds of the day. */
static bool rmm_clock(struct gp_rmm_field field, uint64_t *ns)
{
    uint64_t parts[3] = {0}, unit = 1000000000;
    unsigned part = 0;
    for (size_t i = 0; i < field.length; i++) {
        int digit = rmm_digit(field.at[i], 10);
        if (digit < 0 && part < 3 && (field.at[i] == ':' || field.at[i] == '.')) {
            part++;
        } else if (digit < 0) {
            return false;
        } else if (part < 3) {
            parts[part] = parts[part] * 10 + (uint64_t)digit;
            if (parts[part] > 99)
                return false;
        } else {
            unit /= 10;
            *ns += (uint64_t)digit * unit;
        }
    }
    *ns += ((parts[0] * 60 + parts[1]) * 60 + parts[2]) * 1000000000;
    return part >= 2;
}

/* Times never fall, because the order of the lines is that of the calls.  A day begins where the clock
 * goes back by more than half of one; an unknown time is a microsecond after the last. */
static uint64_t rmm_time(struct gp_rmm *rmm, struct gp_rmm_field field)
{
    const uint64_t day = 86400ull * 1000000000;
    uint64_t ns = 0;
    if (!rmm_clock(field, &ns))
        ns = rmm->last_ns + 1000;
    else if ((ns += rmm->days_ns) + day / 2 < rmm->last_ns)
        rmm->days_ns += day, ns += day;
    return rmm->last_ns = ns > rmm->last_ns ? ns : rmm->last_ns;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static uint32_t rmm_thread(struct gp_rmm *rmm, uint64_t id)
{
    bool added;
    uint32_t *number = id <= UINT32_MAX ? NULL
                                        : gp_hash_add(&rmm->threads, gp_hash_of_number(id), NULL, NULL,
                                                      rmm->threads.count + 1, &added);
    if (id > UINT32_MAX && !number)
        rmm->read->error = -ENOMEM;
    return gp_read_thread(rmm->read, number ? *number : (uint32_t)id);
}

/* A free without an allocation: the block is from before the log, unless it was freed twice. */
static void rmm_block(struct gp_rmm *rmm, const struct gp_rec_event *event)
{
    struct gp_read *read = rmm->read;
    struct gp_recording *r = read->recording;
    uint32_t live;
    bool known = gp_hash_get(&rmm->blocks, event->address, &live);
    if (event->type == GP_EVENT_OOM)
        return;
    if (gp_hash_set(&rmm->blocks, event->address, event->type == GP_EVENT_ALLOC))
        read->error = -ENOMEM;
    if (known || event->type == GP_EVENT_ALLOC ||
        !GP_READ_ROOM(read, r->baseline, read->baseline_room, r->baseline_count + 1, GP_READ_EVENTS))
        return;
    r->baseline[r->baseline_count] = *event;
    r->baseline[r->baseline_count++].type = GP_EVENT_ALLOC;
    r->before_blocks++;
    r->before_bytes += event->bytes;
}

static bool rmm_row(struct gp_rmm *rmm, struct gp_rmm_field f[GP_RMM_FIELDS])
{
    struct gp_read *read = rmm->read;
    struct gp_recording *r = read->recording;
    struct gp_rec_event event = {.type = rmm_action(f[GP_RMM_ACTION]), .kind = GP_KIND_LINEAR};
    uint64_t thread, stream;
    rmm->wrong = event.type == GP_EVENT_NONE ? "neither allocate, free nor allocate failure" : NULL;
    if (rmm->wrong)
        return rmm->action = f[GP_RMM_ACTION], false;
    if (!rmm_pointer(f[GP_RMM_THREAD], &thread) || !rmm_pointer(f[GP_RMM_POINTER], &event.address) ||
        !rmm_number(f[GP_RMM_SIZE], false, &event.bytes) || !rmm_pointer(f[GP_RMM_STREAM], &stream))
        rmm->wrong = "thread, pointer, size or stream is not a number";
    else if (event.bytes > GP_READ_ALLOCATION_LIMIT && event.type != GP_EVENT_OOM)
        rmm->wrong = "more bytes than any allocator serves";
    if (rmm->wrong)
        return false;
    event.bytes = event.bytes < GP_READ_ALLOCATION_LIMIT ? event.bytes : GP_READ_ALLOCATION_LIMIT;
    event.time_ns = rmm_time(rmm, f[GP_RMM_TIME]);
    if (event.address == 0 && event.type != GP_EVENT_OOM) /* no bytes, no block */
        return true;
    event.stream = gp_read_stream(read, stream == 1 ? 0 : stream); /* 1: the handle of the default stream */
    event.thread = rmm_thread(rmm, thread) & 0xffffff;
    if (!GP_READ_ROOM(read, r->events, read->events_room, r->event_count + 1, GP_READ_EVENTS))
        return true;
    r->begin_ns = r->event_count ? r->begin_ns : event.time_ns;
    r->events[r->event_count++] = event;
    rmm_block(rmm, &event);
    return true;
}

static int rmm_refuse(const struct gp_rmm *rmm, uint64_t number, char *why, size_t why_bytes)
{
    char clean[41] = "";
    bool action = rmm->action.length > 0;
    gp_text_clean(clean, sizeof(clean), action ? rmm->action.at : "", rmm->action.length);
    snprintf(why, why_bytes, "an RMM log, but line %" PRIu64 ": %s%s%s%s", number, action ? "action '" : "", clean,
             action ? "': " : "", rmm->wrong);
    return -EPROTO;
}

/* The last line of a log may be cut, since its writer was killed or still writes. */
static int rmm_lines(struct gp_rmm *rmm, const char *at, const char *end, char *why, size_t why_bytes)
{
    struct gp_rmm_field fields[GP_RMM_FIELDS];
    rmm->read->recording->complete = true;
    for (uint64_t number = 1; !rmm->read->error && at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at)), *last = stop ? stop : end, *line = at;
        at = stop ? stop + 1 : end;
        while (last > line && (last[-1] == '\r' || last[-1] == ' '))
            last--;
        if (last == line || number == 1 || rmm_is((struct gp_rmm_field){line, (size_t)(last - line)}, rmm_header))
            continue; /* logs that were joined have several headers */
        rmm->wrong = "not the six fields Thread,Time,Action,Pointer,Size,Stream";
        if (rmm_split(line, last, fields) && rmm_row(rmm, fields))
            continue;
        if (stop)
            return rmm_refuse(rmm, number, why, why_bytes);
        rmm->read->recording->complete = false;
    }
    return rmm->read->error;
}

int gp_read_rmm(struct gp_read *read, const struct gp_input *file, char *why, size_t why_bytes)
{
    struct gp_rmm rmm = {.read = read};
    struct gp_recording *r = read->recording;
    gp_read_device(read, 0); /* a log does not name its device */
    int rc = rmm_lines(&rmm, (const char *)file->data, (const char *)file->data + file->bytes, why, why_bytes);
    gp_hash_free(&rmm.threads);
    gp_hash_free(&rmm.blocks);
    if (!r->thread_count)
        gp_read_thread(read, 0);
    for (size_t i = 0; i < r->baseline_count; i++)
        r->baseline[i].time_ns = r->begin_ns;
    r->end_ns = rmm.last_ns > r->begin_ns ? rmm.last_ns : r->begin_ns;
    r->from_rmm = r->from_start = true;
    r->tried = r->delivered = r->event_count;
    read->comm = gp_read_string(read, "RMM log", strlen("RMM log"));
    read->has_process = read->has_counts = true;
    return rc ? rc : read->error;
}
