/* SPDX-License-Identifier: MIT
 *
 * hooks_number.c: handle -> number, read on every accounted call, written when an object appears or
 * dies.
 *
 * Open addressing.  A slot keeps its handle after the object died (number 0) until another handle
 * needs the place, so a search may go on over it.  Writers hold the lock; a reader looks at the
 * slot's turn, the number, the handle, and the turn again:
 *
 *      turn even, and the same before and after, and handle == H  =>  the number read belongs to H
 *
 * because each change of hands raises the turn by two, and it is odd meanwhile ([number.W1] to
 * [number.W3]).  The handle alone would not do: it may come back while a reader is between two
 * looks.
 */
#include "source/hooks_number.h"
#include "account/feed/feed.h"
#include "source/internal.h"
#include <pthread.h>

struct gp_hooks_slot {
    uint64_t x_handle; /* 0: never used */
    uint32_t x_number; /* 0: the handle's object is gone */
    uint32_t x_turn;   /* changes of hands times two; odd: one is under way */
};

/* Contexts: a few per device, and at most GP_WIRE_GPUS devices.  Modules: cuModuleLoad is called
 * once for each of a program's images; 4096 is four times what the largest JIT caches keep loaded.
 * Both stay untouched pages until used. */
#define GP_HOOKS_NUMBERS 4096u

struct gp_hooks_numbers {
    pthread_mutex_t mutex; /* a leaf: nothing is called under it */
    uint32_t x_last;       /* the last number given */
    struct gp_hooks_slot slots[GP_HOOKS_NUMBERS];
};

struct gp_hooks_numbers gp_hooks_contexts = {.mutex = PTHREAD_MUTEX_INITIALIZER};
struct gp_hooks_numbers gp_hooks_modules = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static uint32_t hooks_number_at(uint64_t handle)
{
    return (uint32_t)((handle * 0x9e3779b97f4a7c15ull) >> 52); /* top 12 bits: GP_HOOKS_NUMBERS */
}

static struct gp_hooks_slot *hooks_number_find(struct gp_hooks_numbers *numbers, uint64_t handle)
{
    for (uint32_t i = 0, at = hooks_number_at(handle); i < GP_HOOKS_NUMBERS; i++, at++) {
        struct gp_hooks_slot *slot = &numbers->slots[at % GP_HOOKS_NUMBERS];
        uint64_t there = __atomic_load_n(&slot->x_handle, __ATOMIC_RELAXED); /* a reader looks again */
        if (there == handle)
            return slot;
        if (there == 0)
            return NULL;
    }
    return NULL;
}

uint32_t gp_hooks_number_of(struct gp_hooks_numbers *numbers, uint64_t handle)
{
    struct gp_hooks_slot *slot = handle ? hooks_number_find(numbers, handle) : NULL;
    if (!slot)
        return 0;
    /* [number.A1] acquire: pairs with [number.W2], so the number and the handle are of this turn or later. */
    uint32_t turn = __atomic_load_n(&slot->x_turn, __ATOMIC_ACQUIRE);
    /* [number.A2] acquire, twice: of a later turn they pair with [number.W3] and [number.W1], and the
     * last look sees that turn. */
    uint32_t number = __atomic_load_n(&slot->x_number, __ATOMIC_ACQUIRE);
    bool same = __atomic_load_n(&slot->x_handle, __ATOMIC_ACQUIRE) == handle && turn % 2 == 0 &&
                __atomic_load_n(&slot->x_turn, __ATOMIC_RELAXED) == turn;
    return same ? number : 0; /* else it was not there at some moment of this call */
}

/* The handle's slot, or one that it may take; NULL: full.  Under the lock. */
static struct gp_hooks_slot *hooks_number_place(struct gp_hooks_numbers *numbers, uint64_t handle)
{
    struct gp_hooks_slot *slot = hooks_number_find(numbers, handle);
    for (uint32_t i = 0, at = hooks_number_at(handle); !slot && i < GP_HOOKS_NUMBERS; i++, at++)
        if (__atomic_load_n(&numbers->slots[at % GP_HOOKS_NUMBERS].x_number, __ATOMIC_RELAXED) == 0)
            slot = &numbers->slots[at % GP_HOOKS_NUMBERS];
    return slot;
}

static void hooks_number_set(struct gp_hooks_slot *slot, uint64_t handle, uint32_t number)
{
    if (__atomic_load_n(&slot->x_handle, __ATOMIC_RELAXED) != handle) { /* its number is 0 */
        uint32_t turn = __atomic_load_n(&slot->x_turn, __ATOMIC_RELAXED);
        __atomic_store_n(&slot->x_turn, turn + 1, __ATOMIC_RELAXED);
        /* [number.W1] release: the odd turn; pairs with [number.A2]. */
        __atomic_store_n(&slot->x_handle, handle, __ATOMIC_RELEASE);
        /* [number.W2] release: the handle; pairs with [number.A1]. */
        __atomic_store_n(&slot->x_turn, turn + 2, __ATOMIC_RELEASE);
    }
    /* [number.W3] release: pairs with [number.A2]. */
    __atomic_store_n(&slot->x_number, number, __ATOMIC_RELEASE);
}

void gp_hooks_number_after(struct gp_hooks_numbers *numbers, uint32_t number)
{
    uint32_t last = __atomic_load_n(&numbers->x_last, __ATOMIC_RELAXED);
    while (number > last &&
           !__atomic_compare_exchange_n(&numbers->x_last, &last, number, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

bool gp_hooks_number_put(struct gp_hooks_numbers *numbers, uint64_t handle, uint32_t number)
{
    pthread_mutex_lock(&numbers->mutex);
    struct gp_hooks_slot *slot = hooks_number_place(numbers, handle);
    if (slot)
        hooks_number_set(slot, handle, number);
    gp_hooks_number_after(numbers, number);
    pthread_mutex_unlock(&numbers->mutex);
    if (!slot)
        gp_feed_lost(GP_LOST_MAP);
    return slot != NULL;
}

uint32_t gp_hooks_number_learn(struct gp_hooks_numbers *numbers, uint64_t handle)
{
    uint32_t number = gp_hooks_number_of(numbers, handle);
    if (number || !handle)
        return number;
    pthread_mutex_lock(&numbers->mutex);
    struct gp_hooks_slot *slot = hooks_number_place(numbers, handle);
    if (slot && __atomic_load_n(&slot->x_handle, __ATOMIC_RELAXED) == handle)
        number = __atomic_load_n(&slot->x_number, __ATOMIC_RELAXED); /* another thread was faster */
    if (slot && !number)
        hooks_number_set(slot, handle, number = __atomic_add_fetch(&numbers->x_last, 1, __ATOMIC_RELAXED));
    pthread_mutex_unlock(&numbers->mutex);
    if (!slot)
        gp_feed_lost(GP_LOST_MAP);
    return number;
}

uint32_t gp_hooks_number_new(struct gp_hooks_numbers *numbers, uint64_t handle)
{
    uint32_t number = __atomic_add_fetch(&numbers->x_last, 1, __ATOMIC_RELAXED);
    return gp_hooks_number_put(numbers, handle, number) ? number : 0;
}

void gp_hooks_number_drop(struct gp_hooks_numbers *numbers, uint64_t handle, uint32_t number)
{
    pthread_mutex_lock(&numbers->mutex);
    struct gp_hooks_slot *slot = handle ? hooks_number_find(numbers, handle) : NULL;
    if (slot && __atomic_load_n(&slot->x_number, __ATOMIC_RELAXED) == number)
        __atomic_store_n(&slot->x_number, 0, __ATOMIC_RELEASE); /* [number.W3] */
    pthread_mutex_unlock(&numbers->mutex);
}

uint32_t gp_hooks_number_take(struct gp_hooks_numbers *numbers, uint64_t handle)
{
    uint32_t number = 0;
    pthread_mutex_lock(&numbers->mutex);
    struct gp_hooks_slot *slot = handle ? hooks_number_find(numbers, handle) : NULL;
    if (slot) {
        number = __atomic_load_n(&slot->x_number, __ATOMIC_RELAXED);
        __atomic_store_n(&slot->x_number, 0, __ATOMIC_RELEASE); /* [number.W3] */
    }
    pthread_mutex_unlock(&numbers->mutex);
    return number;
}
