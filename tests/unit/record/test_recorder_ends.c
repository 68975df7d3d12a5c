/* SPDX-License-Identifier: MIT
 *
 * test_recorder_ends.c: which events the recorder (core/record/recorder.c) has in the end, and how it counts the others: with
 * a deadline, a baseline, a ring that was overwritten, and the file of a recorder that was killed. And the modules that it
 * looks for.
 */
#include "record/recorder.h"
#include "recorder_fixture.h"
#include <fcntl.h>

TestSuite(recorder_ends, .timeout = 120);

/* The line of the last counts, from `tried` to the end of the events that were dropped. */
#define EXPECT_END(_text)                                                                                              \
    do {                                                                                                               \
        char *is_ = recdump_of(test_path, "END"), *from_ = is_;                                                        \
        for (unsigned words_ = 0; words_ < 6; words_++)                                                                \
            from_ = strchr(from_, ' ') + 1;                                                                            \
        strchr(from_, ']')[1] = '\0';                                                                                  \
        cr_expect_str_eq(from_, _text, "%s", is_);                                                                     \
        free(is_);                                                                                                     \
    } while (0)

static unsigned test_asked, test_patience;

static bool test_late(void *arg)
{
    (void)arg;
    return ++test_asked > test_patience;
}

/* Of what a deadline cuts off each event is counted, wherever it passes. */
Test(recorder_ends, a_deadline_that_passes_anywhere)
{
    const uint64_t events = 5000;
    unsigned asked = 1000, part = 0;
    for (unsigned patience = 0; patience <= asked; patience++) {
        struct gp_recorder *r;
        recimage_new();
        struct gp_recorder_setup setup = recimage_setup();
        setup.late = test_late;
        test_now = 8 * SECOND;
        test_patience = 1000;
        r = test_begin(&setup);
        for (unsigned i = 0; i < events; i++)
            recimage_event(test_now, 1, 0, 0);
        test_asked = 0;
        test_patience = patience;
        struct gp_recorder_stats stats = test_end(r, GP_END_PROCESS);
        asked = patience == 0 ? 60 : test_asked <= patience ? test_asked : asked;
        cr_expect_eq(stats.recorded + stats.lost, events);
        cr_expect_eq(stats.waiting, 0);
        cr_expect(stats.recorded == events || stats.recorded % 1024 == 0 || stats.recorded % 63 == 0);
        part += stats.recorded > 0 && stats.recorded < events;
        char want[64];
        snprintf(want, sizeof(want), "5000 %lu [ 0 0 0 0 %lu ]", (unsigned long)stats.recorded,
                 (unsigned long)stats.lost);
        EXPECT_END(want);
        test_done();
    }
    cr_expect_geq(part, 4, "at 1024, 2048, 3072 and 4096");
}

/* Events from before the start of the recording are in the baseline already. */
Test(recorder_ends, late_events_and_the_baseline)
{
    for (int polls = 0; polls < 2; polls++) {
        recimage_new();
        for (unsigned i = 0; i < 70; i++)
            recimage_event(7 * SECOND, 1, 0, 0);
        recimage.header.lost[GP_LOST_RING] = 11;
        struct gp_recorder_setup setup = recimage_setup();
        setup.from_start = false;
        test_now = 8 * SECOND;
        struct gp_recorder *r = test_begin(&setup);
        struct gp_wire_event live = {
            .type = GP_EVENT_ALLOC, .time_ns = 3, .kind = GP_KIND_LINEAR, .bytes = 4, .tid = 9};
        gp_recorder_baseline(r, &live);
        live.time_ns = 1;
        gp_recorder_baseline(r, &live);
        recimage_event(test_now - 1, 1, 0, 0);
        recimage_event(test_now - 2, 1, 0, 0);
        recimage_event(test_now, 1, 0, 0);
        recimage_event(test_now + 1, 1, 0, 0);
        recimage.header.lost[GP_LOST_RING] = 14;
        test_now += 10;
        if (polls)
            gp_recorder_poll(r);
        struct gp_recorder_stats stats = test_end(r, GP_END_STOPPED);
        cr_expect(stats.recorded == 2 && stats.lost == 3 && stats.waiting == 0);
        EXPECT_END("5 2 [ 3 0 0 0 0 ]");
        char *all = recdump(test_path), *base = strstr(all, "BASELINE x2 3 1 3\n");
        cr_expect(base && base < strstr(all, "EVENTS x2 8000000000 8000000000 8000000001\n"), "%s", all);
        cr_expect_null(strstr(base + 1, "BASELINE"));
        cr_expect_not_null(strstr(all, "PROCESS x1 | 77 1 12080 0 8000000000 1700000008123456789 "), "%s", all);
        free(all);
        test_done();
    }
}

/* Events that are overwritten, damaged or find the ring full are dropped for these reasons. */
Test(recorder_ends, events_that_were_not_read_are_counted)
{
    for (int from_start = 0; from_start < 2; from_start++) {
        recimage_new();
        recimage.header.chunk_count = 2;
        for (unsigned i = 0; i < 200; i++)
            recimage_event(1, 1, 0, 0); /* 126 of them are overwritten */
        struct gp_recorder_setup setup = recimage_setup();
        setup.from_start = from_start;
        test_now = 8 * SECOND;
        struct gp_recorder *r = test_begin(&setup);
        recimage.ring[0].events[5].type = GP_EVENT_TYPES;
        gp_recorder_poll(r);
        for (unsigned i = 0; i < 189 + 5; i++) /* up to turn 7 and its 16th event: turns 5 and 4's rest are lost */
            recimage_event(test_now, 1, 0, 0);
        recimage.header.lost[GP_LOST_RING] = 6;
        test_end(r, GP_END_PROCESS);
        if (from_start) /* 73 + 79; 126 + 115; one damaged */
            EXPECT_END("400 152 [ 6 241 1 0 0 ]");
        else
            EXPECT_END("200 79 [ 6 115 0 0 0 ]");
        test_done();
    }
}

/* ---- another recorder's file ------------------------------------------------------------------------------------- */

static uint64_t test_in_file;

static bool test_is_in_file(void *arg, const struct gp_wire_event *event)
{
    (void)arg;
    return event->seq < test_in_file;
}

/* The file has the first events; the ring of two chunks has the last 74 of 200. */
Test(recorder_ends, the_file_of_a_killed_recorder_is_ended)
{
    static const struct {
        uint64_t in_file, file_events;
        const char *end;
    } cases[] = {{150, 150, "200 200 [ 0 0 0 0 0 ]"},
                 {126, 126, "200 200 [ 0 0 0 0 0 ]"},
                 {100, 100, "200 174 [ 0 26 0 0 0 ]"},
                 {0, 0, "200 74 [ 0 126 0 0 0 ]"},
                 {200, 200, "200 200 [ 0 0 0 0 0 ]"}};
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gp_recorder *killed, *r;
        recimage_new();
        recimage.header.chunk_count = 2;
        recimage_device(0, 100);
        struct gp_recorder_setup setup = recimage_setup();
        recimage_proc("comm", "alive", 5);
        test_now = 8 * SECOND;
        killed = test_begin(&setup);
        for (unsigned k = 0; k < 200; k++)
            recimage_event(test_now, 1, 0, 0);
        test_in_file = cases[i].in_file;
        setup.in_file = test_is_in_file;
        setup.file_events = cases[i].file_events;
        cr_assert_eq(gp_recorder_new(&r, open(test_path, O_RDWR), &setup), 0);
        test_now += SECOND;
        struct gp_recorder_stats stats = test_end(r, GP_END_PROCESS);
        cr_expect_eq(stats.waiting, 0);
        EXPECT_END(cases[i].end);
        char *all = recdump(test_path);
        cr_expect_null(strstr(all, " bad"), "%s", all);
        cr_expect_null(strstr(strstr(all, "PROCESS") + 1, "PROCESS"), "%s", all);
        cr_expect(!strstr(all, "THREADS") && !strstr(all, "SAMPLES") && !strstr(all, "INDEX"), "%s", all);
        const char *device = strstr(all, "\"GPU 0\" 1000 0 "); /* not the final numbers */
        cr_expect_not_null(device, "%s", all);
        free(all);
        test_end(killed, GP_END_PROCESS);
        test_done();
    }
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

static unsigned test_opened;

static int test_open(const char *proc, const struct gp_vma *file)
{
    (void)proc, (void)file;
    test_opened++;
    return -1;
}

#define LINE_A "1000-3000 r-xp 00000000 08:01 77 /lib/a.so\n"
#define LINE_B "5000-6000 r-xp 00002000 08:01 78 /lib/b.so\n"
#define LINE_C "5000-6000 r-xp 00002000 08:01 79 /lib/c.so\n"
#define LINE_D "5000-7000 r-xp 00002000 08:01 79 /lib/c.so\n"

/* The maps are read after a frame that is in no known module, at most once a second and at the end, and what is new of them
 * is written. */
Test(recorder_ends, modules_of_frames)
{
    static const struct {
        uint64_t pc, step; /* the frame of the round; time to the next one */
        const char *maps, *blocks;
    } rounds[] = {
        {0, SECOND, LINE_A, ""},
        {0x2fff, 2 * SECOND, LINE_A, "MODULES x1 | 4096 8192 0 \"/lib/a.so\" \"\"\n"},
        {0x1000, 2 * SECOND, LINE_A LINE_B, ""}, /* it is known */
        {0x5000, SECOND - 1, LINE_A LINE_B, "MODULES x1 | 20480 4096 8192 \"/lib/b.so\" \"\"\n"},
        {0x9000, 1, LINE_A LINE_C, ""},                                                      /* too early */
        {0, 2 * SECOND, LINE_A LINE_C, "MODULES x1 | 20480 4096 8192 \"/lib/c.so\" \"\"\n"}, /* for the frame before */
        {0x6800, 2 * SECOND, LINE_A LINE_D, "MODULES x1 | 20480 8192 8192 \"/lib/c.so\" \"\"\n"},
        {0xa000, 2 * SECOND, LINE_A LINE_D, ""},
        {0xa000, 1, "0800-3000 r-xp 00000000 08:01 77 /lib/a.so\n", "MODULES x1 | 2048 10240 0 \"/lib/a.so\" \"\"\n"},
        {0x5100, 0, LINE_A LINE_B, ""}, /* too early; the end looks */
    };
    static char want[1024];
    recimage_new();
    struct gp_recorder_setup setup = recimage_setup();
    setup.open_module = test_open;
    test_now = 8 * SECOND;
    struct gp_recorder *r = test_begin(&setup);
    for (unsigned i = 0; i < sizeof(rounds) / sizeof(rounds[0]); i++) {
        recimage_proc("maps", rounds[i].maps, strlen(rounds[i].maps));
        recimage_python("a frame of Python has no address", "", (uint32_t)i);
        if (rounds[i].pc)
            recimage_native(rounds[i].pc);
        recimage_event(test_now, 1, 0, 0);
        gp_recorder_poll(r);
        strcat(want, rounds[i].blocks);
        char *is = recdump_of(test_path, "MODULES");
        cr_expect_str_eq(is, want, "round %u: %s", i, is);
        free(is);
        test_now += rounds[i].step;
    }
    cr_expect_gt(test_opened, 4);
    test_end(r, GP_END_PROCESS);
    strcat(want, "MODULES x2 | 4096 8192 0 \"/lib/a.so\" \"\" | 20480 4096 8192 \"/lib/b.so\" \"\"\n");
    char *is = recdump_of(test_path, "MODULES");
    cr_expect_str_eq(is, want, "the end: %s", is);
    free(is);
    test_done();
}
