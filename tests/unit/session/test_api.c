/* SPDX-License-Identifier: MIT
 *
 * test_api.c: gpuprof.h inside one process, with events that the test makes: names and places of
 * the statistics, arguments out of range, truncated names, marks in the ring, many threads on
 * the table of scopes. Run by the unit tests.
 */
#include <account/feed/block.h>
#include <account/feed/feed.h>
#include <account/feed/framework.h>
#include <base/thread.h>
#include <gpuprof/gpuprof.h>
#include <gpuprof/wire.h>
#include <session/session.h>
#include <show/text/stats.h>

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(api, .timeout = 60);

/* As at a program's first cuInit, on a machine without CUPTI. */
static void start(void)
{
    setenv("GPUPROF_SOURCE", "hooks", 1);
    cr_assert_eq(InitializeInjection(), 1);
}

static void give(uint64_t address, uint64_t bytes, int device)
{
    cr_assert(gp_thread_enter());
    gp_feed_alloc(&(struct gp_allocation){.space = device == (int)GP_WIRE_HOST ? GP_SPACE_HOST : GP_SPACE_DEVICE,
                                          .kind = device == (int)GP_WIRE_HOST ? GP_KIND_PINNED : GP_KIND_LINEAR,
                                          .device = device,
                                          .address = address,
                                          .bytes = bytes,
                                          .requested_bytes = bytes});
    gp_thread_leave();
}

Test(api, what_a_framework_does_not_tell_is_minus_one)
{
    int64_t values[GPUPROF_STATS], one;
    start();
    cr_assert(gp_thread_enter());
    gp_feed_framework_block(
        &(struct gp_framework_event){
            .device = 2, .address = 1 << 20, .bytes = 4096, .allocated_bytes = 4096, .reserved_bytes = -1},
        0);
    gp_thread_leave();
    cr_assert_eq(gpuprof_memory_stats(2, values, GPUPROF_STATS), 0);
    for (unsigned i = 0; i < GPUPROF_STATS; i++) {
        const char *name = gpuprof_stat_name(i);
        bool untold = strncmp(name, "requested_bytes.", 16) == 0 || strncmp(name, "inactive_split", 14) == 0 ||
                      strncmp(name, "active", 6) == 0;
        cr_expect_eq(values[i] == -1, untold || strcmp(name, "max_split_size") == 0, "%s", name);
    }
    cr_assert_eq(gpuprof_memory_stat(2, "requested_bytes.all.peak", &one), 0);
    cr_assert_eq(one, -1);
    cr_assert_eq(gpuprof_memory_stat(2, "allocated_bytes.all.current", &one), 0);
    cr_assert_eq(one, 4096);
}

/* A value that the library gives under a name is the one at that name's place. */
Test(api, names_and_places_are_those_of_the_command)
{
    const struct gp_stat_key *keys = gp_stat_keys;
    struct gp_wire_device device;
    int64_t values[GPUPROF_STATS], one;
    unsigned i;

    start();
    give(1 << 20, 5 << 20, 3);
    give(8 << 20, 5000, 3);
    cr_assert_eq(gpuprof_reset_max_memory_reserved(3), 0);
    cr_assert_eq(gpuprof_memory_stats(3, values, GPUPROF_STATS), 0);
    memset(&device, 0, sizeof(device));
    for (i = 0; gpuprof_stat_name(i) != NULL; i++) {
        cr_expect_str_eq(gpuprof_stat_name(i), keys[i].name);
        /* The library's value, put into the command's place of that name, must be the value of
         * that name. */
        memcpy((char *)&device + keys[i].offset, &values[i], sizeof(values[i]));
        cr_expect_eq(gpuprof_memory_stat(3, keys[i].name, &one), 0);
        cr_expect_eq(one, values[i], "%s", keys[i].name);
    }
    cr_expect_eq(i, GP_STAT_KEYS);
    cr_expect_eq(device.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].peak, (5 << 20) + 5000);
    cr_expect_eq(device.stats[GP_STAT_REQUESTED_BYTES][GP_POOL_LARGE].current, 5 << 20);
    cr_expect_eq(device.stats[GP_STAT_SEGMENT][GP_POOL_SMALL].allocated, 1);
    cr_expect_eq(device.max_split_size, -1);
    cr_expect_eq(device.num_device_alloc, 2);
    cr_expect_null(gpuprof_stat_name(UINT32_MAX));
}

Test(api, arguments_out_of_range)
{
    int64_t values[2] = {-77, -77};

    start();
    cr_expect_eq(gpuprof_active(), 0, "no source, and no memory of ours");
    give(1 << 20, 4096, 0);
    cr_expect_eq(gpuprof_active(), 1);
    cr_expect_eq(gpuprof_device_count(), 1);
    cr_expect_eq(gpuprof_memory_allocated(-1), -1);
    cr_expect_eq(gpuprof_memory_allocated(1), -1);
    cr_expect_eq(gpuprof_memory_allocated(GP_WIRE_HOST), -1, "the host is not a GPU");
    cr_expect_eq(gpuprof_memory_allocated(INT32_MAX), -1);
    cr_expect_eq(gpuprof_reset_peak_memory_stats(64), -1);
    cr_expect_eq(gpuprof_memory_stats(0, NULL, 3), -1);
    cr_expect_eq(gpuprof_memory_stats(0, NULL, 0), 0);
    cr_expect_eq(gpuprof_memory_stats(0, values, 1), 0);
    cr_expect_eq(values[1], -77, "one was asked for");
    cr_expect_eq(gpuprof_memory_stat(0, "allocated_bytes.all", values), -1);
    cr_expect_eq(gpuprof_memory_stat(0, NULL, values), -1);
    cr_expect_eq(gpuprof_memory_stat(0, "num_ooms", NULL), -1);
    cr_expect_eq(gpuprof_host_memory_stats(values, 2), -1, "nothing is pinned");
    cr_expect_eq(gpuprof_reset_host_memory_stats(-1), -1);
    cr_expect_eq(gpuprof_mem_get_info(0, values, values), -1, "no driver");
    give(2 << 20, 4096, (int)GP_WIRE_HOST);
    cr_expect_eq(gpuprof_host_memory_stats(values, 2), 0);
    give(3 << 20, 4096, 63);
    cr_expect_eq(gpuprof_device_count(), 64);
}

/* ---- what others see ------------------------------------------------------------------------------------------ */

static int session_fd(void)
{
    char path[300], target[256];
    struct dirent *entry;
    int fd = -1;
    DIR *dir = opendir("/proc/self/fd");

    while (dir && fd < 0 && (entry = readdir(dir))) {
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        ssize_t length = readlink(path, target, sizeof(target) - 1);
        target[length > 0 ? length : 0] = '\0';
        if (strstr(target, "memfd:" GP_WIRE_SESSION_NAME))
            fd = atoi(entry->d_name);
    }
    closedir(dir);
    return fd;
}

/* How many events of that type and name are in the ring. */
static unsigned events(enum gp_wire_event_type type, const char *name)
{
    static struct gp_wire_chunk chunk;
    struct gp_wire_header header;
    int fd = session_fd();
    unsigned found = 0;

    cr_assert_eq(pread(fd, &header, sizeof(header), 0), (ssize_t)sizeof(header));
    for (uint32_t i = 0; i < header.chunk_count; i++) {
        cr_assert_eq(pread(fd, &chunk, sizeof(chunk), (off_t)(header.ring_offset + i * sizeof(chunk))),
                     (ssize_t)sizeof(chunk));
        for (uint32_t e = 0; e < GP_CHUNK_COUNT(chunk.state); e++)
            found += chunk.events[e].type == type && strcmp(chunk.events[e].name, name) == 0;
    }
    return found;
}

static void scope_name(int row, char name[40])
{
    struct gp_wire_scope scope;
    struct gp_wire_header header;
    int fd = session_fd();

    cr_assert_eq(pread(fd, &header, sizeof(header), 0), (ssize_t)sizeof(header));
    cr_assert_eq(pread(fd, &scope, sizeof(scope), (off_t)(header.scopes_offset + (size_t)row * sizeof(scope))),
                 (ssize_t)sizeof(scope));
    memcpy(name, scope.name, 40);
}

Test(api, marks_and_resets_are_events)
{
    start();
    give(1 << 20, 4096, 0);
    cr_expect_eq(gpuprof_mark("step 17"), 0);
    cr_expect_eq(gpuprof_mark("abcdefghijklmnopqrstuvwxyz0123456789"), 0);
    cr_expect_eq(events(GP_EVENT_MARK, "step 17"), 1);
    cr_expect_eq(events(GP_EVENT_MARK, "abcdefghijklmnopqrstuvwxyz01234"), 1);
    cr_expect_eq(events(GP_EVENT_RESET, ""), 0);
    cr_expect_eq(gpuprof_reset_peak_memory_stats(0), 0);
    cr_expect_eq(gpuprof_reset_peak_memory_stats(1), -1);
    cr_expect_eq(events(GP_EVENT_RESET, ""), 1, "one that did nothing is none");
}

Test(api, names_are_cut_between_characters)
{
    char name[40];
    int scope;

    start();
    scope = gpuprof_scope_begin("0123456789012345678901234567890123456789");
    scope_name(scope % 16, name);
    cr_expect_str_eq(name, "012345678901234567890123456789012345678");
    gpuprof_scope_end(scope);
    /* 38 bytes, then a character of three bytes, of which only one fits. */
    scope = gpuprof_scope_begin("01234567890123456789012345678901234567\xe2\x82\xac");
    scope_name(scope % 16, name);
    cr_expect_str_eq(name, "01234567890123456789012345678901234567");
    gpuprof_scope_end(scope);
    scope = gpuprof_scope_begin("\xe2\x82\xac");
    scope_name(scope % 16, name);
    cr_expect_str_eq(name, "\xe2\x82\xac");
    gpuprof_scope_end(scope);
}

/* Of a longer name that was there before nothing is left. */
Test(api, short_names_after_long_ones)
{
    static const char zeros[40];
    char name[40];
    start();
    for (int turn = 0; turn < 3; turn++) {
        cr_expect_eq(gpuprof_scope_end(gpuprof_scope_begin("0123456789012345678901234567890123456789")), 0);
        int scope = gpuprof_scope_begin("b");
        scope_name(scope % 16, name);
        cr_expect(name[0] == 'b' && memcmp(name + 1, zeros, sizeof(name) - 1) == 0, "%.40s", name);
        cr_expect_eq(gpuprof_scope_end(scope), 0);
        cr_expect_eq(gpuprof_mark("0123456789012345678901234567890123456789"), 0);
        cr_expect_eq(gpuprof_mark("m"), 0);
        cr_expect_eq(events(GP_EVENT_MARK, "m"), turn + 1);
    }
}

/* ---- scopes --------------------------------------------------------------------------------------------------- */

#define THREADS 4
#define ROUNDS  4000

static uint32_t x_wrong, x_open;

/* Detects a scope whose number another thread also got, or that another thread ended. */
static void *scopes_main(void *arg)
{
    int64_t allocated;

    for (unsigned i = 0; i < ROUNDS; i++) {
        int mine[3];
        for (unsigned n = 0; n < 3; n++) {
            mine[n] = gpuprof_scope_begin(arg);
            __atomic_add_fetch(&x_open, mine[n] >= 0, __ATOMIC_RELAXED);
        }
        for (unsigned n = 0; n < 3; n++) {
            bool wrong = mine[n] < 0 || gpuprof_scope_read(mine[n], 0, &allocated, NULL) != 0 || allocated != 4096 ||
                         gpuprof_scope_end(mine[n]) != 0 || gpuprof_scope_end(mine[n]) != -ENOENT;
            __atomic_add_fetch(&x_wrong, wrong, __ATOMIC_RELAXED);
        }
    }
    return NULL;
}

Test(api, scopes_of_many_threads_stay_apart)
{
    static char names[THREADS][8];
    pthread_t threads[THREADS];
    int scopes[GP_WIRE_SCOPES + 1];

    start();
    give(1 << 20, 4096, 0);
    for (unsigned i = 0; i < THREADS; i++) { /* at most 12 of 16 */
        snprintf(names[i], sizeof(names[i]), "%u", i / 2);
        cr_assert_eq(pthread_create(&threads[i], NULL, scopes_main, names[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    cr_expect_eq(x_wrong, 0);
    cr_expect_eq(x_open, THREADS * ROUNDS * 3);
    for (unsigned i = 0; i <= GP_WIRE_SCOPES; i++)
        scopes[i] = gpuprof_scope_begin("all");
    cr_expect_eq(scopes[GP_WIRE_SCOPES], -EBUSY, "every row is free again");
    cr_expect_geq(scopes[GP_WIRE_SCOPES - 1], 0);
    cr_expect_eq(gp_session_scope_begin("all", false), -EEXIST, "from outside, a scope's name must be unique");
}
