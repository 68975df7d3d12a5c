/* SPDX-License-Identifier: MIT
 * loader.c: walks over the loader's list of objects, never during a fork. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dl_iterate_phdr */
#endif
#include "base/loader.h"
#include "base/compiler.h"
#include "base/kept.h"
#include "base/lock.h"
#include <pthread.h>
#include <stdint.h>

/* 40 ms (lock.h). A walk takes microseconds; the fork of a process of many gigabytes takes tens
 * of milliseconds. A program's own atfork handler may wait for a thread that waits here, so the
 * wait is bounded: a missing stack is better than a program that hangs. */
#define GP_LOADER_ROUNDS 2000

static uint32_t x_looking; /* threads that walk the list */
static uint32_t x_forking; /* threads that fork */
GP_KEEP(x_looking);
GP_KEEP(x_forking);

/* Each side first announces itself and then reads the other's word. All four accesses are
 * sequentially consistent, so at least one side sees the other. */
static bool loader_enter(void)
{
    for (unsigned round = 0; round < GP_LOADER_ROUNDS; round++) {
        __atomic_fetch_add(&x_looking, 1, __ATOMIC_SEQ_CST);
        if (GP_LIKELY(!__atomic_load_n(&x_forking, __ATOMIC_SEQ_CST)))
            return true;
        __atomic_fetch_sub(&x_looking, 1, __ATOMIC_SEQ_CST);
        gp_pause(round);
    }
    return false;
}

/* Written with the loader's list locked, by the thread that holds it; another thread sees a value that is not its
 * own. */
static uintptr_t x_within; /* the thread whose work runs with the list locked; 0: none */

static bool loader_is_within(void)
{
    return __atomic_load_n(&x_within, __ATOMIC_RELAXED) == (uintptr_t)pthread_self();
}

#ifdef GP_DEBUG
void gp_loader_check(void)
{
    GP_ASSERT(loader_is_within() || gp_lock_held == 0);
}
#endif

bool gp_loader_look(int (*visit)(struct dl_phdr_info *info, size_t size, void *arg), void *arg)
{
    GP_LOADER((void)0);
    if (loader_is_within()) { /* a fork waits for the outer walk: this one must not wait for the fork */
        dl_iterate_phdr(visit, arg);
        return true;
    }
    if (!loader_enter())
        return false;
    dl_iterate_phdr(visit, arg);
    GP_TESTPOINT("loader.looked");
    __atomic_fetch_sub(&x_looking, 1, __ATOMIC_SEQ_CST);
    return true;
}

struct loader_work {
    void (*work)(void *arg);
    void *arg;
};

static int loader_work(struct dl_phdr_info *info, size_t size, void *arg)
{
    const struct loader_work *outer = arg;
    (void)info;
    (void)size;
    uintptr_t before = __atomic_exchange_n(&x_within, (uintptr_t)pthread_self(), __ATOMIC_RELAXED);
    outer->work(outer->arg);
    __atomic_store_n(&x_within, before, __ATOMIC_RELAXED);
    return 1;
}

bool gp_loader_with(void (*work)(void *arg), void *arg)
{
    return gp_loader_look(loader_work, &(struct loader_work){work, arg});
}

void gp_loader_fork_begin(void)
{
    __atomic_fetch_add(&x_forking, 1, __ATOMIC_SEQ_CST);
    for (unsigned round = 0; round < GP_LOADER_ROUNDS && __atomic_load_n(&x_looking, __ATOMIC_SEQ_CST); round++)
        gp_pause(round);
}

void gp_loader_fork_end(void)
{
    __atomic_fetch_sub(&x_forking, 1, __ATOMIC_SEQ_CST);
}
