/* SPDX-License-Identifier: MIT
 *
 * query.h: answers to questions about a process.
 */
#ifndef GP_AGENT_QUERY_H
#define GP_AGENT_QUERY_H

#include <stdint.h>
#include <sys/types.h>

struct gp_querier;

int gp_query_open(struct gp_querier **out); /* 0 or -errno */
/* Waits up to 2 s for the thread. A thread that hangs in a file system is left running until the
 * agent exits. */
void gp_query_close(struct gp_querier *querier);
/* Never waits. A process that is queued already, or was asked and still lives, is not asked again;
 * one that did not answer may be asked again a minute later. */
void gp_query_add(struct gp_querier *querier, pid_t pid);

struct gp_query_count {
    unsigned waiting;  /* queued, or asked and not answered yet */
    uint64_t answered; /* processes that answered, since the start */
    uint64_t silent;   /* asked three times without success: no session, no permission or no answer */
    uint64_t refused;  /* beyond GP_MAPS_PROCESSES at once: not asked at all */
};
struct gp_query_count gp_query_count(struct gp_querier *querier);

#endif
