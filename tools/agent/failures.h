/* SPDX-License-Identifier: MIT
 *
 * failures.h: reads the ring of events, so that it stays empty, and says each failed allocation in the log: who, where,
 * how much.  The ring has one reader; that is the agent.
 */
#ifndef GP_AGENT_FAILURES_H
#define GP_AGENT_FAILURES_H

#include <bpf/loader.h>

struct gp_failures;

int gp_failures_open(struct gp_failures **out, struct gp_bpf *bpf); /* bpf must outlive it.  0 or -errno */
void gp_failures_close(struct gp_failures *failures);
int gp_failures_fd(const struct gp_failures *failures); /* for epoll; not every record makes it readable */
void gp_failures_turn(
    struct gp_failures *failures); /* takes all that is there; also without an event, twice a second */

struct gp_failures_count {
    uint64_t records, events, failures, unsaid; /* unsaid: failures beyond the log's rate */
};
struct gp_failures_count gp_failures_count(const struct gp_failures *failures);

#endif
