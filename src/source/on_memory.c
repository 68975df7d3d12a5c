/* SPDX-License-Identifier: MIT
 * on_memory.c: linear, pitched, managed, host and array memory (tables A, B and C of the hooks). */
#include "account/feed/block.h"
#include "account/feed/feed.h"
#include "account/feed/graph.h"
#include "base/compiler.h"
#include "base/thread.h"
#include "source/internal.h"
#include <gpuprof/wire.h>

/* ---- allocations ---------------------------------------------------------------------------------------------- */

static void on_alloc(struct gp_call *call, struct gp_allocation *block, const uint64_t *address)
{
    call->asked_bytes = block->requested_bytes;
    call->asked_kind = block->kind;
    call->device = block->device;
    if (!gp_call_ok(call))
        return;
    block->address = *address; /* output parameters hold a value only after success */
    block->ctx = call->ctx;
    gp_feed_alloc(block);
}

static void on_linear_exit(struct gp_call *call)
{
    const struct gp_params_cuMemAlloc_v2 *params = GP_PARAMS(call, cuMemAlloc_v2);
    call->asked_bytes = params->bytesize;
    call->asked_kind = GP_KIND_LINEAR;
    call->device = gp_call_device(call);
    if (gp_call_ok(call))
        gp_feed_linear(*params->dptr, params->bytesize, call->device, call->ctx);
}
const struct gp_handler gp_on_linear = {NULL, on_linear_exit};

static void on_pitched_exit(struct gp_call *call)
{
    const struct gp_params_cuMemAllocPitch_v2 *params = GP_PARAMS(call, cuMemAllocPitch_v2);
    struct gp_allocation block = {
        .space = GP_SPACE_DEVICE,
        .kind = GP_KIND_PITCHED,
        .device = gp_call_device(call),
        .requested_bytes = params->WidthInBytes * params->Height,
    };
    if (gp_call_ok(call))
        block.bytes = *params->pPitch * params->Height;
    on_alloc(call, &block, params->dptr);
}
const struct gp_handler gp_on_pitched = {NULL, on_pitched_exit};

static void on_managed_exit(struct gp_call *call)
{
    const struct gp_params_cuMemAllocManaged *params = GP_PARAMS(call, cuMemAllocManaged);
    struct gp_allocation block = {
        .space = GP_SPACE_DEVICE,
        .kind = GP_KIND_MANAGED,
        .device = gp_call_device(call),
        .bytes = params->bytesize,
        .requested_bytes = params->bytesize,
    };
    on_alloc(call, &block, params->dptr);
}
const struct gp_handler gp_on_managed = {NULL, on_managed_exit};

static void on_pinned_exit(struct gp_call *call)
{
    const struct gp_params_cuMemHostAlloc *params = GP_PARAMS(call, cuMemHostAlloc);
    struct gp_allocation block = {
        .space = GP_SPACE_HOST,
        .kind = GP_KIND_PINNED,
        .device = GP_WIRE_HOST,
        .bytes = params->bytesize,
        .requested_bytes = params->bytesize,
    };
    on_alloc(call, &block, (const uint64_t *)params->pp);
}
const struct gp_handler gp_on_pinned = {NULL, on_pinned_exit};

static void on_registered_exit(struct gp_call *call)
{
    const struct gp_params_cuMemHostRegister_v2 *params = GP_PARAMS(call, cuMemHostRegister_v2);
    uint64_t address = (uint64_t)(uintptr_t)params->p;
    struct gp_allocation block = {
        .space = GP_SPACE_REGISTERED,
        .kind = GP_KIND_REGISTERED,
        .device = GP_WIRE_HOST,
        .bytes = params->bytesize,
        .requested_bytes = params->bytesize,
    };
    on_alloc(call, &block, &address);
}
const struct gp_handler gp_on_registered = {NULL, on_registered_exit};

/* ---- frees ---------------------------------------------------------------------------------------------------- */

static void on_free_begin(struct gp_call *call, enum gp_space space, uint64_t address)
{
    *call->slot = gp_feed_free_begin(space, address);
}

static void on_free_finish(struct gp_call *call, enum gp_space space, uint64_t address, uint64_t stream)
{
    uint32_t token = (uint32_t)*call->slot;
    if (token)
        gp_feed_free_end(token, gp_call_ok(call), stream);
    else if (gp_call_ok(call) && address && !gp_feed_graph_knows(address)) /* a graph's memory stays its graph's */
        gp_feed_unknown_free(space, address);
}

static void on_free_enter(struct gp_call *call)
{
    on_free_begin(call, GP_SPACE_DEVICE, GP_PARAMS(call, cuMemFree_v2)->dptr);
}

static void on_free_exit(struct gp_call *call)
{
    on_free_finish(call, GP_SPACE_DEVICE, GP_PARAMS(call, cuMemFree_v2)->dptr, 0);
}
const struct gp_handler gp_on_free = {on_free_enter, on_free_exit};

static void on_free_async_enter(struct gp_call *call)
{
    on_free_begin(call, GP_SPACE_DEVICE, GP_PARAMS(call, cuMemFreeAsync)->dptr);
}

static void on_free_async_exit(struct gp_call *call)
{
    const struct gp_params_cuMemFreeAsync *params = GP_PARAMS(call, cuMemFreeAsync);
    uint64_t stream = (uint64_t)(uintptr_t)params->hStream;
    if (gp_thread.node_type == GP_CU_NODE_FREE + 1 || gp_feed_stream_is_capturing(stream)) {
        /* Captured: the call made a graph node and freed nothing. */
        gp_feed_free_end((uint32_t)*call->slot, false, stream);
        return;
    }
    on_free_finish(call, GP_SPACE_DEVICE, params->dptr, stream);
}
const struct gp_handler gp_on_free_async = {on_free_async_enter, on_free_async_exit};

static void on_host_free_enter(struct gp_call *call)
{
    on_free_begin(call, GP_SPACE_HOST, (uint64_t)(uintptr_t)GP_PARAMS(call, cuMemFreeHost)->p);
}

static void on_host_free_exit(struct gp_call *call)
{
    on_free_finish(call, GP_SPACE_HOST, (uint64_t)(uintptr_t)GP_PARAMS(call, cuMemFreeHost)->p, 0);
}
const struct gp_handler gp_on_host_free = {on_host_free_enter, on_host_free_exit};

static void on_unregister_enter(struct gp_call *call)
{
    on_free_begin(call, GP_SPACE_REGISTERED, (uint64_t)(uintptr_t)GP_PARAMS(call, cuMemHostUnregister)->p);
}

static void on_unregister_exit(struct gp_call *call)
{
    on_free_finish(call, GP_SPACE_REGISTERED, (uint64_t)(uintptr_t)GP_PARAMS(call, cuMemHostUnregister)->p, 0);
}
const struct gp_handler gp_on_unregister = {on_unregister_enter, on_unregister_exit};

/* ---- arrays --------------------------------------------------------------------------------------------------- */

/* Bits per element (cuda.h: CUarray_format), and per channel where the descriptor gives their
 * number. Compressed formats have 8 or 16 bytes for 16 pixels; planar ones count their average. */
static const uint8_t array_channel_bits[] = {
    [0x01] = 8, [0x02] = 16, [0x03] = 32, [0x08] = 8, [0x09] = 16, [0x0a] = 32, [0x10] = 16, [0x20] = 32};
static const uint8_t array_pixel_bits[] = {
    [0x50] = 32,                                        /* 10-10-10-2 */
    [0x91] = 4,  [0x92] = 4,  [0x93] = 8,  [0x94] = 8,  /* BC1, BC2 */
    [0x95] = 8,  [0x96] = 8,  [0x97] = 4,  [0x98] = 4,  /* BC3, BC4 */
    [0x99] = 8,  [0x9a] = 8,  [0x9b] = 8,  [0x9c] = 8,  /* BC5, BC6H */
    [0x9d] = 8,  [0x9e] = 8,                            /* BC7 */
    [0x9f] = 24, [0xa1] = 24, [0xb0] = 12,              /* 4:2:0: P010, P016, NV12 */
    [0xa2] = 16, [0xa3] = 32, [0xa4] = 32,              /* 4:2:2: NV16, P210, P216 */
    [0xa5] = 16, [0xa6] = 32, [0xa7] = 32,              /* 4:2:2, packed: YUY2, Y210, Y216 */
    [0xa8] = 32, [0xa9] = 32, [0xb1] = 64,              /* 4:4:4, packed: AYUV, Y410, Y416 */
    [0xb2] = 24, [0xb3] = 48, [0xb4] = 24, [0xb5] = 48, /* 4:4:4 in planes, of 8 and 16 bits */
    [0xc0] = 8,  [0xc1] = 16, [0xc2] = 32, [0xc3] = 16, [0xc4] = 32, [0xc5] = 64, /* unsigned normalised */
    [0xc6] = 8,  [0xc7] = 16, [0xc8] = 32, [0xc9] = 16, [0xca] = 32, [0xcb] = 64, /* signed normalised */
};

static uint64_t array_bits(int format, unsigned channels)
{
    size_t index = (size_t)(unsigned)format;
    if (index < GP_COUNT(array_channel_bits) && array_channel_bits[index])
        return (uint64_t)array_channel_bits[index] * channels;
    if (index < GP_COUNT(array_pixel_bits) && array_pixel_bits[index])
        return array_pixel_bits[index];
    return 16; /* newer than this build */
}

static uint64_t array_bytes(size_t width, size_t height, size_t depth, int format, unsigned channels)
{
    uint64_t pixels = (uint64_t)width * (height ? height : 1) * (depth ? depth : 1);
    return pixels * array_bits(format, channels) / 8;
}

static void on_array_made(struct gp_call *call, uint64_t bytes, void *const *handle)
{
    struct gp_allocation block = {
        .space = GP_SPACE_ARRAY,
        .kind = GP_KIND_ARRAY,
        .device = gp_call_device(call),
        .bytes = bytes,
        .requested_bytes = bytes,
        .estimated = true,
    };
    on_alloc(call, &block, (const uint64_t *)handle);
}

static void on_array_exit(struct gp_call *call)
{
    const struct gp_params_cuArrayCreate_v2 *params = GP_PARAMS(call, cuArrayCreate_v2);
    const struct gp_cu_array_desc *desc = params->pAllocateArray;
    uint64_t bytes = desc ? array_bytes(desc->width, desc->height, 1, desc->format, desc->channels) : 0;
    on_array_made(call, bytes, params->pHandle);
}
const struct gp_handler gp_on_array = {NULL, on_array_exit};

static uint64_t array3d_bytes(const struct gp_cu_array3d_desc *desc, unsigned levels)
{
    uint64_t bytes = 0;
    if (!desc || desc->flags & (GP_CU_ARRAY_SPARSE | GP_CU_ARRAY_DEFERRED))
        return 0; /* memory is mapped in later */
    size_t width = desc->width, height = desc->height, depth = desc->depth;
    for (unsigned level = 0; level < levels; level++) {
        bytes += array_bytes(width, height, depth, desc->format, desc->channels);
        width = width > 1 ? width / 2 : width;
        height = height > 1 ? height / 2 : height;
        if (!(desc->flags & 5u)) /* 1 layered, 4 cube map: depth counts layers, which no level halves */
            depth = depth > 1 ? depth / 2 : depth;
    }
    return bytes;
}

static void on_array3d_exit(struct gp_call *call)
{
    const struct gp_params_cuArray3DCreate_v2 *params = GP_PARAMS(call, cuArray3DCreate_v2);
    on_array_made(call, array3d_bytes(params->pAllocateArray, 1), params->pHandle);
}
const struct gp_handler gp_on_array3d = {NULL, on_array3d_exit};

static void on_mipmapped_exit(struct gp_call *call)
{
    const struct gp_params_cuMipmappedArrayCreate *params = GP_PARAMS(call, cuMipmappedArrayCreate);
    const struct gp_cu_array3d_desc *desc = params->pMipmappedArrayDesc;
    /* The driver clamps the number of levels to 1 + log2 of the largest side (cuda.h:
     * cuMipmappedArrayCreate). */
    unsigned levels = 1;
    for (size_t side = desc ? desc->width | desc->height | desc->depth : 0;
         side > 1 && levels < params->numMipmapLevels; side /= 2)
        levels++;
    on_array_made(call, array3d_bytes(desc, levels), params->pHandle);
}
const struct gp_handler gp_on_mipmapped = {NULL, on_mipmapped_exit};

static void on_array_free_enter(struct gp_call *call)
{
    on_free_begin(call, GP_SPACE_ARRAY, (uint64_t)(uintptr_t)GP_PARAMS(call, cuArrayDestroy)->hArray);
}

static void on_array_free_exit(struct gp_call *call)
{
    on_free_finish(call, GP_SPACE_ARRAY, (uint64_t)(uintptr_t)GP_PARAMS(call, cuArrayDestroy)->hArray, 0);
}
const struct gp_handler gp_on_array_free = {on_array_free_enter, on_array_free_exit};

/* ---- the rest ------------------------------------------------------------------------------------------------- */

/* Entry points from before CUDA 3.2 have 32-bit addresses; programs since 2010 do not call them. */
static void on_legacy_exit(struct gp_call *call)
{
    (void)call;
    gp_feed_lost(GP_LOST_LEGACY);
}
const struct gp_handler gp_on_legacy = {NULL, on_legacy_exit};

/* Handled only for their failures. */
const struct gp_handler gp_on_note = {NULL, NULL};
