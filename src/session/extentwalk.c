/* SPDX-License-Identifier: MIT
 * extentwalk.c: walks every segment and block of one device or of all: first those of our caches,
 * then the program's own allocations, then those of frameworks (extents.h). */
#include "account/tap.h"
#include "allocator/allocator.h"
#include "allocator/cache/cache.h"
#include "base/compiler.h"
#include "session/extentnest.h"
#include "session/extents.h"
#include <gpuprof/gpuprof.h>

_Static_assert(GP_CACHE_LIVE == GPUPROF_LIVE && GP_CACHE_WAITING == GPUPROF_WAITING && GP_CACHE_IDLE == GPUPROF_IDLE &&
                   GP_CACHE_UNMAPPED == GPUPROF_UNMAPPED,
               "gpuprof.h");
_Static_assert(GP_EXTENT_SEGMENT == GPUPROF_SEGMENT && GP_EXTENT_BLOCK == GPUPROF_BLOCK, "gpuprof.h");

/* Each block of the tap may become two extents. */
_Static_assert(GP_EXTENTS_REST >= 2 * GP_TAP_REST && GP_EXTENTS_REST >= 2 * GP_CACHE_REST, "extents.h");

struct gp_extents_walking {
    void *arg;
    gp_extent_fn *visit;
    void (*rest)(void *arg);
    unsigned index;
    uint64_t pool; /* of the segment whose blocks follow */
    struct gp_nest nest;
};

/* The cache's marks for "any" and "gone" lie at the end of the range, where no stream of a driver
 * lies. */
static uint64_t extent_stream(uint64_t stream)
{
    return stream > INT64_MAX ? 0 : stream;
}

static bool extents_segment(void *arg, const struct gp_cache_segment *segment)
{
    struct gp_extents_walking *walk = arg;
    walk->pool = segment->pool;
    walk->visit(walk->arg, &(struct gp_wire_extent){
                               .address = segment->address,
                               .bytes = segment->bytes,
                               .stream = extent_stream(segment->stream),
                               .pool = segment->pool,
                               .what = GP_EXTENT_SEGMENT,
                               .kind = GP_KIND_LINEAR,
                               .flags = (uint8_t)(GPUPROF_OURS | (segment->growable ? GPUPROF_GROWABLE : 0u) |
                                                  (segment->small ? GPUPROF_SMALL : 0u)),
                               .device = walk->index,
                           });
    return true;
}

static bool extents_block(void *arg, const struct gp_cache_block *block)
{
    const struct gp_extents_walking *walk = arg;
    walk->visit(walk->arg, &(struct gp_wire_extent){
                               .address = block->address,
                               .bytes = block->bytes,
                               .requested_bytes = block->state == GP_CACHE_LIVE ? block->requested_bytes : 0,
                               .stream = extent_stream(block->stream),
                               .pool = walk->pool,
                               .time_ns = block->time_ns,
                               .site = (uint32_t)block->tag, /* allocator/served.c */
                               .what = GP_EXTENT_BLOCK,
                               .state = (uint8_t)block->state,
                               .kind = GP_KIND_LINEAR,
                               .device = walk->index,
                           });
    return true;
}

/* A segment with one block that is not live. */
static void extents_without(const struct gp_extents_walking *walk, struct gp_wire_extent piece, uint8_t state)
{
    piece.what = GP_EXTENT_SEGMENT;
    piece.requested_bytes = 0;
    walk->visit(walk->arg, &piece);
    piece.what = GP_EXTENT_BLOCK;
    piece.state = state;
    piece.flags = 0;
    walk->visit(walk->arg, &piece);
}

/* Segments of up to 2 MiB are of PyTorch's small pool (account.c). */
static void extents_nested(struct gp_nest *nest, const struct gp_tap_block *block)
{
    const uint64_t small_segment = 2u << 20;
    unsigned flags = (block->mapped ? GPUPROF_GROWABLE : 0u) | (block->bytes <= small_segment ? GPUPROF_SMALL : 0u);
    unsigned before = block->before ? GP_EXTENT_BEFORE : 0u;
    gp_extent_nest_add(nest, &(struct gp_wire_extent){
                                 .address = block->address,
                                 .bytes = block->bytes,
                                 .requested_bytes = block->inside ? block->requested_bytes : 0,
                                 .time_ns = block->time_ns,
                                 .site = block->site,
                                 .what = block->inside ? GP_EXTENT_BLOCK : GP_EXTENT_SEGMENT,
                                 .state = GPUPROF_LIVE,
                                 .kind = GP_KIND_LINEAR,
                                 .flags = (uint8_t)(before | (block->inside ? 0 : flags)),
                                 .device = block->device,
                             });
}

static void extents_own(void *arg, const struct gp_tap_block *block)
{
    struct gp_extents_walking *walk = arg;
    if (block->inside || (block->segment && (block->kind == GP_KIND_LINEAR || block->mapped))) {
        extents_nested(&walk->nest, block);
        return;
    }
    bool range = block->kind == GP_KIND_VIRTUAL;
    const struct gp_wire_extent piece = {
        .address = block->address,
        .bytes = block->bytes,
        .requested_bytes = block->requested_bytes < block->bytes ? block->requested_bytes : block->bytes,
        .time_ns = block->time_ns,
        .site = block->site,
        .what = GP_EXTENT_WHOLE,
        .state = GPUPROF_LIVE,
        .kind = block->kind,
        .flags = range || block->mapped ? GPUPROF_GROWABLE : 0,
        .device = block->device,
    };
    if (piece.bytes && (range || (block->kind == GP_KIND_VMM && !block->mapped)))
        extents_without(walk, piece, range ? GPUPROF_UNMAPPED : GPUPROF_IDLE);
    else if (piece.bytes) /* sparse arrays own no memory */
        walk->visit(walk->arg, &piece);
}

static void extents_rest(void *arg)
{
    struct gp_extents_walking *walk = arg;
    gp_extent_nest_rest(&walk->nest);
    if (walk->rest)
        walk->rest(walk->arg);
}

void gp_extents_walk(unsigned index, void *arg, gp_extent_fn *visit, void (*rest)(void *arg))
{
    struct gp_extents_walking walk = {.arg = arg, .visit = visit, .rest = rest};
    for (walk.index = 0; walk.index < GP_WIRE_GPUS; walk.index++)
        if (index == GP_EXTENTS_EVERY || index == walk.index)
            gp_allocator_iterate((int)walk.index, &walk, extents_segment, extents_block, extents_rest);
    gp_extent_nest_rest(&walk.nest);
    gp_tap_blocks(index == GP_EXTENTS_EVERY ? GP_TAP_EVERY : index, &walk, extents_own, extents_rest);
    gp_extent_nest_end(&walk.nest, arg, visit, rest);
}
