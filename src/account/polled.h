/* SPDX-License-Identifier: MIT
 *
 * polled.h: quantities that no call reports: what pools and graphs hold. They have gauges of
 * their own, which are folded into the reserved and allocated statistics when those are read:
 *
 * reserved = own + pools' reserve + graphs' reserve; allocated = own + graphs' memory in use.
 *
 * A peak of such a sum is known only at the instants of polls. It is kept as a lower bound that
 * never shows bytes which did not exist at once: the largest sum seen at a poll (with the
 * smaller of the own bytes just before and just after it), the driver's own high watermark, the
 * own bytes' exact peak, and the exact peak of what is allocated, which lay in reserved memory.
 *
 * A poll is late, and a short program may see none. So what pools hold is never less than the blocks
 * that were handed out of them: the difference (`lifted`) is in their gauge until a poll shows it.
 */
#ifndef GP_ACCOUNT_POLLED_H
#define GP_ACCOUNT_POLLED_H

#include "base/counter.h"
#include <gpuprof/wire.h>
#include <stdint.h>

struct gp_account;

#define GP_FOLDED 8 /* reserved, allocated, active, requested bytes: all and large */

struct gp_polled {                                /* under gp_accounts.lock */
    int64_t peaks[1 + GP_WATCHES_MAX][GP_FOLDED]; /* since the last reset; of each scope; of the batches' watch */
    int64_t before[GP_FOLDED];                    /* own bytes when the poll under way began */
    int64_t graph_used_high, graph_reserved_high;
    int64_t pool_bytes, lifted; /* the pools' gauge: as polled, and more */
    int64_t allocated_before;   /* the peak of allocated_bytes when only reserved_bytes was reset last */
};

/* Folds the polled parts into the gauges of a snapshot; their peaks too. */
void gp_polled_fold(struct gp_account *account, struct gp_gauge_value *gauges);
/* The same for a scope's peaks; gauges: an unfolded snapshot. */
void gp_polled_fold_scope(struct gp_account *account, unsigned slot, int64_t *peaks);
/* Restarts the folded peaks that the mask's gauges cover at the folded current values. */
void gp_polled_reset(struct gp_account *account, gp_gauge_set mask, const struct gp_gauge_value *folded);
/* Memory of a pool was handed out: reserved bytes have a polled part from now on. */
void gp_polled_expect(int device);
/* What the device's pools hold, by a snapshot that is not folded. */
int64_t gp_polled_pools(const struct gp_gauge_value *gauges);
void gp_polled_scope_begin(struct gp_account *account, unsigned slot);
/* For a watch that turned (base/counter.h): folds both, and restarts the slot's folded peaks at
 * the current values. */
void gp_polled_turn(struct gp_account *account, unsigned slot, struct gp_gauge_value *gauges, int64_t *peaks);
/* Moves a polled gauge to `now`; `high` (the driver's watermark) may raise the folded peak. */
void gp_polled_set(struct gp_account *account, unsigned gauge, int64_t last, int64_t now, int64_t *last_high,
                   int64_t high);

#endif
