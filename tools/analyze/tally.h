/* SPDX-License-Identifier: MIT
 *
 * tally.h: sums by key: a table that grows, and keeps the order in which keys came.
 */
#ifndef GP_ANALYZE_TALLY_H
#define GP_ANALYZE_TALLY_H

#include <common/hash.h>

struct gp_tally_row {
    uint64_t key;
    int64_t bytes, count;
    uint64_t extra, more; /* the caller's */
};

struct gp_tally {
    struct gp_tally_row *rows;
    struct gp_hash map; /* key -> index of its row */
    size_t count, room;
};

/* The row of the key, made if it is new; NULL: out of memory.  Valid until the next call. Begin with a zeroed table. */
struct gp_tally_row *gp_tally_at(struct gp_tally *tally, uint64_t key);
void gp_tally_fini(struct gp_tally *tally);

/* Adds or takes back. false: out of memory. */
static inline bool gp_tally_move(struct gp_tally *tally, uint64_t key, uint64_t bytes, bool add)
{
    struct gp_tally_row *row = gp_tally_at(tally, key);
    if (!row)
        return false;
    row->bytes = (int64_t)((uint64_t)row->bytes + (add ? bytes : -bytes));
    row->count += add ? 1 : -1;
    return true;
}

#endif
