/* SPDX-License-Identifier: MIT
 *
 * test_recorder.c: what the recorder (core/record/recorder.c) writes of a session in memory, at which times of a clock
 * that the test sets, compared block by block; and that after any copy, write or mapping that fails, the next round
 * writes what is missing.
 */
#include "record/recorder.h"
#include "recorder_fixture.h"
#include <inttypes.h>
#include <sys/utsname.h>

TestSuite(recorder, .timeout = 120);

/* ---- what is written --------------------------------------------------------------------------------------------- */

static void test_measure(void *arg, const char *uuid, int64_t *used_bytes, int64_t *process_bytes)
{
    cr_assert_eq(strncmp(uuid, "GPU-", 4), 0);
    cr_assert(*used_bytes == -1 && *process_bytes == -1);
    *used_bytes = 1000 + (*(unsigned *)arg)++;
    *process_bytes = 2000;
}

Test(recorder, everything_of_a_session)
{
    struct utsname host;
    unsigned measured = 0;
    char want[512];
    recimage_new();
    recimage_device(0, 5000);
    recimage_device(63, 7000);
    recimage_device(GP_WIRE_HOST, 300);
    recimage.header.lost[GP_LOST_MAP] = 9;
    recimage.header.lost[GP_LOST_RING] = 4;
    uint32_t frame = recimage_python("step", "train.py", 9);
    recimage_native(0x1234);
    recimage_site(frame, 2);
    recimage.sites.rows[1].device = 63;
    recimage.sites.rows[1].peak_seq = recimage.sites.head.devices[63].peak_seq = 6;
    recimage_site(frame, 1);
    recimage.sites.rows[2].peak_seq = 5;
    recimage_event(6 * SECOND, 501, 1, 0);
    recimage_event(6 * SECOND + 5, 502, 2, 63);
    struct gp_recorder_setup setup = recimage_setup();
    setup.rank = (struct gp_rank){3, 1, 8};
    setup.measure = test_measure;
    setup.arg = &measured;
    recimage_proc("comm", "python3\n", 8);
    recimage_proc("cmdline", "python3\0train.py\0\0", 18);
    recimage_proc("task/501/comm", "main\n\n", 6);
    test_now = 7 * SECOND;
    struct gp_recorder *r = test_begin(&setup);
    test_now += 5 * MS;
    cr_assert_eq(gp_recorder_poll(r), 2);
    recimage_event(test_now, 502, 0, 0);
    test_now += 7 * MS;
    struct gp_recorder_stats stats = test_end(r, GP_END_PROCESS);
    cr_assert(stats.recorded == 3 && stats.lost == 4 && stats.waiting == 0 && !stats.error && !stats.dead);
    EXPECT("head", "head 1.6 pid 77 at 1700000005123456789 session 000102030405060708090a0b0c0d0e0f\n");
    uname(&host);
    snprintf(
        want, sizeof(want),
        "PROCESS x1 | 77 1 12080 1 5000000000 1700000005123456789 \"python3\" \"python3 train.py\" \"%s\" \"caching\" "
        "3 1 8 1\n",
        host.nodename);
    EXPECT("PROCESS", want);
    EXPECT("STRINGS", "STRINGS x14 0 \"step\\0train.py\\0\"\n");
    EXPECT("FRAMES", "FRAMES x2 0 | 2 0 5 9 | 1 4660\n");
    EXPECT("SITES", "SITES x3 0 | 0 0 0 0 0 | 0 2 1 63 1 | 0 1 1 0 0\n");
    EXPECT("SITE_NUMBERS", "SITE_NUMBERS x3 0 | 0 0 0 0 0 0 | 101 201 301 401 501 601 | 102 202 302 102 502 602\n");
    EXPECT("THREADS", "THREADS x2 | 501 \"main\" | 502 \"\"\n");
    EXPECT("EVENTS", "EVENTS x2 6000000000 6000000000 6000000005\nEVENTS x1 7005000000 7005000000 7005000000\n");
    EXPECT("SAMPLES",
           "SAMPLES x3 | 7005000000 0 5000 5001 5002 5003 1000 2000 | 7005000000 63 7000 7001 7002 7003 1001 "
           "2000 | 7005000000 64 300 301 302 303 -1 -1\n"
           "SAMPLES x3 | 7012000000 0 5000 5001 5002 5003 1002 2000 | 7012000000 63 7000 7001 7002 7003 1003 "
           "2000 | 7012000000 64 300 301 302 303 -1 -1\n");
    EXPECT("COUNTS", "COUNTS x1 | 0 0 7005000000 6 2 [ 4 0 0 0 0 ] [ 4 9 0 0 0 0 0 0 0 0 0 0 0 0 0 0 ] | 0 0 0\n");
    EXPECT("END", "END x1 | 1 0 7012000000 7 3 [ 4 0 0 0 0 ] [ 4 9 0 0 0 0 0 0 0 0 0 0 0 0 0 0 ] | 0 0 0\n");
    char *devices = recdump_of(test_path, "DEVICES"), *second = strchr(devices, '\n') + 1;
    cr_expect_eq(
        strncmp(devices, "DEVICES x3 | 0 2 \"GPU-01020304-0506-0708-090a-0b0c0d0e0f10\" \"GPU 0\" 50000 0 ", 76), 0,
        "%s", devices);
    cr_expect_not_null(strstr(devices, " | 64 -1 \"\" \"GPU 64\" 3000 0 "), "%s", devices);
    cr_expect_not_null(strstr(second, " | 63 65 "), "%s", second);
    cr_expect_not_null(strstr(second, "\" \"GPU 63\" 70000 1 "), "%s", second);
    free(devices);
    test_done();
}

/* ---- when it is written ------------------------------------------------------------------------------------------ */

/* The times of the blocks of counts, which end a round. */
static unsigned test_rounds(uint64_t *times, unsigned most)
{
    char *text = recdump_of(test_path, "COUNTS");
    unsigned count = 0;
    for (char *line = text; *line && count < most; line = strchr(line, '\n') + 1)
        cr_assert_eq(sscanf(line, "COUNTS x1 | 0 0 %" SCNu64, &times[count++]), 1);
    free(text);
    return count;
}

/* The first events are written at once, and then the time to the next round is half of what has passed, from 20 ms to a
 * second. */
Test(recorder, rounds_become_rarer)
{
    static uint64_t times[400], want[400];
    unsigned expected = 0;
    recimage_new();
    struct gp_recorder *r = test_started();
    cr_assert_eq(gp_recorder_poll(r), 0);
    test_now += 30 * MS;
    uint64_t start = test_now, next = start;
    for (; test_now < start + 5 * SECOND; test_now += MS) {
        recimage_event(test_now, 1, 0, 0);
        cr_assert_eq(gp_recorder_poll(r), 1);
        if (test_now < next)
            continue;
        uint64_t half = (test_now - start) / 2;
        next = test_now + (half < 20 * MS ? 20 * MS : half > SECOND ? SECOND : half);
        want[expected++] = test_now;
    }
    test_end(r, GP_END_STOPPED);
    unsigned count = test_rounds(times, 400);
    cr_assert_eq(count, expected);
    cr_expect_arr_eq(times, want, count * sizeof(want[0]));
    test_done();
}

static unsigned test_refreshed;

static void test_refresh(void *arg)
{
    (void)arg;
    test_refreshed++;
}

/* An idle process has one round in ten seconds, which writes the rows of all devices; where a device is measured, samples
 * come each second. */
Test(recorder, an_idle_process_is_sampled_rarely)
{
    uint64_t times[64];
    for (int measures = 0; measures < 2; measures++) {
        unsigned arg = 0;
        recimage_new();
        recimage_device(0, 5000);
        struct gp_recorder_setup setup = recimage_setup();
        setup.refresh = test_refresh;
        setup.measure = measures ? test_measure : NULL;
        setup.arg = &arg;
        test_refreshed = 0;
        test_now = 8 * SECOND;
        struct gp_recorder *r = test_begin(&setup);
        recimage_event(test_now, 1, 0, 0);
        for (unsigned i = 0; i <= 260; i++, test_now += 100 * MS)
            gp_recorder_poll(r);
        test_now -= 100 * MS;
        test_end(r, GP_END_PROCESS);
        unsigned count = test_rounds(times, 64), devices = 0;
        char *text = recdump_of(test_path, "DEVICES");
        for (char *line = text; (line = strchr(line, '\n')); line++)
            devices++;
        free(text);
        cr_expect_eq(test_refreshed, count + 1);
        cr_expect_eq(devices, 4, "%u", devices); /* at 0, 10 and 20 s, and at the end */
        if (!measures)
            cr_expect(count == 3 && times[0] == 8 * SECOND && times[1] - 18 * SECOND < SECOND &&
                          times[2] - 28 * SECOND < 2 * SECOND,
                      "%u rounds: %" PRIu64 " %" PRIu64, count, times[1], times[2]);
        else
            cr_expect_gt(count, 26);
        test_done();
    }
}

/* A recording that begins later has its first round even if nothing happens. */
Test(recorder, the_first_round_of_a_late_recording_is_not_idle)
{
    uint64_t times[4];
    recimage_new();
    recimage_event(6 * SECOND, 1, 0, 0);
    struct gp_recorder_setup setup = recimage_setup();
    setup.from_start = false;
    test_now = 8 * SECOND;
    struct gp_recorder *r = test_begin(&setup);
    cr_expect_eq(gp_recorder_poll(r), 0);
    cr_expect_eq(test_rounds(times, 4), 1);
    test_now += SECOND;
    gp_recorder_poll(r);
    cr_expect_eq(test_rounds(times, 4), 1, "it is idle now");
    test_end(r, GP_END_PROCESS);
    EXPECT("head", "head 1.6 pid 77 at 1700000008123456789 session 000102030405060708090a0b0c0d0e0f\n");
    test_done();
}

/* A start that the clock has not reached yet does not turn the wall clock back. */
Test(recorder, the_wall_clock_of_the_start)
{
    recimage_new();
    recimage.header.start_ns = 9 * SECOND;
    struct gp_recorder_setup setup = recimage_setup();
    test_now = 8 * SECOND;
    test_end(test_begin(&setup), GP_END_PROCESS);
    EXPECT("head", "head 1.6 pid 77 at 1700000008123456789 session 000102030405060708090a0b0c0d0e0f\n");
    test_done();
}

/* The process is written again when its source, driver or allocator changes, and with the names that it had. */
Test(recorder, a_changed_process_is_written_again)
{
    recimage_new();
    struct gp_recorder_setup setup = recimage_setup();
    recimage_proc("comm", "first\n", 6);
    recimage_proc("cmdline", "a\0b", 3);
    test_now = 8 * SECOND;
    struct gp_recorder *r = test_begin(&setup);
    recimage_proc("comm", "", 0);
    recimage_proc("cmdline", "", 0);
    for (unsigned i = 0; i < 5; i++, test_now += 2 * SECOND) {
        if (i == 1)
            recimage.header.source = GP_SOURCE_HOOKS;
        if (i == 2)
            recimage.header.driver_version++;
        if (i == 3)
            memset(recimage.header.allocator, 'x', sizeof(recimage.header.allocator));
        recimage_event(test_now, 1, 0, 0);
        gp_recorder_poll(r);
    }
    test_end(r, GP_END_PROCESS);
    char *text = recdump_of(test_path, "PROCESS");
    const char *at = text;
    static const char *const begins[] = {" 1 12080 ", " 2 12080 ", " 2 12081 ", " 2 12081 "};
    for (unsigned i = 0; i < 4; i++, at = strchr(at, '\n') + 1) {
        cr_assert_eq(strncmp(at + strlen("PROCESS x1 | 77"), begins[i], strlen(begins[i])), 0, "%s", at);
        const char *names = strstr(at, "\"first\" \"a b\" ");
        cr_assert(names && names < strchr(at, '\n'), "%s", at);
        const char *allocator =
            i == 3 ? "\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\" -1 -1 -1 1\n" : "\"caching\" -1 -1 -1 1\n";
        const char *found = strstr(at, allocator);
        cr_assert(found && found < strchr(at, '\n'), "%s", at);
    }
    cr_assert_str_eq(at, "");
    free(text);
    test_done();
}

/* ---- threads, devices -------------------------------------------------------------------------------------------- */

/* Each thread once, whatever its number, up to the 16384 that the table takes. */
Test(recorder, every_thread_is_named_once)
{
    static uint8_t seen[20001];
    unsigned count = 0;
    recimage_new();
    struct gp_recorder *r = test_started();
    for (uint32_t round = 0; round < 21; round++, test_now += 2 * SECOND) {
        for (uint32_t i = 0; i < 1000; i++) { /* the last round repeats the first one */
            uint32_t tid = round % 20 * 1000 + i;
            recimage_event(test_now, tid, 0, 0);
            recimage_event(test_now, tid, 0, 0);
            recimage_event(test_now, tid / 2, 0, 0);
        }
        cr_assert_eq(gp_recorder_poll(r), 3000);
    }
    test_end(r, GP_END_PROCESS);
    char *text = recdump_of(test_path, "THREADS");
    for (char *at = text; (at = strchr(at, '|')); at++, count++) {
        unsigned tid = (unsigned)strtoul(at + 1, NULL, 10);
        cr_assert(tid && tid <= 20000 && !seen[tid]++, "%u", tid);
    }
    cr_expect_eq(count, 16384);
    cr_expect(seen[1] && seen[16384] && !seen[16385]);
    free(text);
    test_done();
}

static unsigned test_appeared;

static void test_appear(void *arg)
{
    (void)arg;
    test_appeared++;
}

Test(recorder, a_device_appears_once)
{
    static const uint8_t devices[] = {0, 0, 63, 0, 64, 255, 63, 5};
    static const unsigned appeared[] = {1, 1, 2, 2, 2, 2, 2, 3};
    recimage_new();
    struct gp_recorder_setup setup = recimage_setup();
    setup.appeared = test_appear;
    struct gp_recorder *r = test_begin(&setup);
    for (unsigned i = 0; i < 8; i++) {
        recimage_event(1, 1, 0, devices[i]);
        gp_recorder_poll(r);
        cr_expect_eq(test_appeared, appeared[i], "%u", i);
    }
    test_end(r, GP_END_PROCESS);
    test_done();
}

/* A row of a device is written when it is new and when its flags change; samples of all devices in each round. */
Test(recorder, devices_are_written_when_their_flags_change)
{
    recimage_new();
    struct gp_recorder *r = test_started();
    for (unsigned i = 0; i < 4; i++, test_now += 2 * SECOND) {
        if (i > 0)
            recimage_device(i == 1 ? 3 : 4, 100);
        if (i == 3)
            recimage.devices[3].flags |= GP_DEVICE_POLLED;
        recimage_event(test_now, 1, 0, 0);
        gp_recorder_poll(r);
    }
    char *text = recdump_of(test_path, "DEVICES");
    cr_expect_eq(strncmp(text, "DEVICES x1 | 3 ", 15), 0);
    char *second = strchr(text, '\n') + 1, *third = strchr(second, '\n') + 1;
    cr_expect_eq(strncmp(second, "DEVICES x1 | 4 ", 15), 0);
    cr_expect_eq(strncmp(third, "DEVICES x1 | 3 ", 15), 0);
    cr_expect_null(strchr(third, '\n')[1] ? third : NULL);
    free(text);
    text = recdump_of(test_path, "SAMPLES");
    cr_expect_eq(strncmp(text, "SAMPLES x1 | 10000000000 3 ", 27), 0, "%s", text);
    second = strchr(text, '\n') + 1;
    cr_expect_eq(strncmp(second, "SAMPLES x2 | 12000000000 3 100 101 102 103 -1 -1 | 12000000000 4 ", 65), 0, "%s",
                 text);
    free(text);
    test_end(r, GP_END_PROCESS);
    test_done();
}

/* Memory from before the attach: of devices that are there, when it changes, if gpuprof was attached. */
Test(recorder, memory_from_before_is_written_when_it_changes)
{
    for (uint32_t attached = 0; attached < 4; attached++) {
        recimage_new();
        recimage_device(1, 100);
        recimage_device(63, 100);
        recimage.header.before_offset = offsetof(struct recimage, before);
        recimage.header.before_bytes = (uint32_t)sizeof(recimage.before) - (attached == 3);
        recimage.before.attached = attached == 3 ? 1 : attached;
        recimage.before.devices[0].bytes = 1; /* not a device of the program */
        recimage.before.devices[1] = (struct gp_wire_before_device){70, 80, 3, 1, 5, 6, GP_BEFORE_PART, 0};
        struct gp_recorder *r = test_started();
        for (unsigned i = 0; i < 4; i++, test_now += 2 * SECOND) {
            if (i == 2)
                recimage.before.devices[63] = (struct gp_wire_before_device){-1, -1, -1, 0, -1, -1, GP_BEFORE_NONE, 0};
            recimage_event(test_now, 1, 0, 0);
            gp_recorder_poll(r);
        }
        test_end(r, GP_END_PROCESS);
        EXPECT("BEFORE", attached == 1 ? "BEFORE x1 | 8000000000 1 2 70 80 3 1 5 6\n"
                                         "BEFORE x1 | 12000000000 63 0 -1 -1 -1 0 -1 -1\n"
                                       : "");
        char *text = recdump_of(test_path, "PROCESS");
        cr_expect_str_eq(strrchr(text, ' '), attached == 1 ? " 2\n" : " 1\n", "%u", attached);
        free(text);
        test_done();
    }
}
