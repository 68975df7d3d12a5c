/* SPDX-License-Identifier: MIT
 *
 * tapwalk.c: visits every block of a device, for viewers that draw them (tap.h). Called by
 * export/.
 */
#include "account/account.h"
#include "account/tap.h"

struct gp_tap_walk {
    unsigned index;
    void *arg;
    gp_tap_block_fn *visit;
    void (*rest)(void *arg);
};
_Static_assert(GP_TAP_REST == GP_MAP_WALK, "tap.h");

static void tap_visit(const struct gp_tap_walk *walk, const struct gp_record *record, uint64_t live_bytes)
{
    walk->visit(walk->arg, &(struct gp_tap_block){
                               .address = record->key,
                               .bytes = record->bytes,
                               .requested_bytes = record->requested_bytes,
                               .live_bytes = live_bytes,
                               .time_ns = record->time_ns,
                               .site = record->site,
                               .kind = record->kind,
                               .device = record->device,
                               .owner = record->owner,
                               .segment = record->segment,
                               .inside = record->space == GP_SPACE_BLOCK,
                           });
}

static bool tap_wants(const struct gp_tap_walk *walk, const struct gp_record *record)
{
    return walk->index == GP_TAP_EVERY ? record->device < GP_WIRE_DEVICES : record->device == walk->index;
}

static bool tap_visit_block(struct gp_record *record, void *arg)
{
    const struct gp_tap_walk *walk = arg;
    if (tap_wants(walk, record) && gp_gauge_parts(record->kind) & GP_PART_ALLOCATED)
        tap_visit(walk, record, record->bytes);
    return false;
}

/* The mapped part is in use (vmm.c: link is the sum of its mappings). */
static bool tap_visit_handle(struct gp_record *record, void *arg)
{
    const struct gp_tap_walk *walk = arg;
    if (record->space == GP_SPACE_VMM && record->kind == GP_KIND_VMM && tap_wants(walk, record))
        tap_visit(walk, record, record->link < record->bytes ? record->link : record->bytes);
    return false;
}

static void tap_rest(void *arg)
{
    const struct gp_tap_walk *walk = arg;
    walk->rest(walk->arg);
}

void gp_tap_blocks(unsigned index, void *arg, gp_tap_block_fn *visit, void (*rest)(void *arg))
{
    struct gp_tap_walk walk = {index, arg, visit, rest};
    gp_map_each_rest(gp_accounts.blocks, tap_visit_block, tap_rest, &walk);
    gp_map_each_rest(gp_accounts.objects, tap_visit_handle, tap_rest, &walk);
}
