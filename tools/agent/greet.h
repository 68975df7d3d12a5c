/* SPDX-License-Identifier: MIT
 *
 * greet.h: asks processes that run already for their numbers, so that a started agent sees totals at once and not with
 * each process's next allocation: GP_COMMAND_SNAPSHOT in the session's mailbox makes it fire a round of batches.  On a
 * thread of its own: a stopped process answers nobody, and the agent's loop waits for nobody.
 */
#ifndef GP_AGENT_GREET_H
#define GP_AGENT_GREET_H

#include <sys/types.h>

struct gp_greeter;

int gp_greeter_open(struct gp_greeter **out); /* 0 or -errno */
void gp_greeter_close(struct gp_greeter *greeter);
/* Never waits.  A pid that waits already, or was greeted and lives, is not asked again. */
void gp_greeter_add(struct gp_greeter *greeter, pid_t pid);

struct gp_greeter_count {
    unsigned waiting, answered, silent; /* silent: no session, no right, no answer within a second; tried three times */
};
struct gp_greeter_count gp_greeter_count(struct gp_greeter *greeter);

#endif
