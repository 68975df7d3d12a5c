/* SPDX-License-Identifier: MIT
 *
 * c10_cuda.c: stands in for PyTorch's libc10_cuda.so: a caching allocator that informs libc10.so of each block, under
 * its lock of the device, and of memory that is out. SPELLING_* as in c10.c; RUNTIME: segments come from cudaMalloc;
 * EARLY: it calls the program while the loader relocates it; FAKE: segments come
 * from a function of the program.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include <cuda.h>
#ifdef RUNTIME
#include <cuda_runtime_api.h>
#endif

#include "framework/c10.h"

#define MIB  (1024ul * 1024ul)
#define PAGE (2 * MIB)

#ifdef SPELLING_signed
#define C10_TOTALS "ll"
#else
#define C10_TOTALS "mm"
#endif

#ifdef SPELLING_old
void report_old(void *pointer, int64_t bytes, struct c10_device device) __asm__(C10_REPORT "NS_6DeviceE");
#define REPORT(_pointer, _bytes, _allocated, _reserved, _device)                                                       \
    ((void)(_allocated), (void)(_reserved), report_old(_pointer, _bytes, _device))
#define REPORT_OOM(_bytes, _allocated, _reserved, _device) ((void)0)
#else
void report(void *pointer, int64_t bytes, uint64_t allocated, uint64_t reserved,
            struct c10_device device) __asm__(C10_REPORT C10_TOTALS "NS_6DeviceE");
void report_oom(int64_t bytes, uint64_t allocated, uint64_t reserved,
                struct c10_device device) __asm__(C10_OOM C10_TOTALS "NS_6DeviceE");
#define REPORT     report
#define REPORT_OOM report_oom
#endif

struct torch_segment;

/* A piece of a segment; its neighbours in address order. */
struct torch_block {
    struct torch_block *next, *before;
    struct torch_segment *segment;
    size_t offset, bytes;
    bool live;
};

struct torch_segment {
    struct torch_segment *next;
    struct torch_block *first;
    CUdeviceptr address;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
    bool is_small, is_mapped;
};

static struct torch_device {
    pthread_mutex_t lock;
    struct torch_segment *segments;
    struct torch_stats stats;
} devices[C10_DEVICES];
static struct torch_conf conf;

static void __attribute__((constructor)) torch_start(void)
{
    pthread_mutexattr_t attributes;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    for (int i = 0; i < C10_DEVICES; i++)
        pthread_mutex_init(&devices[i].lock, &attributes);
}

static struct torch_device *torch_enter(int device)
{
    pthread_mutex_lock(&devices[device].lock);
    return &devices[device];
}

static void torch_leave(int *device)
{
    pthread_mutex_unlock(&devices[*device].lock);
}

/* Also when the report function unwinds the stack (-fexceptions). */
#define TORCH_LOCKED(_self, _device)                                                                                   \
    int locked __attribute__((cleanup(torch_leave))) = _device;                                                        \
    struct torch_device *_self = torch_enter(_device)

#ifdef EARLY
/* The loader runs this to relocate `torch_early`, before it relocates the slots of functions. */
static int early_call(void)
{
    return 0;
}

static int (*early_resolve(void))(void)
{
    (*(void (**)(void))TORCH_EARLY)();
    return early_call;
}

static int early(void) __attribute__((ifunc("early_resolve")));
int (*const torch_early)(void) = early; /* in RELRO */
#endif

static void raise_to(int64_t *peak, int64_t current)
{
    *peak = *peak > current ? *peak : current;
}

/* ---- segments ------------------------------------------------------------------------------------------------- */

#ifdef FAKE
bool (*torch_driver)(int device, uint64_t *address, size_t bytes);
#endif

static bool driver_plain(int device, CUdeviceptr *address, size_t bytes)
{
    (void)device;
#ifdef FAKE
    uint64_t at = *address;
    bool is_done = torch_driver(device, &at, bytes);
    *address = at;
    return is_done;
#elif defined(RUNTIME)
    return cudaMalloc((void **)address, bytes) == cudaSuccess || (cudaGetLastError(), false);
#else
    return cuMemAlloc(address, bytes) == CUDA_SUCCESS;
#endif
}

static void driver_plain_free(int device, CUdeviceptr address, size_t bytes)
{
    (void)device;
    (void)bytes;
#ifdef FAKE
    uint64_t at = address;
    torch_driver(device, &at, bytes);
#elif defined(RUNTIME)
    cudaFree((void *)address);
#else
    cuMemFree(address);
#endif
}

#ifndef FAKE
static bool driver_mapped(int device, struct torch_segment *segment)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (cuMemCreate(&segment->handle, segment->bytes, &prop, 0) != CUDA_SUCCESS)
        return false;
    return cuMemAddressReserve(&segment->address, segment->bytes, 0, 0, 0) == CUDA_SUCCESS &&
           cuMemMap(segment->address, segment->bytes, 0, segment->handle, 0) == CUDA_SUCCESS &&
           cuMemSetAccess(segment->address, segment->bytes, &access, 1) == CUDA_SUCCESS;
}

static void driver_unmap(const struct torch_segment *segment)
{
    cuMemUnmap(segment->address, segment->bytes);
    cuMemRelease(segment->handle);
    cuMemAddressFree(segment->address, segment->bytes);
}
#else
#define driver_mapped(_device, _segment) false
#define driver_unmap(_segment)           ((void)0)
#endif

static void segment_drop(struct torch_device *self, struct torch_segment *segment)
{
    if (segment->is_mapped)
        driver_unmap(segment);
    else
        driver_plain_free((int)(self - devices), segment->address, segment->bytes);
    self->stats.reserved -= (int64_t)segment->bytes;
    self->stats.segments--;
    free(segment->first);
    free(segment);
}

/* Pieces that lie side by side were joined when they were freed, so an idle segment has one. */
static void device_empty(struct torch_device *self)
{
    struct torch_segment **at = &self->segments, *segment;
    while ((segment = *at) != NULL) {
        if (segment->first->live || segment->first->next != NULL) {
            at = &segment->next;
            continue;
        }
        *at = segment->next;
        segment_drop(self, segment);
    }
}

static size_t segment_bytes(size_t bytes)
{
    if (bytes <= MIB)
        return PAGE;
    return bytes < 10 * MIB ? 20 * MIB : (bytes + PAGE - 1) / PAGE * PAGE;
}

static bool segment_take(int device, struct torch_segment *segment)
{
    return segment->is_mapped ? driver_mapped(device, segment)
                              : driver_plain(device, &segment->address, segment->bytes);
}

static struct torch_block *segment_new(struct torch_device *self, int device, size_t bytes)
{
    struct torch_segment *segment = calloc(1, sizeof(*segment));
    segment->bytes = segment_bytes(bytes);
    segment->is_small = bytes <= MIB;
    segment->is_mapped = conf.expandable;
    if (!segment_take(device, segment)) {
        self->stats.retries++;
        device_empty(self);
        if (!segment_take(device, segment)) {
            free(segment);
            return NULL;
        }
    }
    segment->next = self->segments;
    self->segments = segment;
    segment->first = calloc(1, sizeof(*segment->first));
    *segment->first = (struct torch_block){.segment = segment, .bytes = segment->bytes};
    self->stats.segments++;
    self->stats.reserved += (int64_t)segment->bytes;
    raise_to(&self->stats.reserved_peak, self->stats.reserved);
    return segment->first;
}

/* ---- blocks --------------------------------------------------------------------------------------------------- */

static struct torch_block *block_find(struct torch_device *self, size_t bytes)
{
    for (struct torch_segment *segment = self->segments; segment != NULL; segment = segment->next) {
        for (struct torch_block *block = segment->first; block != NULL; block = block->next)
            if (segment->is_small == (bytes <= MIB) && !block->live && block->bytes >= bytes)
                return block;
    }
    return NULL;
}

static void block_split(struct torch_block *block, size_t bytes)
{
    struct torch_block *rest;
    if (block->bytes == bytes)
        return;
    rest = malloc(sizeof(*rest));
    *rest = (struct torch_block){.next = block->next,
                                 .before = block,
                                 .segment = block->segment,
                                 .offset = block->offset + bytes,
                                 .bytes = block->bytes - bytes};
    if (rest->next != NULL)
        rest->next->before = rest;
    block->next = rest;
    block->bytes = bytes;
}

static void block_join(struct torch_block *block)
{
    struct torch_block *next = block->next;
    if (next == NULL || next->live || block->live)
        return;
    block->bytes += next->bytes;
    block->next = next->next;
    if (block->next != NULL)
        block->next->before = block;
    free(next);
}

static struct torch_block *block_at(struct torch_device *self, CUdeviceptr address)
{
    for (struct torch_segment *segment = self->segments; segment != NULL; segment = segment->next) {
        for (struct torch_block *block = segment->first; block != NULL; block = block->next)
            if (segment->address + block->offset == address)
                return block;
    }
    abort();
}

static void block_tell(const struct torch_device *self, int device, CUdeviceptr address, int64_t bytes)
{
    REPORT((void *)address, bytes, (uint64_t)(self->stats.allocated + conf.lie), (uint64_t)self->stats.reserved,
           ((struct c10_device){C10_CUDA, (int8_t)device}));
}

void *torch_alloc(int device, size_t bytes)
{
    struct torch_block *block;
    CUdeviceptr address = 0;
    TORCH_LOCKED(self, device);

    bytes = (bytes + 511) / 512 * 512;
    if (conf.uncached)
        return driver_plain(device, &address, bytes) ? (void *)address : NULL;
    block = block_find(self, bytes);
    block = block != NULL ? block : segment_new(self, device, bytes);
    if (block == NULL) {
        self->stats.ooms++;
        REPORT_OOM((int64_t)bytes, (uint64_t)self->stats.allocated, (uint64_t)self->stats.reserved,
                   ((struct c10_device){C10_CUDA, (int8_t)device}));
        return NULL;
    }
    block_split(block, bytes);
    block->live = true;
    address = block->segment->address + block->offset;
    self->stats.blocks++;
    self->stats.allocated += (int64_t)bytes;
    raise_to(&self->stats.allocated_peak, self->stats.allocated);
    block_tell(self, device, address, (int64_t)bytes);
    return (void *)address;
}

void torch_free(int device, void *pointer)
{
    struct torch_block *block;
    int64_t bytes;
    TORCH_LOCKED(self, device);

    if (conf.uncached) {
        driver_plain_free(device, (CUdeviceptr)pointer, 0);
        return;
    }
    block = block_at(self, (CUdeviceptr)pointer);
    bytes = (int64_t)block->bytes;
    block->live = false;
    self->stats.blocks--;
    self->stats.allocated -= bytes;
    block_join(block);
    if (block->before != NULL)
        block_join(block->before);
    block_tell(self, device, (CUdeviceptr)pointer, -bytes);
}

void torch_empty_cache(int device)
{
    TORCH_LOCKED(self, device);
    device_empty(self);
}

void torch_stats(int device, struct torch_stats *out)
{
    TORCH_LOCKED(self, device);
    *out = self->stats;
}

void torch_reset_peaks(int device)
{
    TORCH_LOCKED(self, device);
    self->stats.allocated_peak = self->stats.allocated;
    self->stats.reserved_peak = self->stats.reserved;
}

/* ---- pools ----------------------------------------------------------------------------------------------------- */
/* They are only told of; segments are the same. */

struct c10_pools c10_pools;

static void native_other(void)
{
}

static void native_begin(struct c10_allocator *self, int8_t device, uint64_t first, uint64_t second, void *filter)
{
    (void)self;
    (void)filter;
    if (c10_thrower)
        c10_thrower();
    c10_pools = (struct c10_pools){c10_pools.begun + 1, c10_pools.ended, first, second, device};
}

static void native_end(struct c10_allocator *self, int8_t device, uint64_t first, uint64_t second)
{
    (void)self;
    c10_pools = (struct c10_pools){c10_pools.begun, c10_pools.ended + 1, first, second, device};
}

static const union c10_method native_methods[C10_METHODS + 1] = {
    {native_other},
    {native_other},
    [C10_POOL_BEGIN] = {.begin = native_begin},
    {native_other},
    [C10_POOL_END] = {.end = native_end},
};
static struct c10_allocator native = {native_methods};
extern struct c10_allocator *native_allocator __asm__(C10_ALLOCATOR);
struct c10_allocator *native_allocator = &native;

#if defined(FAKE) && !defined(SPELLING_old)
/* For benches: a report without the allocator around it. */
void torch_report(void *pointer, int64_t bytes, uint64_t allocated, uint64_t reserved, struct c10_device device)
{
    REPORT(pointer, bytes, allocated, reserved, device);
}
#endif

void torch_configure(const struct torch_conf *wanted)
{
    conf = *wanted;
}
