/* SPDX-License-Identifier: MIT
 *
 * tally.h: counts by key.
 */
#ifndef GP_ANALYZE_TALLY_H
#define GP_ANALYZE_TALLY_H

#include <read/common/hash.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sums by key, in a growing hash table whose rows keep the order in which their keys were first
 * used. */

struct gp_tally_row {
    uint64_t key;
    int64_t bytes, count;
    uint64_t extra, more; /* for the caller */
};

struct gp_tally {
    struct gp_tally_row *rows;
    struct gp_hash map; /* key -> index of its row */
    size_t count, room;
};

/* Finds or adds the row of a key; NULL: out of memory.  The row is valid until the next call.  An
 * empty table is all zeros. */
struct gp_tally_row *gp_tally_at(struct gp_tally *tally, uint64_t key);

/* Adds bytes and one to the row of a key, or subtracts them.  False: out of memory. */
static inline bool gp_tally_move(struct gp_tally *tally, uint64_t key, uint64_t bytes, bool add)
{
    struct gp_tally_row *row = gp_tally_at(tally, key);
    if (!row)
        return false;
    row->bytes = (int64_t)((uint64_t)row->bytes + (add ? bytes : -bytes));
    row->count += add ? 1 : -1;
    return true;
}
void gp_tally_fini(struct gp_tally *tally);

#endif
