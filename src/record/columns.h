/* SPDX-License-Identifier: MIT
 * columns.h: events into the columns of one block (format.h); called by file.c. */
#ifndef GP_RECORD_COLUMNS_H
#define GP_RECORD_COLUMNS_H

#include "record/format.h"
#include "record/pack.h"
#include <gpuprof/wire.h>
#include <stdbool.h>

/* Hash tables twice as large as what they hold. */
#define GP_COLUMNS_SLOTS (2u * GP_FORMAT_EVENTS)
#define GP_COLUMNS_TAGS  1024u
#define GP_COLUMNS_NAMES (2u * GP_FORMAT_TIDS)

struct gp_columns_place { /* an address, and what its last event said */
    uint64_t address, bytes, unused;
    uint64_t stream[2]; /* of the last free; of the last other event */
    uint32_t site, pad_;
};

struct gp_columns {
    uint32_t count, places;
    uint32_t tags, tids, streams; /* entries of the dictionaries */
    uint64_t first_ns, last_ns;   /* lowest and highest */
    /* The event before. */
    uint64_t time_ns, base_ns, address, stream;
    uint32_t site, told_site, tid;
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

/* Bytes that the columns of a full block can take. */
size_t gp_columns_bytes(void);
/* memory: of gp_columns_bytes(), zeroed as *columns is. */
void gp_columns_init(struct gp_columns *columns, uint8_t *memory);
/* False: the block is full; write it, begin a new one, and add the event to that. */
bool gp_columns_add(struct gp_columns *columns, const struct gp_wire_event *event);
/* The payload of what was added. */
void gp_columns_payload(const struct gp_columns *columns, struct gp_pack *out);
void gp_columns_clear(struct gp_columns *columns);

#endif
