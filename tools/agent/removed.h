/* SPDX-License-Identifier: MIT
 *
 * removed.h: finds cgroups that have been removed while the tables still have rows of them, and
 * frees those rows. deaths.c calls it from its turns.
 */
#ifndef GP_AGENT_REMOVED_H
#define GP_AGENT_REMOVED_H

#include <agent/kernel/bpf.h>

struct gp_removed;

int gp_removed_open(struct gp_removed **out, struct gp_bpf *bpf); /* bpf must outlive it.  0 or -errno */
void gp_removed_close(struct gp_removed *gone);

void gp_removed_begin(struct gp_removed *gone); /* starts a scan */
bool gp_removed_is_busy(const struct gp_removed *gone);
unsigned gp_removed_turn(struct gp_removed *gone); /* bounded work; returns the cgroups whose rows were freed */

#endif
