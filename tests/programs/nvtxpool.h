/* SPDX-License-Identifier: MIT
 *
 * nvtxpool.h: what the driver, a heap and its blocks do, and what that adds up to; after each step it is
 * compared with gpuprof's numbers.
 */
#ifndef GP_TEST_PROGRAMS_NVTXPOOL_H
#define GP_TEST_PROGRAMS_NVTXPOOL_H

#include "../../examples/nvtxmem.h"
#include "api.h"

static long long allocated, allocated_peak, reserved, reserved_peak; /* as they should be */
/* The last memory that became allocated as a whole, and the peak before it. */
static long long whole, peak_before;

static void expect(const char *what)
{
    long long is[] = {api_gpuprof_memory_allocated(0), api_gpuprof_max_memory_allocated(0),
                      api_gpuprof_memory_reserved(0), api_gpuprof_max_memory_reserved(0)};
    allocated_peak = allocated > allocated_peak ? allocated : allocated_peak;
    reserved_peak = reserved > reserved_peak ? reserved : reserved_peak;
    if (is[0] != allocated || is[1] != allocated_peak || is[2] != reserved || is[3] != reserved_peak) {
        printf("%s: allocated %lld instead of %lld, peak %lld of %lld, reserved %lld of %lld, peak %lld of %lld\n",
               what, is[0], allocated, is[1], allocated_peak, is[2], reserved, is[3], reserved_peak);
        program_failures++;
    }
}

/* Steps: what the driver, the heap and the blocks do, and what that is in bytes. */

static char *segment_alloc(size_t bytes)
{
    CUdeviceptr address = program_alloc(bytes);
    whole = (long long)bytes;
    peak_before = allocated_peak;
    allocated += (long long)bytes;
    reserved += (long long)bytes;
    expect("driver allocation");
    return (char *)(uintptr_t)address;
}

static void segment_free(char *address, size_t bytes, size_t counted)
{
    CHECK(cuMemFree((CUdeviceptr)(uintptr_t)address));
    allocated -= (long long)counted;
    reserved -= (long long)bytes;
    expect("driver free");
}

static nvtxMemHeapHandle_t heap_of(const void *address, size_t bytes)
{
    nvtxMemVirtualRangeDesc_t range = {bytes, address};
    nvtxMemHeapDesc_t desc = {NVTX_EXT_COMPATID_MEM,
                              sizeof(desc),
                              0,
                              NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR,
                              NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
                              sizeof(range),
                              &range,
                              0,
                              1,
                              "a pool"};
    return nvtxMemHeapRegister(NULL, &desc);
}

static nvtxMemHeapHandle_t heap_begin(char *address, size_t bytes)
{
    nvtxMemHeapHandle_t heap = heap_of(address, bytes);
    allocated -= (long long)bytes;
    if ((long long)bytes == whole && allocated_peak > peak_before) { /* it was a segment from the start */
        allocated_peak -= whole;
        allocated_peak = allocated_peak > peak_before ? allocated_peak : peak_before;
    }
    expect("heap begins");
    return heap;
}

static void heap_end(nvtxMemHeapHandle_t heap, size_t bytes, size_t live)
{
    nvtxMemHeapUnregister(NULL, heap);
    whole = (long long)bytes;
    peak_before = allocated_peak;
    allocated += (long long)bytes - (long long)live;
    expect("heap ends");
}

static void block_add(nvtxMemHeapHandle_t heap, const char *address, size_t bytes)
{
    nvtxMemVirtualRangeDesc_t range = {bytes, address};
    nvtxMemRegionHandle_t handle = NULL;
    nvtxMemRegionsRegisterBatch_t batch = {
        NVTX_EXT_COMPATID_MEM, sizeof(batch), NVTX_MEM_TYPE_VIRTUAL_ADDRESS, heap, 1, sizeof(range), &range, &handle};
    nvtxMemRegionsRegister(NULL, &batch);
    if ((const char *)handle != address) {
        printf("a region's handle is not its address\n");
        program_failures++;
    }
}

static void block_begin(nvtxMemHeapHandle_t heap, const char *address, size_t bytes)
{
    block_add(heap, address, bytes);
    allocated += (long long)bytes;
    expect("block begins");
}

static void block_remove(const char *address, uint32_t type)
{
    nvtxMemRegionRef_t reference = {.pointer = address};
    nvtxMemRegionsUnregisterBatch_t batch = {NVTX_EXT_COMPATID_MEM, sizeof(batch), type, 1,
                                             sizeof(reference),     &reference};
    nvtxMemRegionsUnregister(NULL, &batch);
}

static void block_end(const char *address, size_t bytes)
{
    block_remove(address, bytes % 1024 ? NVTX_MEM_REGION_REF_TYPE_HANDLE : NVTX_MEM_REGION_REF_TYPE_POINTER);
    allocated -= (long long)bytes;
    expect("block ends");
}

static void block_set(const char *address, size_t bytes)
{
    nvtxMemVirtualRangeDesc_t range = {bytes, address};
    nvtxMemRegionsResizeBatch_t batch = {NVTX_EXT_COMPATID_MEM, sizeof(batch), NVTX_MEM_TYPE_VIRTUAL_ADDRESS, 1,
                                         sizeof(range),         &range};
    nvtxMemRegionsResize(NULL, &batch);
}

static void block_resize(const char *address, size_t from, size_t to)
{
    block_set(address, to);
    allocated += (long long)to - (long long)from;
    expect("block resized");
}

#endif
