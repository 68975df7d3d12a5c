/* SPDX-License-Identifier: MIT
 * columns.h: encodes events as the columns of one block (format.h). Called by file.c. */
#ifndef GP_RECORD_COLUMNS_H
#define GP_RECORD_COLUMNS_H

#include "record/format.h"
#include "record/pack.h"
#include <gpuprof/wire.h>
#include <stdbool.h>

/* Hash tables, twice as large as their number of entries. */
#define GP_COLUMNS_SLOTS (2u * GP_FORMAT_EVENTS)
#define GP_COLUMNS_TAGS  1024u
#define GP_COLUMNS_NAMES (2u * GP_FORMAT_TIDS)

struct gp_columns_place { /* an address, and the fields of its last event */
    uint64_t address, bytes, unused;
    uint64_t stream[2]; /* [0]: of the last free; [1]: of the last other event */
    uint32_t site, pad_;
};

struct gp_columns {
    uint32_t count, places;
    uint32_t tags, tids, streams; /* entries of the dictionaries */
    uint64_t first_ns, last_ns;   /* lowest and highest */
    /* The previous event: */
    uint64_t time_ns, base_ns, address, stream;
    uint32_t site, last_site, tid;
    struct gp_pack column[GP_COLUMNS];
    uint32_t slot_of[GP_COLUMNS_SLOTS]; /* index in place + 1 */
    struct gp_columns_place place[GP_FORMAT_EVENTS];
    uint32_t tag_key[GP_COLUMNS_TAGS]; /* key + 1 */
    uint8_t tag_of[GP_COLUMNS_TAGS];
    uint32_t tid_key[GP_COLUMNS_NAMES];
    uint16_t tid_of[GP_COLUMNS_NAMES]; /* index + 1 */
    uint64_t stream_key[GP_COLUMNS_NAMES];
    uint16_t stream_of[GP_COLUMNS_NAMES]; /* index + 1 */
};

/* Bytes that the columns of a full block need at most. */
size_t gp_columns_bytes(void);
/* memory: gp_columns_bytes() long. It and *columns are zeroed by the caller. */
void gp_columns_init(struct gp_columns *columns, uint8_t *memory);
/* False: the block is full; write it, call gp_columns_clear, and add the event again. */
bool gp_columns_add(struct gp_columns *columns, const struct gp_wire_event *event);
/* Appends the payload of the block to *out. */
void gp_columns_payload(const struct gp_columns *columns, struct gp_pack *out);
void gp_columns_clear(struct gp_columns *columns);

#endif
