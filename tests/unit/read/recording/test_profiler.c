/* SPDX-License-Identifier: MIT
 *
 * test_profiler.c: traces of PyTorch's profiler with memory events, and what export_memory_timeline writes.
 */
#include <gpuprof/wire.h>
#include <read/recording/recording.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char why[256];

static struct gp_recording *parse(const char *text)
{
    struct gp_recording *r = NULL;
    int rc = gp_recording_parse(&r, text, strlen(text), why, sizeof(why));
    cr_assert_eq(rc, 0, "%d: %s", rc, why);
    cr_assert(r->from_torch && r->complete && r->polled);
    return r;
}

static void refused(const char *text, const char *says)
{
    struct gp_recording *r = NULL;
    cr_expect_eq(gp_recording_parse(&r, text, strlen(text), why, sizeof(why)), -EPROTO);
    cr_expect(strstr(why, says), "'%s' does not say '%s'", why, says);
}

#define TRACE(...) "{\"baseTimeNanoseconds\": 1000000000000, \"traceEvents\": [" __VA_ARGS__ "]}"
#define SPAN(cat, name, ts, dur, tid, args)                                                                            \
    "{\"ph\":\"X\",\"cat\":\"" cat "\",\"name\":\"" name "\",\"pid\":7,\"tid\":" tid ",\"ts\":" ts ",\"dur\":" dur     \
    ",\"args\":{" args "}},"
#define MEMORY(ts, tid, addr, bytes, total, reserved)                                                                  \
    "{\"ph\":\"i\",\"cat\":\"cpu_instant_event\",\"s\":\"t\",\"name\":\"[memory]\",\"pid\":7,\"tid\":" tid             \
    ",\"ts\":" ts ",\"args\":{\"Total Reserved\":" reserved ",\"Total Allocated\":" total ",\"Bytes\":" bytes          \
    ",\"Device Id\":0,\"Device Type\":1,\"Addr\":" addr "}}"

static const char *frame(const struct gp_recording *r, size_t event, uint32_t at, uint32_t *line)
{
    const struct gp_rec_site *site = &r->sites[r->events[event].site];
    cr_assert(at < site->frame_count);
    *line = r->frames[site->first_frame + at].line;
    return r->strings + r->frames[site->first_frame + at].function;
}

/* The events of this type, in their order. */
static size_t find(const struct gp_recording *r, unsigned type, unsigned which)
{
    for (size_t i = 0; i < r->event_count; i++)
        if (r->events[i].type == type && which-- == 0)
            return i;
    cr_assert_fail("too few events of type %u", type);
    return 0;
}

Test(kineto, blocks_have_the_stack_of_their_thread)
{
    static const char trace[] = TRACE(SPAN("python_function", "train.py(3): main", "10.5", "100", "1", "") SPAN(
        "python_function", "torch/nn/modules/linear.py(120): forward", "11", "50", "1", "\"CallFrom\":\"train.py:42\"")
                                          SPAN("cpu_op", "aten::addmm", "12", "5", "1", "")
                                              SPAN("user_annotation", "ProfilerStep#3", "10", "101", "1", "")
                                                  SPAN("cpu_op", "aten::other", "12", "5", "2", "")
                                                      MEMORY("13", "1", "4096", "512", "1536", "2048") "," MEMORY(
                                                          "14.25", "1", "4096", "-512", "1024",
                                                          "2048") "," MEMORY("90", "2", "8192", "-1000", "24", "2048"));
    struct gp_recording *r = parse(trace);
    uint32_t line;
    size_t alloc = find(r, GP_EVENT_ALLOC, 0);
    cr_expect_str_eq(frame(r, alloc, 0, &line), "aten::addmm");
    cr_expect_str_eq(frame(r, alloc, 1, &line), "forward");
    cr_expect_eq(line, 120);
    cr_expect_str_eq(r->strings + r->frames[r->sites[r->events[alloc].site].first_frame + 1].file,
                     "./torch/nn/modules/linear.py");
    cr_expect_str_eq(frame(r, alloc, 2, &line), "main");
    cr_expect_eq(line, 42, "the line of the call, not that of the function: %u", line);
    cr_expect_eq(r->sites[r->events[alloc].site].frame_count, 3, "a step's mark is in no stack");
    cr_expect_eq(r->events[alloc].time_ns, 1000000013000);
    cr_expect_eq(r->peer[alloc], find(r, GP_EVENT_FREE, 0));
    cr_expect_eq(r->events[find(r, GP_EVENT_FREE, 0)].time_ns, 1000000014250);
    /* 1024 bytes were there before: a block of 1000, and 24 of which nothing is known. */
    cr_expect(r->baseline_count == 2 && r->before_bytes == 1024 && r->before_sum && r->dropped == 0);
    cr_expect_eq(r->devices[0].bound, GP_REC_AT_LEAST);
    cr_expect_eq(r->events[find(r, GP_EVENT_SEGMENT_MAP, 0)].bytes, 2048);
    cr_expect_str_eq(r->strings + r->events[find(r, GP_EVENT_MARK, 0)].bytes, "ProfilerStep#3");
    cr_expect_str_eq(r->strings + r->events[find(r, GP_EVENT_MARK, 1)].bytes, "/ProfilerStep#3");
    gp_recording_free(r);
}

/* The second thread took its time before the first one, and the allocator came to it later. */
Test(kineto, totals_say_in_which_order_threads_came)
{
    struct gp_recording *r = parse(TRACE(
        MEMORY("1", "1", "4096", "512", "512", "512") "," MEMORY("2", "2", "8192", "512", "1024", "1024") "," MEMORY(
            "2", "1", "4096", "-512", "512", "1024") "," MEMORY("3.5", "2", "4096", "512", "1536",
                                                                "2048") "," MEMORY("3.75", "1", "12288", "512", "1024",
                                                                                   "1024")));
    cr_expect_eq(r->dropped, 0);
    cr_expect_eq(r->devices[0].bound, GP_REC_EXACT);
    size_t late = find(r, GP_EVENT_ALLOC, 3);
    cr_expect(r->events[late].address == 4096 && r->events[find(r, GP_EVENT_ALLOC, 2)].address == 12288);
    gp_recording_free(r);
}

Test(kineto, what_is_missing_is_counted)
{
    struct gp_recording *r = parse(
        TRACE(MEMORY("1", "1", "4096", "512", "512", "512") "," MEMORY("2", "1", "8192", "512", "9999", "16384")));
    cr_expect(r->dropped == 1 && r->devices[0].bound == GP_REC_ABOUT);
    gp_recording_free(r);
}

Test(kineto, other_traces_are_refused_with_what_to_do)
{
    refused(TRACE(""), "profile_memory=True");
    refused(TRACE("{\"name\":\"[memory]\",\"ts\":1,\"args\":{\"Device Type\":0,\"Device Id\":-1,\"Bytes\":8}}"),
            "of the CPU alone");
    refused(TRACE("{\"name\":\"[memory]\",\"ts\":1,\"args\":{\"Device Type\":1,\"Device Id\":64,\"Bytes\":8}}"),
            "impossible device");
    refused("<!DOCTYPE html><title>GPU Memory Timeline HTML</title>", ".raw.json.gz");
}

Test(timeline, rows_become_blocks_of_their_size)
{
    struct gp_recording *r =
        parse("[[-1, 1, 4096, 0], [1000, 2, 512, 4], [1500, 2, 512, 4], [2000, 3, -512, 4], [2000, 3, "
              "512, 5], [2500, 4, -512, 4], [3000, 4, -4096, 0], [3500, 4, -7, 0]]");
    cr_expect(r->timeline == GP_REC_SIZES && r->baseline_count == 1 && r->before_bytes == 4096 && !r->before_sum);
    cr_expect_eq(r->event_count, 6);
    cr_expect_eq(r->peer[1], 2, "the newest of its size and category ends first");
    cr_expect_eq(r->peer[0], 4);
    cr_expect_eq(r->peer[5], 6, "the block from before");
    uint32_t line;
    cr_expect_str_eq(frame(r, 3, 0, &line), "GRADIENT");
    cr_expect(r->dropped == 1 && r->devices[0].bound == GP_REC_ABOUT, "the last row frees what never was");
    gp_recording_free(r);
}

Test(timeline, sums_become_changes)
{
    struct gp_recording *r = parse("[[10, 10, 20, 30], [[0, 100, 0, 0, 0, 0, 0, 0, 0], [0, 100, 0, 0, 0, 0, 50, 0, 0], "
                                   "[0, 100, 0, 0, 0, 0, 70, 0, 0], [0, 40, 0, 0, 0, 0, 60, 0, 9]]]");
    int64_t live = (int64_t)r->before_bytes, most = live;
    cr_expect(r->timeline == GP_REC_SUMS && r->before_bytes == 100 && r->before_sum);
    for (size_t i = 0; i < r->event_count; i++) {
        live += r->events[i].type == GP_EVENT_ALLOC ? (int64_t)r->events[i].bytes : -(int64_t)r->events[i].bytes;
        most = live > most ? live : most;
    }
    cr_expect(live == 109 && most == 170, "%lld of %lld", (long long)live, (long long)most);
    cr_expect_eq(r->dropped, 0);
    gp_recording_free(r);
}

Test(timeline, other_lists_are_refused)
{
    refused("[[1, 2, 3]]", "[time, action, bytes, category]");
    refused("[[1, 9, 3, 0]]", "impossible");
    refused("[[1, 2], [[0, 1], [0, 2]]]", "nine sums");
}
