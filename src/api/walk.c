/* SPDX-License-Identifier: MIT
 *
 * walk.c: gpuprof_walk: the memory of a device piece by piece, into the caller's array.  Writes there under the locks
 * of the cache and of the pointer map, and so calls nothing that could wait for somebody who waits for them.
 */
#include "account/tap.h"
#include "api/api.h"
#include "base/compiler.h"
#include "cache/cache.h"
#include "shim/shim.h"
#include <gpuprof/gpuprof.h>

_Static_assert(sizeof(struct gpuprof_piece) == 56, "gpuprof.h");
_Static_assert(GP_CACHE_LIVE == GPUPROF_LIVE && GP_CACHE_WAITING == GPUPROF_WAITING && GP_CACHE_IDLE == GPUPROF_IDLE &&
                   GP_CACHE_UNMAPPED == GPUPROF_UNMAPPED,
               "gpuprof.h");

struct gp_api_walk {
    struct gpuprof_piece *pieces;
    uint64_t room, count;
    uint64_t pool; /* of the segment whose blocks come */
};

static void gp_api_piece(struct gp_api_walk *walk, const struct gpuprof_piece *piece)
{
    if (walk->count < walk->room)
        walk->pieces[walk->count] = *piece;
    walk->count++;
}

static bool gp_api_segment(void *arg, const struct gp_cache_segment *segment)
{
    struct gp_api_walk *walk = arg;
    walk->pool = segment->pool;
    gp_api_piece(walk, &(struct gpuprof_piece){
                           .address = segment->address,
                           .bytes = segment->bytes,
                           .stream = segment->stream == GP_STREAM_ANY ? 0 : segment->stream,
                           .pool = segment->pool,
                           .what = GPUPROF_SEGMENT,
                           .kind = GP_KIND_LINEAR,
                           .flags = GPUPROF_OURS | (segment->growable ? GPUPROF_GROWABLE : 0u) |
                                    (segment->small ? GPUPROF_SMALL : 0u),
                       });
    return true;
}

static bool gp_api_block(void *arg, const struct gp_cache_block *block)
{
    struct gp_api_walk *walk = arg;
    gp_api_piece(walk, &(struct gpuprof_piece){
                           .address = block->address,
                           .bytes = block->bytes,
                           .requested_bytes = block->state == GP_CACHE_LIVE ? block->requested_bytes : 0,
                           .stream = block->stream == GP_STREAM_ANY ? 0 : block->stream,
                           .pool = walk->pool,
                           .what = GPUPROF_BLOCK,
                           .state = block->state,
                           .kind = GP_KIND_LINEAR,
                       });
    return true;
}

static void gp_api_own(void *arg, const struct gp_tap_block *block)
{
    struct gpuprof_piece piece = {
        .address = block->address, .bytes = block->bytes, .what = GPUPROF_SEGMENT, .kind = block->kind};
    gp_api_piece(arg, &piece);
    piece.what = GPUPROF_BLOCK;
    piece.state = GPUPROF_LIVE;
    piece.bytes = block->live_bytes;
    piece.requested_bytes = block->live_bytes < block->requested_bytes ? block->live_bytes : block->requested_bytes;
    if (piece.bytes)
        gp_api_piece(arg, &piece);
    piece.state = GPUPROF_IDLE;
    piece.address += block->live_bytes;
    piece.bytes = block->bytes - block->live_bytes;
    piece.requested_bytes = 0;
    if (piece.bytes)
        gp_api_piece(arg, &piece);
}

GP_EXPORT int64_t gpuprof_walk(int device, struct gpuprof_piece *pieces, uint64_t count)
{
    struct gp_api_walk walk = {.pieces = pieces, .room = pieces ? count : 0};
    int saved_errno;
    unsigned index = device == GPUPROF_HOST ? GP_WIRE_HOST : (unsigned)device;
    if ((device != GPUPROF_HOST && index >= GP_WIRE_GPUS) || !gp_api_enter(&saved_errno))
        return -1;
    bool known = gp_tap_known(index);
    if (known) {
        gp_shim_walk(device, &walk, gp_api_segment, gp_api_block);
        gp_tap_blocks(index, &walk, gp_api_own);
    }
    gp_api_leave(saved_errno);
    return known ? (int64_t)walk.count : -1;
}
