/* SPDX-License-Identifier: MIT
 *
 * test_allocator_driver.c: the allocator in front of a driver that lacks one function, or in which one call fails.  The
 * same program runs each time, in a process of its own.  After each of its calls the program's state is as the driver
 * alone would leave it, its blocks are memory that its device may use, and the statistics are the sum of its blocks and
 * of what the driver holds.  At the end nothing is left.
 */
#include "account/feed/start.h"
#include "allocator/allocator.h"
#include "allocator/driver.h"
#include "allocator/internal.h"
#include "allocator/served.h"
#include "allocator/stream.h"
#include "base/compiler.h"
#include "base/ring.h"
#include "cache/cache.h"
#include "cache/policy.h"
#include "lib/fakedriver.h"
#include "lib/full.h"
#include "source/hooks.h"
#include <criterion/criterion.h>
#include <gpuprof/gpuprof.h>
#include <gpuprof/wire.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator_view.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

TestSuite(allocator_driver, .timeout = 300);

/* The library asks here for a driver's functions (source/real.c). */
void *gpuprof_preload_next(const char *name);
void *gpuprof_preload_next(const char *name)
{
    return fakedriver_function(name);
}

/* ---- the program --------------------------------------------------------------------------------------------------- */

/* Whether the driver served it instead of the cache. */
static void note_passed(struct block *block)
{
    block->passed = !gp_served_find(block->address, &(struct gp_grant){0});
    if (block->passed)
        foreign[block->device] += block->bytes;
}

static void gone(struct block *block)
{
    foreign[block->device] -= block->passed ? block->bytes : 0;
    block->bytes = 0;
}

/* All memory of the device's context died. */
static void all_gone(int device)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        if (blocks[i].bytes && blocks[i].device == device)
            gone(&blocks[i]);
    foreign[device] = 0;
}

static struct block *take(const char *what, size_t bytes)
{
    uint64_t address = 0;
    begin();
    uint32_t result = gp_wrap_cuMemAlloc_v2(&address, bytes);
    struct block *block = result ? NULL : block_new(address, bytes, fakedriver_context_device(current));
    if (block)
        note_passed(block);
    return after(what, result) ? block : NULL;
}

static void drop(const char *what, struct block *block, uint32_t (*free)(uint64_t address))
{
    if (!block || !block->bytes)
        return;
    struct block kept = *block;
    begin();
    uint32_t result = free(kept.address);
    if (result == 0)
        gone(block);
    after(what, result);
}

static uint32_t free_passed(uint64_t address)
{
    return PASSED(gp_wrap_cuMemFree_v2(address));
}

static uint32_t free_async(uint64_t address)
{
    return gp_wrap_cuMemFreeAsync(address, NULL);
}

static uint32_t free_ours(uint64_t address)
{
    return (uint32_t)gpuprof_free((void *)(uintptr_t)address);
}

static struct block *take_ours(const char *what, size_t bytes, int device, void *stream)
{
    void *pointer = NULL;
    begin();
    uint32_t result = (uint32_t)gpuprof_alloc(&pointer, bytes, device, stream);
    struct block *block = result ? NULL : block_new((uintptr_t)pointer, bytes, device);
    if (block)
        block->stream = (uintptr_t)stream;
    return after(what, result) ? block : NULL;
}

static void *enter_primary(int device)
{
    void *ctx = NULL;
    begin();
    if (!after("retain", PASSED(gp_wrap_cuDevicePrimaryCtxRetain(&ctx, device))))
        return NULL;
    fakedriver.program = true;
    const char *fails = fakedriver.fails;
    fakedriver.fails = NULL;
    ((uint32_t(*)(void *))fakedriver_function("cuCtxPushCurrent_v2"))(ctx);
    fakedriver.fails = fails;
    fakedriver.program = fakedriver.fails;
    return ctx;
}

static void leave_context(void)
{
    void *ctx;
    const char *fails = fakedriver.fails;
    fakedriver.fails = NULL;
    fakedriver.program = true;
    ((uint32_t(*)(void **))fakedriver_function("cuCtxPopCurrent_v2"))(&ctx);
    fakedriver.fails = fails;
    fakedriver.program = fails;
}

/* Sizes around every boundary of pools and segments. */
static void sizes(void)
{
    static const size_t some[] = {1,           512,     513,         MIB - 1,  MIB,     MIB + 1,
                                  2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 10 * MIB, 21 * MIB};
    struct block *made[GP_COUNT(some)];
    for (int round = 0; round < 2; round++) {
        for (unsigned i = 0; i < GP_COUNT(some); i++)
            made[i] = take("alloc", some[i]);
        for (unsigned i = 0; i < GP_COUNT(some); i += 2)
            drop("free", made[i], gp_wrap_cuMemFree_v2);
        for (unsigned i = 1; i < GP_COUNT(some); i += 2)
            drop("free async", made[i], free_async);
    }
}

/* The report of the failure just now says what the cache and the driver held. */
static void reported(void)
{
    struct gp_served_context *served = gp_served_of(current);
    struct gp_cache *cache = gp_served_cache(served);
    struct gp_cache_numbers numbers;
    uint64_t count = 0;
    gp_cache_numbers(cache, &numbers);
    if (strcmp(oom.api, "cuMemAlloc_v2") != 0 || oom.error != GP_CU_OUT_OF_MEMORY || oom.device != 0 || oom.stream ||
        oom.asked_bytes != FAKEDRIVER_MEMORY + 1 || !(oom.flags & GP_OOM_CACHE))
        die("the report is about %llu bytes for %s", (unsigned long long)oom.asked_bytes, oom.api);
    if (oom.total_bytes != (int64_t)FAKEDRIVER_MEMORY ||
        oom.free_bytes != (int64_t)(FAKEDRIVER_MEMORY - fakedriver_held(0)) || oom.limit_bytes ||
        oom.reserved_bytes != (int64_t)numbers.reserved_bytes ||
        oom.allocated_bytes != (int64_t)numbers.allocated_bytes || oom.idle_bytes != (int64_t)numbers.idle_bytes ||
        oom.largest_idle_bytes != (int64_t)numbers.largest_idle_bytes ||
        oom.waiting_bytes != (int64_t)numbers.waiting_bytes || oom.idle_pieces != (int64_t)numbers.idle_pieces ||
        oom.releasable_bytes != (int64_t)numbers.releasable_bytes ||
        oom.pinning_blocks != (int64_t)numbers.pinning_blocks)
        die("the report has other numbers than the cache");
    if (strcmp(oom.policy, gp_cache_policy(cache)->name) != 0 || strcmp(oom.conf, conf ? conf : "") != 0)
        die("the report names %s with \"%s\"", oom.policy, oom.conf);
    for (unsigned i = 0; i < GP_WIRE_FAILURES; i++)
        if (strcmp(failures[i].api, oom.api) == 0 && failures[i].error == oom.error)
            count += failures[i].count;
    if (count != oom.count)
        die("%llu failures of %llu", (unsigned long long)count, (unsigned long long)oom.count);
}

static uint64_t failures_of(const char *api, uint32_t error)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < GP_WIRE_FAILURES; i++)
        count += strcmp(failures[i].api, api) == 0 && failures[i].error == error ? failures[i].count : 0;
    return count;
}

static void wrong(void)
{
    struct block *block = take("alloc", 3 * MIB);
    uint64_t failed = failures_of("cuMemFree_v2", GP_CU_INVALID_VALUE);
    begin();
    if (after("free inside", gp_wrap_cuMemFree_v2(block ? block->address + 512 : 16)))
        die("an address inside a block was freed");
    if (!troubled() && failures_of("cuMemFree_v2", GP_CU_INVALID_VALUE) != failed + 1)
        die("a wrong free is not counted");
    if (block) {
        uint64_t address = block->address;
        drop("free", block, gp_wrap_cuMemFree_v2);
        begin();
        if (!block->bytes && after("free twice", PASSED(gp_wrap_cuMemFree_v2(address))))
            die("a block was freed twice");
    }
    begin();
    if (after("alloc nothing", PASSED(gp_wrap_cuMemAlloc_v2(&(uint64_t){0}, 0))))
        die("0 bytes were allocated");
    begin();
    if (after("alloc too much", gp_wrap_cuMemAlloc_v2(&(uint64_t){0}, FAKEDRIVER_MEMORY + 1)))
        die("more than the device has was allocated");
    if (!troubled())
        reported();
}

/* What the program is shown is the driver's answer, plus idle memory. */
static void info(void)
{
    struct gp_wire_device stats;
    size_t free = 0, total = 0;
    uint64_t used = foreign[0];
    begin();
    if (!after("info", PASSED(gp_wrap_cuMemGetInfo_v2(&free, &total))))
        return;
    if (gp_tap_device(0, &stats) && !fakedriver.failed) {
        used += (uint64_t)stats.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current;
        if (total != FAKEDRIVER_MEMORY || free != total - used)
            die("info: %zu of %zu free beside %llu in use", free, total, (unsigned long long)used);
    }
}

/* The first call with a width is the driver's, the next ones are the cache's. */
static void pitched(void)
{
    struct block *made[3] = {NULL};
    for (int i = 0; i < 3; i++) {
        uint64_t address = 0;
        size_t pitch = 0;
        begin();
        uint32_t result = PASSED(gp_wrap_cuMemAllocPitch_v2(&address, &pitch, 1000, 100, 4));
        if (result == 0) {
            made[i] = block_new(address, 1024 * 100, 0);
            note_passed(made[i]);
            if (pitch != 1024 || (made[i]->passed != (i == 0) && !troubled()))
                die("a pitch of %zu", pitch);
        }
        after("alloc pitch", result);
    }
    for (int i = 0; i < 3; i++)
        drop("free pitch", made[i], free_passed);
}

/* A block that a stream works on is not handed out again before that work is done. */
static void streamed(void)
{
    void *stream = NULL;
    begin();
    if (!after("stream", PASSED(gp_wrap_cuStreamCreate(&stream, 1))))
        return;
    for (int i = 0; i < 3; i++) {
        struct block *block = take_ours("gpuprof_alloc", 3 * MIB, 0, stream), *other;
        if (!block)
            continue;
        uint64_t address = block->address;
        fakedriver_submit(stream);
        drop("gpuprof_free", block, free_ours);
        if (block->bytes)
            continue;
        other = take_ours("gpuprof_alloc", 3 * MIB, 0, NULL);
        if (other && i < 2 && other->address == address && fakedriver_calls("cuEventSynchronize") == 0 &&
            fakedriver_calls("cuCtxSynchronize") == 0)
            die("a block was handed out while a stream worked on it");
        if (other) {
            begin();
            after("record stream", (uint32_t)gpuprof_record_stream((void *)(uintptr_t)other->address, stream));
        }
        drop("gpuprof_free", other, free_ours);
        if (i == 1)
            fakedriver_complete(stream);
    }
    begin();
    after("stream end", PASSED(gp_wrap_cuStreamDestroy_v2(stream)));
}

static void marked(void)
{
    struct block *block = take("alloc", 4 * MIB), *small = take("alloc", 4 * KIB);
    unsigned on = 1;
    uint64_t data = 0;
    for (int attribute = 1; block && small && attribute <= 19; attribute++) {
        if (attribute > 1 && attribute != 6 && attribute != 7 && attribute < 10)
            continue;
        data = 0;
        begin();
        if (!after("attribute", PASSED(gp_wrap_cuPointerGetAttribute(&data, attribute, small->address + 5))))
            continue;
        bool is_start = attribute == 11 || attribute == 19, is_size = attribute == 12 || attribute == 18;
        if ((is_start && data != small->address) || (is_size && data != small->bytes) ||
            (attribute == 1 && data != (uintptr_t)current) || (attribute == 6 && data))
            die("attribute %d is %llu", attribute, (unsigned long long)data);
    }
    for (struct block *one = block; one; one = one == block ? small : NULL) {
        uint64_t base = 0;
        size_t bytes = 0;
        begin();
        if (after("range", gp_wrap_cuMemGetAddressRange_v2(&base, &bytes, one->address + one->bytes - 1)) &&
            (base != one->address || bytes != one->bytes))
            die("the range is not the block");
        begin();
        if (after("sync", PASSED(gp_wrap_cuPointerSetAttribute(&on, 6, one->address)))) {
            begin();
            after("attribute", PASSED(gp_wrap_cuPointerGetAttribute(&data, 6, one->address)));
            if ((uint32_t)data != 1)
                die("SYNC_MEMOPS is not on");
        }
        begin();
        after("export", PASSED(gp_wrap_cuIpcGetMemHandle(NULL, one->address)));
    }
    uint64_t address = block ? block->address : 0;
    drop("free", block, gp_wrap_cuMemFree_v2);
    if (block && !block->bytes && !troubled() && fakedriver_synced(address) &&
        gp_serve_memory_kind == GP_SERVE_DEDICATED)
        die("SYNC_MEMOPS stays on in idle memory");
    drop("free", small, gp_wrap_cuMemFree_v2);
}

/* While a capture is under way the driver decides. */
static void captured(void)
{
    void *stream = NULL, *graph;
    struct block *block = take("alloc", 64 * KIB);
    begin();
    if (!after("stream", PASSED(gp_wrap_cuStreamCreate(&stream, 0))))
        return;
    begin();
    if (after("capture", gp_wrap_cuStreamBeginCapture_v2(stream, 0))) {
        fakedriver.program = true;
        struct block *caught = take("alloc in capture", MIB);
        if (caught && !troubled())
            die("memory was allocated during a capture");
        drop("free what was allocated in capture", caught, gp_wrap_cuMemFree_v2);
        fakedriver.program = fakedriver.fails;
        drop("free in capture", block, gp_wrap_cuMemFree_v2);
        if (block && !block->bytes && !troubled())
            die("memory was freed during a capture");
        begin();
        if (block && block->bytes && after("free async in capture", gp_wrap_cuMemFreeAsync(block->address, stream)))
            die("memory of before the capture was freed in it");
        if (!troubled() && failures_of("cuMemFreeAsync", GP_CU_INVALID_VALUE) != 1)
            die("a wrong free in a capture is not counted");
        begin();
        after("end capture", gp_wrap_cuStreamEndCapture(stream, &graph));
    }
    if (gp_stream_capture_under_way())
        die("the capture did not end");
    begin();
    after("capture", gp_wrap_cuStreamBeginCapture_v2(stream, 0));
    begin();
    after("stream end", PASSED(gp_wrap_cuStreamDestroy_v2(stream)));
    if (gp_stream_capture_under_way())
        die("the capture did not end with its stream");
    drop("free", block, gp_wrap_cuMemFree_v2);
}

/* Idle memory goes back when another caller needs it. */
static void crowded(void)
{
    uint64_t address = 0;
    struct block *block = take("alloc", FAKEDRIVER_MEMORY / 4 * 3);
    drop("free", block, gp_wrap_cuMemFree_v2);
    begin();
    uint32_t result = PASSED(gp_wrap_cuMemAllocAsync(&address, FAKEDRIVER_MEMORY / 2, NULL));
    foreign[0] += result ? 0 : FAKEDRIVER_MEMORY / 2;
    if (!after("alloc async", result)) {
        if (!troubled())
            die("idle memory did not go back");
        return;
    }
    begin();
    result = PASSED(gp_wrap_cuMemFreeAsync(address, NULL));
    foreign[0] -= result ? 0 : FAKEDRIVER_MEMORY / 2;
    after("free async", result);
}

/* Two contexts, the second one on the other device; the first may use its memory. */
static void second(void *first)
{
    void *ctx = NULL;
    uint64_t base = 0;
    size_t bytes = 0;
    begin();
    uint32_t result = PASSED(gp_wrap_cuCtxCreate_v2(&ctx, 0, 1));
    depth++, current = ctx;
    if (!after("context", result))
        return;
    struct block *made[] = {take("alloc", MIB), take("alloc", 5 * MIB), take("alloc", 100)};
    leave_context();
    begin();
    after("peer", gp_wrap_cuCtxEnablePeerAccess(ctx, 0));
    for (unsigned i = 0; i < 2; i++)
        if (made[i] && gp_serve_memory_kind == GP_SERVE_GROWABLE && !troubled() &&
            !fakedriver_usable(made[i]->address, made[i]->bytes, 0))
            die("a peer cannot use growable memory");
    if (gp_served_of(first) != gp_served_primary(0) || gp_served_of(ctx) == gp_served_of(first))
        die("the contexts are mixed up");
    begin();
    if (made[1] && after("free inside another context", gp_wrap_cuMemFree_v2(made[1]->address + 512)))
        die("an address inside a block was freed");
    begin();
    if (made[1] && !made[1]->passed &&
        after("range of another context", gp_wrap_cuMemGetAddressRange_v2(&base, &bytes, made[1]->address + 512)) &&
        (base != made[1]->address || bytes != made[1]->bytes))
        die("the range is not the block");
    drop("free of another context", made[2], gp_wrap_cuMemFree_v2);
    begin();
    result = PASSED(gp_wrap_cuCtxDestroy_v2(ctx));
    if (!result)
        all_gone(1);
    after("context end", result);
    begin();
    if (made[0] && after("free after the end", PASSED(gp_wrap_cuMemFree_v2(made[0]->address))))
        die("memory of a dead context was freed");
}

static void pooled(void)
{
    struct block *made[2] = {NULL, NULL};
    int64_t free = 0, total = 0;
    begin();
    if (after("begin pool", (uint32_t)gpuprof_begin_pool(9, 0, NULL, 1))) {
        made[0] = take_ours("gpuprof_alloc in pool", MIB / 2, 0, NULL);
        begin();
        after("end pool", (uint32_t)gpuprof_end_pool(9, 0));
        begin();
        if (after("end pool twice", (uint32_t)gpuprof_end_pool(9, 0)))
            die("a pool ended twice");
        made[1] = take_ours("gpuprof_alloc", MIB / 2, 0, NULL);
        drop("gpuprof_free", made[0], free_ours);
        drop("gpuprof_free", made[1], free_ours);
        begin();
        after("release pool", (uint32_t)gpuprof_release_pool(9, 0));
        begin();
        if (after("release pool twice", (uint32_t)gpuprof_release_pool(9, 0)))
            die("a pool was released twice");
    }
    begin();
    if (after("fraction", (uint32_t)gpuprof_set_memory_fraction(0.125, 0))) {
        struct block *block = take_ours("gpuprof_alloc beyond the limit", FAKEDRIVER_MEMORY / 8 + 1, 0, NULL);
        if (block && !troubled())
            die("more than the fraction was allocated");
        drop("gpuprof_free", block, free_ours);
    }
    begin();
    if (after("fraction too large", (uint32_t)gpuprof_set_memory_fraction(1.5, 0)))
        die("a fraction of 1.5 was accepted");
    begin();
    after("limit", (uint32_t)gpuprof_set_memory_limit(0, 0));
    begin();
    int got = gpuprof_mem_get_info(0, &free, &total);
    if (after("mem_get_info", got ? 1 : 0) &&
        ((uint64_t)free != FAKEDRIVER_MEMORY - fakedriver_held(0) || (uint64_t)total != FAKEDRIVER_MEMORY))
        die("mem_get_info: %lld of %lld", (long long)free, (long long)total);
    begin();
    got = gpuprof_mem_get_info(1, &free, &total);
    if (after("mem_get_info of another device", got ? 1 : 0) &&
        (uint64_t)free != FAKEDRIVER_MEMORY - fakedriver_held(1))
        die("mem_get_info of device 1: %lld", (long long)free);
    begin();
    uint32_t result = (uint32_t)gpuprof_empty_cache(0);
    after("empty cache", result);
}

/* PyTorch's entry points. */
static void torched(void)
{
    static const struct gpuprof_torch_pool id = {0, 3};
    struct block *made[2] = {NULL, NULL};
    size_t bytes = 0;
    for (unsigned i = 0; i < 2; i++) {
        begin();
        if (i == 1)
            gpuprof_torch_begin_allocate_to_pool(0, id, NULL);
        void *pointer = gpuprof_torch_alloc(MIB * 3, 0, NULL);
        if (i == 1)
            gpuprof_torch_end_allocate_to_pool(0, id);
        made[i] = pointer ? block_new((uintptr_t)pointer, MIB * 3, 0) : NULL;
        if (!after("torch alloc", pointer ? 0 : 1))
            continue;
        begin();
        uint64_t base = (uintptr_t)gpuprof_torch_base_alloc((char *)pointer + 5, &bytes);
        gpuprof_torch_record_stream(pointer, (void *)1);
        if (after("torch base", base ? 0 : 1) && (base > made[i]->address || base + bytes < made[i]->address + MIB * 3))
            die("a segment that does not hold its block");
    }
    for (unsigned i = 0; i < 2; i++)
        if (made[i]) {
            begin();
            gpuprof_torch_free((void *)(uintptr_t)made[i]->address, 0, 0, NULL);
            gone(made[i]);
            after("torch free", 0);
        }
    begin();
    gpuprof_torch_release_pool(0, id);
    gpuprof_torch_set_memory_fraction(2, 0); /* ignored */
    gpuprof_torch_reset();
    after("torch reset", 0);
    if (!troubled() && gp_cache_limit(gp_served_cache(gp_served_primary(0))))
        die("a fraction of 2 is a limit");
}

/* The process ends: the driver answers what the cache cannot, and the cache makes no call of its own. */
static void stopped(void)
{
    struct block *kept[] = {take("alloc", 5 * MIB), take("alloc", 100), take("alloc", 60 * MIB)}, *late;
    drop("free", kept[2], gp_wrap_cuMemFree_v2);
    gp_allocator_stop();
    unsigned frees = fakedriver_calls("cuMemFree_v2") + fakedriver_calls("cuMemUnmap");
    uint64_t held = fakedriver_held(0);
    for (unsigned i = 0; i < 2; i++)
        drop("free at the end", kept[i], gp_wrap_cuMemFree_v2);
    if (fakedriver_held(0) != held || fakedriver_calls("cuMemFree_v2") + fakedriver_calls("cuMemUnmap") != frees)
        die("the cache called the driver at the end");
    fakedriver.program = true;
    late = take("alloc at the end", 3 * MIB);
    if (!late || !late->passed)
        die("the driver did not answer at the end");
    struct block *all = take("alloc at the end", FAKEDRIVER_MEMORY - fakedriver_held(0));
    if (!all || !all->passed)
        die("the driver has less than it should");
    late = take("alloc beyond the driver", 100);
    if ((!late || late->passed) && !gp_cache_policy(gp_served_cache(gp_served_of(current)))->frees_at_once)
        die("idle memory does not serve at the end");
    drop("free at the end", late, gp_wrap_cuMemFree_v2);
    begin();
    if (after("alloc far beyond the driver", gp_wrap_cuMemAlloc_v2(&(uint64_t){0}, FAKEDRIVER_MEMORY)) ||
        after("gpuprof_alloc at the end", (uint32_t)gpuprof_alloc(&(void *){0}, 100, 0, NULL)))
        die("more than the device has at the end");
}

static void program(bool ends)
{
    void *first = enter_primary(0);
    if (!first)
        return;
    if (ends) {
        sizes();
        stopped();
        end(0);
    }
    sizes();
    wrong();
    info();
    pitched();
    marked();
    streamed();
    captured();
    crowded();
    second(first);
    pooled();
    torched();
    struct block *kept = take("alloc", 7 * MIB), *ours = take_ours("gpuprof_alloc", 6 * MIB, 1, NULL);
    info();
    drop("gpuprof_free", ours, free_ours);
    begin();
    uint32_t result = PASSED(gp_wrap_cuDevicePrimaryCtxReset_v2(0));
    if (!result)
        all_gone(0);
    after("reset", result);
    (void)kept;
    drop("free after reset", take("alloc after reset", MIB), gp_wrap_cuMemFree_v2);
    leave_context();
    for (int device = 0; device < FAKEDRIVER_DEVICES; device++)
        while (fakedriver_references(device) > 0) {
            int before = fakedriver_references(device);
            begin();
            result = PASSED(gp_wrap_cuDevicePrimaryCtxRelease_v2(device));
            if (fakedriver_references(device) == 0)
                all_gone(device);
            after("release", result);
            if (fakedriver_references(device) == before)
                break;
        }
}

/* ---- one run in a process of its own ------------------------------------------------------------------------------- */

struct script {
    const char *conf; /* GPUPROF_ALLOC_CONF */
    const char *allocator;
    const char *lacks, *fails;
    unsigned number;
    uint32_t code;
    bool ends; /* the process begins to end */
};

static const char *const functions[] = {
#define GP_DRIVER(_name, ...) #_name,
#include "allocator/driver.def"
#undef GP_DRIVER
};
#define FUNCTIONS GP_COUNT(functions)

static void poller_woken(void)
{
}

static bool is_give_back(const char *name)
{
    static const char *const some[] = {"cuMemFree_v2", "cuMemRelease", "cuMemUnmap", "cuMemAddressFree",
                                       "cuCtxPushCurrent_v2"};
    for (unsigned i = 0; name && i < GP_COUNT(some); i++)
        if (strcmp(name, some[i]) == 0)
            return true;
    return false;
}

static void child(const struct script *script)
{
    static struct gp_ring ring;
    char why[128];
    chunks = mmap(NULL, CHUNKS * sizeof(*chunks), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (gp_ringread_new(&reader, ring_copy, NULL, CHUNKS, GP_RINGREAD_OLDEST) != 0 ||
        gp_ring_init(&ring, chunks, CHUNKS, &lost[GP_LOST_RING]) != 0 || gp_thread_life_start() != 0 ||
        gp_feed_start(&(struct gp_feed_setup){.ring = &ring,
                                              .lost = lost,
                                              .failures = failures,
                                              .oom = &oom,
                                              .wake_poller = poller_woken,
                                              .map_limit = 1 << 12}) != 0)
        die("the accounts do not start");
    fakedriver.lacks = script->lacks;
    fakedriver.fails = script->fails;
    fakedriver.number = script->number;
    fakedriver.code = script->code;
    fakedriver.program = script->fails;
    loses = is_give_back(script->fails);
    /* No allocator is named, because the hooks are not present here: the policy comes from the settings. */
    const struct gp_policy *found = gp_policy_find(script->allocator);
    struct gp_policy policy = *found;
    if (script->conf && gp_policy_configure(&policy, script->conf, why, sizeof(why)) != 0)
        die("%s", why);
    policy.granule_bytes = policy.granule_bytes < 512 ? 512 : policy.granule_bytes;
    gp_served_setup(&policy, 0);
    conf = script->conf;
    gp_failed_setup(conf);
    if (!gp_driver_bind())
        die("not bound");
    gp_stream_watch();
    if (!gp_serve_install(script->conf ? GP_SERVE_GROWABLE : GP_SERVE_DEDICATED))
        die("not installed");
    program(script->ends);
    outcome->failed = fakedriver.failed;
    for (unsigned i = 0; i < FUNCTIONS; i++)
        outcome->calls[i] = fakedriver_calls(functions[i]);
    if (!loses && !fakedriver_references(0) && !fakedriver_references(1) &&
        (fakedriver_growable() || fakedriver_held(0) || fakedriver_held(1)))
        die("%u objects are left, and %llu and %llu bytes", fakedriver_growable(),
            (unsigned long long)fakedriver_held(0), (unsigned long long)fakedriver_held(1));
    end(0);
}

static const struct script whole[] = {
    {.allocator = "caching"},     {.allocator = "caching", .conf = "expandable_segments:True"},
    {.allocator = "pytorch"},     {.allocator = "pytorch", .conf = "expandable_segments:True"},
    {.allocator = "passthrough"},
};

/* False: the program did not run to its end; outcome->why says what was wrong. */
static bool run(const struct script *script)
{
    int status = 0;
    if (!outcome)
        outcome = mmap(NULL, sizeof(*outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(outcome, 0, sizeof(*outcome));
    pid_t pid = fork();
    if (pid == 0)
        child(script);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status))
        snprintf(outcome->why, sizeof(outcome->why), "signal %d after %u calls, the last was %s", WTERMSIG(status),
                 outcome->steps, outcome->steps ? outcome->step[outcome->steps - 1].name : "none");
    return status == 0;
}

Test(allocator_driver, a_whole_driver)
{
    for (unsigned i = 0; i < GP_COUNT(whole); i++)
        cr_assert(run(&whole[i]), "%s %s: %s", whole[i].allocator, whole[i].conf ? whole[i].conf : "", outcome->why);
}

/* The steps, by the start of their names, that end otherwise in a driver without this function. */
static const struct lack {
    const char *function, *steps[7];
} lacks[] = {
    {"cuInit", {"gpuprof_", "torch", "begin pool", "fraction", "limit", "mem_get_info", "empty cache"}},
    {"cuDeviceGet", {"gpuprof_", "torch", "begin pool", "fraction", "limit", "mem_get_info", "empty cache"}},
    {"cuDeviceTotalMem_v2", {"fraction"}},
    {"cuDevicePrimaryCtxRetain", {"retain"}},
    {"cuDevicePrimaryCtxRelease_v2", {"release", "mem_get_info of another device"}},
    {"cuCtxGetDevice", {"alloc async", "mem_get_info", "gpuprof_alloc beyond the limit"}},
    {"cuStreamIsCapturing", {"capture"}},
    {"cuPointerSetAttribute", {"sync"}},
    /* memory is not growable then: its addresses have attributes and handles */
    {"cuMem", {"attribute", "sync", "export"}},
};

static bool may_differ(const char *function, const char *step)
{
    for (unsigned i = 0; i < GP_COUNT(lacks); i++)
        for (unsigned j = 0; j < GP_COUNT(lacks[i].steps) && lacks[i].steps[j]; j++)
            if (strncmp(function, lacks[i].function, strlen(lacks[i].function)) == 0 &&
                strncmp(step, lacks[i].steps[j], strlen(lacks[i].steps[j])) == 0)
                return true;
    return false;
}

/* Whether a step of this name had this result in the whole driver. */
static bool is_usual(const struct outcome *full, const char *step, uint32_t result)
{
    for (unsigned i = 0; i < full->steps; i++)
        if (full->step[i].name == step && full->step[i].result == result)
            return true;
    return false;
}

/* Without these the cache serves nothing. */
static bool is_needed(const char *name)
{
    static const char *const needed[] = {
        "cuCtxGetCurrent",   "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuCtxSynchronize",
        "cuStreamCreate",    "cuStreamDestroy_v2",  "cuStreamQuery",      "cuStreamWaitEvent",
        "cuEventCreate",     "cuEventRecord",       "cuEventQuery",       "cuEventSynchronize",
        "cuEventDestroy_v2", "cuMemAlloc_v2",       "cuMemFree_v2",       "cuMemGetInfo_v2",
    };
    for (unsigned i = 0; i < GP_COUNT(needed); i++)
        if (strcmp(name, needed[i]) == 0)
            return true;
    return false;
}

Test(allocator_driver, a_process_that_ends)
{
    for (unsigned i = 0; i < GP_COUNT(whole); i++) {
        struct script script = whole[i];
        script.ends = true;
        cr_assert(run(&script), "%s %s: %s", script.allocator, script.conf ? script.conf : "", outcome->why);
    }
}

Test(allocator_driver, a_driver_without_one_function)
{
    static struct outcome full;
    for (unsigned way = 0; way < (test_is_full() ? GP_COUNT(whole) : 2); way++) {
        cr_assert(run(&whole[way]), "%s", outcome->why);
        full = *outcome;
        for (unsigned i = 0; i < FUNCTIONS; i++) {
            struct script script = whole[way];
            script.lacks = functions[i];
            bool ok = run(&script);
            if (is_needed(functions[i])) {
                cr_assert(!ok && strcmp(outcome->why, "not bound") == 0, "%s: %s", functions[i], outcome->why);
                continue;
            }
            if (strcmp(functions[i], "cuDevicePrimaryCtxGetState") == 0)
                continue; /* the end of a primary context is not seen */
            cr_assert(ok, "%u: without %s: %s", way, functions[i], outcome->why);
            for (unsigned j = 0; j < outcome->steps; j++)
                cr_expect(is_usual(&full, outcome->step[j].name, outcome->step[j].result) ||
                              may_differ(functions[i], outcome->step[j].name),
                          "%u: without %s: %s gives %u", way, functions[i], outcome->step[j].name,
                          outcome->step[j].result);
        }
    }
}

Test(allocator_driver, one_call_fails)
{
    unsigned calls[FUNCTIONS];
    for (unsigned way = 0; way < (test_is_full() ? GP_COUNT(whole) : 2); way++) {
        cr_assert(run(&whole[way]), "%s", outcome->why);
        memcpy(calls, outcome->calls, sizeof(calls));
        for (unsigned i = 0; i < FUNCTIONS; i++)
            for (unsigned number = 1; number <= calls[i]; number += test_is_full() ? 1 + number / 4 : number) {
                struct script script = whole[way];
                script.fails = functions[i];
                script.number = number;
                script.code = number % 2 ? 999 : GP_CU_OUT_OF_MEMORY;
                bool ok = run(&script);
                cr_expect(ok, "%u: %s fails at %u: %s", way, functions[i], number, outcome->why);
            }
    }
}
