/* SPDX-License-Identifier: MIT
 *
 * live.h: who holds how much, and who held it at the peak.
 */
#ifndef GP_SITE_LIVE_H
#define GP_SITE_LIVE_H

#include "site.h"

/* Numbers of the sites in rows[0 .. head->row_limit), which the caller writes their identities into. */
void gp_live_start(struct gp_wire_sites *head, struct gp_wire_site *rows);

#endif
