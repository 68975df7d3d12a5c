/* SPDX-License-Identifier: MIT
 *
 * start.h: the start and the end of the accounts.
 */
#ifndef GP_ACCOUNT_FEED_START_H
#define GP_ACCOUNT_FEED_START_H

#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

struct gp_ring;

struct gp_feed_setup {
    struct gp_ring *ring;
    /* While *armed is not 0, `coming` is called with the time of every event before the event
     * goes into the ring, and `heard` afterwards. NULL: no batches. */
    const uint16_t *armed;
    /* While it is not 0 the ring has a reader.  NULL: always. */
    const uint32_t *listened;
    uint64_t *lost;                              /* GP_LOSTS words in the session */
    struct gp_wire_failure *failures;            /* GP_WIRE_FAILURES rows in the session */
    struct gp_wire_oom *oom;                     /* in the session; NULL: reports are not kept */
    struct gp_wire_oom_framework *oom_framework; /* in the session; NULL: not there */
    void (*wake_poller)(void);
    bool (*poll_now)(uint64_t timeout_ns); /* polls everything; false: it did not finish in time */
    uint64_t map_limit;                    /* most live blocks that the pointer map may hold */
    void (*coming)(uint64_t time_ns);
    void (*heard)(void);
    bool late; /* the program has used CUDA before */
};

/* Call it once, before the first event. 0 or -errno; after an error nothing else of feed/ may be
 * called. */
int gp_feed_start(const struct gp_feed_setup *setup);
/* Gives the maps back, which gp_kept_restore does not. Between two lives of the library. */
void gp_feed_end(void);

#endif
