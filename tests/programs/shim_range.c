/* SPDX-License-Identifier: MIT
 *
 * The driver's answers about an address concern one block: range, attributes, and an identity that
 * no later block shares.  Libraries register exactly the range that they get. Leaves five blocks of
 * linear memory.
 */
#include <cuda.h>

#include "finish.h"

#define BLOCKS 5
static const size_t sizes[BLOCKS] = {100, 5000, MIB, 3 * MIB + 512, 20 * MIB};

/* A figure of an attribute that is four or eight bytes wide; the code instead if it is refused. */
static long long attribute(CUpointer_attribute which, CUdeviceptr at)
{
    unsigned long long value = 0; /* little end first: four bytes land in the low half */
    CUresult result = cuPointerGetAttribute(&value, which, at);
    return result == CUDA_SUCCESS ? (long long)value : -(long long)result;
}

static int range_is(CUdeviceptr at, CUdeviceptr base, size_t bytes)
{
    CUdeviceptr start = 0, again = 0;
    size_t size = 0;
    CHECK(cuMemGetAddressRange(&start, &size, at));
    CHECK(cuMemGetAddressRange(&again, NULL, at));
    return start == base && again == base && size == bytes &&
           attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at) == (long long)base &&
           attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, at) == (long long)bytes;
}

/* Large: 2 MiB and more, which can always be exported. */
static void describe(CUdeviceptr at, int is_large)
{
    CUcontext context = NULL, current = NULL;
    unsigned on = 1;
    CHECK(cuCtxGetCurrent(&current));
    CHECK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, at));
    printf("context %d, type %lld, device %lld, pointer %d, host %lld, managed %lld, mapped %lld\n", context == current,
           attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at), attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at),
           attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at) == (long long)at,
           attribute(CU_POINTER_ATTRIBUTE_HOST_POINTER, at), attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, at),
           attribute(CU_POINTER_ATTRIBUTE_MAPPED, at));
    /* Not asked before: it speaks of the driver's whole allocation, which small blocks may share. */
    CHECK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
    printf("sync %lld\n", attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
    if (is_large)
        printf("ipc %lld\n", attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at));
}

/* The form that asks for several at once. */
static void several(CUdeviceptr at, CUdeviceptr base, size_t bytes)
{
    CUpointer_attribute which[5] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                    CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                    CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    CUdeviceptr start = 0;
    size_t size = 0;
    unsigned long long id = 0;
    unsigned type = 0;
    int device = -1;
    void *data[5] = {&start, &device, &size, &id, &type};
    REPORT("several", cuPointerGetAttributes(5, which, data, at));
    printf("start %d, size %d, id %d, type %u, device %d\n", start == base, size == bytes,
           (long long)id == attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, at), type, device);
}

/* The driver does not know a freed address, and a later block at that address is another buffer. */
static void after_free(void)
{
    long long ids[8];
    CUdeviceptr block = 0;
    int i, k, alike = 0;
    for (i = 0; i < 8; i++) {
        block = program_alloc(3 * MIB);
        ids[i] = attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, block);
        for (k = 0; k < i; k++)
            alike += ids[k] == ids[i];
        CHECK(cuMemFree(block));
    }
    printf("buffers alike: %d\n", alike);
    REPORT("range of freed memory", cuMemGetAddressRange(NULL, NULL, block));
    printf("attributes of freed memory: %lld %lld\n", attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, block),
           attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block));
    several(block, 0, 0);
}

int main(void)
{
    CUdeviceptr blocks[BLOCKS], spare[BLOCKS];
    int i, right = 0;
    program_start();
    for (i = 0; i < BLOCKS; i++) { /* neighbours that go: what stays has holes around it */
        spare[i] = program_alloc(sizes[i]);
        blocks[i] = program_alloc(sizes[i]);
    }
    for (i = 0; i < BLOCKS; i++)
        CHECK(cuMemFree(spare[i]));
    for (i = 0; i < BLOCKS; i++) {
        right += range_is(blocks[i], blocks[i], sizes[i]) + range_is(blocks[i] + sizes[i] / 2, blocks[i], sizes[i]) +
                 range_is(blocks[i] + sizes[i] - 1, blocks[i], sizes[i]);
    }
    printf("ranges right: %d of %d\n", right, 3 * BLOCKS);
    for (i = 0; i < BLOCKS; i++) {
        describe(blocks[i] + sizes[i] / 3, sizes[i] >= 2 * MIB);
        several(blocks[i] + sizes[i] - 1, blocks[i], sizes[i]);
    }
    after_free();
    return finish();
}
