/* SPDX-License-Identifier: MIT
 *
 * format.h: the bytes of a recording (docs/format.md), for its writer (file.c) and its reader (tools/recording).
 *
 *      head | block | block | ... | end block | index block
 *
 * A block stands for itself: it is checked, unpacked and understood without the ones before it, so that a damaged or
 * cut one costs what is in it and no more.  A reader passes over types that it does not know, and over what it does not
 * know at the end of a payload.
 */
#ifndef GP_RECORD_FORMAT_H
#define GP_RECORD_FORMAT_H

#include <stdint.h>

#define GP_RECORD_MAGIC "\x89GPREC\r\n" /* 8 bytes; as PNG's: a text-mode copy or a stripped bit shows at once */
#define GP_FORMAT_MAJOR 1u              /* raised when an old reader would misunderstand */
#define GP_FORMAT_MINOR 0u              /* raised with every addition */
#define GP_FORMAT_ORDER 0x01020304u

struct gp_format_head {
    char magic[8];
    uint32_t order; /* GP_FORMAT_ORDER as the writer's words are; every number in the file is little-endian */
    uint16_t major, minor;
    uint32_t head_bytes; /* of this, for additions */
    uint32_t pid;
    uint8_t session_id[16];
    uint64_t begin_unix_ns;
    uint8_t reserved_[12];
    uint32_t crc; /* CRC-32C of the bytes before */
};

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

#define GP_FORMAT_MARK "GPb\x1a" /* 4 bytes, by which the next block is found behind a damaged one */
/* Of a payload, packed or not: a reader needs two buffers of it. */
#define GP_FORMAT_BLOCK_BYTES (4u << 20)

enum gp_format_coding { GP_CODING_PLAIN, GP_CODING_ZSTD };

struct gp_format_block {
    char mark[4];
    uint16_t type;   /* enum gp_format_type */
    uint16_t coding; /* of the payload */
    uint32_t stored_bytes, bytes;
    uint32_t count;    /* rows in the payload */
    uint32_t sequence; /* of the block in the file */
    uint32_t reserved_;
    uint32_t crc; /* CRC-32C of the fields before, then of the payload as it is stored */
};

enum gp_format_type {
    GP_BLOCK_NONE,
    GP_BLOCK_PROCESS,
    GP_BLOCK_STRINGS, /* of the site tables */
    GP_BLOCK_FRAMES,
    GP_BLOCK_SITES,
    GP_BLOCK_SITE_NUMBERS,
    GP_BLOCK_MODULES,
    GP_BLOCK_THREADS,
    GP_BLOCK_EVENTS,
    GP_BLOCK_BASELINE, /* as EVENTS: what was live at the begin */
    GP_BLOCK_SAMPLES,
    GP_BLOCK_DEVICES,
    GP_BLOCK_OOM,
    GP_BLOCK_COUNTS,
    GP_BLOCK_END,  /* as COUNTS: the last ones */
    GP_BLOCK_INDEX /* plain; its last 16 bytes end the file */
};

/* Payloads are made of varints (7 bits a byte, the lowest first, the eighth bit: more follows), signed ones folded
 * (0 -1 1 -2 ...), and strings: length, then bytes. */

/* ---- events: columns --------------------------------------------------------------------------------------------- */

/* Three times of 8 bytes each (of the first event, the lowest, the highest), number of columns, bytes of each, the
 * columns.  A block has an address table and three dictionaries of its own. */
enum gp_format_column {
    GP_COLUMN_TAGS,    /* dictionary, 4 bytes an entry: type, kind, device, GP_TAG_* */
    GP_COLUMN_TIDS,    /* dictionary of threads */
    GP_COLUMN_STREAMS, /* dictionary of streams */
    GP_COLUMN_TAG,     /* of every event, 1 byte: which entry */
    GP_COLUMN_TIME,    /* of every event, folded: less the one before (the first: less the first time) */
    GP_COLUMN_PLACE,   /* with GP_TAG_SEEN: number of the address, in order of appearance in the block */
    GP_COLUMN_ADDRESS, /* without: folded, less the new address before */
    GP_COLUMN_BYTES,
    GP_COLUMN_UNUSED, /* folded: bytes less requested bytes */
    GP_COLUMN_SITE,   /* folded: less the site told before in this column */
    GP_COLUMN_THREAD, /* index in the dictionary, as the next */
    GP_COLUMN_STREAM,
    GP_COLUMN_ERROR,
    GP_COLUMN_NAME, /* of every mark: a string */
    GP_COLUMNS
};

/* What an entry of the tag dictionary says about its events.  Without a bit the field is what it was at the last event
 * with this address (bytes, unused, site, and for frees and for others the stream apart: at a new address its stream
 * is both), and where the address is new: 0 bytes, 0 unused, site and stream of the event before. */
#define GP_TAG_SEEN   1u
#define GP_TAG_BYTES  2u
#define GP_TAG_UNUSED 4u
#define GP_TAG_SITE   8u
#define GP_TAG_STREAM 16u
#define GP_TAG_THREAD 32u /* else the thread of the event before */
#define GP_TAG_ERROR  64u /* else 0 */

/* 32 768 events are what a step of a large model makes; twice as many pack 1 % better, half as many 4 % worse. */
#define GP_FORMAT_EVENTS  (1u << 15)
#define GP_FORMAT_TAGS    255u
#define GP_FORMAT_TIDS    4096u
#define GP_FORMAT_STREAMS 4096u

/* ---- index ------------------------------------------------------------------------------------------------------- */

struct gp_format_place {
    uint64_t offset;   /* of the block in the file */
    uint64_t first_ns; /* of events */
    uint32_t count;
    uint16_t type, pad_;
};

#define GP_FORMAT_END "GPRECEND"
struct gp_format_tail {
    uint64_t index_offset; /* of the index block */
    char magic[8];
};

/* Why a recording ended. */
enum gp_format_why { GP_END_RUNNING, GP_END_PROCESS, GP_END_STOPPED, GP_END_ERROR };

/* Causes of events that are not in the file. */
enum gp_format_drop {
    GP_DROP_RING,        /* the program's thread found no room in the ring (header.lost) */
    GP_DROP_OVERWRITTEN, /* the circle came round before the recorder did */
    GP_DROP_DAMAGED,     /* failed the check */
    GP_DROP_FILE,        /* could not be written */
    GP_DROPS
};

_Static_assert(sizeof(struct gp_format_head) == 64 && sizeof(struct gp_format_block) == 32 &&
                   sizeof(struct gp_format_place) == 24 && sizeof(struct gp_format_tail) == 16,
               "format");

#endif
