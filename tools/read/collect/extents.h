/* SPDX-License-Identifier: MIT
 *
 * extents.h: reads the extents of a live process: its device memory now, segment by segment and
 * block by block (wire.h: struct gp_wire_extents). Called by `snapshot -p`, and by callers that
 * need the memory that was live before they attached. The process may be hostile: everything is
 * copied, then checked.
 */
#ifndef GP_COLLECT_EXTENTS_H
#define GP_COLLECT_EXTENTS_H

#include <read/collect/collect.h>

/* `pieces` has, after the checks:
 *
 *   GP_EXTENT_SEGMENT  followed by its blocks, which cover it without gap, in order of address;
 *   GP_EXTENT_BLOCK    state GPUPROF_LIVE, _WAITING, _IDLE or _UNMAPPED; device and kind are the segment's;
 *   GP_EXTENT_WHOLE    allocated by the program directly: a segment that is one live block.
 *
 * bytes > 0, requested_bytes <= bytes, address + bytes < 2^63, device < GP_WIRE_DEVICES, kind <
 * GP_KINDS, time_ns <= end_ns (0 unknown). site can be any number: check it before using it as an
 * index. Live memory is every extent that is not a segment and has state GPUPROF_LIVE. */
struct gp_extents {
    uint64_t begin_ns, end_ns; /* when the process walked its memory, CLOCK_MONOTONIC */
    uint64_t missed;           /* extents left out because the process had no room for them */
    uint64_t count;
    struct gp_wire_extent *pieces;
};

/* Sends the request, waits, copies and checks. deadline_ns: for all of this; 0: five seconds. 0;
 * -ESRCH (not profiled), -EACCES, -ETIMEDOUT, -EBUSY (other viewers keep the process busy),
 * -ENOMEM, -EPROTO (the answer failed the checks: `why`), or the -errno that the process returned
 * (-EINVAL: its library has no extents). why may be NULL. */
int gp_extents_take(pid_t pid, struct gp_extents *out, uint64_t deadline_ns, char *why, size_t why_bytes);
void gp_extents_free(struct gp_extents *extents);

/* Only reads and checks a file of extents; the descriptor stays the caller's. */
int gp_extents_read(struct gp_extents *out, int fd, char *why, size_t why_bytes);

#endif
