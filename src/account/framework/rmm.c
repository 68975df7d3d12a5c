/* SPDX-License-Identifier: MIT
 *
 * rmm.c: the pools of RMM, the memory library of RAPIDS. Since 26.04 they are compiled into
 * librmm.so, and the code of a pool that templates put into its user's object calls three functions
 * of it: one takes memory for the pool, one cuts a piece out of a free block, one takes it back.
 * The calls are led through the functions here. They come with the pool's lock held, those of an
 * arena without it.
 *
 * These functions are private to RMM, and their names do not tell how they return their results. So
 * each result is compared with the arguments: a pool's piece is the front of the block that it was
 * cut out of. A result that does not fit ends this for good: the pools are then ordinary
 * allocations, as they are without these functions.
 *
 * RMM's functions may throw; nothing is held here when they are called.
 */
#include "account/feed/door.h"
#include "account/framework/internal.h"
#include "base/compiler.h"
#include "base/kept.h"
#include "base/thread.h"
#include <errno.h>
#include <string.h>

#define RMM_ALIGN 256u /* of all pieces */

enum rmm_function {
    RMM_GROW,
    RMM_GROW_OLD,
    RMM_CUT,
    RMM_BACK,
    RMM_CUT_FIXED,
    RMM_BACK_FIXED,
    RMM_ALLOC,
    RMM_FREE,
    RMM_FUNCTIONS
};

/* The arguments and the result of these functions, whatever they are in C++: a result of more than
 * 16 bytes is written to the place to which the first argument points, and the function returns
 * that address. */
struct rmm_result {
    uint64_t low, high;
};
typedef struct rmm_result rmm_fn(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e);

static rmm_fn rmm_grow, rmm_grow_old, rmm_cut, rmm_back, rmm_cut_fixed, rmm_back_fixed, rmm_alloc, rmm_free;

#define RMM_POOL  "_ZN3rmm#2mr6detail25pool_memory_resource_impl"
#define RMM_FIXED "_ZN3rmm#2mr6detail31fixed_size_memory_resource_impl"
#define RMM_ARENA "_ZN3rmm#2mr6detail26arena_memory_resource_impl"
static const char *const forms[RMM_FUNCTIONS] = {
    [RMM_GROW] = RMM_POOL "19block_from_upstreamEmN4cuda3__*10stream_refE",
    [RMM_GROW_OLD] = RMM_POOL "19block_from_upstreamEmNS_16cuda_stream_viewE", /* before 26.10 */
    [RMM_CUT] = RMM_POOL "19allocate_from_blockERKNS*_5blockEm",
    [RMM_BACK] = RMM_POOL "10free_blockEPvm",
    [RMM_CUT_FIXED] = RMM_FIXED "19allocate_from_blockERKNS*_10block_baseEm",
    [RMM_BACK_FIXED] = RMM_FIXED "10free_blockEPvm",
    [RMM_ALLOC] = RMM_ARENA "8allocateEN4cuda3__*10stream_refEmm",
    [RMM_FREE] = RMM_ARENA "10deallocateEN4cuda3__*10stream_refEPvmm",
};
static char names[RMM_FUNCTIONS][GP_DOOR_NAME];
#define RMM_IMPORT(_function, _replacement)                                                                            \
    [_function] = {.name = names[_function],                                                                           \
                   .replacement = (void *)(_replacement),                                                              \
                   .definer = "librmm",                                                                                \
                   .importer = "librmm",                                                                               \
                   .user = "librmm"}
static struct gp_slot_import imports[RMM_FUNCTIONS] = {
    RMM_IMPORT(RMM_GROW, rmm_grow),
    RMM_IMPORT(RMM_GROW_OLD, rmm_grow_old),
    RMM_IMPORT(RMM_CUT, rmm_cut),
    RMM_IMPORT(RMM_BACK, rmm_back),
    RMM_IMPORT(RMM_CUT_FIXED, rmm_cut_fixed),
    RMM_IMPORT(RMM_BACK_FIXED, rmm_back_fixed),
    RMM_IMPORT(RMM_ALLOC, rmm_alloc),
    RMM_IMPORT(RMM_FREE, rmm_free),
};
/* A thread that has just left our code goes on to the original. */
GP_KEEP(names);
GP_KEEP(imports);

static struct gp_door_library rmm = {.door = GP_DOOR_RMM, .name = "RMM", .owner = "rmm", .file = "librmm.so"};

static rmm_fn *original(enum rmm_function function)
{
    return (rmm_fn *)__atomic_load_n(&imports[function].x_original, __ATOMIC_RELAXED);
}

static uint64_t word_at(uint64_t address)
{
    uint64_t word;
    memcpy(&word, (const void *)(uintptr_t)address, sizeof(word));
    return word;
}

/* ---- what RMM calls ------------------------------------------------------------------------------------------------ */

/* (result, pool, bytes, stream): result: address, bytes, whether it is the first of the driver's. */
static void rmm_grow_seen(const uint64_t args[4], struct rmm_result result)
{
    if (result.low == args[0] && args[2] && word_at(args[0] + 8) == args[2]) /* else its first piece tells */
        gp_feed_pool_grew(GP_DOOR_RMM, word_at(args[0]), args[2]);
}

/* (result, pool, block, bytes), or in registers (pool, block, bytes). */
static void rmm_cut_seen(const uint64_t args[4], struct rmm_result result)
{
    bool memory = result.low == args[0];
    uint64_t pool = args[memory], block = args[1 + memory], bytes = args[2 + memory];
    uint64_t address = memory ? word_at(args[0]) : result.low;
    if (!bytes || bytes % RMM_ALIGN || address != word_at(block))
        gp_door_shut(&rmm, "this version of RMM is not known");
    else
        gp_door_piece(&rmm, pool, address, bytes);
}

/* (result, pool, address, bytes), or in registers (pool, address, bytes). */
static void rmm_back_seen(const uint64_t args[4], struct rmm_result result)
{
    bool memory = result.low == args[0];
    uint64_t address = args[1 + memory];
    if (address != (memory ? word_at(args[0]) : result.low))
        gp_door_shut(&rmm, "this version of RMM is not known");
    else
        gp_door_piece_back(&rmm, args[memory], address);
}

static struct rmm_result rmm_pass(enum rmm_function function, void (*seen)(const uint64_t[4], struct rmm_result),
                                  const uint64_t args[4], uint64_t e)
{
    struct rmm_result result = original(function)(args[0], args[1], args[2], args[3], e);
    int saved_errno = errno;
    if (!gp_door_enter(&rmm))
        return result;
    seen(args, result);
    gp_thread_leave();
    errno = saved_errno;
    return result;
}

static struct rmm_result rmm_grow(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
    return rmm_pass(RMM_GROW, rmm_grow_seen, (const uint64_t[]){a, b, c, d}, e);
}

static struct rmm_result rmm_grow_old(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
    return rmm_pass(RMM_GROW_OLD, rmm_grow_seen, (const uint64_t[]){a, b, c, d}, e);
}

static struct rmm_result rmm_cut(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
    return rmm_pass(RMM_CUT, rmm_cut_seen, (const uint64_t[]){a, b, c, d}, e);
}

static struct rmm_result rmm_back(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
    return rmm_pass(RMM_BACK, rmm_back_seen, (const uint64_t[]){a, b, c, d}, e);
}

static struct rmm_result rmm_cut_fixed(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
    return rmm_pass(RMM_CUT_FIXED, rmm_cut_seen, (const uint64_t[]){a, b, c, d}, e);
}

static struct rmm_result rmm_back_fixed(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
    return rmm_pass(RMM_BACK_FIXED, rmm_back_seen, (const uint64_t[]){a, b, c, d}, e);
}

/* (arena, stream, bytes, alignment) */
static void rmm_alloc_seen(const uint64_t args[4], struct rmm_result result)
{
    if (result.low && args[2] && args[2] <= UINT64_MAX - RMM_ALIGN)
        gp_door_piece(&rmm, args[0], result.low, (args[2] + RMM_ALIGN - 1) / RMM_ALIGN * RMM_ALIGN);
}

static struct rmm_result rmm_alloc(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
    return rmm_pass(RMM_ALLOC, rmm_alloc_seen, (const uint64_t[]){a, b, c, d}, e);
}

/* (arena, stream, address, bytes, alignment). Before the arena may hand it out again. */
static struct rmm_result rmm_free(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
    int saved_errno = errno;
    if (c && d && gp_door_enter(&rmm)) {
        gp_door_piece_back(&rmm, a, c);
        gp_thread_leave();
        errno = saved_errno;
    }
    return original(RMM_FREE)(a, b, c, d, e);
}

/* ---- start --------------------------------------------------------------------------------------------------------- */

/* NULL: all is well. */
static const char *rmm_why_not(unsigned objects)
{
#ifndef __x86_64__
    (void)objects;
    return "not known on this processor";
#endif
    uint32_t refused = 0;
    for (unsigned i = 0; i < RMM_FUNCTIONS; i++)
        refused += imports[i].refused;
    if (objects > 1)
        return "two copies of librmm.so are loaded";
    if (refused)
        return "its calls cannot be changed";
    for (unsigned i = RMM_CUT; i < RMM_FUNCTIONS; i++)
        if (!names[i][0])
            return "this version of RMM is not known";
    return NULL;
}

/* Its names are known: a look at the slots, which also tells of a second copy, is enough. */
static bool rmm_again(const struct gp_slot_caller *caller)
{
    uint32_t early = 0, copies = 0;
    if (!gp_door_is_open(&rmm))
        return true;
    gp_slots_replace(imports, RMM_FUNCTIONS, caller);
    for (unsigned i = 0; i < RMM_FUNCTIONS; i++) {
        early += imports[i].early;
        copies = imports[i].copies > copies ? imports[i].copies : copies;
    }
    if (copies > 1)
        gp_door_shut(&rmm, "two copies of librmm.so are loaded");
    return copies > 1 || !early;
}

bool gp_rmm_find(const struct gp_slot_caller *caller)
{
    if (rmm.told)
        return rmm_again(caller);
    unsigned objects = gp_door_names("librmm", forms, RMM_FUNCTIONS, names);
    if (!objects)
        return true; /* not loaded, or from before 26.04, when each program had its pools inside */
    if (objects == 1)
        gp_slots_replace(imports, RMM_FUNCTIONS, caller);
    if (!gp_door_open(&rmm, rmm_why_not(objects))) {
        gp_slots_restore(imports, RMM_FUNCTIONS);
        return true;
    }
    return rmm_again(caller);
}

void gp_rmm_restore(void)
{
    __atomic_store_n(&rmm.x_open, 0, __ATOMIC_RELAXED);
    gp_slots_restore(imports, RMM_FUNCTIONS);
}
