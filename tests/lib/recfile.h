/* SPDX-License-Identifier: MIT
 *
 * recfile.h: the bytes of a recording, block by block, for tests of its reader.  It shares only the format and the
 * checksum with the writer.  Functions abort when memory is exhausted; they have no other errors.
 */
#ifndef GP_TEST_LIB_RECFILE_H
#define GP_TEST_LIB_RECFILE_H

#include <record/format.h>
#include <record/pack.h>
#include <stddef.h>
#include <stdint.h>

struct recfile {
    uint8_t *at;
    size_t size, room;
    uint32_t sequence;
    struct gp_pack row; /* recfile_rows gives it out */
    uint8_t rows[65536];
};

/* An empty file; free() its `at`. */
void recfile_begin(struct recfile *file);
void recfile_raw(struct recfile *file, const void *bytes, size_t count);
/* A head of this version; also of a head that the caller has changed. */
struct gp_format_head recfile_head_of(uint32_t pid, uint64_t begin_unix_ns);
void recfile_head(struct recfile *file, const struct gp_format_head *head);
/* A plain block with this payload; recfile_block_as: with fields that the caller has set, except the checksum. */
void recfile_block(struct recfile *file, enum gp_format_type type, uint32_t count, const void *payload, size_t bytes);
void recfile_block_as(struct recfile *file, const struct gp_format_block *block, const void *payload);
/* An empty payload for the caller to fill; recfile_block_rows writes it. */
struct gp_pack *recfile_rows(struct recfile *file);
void recfile_block_rows(struct recfile *file, enum gp_format_type type, uint32_t count);

#endif
