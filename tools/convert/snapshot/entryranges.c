/* SPDX-License-Identifier: MIT
 *
 * entryranges.c: sets of address ranges; see internal.h.
 */
#include <convert/snapshot/internal.h>
#include <search.h>
#include <stdlib.h>

struct gp_entry_range {
    uint64_t begin, end;
};

/* Ranges that overlap compare as equal: the tree never holds two of them. */
static int range_compare(const void *left, const void *right)
{
    const struct gp_entry_range *l = left, *r = right;
    return l->end <= r->begin ? -1 : r->end <= l->begin;
}

static void range_put(struct gp_entry_ranges *ranges, uint64_t begin, uint64_t end)
{
    if (begin >= end)
        return;
    struct gp_entry_range *range = malloc(sizeof(*range));
    if (range)
        *range = (struct gp_entry_range){begin, end};
    if (!range || !tsearch(range, &ranges->tree, range_compare)) {
        free(range);
        ranges->broken = true;
    }
}

void gp_ranges_remove(struct gp_entry_ranges *ranges, uint64_t address, uint64_t bytes)
{
    struct gp_entry_range gone = {address, address + bytes}, **found;
    while (bytes && (found = tfind(&gone, &ranges->tree, range_compare))) {
        struct gp_entry_range *range = *found, old = *range;
        tdelete(range, &ranges->tree, range_compare);
        free(range);
        range_put(ranges, old.begin, gone.begin);
        range_put(ranges, gone.end, old.end);
    }
}

void gp_ranges_add(struct gp_entry_ranges *ranges, uint64_t address, uint64_t bytes)
{
    gp_ranges_remove(ranges, address, bytes);
    range_put(ranges, address, address + bytes);
}

bool gp_ranges_hold(const struct gp_entry_ranges *ranges, uint64_t address)
{
    struct gp_entry_range point = {address, address + 1};
    return tfind(&point, &ranges->tree, range_compare) != NULL;
}

void gp_ranges_free(struct gp_entry_ranges *ranges)
{
    tdestroy(ranges->tree, free);
    ranges->tree = NULL;
}
