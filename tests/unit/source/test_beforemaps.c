/* SPDX-License-Identifier: MIT
 *
 * test_beforemaps.c: which addresses the driver is asked for, by the list of mappings, which the test writes itself: names,
 * rights, sizes and neighbours of mappings, sizes of allocations, answers that change, and a clock that the answers move.
 */
#include "account/feed/before.h"
#include "lib/standin.h"
#include "source/internal.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <source/before.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define UNIT ((uint64_t)2 << 20)

/* ---- the list of mappings and the clock -------------------------------------------------------------------------- */

#define MAPS_FD 4711

static char maps[1 << 20], calls[1 << 16];
static size_t maps_at, piece = SIZE_MAX, fails_at = SIZE_MAX;
static unsigned looked, opened, closed, refuse_at = ~0u;
static bool is_virtual, has_numbers = true;
static uint64_t now_ns;

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int mode = va_arg(arguments, int);
    va_end(arguments);
    if (strncmp(path, "/proc/self/task/", 16) != 0 || !is_virtual)
        return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    cr_assert_eq(flags, O_RDONLY | O_CLOEXEC);
    maps_at = 0;
    if (looked++ == refuse_at)
        return -1;
    opened++;
    return MAPS_FD;
}

ssize_t read(int fd, void *to, size_t room)
{
    if (fd != MAPS_FD)
        return syscall(SYS_read, fd, to, room);
    size_t left = strlen(maps + maps_at), bytes = piece < room ? piece : room;
    bytes = bytes < left ? bytes : left;
    if (maps_at >= fails_at) {
        errno = EIO;
        return -1;
    }
    cr_assert_gt(room, 0);
    memcpy(to, maps + maps_at, bytes);
    maps_at += bytes;
    return (ssize_t)bytes;
}

int close(int fd)
{
    closed += fd == MAPS_FD;
    return fd == MAPS_FD ? 0 : (int)syscall(SYS_close, fd);
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    if (!is_virtual || clock != CLOCK_MONOTONIC)
        return (int)syscall(SYS_clock_gettime, clock, out);
    *out = (struct timespec){(time_t)(now_ns / 1000000000), (long)(now_ns % 1000000000)};
    return 0;
}

/* ---- the driver and the accounts --------------------------------------------------------------------------------- */

static struct gp_before_range rows[8];
static unsigned row_count, asked, ask_at_most = ~0u, refusals;
static uint64_t ask_takes_ns, begun;
static struct gp_before_range odd; /* the answer for every address, if it has bytes */

static void note(const char *form, ...)
{
    size_t used = strlen(calls);
    va_list arguments;
    va_start(arguments, form);
    vsnprintf(calls + used, sizeof(calls) - used, form, arguments);
    va_end(arguments);
}

/* In units and bytes beyond. */
static void note_address(uint64_t address)
{
    note(address % UNIT ? "%lu+%lu " : "%lu ", (unsigned long)(address / UNIT), (unsigned long)(address % UNIT));
}

static bool ask(uint64_t address, struct gp_before_range *out)
{
    note_address(address);
    now_ns += ask_takes_ns;
    *out = odd;
    for (unsigned i = 0; i < row_count; i++)
        if (address >= rows[i].address && address - rows[i].address < rows[i].bytes)
            *out = rows[i];
    return ++asked <= ask_at_most;
}

static uint32_t number(void *context)
{
    return (uint32_t)(uintptr_t)context + 1;
}

STANDIN(uint64_t, gp_feed_before_begin, void)
{
    return ++begun;
}

STANDIN(bool, gp_feed_before, uint64_t since, uint64_t address, uint64_t bytes, int device, uint32_t ctx)
{
    cr_expect_eq(since, begun);
    note("(");
    note_address(address);
    note("of %lu device %d ctx %u) ", (unsigned long)bytes, device, ctx);
    return refusals ? refusals-- == 0 : true;
}

/* A line of the list; addresses in units. */
static void line(double from, double to, const char *rights, const char *name)
{
    size_t used = strlen(maps);
    snprintf(maps + used, sizeof(maps) - used, "%lx-%lx %s 00000000 00:00 0%s%s\n",
             (unsigned long)(from * (double)UNIT), (unsigned long)(to * (double)UNIT), rights,
             *name ? "                          " : " ", name);
}

/* In a process of its own, because the library looks once in its life. */
static bool look(void)
{
    struct {
        bool all;
        unsigned asked, opened, closed;
        size_t bytes;
    } is = {.bytes = 0};
    int ends[2], status;
    cr_assert_eq(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        calls[0] = '\0';
        asked = 0;
        is_virtual = true;
        is.all = gp_before_look(ask, has_numbers ? number : NULL);
        is_virtual = false;
        is.asked = asked, is.opened = opened, is.closed = closed, is.bytes = strlen(calls);
        bool written = write(ends[1], &is, sizeof(is)) == (ssize_t)sizeof(is) &&
                       write(ends[1], calls, is.bytes) == (ssize_t)is.bytes;
        _exit(written ? 0 : 1);
    }
    close(ends[1]);
    cr_assert_eq(read(ends[0], &is, sizeof(is)), sizeof(is));
    size_t have = 0;
    for (ssize_t n; have < is.bytes && (n = read(ends[0], calls + have, is.bytes - have)) > 0; have += (size_t)n) {
    }
    cr_assert_eq(have, is.bytes);
    calls[have] = '\0';
    close(ends[0]);
    cr_assert(waitpid(pid, &status, 0) == pid && status == 0);
    asked = is.asked;
    cr_expect_eq(is.closed, is.opened, "a descriptor is left");
    return is.all;
}

static void asks(const char *want)
{
    cr_expect(look());
    cr_expect_str_eq(calls, want, "%s, not %s", calls, want);
    maps[0] = '\0';
}

TestSuite(beforemaps, .timeout = 60);

/* ---- mappings ---------------------------------------------------------------------------------------------------- */

Test(beforemaps, rights_and_names)
{
    static const struct {
        const char *rights, *name;
        bool alone, beside; /* asked for: by itself; beside a driver's place */
    } kinds[] = {
        {"---p", "", true, true},
        {"r--p", "", false, false},
        {"-w-p", "", false, false},
        {"--xp", "", false, false},
        {"rw-p", "", false, false},
        {"---s", "", false, true},
        {"rw-s", "", false, true},
        {"rw-s", "/dev/shm/any", false, true},
        {"rw-p", "/usr/lib/libc.so.6", false, false},
        {"---p", "/usr/lib/libc.so.6", false, false},
        {"---p", "[stack guard]", false, false},
        {"rw-s", "/dev/nvidia0", true, true},
        {"rw-p", "/dev/nvidia-uvm", true, true},
        {"rw-p", "/dev/nvidi", false, false},
        {"rw-p", "[/dev/nvidia0]", false, false},
        {"rw-p", "/xdev/nvidia0", false, false},
    };
    for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        line(10, 11, kinds[i].rights, kinds[i].name);
        line(20, 21, "rw-p", "[heap]");
        asks(kinds[i].alone ? "10 " : "");
        line(10, 11, kinds[i].rights, kinds[i].name);
        line(11, 12, "---p", "");
        line(12, 13, kinds[i].rights, kinds[i].name);
        asks(kinds[i].beside ? "10 11 12 " : "11 ");
    }
}

/* A line that is none is left out, and the shortest that is one is not. */
Test(beforemaps, lines_that_are_none)
{
    strcpy(maps, "\nno line\n1400000 1600000 ---p 0 \n1400000-1600000\n1400000-1600000 ---p\n1400000-1600000---p 0\n"
                 "2800000-2a00000 ---p 0 00:00 0 \n3c00000-3e00000 ---p 0");
    asks("20 ");
}

/* A place without access has a unit at least; one of a device may be as small as any. */
Test(beforemaps, sizes)
{
    line(10, 11 - 1.0 / 512, "---p", "");
    line(20, 21, "---p", "");
    line(30, 31 + 1.0 / 512, "---p", "");
    line(40, 40 + 1.0 / 512, "rw-s", "/dev/nvidiactl");
    asks("20 30 31 40 ");
    line(10 + 0.5, 12, "---p", "");
    asks("10+1048576 11 ");
    line(10 + 0.5, 12 + 1.0 / 512, "---p", "");
    asks("10+1048576 11 12 ");
}

/* What touches a driver's place belongs to it, on either side and over several mappings; a gap ends it. */
Test(beforemaps, neighbours)
{
    line(1, 2, "---s", "");
    line(2, 3, "---s", "");
    line(3, 4, "---p", "");
    line(4, 5, "---s", "");
    line(6, 7, "---s", "");
    line(8, 9, "---s", "");
    line(9, 10, "rw-p", "");
    line(10, 11, "---p", "");
    asks("1 2 3 4 10 ");
    line(6, 7, "---s", "");
    line(8, 9, "---p", "");
    line(10, 11, "---s", "");
    asks("8 ");
}

/* Places that are none leave no trace; 1024 are looked at, and one more means that not all are. */
Test(beforemaps, as_many_places_as_there_is_room_for)
{
    for (unsigned more = 0; more < 3; more++) {
        maps[0] = '\0';
        for (unsigned i = 0; i < 1024 + (more > 1); i++) {
            line(10 * i, 10 * i + 1, "---s", "");
            line(10 * i + 5, 10 * i + 6, "---p", "");
        }
        if (more == 1)
            line(20000, 20001, "---s", ""); /* it is none */
        cr_expect_eq(look(), more < 1, "%u", more);
        cr_expect_eq(asked, 1024);
    }
}

/* Lines that are cut by a read, at every place; and a list that cannot be read to its end. */
Test(beforemaps, pieces)
{
    for (piece = 1; piece < 130; piece++) {
        line(10, 11, "---p", "");
        line(11, 12, "rw-p", "/usr/lib/x86_64-linux-gnu/libc.so.6");
        line(20, 22, "rw-s", "/dev/nvidia0");
        asks("10 20 21 ");
    }
    piece = 40;
    line(10, 11, "---p", "");
    line(20, 22, "rw-s", "/dev/nvidia0");
    fails_at = 40;
    cr_expect_not(look());
    fails_at = SIZE_MAX;
    for (refuse_at = 0; refuse_at < 2; refuse_at++)
        cr_expect_not(look(), "the list cannot be opened");
}

/* ---- allocations ------------------------------------------------------------------------------------------------- */

static void has(uint64_t address, uint64_t bytes, bool counts)
{
    rows[row_count++] = (struct gp_before_range){address, bytes, 3, (void *)(uintptr_t)6, counts};
}

Test(beforemaps, steps_over_allocations)
{
    has(10 * UNIT, UNIT, true);         /* to the end of its unit */
    has(11 * UNIT, 100, true);          /* then 512 by 512, while something is there */
    has(11 * UNIT + 512, 513, true);    /* next to it */
    has(12 * UNIT, 2 * UNIT + 1, true); /* over units */
    has(15 * UNIT, UNIT - 512, false);  /* managed */
    has(16 * UNIT - 512, 512, true);    /* up to the end */
    line(10, 11, "---p", "");
    line(15, 17, "---p", "");
    asks("10 (10 of 2097152 device 3 ctx 7) "
         "15 15+2096640 (15+2096640 of 512 device 3 ctx 7) 16 ");
    row_count = 0;
    /* Behind an allocation that ends within a unit every step of 512 is asked for, up to the next unit. */
    has(10 * UNIT, UNIT - 1536, true);
    line(10, 12, "---p", "");
    asks("10 (10 of 2095616 device 3 ctx 7) 10+2095616 10+2096128 10+2096640 11 ");
    row_count = 0;
    has(10 * UNIT, UNIT - 1535, true);
    line(10, 12, "---p", "");
    asks("10 (10 of 2095617 device 3 ctx 7) 10+2096128 10+2096640 11 ");
}

/* An answer is of use only if it covers the address; one without a context has no number. */
Test(beforemaps, odd_answers)
{
    static const struct {
        struct gp_before_range answer;
        const char *want;
    } cases[] = {
        {{0, 0, -1, NULL, false}, "10 11 "},
        {{10 * UNIT, 512, 3, NULL, true}, "10 (10 of 512 device 3 ctx 0) 10+512 "},
        {{10 * UNIT, 0, 3, NULL, true}, "10 11 "},
        {{10 * UNIT + 1, 512, 3, NULL, true}, "10 11 "},
        {{9 * UNIT, UNIT, 3, NULL, true}, "10 11 "},
        {{9 * UNIT, UNIT + 1, 3, (void *)1, true}, "10 (9 of 2097153 device 3 ctx 2) 10+512 "},
    };
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        odd = cases[i].answer;
        line(10, i == 0 || i > 1 ? 12 : 11, "---p", "");
        cr_expect(look());
        cr_expect(strncmp(calls, cases[i].want, strlen(cases[i].want)) == 0, "case %u: %.80s", i, calls);
        maps[0] = '\0';
    }
}

Test(beforemaps, without_numbers)
{
    has(10 * UNIT, UNIT, true);
    line(10, 11, "---p", "");
    has_numbers = false;
    cr_expect(look());
    cr_expect_str_eq(calls, "10 (10 of 2097152 device 3 ctx 0) ");
}

/* Asked again while memory is freed meanwhile, 16 times in all; then the next address. */
Test(beforemaps, answers_that_change)
{
    for (unsigned count = 0; count < 20; count++) {
        row_count = 0;
        maps[0] = '\0';
        has(10 * UNIT, UNIT, true);
        line(10, 11, "---p", "");
        refusals = count;
        cr_expect(look());
        cr_expect_eq(asked, count < 16 ? count + 1 : 16, "%u: %u", count, asked);
    }
    row_count = 0;
    has(10 * UNIT, UNIT, false); /* what does not count is not noted, and not asked for again */
    refusals = 3;
    cr_expect(look());
    cr_expect_str_eq(calls, "10 ");
}

/* ---- its end ----------------------------------------------------------------------------------------------------- */

Test(beforemaps, it_ends_with_the_second)
{
    line(10, 1000, "---p", "");
    for (unsigned long ns = 99999999; ns <= 100000001; ns++) {
        ask_takes_ns = ns;
        now_ns = 5;
        cr_expect_not(look());
        cr_expect_eq(asked, ns < 100000000 ? 11 : 10, "%lu: %u", ns, asked);
    }
    ask_takes_ns = 1010101; /* 990 units take 999999990 ns */
    cr_expect(look());
    cr_expect_eq(asked, 990);
}

Test(beforemaps, it_ends_where_the_driver_may_not_be_asked)
{
    line(10, 20, "---p", "");
    line(30, 40, "---p", "");
    has(10 * UNIT, UNIT, true);
    ask_at_most = 4;
    cr_expect_not(look());
    cr_expect_str_eq(calls, "10 (10 of 2097152 device 3 ctx 7) 11 12 13 14 ");
    ask_at_most = 20;
    cr_expect(look());
}
