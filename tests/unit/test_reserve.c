/* SPDX-License-Identifier: MIT
 *
 * test_reserve.c: the reservations of commands that wait (tools/read/collect/reserve.c) against a model, operation by
 * operation.  The locks belong to the open file, so that handles of one process are as good as commands.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <lib/build.h>
#include <read/collect/collect.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define HANDLES 5u
#define RECORDS 400u
#define LONG    (1ull << 50)

static const char *const uuids[] = {"GPU-0", "GPU-1"};

struct model {
    int uuid;
    int64_t need, had;
    bool started, open, expired, ended; /* started: by a process that lives */
};

static struct gp_reserve handles[HANDLES];
static struct model records[RECORDS];
static int record_of[HANDLES]; /* -1: none */
static unsigned record_count;
static char *folder;
static uint64_t seed = 7;

static uint64_t draw(uint64_t below)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (seed >> 33) % below;
}

static bool counts(const struct model *record)
{
    return !record->ended && !record->expired && record->had < record->need && (record->open || record->started);
}

static void compare(unsigned step)
{
    unsigned most = 0;
    for (unsigned h = 0; h < HANDLES; h++) {
        for (int uuid = 0; uuid < 2; uuid++) {
            int64_t sum = 0;
            for (unsigned i = 0; i < record_count; i++)
                if (counts(&records[i]) && records[i].uuid == uuid && record_of[h] != (int)i)
                    sum += records[i].need - records[i].had;
            cr_assert_eq(gp_reserve_outstanding(&handles[h], uuids[uuid]), sum, "step %u: %lld, not %lld", step,
                         (long long)gp_reserve_outstanding(&handles[h], uuids[uuid]), (long long)sum);
        }
        cr_assert_eq(handles[h].slot >= 0, record_of[h] >= 0, "step %u", step);
    }
    for (unsigned i = 0; i < record_count; i++)
        most += counts(&records[i]);
    cr_assert_leq(most, RECORDS);
}

static void do_take(unsigned h)
{
    if (record_of[h] >= 0 || record_count == RECORDS)
        return;
    struct model *record = &records[record_count];
    *record = (struct model){.uuid = (int)draw(2), .need = (int64_t)draw(100), .expired = !draw(5), .open = true};
    cr_assert_eq(gp_reserve_take(&handles[h], uuids[record->uuid], record->need, record->expired ? 0 : LONG), 0);
    record_of[h] = (int)record_count++;
}

static void do_update(unsigned h)
{
    int64_t bytes = (int64_t)draw(60);
    struct model *record = record_of[h] < 0 ? NULL : &records[record_of[h]];
    bool goes_on = gp_reserve_update(&handles[h], getpid(), bytes);
    cr_assert(record || !goes_on);
    if (!record)
        return;
    record->started = true;
    record->had = bytes > record->had ? bytes : record->had;
    cr_assert_eq(goes_on, record->had < record->need && !record->expired);
    record->ended = !goes_on;
    if (!goes_on)
        record_of[h] = -1;
}

static void do_end(unsigned h)
{
    gp_reserve_end(&handles[h]);
    if (record_of[h] >= 0)
        records[record_of[h]].ended = true;
    record_of[h] = -1;
}

/* The command is killed. */
static void do_close(unsigned h)
{
    gp_reserve_close(&handles[h]);
    if (record_of[h] >= 0)
        records[record_of[h]].open = false;
    record_of[h] = -1;
    cr_assert_eq(gp_reserve_open(&handles[h], folder), 0);
}

static void begin(void)
{
    folder = build_folder();
    cr_assert(folder);
    for (unsigned h = 0; h < HANDLES; h++) {
        cr_assert_eq(gp_reserve_open(&handles[h], folder), 0);
        record_of[h] = -1;
    }
}

static void end(void)
{
    for (unsigned h = 0; h < HANDLES; h++)
        gp_reserve_close(&handles[h]);
    build_remove(folder);
}

TestSuite(reserve, .init = begin, .fini = end, .timeout = 60);

/* One handle at a time has the lock, and whatever it does it keeps it. */
Test(reserve, what_is_outstanding_is_the_model_s)
{
    static void (*const operations[])(unsigned) = {do_take, do_take, do_update, do_end, do_close};
    for (unsigned step = 0; step < 500 && record_count < RECORDS; step++) {
        unsigned h = (unsigned)draw(HANDLES), operation = (unsigned)draw(5);
        cr_assert(gp_reserve_lock(&handles[h]));
        cr_assert_not(gp_reserve_lock(&handles[(h + 1) % HANDLES]), "it is held");
        operations[operation](h);
        if (operations[operation] != do_close) {
            cr_assert(handles[h].held);
            cr_assert_not(gp_reserve_lock(&handles[(h + 1) % HANDLES]), "step %u: lost by operation %u", step,
                          operation);
            gp_reserve_unlock(&handles[h]);
        }
        compare(step);
    }
}

static volatile sig_atomic_t stops;

static void on_stop(int number)
{
    (void)number;
    stops++;
}

/* ^Z stops a command before or after a decision, and not with the lock, for which all others wait. */
Test(reserve, a_terminal_does_not_stop_a_command_with_the_lock)
{
    static const int signals[] = {SIGTSTP, SIGTTIN, SIGTTOU};
    for (int i = 0; i < 3; i++) {
        signal(signals[i], on_stop);
        stops = 0;
        cr_assert(gp_reserve_lock(&handles[0]));
        raise(signals[i]);
        cr_expect_eq(stops, 0, "%d", i);
        gp_reserve_unlock(&handles[0]);
        cr_expect_eq(stops, 1, "%d", i);
        raise(signals[i]);
        cr_expect_eq(stops, 2, "the mask is as before");
        cr_assert(gp_reserve_lock(&handles[0]));
        cr_assert_not(gp_reserve_lock(&handles[1]));
        raise(signals[i]);
        cr_expect_eq(stops, 2, "%d", i);
        do_close(0);
        cr_expect_eq(stops, 3, "%d", i);
    }
}

/* A place in the file is used again once its record has ended. */
Test(reserve, places_are_used_again)
{
    struct stat status;
    for (unsigned i = 0; i < 50; i++) {
        for (unsigned h = 0; h < HANDLES; h++)
            cr_assert_eq(gp_reserve_take(&handles[h], "GPU-0", 10, LONG), 0);
        for (unsigned h = 0; h < HANDLES; h++)
            i % 2 ? gp_reserve_end(&handles[h]) : do_close(h);
    }
    cr_assert_eq(fstat(handles[0].fd, &status), 0);
    cr_expect_eq(status.st_size, (HANDLES + 1) * 256);
}

/* Sums stay below 2^63, whatever was asked for. */
Test(reserve, more_than_there_is)
{
    for (unsigned h = 0; h < HANDLES; h++)
        cr_assert_eq(gp_reserve_take(&handles[h], "GPU-0", h < 2 ? INT64_MAX : -5, h ? LONG : UINT64_MAX), 0);
    cr_expect_eq(gp_reserve_outstanding(&handles[0], "GPU-0"), 1ll << 60);
    cr_expect_eq(gp_reserve_outstanding(&handles[4], "GPU-0"), 2ll << 60);
}
