/* SPDX-License-Identifier: MIT
 *
 * allocator_view.h: what the program of test_allocator_driver.c sees of its driver, and how it is compared after each
 * call: the thread's state, its blocks, the events, the statistics, and what the driver holds.
 */
#ifndef GP_TEST_ALLOCATOR_VIEW_H
#define GP_TEST_ALLOCATOR_VIEW_H

#include "account/tap.h"
#include "allocator/driver.h"
#include "allocator/served.h"
#include "base/compiler.h"
#include "base/thread.h"
#include "cache/cache.h"
#include "lib/cachecheck.h"
#include "lib/fakedriver.h"
#include "lib/lockfree.h"
#include "record/ringread.h"
#include <errno.h>
#include <gpuprof/wire.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BLOCKS 64
#define STEPS  200
#define ERRNO  77

/* What a run leaves for its parent. */
struct outcome {
    char why[512];
    unsigned steps, failed;
    struct {
        const char *name;
        uint32_t result;
    } step[STEPS];
    unsigned calls[64]; /* of the driver's functions */
    uint64_t held;      /* at the end */
};
static struct outcome *outcome;

/* MODE=cov: counts what this process reached. */
extern void __gcov_dump(void) __attribute__((weak));

static void end(int status)
{
    if (__gcov_dump)
        __gcov_dump();
    _exit(status);
}

static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(outcome->why, sizeof(outcome->why), format, args);
    va_end(args);
    end(1);
}

static uint64_t lost[GP_LOSTS];
static struct gp_wire_failure failures[GP_WIRE_FAILURES];
static struct gp_wire_oom oom;

static const char *conf; /* GPUPROF_ALLOC_CONF */

/* ---- the program's view -------------------------------------------------------------------------------------------- */

static struct block {
    uint64_t address;
    size_t bytes;
    int device;
    bool passed; /* the driver's own */
    uint64_t stream;
} blocks[BLOCKS];
static uint64_t foreign[FAKEDRIVER_DEVICES]; /* bytes that the driver holds for the program itself */
static unsigned depth;
static void *current;
static bool loses; /* a call that gives memory back failed: the driver holds more */

static struct block *block_new(uint64_t address, size_t bytes, int device)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        if (!blocks[i].bytes) {
            blocks[i] = (struct block){address, bytes, device, false, 0};
            return &blocks[i];
        }
    die("too many blocks");
    return NULL;
}

static void check_blocks(const char *what)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        const struct block *one = &blocks[i];
        if (!one->bytes)
            continue;
        if (one->address % 256 || !fakedriver_usable(one->address, one->bytes, one->device))
            die("%s: a block of %zu bytes is not memory of device %d", what, one->bytes, one->device);
        for (unsigned j = 0; j < i; j++)
            if (blocks[j].bytes && one->address < blocks[j].address + blocks[j].bytes &&
                blocks[j].address < one->address + one->bytes)
                die("%s: two blocks overlap", what);
    }
}

/* ---- events -------------------------------------------------------------------------------------------------------- */

#define CHUNKS 16u

static struct gp_wire_chunk *chunks;
static struct gp_ringread *reader;
static struct block heard[2 * BLOCKS]; /* live, as the events have it */
static uint64_t heard_segments[FAKEDRIVER_DEVICES];

static int ring_copy(void *arg, void *into, size_t bytes, uint64_t offset)
{
    (void)arg;
    memcpy(into, (const char *)chunks + offset, bytes);
    return 0;
}

static void hear(const char *what, const struct gp_wire_event *event)
{
    struct block *found = NULL, *empty = NULL;
    for (unsigned i = 0; i < GP_COUNT(heard); i++) {
        if (heard[i].bytes && heard[i].address == event->address)
            found = &heard[i];
        if (!heard[i].bytes)
            empty = &heard[i];
    }
    switch (event->type) {
    case GP_EVENT_ALLOC:
        if (found || !empty)
            die("%s: an event of an address that is live", what);
        *empty = (struct block){event->address, event->requested_bytes, event->device, false, event->stream};
        break;
    case GP_EVENT_FREE:
        if (!found || found->bytes != event->requested_bytes || found->device != event->device)
            die("%s: an event of a block that is not live", what);
        found->bytes = 0;
        break;
    case GP_EVENT_SEGMENT_ALLOC:
    case GP_EVENT_SEGMENT_MAP:
        heard_segments[event->device] += event->bytes;
        break;
    case GP_EVENT_SEGMENT_FREE:
    case GP_EVENT_SEGMENT_UNMAP:
        heard_segments[event->device] -= event->bytes;
        break;
    default:
        break;
    }
}

static void check_events(const char *what)
{
    const struct gp_wire_event *events;
    unsigned live = 0, told = 0;
    ssize_t got = gp_ringread_poll(reader, UINT64_MAX, &events);
    for (ssize_t i = 0; i < got; i++)
        hear(what, &events[i]);
    for (unsigned i = 0; i < GP_COUNT(heard); i++)
        told += heard[i].bytes != 0;
    for (unsigned i = 0; i < BLOCKS; i++) {
        const struct block *one = &blocks[i];
        bool same = !one->bytes || one->passed;
        live += !same;
        for (unsigned j = 0; j < GP_COUNT(heard) && !same; j++)
            same = heard[j].bytes == one->bytes && heard[j].address == one->address && heard[j].device == one->device &&
                   heard[j].stream == one->stream;
        if (!same)
            die("%s: no event of a block of %zu bytes", what, one->bytes);
    }
    if (live != told)
        die("%s: %u blocks live, in events %u", what, live, told);
}

static void check_numbers(const char *what, int device)
{
    struct gp_cache_numbers numbers;
    struct gp_wire_device stats;
    uint64_t reserved = 0, allocated = 0, requested = 0;
    char why[128];
    for (unsigned i = 0; i < gp_served_count(); i++) {
        struct gp_cache *cache = gp_served_cache(&gp_served_contexts[i]);
        if (!cache || gp_served_contexts[i].device != device)
            continue;
        if (cache_check(cache, why, sizeof(why)) != 0)
            die("%s: %s", what, why);
        gp_cache_numbers(cache, &numbers);
        reserved += numbers.reserved_bytes;
        allocated += numbers.allocated_bytes;
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        requested += !blocks[i].passed && blocks[i].device == device ? blocks[i].bytes : 0;
    if (heard_segments[device] != reserved)
        die("%s: %llu bytes of segments in events, %llu in the cache", what, (unsigned long long)heard_segments[device],
            (unsigned long long)reserved);
    uint64_t held = fakedriver_held(device) - foreign[device];
    if (loses ? held < reserved : held != reserved)
        die("%s: device %d holds %llu bytes for the cache, which counts %llu", what, device, (unsigned long long)held,
            (unsigned long long)reserved);
    if (!gp_tap_device((unsigned)device, &stats))
        return;
    if (stats.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current != (int64_t)reserved ||
        stats.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current != (int64_t)allocated ||
        stats.kinds[GP_KIND_LINEAR].current_bytes != (int64_t)requested)
        die("%s: device %d: the statistics are %lld, %lld and %lld, the cache's numbers %llu, %llu and %llu", what,
            device, (long long)stats.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current,
            (long long)stats.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current,
            (long long)stats.kinds[GP_KIND_LINEAR].current_bytes, (unsigned long long)reserved,
            (unsigned long long)allocated, (unsigned long long)requested);
}

static void begin(void)
{
    depth = fakedriver_depth();
    current = fakedriver_current();
    fakedriver.capture_mode = 0;
    errno = ERRNO;
}

/* Nothing can be done after such a call has failed. */
static bool is_beyond_repair(const char *name)
{
    static const char *const some[] = {"cuCtxPopCurrent_v2", "cuThreadExchangeStreamCaptureMode",
                                       "cuDevicePrimaryCtxGetState", "cuStreamDestroy_v2"};
    for (unsigned i = 0; i < GP_COUNT(some); i++)
        if (strcmp(name, some[i]) == 0)
            return true;
    return false;
}

/* After each call of the program.  Returns whether it succeeded. */
static bool after(const char *what, uint32_t result)
{
    if (errno != ERRNO)
        die("%s: errno changed", what);
    if (gp_thread.inside || gp_thread.ignored || gp_thread.prompt)
        die("%s: the thread is still ours", what);
    if (!lock_is_as_new(&gp_served_lock))
        die("%s: a lock is taken once more or less than given", what);
    if (fakedriver.failed && is_beyond_repair(fakedriver.fails))
        end(0);
    if (fakedriver_depth() != depth || fakedriver_current() != current)
        die("%s: another context is current", what);
    if (fakedriver.capture_mode != 0)
        die("%s: another capture mode", what);
    check_blocks(what);
    check_events(what);
    for (int device = 0; device < FAKEDRIVER_DEVICES; device++)
        check_numbers(what, device);
    if (fakedriver.faults)
        die("%s: %s", what, fakedriver.fault);
    if (outcome->steps < STEPS) {
        outcome->step[outcome->steps].name = what;
        outcome->step[outcome->steps++].result = result;
    }
    return result == 0;
}

/* Calls that the driver answers itself may go there without the library. */
#define PASSED(_call) (fakedriver.program = true, _result = (_call), fakedriver.program = fakedriver.fails, _result)
static uint32_t _result;

/* In a driver that lacks something, or after a failure, some answers differ. */
static bool troubled(void)
{
    return fakedriver.lacks || fakedriver.failed;
}

#endif
