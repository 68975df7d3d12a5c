/* SPDX-License-Identifier: MIT
 *
 * blocks.h: writes the blocks of a recording.
 */
#ifndef GP_RECORD_BLOCKS_H
#define GP_RECORD_BLOCKS_H

#include "record/format.h"
#include "record/pack.h"
#include "record/recorder.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Encodes the payloads of a recording's blocks, except events (file.h). Called by the recorder,
 * and by the tests, which write a recording in memory to a file. Each call appends one row; the
 * caller counts the rows. */

struct gp_block_process {
    uint32_t pid, source, driver_version;
    bool from_start;
    uint64_t begin_ns, begin_unix_ns;
    const char *comm, *command_line, *host, *allocator;
    struct gp_rank rank;
    enum gp_format_attached attached;
};
void gp_block_process(struct gp_pack *pack, const struct gp_block_process *process);

/* The payloads of STRINGS, FRAMES, SITES and SITE_NUMBERS start with the number of their first row
 * (STRINGS: first byte). */
void gp_block_first(struct gp_pack *pack, uint64_t first);
void gp_block_frame(struct gp_pack *pack, const struct gp_wire_frame *frame);
void gp_block_site(struct gp_pack *pack, const struct gp_wire_site *site);
/* The row's live_bytes, live_count, peak_bytes, at_peak_bytes, allocated_bytes and calls. */
void gp_block_site_numbers(struct gp_pack *pack, const struct gp_wire_site *site);

void gp_block_module(struct gp_pack *pack, uint64_t start, uint64_t end, uint64_t offset, const char *path,
                     const uint8_t *build_id, size_t build_id_bytes);
void gp_block_thread(struct gp_pack *pack, uint32_t tid, const char *name);

struct gp_block_sample { /* unknown: -1 */
    uint64_t time_ns;
    uint32_t device; /* index in the session */
    int64_t allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, used_bytes, process_bytes;
};
void gp_block_sample(struct gp_pack *pack, const struct gp_block_sample *sample);

/* numbers: NULL if unknown. final: they are those of the recording's end. */
void gp_block_device(struct gp_pack *pack, uint32_t index, int32_t ordinal, const char *uuid, const char *name,
                     int64_t total_bytes, const struct gp_wire_device *numbers, bool final);
/* Memory of one device from before the attach, as it was at that time. */
void gp_block_before(struct gp_pack *pack, uint64_t time_ns, uint32_t index,
                     const struct gp_wire_before_device *before);
void gp_block_oom(struct gp_pack *pack, const struct gp_wire_oom *oom);

struct gp_block_counts {
    enum gp_format_why why;
    int error; /* errno: with GP_END_ERROR why it ended, else of the last failed write */
    uint64_t time_ns;
    uint64_t tried, delivered;
    uint64_t dropped[GP_DROPS];
    uint64_t lost[GP_LOSTS];
    int lost_error;      /* errno of the write that first gave up events; 0: none did */
    uint64_t lost_ns;    /* the lowest time of those events */
    uint64_t lost_after; /* events in the file then; if it has no more, writing did not go on */
};
void gp_block_counts(struct gp_pack *pack, const struct gp_block_counts *counts);

#endif
