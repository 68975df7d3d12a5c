/* SPDX-License-Identifier: MIT
 *
 * polled.h: quantities that no call reports: the memory that pools and graphs hold. They have
 * gauges of their own, which are folded into the reserved and allocated statistics when those are
 * read:
 *
 * reserved = own + pools' reserve + graphs' reserve; allocated = own + graphs' memory in use.
 *
 * A poll's answer holds at one instant of the poll, and nothing says when it ceases to hold: a pool
 * gives memory back when the program waits for a stream. So it must not be added to own bytes of
 * another time, or a sum would have bytes that never existed at once. Invariant:
 *
 *      each folded peak is a sum that the device held at one instant:
 *      (a) own bytes alone, and own bytes with what pools handed out: one snapshot of exact gauges;
 *      (b) what the poll read, and the least own bytes from its begin to its end;
 *      (c) a watermark of the driver that rose since the poll before, and the least own bytes since
 *          that began;
 *      (d) the peak of what is allocated, which lay in reserved memory;
 *      and no current value is above its peak.
 *
 * The least own bytes are those at the begin less what was freed since. Several readings (of pools,
 * of graphs) are of several instants; where their sum would raise a peak, all are made again, and
 * of each the smaller one counts: memory that moved between the passes from one pool to another
 * counts once.
 *
 * A poll is late, and a short program may see none. So the gauge of the pools is never less than
 * the blocks that were handed out of them: the difference (`lifted`) is in their gauge until a poll
 * shows it.
 */
#ifndef GP_ACCOUNT_POLLED_H
#define GP_ACCOUNT_POLLED_H

#include "account/internal.h"
#include "base/counter.h"
#include "base/gauge.h"
#include <stdint.h>

/* Folds the polled parts into the gauges of a snapshot; their peaks too. */
void gp_polled_fold(struct gp_account *account, struct gp_gauge_value *gauges);
/* The same for a scope's peaks; gauges: an unfolded snapshot. */
void gp_polled_fold_scope(struct gp_account *account, unsigned slot, int64_t *peaks);
/* Restarts the folded peaks that the mask's gauges cover at the folded current values, or where the last poll is late,
 * at what is held for certain. gauges: not folded. */
void gp_polled_reset(struct gp_account *account, gp_gauge_set mask, const struct gp_gauge_value *folded,
                     const struct gp_gauge_value *gauges);
/* Memory of a pool was handed out: reserved bytes have a polled part from now on. */
static inline void gp_polled_expect_of(struct gp_account *account)
{
    if (GP_UNLIKELY(!(__atomic_load_n(&account->x_flags, __ATOMIC_RELAXED) & GP_DEVICE_POLLED)))
        __atomic_fetch_or(&account->x_flags, GP_DEVICE_POLLED, __ATOMIC_RELAXED);
}
void gp_polled_expect(int device);
/* The bytes that the device's pools handed out, and those that they hold, by a snapshot that is not
 * folded. */
static inline int64_t gp_polled_handed_out(const struct gp_gauge_value *gauges)
{
    return gauges[GP_GAUGE_KIND_BYTES + GP_KIND_POOL].current;
}
static inline int64_t gp_polled_pools(const struct gp_gauge_value *gauges)
{
    return gp_larger(gauges[GP_GAUGE_POOL_RESERVED].current, gp_polled_handed_out(gauges));
}
void gp_polled_scope_begin(struct gp_account *account, unsigned slot);
/* For a watch that turned (base/counter.h): folds both, and restarts the slot's folded peaks at
 * the current values. */
void gp_polled_turn(struct gp_account *account, unsigned slot, struct gp_gauge_value *gauges, int64_t *peaks);
/* Moves a polled gauge to `now`; `high` (the driver's watermark) may raise the folded peak. */
void gp_polled_set(struct gp_account *account, unsigned gauge, int64_t last, int64_t now, int64_t *last_high,
                   int64_t high);

#endif
