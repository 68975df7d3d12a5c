/* SPDX-License-Identifier: MIT
 * on_memory.c: linear, pitched, managed, host and array memory (tables A, B and C of the hooks). */
#include "account/feed.h"
#include "base/thread.h"
#include "source/dispatch.h"

/* ---- allocations ---------------------------------------------------------------------------------------------- */

static void on_alloc(struct gp_call *call, struct gp_allocation *block, const uint64_t *address)
{
    call->asked_bytes = block->requested_bytes;
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
    struct gp_allocation block = {
        .space = GP_SPACE_DEVICE,
        .kind = GP_KIND_LINEAR,
        .device = gp_call_device(call),
        .bytes = params->bytesize,
        .requested_bytes = params->bytesize,
    };
    on_alloc(call, &block, params->dptr);
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

/* Bits per element and channel of the formats whose channel count the descriptor gives; the packed
 * and planar ones count their average bits per pixel (cuda.h: CUarray_format). */
static uint64_t array_bits(int format, unsigned channels)
{
    switch (format) {
    case 0x01: /* unsigned and signed 8-bit */
    case 0x08:
        return 8ull * channels;
    case 0x02: /* 16-bit, half */
    case 0x09:
    case 0x10:
        return 16ull * channels;
    case 0x03: /* 32-bit, float */
    case 0x0a:
    case 0x20:
        return 32ull * channels;
    case 0xb0: /* NV12: 4:2:0 in 8 bits */
        return 12;
    case 0x9f: /* P010, P016: 4:2:0 in 16 bits */
    case 0xa1:
        return 24;
    case 0x91: /* BC1, BC4: 8 bytes for 16 pixels */
    case 0x92:
    case 0x95:
    case 0x96:
        return 4;
    case 0x93: /* BC2, BC3, BC5, BC6H, BC7: 16 bytes for 16 pixels */
    case 0x94:
    case 0x97:
    case 0x98:
    case 0x99:
    case 0x9a:
    case 0x9b:
    case 0x9c:
    case 0x9d:
    case 0x9e:
        return 8;
    case 0x50: /* 10-10-10-2 */
        return 32;
    default:
        break;
    }
    if (format >= 0xc0 && format <= 0xcb) { /* normalised: x1, x2, x4 of 8 then 16 bits, unsigned then signed */
        static const uint8_t channels_of[3] = {1, 2, 4};
        unsigned index = (unsigned)format - 0xc0;
        return (index / 3 % 2 ? 16ull : 8ull) * channels_of[index % 3];
    }
    return 16ull; /* the 4:2:2 family, and formats that are newer than this build: two bytes per pixel */
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
