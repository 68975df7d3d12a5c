/* SPDX-License-Identifier: MIT
 *
 * test_account_unseen.c: calls about what the accounts do not know, and one that another thread makes in the middle of the
 * same call. They are counted as lost or merged, and leave nothing behind.
 */
#include "account/feed/block.h"
#include "account/feed/context.h"
#include "account/feed/feed.h"
#include "account/feed/graph.h"
#include "account/feed/heap.h"
#include "account/feed/poll.h"
#include "account/feed/start.h"
#include "account/feed/vmm.h"
#include "account/internal.h"
#include "account/tap.h"
#include "lib/accountcheck.h"
#include "lib/accounts.h"
#include "stack/stack.h"
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void (*at_clock)(void); /* called once, when the time is read */

int clock_gettime(clockid_t clock, struct timespec *out)
{
    void (*hook)(void) = at_clock;
    at_clock = NULL;
    if (hook)
        hook();
    return (int)syscall(SYS_clock_gettime, clock, out);
}

static unsigned locks; /* taken so far */

int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    typedef int lock_fn(pthread_mutex_t * mutex);
    static lock_fn *next;
    if (!next)
        next = (lock_fn *)(uintptr_t)dlsym(RTLD_NEXT, "pthread_mutex_trylock");
    locks++;
    return next(mutex);
}

static void setup(void)
{
    accounts_start(64, (struct gp_feed_setup){.map_limit = 1 << 16});
    cr_assert(gp_thread_enter());
}

TestSuite(unseen, .init = setup, .fini = accounts_check, .timeout = 60);

static struct gp_wire_kind_value kind_of(enum gp_wire_kind kind)
{
    struct gp_wire_device is;
    cr_assert(gp_tap_device(0, &is));
    return is.kinds[kind];
}

/* One cause was counted once, or none was (GP_LOSTS). */
static void expect_lost(int cause, const char *what)
{
    for (int i = 0; i < GP_LOSTS; i++)
        cr_expect_eq(lost[i], i == cause, "%s: lost %d: %llu", what, i, (unsigned long long)lost[i]);
    memset(lost, 0, sizeof(lost));
}

Test(unseen, handles)
{
    gp_feed_vmm_retain(77);
    expect_lost(GP_LOST_MISSED_FREE, "retain");
    gp_feed_vmm_map(0x40000000, 5, 0, 77);
    expect_lost(GP_LOST_MISSED_FREE, "map");
    gp_feed_vmm_bind(1, 0, 0, 5, 77);
    expect_lost(GP_LOST_MISSED_FREE, "bind");
    gp_feed_vmm_unbind(1, 0, 0, 5);
    gp_feed_vmm_unbind_all(1);
    cr_expect_eq(gp_feed_vmm_handle_at(0x40000000), 0);
    cr_expect_eq(gp_map_count(gp_accounts.objects), 0);
    expect_lost(GP_LOSTS, "ends");
    cr_expect_eq(gp_tap_events(), 0);
}

/* The record of the node is taken away behind the back of its graph. */
Test(unseen, the_end_of_a_node)
{
    gp_feed_graph_node(0x3000, 5, 0, 8, 9);
    gp_map_take(gp_accounts.objects, GP_SPACE_GRAPH, 0x3000, NULL);
    uint64_t events = gp_tap_events();
    gp_feed_graph_node_destroyed(8);
    gp_feed_graph_gone(9);
    cr_expect_eq(gp_tap_events(), events);
    cr_expect_eq(gp_map_count(gp_accounts.objects), 0);
}

/* The room of an import is another record's by the time at which its close has failed. */
Test(unseen, an_import_without_room)
{
    gp_map_free(gp_accounts.objects);
    cr_assert_eq(gp_map_new(&gp_accounts.objects, 1), 0);
    gp_feed_ipc_open(0x2000, 0, 0);
    uint32_t token = gp_feed_ipc_close_begin(0x2000);
    gp_feed_stream_created(5, 0);
    gp_feed_ipc_close_end(token, false);
    expect_lost(GP_LOST_MAP, "a close");
    cr_expect_eq(kind_of(GP_KIND_IMPORTED).live, 1, "it is still open");
}

static void open_too(void)
{
    gp_feed_ipc_open(0x2000, 0, 0);
}

/* Another thread opens the same memory in between: it is one import, which ends with the second close. */
Test(unseen, an_import_that_two_threads_open)
{
    struct gp_poll_import asked;
    at_clock = open_too;
    gp_feed_ipc_open(0x2000, 0, 0);
    cr_expect_eq(kind_of(GP_KIND_IMPORTED).live, 1);
    while (gp_feed_poll_import_next(&asked))
        gp_feed_poll_import(&asked, 100);
    cr_expect_eq(kind_of(GP_KIND_IMPORTED).current_bytes, 100);
    for (int64_t left = 1; left >= 0; left--) {
        gp_feed_ipc_close_end(gp_feed_ipc_close_begin(0x2000), true);
        cr_expect_eq(kind_of(GP_KIND_IMPORTED).live, left);
        cr_expect_eq(kind_of(GP_KIND_IMPORTED).current_bytes, 100 * left);
    }
    cr_expect_eq(gp_feed_ipc_close_begin(0x2000), 0);
    expect_lost(GP_LOSTS, "an import");
}

/* From the first heap on, a segment may become an ordinary allocation, and whoever takes memory out of the map waits for
 * the events of that: it takes the lock once, and gives it back. Before that it does not touch the lock. */
Test(unseen, a_segment_that_becomes_ordinary_is_waited_for)
{
    unsigned taken[2][3], before;
    for (int heap = 0; heap < 2; heap++) {
        gp_feed_alloc(
            &(struct gp_allocation){.space = GP_SPACE_DEVICE, .kind = GP_KIND_LINEAR, .address = 0x1000, .bytes = 5});
        gp_feed_vmm_create(7, 5, 0);
        gp_feed_vmm_map(0x40000000, 5, 0, 7);
        if (heap)
            gp_feed_heap_begin(0x2000, 5); /* in no memory */
        before = locks;
        uint32_t token = gp_feed_free_begin(GP_SPACE_DEVICE, 0x1000);
        taken[heap][0] = locks - before;
        gp_feed_free_end(token, true, 0);
        before = locks;
        token = gp_feed_vmm_unmap_begin(0x40000000, 5);
        taken[heap][1] = locks - before;
        gp_feed_vmm_unmap_end(token, true);
        before = locks;
        token = gp_feed_vmm_release_begin(7);
        taken[heap][2] = locks - before;
        gp_feed_vmm_release_end(token, true);
        gp_feed_heap_end(0x1000); /* the lock is free */
    }
    for (unsigned i = 0; i < 3; i++)
        cr_expect_eq(taken[1][i], taken[0][i] + 1, "call %u: %u, then %u", i, taken[0][i], taken[1][i]);
}

Test(unseen, devices)
{
    struct gp_wire_device is;
    gp_account_of(1);
    cr_expect(!gp_tap_device(0, &is) && gp_tap_device(1, &is) && !gp_tap_device(GP_WIRE_DEVICES, &is));
}

/* A handle of this process that comes back from another one is the same memory. */
Test(unseen, an_import_of_an_own_handle)
{
    gp_feed_vmm_create(7, 5, 0);
    gp_feed_vmm_import(7, 1);
    for (int64_t left = 1; left >= 0; left--) {
        gp_feed_vmm_release_end(gp_feed_vmm_release_begin(7), true);
        cr_expect(kind_of(GP_KIND_VMM).live == left && kind_of(GP_KIND_VMM).current_bytes == 5 * left);
    }
    expect_lost(GP_LOSTS, "an import");
}

Test(unseen, memory_has_the_owner_that_asked_for_it)
{
    struct gp_wire_device is;
    struct gp_wire_owner_value owners[GP_WIRE_OWNERS];
    cr_assert_eq(gp_owner_start(), 0);
    gp_feed_alloc(
        &(struct gp_allocation){.space = GP_SPACE_DEVICE, .kind = GP_KIND_LINEAR, .address = 0x1000, .bytes = 5});
    cr_assert(gp_tap_owned(0, &is, owners));
    cr_expect(owners[1].allocated_bytes == 5 && owners[1].reserved_bytes == 5 && owners[1].live == 1);
    cr_expect_eq(owners[GP_OWNER_UNKNOWN].allocated_bytes, 0);
}

static uint32_t x_enough;

static void *churn(void *arg)
{
    struct gp_allocation memory = {.space = GP_SPACE_DEVICE, .kind = GP_KIND_LINEAR, .address = 0x1000, .bytes = 5};
    cr_assert(gp_thread_enter());
    while (!__atomic_load_n(&x_enough, __ATOMIC_RELAXED)) {
        gp_feed_alloc(&memory);
        gp_feed_free_end(gp_feed_free_begin(GP_SPACE_DEVICE, memory.address), true, 0);
    }
    gp_thread_leave();
    return arg;
}

Test(unseen, owners_and_their_device_are_of_one_instant)
{
    struct gp_wire_device is;
    struct gp_wire_owner_value owners[GP_WIRE_OWNERS];
    pthread_t thread;
    cr_assert_eq(gp_owner_start(), 0);
    gp_account_of(0);
    cr_assert_eq(pthread_create(&thread, NULL, churn, NULL), 0);
    for (unsigned look = 0; look < 20000; look++) {
        int64_t sum = 0;
        cr_assert(gp_tap_owned(0, &is, owners));
        for (unsigned i = 0; i < GP_WIRE_OWNERS; i++)
            sum += owners[i].allocated_bytes;
        cr_assert_eq(sum, is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current, "look %u", look);
    }
    __atomic_store_n(&x_enough, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
}

/* The size of an array is an estimate, and the device says that it has such. */
Test(unseen, estimates)
{
    struct gp_allocation array = {
        .space = GP_SPACE_ARRAY, .kind = GP_KIND_ARRAY, .address = 0x1000, .bytes = 5, .estimated = true};
    struct gp_wire_device is;
    gp_account_of(1);
    gp_feed_alloc(&array);
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.flags, GP_DEVICE_PRESENT | GP_DEVICE_ESTIMATED);
    array.device = 1, array.address = 0x2000, array.estimated = false;
    gp_feed_alloc(&array);
    cr_assert(gp_tap_device(1, &is));
    cr_expect_eq(is.flags, GP_DEVICE_PRESENT);
}
