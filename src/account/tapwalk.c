/* SPDX-License-Identifier: MIT
 *
 * tapwalk.c: visits every block of a device, for viewers that draw them (tap.h). Called by
 * session/.
 */
#include "account/before.h"
#include "account/feed/feed.h"
#include "account/internal.h"
#include "account/tap.h"
#include "base/gauge.h"
#include "base/map.h"
#include <gpuprof/wire.h>

struct gp_tap_walk {
    unsigned index;
    bool before; /* what is visited is from before the attach */
    void *arg;
    gp_tap_block_fn *visit;
    void (*rest)(void *arg);
};
_Static_assert(GP_TAP_REST == GP_MAP_WALK, "tap.h");

static void tap_visit(const struct gp_tap_walk *walk, const struct gp_record *record, uint64_t bytes, bool mapped)
{
    walk->visit(walk->arg,
                &(struct gp_tap_block){
                    .address = record->key,
                    .bytes = bytes,
                    .requested_bytes = record->requested_bytes,
                    .time_ns = record->time_ns,
                    .site = record->site,
                    /* A segment is linear memory, whatever it was taken as. */
                    .kind = record->segment && record->space == GP_SPACE_DEVICE ? GP_KIND_LINEAR : record->kind,
                    .device = record->device,
                    .owner = record->owner,
                    .segment = record->segment,
                    .inside = record->space == GP_SPACE_BLOCK,
                    .mapped = mapped,
                    .before = walk->before,
                });
}

static bool tap_wants(const struct gp_tap_walk *walk, const struct gp_record *record)
{
    return walk->index == GP_TAP_EVERY ? record->device < GP_WIRE_DEVICES : record->device == walk->index;
}

static bool tap_visit_block(struct gp_record *record, void *arg)
{
    const struct gp_tap_walk *walk = arg;
    /* Else its bytes are about to enter the totals (block.c). The time of a framework's block may be unknown. */
    bool counted = record->time_ns != 0 || record->space == GP_SPACE_BLOCK;
    if (counted && tap_wants(walk, record) && gp_account_counted(record) &&
        gp_gauge_parts(record->kind) & GP_PART_ALLOCATED)
        tap_visit(walk, record, gp_account_counted(record), false);
    return false;
}

/* A mapping's requested bytes are what it added to the mapped memory:
 * another mapping of the same memory adds nothing (vmm.c). */
static bool tap_visit_object(struct gp_record *record, void *arg)
{
    const struct gp_tap_walk *walk = arg;
    if (!tap_wants(walk, record))
        return false;
    if (record->space == GP_SPACE_VMM && record->kind == GP_KIND_VMM && record->handle.mapped < record->bytes)
        tap_visit(walk, record, record->bytes - record->handle.mapped, false);
    else if (record->space == GP_SPACE_MAPPING && record->kind == GP_KIND_VMM && record->requested_bytes)
        tap_visit(walk, record, record->requested_bytes, true);
    else if (record->space == GP_SPACE_RANGE)
        tap_visit(walk, record, record->bytes, false);
    return false;
}

/* The segments of a framework whose blocks from before are known. */
static bool tap_visit_before(struct gp_record *record, void *arg)
{
    const struct gp_tap_walk *walk = arg;
    if (tap_wants(walk, record) && (record->space == GP_SPACE_BLOCK || record->segment)) {
        struct gp_record piece = *record;
        piece.kind = GP_KIND_LINEAR;
        piece.time_ns = 0;
        tap_visit(walk, &piece, piece.bytes, record->space != GP_SPACE_BLOCK && record->before.mapped);
    }
    return false;
}

static void tap_rest(void *arg)
{
    const struct gp_tap_walk *walk = arg;
    walk->rest(walk->arg);
}

void gp_tap_blocks(unsigned index, void *arg, gp_tap_block_fn *visit, void (*rest)(void *arg))
{
    struct gp_tap_walk walk = {.index = index, .arg = arg, .visit = visit, .rest = rest};
    struct gp_map *before = gp_before_blocks();
    gp_map_each_rest(gp_accounts.blocks, tap_visit_block, tap_rest, &walk);
    gp_map_each_rest(gp_accounts.objects, tap_visit_object, tap_rest, &walk);
    if (!before)
        return;
    walk.before = true;
    if (gp_before_map())
        gp_map_each_rest(gp_before_map(), tap_visit_before, tap_rest, &walk);
    gp_map_each_rest(before, tap_visit_before, tap_rest, &walk);
}
