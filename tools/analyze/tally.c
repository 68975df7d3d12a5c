/* SPDX-License-Identifier: MIT
 * tally.c: sums by key, in a growing hash table (tally.h). */
#include <analyze/tally.h>
#include <read/common/hash.h>

#include <stdlib.h>

static bool tally_grow(struct gp_tally *tally)
{
    size_t room = tally->room ? tally->room * 2 : 64;
    struct gp_tally_row *rows = realloc(tally->rows, room * sizeof(*rows));
    if (!rows)
        return false;
    tally->rows = rows;
    tally->room = room;
    return true;
}

struct gp_tally_row *gp_tally_at(struct gp_tally *tally, uint64_t key)
{
    bool added;
    if (tally->count == tally->room && !tally_grow(tally))
        return NULL;
    const uint32_t *number =
        gp_hash_add(&tally->map, gp_hash_of_number(key), NULL, NULL, (uint32_t)tally->count, &added);
    if (!number)
        return NULL;
    if (added)
        tally->rows[tally->count++] = (struct gp_tally_row){.key = key};
    return &tally->rows[*number];
}

void gp_tally_fini(struct gp_tally *tally)
{
    free(tally->rows);
    gp_hash_free(&tally->map);
}
