/* SPDX-License-Identifier: MIT
 *
 * live.h: the live bytes of each site and its bytes at the device's peak. Used by site.c, which
 * implements the rest of site.h.
 */
#ifndef GP_STACK_LIVE_H
#define GP_STACK_LIVE_H

#include "site.h"

/* Call once at start, before any site is handed out. The numbers of the sites are kept in rows[0 ..
 * limit); the caller writes the identities of the sites into the same rows. */
void gp_live_start(struct gp_wire_sites *head, struct gp_wire_site *rows, uint32_t limit);

/* Changes the site so that all summed sites of its device hold `bytes`; counts: and `count` blocks. */
void gp_live_settle(uint32_t site, int64_t bytes, int64_t count, bool counts);

#endif
