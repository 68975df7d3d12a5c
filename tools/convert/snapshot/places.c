/* SPDX-License-Identifier: MIT
 *
 * places.c: addresses for memory that has none; see internal.h.
 */
#include <base/numbers.h>
#include <convert/snapshot/internal.h>
#include <search.h>
#include <stdlib.h>

/* Above every address of a GPU, and below 2^53, from which on JavaScript rounds. */
#define GP_PLACE_BEGIN (1ull << 52)
#define GP_PLACE_END   (1ull << 53)
#define GP_PLACE_STEP  512u

struct gp_snap_placed {
    uint64_t handle, bytes, address;
};

static int place_compare(const void *left, const void *right)
{
    const struct gp_snap_placed *l = left, *r = right;
    if (l->handle != r->handle)
        return l->handle < r->handle ? -1 : 1;
    return l->bytes < r->bytes ? -1 : l->bytes > r->bytes;
}

uint64_t gp_snap_place(struct gp_snap *snap, uint8_t kind, uint64_t address, uint64_t bytes)
{
    struct gp_snap_placed wanted = {.handle = address, .bytes = bytes}, **found;
    if (!gp_kind_is(kind, GP_TRAIT_HANDLE))
        return address;
    found = tfind(&wanted, &snap->places, place_compare);
    if (found)
        return (*found)->address;
    uint64_t begin = snap->places_end ? snap->places_end : GP_PLACE_BEGIN;
    if (bytes > GP_PLACE_END - GP_PLACE_STEP - begin)
        return address; /* a damaged size */
    struct gp_snap_placed *place = malloc(sizeof(*place));
    if (place)
        *place = (struct gp_snap_placed){address, bytes, begin};
    if (!place || !tsearch(place, &snap->places, place_compare)) {
        free(place);
        snap->places_broken = true;
        return address;
    }
    snap->places_end = begin + (bytes + GP_PLACE_STEP - 1) / GP_PLACE_STEP * GP_PLACE_STEP;
    return begin;
}

void gp_snap_places_free(struct gp_snap *snap)
{
    tdestroy(snap->places, free);
    snap->places = NULL;
}
