/* SPDX-License-Identifier: MIT
 *
 * query.h: asks processes that run already for their numbers, so that a started agent sees totals at once and not with
 * each process's next allocation: GP_COMMAND_SNAPSHOT in the session's mailbox makes it fire a round of batches.  On a
 * thread of its own: a stopped process answers nobody, and the agent's loop waits for nobody.
 *
 * A process is asked three times, with a pause of 1 s and of 4 s between; each time it may have a second for its
 * answer, while others are asked.  The last request stays in its mailbox: a stopped process fires when it goes on.
 */
#ifndef GP_AGENT_QUERY_H
#define GP_AGENT_QUERY_H

#include <stdint.h>
#include <sys/types.h>

struct gp_querier;

int gp_querier_open(struct gp_querier **out); /* 0 or -errno */
/* Waits for the thread, 2 s at most: one that hangs in somebody's file system is left to the end of the agent. */
void gp_querier_close(struct gp_querier *querier);
/* Never waits.  A pid that waits already, or was asked and lives, is not asked again; one that was silent may be, a
 * minute later. */
void gp_querier_add(struct gp_querier *querier, pid_t pid);

struct gp_querier_count {
    unsigned waiting;  /* now: their turn is to come, or their answer */
    uint64_t answered; /* processes, since the beginning */
    uint64_t silent;   /* asked three times: no session, no right, no answer */
    uint64_t refused;  /* more at once than GP_MAPS_PROCESSES: not asked at all */
};
struct gp_querier_count gp_querier_count(struct gp_querier *querier);

#endif
