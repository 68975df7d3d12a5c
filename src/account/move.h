/* SPDX-License-Identifier: MIT
 *
 * move.h: changes of the totals (account.c).
 */
#ifndef GP_ACCOUNT_MOVE_H
#define GP_ACCOUNT_MOVE_H

#include "account/internal.h"
#include "base/compiler.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/map.h"
#include "base/thread.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

/* Returns the time of the change, for its event: sorted by time, events add up to the numbers and
 * their peaks. 0: no gauge changed. */
uint64_t gp_account_move(int device, enum gp_counter_op op, const struct gp_move *move);
/* gp_record.pair of memory in the device's space with as many bytes as were asked for. */
static inline uint8_t gp_account_pair(enum gp_wire_kind kind, uint64_t bytes)
{
    int64_t more;
    if ((int64_t)bytes <= 0 || (kind != GP_KIND_LINEAR && kind != GP_KIND_POOL))
        return 0;
    return (uint8_t)(1 + (kind == GP_KIND_POOL ? gp_gauge_pool_pair((int64_t)bytes)
                                               : gp_gauge_owned_pair((int64_t)bytes, &more)));
}

/* The move of a record that has a pair, and is no segment, if it needs no lock and no waiting: its time. 0: nothing was
 * moved; use gp_account_move. */
static inline uint64_t gp_account_try(const struct gp_record *record, enum gp_counter_op op)
{
    int64_t bytes = (int64_t)record->bytes, more = 0;
    unsigned pair = record->pair - 1u;
    if (GP_UNLIKELY(pair >= GP_PAIRS || record->segment || record->device >= GP_WIRE_DEVICES))
        return 0;
    /* [account.A] acquire: pairs with [account.R]. */
    struct gp_account *account = __atomic_load_n(&gp_accounts.x_devices[record->device], __ATOMIC_ACQUIRE);
    if (GP_UNLIKELY(!account || __atomic_load_n(&account->pairs[pair / 2].x_owner, __ATOMIC_ACQUIRE) !=
                                    record->owner + 1)) /* [pairs.A] */
        return 0;
    if (pair < GP_PAIR_POOL_SMALL)
        gp_gauge_owned_pair(bytes, &more);
    return gp_gate_event(account->counter, gp_counter_gate(account->counter, gp_thread.number), op, pair,
                         (const int64_t[]){1, bytes}, GP_GAUGE_LINEAR_ROUNDED, more);
}

/* The driver refused a free that was counted before the call, at that time. */
void gp_account_putback(int device, uint64_t since_ns, const struct gp_move *move);
/* GP_SUB of an allocation that turns out to be a segment: its bytes leave the peaks too. raises:
 * from gp_account_raises, before it was added. False: a peak still has them. */
bool gp_account_retract(int device, uint64_t raises, const struct gp_move *move);
uint64_t gp_account_raises(int device);
/* The move of a plain block that a record describes. */
struct gp_move gp_account_block_move(const struct gp_record *record);

#endif
