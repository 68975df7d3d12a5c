/* SPDX-License-Identifier: MIT
 *
 * internal.h: shared by the files of snapshot/: the parts of the file, in the order in which they
 * are written:
 *
 *      open, { segment, block..., segment_end }..., traces, { trace, entry..., trace_end }..., settings, annotations,
 *      host, { segment, block..., segment_end }..., host_trace, entry..., trace_end, close
 */
#ifndef GP_CONVERT_SNAPSHOT_INTERNAL_H
#define GP_CONVERT_SNAPSHOT_INTERNAL_H

#include <convert/snapshot/pickled.h>
#include <convert/snapshot/snapshot.h>
#include <stdbool.h>
#include <stdint.h>

struct gp_snap_memo;

/* The limit between PyTorch's small and large pool, for memory that belongs to neither. */
#define GP_SNAPSHOT_SMALL (1ull << 20)

/* Frequent words: dictionary keys and values. */
enum gp_word {
    GP_WORD_SEGMENTS,
    GP_WORD_DEVICE_TRACES,
    GP_WORD_ALLOCATOR_SETTINGS,
    GP_WORD_EXTERNAL_ANNOTATIONS,
    GP_WORD_DEVICE,
    GP_WORD_ADDRESS,
    GP_WORD_TOTAL_SIZE,
    GP_WORD_ALLOCATED_SIZE,
    GP_WORD_ACTIVE_SIZE,
    GP_WORD_REQUESTED_SIZE,
    GP_WORD_STREAM,
    GP_WORD_SEGMENT_TYPE,
    GP_WORD_SEGMENT_POOL_ID,
    GP_WORD_IS_EXPANDABLE,
    GP_WORD_FRAMES,
    GP_WORD_BLOCKS,
    GP_WORD_SIZE,
    GP_WORD_STATE,
    GP_WORD_LARGE,
    GP_WORD_SMALL,
    GP_WORD_ACTIVE_ALLOCATED,
    GP_WORD_ACTIVE_PENDING_FREE,
    GP_WORD_INACTIVE,
    GP_WORD_ACTION,
    GP_WORD_ADDR,
    GP_WORD_DEVICE_FREE,
    GP_WORD_TIME_US,
    GP_WORD_ALLOC,
    GP_WORD_FREE_REQUESTED,
    GP_WORD_FREE_COMPLETED,
    GP_WORD_SEGMENT_ALLOC,
    GP_WORD_SEGMENT_FREE,
    GP_WORD_SEGMENT_MAP,
    GP_WORD_SEGMENT_UNMAP,
    GP_WORD_OOM,
    GP_WORD_NAME,
    GP_WORD_FILENAME,
    GP_WORD_LINE,
    GP_WORD_STAGE,
    GP_WORD_START,
    GP_WORD_END,
    GP_WORD_GRANTED,
    GP_WORD_HOST_SEGMENTS,
    GP_WORD_HOST_TRACES,
    GP_WORDS
};

#define GP_SNAP_ALIKE 64u /* the longest part has 57 bytes */

/* The address ranges of the cache's segments; they do not overlap. */
struct gp_entry_ranges {
    void *tree;
    bool broken; /* memory ran out: answers are no longer reliable */
};

struct gp_snap_entry {
    enum gp_word action;
    uint64_t address, bytes, stream;
    uint64_t granted; /* of an allocation; 0: the next multiple of 512 bytes */
    int64_t time_us;
    int64_t device_free; /* for oom only; -1 unknown */
    uint32_t site;
};

struct gp_snap_segment {
    uint64_t address, stream, pool;
    uint32_t device, site; /* device: GP_WIRE_HOST too */
    bool small, expandable;
};
struct gp_snap_block {
    uint64_t address, bytes, requested_bytes; /* requested: of blocks that are not idle */
    uint32_t site;
    uint8_t state; /* GPUPROF_LIVE, _WAITING, _IDLE */
};

/* What a segment of one block has in common with the one before, as it is written: before its address, between that and its
 * block's sizes, and after them. */
struct gp_snap_alike {
    struct gp_snap_segment segment;
    uint32_t site;    /* of the block */
    uint8_t state;    /* of the block */
    uint8_t bytes[3]; /* of each part; all 0: none is known */
    uint8_t parts[3][GP_SNAP_ALIKE];
};

struct gp_snap {
    struct gp_pickled out;
    const struct gp_snapshot_names *names;
    struct gp_snapshot_counts counts;
    uint32_t words[GP_WORDS]; /* memo + 1 */
    uint32_t *sites;          /* memo + 1 of a site's frames */
    struct gp_snap_memo *memo;
    struct gp_snapshot_pickled_list segments, blocks, traces, entries;
    void *places;                   /* tree: addresses for memory that has a handle alone */
    uint64_t places_end;            /* the next free one; 0: none yet */
    bool places_broken;             /* memory ran out */
    struct gp_entry_ranges aliases; /* mapped memory that is shown at another address */
    /* The segment that is being written. */
    uint64_t total_bytes, allocated_bytes, active_bytes, requested_bytes;
    struct gp_snap_alike alike;
    /* The last entries of this trace, if there is a limit: a ring with `limit` places. */
    struct gp_snap_entry *keep;
    uint64_t kept, kept_room; /* entries so far; places allocated */
    bool keep_broken;
};

struct gp_snap_settings {
    const char *allocator;
    int64_t split_limit;
    bool expandable;
};

/* NULL: no memory. */
struct gp_snap *gp_snap_open(int fd, const struct gp_snapshot_names *names);
/* Ends the file if it is complete, and frees.  0 or -errno. */
int gp_snap_close(struct gp_snap *snap, struct gp_snapshot_counts *counts);

/* Writes the word in a part, and returns where the part goes on (pickled.h). */
uint8_t *gp_snap_word(struct gp_snap *snap, uint8_t *at, enum gp_word word);
void gp_snap_segment(struct gp_snap *snap, const struct gp_snap_segment *segment);
void gp_snap_block(struct gp_snap *snap, const struct gp_snap_block *block);
void gp_snap_segment_end(struct gp_snap *snap);
/* The same three for a segment of one block. */
void gp_snap_whole(struct gp_snap *snap, const struct gp_snap_segment *segment, const struct gp_snap_block *block);

void gp_snap_traces(struct gp_snap *snap); /* ends the segments */
void gp_snap_trace(struct gp_snap *snap);
void gp_snap_entry(struct gp_snap *snap, const struct gp_snap_entry *entry);
void gp_snap_trace_end(struct gp_snap *snap);
void gp_snap_settings(struct gp_snap *snap, const struct gp_snap_settings *settings); /* ends the traces */

void gp_snap_host(struct gp_snap *snap);       /* begins the segments of the host */
void gp_snap_host_trace(struct gp_snap *snap); /* ends them, and begins its one trace */

/* NAME starts and /NAME ends a range; a mark without a partner is a range without length.  NVTX's
 * are "nvtx:NAME", "/nvtx:NAME" and, without length, "nvtx.NAME" (docs/nvtx.md); the prefix is left
 * out. */
struct gp_snap_note {
    const char *name; /* stays the caller's */
    int64_t time_us;
};
/* Of one annotation. */
void gp_snap_note(struct gp_snap *snap, struct gp_snapshot_pickled_list *list, const char *name, bool ends,
                  uint32_t device, int64_t time_us);

void gp_ranges_add(struct gp_entry_ranges *ranges, uint64_t address, uint64_t bytes);
void gp_ranges_remove(struct gp_entry_ranges *ranges, uint64_t address, uint64_t bytes);
bool gp_ranges_hold(const struct gp_entry_ranges *ranges, uint64_t address);
void gp_ranges_free(struct gp_entry_ranges *ranges);

/* The address to show: the handle of an array is none, and lies closer to the next one than the array is large.  So an
 * array gets an address above all real ones: always the same for the same handle and size. */
uint64_t gp_snap_place(struct gp_snap *snap, uint8_t kind, uint64_t address, uint64_t bytes);
void gp_snap_places_free(struct gp_snap *snap);

#endif
