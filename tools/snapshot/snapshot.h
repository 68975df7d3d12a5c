/* SPDX-License-Identifier: MIT
 *
 * snapshot.h: a memory snapshot in PyTorch's format, of any CUDA program: for PyTorch's viewer and its _memory_viz.py,
 * and for `gpuprof replay`.  docs/snapshot.md says what becomes what.  Called by cmd/snapshot.c.
 *
 * Both write to a descriptor from where it stands, in one pass, with memory for the sites' names and the cache's
 * segments alone.  0, -ENOMEM or the file's -errno.
 */
#ifndef GP_SNAPSHOT_SNAPSHOT_H
#define GP_SNAPSHOT_SNAPSHOT_H

#include <collect/extents.h>
#include <recording/recording.h>
#include <symbol/symbol.h>

/* How call sites are told: gp_symbols_site, or a test's own.  Sites from `count` on, and 0, have no frames. */
struct gp_snapshot_names {
    uint32_t (*frames)(struct gp_symbols *symbols, uint32_t site, const struct gp_frame_text **frames);
    struct gp_symbols *symbols;
    uint32_t count;
};

struct gp_snapshot_counts { /* what was written */
    uint64_t segments, blocks, entries, annotations, bytes;
};

struct gp_snapshot_live {
    const struct gp_extents *pieces;
    /* By time; those after the walk began are left out, because the pieces may not know them yet. */
    const struct gp_wire_event *events;
    size_t event_count;
    uint32_t device_count;         /* GPUs that the process has used; more are found among the pieces and events */
    int64_t unix_ns;               /* wall clock minus CLOCK_MONOTONIC */
    const char *allocator;         /* "off" or the policy */
    int64_t split_limit;           /* max_split_size; -1 none */
    const struct gp_wire_oom *oom; /* the last one; NULL or count 0: none */
};
int gp_snapshot_live(int fd, const struct gp_snapshot_live *live, const struct gp_snapshot_names *names,
                     struct gp_snapshot_counts *counts);

/* The segments as they were at the recording's end, and everything that led there. */
int gp_snapshot_recording(int fd, const struct gp_recording *recording, const struct gp_snapshot_names *names,
                          struct gp_snapshot_counts *counts);

#endif
