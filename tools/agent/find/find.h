/* SPDX-License-Identifier: MIT
 *
 * find.h: finds the copies of the library in the processes of the machine, and keeps them armed.
 */
#ifndef GP_AGENT_FIND_FIND_H
#define GP_AGENT_FIND_FIND_H

#include <agent/find/discover.h>
#include <agent/find/library.h>
#include <agent/kernel/bpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct gp_finder;

/* Finds copies of the library and keeps them armed, on a thread of its own. It opens files of
 * /proc/PID, where the kernel may block for as long as a process likes (discover.h bounds the waits
 * that are known). Should the thread hang all the same, new copies are not found until that ends,
 * which the agent logs; the heartbeat and the armed files are unaffected. */

#define GP_FINDER_LIBRARIES 16u /* the most that may be named */

struct gp_finder_options {
    struct gp_bpf *bpf;           /* must outlive it */
    const char *const *libraries; /* always armed; an error if one of these cannot be */
    unsigned library_count;       /* at most GP_FINDER_LIBRARIES */
    const char *installed;        /* the same, but if it cannot be armed this is logged and tried again; NULL: none */
    bool no_discover;             /* only these files */
    void (*mapped)(void *arg, pid_t pid); /* as in discover.h; on the finder's thread */
    void *arg;
    uint64_t hangs_ns; /* a round that takes longer counts as stalled; 0: 5 s */
    uint64_t slow_ns;  /* as in discover.h */
};

/* Arms the named files before it returns. 0, or -errno with a sentence in why. */
int gp_finder_open(struct gp_finder **out, const struct gp_finder_options *options, char *why, size_t why_bytes);
/* Disarms all files. false: the thread still hangs in a file after 2 s and is left running with all
 * that it uses, bpf included; the caller must end the process. */
bool gp_finder_close(struct gp_finder *finder);

struct gp_finder_count { /* as of the thread's last round */
    struct gp_libraries_count libraries;
    unsigned unarmed; /* named files, and the installed one, that are there and could not be armed */
    struct gp_discover_count discover;
    bool is_searching; /* false: named files only */
    uint64_t hangs_ns; /* how long the current round has taken, if it counts as stalled; else 0 */
    pid_t at;          /* the process that it examines then */
};
struct gp_finder_count gp_finder_count(struct gp_finder *finder); /* any thread; never waits for the finder's */

#endif
