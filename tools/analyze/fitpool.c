/* SPDX-License-Identifier: MIT
 * fitpool.c: the model of a stream-ordered pool behind cudaMallocAsync; see fit.h.  Called by fit.c.
 *
 * The driver gives a pool chunks of 32 MiB, as users report, or what the request needs if there is less left, and takes
 * back chunks that are idle as a whole: when its own memory is short, and when work is waited for.  In a chunk a request
 * gets the smallest piece that is large enough; idle neighbours become one piece when no piece is.  None of it is
 * documented. */
#include <analyze/fit.h>

#include <read/recording/recording.h>
#include <stdlib.h>
#include <string.h>

#define GP_FIT_CHUNK   (32ull << 20)
#define GP_FIT_STEP    512u
#define GP_FIT_BUCKETS 160u /* four for each power of two */
#define GP_FIT_TRIED   64u  /* pieces of a bucket that are looked at */

/* A chunk is the list of its pieces, by address, without gaps; it is known by its first piece, which has none before. */
struct gp_fit_piece {
    uint32_t steps;
    uint32_t before, after; /* in the chunk; GP_REC_NONE: none */
    uint32_t less, more;    /* free: in its bucket; `more` alone: in the list of unused records */
    bool used, gone;        /* gone: a record without a piece */
};

struct gp_fit_pool {
    struct gp_fit_device *device;
    struct gp_fit_piece *pieces;
    uint32_t count, room, unused; /* unused: the first record without a piece */
    uint32_t heads[GP_FIT_BUCKETS];
    bool apart; /* there may be idle neighbours */
    uint64_t reserved, used;
};

static void pool_reclaim(void *self);

struct gp_fit_pool *gp_fit_pool_new(struct gp_fit_device *device)
{
    struct gp_fit_pool *pool = calloc(1, sizeof(*pool));
    if (!pool)
        return NULL;
    pool->device = device;
    pool->unused = GP_REC_NONE;
    memset(pool->heads, 0xff, sizeof(pool->heads)); /* GP_REC_NONE */
    device->short_of = pool_reclaim;
    device->short_arg = pool;
    return pool;
}

void gp_fit_pool_free(struct gp_fit_pool *pool)
{
    if (!pool)
        return;
    pool->device->short_of = NULL;
    free(pool->pieces);
    free(pool);
}

static unsigned pool_bucket(uint32_t steps)
{
    unsigned power = 31u - (unsigned)__builtin_clz(steps);
    unsigned quarter = power >= 2 ? steps >> (power - 2) & 3 : steps << (2 - power) & 3;
    return power * 4 + quarter;
}

static void pool_list(struct gp_fit_pool *pool, uint32_t number)
{
    struct gp_fit_piece *piece = &pool->pieces[number];
    uint32_t *head = &pool->heads[pool_bucket(piece->steps)];
    piece->less = GP_REC_NONE;
    piece->more = *head;
    if (*head != GP_REC_NONE)
        pool->pieces[*head].less = number;
    *head = number;
}

static void pool_unlist(struct gp_fit_pool *pool, uint32_t number)
{
    const struct gp_fit_piece *piece = &pool->pieces[number];
    if (piece->less != GP_REC_NONE)
        pool->pieces[piece->less].more = piece->more;
    else
        pool->heads[pool_bucket(piece->steps)] = piece->more;
    if (piece->more != GP_REC_NONE)
        pool->pieces[piece->more].less = piece->less;
}

/* A record for a piece; GP_REC_NONE: out of memory. */
static uint32_t pool_record(struct gp_fit_pool *pool)
{
    uint32_t number = pool->unused;
    if (number != GP_REC_NONE) {
        pool->unused = pool->pieces[number].more;
        return number;
    }
    if (pool->count == pool->room) {
        uint32_t room = pool->room ? pool->room * 2 : 64;
        struct gp_fit_piece *grown = realloc(pool->pieces, room * sizeof(*grown));
        if (!grown)
            return GP_REC_NONE;
        pool->pieces = grown;
        pool->room = room;
    }
    return pool->count++;
}

static void pool_retire(struct gp_fit_pool *pool, uint32_t number)
{
    pool->pieces[number].gone = true;
    pool->pieces[number].more = pool->unused;
    pool->unused = number;
}

/* The smallest free piece of the first bucket that has one of that size; GP_REC_NONE: none. */
static uint32_t pool_search(const struct gp_fit_pool *pool, uint32_t steps)
{
    uint32_t best = GP_REC_NONE;
    for (unsigned bucket = pool_bucket(steps); bucket < GP_FIT_BUCKETS && best == GP_REC_NONE; bucket++) {
        uint32_t at = pool->heads[bucket];
        for (unsigned i = 0; at != GP_REC_NONE && i < GP_FIT_TRIED; at = pool->pieces[at].more, i++)
            if (pool->pieces[at].steps >= steps &&
                (best == GP_REC_NONE || pool->pieces[at].steps < pool->pieces[best].steps))
                best = at;
    }
    return best;
}

/* A chunk of its step, or of what the request needs. */
static uint32_t pool_grow(struct gp_fit_pool *pool, uint64_t bytes)
{
    uint64_t exact = (bytes + GP_FIT_PAGE - 1) / GP_FIT_PAGE * GP_FIT_PAGE;
    uint64_t size = exact < GP_FIT_CHUNK ? GP_FIT_CHUNK : exact;
    if (!gp_fit_device_charge(pool->device, size) &&
        (size == exact || !gp_fit_device_charge(pool->device, size = exact)))
        return GP_REC_NONE;
    uint32_t number = pool_record(pool);
    if (number == GP_REC_NONE) {
        pool->device->used -= size;
        return number;
    }
    pool->pieces[number] =
        (struct gp_fit_piece){.steps = (uint32_t)(size / GP_FIT_STEP), .before = GP_REC_NONE, .after = GP_REC_NONE};
    pool_list(pool, number);
    pool->reserved += size;
    return number;
}

/* Makes a free piece as large as the request; the rest of it is free. */
static void pool_split(struct gp_fit_pool *pool, uint32_t number, uint32_t steps)
{
    if (pool->pieces[number].steps == steps)
        return;
    uint32_t rest = pool_record(pool); /* may move the pieces */
    if (rest == GP_REC_NONE)
        return; /* the whole piece serves it */
    struct gp_fit_piece *piece = &pool->pieces[number];
    pool->pieces[rest] = (struct gp_fit_piece){.steps = piece->steps - steps, .before = number, .after = piece->after};
    if (piece->after != GP_REC_NONE)
        pool->pieces[piece->after].before = rest;
    piece->after = rest;
    piece->steps = steps;
    pool_list(pool, rest);
}

/* The free piece `number` takes in the free ones behind it. */
static void pool_join(struct gp_fit_pool *pool, uint32_t number)
{
    struct gp_fit_piece *piece = &pool->pieces[number];
    uint32_t next = piece->after;
    if (next == GP_REC_NONE || pool->pieces[next].used)
        return;
    pool_unlist(pool, number);
    for (; next != GP_REC_NONE && !pool->pieces[next].used; next = piece->after) {
        pool_unlist(pool, next);
        piece->steps += pool->pieces[next].steps;
        piece->after = pool->pieces[next].after;
        pool_retire(pool, next);
    }
    if (next != GP_REC_NONE)
        pool->pieces[next].before = number;
    pool_list(pool, number);
}

static void pool_join_all(struct gp_fit_pool *pool)
{
    for (uint32_t i = 0; pool->apart && i < pool->count; i++) {
        const struct gp_fit_piece *piece = &pool->pieces[i];
        bool first = piece->before == GP_REC_NONE || pool->pieces[piece->before].used;
        if (!piece->gone && !piece->used && first)
            pool_join(pool, i);
    }
    pool->apart = false;
}

bool gp_fit_pool_take(struct gp_fit_pool *pool, uint64_t bytes, uint32_t *place)
{
    uint32_t steps = (uint32_t)((bytes + GP_FIT_STEP - 1) / GP_FIT_STEP);
    *place = GP_REC_NONE;
    if (!steps)
        return true;
    uint32_t number = pool_search(pool, steps);
    if (number == GP_REC_NONE && pool->apart) {
        pool_join_all(pool);
        number = pool_search(pool, steps);
    }
    if (number == GP_REC_NONE)
        number = pool_grow(pool, bytes);
    if (number == GP_REC_NONE)
        return false;
    pool_unlist(pool, number);
    pool->pieces[number].used = true;
    pool_split(pool, number, steps);
    pool->used += (uint64_t)pool->pieces[number].steps * GP_FIT_STEP;
    *place = number;
    return true;
}

void gp_fit_pool_give(struct gp_fit_pool *pool, uint32_t place)
{
    if (place == GP_REC_NONE)
        return;
    pool->pieces[place].used = false;
    pool->used -= (uint64_t)pool->pieces[place].steps * GP_FIT_STEP;
    pool->apart = true;
    pool_list(pool, place);
}

static void pool_drop(struct gp_fit_pool *pool, uint32_t first)
{
    uint64_t steps = 0;
    for (uint32_t at = first, next; at != GP_REC_NONE; at = next) {
        next = pool->pieces[at].after;
        steps += pool->pieces[at].steps;
        pool_unlist(pool, at);
        pool_retire(pool, at);
    }
    pool->device->used -= steps * GP_FIT_STEP;
    pool->reserved -= steps * GP_FIT_STEP;
}

static void pool_reclaim(void *self)
{
    struct gp_fit_pool *pool = self;
    for (uint32_t i = 0; pool->used < pool->reserved && i < pool->count; i++) {
        const struct gp_fit_piece *piece = &pool->pieces[i];
        bool idle = !piece->gone && !piece->used && piece->before == GP_REC_NONE;
        for (uint32_t at = piece->after; idle && at != GP_REC_NONE; at = pool->pieces[at].after)
            idle = !pool->pieces[at].used;
        if (idle)
            pool_drop(pool, i);
    }
}

void gp_fit_pool_settle(struct gp_fit_pool *pool)
{
    pool_join_all(pool);
    pool_reclaim(pool);
}

uint64_t gp_fit_pool_idle(const struct gp_fit_pool *pool)
{
    return pool->reserved - (pool->used + GP_FIT_PAGE - 1) / GP_FIT_PAGE * GP_FIT_PAGE;
}
