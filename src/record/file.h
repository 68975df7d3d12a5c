/* SPDX-License-Identifier: MIT
 *
 * file.h: writes a recording: packs events into columns, frames and checks blocks, keeps the index.  Called by the
 * recorder (in the program and beside it) and by whoever turns a recording in memory into a file.  Never calls malloc.
 *
 * What cannot be written is given up and counted: on a full disk the file stays as it is, sound, and is gone on with
 * when there is room again.  Threads: one at a time per file.
 */
#ifndef GP_RECORD_FILE_H
#define GP_RECORD_FILE_H

#include "record/format.h"
#include "record/pack.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gp_file;

/* Opens `path` for a recording: a new file of mode 0600, or a FIFO of our own that somebody reads.  replace: a
 * recording that is there already and that nobody is writing may be overwritten.  -EEXIST: something else is there,
 * -EBUSY: it is being written, -ELOOP: a link.  A descriptor or -errno. */
int gp_file_open(const char *path, bool replace);

struct gp_file_who {
    uint32_t pid;
    uint8_t session_id[16];
    uint64_t begin_unix_ns;
};

/* Writes the head.  The descriptor becomes the file's.  0 or -errno; the descriptor is closed then. */
int gp_file_new(struct gp_file **out, int fd, const struct gp_file_who *who);

/* Adds one event to the block that is being made; a full block is written.  type: EVENTS, or BASELINE; a change needs a
 * flush. */
void gp_file_add(struct gp_file *file, const struct gp_wire_event *event, enum gp_format_type type);
/* Writes what there is. */
void gp_file_flush(struct gp_file *file, enum gp_format_type type);

/* A payload is put together in here (one at a time) ... */
struct gp_pack *gp_file_pack(struct gp_file *file);
/* ... and written.  last: of those without which the file would not be whole, for which room is kept on the disk.
 * 0; -errno: it is not in the file. */
int gp_file_block(struct gp_file *file, enum gp_format_type type, uint32_t count, bool last);

struct gp_file_stats {
    uint64_t bytes;     /* of the file */
    uint64_t events;    /* in it */
    uint64_t baseline;  /* in it */
    uint64_t given_up;  /* could not be written */
    uint64_t packed_of; /* bytes of payloads before they were packed */
    int error;          /* errno of the last write that failed; 0: the last one went well */
    bool dead;          /* nothing will be written any more */
};
void gp_file_stats(const struct gp_file *file, struct gp_file_stats *out);

/* Writes the index and closes.  0, or -errno of the last write. */
int gp_file_end(struct gp_file *file);

#endif
