/* SPDX-License-Identifier: MIT
 * Arrays and mipmapped arrays.  Their size is an estimate by rule: width x height x depth x bytes
 * of the format x channels, the levels of a mipmapped array summed; sparse and deferred-mapping
 * arrays own nothing. Storage is plain rows; levels and planes are views that are never counted. */
#include "array.h"
#include "context.h"
#include "memory.h"

#include <stdlib.h>

/* Formats that arrays can be made of here; block-compressed and packed video formats are refused. */
size_t sim_array_element(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
    case CU_AD_FORMAT_NV12:
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X4:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X4:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 0;
    }
}

static struct sim_array *sim_array_in(struct sim_array *list, const void *handle)
{
    for (; list; list = list->next) {
        if (list == handle)
            return list;
        for (unsigned i = 0; i < list->child_count; i++)
            if (list->children[i] == handle)
                return list->children[i];
    }
    return NULL;
}

/* Arrays of every live context, wherever they were made. */
struct sim_array *sim_array_any(const void *handle)
{
    for (uint32_t uid = 1; handle && uid <= sim_context_newest(); uid++) {
        struct sim_context *context = sim_context_by_uid(uid);
        struct sim_array *array = context ? sim_array_in(context->arrays, handle) : NULL;
        if (array)
            return array;
    }
    return NULL;
}

struct sim_array *sim_array_find(CUarray handle)
{
    struct sim_array *array = sim_array_any(handle);
    return array && array->levels == 0 ? array : NULL;
}

struct sim_array *sim_mipmap_find(CUmipmappedArray handle)
{
    struct sim_array *array = sim_array_any(handle);
    return array && array->levels ? array : NULL;
}

size_t sim_at_least_one(size_t value)
{
    return value ? value : 1;
}

static size_t sim_half(size_t extent, unsigned level)
{
    return extent >> level ? extent >> level : extent != 0;
}

/* Bytes of one level by the rule above; 0 and *overflow for sizes beyond 64 bits. */
uint64_t sim_level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned level, bool *overflow)
{
    uint64_t bytes = sim_array_element(d->Format) * d->NumChannels;
    *overflow |= __builtin_mul_overflow(bytes, sim_at_least_one(sim_half(d->Width, level)), &bytes);
    *overflow |= __builtin_mul_overflow(bytes, sim_at_least_one(sim_half(d->Height, level)), &bytes);
    /* Layers do not shrink with the level, slices of a volume do. */
    bool layered = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    *overflow |= __builtin_mul_overflow(bytes, sim_at_least_one(sim_half(d->Depth, layered ? 0 : level)), &bytes);
    return *overflow ? 0 : bytes;
}

static CUresult sim_descriptor_check(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    if (d->Width == 0 || sim_array_element(d->Format) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned channels = d->NumChannels;
    if (channels != 1 && channels != 2 && channels != 4 && !(channels == 3 && d->Format == CU_AD_FORMAT_NV12))
        return CUDA_ERROR_INVALID_VALUE;
    if (d->Flags & CUDA_ARRAY3D_CUBEMAP && (d->Width != d->Height || d->Depth == 0 || d->Depth % 6))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* Storage of all levels in one range; each level's rows without padding. */
static CUresult sim_array_store(struct sim_array *array)
{
    struct sim_memory bytes = {.device = array->device};
    size_t mapped = sim_round_up(array->bytes, SIM_ARRAY_STEP);
    if (array->bytes > sim_devices[array->device].total)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = sim_bytes_take(&bytes, mapped, SIM_ARRAY_STEP, mapped);
    if (result == CUDA_SUCCESS) {
        array->base = bytes.base;
        array->offset = bytes.offset;
        array->footprint = mapped;
        sim_ledger_owned(array->device, SIM_ARRAY, (int64_t)array->bytes);
    }
    return result;
}

void sim_array_layout(struct sim_array *array, const struct sim_array *whole, unsigned level, CUdeviceptr base)
{
    const CUDA_ARRAY3D_DESCRIPTOR *d = &whole->descriptor;
    bool layered = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    array->descriptor = *d;
    array->descriptor.Width = sim_half(d->Width, level);
    array->descriptor.Height = sim_half(d->Height, level);
    array->descriptor.Depth = sim_half(d->Depth, layered ? 0 : level);
    array->device = whole->device;
    array->base = base;
    array->pitch = array->descriptor.Width * sim_array_element(d->Format) * d->NumChannels;
    array->slice = array->pitch * sim_at_least_one(array->descriptor.Height);
}

static void sim_array_free(struct sim_array *array)
{
    for (unsigned i = 0; i < array->child_count; i++)
        free(array->children[i]);
    free(array->children);
    free(array);
}

static CUresult sim_levels_make(struct sim_array *array)
{
    array->children = calloc(array->levels, sizeof *array->children);
    CUdeviceptr base = array->base;
    for (unsigned level = 0; array->children && level < array->levels; level++) {
        struct sim_array *child = calloc(1, sizeof *child);
        if (!child)
            return CUDA_ERROR_OUT_OF_MEMORY;
        bool overflow = false;
        child->parent = array;
        sim_array_layout(child, array, level, base);
        array->children[array->child_count++] = child;
        if (base)
            base += sim_level_bytes(&array->descriptor, level, &overflow);
    }
    return array->children ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* levels 0: a plain array.  external: imported storage at that address. */
CUresult sim_array_new(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels, struct sim_context *context,
                       CUdeviceptr external, struct sim_array **out)
{
    CUresult result = sim_descriptor_check(d);
    bool overflow = false;
    uint64_t bytes = 0;
    for (unsigned level = 0; result == CUDA_SUCCESS && level < sim_at_least_one(levels); level++)
        overflow |= __builtin_add_overflow(bytes, sim_level_bytes(d, level, &overflow), &bytes);
    if (result != CUDA_SUCCESS || overflow)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    struct sim_array *array = calloc(1, sizeof *array);
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    array->descriptor = *d;
    array->levels = levels;
    array->device = context->device;
    array->context_uid = context->uid;
    if (external)
        array->base = external;
    else if (!(d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)))
        array->bytes = bytes;
    if (array->bytes)
        result = sim_array_store(array);
    if (result == CUDA_SUCCESS && levels)
        result = sim_levels_make(array);
    else if (result == CUDA_SUCCESS)
        sim_array_layout(array, array, 0, array->base);
    array->next = context->arrays;
    context->arrays = array;
    if (result != CUDA_SUCCESS) {
        sim_array_end(context, array);
        return result;
    }
    *out = array;
    return CUDA_SUCCESS;
}

void sim_array_end(struct sim_context *context, struct sim_array *array)
{
    struct sim_array **at = &context->arrays;
    while (*at != array)
        at = &(*at)->next;
    *at = array->next;
    if (array->footprint) {
        struct sim_memory bytes = {
            .device = array->device, .base = array->base, .offset = array->offset, .footprint = array->footprint};
        sim_bytes_give(&bytes, array->footprint);
        sim_ledger_owned(array->device, SIM_ARRAY, -(int64_t)array->bytes);
    }
    if (array->external)
        sim_array_external_gone(array->external);
    sim_array_free(array);
}

void sim_arrays_end(struct sim_context *context)
{
    while (context->arrays)
        sim_array_end(context, context->arrays);
}
