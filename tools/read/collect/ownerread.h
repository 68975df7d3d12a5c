/* SPDX-License-Identifier: MIT
 *
 * ownerread.h: checks the owners and frameworks of a session. Called by peerread.c.
 */
#ifndef GP_COLLECT_OWNERREAD_H
#define GP_COLLECT_OWNERREAD_H

#include <read/collect/collect.h>

/* Checks a private copy and stores it in *process and its devices, with its strings cleaned. 0, or
 * -EPROTO with process->problem. */
/* Memory from before an attach; numbers that cannot be are unknown. */
void gp_before_take(const struct gp_wire_before *before, const struct gp_wire_blocks *blocks,
                    struct gp_process *process);
int gp_owners_take(const struct gp_wire_owners *owners, struct gp_process *process);
int gp_owners_doors(const struct gp_wire_doors *doors, struct gp_process *process);

#endif
