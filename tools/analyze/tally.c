/* SPDX-License-Identifier: MIT
 * tally.c: see tally.h. */
#include <analyze/tally.h>

#include <stdlib.h>
#include <string.h>

static size_t tally_first_slot(const struct gp_tally *tally, uint64_t key)
{
    key = (key ^ key >> 32) * 0x9e3779b97f4a7c15ull; /* Fibonacci hashing, as ds/map.c */
    return (size_t)(key ^ key >> 29) & tally->mask;
}

static size_t tally_slot(const struct gp_tally *tally, uint64_t key)
{
    size_t at = tally_first_slot(tally, key);
    while (tally->slots[at] && tally->rows[tally->slots[at] - 1].key != key)
        at = (at + 1) & tally->mask;
    return at;
}

/* There are two slots for each row, so chains stay short. */
static bool tally_grow(struct gp_tally *tally)
{
    size_t room = tally->room ? tally->room * 2 : 64;
    uint32_t *slots = calloc(room * 2, sizeof(*slots));
    struct gp_tally_row *rows = slots ? realloc(tally->rows, room * sizeof(*rows)) : NULL;
    if (!rows) {
        free(slots);
        return false;
    }
    free(tally->slots);
    tally->rows = rows;
    tally->slots = slots;
    tally->room = room;
    tally->mask = room * 2 - 1;
    for (size_t i = 0; i < tally->count; i++)
        tally->slots[tally_slot(tally, rows[i].key)] = (uint32_t)i + 1;
    return true;
}

struct gp_tally_row *gp_tally_at(struct gp_tally *tally, uint64_t key)
{
    if (tally->count == tally->room && !tally_grow(tally))
        return NULL;
    size_t slot = tally_slot(tally, key);
    if (!tally->slots[slot]) {
        tally->rows[tally->count] = (struct gp_tally_row){.key = key};
        tally->slots[slot] = (uint32_t)++tally->count;
    }
    return &tally->rows[tally->slots[slot] - 1];
}

void gp_tally_fini(struct gp_tally *tally)
{
    free(tally->rows);
    free(tally->slots);
    memset(tally, 0, sizeof(*tally));
}
