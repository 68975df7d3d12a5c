/* SPDX-License-Identifier: MIT
 *
 * ending.h: memory that one driver call ends together.
 */
#ifndef GP_ACCOUNT_ENDING_H
#define GP_ACCOUNT_ENDING_H

#include "base/map.h"
#include <stdbool.h>
#include <stdint.h>

/* NULL: no memory, or no room is wanted; the others but _add take it too. */
struct gp_ending *gp_ending_new(uint64_t room);
/* A record that is about to leave its map. False: no room. Takes no lock. */
bool gp_ending_add(struct gp_ending *ending, const struct gp_record *record);
uint64_t gp_ending_count(const struct gp_ending *ending);
/* Before the call: the bytes of all of them leave the totals. */
void gp_ending_begin(struct gp_ending *ending);
/* After it, and the last use: it ended them; or it failed, and put brings each record back into its map. */
void gp_ending_done(struct gp_ending *ending);
void gp_ending_refused(struct gp_ending *ending, void (*put)(struct gp_record *record, void *arg), void *arg);

#endif
