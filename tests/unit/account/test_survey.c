/* SPDX-License-Identifier: MIT
 *
 * test_survey.c: the blocks that a framework had before the attach. The framework is threads that allocate and free
 * under a lock of each device; its snapshot is taken under the same locks and read later, while they go on.
 */
#include "account/feed/before.h"
#include "account/feed/framework.h"
#include "account/feed/start.h"
#include "account/feed/survey.h"
#include "account/tap.h"
#include "base/thread.h"
#include "lib/accountcheck.h"
#include "lib/accounts.h"
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GPUS    2
#define PLACES  256u
#define THREADS 4
#define BASE    0x700000000000ull
#define MIB     (1ull << 20)

struct place {
    int64_t bytes; /* 0: free */
};

static struct {
    pthread_mutex_t lock;
    struct place places[PLACES];
    int64_t allocated;
} gpus[GPUS];

static bool attached, ending;

static void begin(bool late)
{
    static uint32_t listened;
    accounts_start(64, (struct gp_feed_setup){.listened = &listened, .map_limit = 1 << 20, .late = late});
    gp_feed_before_start();
    gp_feed_framework_start("pytorch");
    for (int i = 0; i < GPUS; i++)
        pthread_mutex_init(&gpus[i].lock, NULL);
}

static uint64_t address_of(int device, unsigned place)
{
    return BASE + ((uint64_t)device << 40) + place * MIB;
}

/* Under the device's lock. */
static void change(int device, unsigned place, int64_t bytes)
{
    struct place *at = &gpus[device].places[place];
    int64_t moved = bytes ? bytes : -at->bytes;
    at->bytes = bytes;
    gpus[device].allocated += moved;
    if (!__atomic_load_n(&attached, __ATOMIC_ACQUIRE) || !gp_thread_enter())
        return;
    gp_feed_framework_block(&(struct gp_framework_event){.device = device,
                                                         .address = address_of(device, place),
                                                         .bytes = moved,
                                                         .allocated_bytes = gpus[device].allocated,
                                                         .reserved_bytes = PLACES * (int64_t)MIB},
                            3);
    gp_thread_leave();
}

static void *work(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    while (!__atomic_load_n(&ending, __ATOMIC_RELAXED)) {
        int device = rand_r(&seed) % GPUS;
        unsigned place = (unsigned)rand_r(&seed) % PLACES;
        pthread_mutex_lock(&gpus[device].lock);
        change(device, place, gpus[device].places[place].bytes ? 0 : 512 * (1 + rand_r(&seed) % 64));
        pthread_mutex_unlock(&gpus[device].lock);
    }
    return NULL;
}

/* As survey.c and torchsnapshot.c do it. */
static bool survey(unsigned *seed, bool complete)
{
    static struct place taken[GPUS][PLACES];
    cr_assert(gp_thread_enter());
    cr_assert(gp_feed_survey_say(gp_feed_survey_state(), GP_BLOCKS_RUNNING, NULL));
    cr_assert(gp_feed_survey_begin());
    gp_thread_leave();
    for (int i = 0; i < GPUS; i++) {
        pthread_mutex_lock(&gpus[i].lock);
        memcpy(taken[i], gpus[i].places, sizeof(taken[i]));
        pthread_mutex_unlock(&gpus[i].lock);
        nanosleep(&(struct timespec){0, rand_r(seed) % 300000}, NULL);
    }
    cr_assert(gp_thread_enter());
    for (int i = 0; i < GPUS; i++)
        for (unsigned k = 0; k < PLACES; k++) {
            struct gp_survey_piece piece = {
                .device = i, .address = address_of(i, k), .bytes = (uint64_t)taken[i][k].bytes};
            if (taken[i][k].bytes)
                gp_feed_survey_block(&piece);
            if (rand_r(seed) % 64 == 0)
                nanosleep(&(struct timespec){0, 10000}, NULL);
        }
    bool all = gp_feed_survey_end(complete, 1);
    cr_assert(gp_feed_survey_say(GP_BLOCKS_RUNNING, all ? GP_BLOCKS_DONE : GP_BLOCKS_FAILED, all ? NULL : "why"));
    gp_thread_leave();
    return all;
}

struct listed {
    int64_t bytes[GPUS][PLACES];
    int64_t before[GPUS], count[GPUS], twice, wrong;
};

static void list_block(void *arg, const struct gp_tap_block *block)
{
    struct listed *listed = arg;
    uint64_t place = (block->address - BASE - ((uint64_t)block->device << 40)) / MIB;
    if (block->device >= GPUS || place >= PLACES || !block->inside) {
        listed->wrong++;
        return;
    }
    listed->twice += listed->bytes[block->device][place] != 0;
    listed->bytes[block->device][place] = (int64_t)block->bytes;
    listed->before[block->device] += block->before ? (int64_t)block->bytes : 0;
    listed->count[block->device] += block->before;
}

static void no_rest(void *arg)
{
    (void)arg;
}

/* Nothing else runs. */
static void check(const char *what)
{
    static struct listed listed;
    static struct gp_wire_blocks blocks;
    memset(&listed, 0, sizeof(listed));
    gp_tap_blocks(GP_TAP_EVERY, &listed, list_block, no_rest);
    gp_tap_before_blocks(&blocks);
    cr_assert(listed.twice == 0 && listed.wrong == 0, "%s: %lld twice, %lld elsewhere", what, (long long)listed.twice,
              (long long)listed.wrong);
    for (int i = 0; i < GPUS; i++) {
        for (unsigned k = 0; k < PLACES; k++)
            cr_assert_eq(listed.bytes[i][k], gpus[i].places[k].bytes, "%s: device %d, place %u: %lld, not %lld", what,
                         i, k, (long long)listed.bytes[i][k], (long long)gpus[i].places[k].bytes);
        struct gp_wire_before_device before;
        gp_tap_before((unsigned)i, &before);
        cr_assert(blocks.devices[i].bytes == listed.before[i] && blocks.devices[i].count == listed.count[i], "%s",
                  what);
        cr_assert_eq(before.framework_allocated_bytes, listed.before[i], "%s: device %d", what, i);
        cr_assert_eq(blocks.devices[i].differs, 0, "%s: device %d", what, i);
    }
    cr_assert_eq(lost[GP_LOST_MISSED_FREE] + lost[GP_LOST_MAP], 0);
}

TestSuite(survey, .fini = accounts_check);

Test(survey, threads_go_on_meanwhile, .timeout = 60)
{
    pthread_t threads[THREADS];
    unsigned seed = 1;
    begin(true);
    for (int i = 0; i < GPUS; i++)
        for (unsigned k = 0; k < PLACES; k += 2)
            change(i, k, 512 * (1 + (int64_t)k % 9));
    for (int turn = 0; turn < 40; turn++) {
        __atomic_store_n(&ending, false, __ATOMIC_RELAXED);
        for (uintptr_t i = 0; i < THREADS; i++)
            cr_assert_eq(pthread_create(&threads[i], NULL, work, (void *)(i + 1 + (uintptr_t)turn * 16)), 0);
        if (turn == 0) /* so that many blocks are from before */
            __atomic_store_n(&attached, true, __ATOMIC_RELEASE);
        cr_assert(survey(&seed, true));
        __atomic_store_n(&ending, true, __ATOMIC_RELAXED);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < GPUS; i++)
            change(i, 0, gpus[i].places[0].bytes ? 0 : 512); /* each device has reported once */
        check("a turn");
    }
}

Test(survey, a_part_of_a_snapshot_is_dropped)
{
    static struct gp_wire_blocks blocks;
    struct listed listed = {0};
    unsigned seed = 1;
    begin(true);
    change(0, 1, 512);
    change(1, 2, 1024);
    __atomic_store_n(&attached, true, __ATOMIC_RELEASE);
    cr_assert(!survey(&seed, false));
    gp_tap_blocks(GP_TAP_EVERY, &listed, list_block, no_rest);
    gp_tap_before_blocks(&blocks);
    cr_assert(listed.count[0] == 0 && listed.count[1] == 0);
    cr_assert(blocks.state == GP_BLOCKS_FAILED && blocks.devices[0].count == -1 && blocks.devices[0].bytes == -1);
    cr_assert_str_eq(blocks.text, "why");
    cr_assert(survey(&seed, true)); /* and can be had again */
    change(0, 3, 512);
    change(1, 3, 512);
    check("again");
    change(0, 1, 0);
    check("one from before is freed");
}

Test(survey, totals_that_are_not_its_sum_are_counted)
{
    static struct gp_wire_blocks blocks;
    unsigned seed = 1;
    begin(true);
    change(0, 1, 512);
    __atomic_store_n(&attached, true, __ATOMIC_RELEASE);
    gpus[0].allocated += 512; /* of a block that is in no snapshot */
    cr_assert(survey(&seed, true));
    change(0, 2, 512);
    change(0, 2, 0);
    gp_tap_before_blocks(&blocks);
    cr_assert(blocks.devices[0].count == 1 && blocks.devices[0].differs == 2);
}

Test(survey, a_state_moves_on_once)
{
    begin(true);
    cr_assert(gp_feed_survey_late());
    cr_assert(gp_feed_survey_reported());
    cr_assert(gp_feed_survey_say(GP_BLOCKS_NONE, GP_BLOCKS_ASKED, "one"));
    cr_assert(!gp_feed_survey_say(GP_BLOCKS_NONE, GP_BLOCKS_ASKED, "two"));
    static struct gp_wire_blocks blocks;
    gp_tap_before_blocks(&blocks);
    cr_assert_str_eq(blocks.text, "one");
    cr_assert_eq(blocks.state, GP_BLOCKS_ASKED);
}
