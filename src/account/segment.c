/* SPDX-License-Identifier: MIT
 *
 * segment.c: counts the segments of frameworks and of heaps. Called by block.c, vmm.c and context.c
 * as the driver's memory comes and goes, and by ground.c and the files of heaps, which make
 * segments of ordinary allocations.
 */
#include "account/segment.h"
#include "account/door.h"
#include "account/framework.h"
#include "account/internal.h"
#include "account/move.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/map.h"
#include "base/thread.h"
#include <gpuprof/wire.h>

/* Returns whose segment it is, and the bytes of all of them. */
static struct gp_framework *segment_count(const struct gp_record *segment, int64_t sign, int64_t *sum)
{
    struct gp_account *account = gp_account_of(segment->device);
    if (!account)
        return NULL;
    struct gp_framework *of =
        segment->segment == GP_SEGMENT_HEAP ? &account->heaps[gp_door_of(segment->owner)] : &account->framework;
    int64_t bytes = sign * (int64_t)segment->bytes;
    __atomic_fetch_add(&of->x_segments, sign, __ATOMIC_RELAXED);
    *sum = bytes + __atomic_fetch_add(&of->x_segment_bytes, bytes, __ATOMIC_RELAXED);
    if (segment->flags & GP_FLAG_PRIVATE)
        __atomic_fetch_add(&of->x_private_bytes, bytes, __ATOMIC_RELAXED);
    return of;
}

void gp_segment_framework(const struct gp_record *segment, enum gp_counter_op op)
{
    int64_t sign = op == GP_ADD ? 1 : -1, bytes;
    struct gp_framework *of = segment_count(segment, sign, &bytes);
    if (!of || segment->segment == GP_SEGMENT_HEAP)
        return;
    if (bytes > __atomic_load_n(&of->x_segment_peak, __ATOMIC_RELAXED)) /* one at a time, under the framework's lock */
        __atomic_store_n(&of->x_segment_peak, bytes, __ATOMIC_RELAXED);
    if (sign < 0)
        gp_framework_gave_back(of);
}

void gp_segment_not(const struct gp_record *segment)
{
    int64_t bytes;
    segment_count(segment, -1, &bytes);
}

static void remade_apply(struct gp_counter *set, unsigned first, unsigned from, unsigned to, int64_t bytes)
{
    const struct gp_delta less[] = {{.gauge = GP_GAUGE_SEGMENT + from, .amount = 1},
                                    {.gauge = first + from, .amount = bytes}},
                          more[] = {{.gauge = GP_GAUGE_SEGMENT + to, .amount = 1},
                                    {.gauge = first + to, .amount = bytes}};
    gp_counter_apply(set, gp_thread.number, GP_SUB, less, 2);
    gp_counter_apply(set, gp_thread.number, GP_ADD, more, 2);
}

static void remade_owner(struct gp_account *account, const struct gp_record *record, enum gp_counter_op op)
{
    const struct gp_delta delta = {.gauge = GP_GAUGE_OWNERS + record->owner * GP_OWNER_GAUGES + GP_OWNER_RESERVED,
                                   .amount = (int64_t)record->bytes};
    if (delta.amount > 0)
        gp_counter_apply(account->counter, gp_thread.number, op, &delta, 1);
}

void gp_segment_remade(const struct gp_record *before, const struct gp_record *after)
{
    struct gp_account *account = gp_account_of(after->device);
    bool was_small = gp_account_block_move(before).class_bytes <= GP_SMALL_BYTES,
         is_small = gp_account_block_move(after).class_bytes <= GP_SMALL_BYTES;
    if (!account)
        return;
    if (was_small != is_small && gp_gauge_parts(after->kind) & GP_PART_RESERVED)
        remade_apply(account->counter, GP_GAUGE_RESERVED_BYTES, was_small ? GP_POOL_SMALL : GP_POOL_LARGE,
                     is_small ? GP_POOL_SMALL : GP_POOL_LARGE, (int64_t)after->bytes);
    if (before->owner != after->owner && gp_gauge_parts(after->kind) & GP_PART_RESERVED) {
        remade_owner(account, before, GP_SUB);
        remade_owner(account, after, GP_ADD);
    }
}
