/* SPDX-License-Identifier: MIT
 *
 * sites.h: the call sites of a live process, in the form of recordings (recording.h), whose names
 * symbol/ looks up. The tables in a session only grow, so an update fetches only the live numbers
 * and new entries. Called by `top --by site` and by commands that print a site's number.
 */
#ifndef GP_COLLECT_SITES_H
#define GP_COLLECT_SITES_H

#include <gpuprof/wire.h>
#include <read/collect/peer.h>
#include <read/recording/recording.h>

struct gp_sites {
    pid_t pid;
    char root[56];  /* /proc/PID/root: prefix of the paths of modules */
    uint32_t modes; /* GP_SITES_* */
    uint64_t time_ns;
    uint64_t captures;
    uint64_t lost_rows, lost_frames, lost_strings;
    uint64_t unsteady;                                   /* rows that changed during every attempt of the last update */
    struct gp_wire_site_device devices[GP_WIRE_DEVICES]; /* with numbers in range */

    /* As in struct gp_recording, except that the strings are as the process wrote them: terminated,
     * but not cleaned. */
    struct gp_rec_site *sites;
    uint32_t site_count, frame_count, module_count, string_bytes;
    struct gp_rec_frame *frames;
    struct gp_rec_module *modules;
    char *strings;
    bool modules_truncated;
    bool ended; /* the process has ended: code mapped since the last update is unknown */

    struct gp_sites_reader *reader; /* private to sites.c */
};

/* Opens the process's session and reads its sites. 0; -ENOENT: stacks are off; -ESRCH: not a
 * profiled process, or it has ended; -EACCES; -EPROTO with the reason in `problem`; -errno. */
int gp_sites_open(struct gp_sites **out, pid_t pid, char problem[GP_PROBLEM_BYTES]);
/* The same with a session that is already open and stays the caller's; proc: "/proc/PID", for the
 * modules. */
int gp_sites_open_peer(struct gp_sites **out, const struct gp_peer *peer, pid_t pid, const char *proc,
                       char problem[GP_PROBLEM_BYTES]);
/* Reads again; also works after the process has ended. Arrays may move, indexes stay. Returns as
 * gp_sites_open; on failure the old data stay. */
int gp_sites_update(struct gp_sites *sites, char problem[GP_PROBLEM_BYTES]);
void gp_sites_close(struct gp_sites *sites);

/* Reads which stacks the process takes now: GP_SITES_*; 0: off. Returns as gp_sites_open, but 0 if
 * stacks are off. */
int gp_sites_modes(pid_t pid, uint32_t *modes, char problem[GP_PROBLEM_BYTES]);

#endif
