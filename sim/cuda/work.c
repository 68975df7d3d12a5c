/* SPDX-License-Identifier: MIT
 * From copy and set descriptors to work, its check, and the moving of bytes. Called by
 * api/copy.c, api/set.c, submit.c and graphrun.c.  sim_work_run is the only place where simulated bytes move. */
#include "contents.h"
#include "sim.h"
#include "stream.h"

#include <string.h>

/* One side as a program describes it. */
struct sim_end {
    CUmemorytype type;
    CUdeviceptr address; /* host, device or unified */
    CUarray array;
    size_t x, y, z, pitch, rows; /* rows: height of a slice in rows */
};

static bool sim_address_known(CUdeviceptr address)
{
    return sim_memory_find(address) || sim_pool_covers(address);
}

static CUresult sim_side_array(const struct sim_end *end, const struct sim_work *work, struct sim_side *side)
{
    const struct sim_array *array = sim_array_find(end->array);
    if (!array || !array->base)
        return array ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    size_t rows = array->descriptor.Height ? array->descriptor.Height : 1;
    size_t slices = array->descriptor.Depth ? array->descriptor.Depth : 1;
    if (end->x > array->pitch || work->width > array->pitch - end->x || end->y > rows || work->height > rows - end->y ||
        end->z > slices || work->depth > slices - end->z)
        return CUDA_ERROR_INVALID_VALUE;
    *side = (struct sim_side){.base = array->base + end->z * array->slice + end->y * array->pitch + end->x,
                              .pitch = array->pitch,
                              .slice = array->slice,
                              .host = true,
                              .array = true};
    return CUDA_SUCCESS;
}

static CUresult sim_side_make(const struct sim_end *end, const struct sim_work *work, struct sim_side *side)
{
    if (end->type == CU_MEMORYTYPE_ARRAY)
        return sim_side_array(end, work, side);
    bool many = work->height > 1 || work->depth > 1;
    size_t pitch = end->pitch ? end->pitch : work->width + end->x;
    size_t rows = end->rows ? end->rows : work->height + end->y;
    if (!end->address || (many && pitch < work->width + end->x) || (work->depth > 1 && rows < work->height + end->y))
        return CUDA_ERROR_INVALID_VALUE;
    side->base = end->address + (end->z * rows + end->y) * pitch + end->x;
    side->pitch = pitch;
    side->slice = pitch * rows;
    switch (end->type) {
    case CU_MEMORYTYPE_DEVICE:
        side->host = false;
        return CUDA_SUCCESS;
    case CU_MEMORYTYPE_HOST:
    case CU_MEMORYTYPE_UNIFIED:
        side->host = !sim_address_known(side->base);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sim_work_copy(const CUDA_MEMCPY3D *copy, struct sim_context *context, struct sim_work *work)
{
    *work = (struct sim_work){.type = SIM_WORK_COPY,
                              .width = copy->WidthInBytes,
                              .height = copy->Height,
                              .depth = copy->Depth,
                              .device = context->device,
                              .fill = sim_self.fill,
                              .told = sim_self.told,
                              .number = sim_self.number,
                              .copy = *copy};
    struct sim_end source = {
        copy->srcMemoryType, copy->srcMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)copy->srcHost : copy->srcDevice,
        copy->srcArray,      copy->srcXInBytes,
        copy->srcY,          copy->srcZ,
        copy->srcPitch,      copy->srcHeight};
    struct sim_end destination = {
        copy->dstMemoryType, copy->dstMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)copy->dstHost : copy->dstDevice,
        copy->dstArray,      copy->dstXInBytes,
        copy->dstY,          copy->dstZ,
        copy->dstPitch,      copy->dstHeight};
    if (work->width == 0 || work->height == 0 || work->depth == 0) {
        work->type = SIM_WORK_NOTHING;
        return CUDA_SUCCESS;
    }
    CUresult result = sim_side_make(&source, work, &work->source);
    if (result == CUDA_SUCCESS)
        result = sim_side_make(&destination, work, &work->destination);
    work->source.device = work->destination.device = context->device;
    return result;
}

CUresult sim_work_set(const CUDA_MEMSET_NODE_PARAMS *set, struct sim_context *context, struct sim_work *work)
{
    unsigned element = set->elementSize;
    if (element != 1 && element != 2 && element != 4)
        return CUDA_ERROR_INVALID_VALUE;
    *work = (struct sim_work){.type = SIM_WORK_SET,
                              .width = set->width * element,
                              .height = set->height,
                              .depth = 1,
                              .value = set->value,
                              .element = element,
                              .device = context->device,
                              .set = *set};
    if (set->width == 0 || set->height == 0) {
        work->type = SIM_WORK_NOTHING;
        return CUDA_SUCCESS;
    }
    size_t pitch = set->height > 1 ? set->pitch : work->width;
    if (set->width > SIZE_MAX / element || !set->dst || set->dst % element || pitch % element || pitch < work->width)
        return CUDA_ERROR_INVALID_VALUE;
    work->destination =
        (struct sim_side){.base = set->dst, .pitch = pitch, .slice = pitch * set->height, .device = context->device};
    return CUDA_SUCCESS;
}

/* ---- check ------------------------------------------------------------------------------------------------------- */

static CUresult sim_side_check(const struct sim_work *work, const struct sim_side *side, bool write)
{
    if (side->host)
        return CUDA_SUCCESS;
    size_t span = (work->depth - 1) * side->slice + (work->height - 1) * side->pitch + work->width;
    struct sim_memory *first;
    CUresult result = sim_memory_check(side->base, span, side->device, write, &first);
    /* A real device accepts a freed pool pointer here too: the detector counts the use. */
    if (!first && sim_pool_covers(side->base))
        return CUDA_SUCCESS;
    return result;
}

CUresult sim_work_check(const struct sim_work *work)
{
    if (work->type == SIM_WORK_NOTHING)
        return CUDA_SUCCESS;
    CUresult result = sim_side_check(work, &work->destination, true);
    if (result == CUDA_SUCCESS && work->type == SIM_WORK_COPY)
        result = sim_side_check(work, &work->source, false);
    return result;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static void sim_row_set(CUdeviceptr at, const struct sim_work *work)
{
    if (work->element == 1) {
        memset((void *)at, (int)work->value, work->width);
    } else if (work->element == 2) {
        for (size_t i = 0; i < work->width / 2; i++)
            ((uint16_t *)at)[i] = (uint16_t)work->value;
    } else {
        for (size_t i = 0; i < work->width / 4; i++)
            ((uint32_t *)at)[i] = work->value;
    }
}

static void sim_work_move(const struct sim_work *work)
{
    for (size_t z = 0; z < work->depth; z++)
        for (size_t y = 0; y < work->height; y++) {
            const struct sim_side *from = &work->source, *to = &work->destination;
            CUdeviceptr at = to->base + z * to->slice + y * to->pitch;
            if (work->type == SIM_WORK_SET)
                sim_row_set(at, work);
            else /* ranges may overlap, also as two mappings of the same bytes */
                memmove((void *)at, (const void *)(from->base + z * from->slice + y * from->pitch), work->width);
        }
}

void sim_work_run(const struct sim_work *work)
{
    if (work->type == SIM_WORK_NOTHING || sim_contents_done(work))
        return;
    sim_work_move(work);
    sim_contents_moved(work);
}
