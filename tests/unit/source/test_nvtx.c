/* SPDX-License-Identifier: MIT
 *
 * test_nvtx.c: the functions that NVTX calls, taken from the slots as its header gives them: which event each writes, what
 * becomes of names, nesting in several domains, and more ranges than have room.
 */
#include "account/feed/start.h"
#include "account/tap.h"
#include "base/thread.h"
#include "lib/accounts.h"
#include "lib/nvtxattributes.h"
#include "source/source.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <wchar.h>

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t number));

#define CHUNKS 8u
#define CUT    25u /* bytes of a name that an event has */

/* ---- NVTX's side ------------------------------------------------------------------------------------------------- */

static void *core[16], *core2[16];
static unsigned core_count = 16;

static int table_of(uint32_t module, void ****table, uint32_t *count)
{
    static void **slots[2][16];
    for (unsigned i = 0; i < 16; i++) {
        slots[0][i] = &core[i];
        slots[1][i] = i == 15 ? NULL : &core2[i];
    }
    *table = slots[module == 5];
    *count = core_count;
    return module == 1 || module == 5;
}

static struct {
    size_t bytes;
    int (*table_of)(uint32_t, void ****, uint32_t *);
} callbacks = {sizeof(callbacks), table_of};

static const void *export_table(uint32_t number)
{
    return number == 1 ? &callbacks : NULL;
}

static const void *export_nothing(uint32_t number)
{
    (void)number;
    return NULL;
}

static void start(void)
{
    accounts_start(CHUNKS, (struct gp_feed_setup){.map_limit = 1 << 16});
    cr_assert_eq(InitializeInjectionNvtx2(export_table), 1);
    gp_nvtx_start();
}

TestSuite(nvtx, .timeout = 120);

static uint64_t event_seen, chunk_states[CHUNKS];

static void event_skip(void)
{
    event_seen = gp_tap_events();
    for (unsigned i = 0; i < CHUNKS; i++)
        chunk_states[i] = accounts_chunks[i].state;
}

/* The one event that was written since the last call, or "". */
static const char *event(void)
{
    const char *name = "";
    cr_assert_leq(gp_tap_events() - event_seen, 1);
    for (unsigned i = 0; gp_tap_events() > event_seen && i < CHUNKS; i++)
        if (accounts_chunks[i].state != chunk_states[i] && GP_CHUNK_COUNT(accounts_chunks[i].state)) {
            const struct gp_wire_event *last = &accounts_chunks[i].events[GP_CHUNK_COUNT(accounts_chunks[i].state) - 1];
            cr_assert_eq(last->type, GP_EVENT_MARK);
            name = last->name;
        }
    event_skip();
    return name;
}

static struct attributes attributes_of(int32_t type, const void *message)
{
    return (struct attributes){.version = 2, .size = 48, .message_type = type, .message = message};
}

#define TEXT(_module, _number, ...)    ((int (*)(__VA_ARGS__))(_module)[_number])
#define RANGE(_module, _number, ...)   ((uint64_t(*)(__VA_ARGS__))(_module)[_number])
#define NOTHING(_module, _number, ...) ((void (*)(__VA_ARGS__))(_module)[_number])
#define HANDLE(_module, _number, ...)  ((const void *(*)(__VA_ARGS__))(_module)[_number])

/* ---- names ------------------------------------------------------------------------------------------------------- */

static void check_name(const wchar_t *wide, const char *narrow, const char *want)
{
    char event_want[64];
    struct attributes is;
    snprintf(event_want, sizeof(event_want), "nvtx.%s", want);
    NOTHING(core, 2, const char *)(narrow);
    cr_expect_str_eq(event(), event_want);
    NOTHING(core, 3, const wchar_t *)(wide);
    cr_expect_str_eq(event(), event_want);
    for (int form = 1; form <= 4; form++) {
        const void *string = form == 3 ? HANDLE(core2, 10, const void *, const char *)(NULL, narrow)
                                       : HANDLE(core2, 11, const void *, const wchar_t *)(NULL, wide);
        is = attributes_of(form == 4 ? 3 : form, form == 1   ? (const void *)narrow
                                                 : form == 2 ? (const void *)wide
                                                             : string);
        NOTHING(core, 1, const struct attributes *)(&is);
        cr_expect_str_eq(event(), event_want, "form %d", form);
        NOTHING(core2, 1, const void *, const struct attributes *)(NULL, &is);
        cr_expect_str_eq(event(), event_want, "form %d", form);
    }
}

Test(nvtx, names_of_every_form)
{
    start();
    check_name(L"step", "step", "step");
    check_name(L"", "", "");
    check_name(L"twenty-five bytes fit here", "twenty-five bytes fit here", "twenty-five bytes fit her");
    check_name(L"exactly twenty-five bytes", "exactly twenty-five bytes", "exactly twenty-five bytes");
    check_name(L"\x7f\x80\x7ff\x800\xffff\x10000\x10ffff",
               "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf",
               "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf");
    check_name(L"twenty-four bytes and on\xe9", "twenty-four bytes and on\xc3\xa9", "twenty-four bytes and on");
    check_name(L"twenty-two bytes are it\x20ac", "twenty-two bytes are it\xe2\x82\xac", "twenty-two bytes are it");
    NOTHING(core, 3, const wchar_t *)((const wchar_t[]){0xd800, 0xdfff, 0x110000, 0xd7ff, 0xe000, 0});
    cr_expect_str_eq(event(), "nvtx.???\xed\x9f\xbf\xee\x80\x80");
    check_name(NULL, NULL, "?");
    NOTHING(core, 1, const struct attributes *)(NULL);
    cr_expect_str_eq(event(), "nvtx.?");
    struct attributes is = attributes_of(1, "small");
    is.size = 47;
    NOTHING(core, 1, const struct attributes *)(&is);
    cr_expect_str_eq(event(), "nvtx.?");
    for (int32_t type = 0; type < 5; type += 4) {
        is = attributes_of(type, "unknown");
        NOTHING(core, 1, const struct attributes *)(&is);
        cr_expect_str_eq(event(), "nvtx.?");
    }
    const char *string = HANDLE(core2, 10, const void *, const char *)(NULL, "kept");
    cr_assert_eq(HANDLE(core2, 10, const void *, const char *)(NULL, "kept"), string);
    static const int64_t beside[] = {1, -1, 1 << 20, -(1 << 20), 1ll << 40};
    for (unsigned i = 0; i < 5; i++) {
        is = attributes_of(3, string + beside[i]); /* of another tool */
        NOTHING(core, 1, const struct attributes *)(&is);
        cr_expect_str_eq(event(), "nvtx.?");
    }
}

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

/* The innermost range of each domain is the one that ends. */
Test(nvtx, ranges_nest_in_their_domain)
{
    enum { DOMAINS = 3, DEPTH = 12 };
    const void *domains[DOMAINS] = {NULL};
    unsigned stack[DOMAINS][DEPTH], depth[DOMAINS] = {0};
    uint64_t ids[8] = {0}, older = 0;
    char name[32], want[40];
    start();
    for (unsigned i = 1; i < DOMAINS; i++)
        domains[i] = HANDLE(core2, 12, const char *)("domain");
    srand(20251123);
    for (unsigned step = 0; step < 20000; step++) {
        unsigned domain = (unsigned)rand() % DOMAINS, slot = (unsigned)rand() % 8, what = (unsigned)rand() % 4;
        bool is_plain = domain == 0 && rand() % 2;
        want[0] = '\0';
        if (what == 0 && depth[domain] < DEPTH) {
            snprintf(name, sizeof(name), "step %u", step);
            snprintf(want, sizeof(want), "nvtx:%s", name);
            stack[domain][depth[domain]++] = step;
            struct attributes is = attributes_of(1, name);
            int level = is_plain ? TEXT(core, 9, const char *)(name)
                                 : TEXT(core2, 4, const void *, const struct attributes *)(domains[domain], &is);
            cr_assert_eq(level, -2);
        } else if (what == 1) {
            if (depth[domain])
                snprintf(want, sizeof(want), "/nvtx:step %u", stack[domain][--depth[domain]]);
            cr_assert_eq(is_plain ? TEXT(core, 11, void)() : TEXT(core2, 5, const void *)(domains[domain]), -2);
        } else if (what == 2 && !ids[slot]) {
            snprintf(name, sizeof(name), "slot %u", slot);
            snprintf(want, sizeof(want), "nvtx:%s", name);
            ids[slot] = RANGE(core, 5, const char *)(name);
            cr_assert_neq(ids[slot], 0);
        } else if (what == 3 && ids[slot]) {
            snprintf(want, sizeof(want), "/nvtx:slot %u", slot);
            NOTHING(core, 7, uint64_t)(ids[slot]);
            older = ids[slot];
            ids[slot] = 0;
        } else {
            static const uint64_t none[] = {0, 1, 0xffff, 16385, 1ull << 16, UINT64_MAX};
            unsigned i = (unsigned)rand() % 7;
            NOTHING(core, 7, uint64_t)(i < 6 ? none[i] : older); /* ended twice, or never begun */
        }
        cr_assert_str_eq(event(), want, "step %u, what %u", step, what);
    }
}

/* A range around each call of CUB or of NCCL is no step of the program. */
Test(nvtx, ranges_of_nvidias_libraries_are_no_marks)
{
    struct attributes is = attributes_of(1, "cub::DeviceScan::InclusiveSum");
    start();
    for (unsigned i = 0; i < 3; i++) {
        const char *names[] = {"CCCL", "NCCL", "CCCL2"};
        const void *domain = HANDLE(core2, 12, const char *)(names[i]);
        bool kept = i == 2;
        event_skip();
        cr_expect_eq(TEXT(core2, 4, const void *, const struct attributes *)(domain, &is), -2);
        cr_expect_str_eq(event(), kept ? "nvtx:cub::DeviceScan::Inclusiv" : "");
        cr_expect_eq(TEXT(core2, 5, const void *)(domain), -2);
        cr_expect_str_eq(event(), kept ? "/nvtx:cub::DeviceScan::Inclusiv" : "");
        NOTHING(core2, 1, const void *, const struct attributes *)(domain, &is);
        cr_expect_str_eq(event(), kept ? "nvtx.cub::DeviceScan::Inclusiv" : "");
        uint64_t id = RANGE(core2, 2, const void *, const struct attributes *)(domain, &is);
        cr_expect_str_eq(event(), kept ? "nvtx:cub::DeviceScan::Inclusiv" : "");
        NOTHING(core2, 3, const void *, uint64_t)(domain, id);
        cr_expect_str_eq(event(), kept ? "/nvtx:cub::DeviceScan::Inclusiv" : "");
    }
}

/* A thread keeps some names; of the others begin and end are known, and as many as have a place in the count. */
Test(nvtx, more_ranges_than_have_room)
{
    unsigned kept = 0, unkept = 0;
    char name[32], want[40];
    start();
    for (unsigned i = 0; i < 64 + 65535 + 10; i++) {
        snprintf(name, sizeof(name), "range %u", i);
        snprintf(want, sizeof(want), "nvtx:%s", name);
        TEXT(core, 9, const char *)(name);
        cr_assert_str_eq(event(), want);
    }
    const char *last;
    for (;;) {
        TEXT(core, 11, void)();
        last = event();
        if (strcmp(last, "/nvtx:") != 0)
            break;
        unkept++;
    }
    cr_assert_eq(unkept, 65535);
    for (; *last; last = event(), kept++) {
        snprintf(want, sizeof(want), "/nvtx:range %u", 63 - kept);
        cr_assert_str_eq(last, want);
        TEXT(core, 11, void)();
    }
    cr_assert_eq(kept, 64);
}

struct dying {
    unsigned pushes, starts; /* ranges that it leaves open */
    uint64_t ids[64];
    uint32_t number, tid;
};

static void *dying_main(void *arg)
{
    struct dying *thread = arg;
    for (unsigned i = 0; i < thread->pushes; i++)
        TEXT(core, 9, const char *)("pushed");
    for (unsigned i = 0; i < thread->starts; i++)
        thread->ids[i] = RANGE(core, 5, const char *)("started");
    thread->number = gp_thread.number;
    thread->tid = gp_thread.tid;
    return NULL;
}

/* It leaves its records, and this thread goes on at the same place of the table. */
static void dying_run(struct dying *thread)
{
    pthread_t id;
    cr_assert_eq(pthread_create(&id, NULL, dying_main, thread), 0);
    cr_assert_eq(pthread_join(id, NULL), 0);
    while (syscall(SYS_tgkill, getpid(), thread->tid, 0) == 0)
        sched_yield(); /* the kernel is not done with it yet */
    event_skip();
    gp_thread.number = thread->number;
    errno = 4711;
}

static unsigned kept_here(unsigned pushes)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < pushes; i++) {
        TEXT(core, 9, const char *)("mine");
        cr_assert_str_eq(event(), "nvtx:mine");
    }
    for (unsigned i = 0; i < pushes; i++) {
        TEXT(core, 11, void)();
        const char *name = event();
        cr_assert(strcmp(name, "/nvtx:") == 0 || strcmp(name, "/nvtx:mine") == 0, "%s", name);
        kept += name[6] != '\0';
    }
    cr_assert_eq(errno, 4711);
    return kept;
}

/* What a thread that has ended pushed makes room, again and again; what it started can still be ended, by any thread. */
Test(nvtx, threads_that_end_leave_room)
{
    struct dying first = {.pushes = 64}, second = {.pushes = 40, .starts = 24};
    start();
    for (unsigned i = 0; i < 3; i++) {
        dying_run(&first);
        cr_assert_eq(kept_here(64), 64, "round %u", i);
    }
    dying_run(&first);
    uint64_t ids[64];
    for (unsigned i = 0; i < 64; i++) { /* a record that was reclaimed belongs to no thread */
        ids[i] = RANGE(core, 5, const char *)("mine");
        cr_assert_str_eq(event(), "nvtx:mine");
    }
    for (unsigned i = 0; i < 64; i++) {
        NOTHING(core, 7, uint64_t)(ids[i]);
        cr_assert_str_eq(event(), "/nvtx:mine");
        NOTHING(core, 7, uint64_t)(ids[i]);
        cr_assert_str_eq(event(), "", "ended twice");
    }
    dying_run(&second);
    cr_assert_eq(kept_here(64), 40, "started ranges stay");
    for (unsigned i = 0; i < 24; i++) {
        NOTHING(core, 7, uint64_t)(second.ids[i]);
        cr_assert_str_eq(event(), "/nvtx:started");
    }
    cr_assert_eq(kept_here(64), 64);
}

/* Without room a started range has no name at its end; one of a thread that lives keeps its room. */
Test(nvtx, ranges_of_living_threads_stay)
{
    start();
    errno = 4711;
    for (unsigned i = 0; i < 64; i++) {
        TEXT(core, 9, const char *)("mine");
        event();
    }
    uint64_t id = RANGE(core, 5, const char *)("more");
    cr_assert_str_eq(event(), "nvtx:more");
    NOTHING(core, 7, uint64_t)(id);
    cr_assert_str_eq(event(), "/nvtx:");
    for (unsigned i = 0; i < 64; i++) {
        TEXT(core, 11, void)();
        cr_assert_str_eq(event(), "/nvtx:mine");
    }
    cr_assert_eq(errno, 4711);
}

/* ---- the door ---------------------------------------------------------------------------------------------------- */

Test(nvtx, only_slots_that_are_there_are_filled)
{
    cr_assert_eq(InitializeInjectionNvtx2(NULL), 0);
    cr_assert_eq(InitializeInjectionNvtx2(export_nothing), 0);
    callbacks.bytes--;
    cr_assert_eq(InitializeInjectionNvtx2(export_table), 0);
    callbacks.bytes++;
    callbacks.table_of = NULL;
    cr_assert_eq(InitializeInjectionNvtx2(export_table), 0);
    callbacks.table_of = table_of;
    core_count = 11; /* a header of fewer functions */
    cr_assert_eq(InitializeInjectionNvtx2(export_table), 1);
    for (unsigned i = 0; i < 16; i++) {
        cr_assert_eq(core[i] != NULL, i >= 1 && i <= 10, "slot %u", i);
        cr_assert_eq(core2[i] != NULL, (i >= 1 && i <= 5) || i == 10, "slot %u", i);
    }
    NOTHING(core, 2, const char *)("too early"); /* nothing has been started */
    cr_assert_eq(RANGE(core, 5, const char *)("too early"), 0);
}
