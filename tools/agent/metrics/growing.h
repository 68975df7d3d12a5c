/* SPDX-License-Identifier: MIT
 *
 * growing.h: the call site that grows most, of each process in a container whose memory runs out.
 * Only these processes' call sites are read, and no symbols: a native frame is named by its object
 * and offset.  Called by samples.c.
 */
#ifndef GP_METRICS_GROWING_H
#define GP_METRICS_GROWING_H

#include <agent/metrics/samples.h>

struct gp_sites;

/* Processes that are followed at once. */
#define GP_GROWING_MOST 16u

struct gp_growing_watch {
    uint32_t pid, device;
    uint64_t start_ns;
    struct gp_sites *sites; /* NULL: it takes no stacks, or cannot be read */
    int64_t *before;        /* live bytes of each site when the watch began */
    uint32_t before_count;
    uint32_t idle; /* pages since its container ran out of memory */
};

struct gp_growing {
    uint32_t count;
    struct gp_growing_watch watches[GP_GROWING_MOST];
};

/* Fills rows->sites, at most `most` and GP_GROWING_MOST.  The containers have their rows.  A call site
 * needs two pages.  False: out of memory. */
bool gp_growing_make(struct gp_growing *growing, struct gp_rows *rows, enum gp_metrics_processes how,
                     const struct gp_system_view *view, uint32_t most);
void gp_growing_fini(struct gp_growing *growing);
/* The innermost frame of the program's own code: "function (file:line)" of Python, "object+0x12". */
void gp_growing_label(const struct gp_sites *sites, uint32_t site, char *label, size_t bytes);

#endif
