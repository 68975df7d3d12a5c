/* SPDX-License-Identifier: MIT
 *
 * sleeper.c: memory for a MemPool of PyTorch, from elsewhere than its own allocator: mapped memory that goes to sleep
 * (unmapped and released below live tensors) and wakes (mapped again at the same addresses), parts of one allocation
 * that was there before, managed memory, a pool of cudaMallocAsync. asleep.py loads it as a pluggable allocator.
 */
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

#define MOST 256
#define PAGE (2ull << 20)

enum { MAPPED, HEAP, MANAGED, ASYNC };

static struct {
    CUdeviceptr at;
    size_t bytes;
    CUmemGenericAllocationHandle handle; /* 0: asleep */
} pieces[MOST];
static CUdeviceptr heap, heap_next, heap_end;
static int kind = MAPPED;

int sleeper_kind(int wanted, size_t heap_bytes);
void *sleeper_malloc(size_t bytes, int device, void *stream);
void sleeper_free(void *pointer, size_t bytes, int device, void *stream);
int sleeper_sleep(int first, int count);
int sleeper_wake(int first, int count);

int sleeper_kind(int wanted, size_t heap_bytes)
{
    kind = wanted;
    if (kind == HEAP && cuMemAlloc(&heap, heap_bytes) == CUDA_SUCCESS) {
        heap_next = heap;
        heap_end = heap + heap_bytes;
    }
    return kind == HEAP ? heap != 0 : 1;
}

static CUmemAllocationProp prop(int device)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};

    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    return prop;
}

static int piece_map(int i, int device)
{
    CUmemAllocationProp properties = prop(device);

    return cuMemCreate(&pieces[i].handle, pieces[i].bytes, &properties, 0) == CUDA_SUCCESS &&
           cuMemMap(pieces[i].at, pieces[i].bytes, 0, pieces[i].handle, 0) == CUDA_SUCCESS;
}

void *sleeper_malloc(size_t bytes, int device, void *stream)
{
    CUdeviceptr at = 0;

    if (kind == MANAGED) {
        return cuMemAllocManaged(&at, bytes, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS ? (void *)at : NULL;
    }
    if (kind == ASYNC) {
        return cuMemAllocAsync(&at, bytes, (CUstream)stream) == CUDA_SUCCESS ? (void *)at : NULL;
    }
    if (kind == HEAP) {
        at = heap_next;
        heap_next += (bytes + PAGE - 1) / PAGE * PAGE;
        return heap_next <= heap_end ? (void *)at : NULL;
    }
    for (int i = 0; i < MOST; i++) {
        if (!pieces[i].at) {
            pieces[i].bytes = (bytes + PAGE - 1) / PAGE * PAGE;
            return cuMemAddressReserve(&pieces[i].at, pieces[i].bytes, 0, 0, 0) == CUDA_SUCCESS && piece_map(i, device)
                       ? (void *)pieces[i].at
                       : NULL;
        }
    }
    return NULL;
}

static void piece_unmap(int i)
{
    if (pieces[i].handle) {
        cuMemUnmap(pieces[i].at, pieces[i].bytes);
        cuMemRelease(pieces[i].handle);
        pieces[i].handle = 0;
    }
}

void sleeper_free(void *pointer, size_t bytes, int device, void *stream)
{
    (void)bytes, (void)device;
    if (kind == MANAGED) {
        cuMemFree((CUdeviceptr)pointer);
    } else if (kind == ASYNC) {
        cuMemFreeAsync((CUdeviceptr)pointer, (CUstream)stream);
    } else if (kind == MAPPED) {
        for (int i = 0; i < MOST; i++) {
            if (pieces[i].at == (CUdeviceptr)pointer) {
                piece_unmap(i);
                cuMemAddressFree(pieces[i].at, pieces[i].bytes);
                pieces[i].at = 0;
            }
        }
    }
}

int sleeper_sleep(int first, int count)
{
    for (int i = first; i < first + count && i < MOST; i++) {
        if (pieces[i].at) {
            piece_unmap(i);
        }
    }
    return 1;
}

int sleeper_wake(int first, int count)
{
    for (int i = first; i < first + count && i < MOST; i++) {
        if (pieces[i].at && !pieces[i].handle && !piece_map(i, 0)) {
            return 0;
        }
    }
    return 1;
}
