/* SPDX-License-Identifier: MIT
 *
 * Sub-allocators that describe their heaps through NVTX's memory extension. After every step the
 * numbers of gpuprof.h are compared with what the steps add up to: a difference is printed and
 * counts as a failure. With "hostile": descriptions that contradict themselves or each other, which
 * change nothing. With "threads": pools of several threads at once. With "refused": the harness makes the first free fail. Leaves a heap with two blocks.
 */
#include <cuda.h>

#include "../../examples/nvtxmem.h"
#include "api.h"
#include <pthread.h>

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

/* ---- scenes ------------------------------------------------------------------------------------- */

static void one_pool(void)
{
    char *base = segment_alloc(8 * MIB);
    nvtxMemHeapHandle_t heap = heap_begin(base, 8 * MIB);

    block_begin(heap, base, MIB);
    block_begin(heap, base + MIB, 1000);
    block_begin(heap, base + 4 * MIB, 4 * MIB);
    block_end(base + MIB, 1000);
    block_resize(base, MIB, 3 * MIB);
    block_resize(base, 3 * MIB, 512);
    block_begin(heap, base + 512, 100);
    block_end(base, 512);
    nvtxMemHeapReset(NULL, heap);
    allocated -= 4 * MIB + 100;
    expect("heap reset");
    block_begin(heap, base + 100, 77);
    heap_end(heap, 8 * MIB, 77);
    heap = heap_begin(base, 8 * MIB); /* again, at the same place */
    block_begin(heap, base, MIB);
    block_end(base, MIB);
    heap_end(heap, 8 * MIB, 0);
    segment_free(base, 8 * MIB, 8 * MIB);
}

/* Heaps that cover a part of their driver allocation, in the order of places and out of it. */
static void parts(void)
{
    char *base = segment_alloc(8 * MIB);
    nvtxMemHeapHandle_t middle = heap_begin(base + 2 * MIB, 2 * MIB), low, high;

    block_begin(middle, base + 2 * MIB, MIB);
    high = heap_begin(base + 6 * MIB, 2 * MIB);
    low = heap_begin(base, MIB);
    block_begin(high, base + 7 * MIB, MIB);
    block_begin(low, base, MIB);
    heap_end(middle, 2 * MIB, MIB);
    middle = heap_begin(base + MIB, 5 * MIB); /* over what was outside, and a former heap */
    block_begin(middle, base + 3 * MIB, 5);
    heap_end(high, 2 * MIB, MIB);
    heap_end(low, MIB, MIB);
    heap_end(middle, 5 * MIB, 5);
    segment_free(base, 8 * MIB, 8 * MIB);
}

/* The driver frees the memory under a heap, by cuMemFree and with a context; the address comes again. */
static void freed_below(void)
{
    CUcontext context;
    CUdevice device;
    char *base = segment_alloc(4 * MIB);
    nvtxMemHeapHandle_t heap = heap_begin(base + MIB, 2 * MIB), old = heap;

    block_begin(heap, base + MIB, MIB);
    segment_free(base, 4 * MIB, 3 * MIB);
    nvtxMemHeapUnregister(NULL, heap);
    expect("heap without memory ends");
    block_remove(base + MIB, NVTX_MEM_REGION_REF_TYPE_POINTER);
    expect("block without memory ends");
    base = segment_alloc(4 * MIB);
    block_add(old, base + MIB, MIB);
    expect("block of a heap that ended");
    heap = heap_begin(base, 4 * MIB);
    block_begin(heap, base, MIB);
    segment_free(base, 4 * MIB, MIB);
    CHECK(cuCtxGetDevice(&device));
#if CUDA_VERSION >= 13000
    CHECK(cuCtxCreate(&context, NULL, 0, device));
#else
    CHECK(cuCtxCreate(&context, 0, device));
#endif
    base = segment_alloc(6 * MIB);
    heap = heap_begin(base, 4 * MIB);
    block_begin(heap, base, MIB);
    CHECK(cuCtxDestroy(context));
    allocated -= 3 * MIB;
    reserved -= 6 * MIB;
    expect("context destroyed");
    nvtxMemHeapUnregister(NULL, heap);
    expect("heap without a context ends");
}

/* The driver refuses the first free: the memory is there, and its heap is not. */
static void refused(void)
{
    char *base = segment_alloc(4 * MIB);
    nvtxMemHeapHandle_t heap = heap_begin(base, 4 * MIB);

    block_begin(heap, base, MIB);
    REPORT("refused", cuMemFree((CUdeviceptr)(uintptr_t)base) != CUDA_SUCCESS);
    allocated += 3 * MIB;
    expect("refused");
    block_add(heap, base, MIB);
    expect("no heap");
    heap = heap_begin(base, 2 * MIB);
    heap_end(heap, 2 * MIB, 0);
    segment_free(base, 4 * MIB, 4 * MIB);
}

/* The usual end of a pool: its memory is never counted as a whole. */
static void ends_quietly(void)
{
    char *base = segment_alloc(16 * MIB), *other;
    nvtxMemHeapHandle_t heap = heap_begin(base + MIB, 14 * MIB);

    CHECK(api_gpuprof_reset_peak_memory_stats(0));
    allocated_peak = 0;
    reserved_peak = reserved;
    block_begin(heap, base + MIB, MIB);
    nvtxMemHeapUnregister(NULL, heap);
    CHECK(cuMemFree((CUdeviceptr)(uintptr_t)base));
    allocated -= 3 * MIB;
    reserved -= 16 * MIB;
    expect("heap and memory end");
    base = segment_alloc(2 * MIB);
    heap = heap_begin(base, 2 * MIB);
    nvtxMemHeapUnregister(NULL, heap); /* another heap in its place, smaller */
    heap = heap_of(base, MIB);
    allocated += MIB;
    expect("heap again");
    nvtxMemHeapUnregister(NULL, heap);
    other = (char *)(uintptr_t)program_alloc(MIB); /* the memory was still there when this came */
    allocated += 2 * MIB;
    reserved += MIB;
    allocated_peak = allocated;
    CHECK(cuMemFree((CUdeviceptr)(uintptr_t)other));
    allocated -= MIB;
    reserved -= MIB;
    expect("heap ended before");
    segment_free(base, 2 * MIB, 2 * MIB);
}

static void leave_some(void)
{
    char *base = segment_alloc(3 * MIB);
    nvtxMemHeapHandle_t heap = heap_begin(base, 2 * MIB);

    block_begin(heap, base, 256 * KIB);
    block_begin(heap, base + MIB, 512 * KIB);
}

/* ---- hostile ------------------------------------------------------------------------------------ */

static void hostile_heaps(const char *base, nvtxMemHeapHandle_t heap)
{
    nvtxMemVirtualRangeDesc_t range = {MIB, base + 4 * MIB};
    const nvtxMemHeapDesc_t good = {NVTX_EXT_COMPATID_MEM, sizeof(good), 0, 1, 1, sizeof(range), &range, 0, 0, NULL};
    nvtxMemHeapDesc_t desc;
    char *host = malloc(MIB);

#define HEAP(_change)                                                                                                  \
    do {                                                                                                               \
        desc = good;                                                                                                   \
        _change;                                                                                                       \
        if (nvtxMemHeapRegister(NULL, &desc) != NVTX_MEM_HEAP_HANDLE_NO_TOOL) {                                        \
            printf("not refused: %s\n", #_change);                                                                     \
            program_failures++;                                                                                        \
        }                                                                                                              \
        expect(#_change);                                                                                              \
    } while (0)
    HEAP(desc.extCompatID = 0x0103);
    HEAP(desc.structSize = 40);
    HEAP(desc.structSize = 0);
    HEAP(desc.usage = 0);
    HEAP(desc.usage = 2);
    HEAP(desc.type = 7);
    HEAP(desc.typeSpecificDescSize = 8);
    HEAP(desc.typeSpecificDesc = NULL);
    if (nvtxMemHeapRegister(NULL, NULL) != NVTX_MEM_HEAP_HANDLE_NO_TOOL) {
        program_failures++;
    }
    REPORT("host", heap_of(host, MIB) == NVTX_MEM_HEAP_HANDLE_NO_TOOL);
    REPORT("nothing there", heap_of((void *)4096, MIB) == NVTX_MEM_HEAP_HANDLE_NO_TOOL);
    REPORT("null", heap_of(NULL, MIB) == NVTX_MEM_HEAP_HANDLE_NO_TOOL);
    REPORT("empty", heap_of(base + 4 * MIB, 0) == NVTX_MEM_HEAP_HANDLE_NO_TOOL);
    REPORT("wraps", heap_of(base + 4 * MIB, SIZE_MAX) == NVTX_MEM_HEAP_HANDLE_NO_TOOL);
    REPORT("too long", heap_of(base + 4 * MIB, 5 * MIB) == NVTX_MEM_HEAP_HANDLE_NO_TOOL);
    REPORT("twice", heap_of(base, 2 * MIB) == NVTX_MEM_HEAP_HANDLE_NO_TOOL);
    REPORT("nested", heap_of(base + 100, 100) == NVTX_MEM_HEAP_HANDLE_NO_TOOL);
    REPORT("over the end", heap_of(base + MIB, 2 * MIB) == NVTX_MEM_HEAP_HANDLE_NO_TOOL);
    expect("bad heaps");
    nvtxMemHeapUnregister(NULL, NULL);
    nvtxMemHeapUnregister(NULL, NVTX_MEM_HEAP_HANDLE_NO_TOOL);
    nvtxMemHeapUnregister(NULL, (nvtxMemHeapHandle_t)((char *)heap + 1));
    nvtxMemHeapReset(NULL, NULL);
    expect("heaps that are none");
    free(host);
}

static void hostile_blocks(const char *base, nvtxMemHeapHandle_t heap)
{
    nvtxMemVirtualRangeDesc_t range = {100, base + MIB};
    nvtxMemRegionsRegisterBatch_t batch = {
        NVTX_EXT_COMPATID_MEM, sizeof(batch), NVTX_MEM_TYPE_VIRTUAL_ADDRESS, heap, 1, sizeof(range), &range, NULL};
    nvtxMemRegionsUnregisterBatch_t list = {NVTX_EXT_COMPATID_MEM, sizeof(list), 1, 1, 8, NULL};

    block_add(heap, base + 50, 100); /* over the block that is there */
    block_add(heap, base, 100);      /* again */
    block_add(heap, base + 2 * MIB - 50, 100);
    block_add(heap, base + 4 * MIB, 100);
    block_add(heap, base + MIB, 0);
    block_add(heap, base + MIB, SIZE_MAX);
    block_add(NULL, base + MIB, 100);
    block_add(NVTX_MEM_HEAP_HANDLE_NO_TOOL, base + MIB, 100);
    expect("bad blocks");
    block_set(base, 3 * MIB);
    block_set(base, 0);
    block_set(base, SIZE_MAX);
    block_set(base + 1, 10);
    block_set(base + 2 * MIB, 10); /* outside of heaps, though allocated */
    block_remove(base + 1, 1);
    block_remove(base + 2 * MIB, 1);
    block_remove(base, 7);
    block_remove(NULL, 1);
    expect("bad sizes and ends");
    nvtxMemRegionsRegister(NULL, NULL);
    nvtxMemRegionsResize(NULL, NULL);
    nvtxMemRegionsUnregister(NULL, NULL);
    nvtxMemRegionsUnregister(NULL, &list);
    batch.regionDescElementSize = 8;
    nvtxMemRegionsRegister(NULL, &batch);
    batch.regionDescElementSize = 16;
    batch.regionCount = SIZE_MAX / 8;
    nvtxMemRegionsRegister(NULL, &batch);
    batch.regionCount = 1;
    batch.regionType = 2;
    nvtxMemRegionsRegister(NULL, &batch);
    batch.regionType = 1;
    batch.structSize = 32;
    nvtxMemRegionsRegister(NULL, &batch);
    expect("bad batches");
}

static void hostile(void)
{
    char *base = segment_alloc(8 * MIB);
    nvtxMemHeapHandle_t heap = heap_begin(base, 2 * MIB);

    block_begin(heap, base, 100);
    hostile_heaps(base, heap);
    hostile_blocks(base, heap);
    heap_end(heap, 2 * MIB, 100);
    segment_free(base, 8 * MIB, 8 * MIB);
}

static void modules(void)
{
    intptr_t slots[NVTXMEM_SLOTS + 1] = {0};
    nvtxExtModuleSegment_t segment = {0, NVTXMEM_SLOTS, slots};
    const nvtxExtModuleInfo_t good = {3, sizeof(good), 1, NVTX_EXT_COMPATID_MEM, 1, &segment, NULL, NULL};
    nvtxExtModuleInfo_t module = good;
    int (*start)(nvtxExtModuleInfo_t *) = NULL;
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path != NULL ? dlopen(path, RTLD_LAZY) : NULL;

    if (library == NULL) {
        return;
    }
    *(void **)&start = dlsym(library, "InitializeInjectionNvtxExtension");
    REPORT("no module", start(NULL));
    module.moduleId = 2;
    REPORT("another module", start(&module));
    module = good;
    module.compatId = 0x0101;
    REPORT("another version", start(&module));
    module = good;
    module.structSize = 16;
    REPORT("a short one", start(&module));
    module = good;
    module.segments = NULL;
    REPORT("no segments", start(&module));
    module = good;
    module.segmentsCount = 0;
    REPORT("segments, none", start(&module));
    segment.segmentId = 1;
    REPORT("another segment", start(&module));
    segment.segmentId = 0;
    segment.slotCount = 3;
    module = good;
    REPORT("few slots", start(&module));
    REPORT("within them", slots[1] != 0 && slots[2] != 0 && slots[3] == 0);
}

/* ---- threads ------------------------------------------------------------------------------------ */

enum { THREADS = 6, ROUNDS = 60 };

static CUcontext shared_context;

static void *pool_thread(void *argument)
{
    char *shared = argument;

    CHECK(cuCtxSetCurrent(shared_context));
    for (int round = 0; round < ROUNDS; round++) {
        CUdeviceptr address = program_alloc(2 * MIB);
        char *base = (char *)(uintptr_t)address;
        nvtxMemHeapHandle_t heap = heap_of(base, 2 * MIB);

        for (size_t at = 0; at < 16; at++) {
            block_add(heap, base + at * 64 * KIB, 64 * KIB);
        }
        block_add((nvtxMemHeapHandle_t)shared, shared + (size_t)(round % 7) * KIB, KIB); /* all threads the same */
        for (size_t at = 0; at < 16; at += 2) {
            block_remove(base + at * 64 * KIB, 1);
        }
        block_set(base + 64 * KIB, 128 * KIB);
        block_remove(shared + (size_t)(round % 7) * KIB, 1);
        if (round % 3) {
            nvtxMemHeapUnregister(NULL, heap);
        }
        CHECK(cuMemFree(address));
        if (round % 3 == 0) {
            nvtxMemHeapUnregister(NULL, heap); /* late: another thread may have the memory */
        }
    }
    return NULL;
}

static void threads(void)
{
    pthread_t thread[THREADS];
    char *base = segment_alloc(4 * MIB);
    nvtxMemHeapHandle_t heap = heap_begin(base, 4 * MIB);

    CHECK(cuCtxGetCurrent(&shared_context));
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&thread[i], NULL, pool_thread, base));
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(thread[i], NULL));
    }
    nvtxMemHeapReset(NULL, heap);
    allocated_peak = api_gpuprof_max_memory_allocated(0);
    reserved_peak = api_gpuprof_max_memory_reserved(0);
    expect("after the threads");
    heap_end(heap, 4 * MIB, 0);
    segment_free(base, 4 * MIB, 4 * MIB);
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";

    heap_of(arguments, 1); /* before the start */
    program_start();
    if (!api_load()) {
        return 3;
    }
    expect("start");
    errno = 77;
    if (strcmp(what, "hostile") == 0) {
        modules();
        hostile();
    } else if (strcmp(what, "refused") == 0) {
        refused();
    } else if (strcmp(what, "threads") == 0) {
        threads();
    } else {
        one_pool();
        parts();
        freed_below();
        ends_quietly();
    }
    leave_some();
    return finish();
}
