/* SPDX-License-Identifier: MIT
 *
 * snapshot.h: a memory snapshot in PyTorch's format, of any CUDA program: for PyTorch's viewer and
 * its _memory_viz.py, and for `gpuprof replay`.  docs/snapshot.md has the mapping.  Called by
 * cmd/snapshot.c.
 *
 * Both functions write to a descriptor from its current position, in one pass.  Their memory grows
 * only with the names of sites and the segments of the cache.  0, -ENOMEM or the -errno of the file.
 */
#ifndef GP_CONVERT_SNAPSHOT_SNAPSHOT_H
#define GP_CONVERT_SNAPSHOT_SNAPSHOT_H

#include <gpuprof/wire.h>
#include <read/collect/collect.h>
#include <read/collect/mailbox.h>
#include <read/collect/peer.h>
#include <read/recording/recording.h>
#include <stddef.h>
#include <stdint.h>
#include <symbol/symbol.h>
#include <sys/types.h>

/* ==== the snapshot ================================================================================================ */

/* Names call sites: gp_symbols_site, or a function of a test.  Site 0 and sites from `count` on
 * have no frames.  With has_limit only the last `limit` entries of each device's trace are written. */
struct gp_snapshot_names {
    uint32_t (*frames)(struct gp_symbols *symbols, uint32_t site, const struct gp_frame_text **frames);
    struct gp_symbols *symbols;
    uint32_t count;
    bool has_limit;
    uint64_t limit;
};

struct gp_snapshot_counts { /* what was written */
    uint64_t segments, blocks, entries, annotations, bytes;
    uint64_t left_out; /* entries, because of the limit */
};

struct gp_snapshot_live {
    const struct gp_extents *pieces;
    /* By time.  Events after the start of the walk are left out, since the extents may not have
     * them yet. */
    const struct gp_wire_event *events;
    size_t event_count;
    uint32_t device_count;         /* GPUs that the process has used; extents and events may have more */
    int64_t unix_ns;               /* wall clock minus CLOCK_MONOTONIC */
    const char *allocator;         /* "off" or the policy */
    int64_t split_limit;           /* max_split_size; -1 none */
    const struct gp_wire_oom *oom; /* the last one; NULL or count 0: none */
};
int gp_snapshot_live(int fd, const struct gp_snapshot_live *live, const struct gp_snapshot_names *names,
                     struct gp_snapshot_counts *counts);

/* The segments at the end of the recording, and all events before. */
int gp_snapshot_recording(int fd, const struct gp_recording *recording, const struct gp_snapshot_names *names,
                          struct gp_snapshot_counts *counts);

/* An estimate before the writing: entries of traces, and bytes of the file.  limit: as in struct
 * gp_snapshot_names, else UINT64_MAX. */
struct gp_snapshot_size {
    uint64_t entries, bytes;
};
struct gp_snapshot_size gp_snapshot_expect(const struct gp_recording *recording, uint64_t limit);
struct gp_snapshot_size gp_snapshot_expect_live(const struct gp_snapshot_live *live, uint64_t limit);

/* ==== the last events ============================================================================================= */
/* Collects the last events of a live process while its snapshot is being made.  Called by
 * cmd/snapshot.c. */

struct gp_recent {
    struct gp_wire_event *events; /* by time */
    size_t count;
    uint64_t missed; /* overwritten or damaged, since the first of them */
    size_t room;
    struct gp_ringread *reader;
    struct gp_peer session;
    struct gp_listen listen;
};

/* Starts with the events that the ring still holds.  0, -ESRCH, -EACCES, -EPROTO, -errno. */
int gp_snapshot_recent_open(struct gp_recent *recent, pid_t pid);
/* Takes the new events; last: everything that is left.  0 or -errno. */
int gp_snapshot_recent_poll(struct gp_recent *recent, int last);
void gp_snapshot_recent_close(struct gp_recent *recent);

#endif
