/* SPDX-License-Identifier: MIT
 * rmm.c: logs of RMM's logging_resource_adaptor: CSV with the header
 * Thread,Time,Action,Pointer,Size,Stream and the actions `allocate`, `allocate failure` and `free`.
 * Thread ids, pointers and streams are any numbers, decimal or hex. Called through the table in
 * open.c. */
#include "trace.h"

#include <errno.h>
#include <string.h>

static const char rmm_header[] = "Thread,Time,Action,Pointer,Size,Stream";

enum { GP_RMM_THREAD, GP_RMM_TIME, GP_RMM_ACTION, GP_RMM_POINTER, GP_RMM_SIZE, GP_RMM_STREAM, GP_RMM_FIELDS };

struct gp_rmm_field {
    const char *at;
    size_t length;
};

static bool rmm_is(struct gp_rmm_field field, const char *text)
{
    return field.length == strlen(text) && memcmp(field.at, text, field.length) == 0;
}

static int rmm_digit(char c, unsigned base)
{
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : 16;
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

static int rmm_row(struct gp_replay_builder *b, struct gp_rmm_field f[GP_RMM_FIELDS])
{
    uint64_t thread_id, pointer, bytes, stream_id;
    uint32_t thread, stream;
    bool alloc = rmm_is(f[GP_RMM_ACTION], "allocate"), freed = rmm_is(f[GP_RMM_ACTION], "free");
    if (rmm_is(f[GP_RMM_ACTION], "allocate failure")) {
        b->trace->left_out++;
        return gp_replay_mark(b, "allocate failure", 16, 0);
    }
    if (!alloc && !freed) {
        gp_replay_say(&b->problem, "action '%.*s': neither allocate, free nor allocate failure",
                      (int)(f[GP_RMM_ACTION].length > 40 ? 40 : f[GP_RMM_ACTION].length), f[GP_RMM_ACTION].at);
        return -EINVAL;
    }
    if (!rmm_pointer(f[GP_RMM_THREAD], &thread_id) || !rmm_pointer(f[GP_RMM_POINTER], &pointer) ||
        !rmm_number(f[GP_RMM_SIZE], false, &bytes) || !rmm_pointer(f[GP_RMM_STREAM], &stream_id)) {
        gp_replay_say(&b->problem, "thread, pointer, size or stream is not a number");
        return -EINVAL;
    }
    /* The three names of default streams: 0, and the handles 1 (legacy) and 2 (per thread). */
    int rc = gp_replay_stream(b, stream_id == 1 ? 0 : stream_id, &stream);
    if (!rc)
        rc = gp_replay_thread(b, thread_id, &thread);
    if (rc || pointer == 0) { /* no bytes, no block */
        b->trace->left_out += !rc;
        return rc;
    }
    return alloc ? gp_replay_alloc(b, pointer, bytes, stream, thread, 0) : gp_replay_free(b, pointer, stream, thread);
}

static int rmm_read(struct gp_replay_builder *b, const uint8_t *data, size_t bytes)
{
    const char *at = (const char *)data, *end = at + bytes;
    struct gp_rmm_field fields[GP_RMM_FIELDS];
    int rc = 0;
    for (uint64_t number = 1; !rc && at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at)), *last = stop ? stop : end;
        const char *line = at;
        at = stop ? stop + 1 : end;
        while (last > line && (last[-1] == '\r' || last[-1] == ' '))
            last--;
        b->problem.line = number;
        if (number == 1 || last == line)
            continue;
        if (!rmm_split(line, last, fields)) {
            gp_replay_say(&b->problem, "not the six fields %s", rmm_header);
            return -EINVAL;
        }
        rc = rmm_row(b, fields);
        if (rc == -ENOENT) { /* the log began after the allocation */
            b->trace->left_out++;
            rc = 0;
        }
    }
    return rc;
}

static bool rmm_knows(const uint8_t *data, size_t bytes)
{
    size_t length = sizeof(rmm_header) - 1;
    return bytes >= length && memcmp(data, rmm_header, length) == 0;
}

const struct gp_replay_reader gp_replay_rmm = {"RMM log", rmm_knows, rmm_read};
