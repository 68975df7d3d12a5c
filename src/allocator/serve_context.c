/* SPDX-License-Identifier: MIT
 * serve_context.c: follows the program's contexts, streams, captures and peers; see stream.h.  Every call goes to the
 * driver; we note it afterwards, or before the call if a handle is about to end. */
#include "allocator/backend.h"
#include "allocator/driver.h"
#include "allocator/internal.h"
#include "allocator/served.h"
#include "allocator/stream.h"
#include "base/compiler.h"
#include "base/lock.h"
#include "cache/cache.h"
#include "source/hooks.h"
#include <errno.h>

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

static uint32_t context_made(uint32_t result, void *const *ctx, int device, bool primary)
{
    int saved_errno = errno;
    if (result == 0 && ctx && *ctx)
        gp_served_add(*ctx, device, primary);
    errno = saved_errno;
    return result;
}

static uint32_t gp_serve_cuCtxCreate(void **ctx, unsigned int flags, int device)
{
    return context_made(gp_pass_cuCtxCreate(ctx, flags, device), ctx, device, false);
}

static uint32_t gp_serve_cuCtxCreate_v2(void **ctx, unsigned int flags, int device)
{
    return context_made(gp_pass_cuCtxCreate_v2(ctx, flags, device), ctx, device, false);
}

static uint32_t gp_serve_cuCtxCreate_v3(void **ctx, const void *affinity, int count, unsigned int flags, int device)
{
    return context_made(gp_pass_cuCtxCreate_v3(ctx, affinity, count, flags, device), ctx, device, false);
}

static uint32_t gp_serve_cuCtxCreate_v4(void **ctx, const void *params, unsigned int flags, int device)
{
    return context_made(gp_pass_cuCtxCreate_v4(ctx, params, flags, device), ctx, device, false);
}

static uint32_t gp_serve_cuDevicePrimaryCtxRetain(void **ctx, int device)
{
    return context_made(gp_pass_cuDevicePrimaryCtxRetain(ctx, device), ctx, device, true);
}

/* From here on no driver call is made for the context; its blocks are found until it is gone. */
static struct gp_served_context *context_ending(struct gp_served_context *served)
{
    if (served)
        __atomic_store_n(&served->x_state, GP_SERVED_DYING, __ATOMIC_RELEASE);
    return served;
}

static uint32_t context_ended(struct gp_served_context *served, uint32_t result)
{
    int saved_errno = errno;
    if (served && result == 0)
        gp_served_remove(served);
    else if (served)
        __atomic_store_n(&served->x_state, GP_SERVED_LIVE, __ATOMIC_RELEASE);
    errno = saved_errno;
    return result;
}

static uint32_t gp_serve_cuCtxDestroy_v2(void *ctx)
{
    struct gp_served_context *served = context_ending(gp_served_of(ctx));
    return context_ended(served, gp_pass_cuCtxDestroy_v2(ctx));
}

static uint32_t gp_serve_cuCtxDestroy(void *ctx)
{
    struct gp_served_context *served = context_ending(gp_served_of(ctx));
    return context_ended(served, gp_pass_cuCtxDestroy(ctx));
}

/* Deprecated together with cuCtxAttach, whose count cannot be queried: we assume that this is the last reference. */
static uint32_t gp_serve_cuCtxDetach(void *ctx)
{
    struct gp_served_context *served = context_ending(gp_served_of(ctx));
    return context_ended(served, gp_pass_cuCtxDetach(ctx));
}

/* A primary context keeps its handle when it is reset. */
static uint32_t context_reset(struct gp_served_context *served, uint32_t result)
{
    void *ctx = served ? served->x_ctx : NULL;
    int device = served ? served->device : 0;
    context_ended(served, result);
    if (served && result == 0)
        gp_served_add(ctx, device, true);
    return result;
}

static uint32_t gp_serve_cuDevicePrimaryCtxReset_v2(int device)
{
    struct gp_served_context *served = context_ending(gp_served_primary(device));
    return context_reset(served, gp_pass_cuDevicePrimaryCtxReset_v2(device));
}

static uint32_t gp_serve_cuDevicePrimaryCtxReset(int device)
{
    struct gp_served_context *served = context_ending(gp_served_primary(device));
    return context_reset(served, gp_pass_cuDevicePrimaryCtxReset(device));
}

/* Only the last release ends the context, and only the driver knows which release is the last. */
static uint32_t context_released(int device, uint32_t result)
{
    struct gp_served_context *served = gp_served_primary(device);
    unsigned flags;
    int active = 1, saved_errno = errno;
    if (served && result == 0 && gp_driver_real.cuDevicePrimaryCtxGetState &&
        gp_driver_real.cuDevicePrimaryCtxGetState(device, &flags, &active) == 0 && !active)
        gp_served_remove(served);
    errno = saved_errno;
    return result;
}

static uint32_t gp_serve_cuDevicePrimaryCtxRelease_v2(int device)
{
    return context_released(device, gp_pass_cuDevicePrimaryCtxRelease_v2(device));
}

static uint32_t gp_serve_cuDevicePrimaryCtxRelease(int device)
{
    return context_released(device, gp_pass_cuDevicePrimaryCtxRelease(device));
}

/* A green context holds a reference to its primary context, of a device that this call does not name. */
static uint32_t gp_serve_cuGreenCtxDestroy(void *green)
{
    uint32_t result = gp_pass_cuGreenCtxDestroy(green);
    for (unsigned i = 0; i < gp_served_count(); i++)
        if (gp_served_is_live(&gp_served_contexts[i]) && gp_served_contexts[i].primary)
            context_released(gp_served_contexts[i].device, result);
    return result;
}

/* ---- peers ------------------------------------------------------------------------------------------------------- */

/* The current context may use the peer's memory.  A later cuCtxDisablePeerAccess changes nothing here: waiting for one
 * context too many is correct, and an unused mapping does no harm. */
static uint32_t gp_serve_cuCtxEnablePeerAccess(void *peer, unsigned int flags)
{
    uint32_t result = gp_pass_cuCtxEnablePeerAccess(peer, flags);
    int saved_errno = errno;
    struct gp_served_context *owner = result ? NULL : gp_served_of(peer);
    struct gp_served_context *user = owner ? gp_served_of(gp_driver_current()) : NULL;
    if (user) {
        gp_lock_take(&gp_served_lock);
        owner->x_access |= 1ull << gp_served_index(user);
        gp_lock_give(&gp_served_lock);
        gp_backend_share(owner, user->device);
    } else if (owner) {
        gp_stream_untracked(-1); /* a context that we do not know can touch the memory */
    }
    errno = saved_errno;
    return result;
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

static uint32_t stream_made(uint32_t result, void *const *stream, unsigned flags)
{
    int saved_errno = errno, device = -1;
    struct gp_served_context *served = result ? NULL : gp_served_of(gp_driver_current());
    if (served)
        gp_stream_add(served, *stream, flags);
    else if (result == 0 && gp_driver_real.cuCtxGetDevice && gp_driver_real.cuCtxGetDevice(&device) == 0)
        gp_stream_untracked(device);
    errno = saved_errno;
    return result;
}

static uint32_t gp_serve_cuStreamCreate(void **stream, unsigned int flags)
{
    return stream_made(gp_pass_cuStreamCreate(stream, flags), stream, flags);
}

static uint32_t gp_serve_cuStreamCreateWithPriority(void **stream, unsigned int flags, int priority)
{
    return stream_made(gp_pass_cuStreamCreateWithPriority(stream, flags, priority), stream, flags);
}

/* We cannot record an event of the primary context in a green context's stream. */
static uint32_t gp_serve_cuGreenCtxStreamCreate(void **stream, void *green, unsigned int flags, int priority)
{
    uint32_t result = gp_pass_cuGreenCtxStreamCreate(stream, green, flags, priority);
    if (result == 0)
        gp_stream_untracked(-1);
    return result;
}

static void stream_ending(void *stream)
{
    int saved_errno = errno;
    gp_stream_remove(stream);
    for (unsigned i = 0; i < gp_served_count(); i++)
        if (gp_served_cache(&gp_served_contexts[i]))
            gp_cache_stream_gone(gp_served_cache(&gp_served_contexts[i]), (uint64_t)(uintptr_t)stream);
    errno = saved_errno;
}

static uint32_t gp_serve_cuStreamDestroy_v2(void *stream)
{
    stream_ending(stream);
    return gp_pass_cuStreamDestroy_v2(stream);
}

static uint32_t gp_serve_cuStreamDestroy(void *stream)
{
    stream_ending(stream);
    return gp_pass_cuStreamDestroy(stream);
}

/* ---- captures ---------------------------------------------------------------------------------------------------- */

/* Fences are blocked before the driver begins the capture, so that none of our events can fall into it. */
#define GP_SERVE_BEGIN(_name, _params, _args)                                                                          \
    static uint32_t gp_serve_##_name _params                                                                           \
    {                                                                                                                  \
        gp_stream_capture_begin();                                                                                     \
        uint32_t result = gp_pass_##_name _args;                                                                       \
        gp_stream_capture_began(stream, result == 0);                                                                  \
        return result;                                                                                                 \
    }
GP_SERVE_BEGIN(cuStreamBeginCapture, (void *stream), (stream))
GP_SERVE_BEGIN(cuStreamBeginCapture_ptsz, (void *stream), (stream))
GP_SERVE_BEGIN(cuStreamBeginCapture_v2, (void *stream, int mode), (stream, mode))
GP_SERVE_BEGIN(cuStreamBeginCapture_v2_ptsz, (void *stream, int mode), (stream, mode))
GP_SERVE_BEGIN(cuStreamBeginCaptureToGraph,
               (void *stream, void *graph, const void **dependencies, const void *data, size_t count, int mode),
               (stream, graph, dependencies, data, count, mode))
GP_SERVE_BEGIN(cuStreamBeginCaptureToGraph_ptsz,
               (void *stream, void *graph, const void **dependencies, const void *data, size_t count, int mode),
               (stream, graph, dependencies, data, count, mode))

GP_SERVE_BEGIN(cuStreamBeginRecaptureToGraph, (void *stream, int mode, void *graph, void *callback, void *user),
               (stream, mode, graph, callback, user))

/* A capture that was broken ends as well; after any other error the capture goes on. */
static uint32_t capture_end_seen(void *stream, uint32_t result)
{
    if (result == 0 || result == GP_CU_CAPTURE_INVALIDATED || result == GP_CU_CAPTURE_UNJOINED ||
        result == GP_CU_RECAPTURE_FAILED)
        gp_stream_capture_ended(stream);
    return result;
}

static uint32_t gp_serve_cuStreamEndCapture(void *stream, void **graph)
{
    return capture_end_seen(stream, gp_pass_cuStreamEndCapture(stream, graph));
}

static uint32_t gp_serve_cuStreamEndCapture_ptsz(void *stream, void **graph)
{
    return capture_end_seen(stream, gp_pass_cuStreamEndCapture_ptsz(stream, graph));
}

const struct gp_serve_row gp_serve_context_rows[] = {
    GP_SERVE_ROW(cuCtxCreate),
    GP_SERVE_ROW(cuCtxCreate_v2),
    GP_SERVE_ROW(cuCtxCreate_v3),
    GP_SERVE_ROW(cuCtxCreate_v4),
    GP_SERVE_ROW(cuDevicePrimaryCtxRetain),
    GP_SERVE_ROW(cuCtxDestroy),
    GP_SERVE_ROW(cuCtxDestroy_v2),
    GP_SERVE_ROW(cuCtxDetach),
    GP_SERVE_ROW(cuDevicePrimaryCtxReset),
    GP_SERVE_ROW(cuDevicePrimaryCtxReset_v2),
    GP_SERVE_ROW(cuDevicePrimaryCtxRelease),
    GP_SERVE_ROW(cuDevicePrimaryCtxRelease_v2),
    GP_SERVE_ROW(cuCtxEnablePeerAccess),
    GP_SERVE_ROW(cuStreamCreate),
    GP_SERVE_ROW(cuStreamCreateWithPriority),
    GP_SERVE_ROW(cuGreenCtxDestroy),
    GP_SERVE_ROW(cuGreenCtxStreamCreate),
    GP_SERVE_ROW(cuStreamDestroy),
    GP_SERVE_ROW(cuStreamDestroy_v2),
    GP_SERVE_ROW(cuStreamBeginCapture),
    GP_SERVE_ROW(cuStreamBeginCapture_ptsz),
    GP_SERVE_ROW(cuStreamBeginCapture_v2),
    GP_SERVE_ROW(cuStreamBeginCapture_v2_ptsz),
    GP_SERVE_ROW(cuStreamBeginCaptureToGraph),
    GP_SERVE_ROW(cuStreamBeginCaptureToGraph_ptsz),
    GP_SERVE_ROW(cuStreamBeginRecaptureToGraph),
    GP_SERVE_ROW(cuStreamEndCapture),
    GP_SERVE_ROW(cuStreamEndCapture_ptsz),
    {NULL, NULL},
};
