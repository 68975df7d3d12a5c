/* SPDX-License-Identifier: MIT
 *
 * failures.h: allocations that failed.
 */
#ifndef GP_AGENT_FAILURES_H
#define GP_AGENT_FAILURES_H

#include <agent/kernel/bpf.h>
#include <stddef.h>
#include <stdint.h>

struct gp_failures;

/* bpf must outlive it; NULL: no ring, for callers of gp_failures_take only. 0 or -errno. */
int gp_failures_open(struct gp_failures **out, struct gp_bpf *bpf);
void gp_failures_close(struct gp_failures *failures);
int gp_failures_fd(const struct gp_failures *failures); /* for epoll; not every record makes it readable */
/* Takes all records in the ring, within a limit. Call it also without an event, twice a second. */
void gp_failures_turn(struct gp_failures *failures);

/* Handles one record as it lies in the ring: called by gp_failures_turn, and by tests. Trusts
 * nothing in it. */
void gp_failures_take(struct gp_failures *failures, const void *data, size_t bytes);

struct gp_failures_count {
    uint64_t records, events, failures;
    uint64_t suppressed; /* failures beyond the log's rate limit */
    uint64_t malformed;  /* records that claim more events than they hold */
};
struct gp_failures_count gp_failures_count(const struct gp_failures *failures);

#endif
