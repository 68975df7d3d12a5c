/* SPDX-License-Identifier: MIT
 * piece.c: see piece.h.  A hash table over one reserved mapping: pages that are not used cost nothing. */
#include "allocator/piece.h"
#include "allocator/home.h"
#include <sys/mman.h>

/* 2 MiB pages of a 1 TB machine would be half as many. */
#define GP_PIECES  (1u << 20)
#define GP_BUCKETS 4096

static struct gp_piece *gp_pieces; /* under gp_home_lock, all of this */
static uint32_t gp_piece_buckets[GP_BUCKETS];
static uint32_t gp_piece_free, gp_piece_high;

static uint32_t *gp_piece_bucket(enum gp_piece_kind kind, uint64_t key)
{
    /* Fibonacci hashing: the multiplier spreads page numbers over the high bits. */
    return &gp_piece_buckets[((key + kind) * 0x9e3779b97f4a7c15ull) >> 52];
}

static bool gp_piece_room(void)
{
    if (gp_pieces)
        return gp_piece_free || gp_piece_high < GP_PIECES;
    void *at = mmap(NULL, GP_PIECES * sizeof(struct gp_piece), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return false;
    gp_pieces = at;
    return true;
}

bool gp_piece_add(enum gp_piece_kind kind, unsigned home, uint64_t key, uint64_t bytes)
{
    gp_lock_take(&gp_home_lock);
    bool room = gp_piece_room();
    if (room) {
        uint32_t index = gp_piece_free ? gp_piece_free : ++gp_piece_high, *bucket = gp_piece_bucket(kind, key);
        struct gp_piece *piece = &gp_pieces[index - 1];
        if (gp_piece_free)
            gp_piece_free = piece->next;
        *piece = (struct gp_piece){key, bytes, *bucket, (uint8_t)kind, (uint8_t)home};
        *bucket = index;
    }
    gp_lock_give(&gp_home_lock);
    return room;
}

uint64_t gp_piece_take(enum gp_piece_kind kind, uint64_t key)
{
    uint64_t bytes = 0;
    gp_lock_take(&gp_home_lock);
    for (uint32_t *at = gp_piece_bucket(kind, key); *at; at = &gp_pieces[*at - 1].next) {
        struct gp_piece *piece = &gp_pieces[*at - 1];
        if (piece->kind != kind || piece->key != key)
            continue;
        uint32_t index = *at;
        bytes = piece->bytes;
        *at = piece->next;
        piece->kind = GP_PIECE_NONE;
        piece->next = gp_piece_free;
        gp_piece_free = index;
        break;
    }
    gp_lock_give(&gp_home_lock);
    return bytes;
}

uint64_t gp_piece_find(enum gp_piece_kind kind, uint64_t key)
{
    uint64_t bytes = 0;
    gp_lock_take(&gp_home_lock);
    for (uint32_t at = *gp_piece_bucket(kind, key); at && !bytes; at = gp_pieces[at - 1].next)
        if (gp_pieces[at - 1].kind == kind && gp_pieces[at - 1].key == key)
            bytes = gp_pieces[at - 1].bytes;
    gp_lock_give(&gp_home_lock);
    return bytes;
}

bool gp_piece_next(enum gp_piece_kind kind, unsigned home, unsigned *at, struct gp_piece *out)
{
    bool found = false;
    gp_lock_take(&gp_home_lock);
    for (; !found && *at < gp_piece_high; (*at)++) {
        *out = gp_pieces[*at];
        found = out->kind == kind && out->home == home;
    }
    gp_lock_give(&gp_home_lock);
    return found;
}
