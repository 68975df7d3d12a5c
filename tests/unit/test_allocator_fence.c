/* SPDX-License-Identifier: MIT
 *
 * test_allocator_fence.c: which events a fence records in which streams, what it answers when a call fails, and how the
 * ends of streams, captures and contexts change it.
 */
#include "allocator/cache/policy.h"
#include "allocator/driver.h"
#include "allocator/internal.h"
#include "allocator_fixture.h"
#include <pthread.h>
#include <stdlib.h>

TestSuite(allocator_fence, .fini = expect_lock_given);

static struct gp_served_context *primary(int device, bool current)
{
    void *ctx = NULL;
    cr_assert_eq(gp_driver_real.cuDevicePrimaryCtxRetain(&ctx, device), 0);
    if (current)
        cr_assert_eq(gp_driver_real.cuCtxPushCurrent_v2(ctx), 0);
    struct gp_served_context *served = gp_served_add(ctx, device, true);
    cr_assert_not_null(served);
    calllog_clear();
    return served;
}

static struct gp_served_context *start(void)
{
    cr_assert_eq(gp_thread_life_start(), 0);
    gp_served_setup(gp_policy_find("caching"), 0);
    cr_assert(gp_driver_bind());
    errno = ERRNO;
    calllog.skips = "cuThreadExchangeStreamCaptureMode";
    return primary(0, true);
}

static void *stream_made(struct gp_served_context *served, unsigned flags)
{
    void *stream = NULL;
    cr_assert_eq(gp_driver_real.cuStreamCreate(&stream, flags), 0);
    gp_stream_add(served, stream, flags);
    calllog_clear();
    return stream;
}

/* One event in the legacy stream is enough for blocking streams. */
Test(allocator_fence, a_context_without_other_streams_needs_one_event)
{
    struct gp_served_context *served = start();
    uint64_t fence = 0;
    gp_stream_watch();
    stream_made(served, 0);
    cr_expect_eq(gp_stream_fence_record(served, NULL, 0, &fence), 0);
    EXPECT_CALLS("cuCtxGetCurrent(&); cuEventCreate(&, 2); cuEventRecord(20512, 0)");
    cr_expect_eq(fence, 20512);
    cr_expect_eq(gp_stream_fence_query(served, fence), 0);
    EXPECT_CALLS("cuEventQuery(20512)");
    cr_expect_eq(served->event_count, 1);
    cr_expect_eq(gp_stream_fence_record(served, NULL, 0, &fence), 0);
    EXPECT_CALLS("cuCtxGetCurrent(&); cuEventRecord(20512, 0)");
    cr_expect_eq(gp_stream_fence_wait(served, fence), 0);
    EXPECT_CALLS("cuEventSynchronize(20512)");
    cr_expect_eq(served->event_count, 1);
    expect_outside();
}

Test(allocator_fence, events_that_are_not_reached_or_fail_are_kept_by_their_fence)
{
    struct gp_served_context *served = start();
    uint64_t fence = 0, one = 1;
    void *busy = stream_made(served, 0);
    gp_stream_watch();
    cr_expect_eq(gp_stream_fence_record(served, &one, 1, &fence), 0);
    EXPECT_CALLS("cuCtxGetCurrent(&); cuEventCreate(&, 2); cuEventRecord(20512, 1)");
    fakedriver_submit(busy);
    cr_expect_eq(gp_stream_fence_record(served, &one, 1, &fence), 0);
    cr_expect_eq(gp_stream_fence_query(served, fence), GP_BACKEND_BUSY);
    cr_expect_eq(served->event_count, 0);
    calllog.fails = "cuEventQuery";
    calllog.code = 719;
    cr_expect_eq(gp_stream_fence_query(served, fence), GP_BACKEND_BUSY, "an error proves nothing");
    calllog.fails = "cuEventSynchronize";
    cr_expect_eq(gp_stream_fence_wait(served, fence), 719);
    cr_expect_eq(served->event_count, 0);
    calllog.fails = NULL;
    served->x_state = GP_SERVED_DYING;
    calllog_clear();
    cr_expect_eq(gp_stream_fence_query(served, fence), GP_BACKEND_BUSY);
    cr_expect_eq(gp_stream_fence_wait(served, fence), GP_BACKEND_INVALID);
    cr_expect_eq(gp_stream_fence_record(served, &one, 1, &fence), GP_BACKEND_FORBIDDEN);
    cr_expect_eq(gp_stream_fence_query(served, 1) + gp_stream_fence_wait(served, 1), 0,
                 "a fence that was reached when it was made");
    EXPECT_CALLS("");
    served->x_state = GP_SERVED_LIVE;
    gp_driver_stop();
    cr_expect_eq(gp_stream_fence_query(served, fence), GP_BACKEND_BUSY);
    cr_expect_eq(gp_stream_fence_wait(served, fence), GP_BACKEND_INVALID);
    cr_expect_eq(gp_stream_fence_record(served, &one, 1, &fence), GP_BACKEND_FORBIDDEN);
    EXPECT_CALLS("");
    cr_expect_not(gp_thread.ignored);
}

/* Several streams: a stream of ours waits for each, and the fence is at its end. */
#define ADD(_event, _stream) "cuEventRecord(" _event ", " _stream "); cuStreamWaitEvent(20528, " _event ", 0); "

Test(allocator_fence, several_streams_are_gathered_in_one)
{
    struct gp_served_context *served = start();
    uint64_t fence = 0, streams[2];
    gp_stream_watch();
    streams[0] = (uintptr_t)stream_made(served, 1);
    streams[1] = (uintptr_t)stream_made(served, 0);
    cr_expect_eq(gp_stream_fence_record(served, streams, 2, &fence), 0);
    EXPECT_CALLS("cuCtxGetCurrent(&); cuStreamCreate(&, 1); cuCtxGetCurrent(&); cuEventCreate(&, 2); " ADD(
        "20544", "20496") "cuCtxGetCurrent(&); " ADD("20544", "20512") "cuEventRecord(20544, 20528)");
    cr_expect_eq(fence, 20544);
    cr_expect_eq((uintptr_t)served->gather, 20528);
    cr_expect_eq(gp_stream_fence_wait(served, fence), 0);
    /* Any stream: the legacy one, those that do not wait for it, and what is in ours already. */
    calllog_clear();
    cr_expect_eq(gp_stream_fence_record(served, NULL, 0, &fence), 0);
    EXPECT_CALLS("cuCtxGetCurrent(&); cuCtxGetCurrent(&); " ADD("20544", "0") "cuCtxGetCurrent(&); " ADD(
        "20544", "20496") "cuEventRecord(20544, 20528)");
    cr_expect_eq(gp_stream_fence_wait(served, fence), 0);
    /* A stream that is not known, or means many, counts as any stream. */
    for (unsigned i = 0; i < 3; i++) {
        uint64_t odd[2] = {streams[0], i == 0 ? 2 : i == 1 ? GP_STREAM_ANY : 4096};
        calllog_clear();
        cr_expect_eq(gp_stream_fence_record(served, odd, 2, &fence), 0);
        EXPECT_CALLS("cuCtxGetCurrent(&); cuCtxGetCurrent(&); " ADD("20544", "0") "cuCtxGetCurrent(&); " ADD(
            "20544", "20496") "cuEventRecord(20544, 20528)");
        cr_expect_eq(gp_stream_fence_wait(served, fence), 0);
    }
    calllog_clear();
    gp_stream_fence_forget(served);
    EXPECT_CALLS("");
    cr_expect(!served->gather && !served->event_count);
    cr_expect_not(gp_stream_nameable(served, streams[0]));
    expect_outside();
}

/* The work of other contexts can touch the memory: of those on the device, and of peers. */
Test(allocator_fence, a_fence_covers_the_contexts_that_can_touch_the_memory)
{
    static char dead;
    struct gp_served_context *served = start(), *peer = primary(1, false);
    uint64_t fence = 0;
    gp_stream_watch();
    gp_served_take(&dead, 0, false)->x_state = GP_SERVED_DYING;
    cr_expect_eq(gp_stream_fence_record(served, NULL, 0, &fence), 0);
    EXPECT_CALLS("cuCtxGetCurrent(&); cuEventCreate(&, 2); cuEventRecord(20496, 0)");
    cr_expect_eq(gp_stream_fence_wait(served, fence), 0);
    served->x_access = 1ull << gp_served_index(peer);
    calllog_clear();
    cr_expect_eq(gp_stream_fence_record(served, NULL, 0, &fence), 0);
    EXPECT_CALLS(
        "cuCtxGetCurrent(&); cuStreamCreate(&, 1); cuCtxGetCurrent(&); cuEventRecord(20496, 0); "
        "cuStreamWaitEvent(20512, 20496, 0); cuCtxGetCurrent(&); cuCtxPushCurrent_v2(4112); cuEventCreate(&, 2); "
        "cuEventRecord(20528, 0); cuStreamWaitEvent(20512, 20528, 0); cuCtxPopCurrent_v2(&); "
        "cuEventRecord(20496, 20512)");
    cr_expect_eq(gp_stream_fence_wait(served, fence), 0);
    calllog_clear();
    /* What the peer gathered of streams that ended is in its own stream of ours. */
    cr_expect_eq(gp_stream_gather_keep(peer, NULL), 0);
    EXPECT_CALLS("pass cuStreamCreate(&, 1); cuCtxGetCurrent(&); cuCtxPushCurrent_v2(4112); cuEventRecord(20528, 0); "
                 "cuStreamWaitEvent(20544, 20528, 0); cuCtxPopCurrent_v2(&)");
    cr_expect_eq(gp_stream_fence_record(served, NULL, 0, &fence), 0);
    EXPECT_CALLS("cuCtxGetCurrent(&); cuCtxGetCurrent(&); cuEventRecord(20496, 0); cuStreamWaitEvent(20512, 20496, 0); "
                 "cuCtxGetCurrent(&); cuCtxPushCurrent_v2(4112); cuEventRecord(20528, 0); "
                 "cuStreamWaitEvent(20512, 20528, 0); cuCtxPopCurrent_v2(&); cuCtxGetCurrent(&); "
                 "cuCtxPushCurrent_v2(4112); cuEventRecord(20528, 20544); cuStreamWaitEvent(20512, 20528, 0); "
                 "cuCtxPopCurrent_v2(&); cuEventRecord(20496, 20512)");
    expect_outside();
}

/* Each call of a fence fails once.  The fence fails with that error, or is forbidden if it is one of captures, and all
 * events are idle afterwards. */
Test(allocator_fence, a_call_that_fails_leaves_all_events_idle)
{
    static const char *const names[] = {"cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuStreamCreate",
                                        "cuCtxPushCurrent_v2"};
    static const uint32_t codes[][2] = {{899, 899}, {900, 900}, {904, 900}, {908, 900}, {909, 909}};
    for (unsigned i = 0; i < GP_COUNT(names); i++)
        for (unsigned number = 1; number < 4; number++)
            for (unsigned code = 0; code < GP_COUNT(codes); code++) {
                static struct gp_served_context *served, *peer;
                uint64_t fence = 0;
                if (!served) {
                    served = start();
                    gp_stream_watch();
                    stream_made(served, 1);
                    peer = primary(1, false);
                    served->x_access = 1ull << gp_served_index(peer);
                }
                served->gather = NULL;
                calllog.fails = names[i];
                calllog.number = number;
                calllog.code = codes[code][0];
                calllog_clear();
                uint32_t result = gp_stream_fence_record(served, NULL, 0, &fence);
                if (calllog.failed)
                    cr_expect_eq(result, i == 4 ? GP_BACKEND_FORBIDDEN : codes[code][1], "%s %u", names[i], number);
                else
                    cr_expect_eq(result, 0);
                cr_expect_eq(fence != 0, result == 0);
                calllog.fails = NULL;
                if (fence)
                    cr_expect_eq(gp_stream_fence_wait(served, fence), 0);
                cr_expect_eq(served->event_count + peer->event_count, fakedriver_events(), "%s %u", names[i], number);
                cr_expect_eq(fakedriver_depth(), 1);
                expect_outside();
            }
}

/* ---- without knowing the streams --------------------------------------------------------------------------------------- */

Test(allocator_fence, without_hooks_the_context_is_synchronised)
{
    struct gp_served_context *served = start(), *peer = primary(1, false);
    uint64_t fence = 0, streams[2] = {0, 1};
    cr_expect_eq(gp_stream_fence_record(served, NULL, 0, &fence), 0);
    EXPECT_CALLS("cuCtxGetCurrent(&); cuCtxGetCurrent(&); cuStreamIsCapturing(0, &); cuCtxSynchronize(0)");
    cr_expect_eq(fence, 1, "it was reached before it was made");
    served->x_access = 1ull << gp_served_index(peer);
    cr_expect_eq(gp_stream_fence_record(served, NULL, 0, &fence), 0);
    EXPECT_CALLS("cuCtxGetCurrent(&); cuCtxGetCurrent(&); cuStreamIsCapturing(0, &); cuCtxSynchronize(0); "
                 "cuCtxGetCurrent(&); cuCtxPushCurrent_v2(4112); cuStreamIsCapturing(0, &); cuCtxSynchronize(0); "
                 "cuCtxPopCurrent_v2(&)");
    calllog.fails = "cuCtxSynchronize";
    calllog.code = 719;
    cr_expect_eq(gp_stream_fence_record(served, NULL, 0, &fence), 719);
    EXPECT_CALLS("cuCtxGetCurrent(&); cuCtxGetCurrent(&); cuStreamIsCapturing(0, &); cuCtxSynchronize(0)");
    calllog.fails = "cuStreamIsCapturing";
    cr_expect_eq(gp_stream_fence_record(served, NULL, 0, &fence), 719);
    EXPECT_CALLS("cuCtxGetCurrent(&); cuCtxGetCurrent(&); cuStreamIsCapturing(0, &)");
    /* Named streams are trusted to live, but may capture. */
    cr_expect_eq(gp_stream_fence_record(served, streams, 2, &fence), 719);
    EXPECT_CALLS("cuCtxGetCurrent(&); cuStreamIsCapturing(0, &)");
    calllog.fails = NULL;
    cr_expect_eq(gp_stream_fence_record(served, &streams[1], 1, &fence), 0);
    EXPECT_CALLS("cuCtxGetCurrent(&); cuStreamIsCapturing(1, &); cuEventCreate(&, 2); cuEventRecord(20496, 1)");
    gp_thread.prompt = 1;
    cr_expect_eq(gp_stream_fence_record(served, NULL, 0, &fence), GP_BACKEND_FORBIDDEN, "it would wait");
    EXPECT_CALLS("cuCtxGetCurrent(&)");
    gp_thread.prompt = 0;
    /* The peer is gone between the look at the contexts and the synchronisation. */
    calllog.fails = "cuCtxPushCurrent_v2";
    cr_expect_eq(gp_stream_fence_record(served, NULL, 0, &fence), GP_BACKEND_FORBIDDEN);
    expect_outside();
    gp_stream_capture_begin(); /* no synchronisation is under way, so this does not wait */
    gp_stream_capture_began(NULL, false);
}

static int capturing_of;
static uint32_t is_capturing(void *stream, int *status)
{
    *status = (int)(uintptr_t)stream == capturing_of;
    return 0;
}

Test(allocator_fence, without_hooks_a_stream_that_captures_gets_no_event)
{
    struct gp_served_context *served = start();
    uint64_t fence = 0, streams[2] = {0, 1};
    gp_driver_real.cuStreamIsCapturing = is_capturing;
    cr_expect_eq(gp_stream_fence_record(served, NULL, 0, &fence), GP_BACKEND_FORBIDDEN);
    cr_expect_eq(gp_stream_fence_record(served, &streams[0], 1, &fence), GP_BACKEND_FORBIDDEN);
    cr_expect_eq(gp_stream_fence_record(served, &streams[1], 1, &fence), 0);
    capturing_of = 1;
    cr_expect_eq(gp_stream_fence_record(served, &streams[1], 1, &fence), GP_BACKEND_FORBIDDEN);
    cr_expect_eq(gp_stream_fence_record(served, streams, 2, &fence), GP_BACKEND_FORBIDDEN);
    cr_expect_eq(gp_stream_fence_record(served, &streams[0], 1, &fence), 0);
    int status = 7;
    gp_driver_real.cuStreamIsCapturing = NULL;
    cr_expect(gp_driver_capturing(NULL, &status) == 0 && status == 0, "a driver older than captures");
}

/* ---- streams that end ---------------------------------------------------------------------------------------------------- */

Test(allocator_fence, the_work_of_a_stream_that_ends_is_kept)
{
    struct gp_served_context *served = start();
    void *idle, *busy, *failing, *dying;
    gp_stream_watch();
    idle = stream_made(served, 1);
    gp_stream_remove(idle);
    EXPECT_CALLS("");
    cr_expect_not(gp_stream_nameable(served, (uintptr_t)idle));
    cr_assert_not_null(gp_served_make_cache(served));
    idle = stream_made(served, 1);
    gp_stream_remove(idle);
    EXPECT_CALLS("cuCtxGetCurrent(&); cuStreamIsCapturing(20512, &); cuStreamQuery(20512)");
    busy = stream_made(served, 1);
    fakedriver_submit(busy);
    gp_stream_remove(busy);
    EXPECT_CALLS("cuCtxGetCurrent(&); cuStreamIsCapturing(20528, &); cuStreamQuery(20528); cuStreamCreate(&, 1); "
                 "cuCtxGetCurrent(&); cuEventCreate(&, 2); cuEventRecord(20560, 20528); "
                 "cuStreamWaitEvent(20544, 20560, 0)");
    cr_expect_eq(served->x_untracked, 0);
    failing = stream_made(served, 1);
    fakedriver_submit(failing);
    calllog.fails = "cuEventRecord";
    calllog.code = 719;
    gp_stream_remove(failing);
    cr_expect_eq(served->x_untracked, 1, "work that no event shows");
    calllog.fails = "cuStreamIsCapturing";
    failing = stream_made(served, 1);
    gp_stream_remove(failing);
    EXPECT_CALLS("cuCtxGetCurrent(&); cuStreamIsCapturing(20592, &)");
    cr_expect_eq(served->x_untracked, 1);
    dying = stream_made(served, 1);
    served->x_state = GP_SERVED_DYING;
    gp_stream_remove(dying);
    EXPECT_CALLS("");
    gp_stream_remove(dying);
    cr_expect_eq(served->x_untracked, 1);
    served->x_state = GP_SERVED_LIVE;
    calllog.fails = NULL;
    expect_outside();
}

/* The captures of a context end with it, and those of others go on. */
Test(allocator_fence, captures_end_with_their_context)
{
    struct gp_served_context *served = start(), *other = primary(1, false);
    void *one = stream_made(served, 1), *two = stream_made(other, 1), *unknown = &one;
    gp_stream_watch();
    for (unsigned i = 0; i < 3; i++) {
        gp_stream_capture_begin();
        gp_stream_capture_began(i == 0 ? one : i == 1 ? two : unknown, true);
    }
    gp_stream_forget(other);
    cr_expect(gp_stream_capture_under_way());
    gp_stream_capture_ended(two);
    gp_stream_capture_ended(one);
    cr_expect(gp_stream_capture_under_way(), "a stream that is not known captures in the current context");
    gp_stream_capture_begin();
    gp_stream_capture_began(one, true);
    cr_expect_not(gp_stream_fencing_begin());
    gp_stream_fence_forget(served);
    cr_expect_not(gp_stream_capture_under_way());
    expect_outside();
}

Test(allocator_fence, a_capture_without_a_context_ends_with_its_stream)
{
    struct gp_served_context *served = start();
    void *ctx, *unknown = &ctx;
    cr_assert_eq(gp_driver_real.cuCtxPopCurrent_v2(&ctx), 0);
    gp_stream_capture_begin();
    gp_stream_capture_began(unknown, true);
    gp_stream_fence_forget(served);
    cr_expect(gp_stream_capture_under_way());
    gp_stream_remove(unknown);
    cr_expect_not(gp_stream_capture_under_way());
    expect_outside();
}
