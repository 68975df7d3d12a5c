/* SPDX-License-Identifier: MIT
 * A pool that describes itself through NVTX: it takes chunks from the driver, cuts blocks out of
 * them, and tells a tool about both. gpuprof then shows the blocks as allocated and the chunks as
 * reserved; without these calls the chunks would be all that it sees. compute-sanitizer understands
 * the same calls.
 *
 * pool_rt [--steps N] [--seconds S] [--pace MILLISECONDS]     prints one line with the result */
#include <cuda_runtime_api.h>

#include "example.h"
#include "nvtxmem.h"

#define CHUNK  (32u << 20)
#define CHUNKS 8
#define BLOCK  (1u << 20) /* the sizes of blocks are multiples */
#define BLOCKS (CHUNK / BLOCK)

static struct chunk {
    char *memory;
    nvtxMemHeapHandle_t heap;
    uint8_t used[BLOCKS]; /* 0: free; else the length of the block that starts here, or 255 inside of one */
} pool[CHUNKS];
static size_t in_use, most;

/* ---- the annotations ---------------------------------------------------------------------------- */

static nvtxMemHeapHandle_t tell_heap(const void *memory, size_t bytes)
{
    nvtxMemVirtualRangeDesc_t range = {.size = bytes, .ptr = memory};
    nvtxMemHeapDesc_t heap = {
        .extCompatID = NVTX_EXT_COMPATID_MEM,
        .structSize = sizeof(heap),
        .usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR,
        .type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
        .typeSpecificDescSize = sizeof(range),
        .typeSpecificDesc = &range,
    };
    return nvtxMemHeapRegister(NULL, &heap);
}

static void tell_block(nvtxMemHeapHandle_t heap, const void *block, size_t bytes)
{
    nvtxMemVirtualRangeDesc_t range = {.size = bytes, .ptr = block};
    nvtxMemRegionsRegisterBatch_t batch = {
        .extCompatID = NVTX_EXT_COMPATID_MEM,
        .structSize = sizeof(batch),
        .regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
        .heap = heap,
        .regionCount = 1,
        .regionDescElementSize = sizeof(range),
        .regionDescElements = &range,
    };
    nvtxMemRegionsRegister(NULL, &batch);
}

static void tell_end(const void *block)
{
    nvtxMemRegionRef_t reference = {.pointer = block};
    nvtxMemRegionsUnregisterBatch_t batch = {
        .extCompatID = NVTX_EXT_COMPATID_MEM,
        .structSize = sizeof(batch),
        .refType = NVTX_MEM_REGION_REF_TYPE_POINTER,
        .refCount = 1,
        .refElementSize = sizeof(reference),
        .refElements = &reference,
    };
    nvtxMemRegionsUnregister(NULL, &batch);
}

/* ---- the pool ----------------------------------------------------------------------------------- */

static void *chunk_take(struct chunk *chunk, unsigned length)
{
    unsigned idle = 0;
    for (unsigned i = 0; i < BLOCKS; i++) {
        idle = chunk->used[i] ? 0 : idle + 1;
        if (idle == length) {
            unsigned first = i + 1 - length;
            memset(&chunk->used[first], 255, length);
            chunk->used[first] = (uint8_t)length;
            return chunk->memory + (size_t)first * BLOCK;
        }
    }
    return NULL;
}

static void *pool_alloc(size_t bytes)
{
    unsigned length = (unsigned)((bytes + BLOCK - 1) / BLOCK);
    for (struct chunk *chunk = pool; chunk < pool + CHUNKS; chunk++) {
        if (!chunk->memory) {
            CHECK_RT(cudaMalloc((void **)&chunk->memory, CHUNK));
            chunk->heap = tell_heap(chunk->memory, CHUNK);
        }
        void *block = chunk_take(chunk, length);
        if (block) {
            tell_block(chunk->heap, block, bytes);
            in_use += bytes;
            most = in_use > most ? in_use : most;
            return block;
        }
    }
    return NULL;
}

static void pool_free(void *block, size_t bytes)
{
    for (struct chunk *chunk = pool; block && chunk < pool + CHUNKS; chunk++) {
        size_t offset = (size_t)((uintptr_t)block - (uintptr_t)chunk->memory);
        if (!chunk->memory || offset >= CHUNK)
            continue;
        tell_end(block);
        memset(&chunk->used[offset / BLOCK], 0, chunk->used[offset / BLOCK]);
        in_use -= bytes;
        return;
    }
}

static void pool_end(void)
{
    for (struct chunk *chunk = pool; chunk < pool + CHUNKS; chunk++) {
        if (!chunk->memory)
            continue;
        nvtxMemHeapUnregister(NULL, chunk->heap);
        CHECK_RT(cudaFree(chunk->memory));
    }
}

#define KEPT 12

int main(int count, char **arguments)
{
    struct example_limits limits = example_arguments(count, arguments, 10, 20);
    void *kept[KEPT] = {NULL};
    size_t sizes[KEPT] = {0};
    uint64_t random = 1;
    long step = 0;
    for (; example_goes_on(&limits, step); step++) {
        unsigned slot = (unsigned)(step % KEPT);
        pool_free(kept[slot], sizes[slot]);
        sizes[slot] = (size_t)(1 + example_random(&random) % (12u << 20));
        kept[slot] = pool_alloc(sizes[slot]);
        example_pause(&limits);
    }
    printf("pool: %ld steps, at most %.1f MiB of blocks\n", step, (double)most / (1 << 20));
    pool_end();
    return 0;
}
