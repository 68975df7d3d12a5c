/* SPDX-License-Identifier: MIT
 *
 * failures.h: reads the ring of events, so that it stays empty, and says each failed allocation in the log: who, where,
 * how much.  The ring has one reader; that is the agent.
 */
#ifndef GP_AGENT_FAILURES_H
#define GP_AGENT_FAILURES_H

#include <kernel/loader.h>

struct gp_failures;

/* bpf must outlive it; NULL: no ring, for gp_failures_take alone.  0 or -errno. */
int gp_failures_open(struct gp_failures **out, struct gp_bpf *bpf);
void gp_failures_close(struct gp_failures *failures);
int gp_failures_fd(const struct gp_failures *failures); /* for epoll; not every record makes it readable */
void gp_failures_turn(
    struct gp_failures *failures); /* takes all that is there; also without an event, twice a second */

/* One record as it lies in the ring: gp_failures_turn's work, and the tests' door.  Trusts nothing in it. */
void gp_failures_take(struct gp_failures *failures, const void *data, size_t bytes);

struct gp_failures_count {
    uint64_t records, events, failures;
    uint64_t unsaid; /* failures beyond the log's rate */
    uint64_t broken; /* records that claim more than they hold */
};
struct gp_failures_count gp_failures_count(const struct gp_failures *failures);

#endif
