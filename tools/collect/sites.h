/* SPDX-License-Identifier: MIT
 *
 * sites.h: the call sites of a live process, as recordings have them (recording.h), to be looked up with symbol/. What
 * a session says only grows, so a second look costs the live numbers and what is new.  Called by `top --by site` and by
 * whoever prints a site's id.
 */
#ifndef GP_COLLECT_SITES_H
#define GP_COLLECT_SITES_H

#include <collect/peer.h>
#include <recording/recording.h>

struct gp_sites {
    pid_t pid;
    char root[32];  /* /proc/PID/root: where the paths of modules begin */
    uint32_t modes; /* GP_SITES_* */
    uint64_t time_ns;
    uint64_t captures;
    uint64_t lost_rows, lost_frames, lost_strings;
    uint64_t unsteady; /* rows that changed each time they were looked at, in the last update */
    struct gp_wire_site_device devices[GP_WIRE_DEVICES]; /* numbers in range */

    /* As in struct gp_recording, but that the strings are as the process wrote them: ended, else anything. */
    struct gp_rec_site *sites;
    uint32_t site_count, frame_count, module_count, string_bytes;
    struct gp_rec_frame *frames;
    struct gp_rec_module *modules;
    char *strings;
    bool modules_truncated;
    bool ended; /* the process was gone: code that was mapped since the last look is not known */

    struct gp_sites_reader *reader; /* sites.c's */
};

/* Opens the process's session and reads its sites.  0; -ENOENT: stacks are off; -ESRCH: not a profiled process, or it
 * has ended; -EACCES; -EPROTO with what is wrong in `problem`; -errno. */
int gp_sites_open(struct gp_sites **out, pid_t pid, char problem[GP_PROBLEM_BYTES]);
/* The same of a session that is open already (stays the caller's); proc: "/proc/PID", for the modules. */
int gp_sites_open_peer(struct gp_sites **out, const struct gp_peer *peer, pid_t pid, const char *proc,
                       char problem[GP_PROBLEM_BYTES]);
/* Reads again, also what a process that has ended left behind.  Arrays may move, indices stay.  As gp_sites_open; on
 * failure what was known stays. */
int gp_sites_update(struct gp_sites *sites, char problem[GP_PROBLEM_BYTES]);
void gp_sites_close(struct gp_sites *sites);

#endif
