/* SPDX-License-Identifier: MIT
 * The switches of a profiler, which are accepted and have no effect, and descriptions of tensors
 * (cuTensorMapEncodeTiled), which are checked and kept. */
#include "cuda/sim.h"

#include <string.h>

SIM_API0(308, 4000, cuProfilerStart)
{
    return CUDA_SUCCESS;
}

SIM_API0(309, 4000, cuProfilerStop)
{
    return CUDA_SUCCESS;
}

/* ---- descriptions of tensors, for the copy engine of capability 9.0 ------------------------------------------------ */

/* What a description keeps, in 16 words that programs do not read.  The address is the first, since a
 * kernel's parameters are searched for addresses of the device (contents.c). */
enum { MAP_ADDRESS, MAP_MODES, MAP_SIZES, MAP_STRIDES = MAP_SIZES + 5, MAP_BOX = MAP_STRIDES + 4, MAP_STEPS };

struct map_shape {
    CUtensorMapDataType type;
    cuuint32_t rank;
    CUtensorMapInterleave interleave;
    CUtensorMapSwizzle swizzle;
};

/* Values of 4 and 6 bits that are padded to 16 bytes. */
static bool map_is_padded(CUtensorMapDataType type)
{
    return type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B || type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B;
}

static uint64_t map_alignment(CUtensorMapDataType type, CUtensorMapInterleave interleave)
{
    return interleave == CU_TENSOR_MAP_INTERLEAVE_32B || map_is_padded(type) ? 32 : 16;
}

static bool map_modes_allowed(const struct map_shape *shape, CUtensorMapL2promotion promotion,
                              CUtensorMapFloatOOBfill fill)
{
    CUtensorMapDataType type = shape->type;
    CUtensorMapSwizzle swizzle = shape->swizzle;
    bool floating = (type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ);
    bool padded_swizzle =
        swizzle == CU_TENSOR_MAP_SWIZZLE_NONE || swizzle == CU_TENSOR_MAP_SWIZZLE_128B ||
        swizzle == CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B ||
        (swizzle == CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B && type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B);
    if (type > CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B || shape->interleave > CU_TENSOR_MAP_INTERLEAVE_32B ||
        swizzle > CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B || promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B ||
        fill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA)
        return false;
    if (shape->rank == 0 || shape->rank > 5 || (shape->interleave && shape->rank < 3))
        return false;
    if (shape->interleave == CU_TENSOR_MAP_INTERLEAVE_32B && swizzle != CU_TENSOR_MAP_SWIZZLE_32B)
        return false;
    if (type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B && shape->interleave)
        return false;
    return (!map_is_padded(type) || padded_swizzle) && (!fill || floating);
}

static bool map_sizes_allowed(const struct map_shape *shape, const cuuint64_t *sizes, const cuuint64_t *strides)
{
    uint64_t least = map_is_padded(shape->type) ? 128 : shape->type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B ? 2 : 1;
    for (cuuint32_t i = 0; i < shape->rank; i++) {
        if (sizes[i] == 0 || sizes[i] > 1ull << 32)
            return false;
        if (i + 1 < shape->rank &&
            (strides[i] % map_alignment(shape->type, shape->interleave) || strides[i] >= 1ull << 40))
            return false;
    }
    return sizes[0] % least == 0;
}

static bool map_box_allowed(const struct map_shape *shape, const cuuint32_t *box, const cuuint32_t *steps)
{
    static const unsigned char bits[] = {8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6};
    static const unsigned widest[] = {0, 32, 64, 128, 128, 128, 128};
    uint64_t inner = (uint64_t)box[0] * bits[shape->type] / 8;
    for (cuuint32_t i = 0; i < shape->rank; i++) {
        bool ignored = i == 0 && !shape->interleave;
        if (box[i] == 0 || box[i] > 256 || (!ignored && (steps[i] == 0 || steps[i] > 8)))
            return false;
    }
    if (map_is_padded(shape->type))
        return box[0] == 128;
    return shape->interleave || (inner % 16 == 0 && (!shape->swizzle || inner <= widest[shape->swizzle]));
}

static CUresult map_encode(CUtensorMap *map, const struct map_shape *shape, void *address, const cuuint64_t *sizes,
                           const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps, unsigned modes)
{
    if (!map || (uintptr_t)map % 64 || !sizes || (!strides && shape->rank > 1) || !box || !steps)
        return CUDA_ERROR_INVALID_VALUE;
    if ((uintptr_t)address % map_alignment(shape->type, shape->interleave))
        return CUDA_ERROR_INVALID_VALUE;
    if (!map_sizes_allowed(shape, sizes, strides) || !map_box_allowed(shape, box, steps))
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_spec.gpu->capability < 90)
        return CUDA_ERROR_NOT_SUPPORTED;
    memset(map, 0, sizeof *map);
    map->opaque[MAP_ADDRESS] = (uintptr_t)address;
    map->opaque[MAP_MODES] = modes;
    for (cuuint32_t i = 0; i < shape->rank; i++) {
        map->opaque[MAP_SIZES + i] = sizes[i];
        if (i + 1 < shape->rank)
            map->opaque[MAP_STRIDES + i] = strides[i];
        map->opaque[MAP_BOX] |= (uint64_t)(box[i] - 1) << 8 * i;
        map->opaque[MAP_STEPS] |= (uint64_t)(steps[i] & 15) << 4 * i;
    }
    return CUDA_SUCCESS;
}

/* One parameter more than SIM_API11 has. */
/* clang-format off */
SIM_DEFINE(697, 12000, cuTensorMapEncodeTiled, 0,
           (CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank, void *globalAddress,
            const cuuint64_t *globalDim, const cuuint64_t *globalStrides, const cuuint32_t *boxDim,
            const cuuint32_t *elementStrides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
            CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill),
           (tensorMap, tensorDataType, tensorRank, globalAddress, globalDim, globalStrides, boxDim, elementStrides,
            interleave, swizzle, l2Promotion, oobFill),
           CUtensorMap *tensorMap; CUtensorMapDataType tensorDataType; cuuint32_t tensorRank; void *globalAddress;
           const cuuint64_t *globalDim; const cuuint64_t *globalStrides; const cuuint32_t *boxDim;
           const cuuint32_t *elementStrides; CUtensorMapInterleave interleave; CUtensorMapSwizzle swizzle;
           CUtensorMapL2promotion l2Promotion; CUtensorMapFloatOOBfill oobFill;)
/* clang-format on */
{
    const struct map_shape shape = {tensorDataType, tensorRank, interleave, swizzle};
    if (!map_modes_allowed(&shape, l2Promotion, oobFill))
        return CUDA_ERROR_INVALID_VALUE;
    return map_encode(tensorMap, &shape, globalAddress, globalDim, globalStrides, boxDim, elementStrides,
                      tensorDataType | tensorRank << 4 | interleave << 8 | swizzle << 12 | l2Promotion << 16 |
                          oobFill << 20);
}

SIM_API2(699, 12000, cuTensorMapReplaceAddress, CUtensorMap *, tensorMap, void *, globalAddress)
{
    if (!tensorMap || (uintptr_t)tensorMap % 64)
        return CUDA_ERROR_INVALID_VALUE;
    CUtensorMapDataType type = tensorMap->opaque[MAP_MODES] & 15;
    if ((uintptr_t)globalAddress % map_alignment(type, tensorMap->opaque[MAP_MODES] >> 8 & 15))
        return CUDA_ERROR_INVALID_VALUE;
    tensorMap->opaque[MAP_ADDRESS] = (uintptr_t)globalAddress;
    return CUDA_SUCCESS;
}
