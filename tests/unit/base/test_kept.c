/* SPDX-License-Identifier: MIT
 *
 * test_kept.c: the variables and mappings of a life of the library (core/base/kept.c), put back in a forked child whose only
 * task that is; and the walk of the loader's list while the process forks (loader.c).
 */
#include "base/kept.h"
#include "base/loader.h"
#include "lib/mappings.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(kept, .timeout = 60);

static bool madvise_fails;

/* Whole pages that were given back, and calls with others. */
static size_t pages_given, pages_wrong;
GP_KEEP(pages_given);
GP_KEEP(pages_wrong);

STANDIN(int, madvise, void *at, size_t bytes, int advice)
{
    pages_wrong += (uintptr_t)at % 4096 || bytes % 4096 || bytes > 1 << 30 || advice != MADV_DONTNEED;
    pages_given += bytes / 4096;
    return madvise_fails ? -1 : __real_madvise(at, bytes, advice);
}

static unsigned yields;

int sched_yield(void)
{
    yields++;
    return 0;
}

/* ---- mappings ---------------------------------------------------------------------------------------------------- */

/* Any mapping may end by itself; all that are left end together. The table has 1024 rows, and takes rows that became free. */
Test(kept, mappings_end_together)
{
    static void *at[1100];
    long long before = mappings.bytes;
    for (unsigned turn = 0; turn < 3; turn++) {
        for (unsigned i = 0; i < 1000; i++) {
            at[i] = gp_kept_map(4096 * (1 + i % 3), i % 2 ? MAP_NORESERVE : 0);
            cr_assert_not_null(at[i]);
            cr_assert_eq(mappings.flags, MAP_PRIVATE | MAP_ANONYMOUS | (i % 2 ? MAP_NORESERVE : 0));
            memset(at[i], 1, 4096 * (1 + i % 3));
        }
        for (unsigned i = 0; i < 1000; i += 3)
            gp_kept_unmap(at[i], 4096 * (1 + i % 3));
        cr_expect_eq(mappings.bytes - before, 4096ll * (333 * 2 + 333 * 3), "%lld", mappings.bytes - before);
        gp_kept_unmap_all();
        cr_expect_eq(mappings.bytes, before);
        gp_kept_unmap_all(); /* nothing is left */
        cr_expect_eq(mappings.bytes, before);
    }
    for (unsigned i = 0; i < 1030; i++)
        at[i] = gp_kept_map(4096, 0);
    gp_kept_unmap_all();
    cr_expect_eq(mappings.bytes - before, 6 * 4096); /* those that found no row */
    for (unsigned i = 1024; i < 1030; i++)
        gp_kept_unmap(at[i], 4096);
    cr_expect_eq(mappings.bytes, before);
    mappings.fail_all = true;
    errno = 0;
    cr_expect_null(gp_kept_map(4096, 0));
    cr_expect_eq(errno, ENOMEM);
}

/* ---- variables --------------------------------------------------------------------------------------------------- */

#ifndef __SANITIZE_ADDRESS__ /* the sanitizer has variables of its own there */

static volatile int begun = 5, kept_begun = 6, begun_too = 7;
static volatile int zero, kept_zero, zero_too;
static volatile char much[5 * 4096], kept_much[3 * 4096 + 100], more[3 * 4096];
GP_KEEP(kept_begun);
GP_KEEP(kept_zero);
GP_KEEP(kept_much);

static void fill(char with)
{
    begun = begun_too = zero = zero_too = kept_begun = kept_zero = with;
    memset((char *)much, with, sizeof(much));
    memset((char *)kept_much, with, sizeof(kept_much));
    memset((char *)more, with, sizeof(more));
}

static bool all(const volatile char *at, size_t bytes, char is)
{
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != is)
            return false;
    return true;
}

/* A bit for each variable that is not as it should be. The library's own are as when it was loaded. */
static int differs(char with)
{
    return (begun != 5 || begun_too != 7) | (zero || zero_too) << 1 | (kept_begun != with) << 2 |
           (kept_zero != with) << 3 | !all(much, sizeof(much), 0) << 4 | !all(more, sizeof(more), 0) << 5 |
           !all(kept_much, sizeof(kept_much), with) << 6;
}

/* After it nothing but _exit may be called: the variables of all libraries that lie in the program are put back too. */
static int restored(bool locked)
{
    if (gp_kept_restore() || gp_kept_saved()) /* not saved yet */
        return 128;
    if (!gp_kept_save() || !gp_kept_saved() || !gp_kept_save())
        return 129;
    for (char with = 1; with < 4; with++) {
        fill(with);
        char *own = gp_kept_map(4096, 0);
        own[0] = 1;
        madvise_fails = locked;
        if (!gp_kept_restore())
            return 130;
        if (differs(with))
            return differs(with);
        if (pages_wrong || pages_given < 2u * (unsigned)with) /* of `much` and `more` at least */
            return 132;
        unsigned char there;
        if (syscall(SYS_mincore, own, 4096ul, &there) == 0) /* the mapping has ended */
            return 131;
    }
    return 0;
}

static int status_of(int (*run)(bool), bool arg)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(run(arg));
    waitpid(child, &status, 0);
    return status;
}

Test(kept, variables_are_put_back)
{
    for (int locked = 0; locked < 2; locked++) {
        int status = status_of(restored, locked);
        cr_expect_eq(status, 0, "locked %d: status %x", locked, status);
    }
}

/* Here too, so that it is known which lines this test reaches: the child cannot tell. */
Test(kept, variables_are_saved)
{
    cr_expect(!gp_kept_saved());
    cr_expect(gp_kept_save());
    cr_expect(gp_kept_saved());
    long long before = mappings.bytes;
    cr_expect(gp_kept_save());
    cr_expect_eq(mappings.bytes, before, "once");
}

static int unsaved(bool arg)
{
    (void)arg;
    mappings.fail_all = true;
    bool saved = gp_kept_save();
    mappings.fail_all = false;
    if (saved || gp_kept_saved() || gp_kept_restore())
        return 1;
    gp_loader_fork_begin();
    saved = gp_kept_save();
    gp_loader_fork_end();
    if (saved || gp_kept_saved())
        return 2;
    return gp_kept_save() ? 0 : 3;
}

Test(kept, without_memory_nothing_is_saved)
{
    cr_expect_eq(status_of(unsaved, false), 0);
}

#endif

/* ---- the loader's list ------------------------------------------------------------------------------------------- */

static unsigned visits;

static int visit(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)info, (void)size;
    cr_assert_eq(arg, &visits);
    return ++visits == 1; /* the first is enough */
}

/* A walk does not begin while the process forks, and leaves nothing behind for the next fork to wait for. */
Test(kept, no_walk_while_the_process_forks)
{
    for (unsigned i = 0; i < 3; i++) {
        visits = 0;
        cr_expect(gp_loader_look(visit, &visits));
        cr_expect_eq(visits, 1);
        yields = 0;
        gp_loader_fork_begin();
        cr_expect_eq(yields, 0, "nothing was walking");
        cr_expect(!gp_loader_look(visit, &visits));
        cr_expect_eq(visits, 1);
        cr_expect_eq(yields, 16, "it waited");
        yields = 0;
        gp_loader_fork_begin(); /* of another thread */
        cr_expect_eq(yields, 0);
        gp_loader_fork_end();
        cr_expect(!gp_loader_look(visit, &visits));
        gp_loader_fork_end();
    }
}

static uint32_t x_inside, x_go;

static int stay(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)info, (void)size, (void)arg;
    __atomic_store_n(&x_inside, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&x_go, __ATOMIC_SEQ_CST))
        syscall(SYS_sched_yield);
    return 1;
}

static void *walk(void *arg)
{
    return gp_loader_look(stay, arg) ? &x_go : NULL;
}

/* A fork waits for the walk of another thread, but not for ever. */
Test(kept, a_fork_waits_for_a_walk)
{
    pthread_t thread;
    void *result;
    cr_assert_eq(pthread_create(&thread, NULL, walk, NULL), 0);
    while (!__atomic_load_n(&x_inside, __ATOMIC_SEQ_CST))
        syscall(SYS_sched_yield);
    yields = 0;
    gp_loader_fork_begin();
    cr_expect_eq(yields, 16);
    __atomic_store_n(&x_go, 1, __ATOMIC_SEQ_CST);
    pthread_join(thread, &result);
    cr_expect_eq(result, &x_go);
    gp_loader_fork_end();
    yields = 0;
    gp_loader_fork_begin();
    cr_expect_eq(yields, 0);
    gp_loader_fork_end();
}
