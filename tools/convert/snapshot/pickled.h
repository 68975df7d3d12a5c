/* SPDX-License-Identifier: MIT
 *
 * pickled.h: writes a Python pickle in one pass: protocol 2, with only the opcodes that the
 * unpickler of PyTorch's viewer knows.  The writer keeps the first error for the end.
 */
#ifndef GP_CONVERT_SNAPSHOT_PICKLED_H
#define GP_CONVERT_SNAPSHOT_PICKLED_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Five thousand blocks between two system calls: the longer a write is, the larger the pages are that ext4 takes. With 256
 * KiB a file took 5 % more processor time, with 64 KiB 20 %, and with 1 MiB 3 % less. */
#define GP_PICKLED_BUFFER 524288u
/* The most bytes of a part: 20 words that were written before, and as many numbers. */
#define GP_PICKLED_PART  512u
#define GP_PICKLED_BATCH 1000u

struct gp_pickled {
    int fd;
    int error;           /* -errno of the first failure */
    uint64_t written;    /* bytes given to the file */
    uint32_t memo_count; /* values that can be named again */
    uint32_t used;
    uint8_t buffer[GP_PICKLED_BUFFER + 8]; /* gp_pickled_number writes 8 bytes of which the last may not count */
};

struct gp_snapshot_pickled_list {
    uint64_t count;
};

void gp_snapshot_pickled_begin(struct gp_pickled *out, int fd);
/* 0 or -errno. */
int gp_snapshot_pickled_end(struct gp_pickled *out);

/* ---- parts -------------------------------------------------------------------------------------------------------
 *
 * A part has at most GP_PICKLED_PART bytes.  It is written at a pointer, which each of the functions
 * below moves: a snapshot of 10^6 blocks has 4 * 10^7 words and numbers, and after a store at a
 * `uint8_t *` the compiler must load each field of the writer again. */

void gp_snapshot_pickled_flush(struct gp_pickled *out);

static inline uint8_t *gp_pickled_part(struct gp_pickled *out)
{
    if (__builtin_expect(out->used > GP_PICKLED_BUFFER - GP_PICKLED_PART, 0))
        gp_snapshot_pickled_flush(out);
    return out->buffer + out->used;
}

static inline void gp_pickled_part_end(struct gp_pickled *out, const uint8_t *at)
{
    out->used = (uint32_t)(at - out->buffer);
}

static inline uint8_t *gp_pickled_op(uint8_t *at, char op)
{
    *at = (uint8_t)op;
    return at + 1;
}

/* An opcode and a number of `bytes` bytes, at most 8, the lowest first. */
static inline uint8_t *gp_pickled_number(uint8_t *at, char op, uint64_t value, unsigned bytes)
{
    value = htole64(value);
    at = gp_pickled_op(at, op);
    memcpy(at, &value, sizeof(value));
    return at + bytes;
}

static inline uint8_t *gp_pickled_int(uint8_t *at, int64_t value)
{
    if (value >= 0 && value <= UINT8_MAX)
        return gp_pickled_number(at, 'K', (uint64_t)value, 1); /* BININT1 */
    if (value >= 0 && value <= UINT16_MAX)
        return gp_pickled_number(at, 'M', (uint64_t)value, 2); /* BININT2 */
    if (value >= INT32_MIN && value <= INT32_MAX)
        return gp_pickled_number(at, 'J', (uint64_t)value, 4); /* BININT */
    /* LONG1: two's complement, as short as it may be; one bit is the sign's. */
    unsigned bits = 64 - (unsigned)__builtin_clzll((uint64_t)(value ^ value >> 63)) + 1, bytes = (bits + 7) / 8;
    return gp_pickled_number(gp_pickled_op(at, '\x8a'), (char)bytes, (uint64_t)value, bytes);
}

static inline uint8_t *gp_pickled_bool(uint8_t *at, bool value)
{
    return gp_pickled_op(at, value ? '\x88' : '\x89');
}

/* The value just written gets a number, by which gp_pickled_again writes it once more. */
static inline uint8_t *gp_pickled_remember(struct gp_pickled *out, uint8_t *at, uint32_t *memo)
{
    *memo = out->memo_count++;
    return gp_pickled_number(at, *memo <= UINT8_MAX ? 'q' : 'r', *memo, *memo <= UINT8_MAX ? 1 : 4);
}

static inline uint8_t *gp_pickled_again(uint8_t *at, uint32_t memo)
{
    if (memo <= UINT8_MAX)
        return gp_pickled_number(at, 'h', memo, 1);
    return gp_pickled_number(at, 'j', memo, 4);
}

/* Between the two: keys and values in turn, at least one pair. */
static inline uint8_t *gp_pickled_dict(uint8_t *at)
{
    return gp_pickled_op(gp_pickled_op(at, '}'), '(');
}

static inline uint8_t *gp_pickled_dict_end(uint8_t *at)
{
    return gp_pickled_op(at, 'u');
}

static inline uint8_t *gp_pickled_list(uint8_t *at, struct gp_snapshot_pickled_list *list)
{
    list->count = 0;
    return gp_pickled_op(at, ']');
}

/* Before each item.  Items are appended in batches of 1000, as Python does, since the viewer appends a batch through its
 * call stack. */
static inline uint8_t *gp_pickled_item(uint8_t *at, struct gp_snapshot_pickled_list *list)
{
    if (list->count % GP_PICKLED_BATCH == 0) {
        if (list->count)
            at = gp_pickled_op(at, 'e');
        at = gp_pickled_op(at, '(');
    }
    list->count++;
    return at;
}

static inline uint8_t *gp_pickled_list_end(uint8_t *at, const struct gp_snapshot_pickled_list *list)
{
    return list->count ? gp_pickled_op(at, 'e') : at;
}

/* Control characters and invalid UTF-8 become '?'; text is cut at 4 KiB.  Ends the part, and begins another. */
uint8_t *gp_snapshot_pickled_text(struct gp_pickled *out, uint8_t *at, const char *text);

#endif
