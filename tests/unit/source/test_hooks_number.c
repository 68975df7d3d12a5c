/* SPDX-License-Identifier: MIT
 *
 * hooks_number.c: numbers for handles that come again: never the same twice, and never another handle's, whoever looks
 * while slots change hands.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <source/hooks_number.h>
#include <stdint.h>

#include "source/internal.h"

TestSuite(hooks_number, .timeout = 60);

Test(hooks_number, a_handle_that_comes_again_gets_another_number)
{
    struct gp_hooks_numbers *numbers = &gp_hooks_contexts;
    uint32_t first = gp_hooks_number_learn(numbers, 0x1000), second;

    cr_assert_neq(first, 0);
    cr_expect_eq(gp_hooks_number_learn(numbers, 0x1000), first);
    cr_expect_eq(gp_hooks_number_of(numbers, 0x1000), first);
    cr_expect_eq(gp_hooks_number_of(numbers, 0x2000), 0);
    cr_expect_eq(gp_hooks_number_take(numbers, 0x1000), first);
    cr_expect_eq(gp_hooks_number_take(numbers, 0x1000), 0, "taken twice");
    cr_expect_eq(gp_hooks_number_of(numbers, 0x1000), 0);
    second = gp_hooks_number_new(numbers, 0x1000);
    cr_expect_gt(second, first);
    cr_expect_gt(gp_hooks_number_new(numbers, 0x1000), second, "a new object at a handle whose end was not seen");
    cr_expect(gp_hooks_number_put(numbers, 0x1000, first));
    cr_expect_eq(gp_hooks_number_of(numbers, 0x1000), first);
    cr_expect_eq(gp_hooks_number_learn(numbers, 0), 0, "no handle");
    cr_expect_eq(gp_hooks_number_take(numbers, 0), 0);
}

/* Forty tables full of handles, one after the other: the places of the dead are used again. */
Test(hooks_number, dead_handles_make_room)
{
    uint64_t handle;
    uint32_t last = 0;

    for (handle = 1; handle <= 160000; handle++) {
        uint32_t number = gp_hooks_number_new(&gp_hooks_modules, handle * 16);
        cr_assert_gt(number, last, "handle %lu", (unsigned long)handle);
        last = number;
        cr_assert_eq(gp_hooks_number_of(&gp_hooks_modules, handle * 16), number);
        if (handle > 3000) {
            cr_assert_neq(gp_hooks_number_take(&gp_hooks_modules, (handle - 3000) * 16), 0);
        }
    }
    for (handle = 160000 - 2999; handle <= 160000; handle++) {
        cr_assert_neq(gp_hooks_number_of(&gp_hooks_modules, handle * 16), 0);
    }
}

#define READERS 3
#define ROUNDS  1000000u
#define HANDLES                                                                                                        \
    32 /* that all want the same place; 8 of them are alive at a time, so places change hands all the time */

static uint64_t handles[HANDLES];
static uint32_t stop, wrong;

/* Handle i has the number i + 1, or none. */
static void *number_read(void *arg)
{
    uint64_t at = (uint64_t)(uintptr_t)arg;

    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        uint32_t i = at++ % HANDLES, number = gp_hooks_number_of(&gp_hooks_contexts, handles[i]);
        if (number != 0 && number != i + 1) {
            __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
        }
    }
    return NULL;
}

Test(hooks_number, readers_never_see_another_handles_number)
{
    pthread_t threads[READERS];
    uint64_t i, handle, count = 0;

    for (handle = 16; count < HANDLES; handle += 16) {
        if ((handle * 0x9e3779b97f4a7c15ull) >> 52 == 5) { /* the table's own hash */
            handles[count++] = handle;
        }
    }
    for (i = 0; i < READERS; i++) {
        pthread_create(&threads[i], NULL, number_read, (void *)(uintptr_t)i);
    }
    for (i = 0; i < ROUNDS; i++) {
        gp_hooks_number_take(&gp_hooks_contexts, handles[(i + HANDLES - 8) % HANDLES]);
        cr_assert(gp_hooks_number_put(&gp_hooks_contexts, handles[i % HANDLES], (uint32_t)(i % HANDLES + 1)));
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (i = 0; i < READERS; i++) {
        pthread_join(threads[i], NULL);
    }
    cr_expect_eq(wrong, 0, "%u wrong numbers", wrong);
}
