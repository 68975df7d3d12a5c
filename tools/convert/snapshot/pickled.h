/* SPDX-License-Identifier: MIT
 *
 * pickled.h: writes a Python pickle in one pass: protocol 2, with only the opcodes that the
 * unpickler of PyTorch's viewer knows.  The writer keeps the first error for the end.
 */
#ifndef GP_CONVERT_SNAPSHOT_PICKLED_H
#define GP_CONVERT_SNAPSHOT_PICKLED_H

#include <stdbool.h>
#include <stdint.h>

/* A few hundred entries between two system calls. */
#define GP_PICKLED_BUFFER 65536u

struct gp_pickled {
    int fd;
    int error;           /* -errno of the first failure */
    uint64_t written;    /* bytes given to the file */
    uint32_t memo_count; /* values that can be named again */
    uint32_t used;
    uint8_t buffer[GP_PICKLED_BUFFER];
};

struct gp_snapshot_pickled_list {
    uint64_t count;
};

void gp_snapshot_pickled_begin(struct gp_pickled *out, int fd);
/* 0 or -errno. */
int gp_snapshot_pickled_end(struct gp_pickled *out);

void gp_snapshot_pickled_int(struct gp_pickled *out, int64_t value);
void gp_snapshot_pickled_bool(struct gp_pickled *out, bool value);
void gp_snapshot_pickled_float(struct gp_pickled *out, double value);
/* Control characters and invalid UTF-8 become '?'; text is cut at 4 KiB. */
void gp_snapshot_pickled_text(struct gp_pickled *out, const char *text);
void gp_snapshot_pickled_pair(struct gp_pickled *out, int64_t first, int64_t second);
/* The value just written gets a number, by which gp_snapshot_pickled_again writes it once more. */
uint32_t gp_snapshot_pickled_remember(struct gp_pickled *out);
void gp_snapshot_pickled_again(struct gp_pickled *out, uint32_t memo);
/* Between the two: keys and values in turn, at least one pair. */
void gp_snapshot_pickled_dict(struct gp_pickled *out);
void gp_snapshot_pickled_dict_end(struct gp_pickled *out);

void gp_snapshot_pickled_list(struct gp_pickled *out, struct gp_snapshot_pickled_list *list);
/* Before each item.  Items are appended in batches of 1000, as Python does, since the viewer appends a batch through its
 * call stack. */
void gp_snapshot_pickled_item(struct gp_pickled *out, struct gp_snapshot_pickled_list *list);
void gp_snapshot_pickled_list_end(struct gp_pickled *out, struct gp_snapshot_pickled_list *list);

#endif
