/* SPDX-License-Identifier: MIT
 *
 * The symmetric heap, as NVSHMEM's documents and its open source (3.4) describe it: each PE
 * reserves addresses for all, and memory of the device comes in pieces of NVSHMEM_CUMEM_GRANULARITY
 * when no hole is large enough.  The first hole is taken; freed memory stays in the heap.  The
 * library's own part is in it too: what its teams synchronise and reduce with.  Without CUDA's
 * virtual memory (NVSHMEM_DISABLE_CUDA_VMM) the heap has NVSHMEM_SYMMETRIC_SIZE from the start. */
#define _GNU_SOURCE
#include "nvshmem.h"

#include <ctype.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report.h"
#include "standin/standin.h"

#define HEAP_ALIGN 512u /* of a block */
#define HEAP_MOST  65536u

struct heap_block {
    size_t at, bytes;
    bool used;
};

static struct {
    CUresult (*export)(void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long);
    CUresult (*import)(CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType);
    CUresult (*memset)(CUdeviceptr, unsigned char, size_t);
    CUdeviceptr base; /* of this PE's part; those of the others follow */
    size_t room, size, piece;
    bool fixed;
    CUdevice device;
    struct heap_block *blocks; /* in the order of their places, without gaps */
    size_t count;
    pthread_mutex_t lock;
} heap = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A number with k, m, g or t behind it. */
static size_t heap_option(const char *name, size_t otherwise)
{
    const char *text = secure_getenv(name);
    char *end;
    double number = text ? strtod(text, &end) : 0;
    if (!text || end == text || !(number >= 0) || number > 1e15)
        return otherwise;
    const char *units = "kmgt", *unit = *end ? strchr(units, tolower((unsigned char)*end)) : NULL;
    for (long i = unit ? unit - units : -1; i >= 0; i--)
        number *= 1024;
    return (size_t)number;
}

static bool heap_is(const char *name)
{
    const char *text = secure_getenv(name);
    return text && *text && *text != '0' && *text != 'n' && *text != 'N' && *text != 'f' && *text != 'F';
}

static size_t heap_round(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

/* What the real library takes of the heap for itself, for each team: room to synchronise, to
 * reduce, and 8 KiB a PE to gather. */
static size_t heap_own(void)
{
    size_t teams = heap_option("NVSHMEM_MAX_TEAMS", NVSHMEM_TEAMS);
    size_t scratch = heap_option("NVSHMEM_REDUCE_SCRATCH_SIZE", 1u << 19);
    return teams * (442368u * 8 + scratch + 1025u * 8 * (size_t)nvshmem_job.pes);
}

static CUdeviceptr heap_of(int pe)
{
    return heap.base + (size_t)((pe - nvshmem_job.pe + nvshmem_job.pes) % nvshmem_job.pes) * heap.room;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static bool heap_insert(size_t index, struct heap_block block)
{
    struct heap_block *grown = heap.count < HEAP_MOST ? realloc(heap.blocks, (heap.count + 1) * sizeof *grown) : NULL;
    if (!grown)
        return false;
    heap.blocks = grown;
    memmove(grown + index + 1, grown + index, (heap.count - index) * sizeof *grown);
    grown[index] = block;
    heap.count++;
    return true;
}

static void heap_join(size_t index)
{
    if (index + 1 >= heap.count || heap.blocks[index].used || heap.blocks[index + 1].used)
        return;
    heap.blocks[index].bytes += heap.blocks[index + 1].bytes;
    heap.count--;
    memmove(heap.blocks + index + 1, heap.blocks + index + 2, (heap.count - index - 1) * sizeof *heap.blocks);
}

/* The part of hole `index` from `at` on; what is before and behind it stays a hole. */
static bool heap_cut(size_t index, size_t at, size_t bytes)
{
    struct heap_block hole = heap.blocks[index];
    if (at > hole.at) {
        if (!heap_insert(index, (struct heap_block){hole.at, at - hole.at, false}))
            return false;
        heap.blocks[++index] = (struct heap_block){at, hole.at + hole.bytes - at, false};
    }
    hole = heap.blocks[index];
    if (hole.bytes > bytes && !heap_insert(index + 1, (struct heap_block){hole.at + bytes, hole.bytes - bytes, false}))
        return false;
    heap.blocks[index] = (struct heap_block){hole.at, bytes, true};
    return true;
}

/* The place of a block, SIZE_MAX without a hole.  An aligned one takes a hole with room for the alignment. */
static size_t heap_take(size_t bytes, size_t align)
{
    bytes = heap_round(bytes + align, HEAP_ALIGN);
    for (size_t i = 0; i < heap.count; i++) {
        struct heap_block *hole = &heap.blocks[i];
        if (hole->used || hole->bytes < bytes)
            continue;
        size_t at = align ? heap_round(hole->at, align) : hole->at;
        return heap_cut(i, at, bytes - (at - hole->at)) ? at : SIZE_MAX;
    }
    return SIZE_MAX;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static bool heap_map(CUdeviceptr to, size_t bytes, CUmemGenericAllocationHandle handle)
{
    const struct nccl_driver *driver = nccl_driver();
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = heap.device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return driver->cuMemMap(to, bytes, 0, handle, 0) == CUDA_SUCCESS &&
           driver->cuMemSetAccess(to, bytes, &access, 1) == CUDA_SUCCESS;
}

struct heap_offer {
    int pid, fd; /* fd -1: no memory */
};

/* Another PE's memory, by its descriptor.  Its driver's handle is a file that this user may open. */
static bool heap_import(const struct heap_offer *offer, CUdeviceptr to, size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", offer->pid, offer->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool ok = heap.import(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_SUCCESS;
    close(fd);
    if (!ok)
        return false;
    ok = heap_map(to, bytes, handle);
    nccl_driver()->cuMemRelease(handle);
    return ok;
}

/* Adds memory at the end of each PE's heap.  0, -1 after a message, or 1: one of the PEs has no memory. */
static int heap_grow(size_t bytes)
{
    const struct nccl_driver *driver = nccl_driver();
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = heap.device}};
    struct heap_offer own = {.pid = (int)getpid(), .fd = -1}, all[NVSHMEM_MOST];
    CUmemGenericAllocationHandle handle = 0;
    bytes = heap_round(bytes, heap.piece);
    if (heap.size + bytes <= heap.room && driver->cuMemCreate(&handle, bytes, &kind, 0) == CUDA_SUCCESS) {
        if (!heap_map(heap.base + heap.size, bytes, handle) ||
            heap.export(&own.fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS)
            own.fd = -1;
        driver->cuMemRelease(handle);
    }
    int rc = nvshmem_exchange(&own, sizeof own, all);
    for (int pe = 0; !rc && pe < nvshmem_job.pes; pe++)
        rc = all[pe].fd < 0 || (pe != nvshmem_job.pe && !heap_import(&all[pe], heap_of(pe) + heap.size, bytes));
    int done[NVSHMEM_MOST], mine = rc;
    if (rc >= 0 && nvshmem_exchange(&mine, sizeof mine, done)) /* then nobody needs the descriptor */
        rc = -1;
    for (int pe = 0; rc == 0 && pe < nvshmem_job.pes; pe++)
        rc = done[pe];
    if (own.fd >= 0)
        close(own.fd);
    if (rc) {
        if (rc > 0)
            fprintf(stderr, "gpuprof: sim: NVSHMEM: PE %d of %d: no memory for %zu bytes of symmetric heap\n",
                    nvshmem_job.pe, nvshmem_job.pes, bytes);
        for (int pe = 0; pe < nvshmem_job.pes; pe++) /* those that were mapped */
            driver->cuMemUnmap(heap_of(pe) + heap.size, bytes);
        return rc;
    }
    if (!heap_insert(heap.count, (struct heap_block){heap.size, bytes, false}))
        return -1;
    heap.size += bytes;
    if (heap.count > 1)
        heap_join(heap.count - 2);
    return 0;
}

static void *heap_allocate(size_t bytes, size_t align)
{
    size_t at = SIZE_MAX;
    pthread_mutex_lock(&heap.lock);
    if (nvshmem_job.room && bytes && bytes <= heap.room && align <= heap.room) {
        at = heap_take(bytes, align);
        if (at == SIZE_MAX && !heap.fixed && heap_grow(bytes + align) == 0)
            at = heap_take(bytes, align);
    }
    void *block = at == SIZE_MAX ? NULL : (void *)(uintptr_t)(heap.base + at);
    pthread_mutex_unlock(&heap.lock);
    return block;
}

int nvshmem_heap_begin(void)
{
    const struct nccl_driver *driver = nccl_driver();
    void *library = driver ? dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) : NULL;
    CUcontext context;
    if (!library)
        return -1;
    *(void **)&heap.export = dlsym(library, "cuMemExportToShareableHandle");
    *(void **)&heap.import = dlsym(library, "cuMemImportFromShareableHandle");
    *(void **)&heap.memset = dlsym(library, "cuMemsetD8_v2");
    if (driver->cuInit(0) != CUDA_SUCCESS || driver->cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context ||
        driver->cuCtxGetDevice(&heap.device) != CUDA_SUCCESS) {
        fprintf(stderr, "gpuprof: sim: NVSHMEM: no device is current\n");
        return -1;
    }
    size_t own = heap_own(), piece = heap_option("NVSHMEM_CUMEM_GRANULARITY", (size_t)512 << 20);
    heap.piece = 2u << 20;
    while (heap.piece < piece && heap.piece < (size_t)2 << 30)
        heap.piece *= 2;
    heap.fixed = heap_is("NVSHMEM_DISABLE_CUDA_VMM");
    size_t most = heap_option(heap.fixed ? "NVSHMEM_SYMMETRIC_SIZE" : "NVSHMEM_MAX_MEMORY_PER_GPU",
                              heap.fixed ? (size_t)1 << 30 : (size_t)256 << 30);
    heap.room = heap_round(heap.fixed ? most + own + (10u << 20) : most, heap.piece);
    heap.size = heap.count = 0;
    if (driver->cuMemAddressReserve(&heap.base, heap.room * (size_t)nvshmem_job.pes, 0, 0, 0) != CUDA_SUCCESS) {
        fprintf(stderr, "gpuprof: sim: NVSHMEM: no addresses for a symmetric heap of %zu bytes\n", heap.room);
        return -1;
    }
    sim_report(
        NVSHMEM_LIBRARY, "assumed",
        heap.fixed
            ? "the symmetric heap: %zu MiB from the start, without CUDA's virtual memory; %zu MiB are the library's"
            : "memory of NVSHMEM 3.4 with CUDA's virtual memory: pieces of %zu MiB of the symmetric heap when they "
              "are needed; %zu MiB are the library's",
        (heap.fixed ? heap.room : heap.piece) >> 20, own >> 20);
    if (heap.fixed && heap_grow(heap.room) != 0)
        return -1;
    return heap_allocate(own, 0) ? 0 : -1;
}

void nvshmem_heap_end(void)
{
    const struct nccl_driver *driver = nccl_driver();
    pthread_mutex_lock(&heap.lock);
    for (int pe = 0; heap.base && pe < nvshmem_job.pes && heap.size; pe++)
        driver->cuMemUnmap(heap_of(pe), heap.size);
    if (heap.base)
        driver->cuMemAddressFree(heap.base, heap.room * (size_t)nvshmem_job.pes);
    free(heap.blocks);
    heap.base = heap.size = heap.count = 0;
    heap.blocks = NULL;
    pthread_mutex_unlock(&heap.lock);
}

/* ---- for programs ------------------------------------------------------------------------------------------------ */

EXPORT void *nvshmem_malloc(size_t bytes);
EXPORT void *nvshmem_malloc(size_t bytes)
{
    return heap_allocate(bytes, 0);
}

EXPORT void *nvshmem_align(size_t align, size_t bytes);
EXPORT void *nvshmem_align(size_t align, size_t bytes)
{
    return align && (align & (align - 1)) == 0 ? heap_allocate(bytes, align) : NULL;
}

EXPORT void *nvshmem_calloc(size_t count, size_t bytes);
EXPORT void *nvshmem_calloc(size_t count, size_t bytes)
{
    size_t all;
    void *block = __builtin_mul_overflow(count, bytes, &all) ? NULL : heap_allocate(all, 0);
    if (block && heap.memset)
        heap.memset((CUdeviceptr)(uintptr_t)block, 0, all);
    return block;
}

EXPORT void nvshmem_free(void *block);
EXPORT void nvshmem_free(void *block)
{
    pthread_mutex_lock(&heap.lock);
    size_t at = (size_t)((CUdeviceptr)(uintptr_t)block - heap.base), i = 0;
    while (i < heap.count && (heap.blocks[i].at != at || !heap.blocks[i].used))
        i++;
    if (block && i < heap.count) {
        heap.blocks[i].used = false;
        heap_join(i);
        if (i)
            heap_join(i - 1);
    }
    pthread_mutex_unlock(&heap.lock);
}

/* Where the same block of another PE is; NULL unless the block is of the heap. */
EXPORT void *nvshmem_ptr(const void *block, int pe);
EXPORT void *nvshmem_ptr(const void *block, int pe)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)block - heap.base;
    return at < heap.size && pe >= 0 && pe < nvshmem_job.pes ? (void *)(uintptr_t)(heap_of(pe) + at) : NULL;
}

/* Memory of all PEs at one address needs NVLink SHARP, which the stand-in for NCCL lacks too. */
EXPORT void *nvshmemx_mc_ptr(int team, const void *block);
EXPORT void *nvshmemx_mc_ptr(int team, const void *block)
{
    (void)team;
    (void)block;
    return NULL;
}
