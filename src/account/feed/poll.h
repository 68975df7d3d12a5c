/* SPDX-License-Identifier: MIT
 *
 * poll.h: what the poller asks for and tells (src/source/poll.c).
 */
#ifndef GP_ACCOUNT_FEED_POLL_H
#define GP_ACCOUNT_FEED_POLL_H

#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

/* Whether there is a library to ask; now: asks it. */
bool gp_feed_poll_doors(bool now);
/* The driver names a device's default pool: another than before has replaced that. */
void gp_feed_pool_default(uint64_t pool, int device);

struct gp_poll_pool {
    uint64_t pool;
    int device;
};

/* Copies up to max pools that should be polled. After gp_feed_poll_enter(pool) has returned
 * true, the pool is not destroyed unnoticed until gp_feed_poll_leave(). */
unsigned gp_feed_poll_pools(struct gp_poll_pool *out, unsigned max);
bool gp_feed_poll_enter(uint64_t pool);
void gp_feed_poll_leave(void);
/* Call them around all polls of one device: the own bytes held between the two bound the peaks
 * (account/polled.h). */
void gp_feed_poll_begin(int device);
/* Between the two, after all polls: true asks for all of them once more. */
bool gp_feed_poll_again(int device);
void gp_feed_poll_end(int device);
/* The poll for which a caller waits has ended in time, or not. */
void gp_feed_poll_late(bool late);
void gp_feed_poll_pool(uint64_t pool, int64_t reserved, int64_t reserved_high);
void gp_feed_poll_graph(int device, int64_t used, int64_t used_high, int64_t reserved, int64_t reserved_high);
/* threads: that the device can hold at once; 0: unknown. */
void gp_feed_poll_device(int device, const uint8_t uuid[16], const char *name, int64_t total_bytes, int64_t threads);

/* Imports whose size the API does not report: whether one waits to be asked for, the next address to
 * query (false: none), and the answer. */
struct gp_poll_import {
    uint8_t space;
    uint64_t address;
};
bool gp_feed_poll_import_waits(void);
bool gp_feed_poll_import_next(struct gp_poll_import *out);
void gp_feed_poll_import(const struct gp_poll_import *import, uint64_t bytes);

/* A report of an out-of-memory failure that needs the driver's numbers. True: returns its
 * context, which is not destroyed unnoticed until gp_feed_poll_oom_leave brings the answer (-1:
 * unknown). */
bool gp_feed_poll_oom_enter(uint64_t *context);
void gp_feed_poll_oom_leave(int64_t free_bytes, int64_t total_bytes);
/* Replays the history of the newest report, once, if it has no more events than this. */
void gp_feed_poll_oom_replay(uint32_t most);
/* The newest report, returned once, for the log. */
bool gp_feed_poll_oom_report(struct gp_wire_oom *out, struct gp_wire_oom_framework *framework);

/* The poller is about to ask the driver. False: it must not: a question has harmed a capture, or may have. */
bool gp_feed_poll_ask(void);
/* The driver refused a question because of a capture, and has invalidated that. */
void gp_feed_poll_refused(void);

#endif
