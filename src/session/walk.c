/* SPDX-License-Identifier: MIT
 *
 * walk.c: gpuprof_walk copies the memory of a device, piece by piece, into the caller's array.
 * It writes there under the locks of the cache and of the pointer map, so it calls nothing that
 * could wait for a thread that waits for these locks.
 */
#include "account/tap.h"
#include "base/compiler.h"
#include "session/extents.h"
#include "session/internal.h"
#include <gpuprof/gpuprof.h>
#include <gpuprof/wire.h>

_Static_assert(sizeof(struct gpuprof_piece) == 56, "gpuprof.h");

struct gp_api_walk {
    struct gpuprof_piece *pieces;
    uint64_t room, count;
    bool before; /* in a segment from before the attach, which is in no total either */
};

static void api_extent(struct gp_api_walk *walk, const struct gp_wire_extent *piece, uint32_t what)
{
    uint64_t at = walk->count++;
    if (at >= walk->room)
        return;
    walk->pieces[at] = (struct gpuprof_piece){
        .address = piece->address,
        .bytes = piece->bytes,
        .requested_bytes = what == GPUPROF_BLOCK ? piece->requested_bytes : 0,
        .stream = piece->stream,
        .pool = piece->pool,
        .what = what,
        .state = what == GPUPROF_BLOCK ? piece->state : 0u,
        .kind = piece->kind,
        .flags = piece->flags,
    };
}

static void api_visit(void *arg, const struct gp_wire_extent *piece)
{
    struct gp_api_walk *walk = arg;
    if (piece->what != GP_EXTENT_BLOCK)
        walk->before = piece->flags & GP_EXTENT_BEFORE;
    if (walk->before)
        return;
    if (piece->what != GP_EXTENT_BLOCK)
        api_extent(arg, piece, GPUPROF_SEGMENT);
    if (piece->what != GP_EXTENT_SEGMENT)
        api_extent(arg, piece, GPUPROF_BLOCK);
}

GP_EXPORT int64_t gpuprof_walk(int device, struct gpuprof_piece *pieces, uint64_t count)
{
    struct gp_api_walk walk = {.pieces = pieces, .room = pieces ? count : 0};
    int saved_errno;
    unsigned index = device == GPUPROF_HOST ? GP_WIRE_HOST : (unsigned)device;
    if ((device != GPUPROF_HOST && index >= GP_WIRE_GPUS) || !gp_session_api_enter(&saved_errno))
        return -1;
    bool known = gp_tap_known(index);
    if (known)
        gp_extents_walk(index, &walk, api_visit, NULL);
    gp_session_api_leave(saved_errno);
    return known ? (int64_t)walk.count : -1;
}
