/* SPDX-License-Identifier: MIT
 *
 * attach_oracle.h: threads enter the library and leave it, and end, while it is detached and attached again (base/thread.c).
 * A word stands for everything that ends with a life of the library: a thread that is inside must find the word of
 * the life in which it has entered, from its first look to its last. Windows: between the first look at the life
 * and the thread's announcement, and between that and the second look.
 */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/thread.h"
#include "torture/yield.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ORACLE_THREADS 6

/* 0 between two lives.  Plain, so that ThreadSanitizer sees a life that nothing orders; the mutant's is a race on purpose. */
#ifdef GP_THREAD_MUTANT_LOOK
static _Atomic uint64_t attach_memory;
#else
static uint64_t attach_memory;
#endif
static uint32_t x_end, x_wrong, x_entered, x_unfinished;

static __thread uint64_t attach_random;

static uint64_t attach_next(void)
{
    attach_random = attach_random * 6364136223846793005ull + 1442695040888963407ull;
    return attach_random >> 33;
}

void gp_testpoint(const char *name)
{
    (void)name;
    if (attach_next() % 8 == 0)
        torture_yield();
    else if (attach_next() % 64 == 0)
        usleep(attach_next() % 3000); /* longer than the pause in which stores settle */
}

static void attach_visit(void)
{
    if (!gp_thread_enter())
        return;
    uint64_t first = attach_memory;
    GP_TESTPOINT("oracle.inside");
    if (!first || attach_memory != first)
        __atomic_fetch_add(&x_wrong, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&x_entered, 1, __ATOMIC_RELAXED);
    gp_thread_leave();
}

/* A part of them end and are replaced, so that places get new owners. */
static void *attach_short(void *arg)
{
    attach_random = (uint64_t)(uintptr_t)arg;
    for (int i = 0; i < 50; i++)
        attach_visit();
    return NULL;
}

static void *attach_thread(void *arg)
{
    uint64_t number = (uint64_t)(uintptr_t)arg;
    attach_random = number * 77 + gp_clock_ns();
    while (!__atomic_load_n(&x_end, __ATOMIC_RELAXED)) {
        pthread_t other;
        attach_visit();
        if (number % 2 && attach_next() % 256 == 0 &&
            pthread_create(&other, NULL, attach_short, (void *)(uintptr_t)(attach_next() + 1)) == 0)
            pthread_join(other, NULL);
    }
    return NULL;
}

/* Lives until end_ns, or until the oracle has something to say. */
static unsigned attach_lives(uint64_t end_ns)
{
    pthread_t threads[ORACLE_THREADS];
    unsigned lives = 0;
    attach_random = gp_clock_ns();
    for (uintptr_t i = 0; i < ORACLE_THREADS; i++)
        pthread_create(&threads[i], NULL, attach_thread, (void *)i);
    while (gp_clock_ns() < end_ns && !__atomic_load_n(&x_wrong, __ATOMIC_RELAXED)) {
        attach_memory = ++lives;
        if (gp_thread_life_start() != 0)
            break;
        usleep(attach_next() % 2000);
        gp_thread_life_leave();
        if (!gp_thread_all_out(gp_clock_ns() + 5000000000ull)) {
            __atomic_fetch_add(&x_unfinished, 1, __ATOMIC_RELAXED);
            break;
        }
        attach_memory = 0;
        usleep(attach_next() % 500);
    }
    __atomic_store_n(&x_end, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < ORACLE_THREADS; i++)
        pthread_join(threads[i], NULL);
    return lives;
}
