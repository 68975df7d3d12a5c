/* SPDX-License-Identifier: MIT
 *
 * pickle.h: writes a Python pickle as it goes: protocol 2, in the few opcodes that the viewer's own unpickler knows,
 * with nothing to be patched afterwards.  What goes wrong is kept and told at the end.
 */
#ifndef GP_SNAPSHOT_PICKLE_H
#define GP_SNAPSHOT_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
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

void gp_pickled_begin(struct gp_pickled *out, int fd);
/* 0 or -errno. */
int gp_pickled_end(struct gp_pickled *out);

void gp_pickled_int(struct gp_pickled *out, int64_t value);
void gp_pickled_bool(struct gp_pickled *out, bool value);
void gp_pickled_float(struct gp_pickled *out, double value);
/* Control characters and what is no UTF-8 become '?'; cut at 4 KiB. */
void gp_pickled_text(struct gp_pickled *out, const char *text);
void gp_pickled_pair(struct gp_pickled *out, int64_t first, int64_t second);

/* The value just written gets a number, by which gp_pickled_again writes it once more. */
uint32_t gp_pickled_remember(struct gp_pickled *out);
void gp_pickled_again(struct gp_pickled *out, uint32_t memo);

/* Keys and values in turn between the two; not empty. */
void gp_pickled_dict(struct gp_pickled *out);
void gp_pickled_dict_end(struct gp_pickled *out);

/* Each item is announced by gp_pickled_item.  Items are appended in batches of 1000, as Python does: the viewer appends
 * a batch through its call stack. */
struct gp_pickled_list {
    uint64_t count;
};
void gp_pickled_list(struct gp_pickled *out, struct gp_pickled_list *list);
void gp_pickled_item(struct gp_pickled *out, struct gp_pickled_list *list);
void gp_pickled_list_end(struct gp_pickled *out, struct gp_pickled_list *list);

#endif
