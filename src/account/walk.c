/* SPDX-License-Identifier: MIT
 * walk.c: every block of a device, for those who draw them (tap.h).  Called by api/ on a thread of the program. */
#include "account/account.h"
#include "account/tap.h"

struct gp_tap_walk {
    uint8_t device;
    void *arg;
    gp_tap_block_fn *visit;
};

static bool gp_tap_visit_block(struct gp_record *record, void *arg)
{
    const struct gp_tap_walk *walk = arg;
    if (record->device == walk->device && gp_gauge_parts(record->kind) & GP_PART_ALLOCATED)
        walk->visit(walk->arg, &(struct gp_tap_block){record->key, record->bytes, record->requested_bytes,
                                                      record->bytes, record->kind});
    return false;
}

/* What of it is mapped is handed out (vmm.c: link is the sum of its mappings). */
static bool gp_tap_visit_handle(struct gp_record *record, void *arg)
{
    const struct gp_tap_walk *walk = arg;
    if (record->space == GP_SPACE_VMM && record->kind == GP_KIND_VMM && record->device == walk->device)
        walk->visit(walk->arg,
                    &(struct gp_tap_block){record->key, record->bytes, record->requested_bytes,
                                           record->link < record->bytes ? record->link : record->bytes, record->kind});
    return false;
}

void gp_tap_blocks(unsigned index, void *arg, gp_tap_block_fn *visit)
{
    struct gp_tap_walk walk = {(uint8_t)index, arg, visit};
    gp_map_each(gp_accounts.blocks, gp_tap_visit_block, &walk);
    gp_map_each(gp_accounts.objects, gp_tap_visit_handle, &walk);
}
