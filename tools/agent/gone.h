/* SPDX-License-Identifier: MIT
 *
 * gone.h: cgroups that have been removed while the tables still have rows of them.  Part of deaths.c, which gives it
 * its turns.
 */
#ifndef GP_AGENT_GONE_H
#define GP_AGENT_GONE_H

#include <kernel/loader.h>

struct gp_gone;

int gp_gone_open(struct gp_gone **out, struct gp_bpf *bpf); /* bpf must outlive it.  0 or -errno */
void gp_gone_close(struct gp_gone *gone);

void gp_gone_begin(struct gp_gone *gone); /* a look */
bool gp_gone_is_busy(const struct gp_gone *gone);
unsigned gp_gone_turn(struct gp_gone *gone); /* bounded work.  Cgroups that were forgotten */

#endif
