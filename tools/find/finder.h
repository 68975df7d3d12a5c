/* SPDX-License-Identifier: MIT
 *
 * finder.h: looks for copies of the library and keeps them armed, on a thread of its own.  It has to open files of
 * /proc/PID, and there the kernel waits for as long as the process likes: one that execs with a file of its own FUSE
 * server open holds everybody who asks what it maps.  Then new copies are not found until that process is ended, which
 * is said; the heart beats on, and what is armed goes on counting.
 */
#ifndef GP_FIND_FINDER_H
#define GP_FIND_FINDER_H

#include <find/discover.h>

#define GP_FINDER_LIBRARIES 16u /* that may be named */

struct gp_finder_options {
    struct gp_bpf *bpf;           /* must outlive it */
    const char *const *libraries; /* armed from the start to the end; one that cannot be is an error */
    unsigned library_count;       /* at most GP_FINDER_LIBRARIES */
    const char *installed;        /* the same, but one that cannot be armed is said and waited for; NULL: none */
    bool no_discover;             /* these alone */
    void (*mapped)(void *arg, pid_t pid); /* as in discover.h; on the finder's thread */
    void *arg;
    uint64_t hangs_ns; /* of a round that is called hanging; 0: 5 s */
    uint64_t slow_ns;  /* as in discover.h */
};

struct gp_finder;

/* Arms what is named before it returns.  0, or -errno with a sentence in why. */
int gp_finder_open(struct gp_finder **out, const struct gp_finder_options *options, char *why, size_t why_bytes);
/* Disarms all.  false: the thread hangs in somebody's files after 2 s, and is left behind with all that it uses, bpf
 * too: the caller ends the process. */
bool gp_finder_close(struct gp_finder *finder);

struct gp_finder_count { /* as of the thread's last round */
    struct gp_libraries_count libraries;
    struct gp_discover_count discover;
    bool is_searching; /* not: named files alone */
    uint64_t hangs_ns; /* the round that is under way takes so long already, if that is more than any has to */
    pid_t at;          /* the process that it looks at then */
};
struct gp_finder_count gp_finder_count(struct gp_finder *finder); /* any thread; never waits for the finder's */

#endif
