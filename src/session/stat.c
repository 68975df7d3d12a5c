/* SPDX-License-Identifier: MIT
 *
 * stat.c: the memory statistics of gpuprof.h, of devices and of the host.
 */
#include "account/feed/feed.h"
#include "account/tap.h"
#include "base/compiler.h"
#include "base/thread.h"
#include "session/internal.h"
#include "session/session.h"
#include <errno.h>
#include <gpuprof/gpuprof.h>
#include <gpuprof/wire.h>
#include <string.h>

/* ==== names ======================================================================================================= */
/* The names and places of the statistics of pinned host memory. The order is part of the interface:
 * sorted, as in PyTorch; later additions go to the end. tests/golden/api records it. */

#define GP_NAMED_FIELD(_name, _field)                                                                                  \
    {                                                                                                                  \
        _name, offsetof(struct gp_wire_device, _field), 1                                                              \
    }
#define GP_VALUES(_name, _stat)                                                                                        \
    GP_NAMED_FIELD(_name ".allocated", stats[_stat][GP_POOL_ALL].allocated),                                           \
        GP_NAMED_FIELD(_name ".current", stats[_stat][GP_POOL_ALL].current),                                           \
        GP_NAMED_FIELD(_name ".freed", stats[_stat][GP_POOL_ALL].freed),                                               \
        GP_NAMED_FIELD(_name ".peak", stats[_stat][GP_POOL_ALL].peak)

/* PyTorch's host allocator calls the memory that it holds pinned `allocated`, and the part that
 * the program uses `active`. On a device these are reserved and allocated. */
static const struct gp_stat_key host_stats[] = {
    GP_VALUES("active_bytes", GP_STAT_ALLOCATED_BYTES),   GP_VALUES("active_requests", GP_STAT_ALLOCATION),
    GP_VALUES("allocated_bytes", GP_STAT_RESERVED_BYTES), GP_VALUES("allocations", GP_STAT_SEGMENT),
    GP_NAMED_FIELD("num_host_alloc", num_device_alloc),   GP_NAMED_FIELD("num_host_free", num_device_free),
};

/* ==== the statistics ============================================================================================== */

_Static_assert(GPUPROF_STATS == GP_STAT_KEYS && GPUPROF_HOST_STATS == GP_COUNT(host_stats),
               "GPUPROF_STATS and GPUPROF_HOST_STATS in gpuprof.h are the numbers of keys that numbers.def makes");

/* ---- shared --------------------------------------------------------------------------------------------------- */

bool gp_session_api_enter(int *saved_errno)
{
    *saved_errno = errno;
    return gp_session_ready() && gp_thread_enter();
}

void gp_session_api_leave(int saved_errno)
{
    gp_thread_leave();
    errno = saved_errno;
}

/* A query of the driver costs thirty times the read itself, and most programs have nothing to
 * query. */
void gp_session_api_poll(void)
{
    if (gp_tap_polled())
        gp_session_poll();
}

/* Reads a row of gp_wire_device[] at one instant, with fresh polled parts. False: the
 * device is not known. */
static bool api_device(unsigned index, struct gp_wire_device *out)
{
    int saved_errno;
    if (!gp_session_api_enter(&saved_errno))
        return false;
    gp_session_api_poll();
    bool known = gp_tap_device(index, out);
    gp_session_api_leave(saved_errno);
    return known;
}

/* Resets it (GP_RESET_*). Every reset writes an event, whichever interface requests it (drain.c). */
static bool api_reset(unsigned index, unsigned what)
{
    struct gp_wire_before_after values;
    int saved_errno;
    if (!gp_session_api_enter(&saved_errno))
        return false;
    gp_session_api_poll();
    bool known = gp_tap_reset(index, what, &values);
    if (known)
        gp_feed_event(GP_EVENT_RESET, "");
    gp_session_api_leave(saved_errno);
    return known;
}

static bool api_is_gpu(int device)
{
    return device >= 0 && device < (int)GP_WIRE_GPUS;
}

/* ---- whether the process is profiled ------------------------------------------------------------------------- */

/* Without a source the program's own calls are not counted; memory that our allocator hands out
 * makes a device known. */
GP_EXPORT int gpuprof_active(void)
{
    int saved_errno;
    if (!gp_session_api_enter(&saved_errno))
        return 0;
    int active = gp_session_sourced() || gp_feed_devices() != 0;
    gp_session_api_leave(saved_errno);
    return active;
}

GP_EXPORT int gpuprof_device_count(void)
{
    int saved_errno;
    if (!gp_session_api_enter(&saved_errno))
        return 0;
    uint64_t devices = gp_feed_devices();
    gp_session_api_leave(saved_errno);
    return devices ? 64 - __builtin_clzll(devices) : 0;
}

/* ---- one number ----------------------------------------------------------------------------------------------- */

static int64_t api_number(int device, enum gp_wire_stat stat, bool peak)
{
    struct gp_wire_device numbers;
    if (!api_is_gpu(device) || !api_device((unsigned)device, &numbers))
        return -1;
    const struct gp_wire_value *value = &numbers.stats[stat][GP_POOL_ALL];
    return peak ? value->peak : value->current;
}

GP_EXPORT int64_t gpuprof_memory_allocated(int device)
{
    return api_number(device, GP_STAT_ALLOCATED_BYTES, false);
}

GP_EXPORT int64_t gpuprof_max_memory_allocated(int device)
{
    return api_number(device, GP_STAT_ALLOCATED_BYTES, true);
}

GP_EXPORT int64_t gpuprof_memory_reserved(int device)
{
    return api_number(device, GP_STAT_RESERVED_BYTES, false);
}

GP_EXPORT int64_t gpuprof_max_memory_reserved(int device)
{
    return api_number(device, GP_STAT_RESERVED_BYTES, true);
}

/* ---- all of them ---------------------------------------------------------------------------------------------- */

static int api_values(unsigned index, const struct gp_stat_key *stats, unsigned known, int64_t *values, unsigned count)
{
    struct gp_wire_device numbers;
    if ((count && !values) || !api_device(index, &numbers))
        return -1;
    for (unsigned i = 0; i < count && i < known; i++)
        values[i] = gp_stat_get(&numbers, &stats[i]);
    return 0;
}

GP_EXPORT const char *gpuprof_stat_name(unsigned index)
{
    return index < GP_STAT_KEYS ? gp_stat_keys[index].name : NULL;
}

GP_EXPORT int gpuprof_memory_stats(int device, int64_t *values, unsigned count)
{
    return api_is_gpu(device) ? api_values((unsigned)device, gp_stat_keys, GP_STAT_KEYS, values, count) : -1;
}

GP_EXPORT int gpuprof_memory_stat(int device, const char *name, int64_t *value)
{
    unsigned i = 0;
    if (!name || !value || !api_is_gpu(device))
        return -1;
    while (i < GP_STAT_KEYS && strcmp(gp_stat_keys[i].name, name) != 0)
        i++;
    return i < GP_STAT_KEYS ? api_values((unsigned)device, &gp_stat_keys[i], 1, value, 1) : -1;
}

GP_EXPORT const char *gpuprof_host_stat_name(unsigned index)
{
    return index < GP_COUNT(host_stats) ? host_stats[index].name : NULL;
}

GP_EXPORT int gpuprof_host_memory_stats(int64_t *values, unsigned count)
{
    return api_values(GP_WIRE_HOST, host_stats, GP_COUNT(host_stats), values, count);
}

/* ---- resets --------------------------------------------------------------------------------------------------- */

static int api_reset_gpu(int device, unsigned what)
{
    return api_is_gpu(device) && api_reset((unsigned)device, what) ? 0 : -1;
}

GP_EXPORT int gpuprof_reset_max_memory_allocated(int device)
{
    return api_reset_gpu(device, GP_RESET_ALLOCATED);
}

GP_EXPORT int gpuprof_reset_max_memory_reserved(int device)
{
    return api_reset_gpu(device, GP_RESET_RESERVED);
}

GP_EXPORT int gpuprof_reset_peak_memory_stats(int device)
{
    return api_reset_gpu(device, GP_RESET_PEAKS);
}

GP_EXPORT int gpuprof_reset_accumulated_memory_stats(int device)
{
    return api_reset_gpu(device, GP_RESET_ACCUMULATED);
}

GP_EXPORT int gpuprof_reset_host_memory_stats(int what)
{
    static const unsigned resets[] = {
        [GPUPROF_RESET_PEAKS] = GP_RESET_PEAKS, [GPUPROF_RESET_ACCUMULATED] = GP_RESET_ACCUMULATED};
    return what >= 0 && what < (int)GP_COUNT(resets) && api_reset(GP_WIRE_HOST, resets[what]) ? 0 : -1;
}
