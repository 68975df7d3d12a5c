/* SPDX-License-Identifier: MIT
 *
 * Sub-allocators that describe their heaps through NVTX's memory extension. After every step the
 * numbers of gpuprof.h are compared with what the steps add up to: a difference is printed and
 * counts as a failure. With "hostile": descriptions that contradict themselves or each other, which
 * change nothing. With "mapped": heaps over mappings of cuMemMap. With "threads": pools of several
 * threads at once. With "taken": a pool of much more than is used. With "refused": the harness makes the first free, and the first unmap, fail. Leaves
 * a heap with two blocks.
 */
#include <cuda.h>

#include "nvtxpool.h"
#include "vmm.h"
#include <pthread.h>
#include <stdbool.h>

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

static void context_create(CUcontext *context)
{
    CUdevice device;
    CHECK(cuCtxGetDevice(&device));
#if CUDA_VERSION >= 13000
    CHECK(cuCtxCreate(context, NULL, 0, device));
#else
    CHECK(cuCtxCreate(context, 0, device));
#endif
}

/* The driver frees the memory under a heap, by cuMemFree and with a context; the address comes again. */
static void freed_below(void)
{
    CUcontext context;
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
    context_create(&context);
    base = segment_alloc(6 * MIB);
    heap = heap_begin(base, 4 * MIB);
    block_begin(heap, base, MIB);
    CHECK(cuCtxDestroy(context));
    allocated -= 3 * MIB;
    reserved -= 6 * MIB;
    expect("context destroyed");
    nvtxMemHeapUnregister(NULL, heap);
    expect("heap without a context ends");
    context_create(&context);
    base = segment_alloc(6 * MIB);
    heap = heap_begin(base + MIB, 4 * MIB);
    nvtxMemHeapUnregister(NULL, heap);
    CHECK(cuCtxDestroy(context));
    allocated -= 2 * MIB;
    reserved -= 6 * MIB;
    expect("context destroyed after its heap");
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

/* ---- heaps over mappings of cuMemMap ------------------------------------------------------------ */

#define PIECE (2 * MIB)

static CUmemGenericAllocationHandle pages[8];
static char *area; /* room for eight pieces */

static void piece_create(int number, size_t bytes)
{
    CUdevice device;
    CHECK(cuCtxGetDevice(&device));
    pages[number] = vmm_create(device, bytes);
    reserved += (long long)bytes;
    expect("handle created");
}

static void piece_map(int number, size_t bytes, bool below_heap)
{
    CHECK(cuMemMap((CUdeviceptr)(uintptr_t)(area + (size_t)number * PIECE), bytes, 0, pages[number], 0));
    whole = (long long)bytes;
    peak_before = allocated_peak;
    allocated += below_heap ? 0 : (long long)bytes;
    expect("mapped");
}

static void piece_unmap(int number, size_t bytes, size_t counted)
{
    CHECK(cuMemUnmap((CUdeviceptr)(uintptr_t)(area + (size_t)number * PIECE), bytes));
    allocated -= (long long)counted;
    expect("unmapped");
}

static void piece_release(int number, size_t bytes)
{
    CHECK(cuMemRelease(pages[number]));
    reserved -= (long long)bytes;
    expect("handle released");
}

static void range_reserve(void)
{
    CUdeviceptr address;
    CHECK(cuMemAddressReserve(&address, 8 * PIECE, 0, 0, 0));
    area = (char *)(uintptr_t)address;
}

static void range_free(void)
{
    CHECK(cuMemAddressFree((CUdeviceptr)(uintptr_t)area, 8 * PIECE));
}

/* One mapping and one heap, as a whole and as a part. */
static void mapped_one(void)
{
    nvtxMemHeapHandle_t heap, other;
    range_reserve();
    piece_create(0, 4 * MIB);
    piece_map(0, 4 * MIB, false);
    heap = heap_begin(area, 4 * MIB);
    block_begin(heap, area, MIB);
    block_begin(heap, area + MIB, 512);
    block_resize(area + MIB, 512, MIB);
    block_end(area, MIB);
    heap_end(heap, 4 * MIB, MIB);
    heap = heap_begin(area + MIB, MIB);
    other = heap_begin(area + 3 * MIB, MIB);
    block_begin(heap, area + MIB, 512);
    block_begin(other, area + 3 * MIB, 1024);
    heap_end(heap, MIB, 512);
    heap = heap_begin(area, 3 * MIB);
    block_begin(heap, area + MIB, MIB);
    heap_end(other, MIB, 1024);
    piece_unmap(0, 4 * MIB, 2 * MIB); /* one block, and what lay outside */
    nvtxMemHeapUnregister(NULL, heap);
    expect("heap without memory ends");
    piece_map(0, 4 * MIB, false); /* the heap has gone with the memory */
    piece_unmap(0, 4 * MIB, 4 * MIB);
    piece_release(0, 4 * MIB);
    range_free();
}

/* A heap spans two mappings, one of which goes below it, and comes back. */
static void mapped_two(void)
{
    nvtxMemHeapHandle_t heap;
    CHECK(api_gpuprof_reset_peak_memory_stats(0));
    allocated_peak = reserved_peak = 0;
    range_reserve();
    for (int i = 0; i < 2; i++) {
        piece_create(i, PIECE);
        piece_map(i, PIECE, false);
    }
    heap = heap_of(area, 2 * PIECE);
    allocated = 0;
    allocated_peak = PIECE; /* the last mapping was a segment from the start */
    expect("heap over two mappings");
    block_begin(heap, area, MIB);
    block_begin(heap, area + MIB, 2 * MIB); /* in both */
    block_begin(heap, area + 3 * MIB, 512);
    block_add(heap, area + 2 * PIECE, 512);
    block_add(heap, area + 3 * MIB, MIB); /* over another block */
    expect("bad blocks");
    piece_unmap(1, PIECE, 2 * MIB + 512); /* with both blocks that it had a part of */
    block_add(heap, area + 3 * MIB, 512);
    block_add(heap, area + MIB, 2 * MIB);
    expect("blocks without memory");
    block_begin(heap, area + MIB, MIB);
    block_set(area + MIB, 2 * MIB);
    expect("a block does not grow out of memory");
    piece_map(1, PIECE, true);
    block_begin(heap, area + 3 * MIB, 512);
    block_end(area + MIB, MIB);
    block_begin(heap, area + MIB, 2 * MIB);
    piece_unmap(0, 2 * PIECE, 3 * MIB + 512);
    nvtxMemHeapUnregister(NULL, heap);
    block_remove(area, NVTX_MEM_REGION_REF_TYPE_POINTER);
    expect("all gone");
    piece_release(0, PIECE);
    piece_release(1, PIECE);
    range_free();
}

/* A pool that grows: its heap is all that it has reserved, with holes. Its handles live as long as their mappings. */
static void mapped_growing(void)
{
    nvtxMemHeapHandle_t heap;
    range_reserve();
    piece_create(0, PIECE);
    piece_map(0, PIECE, false);
    heap = heap_of(area, 8 * PIECE);
    allocated -= PIECE;
    expect("a heap with holes");
    for (int i = 2; i < 6; i++) {
        piece_create(i, PIECE);
        piece_map(i, PIECE, true);
        CHECK(cuMemRelease(pages[i]));
        expect("released, and mapped");
        block_begin(heap, area + (size_t)i * PIECE, MIB);
    }
    block_add(heap, area + PIECE, MIB);     /* in a hole */
    block_add(heap, area + 6 * PIECE, MIB); /* behind */
    block_add(heap, area + MIB, 2 * MIB);   /* into a hole */
    expect("blocks in holes");
    block_begin(heap, area + 3 * PIECE + MIB, MIB);
    reserved -= 2 * PIECE;
    piece_unmap(2, 2 * PIECE, 3 * MIB);
    nvtxMemHeapUnregister(NULL, heap);
    whole = 0;
    allocated += 3 * PIECE - 2 * MIB;
    expect("heap ends");
    reserved -= 2 * PIECE;
    piece_unmap(4, 2 * PIECE, 2 * PIECE);
    piece_unmap(0, PIECE, PIECE);
    piece_release(0, PIECE);
    range_free();
}

/* Memory that is mapped twice, or is not mapped, is no heap's. */
static void mapped_otherwise(void)
{
    CUdeviceptr half;
    range_reserve();
    piece_create(0, 2 * PIECE);
    REPORT("not mapped", heap_of(area, PIECE) == NVTX_MEM_HEAP_HANDLE_NO_TOOL);
    piece_map(0, 2 * PIECE, false);
    half = (CUdeviceptr)(uintptr_t)(area + 4 * PIECE);
    CHECK(cuMemMap(half, 2 * PIECE, 0, pages[0], 0));
    expect("a second mapping adds nothing");
    REPORT("mapped twice", heap_of(area, PIECE) == NVTX_MEM_HEAP_HANDLE_NO_TOOL);
    CHECK(cuMemUnmap(half, 2 * PIECE));
    expect("the second mapping ends");
    heap_begin(area, 2 * PIECE);
    CHECK(cuMemMap(half, 2 * PIECE, 0, pages[0], 0));
    expect("a second mapping of a heap's memory");
    CHECK(cuMemUnmap((CUdeviceptr)(uintptr_t)area, 2 * PIECE));
    allocated += 2 * PIECE; /* what is left is the second mapping, which has no heap */
    expect("the heap's mapping ends");
    CHECK(cuMemUnmap(half, 2 * PIECE));
    allocated -= 2 * PIECE;
    piece_release(0, 2 * PIECE);
    range_free();
}

/* The usual end of a pool: between its last call and the driver's, its memory is not counted. */
static void mapped_quietly(void)
{
    nvtxMemHeapHandle_t heap;
    range_reserve();
    piece_create(0, 8 * MIB);
    piece_map(0, 8 * MIB, false);
    heap = heap_begin(area, 8 * MIB);
    CHECK(api_gpuprof_reset_peak_memory_stats(0));
    allocated_peak = 0;
    reserved_peak = reserved;
    block_begin(heap, area, MIB);
    nvtxMemHeapUnregister(NULL, heap);
    CHECK(cuMemUnmap((CUdeviceptr)(uintptr_t)area, 8 * MIB));
    allocated -= MIB;
    expect("heap and mapping end");
    piece_map(0, 8 * MIB, false);
    heap = heap_begin(area, 8 * MIB);
    nvtxMemHeapUnregister(NULL, heap); /* another one in its place */
    heap = heap_of(area, 2 * MIB);
    allocated += 6 * MIB;
    expect("heap again");
    block_begin(heap, area + MIB, MIB);
    piece_unmap(0, 8 * MIB, 7 * MIB);
    piece_release(0, 8 * MIB);
    range_free();
}

static void mapped(void)
{
    mapped_one();
    mapped_two();
    mapped_growing();
    mapped_otherwise();
    mapped_quietly();
}

static void mapped_refused(void)
{
    nvtxMemHeapHandle_t heap;
    range_reserve();
    piece_create(0, PIECE);
    piece_map(0, PIECE, false);
    heap = heap_begin(area, PIECE);
    block_begin(heap, area, MIB);
    peak_before = allocated_peak;
    REPORT("unmap refused", cuMemUnmap((CUdeviceptr)(uintptr_t)area, PIECE) != CUDA_SUCCESS);
    allocated += MIB;
    allocated_peak = allocated > allocated_peak ? allocated : allocated_peak;
    expect("a plain mapping");
    heap = heap_begin(area, PIECE);
    heap_end(heap, PIECE, 0);
    piece_unmap(0, PIECE, PIECE);
    piece_release(0, PIECE);
    range_free();
}

/* A pool that takes much of the GPU whole, and uses little. */
static void taken(void)
{
    char *base = segment_alloc(8192 * MIB);
    nvtxMemHeapHandle_t heap = heap_begin(base, 8192 * MIB);
    block_begin(heap, base, MIB);
    segment_free(base, 8192 * MIB, MIB);
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
    if (nvtxMemHeapRegister(NULL, NULL) != NVTX_MEM_HEAP_HANDLE_NO_TOOL)
        program_failures++;
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
    if (library == NULL)
        return;
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

/* The same over two mappings. */
static void mapped_round(CUdevice device, int round)
{
    CUdeviceptr address;
    CUmemGenericAllocationHandle handles[2];
    nvtxMemHeapHandle_t heap;
    char *base;
    CHECK(cuMemAddressReserve(&address, 2 * PIECE, 0, 0, 0));
    base = (char *)(uintptr_t)address;
    for (size_t i = 0; i < 2; i++) {
        handles[i] = vmm_create(device, PIECE);
        CHECK(cuMemMap(address + i * PIECE, PIECE, 0, handles[i], 0));
    }
    heap = heap_of(base, 2 * PIECE);
    for (size_t at = 0; at < 16; at++)
        block_add(heap, base + at * 192 * KIB, 192 * KIB);
    CHECK(cuMemUnmap(address, PIECE));
    CHECK(cuMemMap(address, PIECE, 0, handles[0], 0));
    block_add(heap, base, MIB);
    if (round % 2)
        nvtxMemHeapUnregister(NULL, heap);
    for (size_t i = 0; i < 2; i++) {
        CHECK(cuMemUnmap(address + i * PIECE, PIECE));
        CHECK(cuMemRelease(handles[i]));
    }
    CHECK(cuMemAddressFree(address, 2 * PIECE));
}

static void *pool_thread(void *argument)
{
    CUdevice device;
    char *shared = argument;
    CHECK(cuCtxSetCurrent(shared_context));
    CHECK(cuCtxGetDevice(&device));
    for (int round = 0; round < ROUNDS; round++) {
        mapped_round(device, round);
        CUdeviceptr address = program_alloc(2 * MIB);
        char *base = (char *)(uintptr_t)address;
        nvtxMemHeapHandle_t heap = heap_of(base, 2 * MIB);

        for (size_t at = 0; at < 16; at++)
            block_add(heap, base + at * 64 * KIB, 64 * KIB);
        block_add((nvtxMemHeapHandle_t)shared, shared + (size_t)(round % 7) * KIB, KIB); /* all threads the same */
        for (size_t at = 0; at < 16; at += 2)
            block_remove(base + at * 64 * KIB, 1);
        block_set(base + 64 * KIB, 128 * KIB);
        block_remove(shared + (size_t)(round % 7) * KIB, 1);
        if (round % 3)
            nvtxMemHeapUnregister(NULL, heap);
        CHECK(cuMemFree(address));
        if (round % 3 == 0)
            nvtxMemHeapUnregister(NULL, heap); /* late: another thread may have the memory */
    }
    return NULL;
}

static void threads(void)
{
    pthread_t thread[THREADS];
    char *base = segment_alloc(4 * MIB);
    nvtxMemHeapHandle_t heap = heap_begin(base, 4 * MIB);
    CHECK(cuCtxGetCurrent(&shared_context));
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, pool_thread, base));
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(thread[i], NULL));
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
    if (!api_load())
        return 3;
    expect("start");
    errno = 77;
    if (strcmp(what, "hostile") == 0) {
        modules();
        hostile();
    } else if (strcmp(what, "refused") == 0) {
        refused();
        mapped_refused();
    } else if (strcmp(what, "mapped") == 0) {
        mapped();
    } else if (strcmp(what, "threads") == 0) {
        threads();
    } else if (strcmp(what, "taken") == 0) {
        taken();
    } else {
        one_pool();
        parts();
        freed_below();
        ends_quietly();
    }
    leave_some();
    return finish();
}
