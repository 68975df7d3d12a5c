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

/* A few hundred entries between two system calls. */
#define GP_PICKLED_BUFFER 65536u

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

/* A snapshot of 10^6 blocks has 4 * 10^7 numbers and memos, so they are inline. */
void gp_snapshot_pickled_flush(struct gp_pickled *out);
static inline uint8_t *gp_pickled_room(struct gp_pickled *out, uint32_t count)
{
    if (__builtin_expect(out->used + count > GP_PICKLED_BUFFER, 0))
        gp_snapshot_pickled_flush(out);
    return out->buffer + out->used;
}

/* An opcode and a number of `bytes` bytes, at most 8, the lowest first. */
static inline void gp_pickled_number(struct gp_pickled *out, char op, uint64_t value, unsigned bytes)
{
    uint8_t *at = gp_pickled_room(out, 1 + bytes);
    value = htole64(value);
    *at = (uint8_t)op;
    memcpy(at + 1, &value, sizeof(value));
    out->used += 1 + bytes;
}

static inline void gp_snapshot_pickled_int(struct gp_pickled *out, int64_t value)
{
    if (value >= 0 && value <= UINT8_MAX) {
        gp_pickled_number(out, 'K', (uint64_t)value, 1); /* BININT1 */
    } else if (value >= 0 && value <= UINT16_MAX) {
        gp_pickled_number(out, 'M', (uint64_t)value, 2); /* BININT2 */
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
        gp_pickled_number(out, 'J', (uint64_t)value, 4); /* BININT */
    } else {
        /* LONG1: two's complement, as short as it may be; one bit is the sign's. */
        unsigned bits = 64 - (unsigned)__builtin_clzll((uint64_t)(value ^ value >> 63)) + 1, bytes = (bits + 7) / 8;
        *gp_pickled_room(out, 2 + bytes) = 0x8a;
        out->used++;
        gp_pickled_number(out, (char)bytes, (uint64_t)value, bytes);
    }
}

void gp_snapshot_pickled_bool(struct gp_pickled *out, bool value);
void gp_snapshot_pickled_float(struct gp_pickled *out, double value);
/* Control characters and invalid UTF-8 become '?'; text is cut at 4 KiB. */
void gp_snapshot_pickled_text(struct gp_pickled *out, const char *text);
void gp_snapshot_pickled_pair(struct gp_pickled *out, int64_t first, int64_t second);
/* The value just written gets a number, by which gp_snapshot_pickled_again writes it once more. */
uint32_t gp_snapshot_pickled_remember(struct gp_pickled *out);
static inline void gp_snapshot_pickled_again(struct gp_pickled *out, uint32_t memo)
{
    if (memo <= UINT8_MAX)
        gp_pickled_number(out, 'h', memo, 1);
    else
        gp_pickled_number(out, 'j', memo, 4);
}
/* Between the two: keys and values in turn, at least one pair. */
void gp_snapshot_pickled_dict(struct gp_pickled *out);
void gp_snapshot_pickled_dict_end(struct gp_pickled *out);

void gp_snapshot_pickled_list(struct gp_pickled *out, struct gp_snapshot_pickled_list *list);
/* Before each item.  Items are appended in batches of 1000, as Python does, since the viewer appends a batch through its
 * call stack. */
void gp_snapshot_pickled_item(struct gp_pickled *out, struct gp_snapshot_pickled_list *list);
void gp_snapshot_pickled_list_end(struct gp_pickled *out, struct gp_snapshot_pickled_list *list);

#endif
