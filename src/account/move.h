/* SPDX-License-Identifier: MIT
 *
 * move.h: changes of the totals (account.c).
 */
#ifndef GP_ACCOUNT_MOVE_H
#define GP_ACCOUNT_MOVE_H

#include "base/counter.h"
#include "base/gauge.h"
#include "base/map.h"
#include <stdbool.h>
#include <stdint.h>

/* Returns the time of the change, for its event: sorted by time, events add up to the numbers and
 * their peaks. 0: no gauge changed. */
uint64_t gp_account_move(int device, enum gp_counter_op op, const struct gp_move *move);
/* The move of a plain block, if it needs no lock and no waiting: its time. 0: it is not made; use gp_account_move. */
uint64_t gp_account_try(const struct gp_record *record, enum gp_counter_op op);
/* The driver refused a free that was counted before the call, at that time. */
void gp_account_putback(int device, uint64_t since_ns, const struct gp_move *move);
/* GP_SUB of an allocation that turns out to be a segment: its bytes leave the peaks too. raises:
 * from gp_account_raises, before it was added. False: a peak still has them. */
bool gp_account_retract(int device, uint64_t raises, const struct gp_move *move);
uint64_t gp_account_raises(int device);
/* The move of a plain block that a record describes. */
struct gp_move gp_account_block_move(const struct gp_record *record);

#endif
