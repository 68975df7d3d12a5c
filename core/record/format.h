/* SPDX-License-Identifier: MIT
 *
 * format.h: the bytes of a recording (docs/format.md), for the writer (file.c) and the reader
 * (tools/read/recording).
 *
 *      head | block | block | ... | end block | index block
 *
 * Each block is independent: it is checked, unpacked and decoded without the ones before it, so a
 * damaged or cut block loses only its own contents. A reader skips block types that it does not
 * know, and unknown bytes at the end of a payload.
 */
#ifndef GP_RECORD_FORMAT_H
#define GP_RECORD_FORMAT_H

#include <stdint.h>

#define GP_RECORD_MAGIC "\x89GPREC\r\n" /* 8 bytes; like PNG's, it reveals a text-mode copy or a stripped bit */
#define GP_FORMAT_MAJOR 1u              /* raised when an old reader would misunderstand */
#define GP_FORMAT_MINOR 6u              /* raised with every addition */
#define GP_FORMAT_ORDER 0x01020304u

struct gp_format_head {
    char magic[8];
    uint32_t order; /* GP_FORMAT_ORDER in the writer's byte order; all numbers in the file are little-endian */
    uint16_t major, minor;
    uint32_t head_bytes; /* size of this struct, which may grow */
    uint32_t pid;
    uint8_t session_id[16];
    uint64_t begin_unix_ns;
    uint64_t run_unix_ns; /* GPUPROF_RECORD_SINCE, which tells the files of one `run`; 0 none; since format 1.5 */
    uint8_t reserved_[4];
    uint32_t crc; /* CRC-32C of the bytes before */
};

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

#define GP_FORMAT_MARK "GPb\x1a" /* 4 bytes; a reader searches for them behind a damaged block */
/* The largest payload, compressed or not: a reader needs two buffers of this size. */
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
    GP_BLOCK_BASELINE, /* as EVENTS: the memory live at the start */
    GP_BLOCK_SAMPLES,
    GP_BLOCK_DEVICES_RAW, /* these two up to format 1.2: a struct of wire.h as it was */
    GP_BLOCK_OOM_RAW,
    GP_BLOCK_COUNTS,
    GP_BLOCK_END,     /* as COUNTS: the final ones */
    GP_BLOCK_INDEX,   /* not compressed; its last 16 bytes end the file */
    GP_BLOCK_BEFORE,  /* memory from before the attach, whenever it changed; since format 1.2 */
    GP_BLOCK_DEVICES, /* since format 1.3, with numbers by their ids (numbers.def) */
    GP_BLOCK_OOM,     /* since format 1.3, with numbers by their ids (oom.def) */
    GP_BLOCK_NAMES    /* of native frames, behind everything else; since format 1.4 */
};

/* Whether gpuprof was attached to the program while it ran, in PROCESS since format 1.2. */
enum gp_format_attached { GP_FORMAT_ATTACHED_UNKNOWN, GP_FORMAT_ATTACHED_NO, GP_FORMAT_ATTACHED_YES };

/* Payloads consist of varints (7 bits per byte, the lowest first, the eighth bit: more follow),
 * signed ones folded (0 -1 1 -2 ...), and strings: length, then bytes. */

/* ---- events: columns --------------------------------------------------------------------------------------------- */

/* Three times of 8 bytes each (of the first event, the lowest, the highest), the number of columns,
 * the bytes of each, the columns. A block has its own address table and three dictionaries. */
enum gp_format_column {
    GP_COLUMN_TAGS,    /* dictionary, 4 bytes per entry: type, kind, device, GP_TAG_* */
    GP_COLUMN_TIDS,    /* dictionary of threads */
    GP_COLUMN_STREAMS, /* dictionary of streams */
    GP_COLUMN_TAG,     /* for each event 1 byte: its entry in TAGS */
    GP_COLUMN_TIME,    /* for each event, folded: minus the time before it (at first: minus the first time) */
    GP_COLUMN_PLACE,   /* with GP_TAG_SEEN: number of the address, in order of appearance in the block */
    GP_COLUMN_ADDRESS, /* without: folded, minus the previous new address */
    GP_COLUMN_BYTES,
    GP_COLUMN_UNUSED, /* folded: bytes minus requested bytes */
    GP_COLUMN_SITE,   /* folded: minus the previous site in this column */
    GP_COLUMN_THREAD, /* index in the dictionary, as for the next column */
    GP_COLUMN_STREAM,
    GP_COLUMN_ERROR,
    GP_COLUMN_NAME,                    /* for each mark: a string */
    GP_COLUMNS_FIRST,                  /* the fewest columns of a file of this major version */
    GP_COLUMN_COST = GP_COLUMNS_FIRST, /* with GP_TAG_COST: 1 byte, gp_wire_cost */
    GP_COLUMNS
};

/* GP_TAG_SEEN: the address occurred before in the block. Each other bit says that its field is
 * stored. Without it the field keeps its value of the last event with this address (bytes, unused,
 * site, and the stream, separately for frees and for other events: a new address starts with the
 * same stream for both). A new address starts with 0 bytes, 0 unused, and the site and stream of
 * the event before. */
#define GP_TAG_SEEN   1u
#define GP_TAG_BYTES  2u
#define GP_TAG_UNUSED 4u
#define GP_TAG_SITE   8u
#define GP_TAG_STREAM 16u
#define GP_TAG_THREAD 32u  /* else the thread of the event before it */
#define GP_TAG_ERROR  64u  /* else 0 */
#define GP_TAG_COST   128u /* else 0 */

/* Twice as many compress 2 % better and half as many 9 % worse on the generated traces
 * (bench_record). A block is also the most events that a killed process can lose per second, and
 * the unit that must be in memory at once. */
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

/* The reason why a recording ended. */
enum gp_format_why { GP_END_RUNNING, GP_END_PROCESS, GP_END_STOPPED, GP_END_ERROR };

/* Causes of events that are not in the file. */
enum gp_format_drop {
    GP_DROP_RING,        /* a thread of the program found no room in the ring (header.lost) */
    GP_DROP_OVERWRITTEN, /* overwritten in the ring before the recorder read them */
    GP_DROP_DAMAGED,     /* failed the check */
    GP_DROP_FILE,        /* could not be written */
    GP_DROP_END,         /* the process ended before they could be written */
    GP_DROPS
};

_Static_assert(sizeof(struct gp_format_head) == 64 && sizeof(struct gp_format_block) == 32 &&
                   sizeof(struct gp_format_place) == 24 && sizeof(struct gp_format_tail) == 16,
               "format");

#endif
