/* SPDX-License-Identifier: MIT
 *
 * extents.h: the memory of a live process piece by piece, as it is now (wire.h: struct gp_wire_extents).  Called by
 * `snapshot -p` and by whoever wants to know what was live before he came.  The process may be hostile: everything is
 * copied, then checked.
 */
#ifndef GP_COLLECT_EXTENTS_H
#define GP_COLLECT_EXTENTS_H

#include <collect/collect.h>

/* What stands in `pieces` afterwards:
 *   GP_EXTENT_SEGMENT  followed by its blocks, which cover it without gap, in order of address;
 *   GP_EXTENT_BLOCK    state GPUPROF_LIVE, _WAITING, _IDLE or _UNMAPPED; device and kind are the segment's;
 *   GP_EXTENT_WHOLE    the program's own: a segment that is one live block.
 * bytes > 0, requested_bytes <= bytes, address + bytes < 2^63, device < GP_WIRE_DEVICES, kind < GP_KINDS, time_ns <=
 * end_ns (0 unknown).  site is any number: look it up with a bound.  What is live is every piece that is no segment and
 * has state GPUPROF_LIVE. */
struct gp_extents {
    uint64_t begin_ns, end_ns; /* of the walk, CLOCK_MONOTONIC */
    uint64_t missed;           /* pieces that the process had no room for: it grew too fast */
    uint64_t count;
    struct gp_wire_extent *pieces;
};

/* Asks, waits, copies, checks.  deadline_ns: for the whole, 0: five seconds.  0; -ESRCH (not profiled), -EACCES,
 * -ETIMEDOUT, -EBUSY (others take all its time), -ENOMEM, -EPROTO (what it gave makes no sense: `why`), or the
 * process's own -errno (-EINVAL: its library knows no pieces).  why may be NULL. */
int gp_extents_take(pid_t pid, struct gp_extents *out, uint64_t deadline_ns, char *why, size_t why_bytes);
void gp_extents_free(struct gp_extents *pieces);

/* The reading alone: a descriptor of the file, which stays the caller's. */
int gp_extents_read(struct gp_extents *out, int fd, char *why, size_t why_bytes);

#endif
