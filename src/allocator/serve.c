/* SPDX-License-Identifier: MIT
 *
 * serve.c: what the program asks of its memory, answered from the cache; see internal.h.
 */
#include "account/feed/failed.h"
#include "allocator/driver.h"
#include "allocator/internal.h"
#include "allocator/mapping.h"
#include "allocator/served.h"
#include "allocator/stream.h"
#include "base/compiler.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/thread.h"
#include "cache/cache.h"
#include "source/hooks.h"
#include <errno.h>

/* ==== memory that is not served =================================================================================== */
/* Allocations that the cache does not serve, but that may fail because of its idle memory.  When the
 * driver is out of memory, idle memory is given back and the call is made a second time. */

/* Gives the idle memory of the device's caches back to the driver, except that of one context.  Returns the bytes. */
static uint64_t serve_yield(int device, const struct gp_served_context *except)
{
    uint64_t given = 0;
    for (unsigned i = 0; i < gp_served_count(); i++) {
        struct gp_cache *cache = gp_served_cache(&gp_served_contexts[i]);
        if (cache && &gp_served_contexts[i] != except && gp_served_contexts[i].device == device)
            given += gp_cache_trim(cache, 0);
    }
    return given;
}

/* The driver is out of memory in the current context.  Gives idle memory back; true: try again.  Called outside the
 * library's code. */
static GP_COLD bool serve_retry(void)
{
    int saved_errno = errno, device = -1;
    bool given = false;
    if (gp_driver_stopped() || !gp_thread_enter())
        return false;
    if (gp_driver_real.cuCtxGetDevice && gp_driver_real.cuCtxGetDevice(&device) == 0)
        given = serve_yield(device, NULL) > 0;
    gp_thread_leave();
    errno = saved_errno;
    return given;
}

#define GP_SERVE_TWICE(_name, _params, _args)                                                                          \
    static uint32_t gp_serve_##_name _params                                                                           \
    {                                                                                                                  \
        uint32_t result = gp_pass_##_name _args;                                                                       \
        return GP_UNLIKELY(result == GP_CU_OUT_OF_MEMORY) && serve_retry() ? gp_pass_##_name _args : result;           \
    }
GP_SERVE_TWICE(cuMemAllocAsync, (uint64_t * address, size_t bytes, void *stream), (address, bytes, stream))
GP_SERVE_TWICE(cuMemAllocAsync_ptsz, (uint64_t * address, size_t bytes, void *stream), (address, bytes, stream))
GP_SERVE_TWICE(cuMemAllocFromPoolAsync, (uint64_t * address, size_t bytes, void *pool, void *stream),
               (address, bytes, pool, stream))
GP_SERVE_TWICE(cuMemAllocFromPoolAsync_ptsz, (uint64_t * address, size_t bytes, void *pool, void *stream),
               (address, bytes, pool, stream))
GP_SERVE_TWICE(cuMemCreate,
               (uint64_t * handle, size_t bytes, const struct gp_cu_mem_prop *prop, unsigned long long flags),
               (handle, bytes, prop, flags))
GP_SERVE_TWICE(cuArrayCreate_v2, (void **array, const struct gp_cu_array_desc *desc), (array, desc))
GP_SERVE_TWICE(cuArray3DCreate_v2, (void **array, const struct gp_cu_array3d_desc *desc), (array, desc))
GP_SERVE_TWICE(cuMipmappedArrayCreate, (void **array, const struct gp_cu_array3d_desc *desc, unsigned int levels),
               (array, desc, levels))

const struct gp_serve_row gp_serve_memory_rows[] = {
    GP_SERVE_ROW(cuMemAllocAsync),
    GP_SERVE_ROW(cuMemAllocAsync_ptsz),
    GP_SERVE_ROW(cuMemAllocFromPoolAsync),
    GP_SERVE_ROW(cuMemAllocFromPoolAsync_ptsz),
    GP_SERVE_ROW(cuMemCreate),
    GP_SERVE_ROW(cuArrayCreate_v2),
    GP_SERVE_ROW(cuArray3DCreate_v2),
    GP_SERVE_ROW(cuMipmappedArrayCreate),
    {NULL, NULL},
};

/* ==== allocations ================================================================================================= */
/* cuMemAlloc, cuMemAllocPitch, cuMemFree and cuMemGetInfo of the program. */

/* A request of this size or more is a driver allocation of its own.  The driver maps it as whole pages, and NVIDIA
 * recommends this size for memory that is exported (programming guide, interprocess communication). */
#define GP_SERVE_WHOLE (2ull << 20)

enum gp_serve_kind gp_serve_memory_kind;

static void serve_leave(const struct gp_serve *serve);

/* Enters the library's code.  Returns the served context that is current, and serve_leave must follow; or NULL: pass
 * the call on.  errno is kept. */
static struct gp_served_context *serve_enter(struct gp_serve *serve)
{
    serve->saved_errno = errno;
    if (GP_UNLIKELY(gp_driver_stopped()) || !gp_thread_enter())
        return NULL;
    struct gp_served_context *served = gp_served_of(gp_driver_current());
    if (GP_UNLIKELY(!served))
        serve_leave(serve);
    return served;
}

/* The same for calls whose address identifies the context.  False: pass the call on. */
static bool serve_enter_any(struct gp_serve *serve)
{
    serve->saved_errno = errno;
    return !gp_thread.inside && gp_thread_enter_late();
}

/* For calls that need a current context, but do not care which: 0, or the driver's error if none is current. At the end
 * of the process too, in place of the program's own call: from some moment on the driver answers that it is gone. */
static uint32_t serve_current(void)
{
    void *ctx = NULL;
    uint32_t result = gp_driver_real.cuCtxGetCurrent(&ctx);
    return result || ctx ? result : GP_CU_INVALID_CONTEXT;
}

static void serve_leave(const struct gp_serve *serve)
{
    gp_thread_leave();
    errno = serve->saved_errno;
}

/* ---- alloc ------------------------------------------------------------------------------------------------------- */

static struct gp_request serve_request(size_t bytes)
{
    struct gp_request request = {.bytes = bytes, .stream = GP_STREAM_ANY, .shard = gp_thread.number};
    if (gp_serve_memory_kind != GP_SERVE_GROWABLE)
        request.flags = GP_REQUEST_LINEAR;
    if (gp_serve_memory_kind == GP_SERVE_DEDICATED && bytes >= GP_SERVE_WHOLE)
        request.flags |= GP_REQUEST_DEDICATED;
    return request;
}

static uint32_t serve_alloc(struct gp_served_context *served, const char *api, size_t bytes, uint64_t *address)
{
    struct gp_cache *cache = gp_served_make_cache(served);
    struct gp_request request = serve_request(bytes);
    struct gp_grant grant;
    *address = 0; /* the driver leaves no old value there when it fails */
    if (GP_UNLIKELY(!cache))
        return GP_CU_OUT_OF_MEMORY;
    gp_served_tag(served, &request);
    uint32_t result = gp_cache_alloc(cache, &request, &grant);
    /* The cache has given its idle memory back; the cache of another context may hold some too. */
    if (GP_UNLIKELY(result == GP_CU_OUT_OF_MEMORY) && serve_yield(served->device, served))
        result = gp_cache_alloc(cache, &request, &grant);
    if (GP_UNLIKELY(result)) {
        gp_failed_report(served, api, result, bytes, GP_STREAM_ANY);
        return result;
    }
    *address = grant.address;
    gp_served_event_alloc(served, &grant, 0);
    return 0;
}

/* At the end of the process the driver answers (driver.h).  If it has no memory left, idle memory of the cache serves:
 * the cache makes no driver calls then, and could not give it back. */
static GP_COLD uint32_t serve_alloc_late(size_t bytes, uint64_t *address)
{
    struct gp_served_context *served;
    struct gp_serve serve;
    struct gp_grant grant;
    uint32_t result = gp_pass_cuMemAlloc_v2(address, bytes);
    if (result != GP_CU_OUT_OF_MEMORY || !gp_driver_stopped() || !bytes || !serve_enter_any(&serve))
        return result;
    served = gp_served_of(gp_driver_current());
    struct gp_cache *cache = served ? gp_served_cache(served) : NULL;
    struct gp_request request = serve_request(bytes);
    if (cache && gp_cache_alloc(cache, &request, &grant) == 0) {
        gp_served_event_alloc(served, &grant, 0);
        *address = grant.address;
        result = 0;
    }
    serve_leave(&serve);
    return result;
}

/* While a capture is under way every call goes to the driver: it decides whether memory may be
 * allocated, and breaks the capture if not.  The cache answers only if the driver is out of memory. */
static uint32_t gp_serve_cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    struct gp_serve serve;
    struct gp_served_context *served = NULL;
    uint32_t result = GP_CU_OUT_OF_MEMORY;
    bool ours = address && bytes;
    if (ours && GP_UNLIKELY(gp_stream_capture_under_way())) {
        result = gp_pass_cuMemAlloc_v2(address, bytes);
        if (result != GP_CU_OUT_OF_MEMORY)
            return result;
    }
    if (ours)
        served = serve_enter(&serve);
    if (!served)
        return serve_alloc_late(bytes, address);
    result = serve_alloc(served, "cuMemAlloc_v2", bytes, address);
    serve_leave(&serve);
    return result;
}

/* Only the driver knows the pitch.  The first call with a width goes to the driver and shows it;
 * later calls are served. It depends on width and element size alone: the only other parameter, the
 * height, counts rows (cuda.h). */
static struct gp_pitch {
    size_t width, pitch;
    unsigned element;
    int device;
} pitches[256]; /* enough for one program's image sizes; on a collision the driver is asked again.  Under
                  gp_served_lock. */

static struct gp_pitch *pitch_slot(int device, size_t width, unsigned element)
{
    size_t hash = (width * 31 + element) * 31 + (size_t)device;
    return &pitches[hash % GP_COUNT(pitches)];
}

static size_t pitch_known(int device, size_t width, unsigned element)
{
    gp_lock_take(&gp_served_lock);
    const struct gp_pitch *slot = pitch_slot(device, width, element);
    bool same = slot->width == width && slot->element == element && slot->device == device;
    size_t pitch = same ? slot->pitch : 0;
    gp_lock_give(&gp_served_lock);
    return pitch;
}

static void pitch_learn(int device, size_t width, unsigned element, size_t pitch)
{
    gp_lock_take(&gp_served_lock);
    *pitch_slot(device, width, element) = (struct gp_pitch){width, pitch, element, device};
    gp_lock_give(&gp_served_lock);
}

static uint32_t gp_serve_cuMemAllocPitch_v2(uint64_t *address, size_t *pitch, size_t width, size_t height,
                                            unsigned int element)
{
    struct gp_serve serve;
    struct gp_served_context *served = NULL;
    size_t known, bytes;
    if (address && pitch && width && height && !gp_stream_capture_under_way())
        served = serve_enter(&serve);
    if (!served)
        return gp_pass_cuMemAllocPitch_v2(address, pitch, width, height, element);
    known = pitch_known(served->device, width, element);
    if (!known || __builtin_mul_overflow(known, height, &bytes)) {
        int device = served->device;
        serve_leave(&serve);
        uint32_t result = gp_pass_cuMemAllocPitch_v2(address, pitch, width, height, element);
        if (result == GP_CU_OUT_OF_MEMORY && serve_retry())
            result = gp_pass_cuMemAllocPitch_v2(address, pitch, width, height, element);
        if (result == 0)
            pitch_learn(device, width, element, *pitch);
        return result;
    }
    uint32_t result = serve_alloc(served, "cuMemAllocPitch_v2", bytes, address);
    if (result == 0)
        *pitch = known;
    serve_leave(&serve);
    return result;
}

/* ---- free -------------------------------------------------------------------------------------------------------- */

/* Would the driver let this thread free memory now?  Asked in the thread's own capture mode, so that a capture that
 * forbids it is broken as by the real call. */
static uint32_t serve_probe(void)
{
    uint64_t address;
    uint8_t heed = gp_thread_ignore();
    uint32_t result = gp_driver_real.cuMemAlloc_v2(&address, 1);
    if (result == 0)
        gp_driver_real.cuMemFree_v2(address);
    gp_thread_heed(heed);
    return result >= GP_CU_CAPTURE_FIRST && result <= GP_CU_CAPTURE_LAST ? result : 0;
}

static void serve_failed(const char *api, uint32_t result, int device)
{
    if (gp_thread_life_on())
        gp_feed_failed(api, result, 0, device, GP_KIND_NONE);
}

/* True: the call is answered by *result.  An address in memory of the cache never reaches the
 * driver, even if the call is wrong: to the driver the address may be a whole segment. */
static bool serve_release(const char *api, uint64_t address, uint32_t *result)
{
    unsigned count = gp_served_count();
    struct gp_grant grant;
    struct gp_served_context *owner;
    *result = serve_current();
    if (!*result && GP_UNLIKELY(gp_stream_capture_under_way()) && !gp_driver_stopped() &&
        gp_served_find(address, &grant))
        *result = serve_probe();
    for (unsigned i = 0; i < count && !*result; i++) {
        struct gp_served_context *served = &gp_served_contexts[i];
        struct gp_cache *cache = gp_served_cache(served);
        if (!cache)
            continue;
        gp_mapping_mark_drop(served, address);
        if (gp_cache_release(cache, address, GP_FREE_UNORDERED, gp_thread.number, &grant)) {
            gp_served_event_free(served, &grant, 0);
            return true;
        }
    }
    owner = gp_served_owning(address);
    if (!owner)
        return false;
    /* Freed twice, or an address inside a block.  To the driver it may be a segment in which other blocks live. */
    if (!*result)
        *result = GP_CU_INVALID_VALUE;
    serve_failed(api, *result, owner->device);
    return true;
}

/* Frees that serve_enter_any does not let in.  A call that interrupts our own code may take no lock, so the block just
 * stays.  In a forked child the block is the parent's: the driver says what a free there is worth, and gets an address
 * that it does not know. */
static uint32_t serve_outside(uint64_t address, void *stream, uint32_t (*free)(uint64_t, void *))
{
    if (!gp_served_begins(address))
        return free(address, stream);
    uint32_t result = gp_thread_life_ours() ? 0 : free(GP_NOWHERE, stream);
    return result == GP_CU_INVALID_VALUE ? 0 : result;
}

static uint32_t serve_pass_free(uint64_t address, void *stream)
{
    (void)stream;
    return gp_pass_cuMemFree_v2(address);
}

static uint32_t gp_serve_cuMemFree_v2(uint64_t address)
{
    struct gp_serve serve;
    uint32_t result;
    if (!address || !serve_enter_any(&serve))
        return serve_outside(address, NULL, serve_pass_free);
    bool answered = serve_release("cuMemFree_v2", address, &result);
    serve_leave(&serve);
    return answered ? result : gp_pass_cuMemFree_v2(address);
}

/* cuMemFreeAsync may free a plain allocation too.  The fence that every free waits for covers the stream.  In a stream
 * that captures, only memory of the capture may be freed. */
static bool serve_release_async(const char *api, uint64_t address, void *stream, uint32_t *result)
{
    int status = 0;
    if (!gp_served_owning(address))
        return false;
    *result = gp_driver_stopped() ? 0 : gp_driver_capturing(stream, &status);
    if (!*result && status)
        *result = GP_CU_INVALID_VALUE;
    if (*result) {
        serve_failed(api, *result, -1);
        return true;
    }
    gp_thread.prompt = 1;
    bool released = serve_release(api, address, result);
    gp_thread.prompt = 0;
    return released;
}

static uint32_t gp_serve_cuMemFreeAsync(uint64_t address, void *stream)
{
    struct gp_serve serve;
    uint32_t result;
    if (!address || !serve_enter_any(&serve))
        return serve_outside(address, stream, gp_pass_cuMemFreeAsync);
    bool answered = serve_release_async("cuMemFreeAsync", address, stream, &result);
    serve_leave(&serve);
    return answered ? result : gp_pass_cuMemFreeAsync(address, stream);
}

static uint32_t gp_serve_cuMemFreeAsync_ptsz(uint64_t address, void *stream)
{
    struct gp_serve serve;
    uint32_t result;
    void *named = stream ? stream : (void *)(uintptr_t)GP_CU_STREAM_PER_THREAD;
    if (!address || !serve_enter_any(&serve))
        return serve_outside(address, stream, gp_pass_cuMemFreeAsync_ptsz);
    bool answered = serve_release_async("cuMemFreeAsync_ptsz", address, named, &result);
    serve_leave(&serve);
    return answered ? result : gp_pass_cuMemFreeAsync_ptsz(address, stream);
}

/* ---- memory info ------------------------------------------------------------------------------------------------- */

/* Memory that is reserved but not allocated would be free without the cache.  A limit makes the device look smaller. */
static void serve_info(const struct gp_served_context *current, size_t *free, size_t *total)
{
    uint64_t idle = 0, allocated = 0, limit = gp_served_limit();
    for (unsigned i = 0; i < gp_served_count(); i++) {
        struct gp_cache *cache = gp_served_cache(&gp_served_contexts[i]);
        struct gp_cache_numbers numbers;
        if (!cache || gp_served_contexts[i].device != current->device)
            continue;
        gp_cache_numbers(cache, &numbers);
        idle += numbers.reserved_bytes - numbers.allocated_bytes;
        allocated += numbers.allocated_bytes;
        if (&gp_served_contexts[i] == current)
            limit = gp_cache_limit(cache);
    }
    *free = *free + idle < *total ? *free + idle : *total;
    if (limit && limit < *total) {
        uint64_t left = limit > allocated ? limit - allocated : 0;
        *total = limit;
        *free = left < *free ? left : *free;
    }
}

static uint32_t gp_serve_cuMemGetInfo_v2(size_t *free, size_t *total)
{
    struct gp_serve serve;
    uint32_t result = gp_pass_cuMemGetInfo_v2(free, total);
    struct gp_served_context *served = result ? NULL : serve_enter(&serve);
    if (served) {
        serve_info(served, free, total);
        serve_leave(&serve);
    }
    return result;
}

/* ---- table ------------------------------------------------------------------------------------------------------- */

const struct gp_serve_row gp_serve_block_rows[] = {
    GP_SERVE_ROW(cuMemAlloc_v2),
    GP_SERVE_ROW(cuMemAllocPitch_v2),
    GP_SERVE_ROW(cuMemFree_v2),
    GP_SERVE_ROW(cuMemFreeAsync),
    GP_SERVE_ROW(cuMemFreeAsync_ptsz),
    GP_SERVE_ROW(cuMemGetInfo_v2),
    {NULL, NULL},
};

/* ==== queries about an address ==================================================================================== */
/* Queries about an address: its range, its attributes, its IPC handle. */

/* CUpointer_attribute (cuda.h). */
enum gp_attribute {
    GP_ATTRIBUTE_CONTEXT = 1,
    GP_ATTRIBUTE_SYNC_MEMOPS = GP_CU_SYNC_MEMOPS,
    GP_ATTRIBUTE_BUFFER_ID = 7,
    GP_ATTRIBUTE_LEGACY_IPC = 10,
    GP_ATTRIBUTE_RANGE_START = 11,
    GP_ATTRIBUTE_RANGE_SIZE = 12,
    GP_ATTRIBUTE_MAPPING_SIZE = 18,
    GP_ATTRIBUTE_MAPPING_BASE = 19,
};

/* The context of the live block around the address.  A block ends after requested_bytes here. */
static struct gp_served_context *serve_block(uint64_t address, struct gp_grant *out)
{
    struct gp_served_context *served = gp_served_find(address, out);
    return served && address - out->address < out->requested_bytes ? served : NULL;
}

/* Can this block have a legacy IPC handle?  The handle stands for the driver's allocation, and the importer gets the
 * start of that, so the block must start there. */
static bool block_exportable(const struct gp_served_context *served, const struct gp_grant *block)
{
    uint64_t base, bytes;
    bool dedicated;
    return gp_cache_segment_of(gp_served_cache(served), block->address, &base, &bytes, &dedicated) &&
           base == block->address;
}

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

static uint32_t gp_serve_cuMemGetAddressRange_v2(uint64_t *base, size_t *bytes, uint64_t address)
{
    struct gp_serve serve;
    struct gp_grant block;
    if (!serve_enter_any(&serve))
        return gp_pass_cuMemGetAddressRange_v2(base, bytes, address);
    bool live = serve_block(address, &block) != NULL, ours = live || gp_served_owning(address);
    uint32_t result = ours ? serve_current() : 0;
    serve_leave(&serve);
    if (!ours)
        return gp_pass_cuMemGetAddressRange_v2(base, bytes, address);
    if (result || !live)
        return result ? result : GP_CU_NOT_FOUND;
    if (base)
        *base = block.address;
    if (bytes)
        *bytes = block.requested_bytes;
    return 0;
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

/* Turns the driver's answer, which is about the segment, into one about the block. */
static void attribute_of_block(int attribute, void *data, const struct gp_served_context *served,
                               const struct gp_grant *block)
{
    uint64_t id;
    switch (attribute) {
    case GP_ATTRIBUTE_CONTEXT: /* to the driver, growable memory has no context */
        *(void **)data = served->x_ctx;
        break;
    case GP_ATTRIBUTE_RANGE_START:
    case GP_ATTRIBUTE_MAPPING_BASE:
        *(uint64_t *)data = block->address;
        break;
    case GP_ATTRIBUTE_RANGE_SIZE:
    case GP_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)data = block->requested_bytes;
        break;
    case GP_ATTRIBUTE_LEGACY_IPC:
        *(uint32_t *)data = *(uint32_t *)data && block_exportable(served, block);
        break;
    case GP_ATTRIBUTE_BUFFER_ID:
        id = gp_mapping_mark_buffer(served, block->address);
        if (id)
            *(uint64_t *)data = id;
        break;
    case GP_ATTRIBUTE_SYNC_MEMOPS:
        *(uint32_t *)data = gp_mapping_mark_is_synced(block->address);
        break;
    default:
        break;
    }
}

/* Any context may be current: the driver answers from any. */
enum gp_address { GP_ADDRESS_FOREIGN, GP_ADDRESS_LIVE, GP_ADDRESS_DEAD };

static enum gp_address serve_address(uint64_t address, struct gp_served_context **served, struct gp_grant *block)
{
    enum gp_address what = GP_ADDRESS_FOREIGN;
    if (!gp_thread_enter_late())
        return what;
    *served = serve_block(address, block);
    if (*served)
        what = GP_ADDRESS_LIVE;
    else if (gp_served_owning(address))
        what = GP_ADDRESS_DEAD;
    gp_thread_leave();
    return what;
}

static uint32_t gp_serve_cuPointerGetAttribute(void *data, int attribute, uint64_t address)
{
    struct gp_served_context *served;
    struct gp_grant block;
    enum gp_address what = serve_address(address, &served, &block);
    uint32_t result = gp_pass_cuPointerGetAttribute(data, attribute, what == GP_ADDRESS_DEAD ? GP_NOWHERE : address);
    if (what == GP_ADDRESS_LIVE && data && (result == 0 || attribute == GP_ATTRIBUTE_CONTEXT)) {
        attribute_of_block(attribute, data, served, &block);
        result = 0;
    }
    return result;
}

static uint32_t gp_serve_cuPointerGetAttributes(unsigned int count, int *attributes, void **data, uint64_t address)
{
    struct gp_served_context *served;
    struct gp_grant block;
    enum gp_address what = serve_address(address, &served, &block);
    uint32_t result =
        gp_pass_cuPointerGetAttributes(count, attributes, data, what == GP_ADDRESS_DEAD ? GP_NOWHERE : address);
    for (unsigned i = 0; result == 0 && what == GP_ADDRESS_LIVE && i < count; i++)
        attribute_of_block(attributes[i], data[i], served, &block);
    return result;
}

/* ---- SYNC_MEMOPS ------------------------------------------------------------------------------------------------- */

static uint32_t gp_serve_cuPointerSetAttribute(const void *value, int attribute, uint64_t address)
{
    struct gp_served_context *served;
    struct gp_grant block;
    enum gp_address what = serve_address(address, &served, &block);
    uint64_t base, bytes;
    bool dedicated = false;
    if (what == GP_ADDRESS_DEAD)
        address = GP_NOWHERE;
    if (what != GP_ADDRESS_LIVE || attribute != GP_ATTRIBUTE_SYNC_MEMOPS || !value)
        return gp_pass_cuPointerSetAttribute(value, attribute, address);
    bool on = *(const unsigned *)value != 0;
    gp_cache_segment_of(gp_served_cache(served), block.address, &base, &bytes, &dedicated);
    if (!on && !dedicated) {
        gp_log(GP_LOG_INFO, "SYNC_MEMOPS stays on for this memory: its segment is shared with other blocks");
        gp_mapping_mark_synced(served, block.address, false);
        return 0;
    }
    uint32_t result = gp_pass_cuPointerSetAttribute(value, attribute, address);
    if (result == 0)
        gp_mapping_mark_synced(served, block.address, on);
    return result;
}

/* ---- IPC --------------------------------------------------------------------------------------------------------- */

static uint32_t gp_serve_cuIpcGetMemHandle(const void *handle, uint64_t address)
{
    struct gp_served_context *served;
    struct gp_grant block;
    enum gp_address what = serve_address(address, &served, &block);
    if (what == GP_ADDRESS_DEAD)
        address = GP_NOWHERE;
    if (what == GP_ADDRESS_LIVE && !block_exportable(served, &block)) {
        gp_log(
            GP_LOG_WARN,
            "cuIpcGetMemHandle refused: the block of %llu bytes shares its driver allocation with other blocks, so "
            "another process would get a wrong address.  Allocate at least 2 MiB for memory that is exported, or set "
            "GPUPROF_ALLOCATOR=passthrough",
            (unsigned long long)block.requested_bytes);
        return GP_CU_NOT_SUPPORTED;
    }
    return gp_pass_cuIpcGetMemHandle(handle, address);
}

const struct gp_serve_row gp_serve_pointer_rows[] = {
    GP_SERVE_ROW(cuMemGetAddressRange_v2), GP_SERVE_ROW(cuPointerGetAttribute), GP_SERVE_ROW(cuPointerGetAttributes),
    GP_SERVE_ROW(cuPointerSetAttribute),   GP_SERVE_ROW(cuIpcGetMemHandle),     {NULL, NULL},
};
