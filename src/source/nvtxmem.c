/* SPDX-License-Identifier: MIT
 *
 * nvtxmem.c: NVTX's extension for memory, by which sub-allocators describe their heaps and the
 * regions that they hand out of them. Each object that includes the header shows us its table of
 * function slots, through InitializeInjectionNvtxExtension. Numbers and layouts are those that the
 * header keeps for tools (module 1, compatibility 0x0102).
 *
 * The program's memory has no other description, so what does not look as specified is ignored and
 * counted: a heap is then the plain driver allocation that it is without a tool.
 */
#include "account/feed/feed.h"
#include "account/feed/heap.h"
#include "base/compiler.h"
#include "base/thread.h"
#include "source/source.h"
#include <errno.h>
#include <gpuprof/gpuprof.h>
#include <stddef.h>

#define MEM_MODULE 1u
#define MEM_COMPAT 0x0102u

#define MEM_USAGE_SUB_ALLOCATOR  1u
#define MEM_TYPE_VIRTUAL_ADDRESS 1u
enum { MEM_REF_POINTER = 1, MEM_REF_HANDLE };

/* A heap's handle is its address, as is a region's. The header answers this without a tool. */
#define MEM_NO_HEAP ((const void *)(intptr_t)-1)

struct mem_range {
    size_t bytes;
    const void *address;
};

struct mem_head {
    uint16_t compat, bytes;
};

struct mem_heap {
    struct mem_head head;
    uint32_t reserved, usage, type;
    size_t range_bytes;
    const struct mem_range *range;
    uint32_t category, message_type;
    const void *message;
};

struct mem_regions { /* to be registered */
    struct mem_head head;
    uint32_t type;
    const void *heap;
    size_t count, stride;
    const void *ranges; /* of struct mem_range, each stride bytes */
    const void **handles;
};

struct mem_list { /* to be resized (ranges), or to be unregistered (pointers or handles) */
    struct mem_head head;
    uint32_t type;
    size_t count, stride;
    const void *elements;
};
_Static_assert(sizeof(struct mem_range) == 16 && sizeof(struct mem_heap) == 48 && sizeof(struct mem_regions) == 48 &&
                   sizeof(struct mem_list) == 32,
               "NVTX");

/* argument: a struct that starts with a head. */
static bool mem_good(const void *argument, size_t bytes)
{
    const struct mem_head *head = argument;
    return head && head->compat == MEM_COMPAT && head->bytes >= bytes;
}

static bool mem_array(const void *elements, size_t count, size_t stride, size_t bytes)
{
    return elements && stride >= bytes && stride % sizeof(void *) == 0 && count <= PTRDIFF_MAX / stride;
}

static const void *mem_element(const void *elements, size_t index, size_t stride)
{
    return (const char *)elements + index * stride;
}

static uint64_t mem_address(const void *address)
{
    return (uint64_t)(uintptr_t)address;
}

/* ---- what NVTX calls --------------------------------------------------------------------------------------------- */

static const void *mem_heap_begin(const struct mem_heap *heap)
{
    if (!mem_good(heap, sizeof(*heap)) || !heap->range || heap->range_bytes < sizeof(*heap->range)) {
        gp_feed_lost(GP_LOST_ANNOTATION);
        return MEM_NO_HEAP;
    }
    /* Other uses and types are not about memory that is cut up. */
    if (heap->usage != MEM_USAGE_SUB_ALLOCATOR || heap->type != MEM_TYPE_VIRTUAL_ADDRESS)
        return MEM_NO_HEAP;
    const struct mem_range *range = heap->range;
    return gp_feed_heap_begin(mem_address(range->address), range->bytes) ? range->address : MEM_NO_HEAP;
}

static const void *mem_heap_register(const void *domain, const struct mem_heap *heap)
{
    int saved_errno = errno;
    (void)domain;
    if (!gp_nvtx_enter())
        return MEM_NO_HEAP;
    const void *handle = mem_heap_begin(heap);
    gp_thread_leave();
    errno = saved_errno;
    return handle;
}

static void mem_heap_unregister(const void *domain, const void *heap)
{
    int saved_errno = errno;
    (void)domain;
    if (!gp_nvtx_enter())
        return;
    gp_feed_heap_end(mem_address(heap));
    gp_thread_leave();
    errno = saved_errno;
}

static void mem_heap_reset(const void *domain, const void *heap)
{
    int saved_errno = errno;
    (void)domain;
    if (!gp_nvtx_enter())
        return;
    gp_feed_heap_reset(mem_address(heap));
    gp_thread_leave();
    errno = saved_errno;
}

static void mem_register(const struct mem_regions *regions)
{
    for (size_t i = 0; i < regions->count; i++) {
        const struct mem_range *range = mem_element(regions->ranges, i, regions->stride);
        if (regions->handles)
            regions->handles[i] = range->address;
        if (regions->heap != MEM_NO_HEAP)
            gp_feed_heap_block(mem_address(regions->heap), mem_address(range->address), range->bytes);
    }
}

static void mem_regions_register(const void *domain, const struct mem_regions *regions)
{
    int saved_errno = errno;
    (void)domain;
    if (!gp_nvtx_enter())
        return;
    if (!mem_good(regions, sizeof(*regions)) || regions->type != MEM_TYPE_VIRTUAL_ADDRESS ||
        !mem_array(regions->ranges, regions->count, regions->stride, sizeof(struct mem_range)))
        gp_feed_lost(GP_LOST_ANNOTATION);
    else
        mem_register(regions);
    gp_thread_leave();
    errno = saved_errno;
}

static void mem_regions_resize(const void *domain, const struct mem_list *list)
{
    int saved_errno = errno;
    (void)domain;
    if (!gp_nvtx_enter())
        return;
    bool good = mem_good(list, sizeof(*list)) && list->type == MEM_TYPE_VIRTUAL_ADDRESS &&
                mem_array(list->elements, list->count, list->stride, sizeof(struct mem_range));
    for (size_t i = 0; good && i < list->count; i++) {
        const struct mem_range *range = mem_element(list->elements, i, list->stride);
        gp_feed_heap_resize(mem_address(range->address), range->bytes);
    }
    if (!good)
        gp_feed_lost(GP_LOST_ANNOTATION);
    gp_thread_leave();
    errno = saved_errno;
}

static void mem_regions_unregister(const void *domain, const struct mem_list *list)
{
    int saved_errno = errno;
    (void)domain;
    if (!gp_nvtx_enter())
        return;
    bool good = mem_good(list, sizeof(*list)) && (list->type == MEM_REF_POINTER || list->type == MEM_REF_HANDLE) &&
                mem_array(list->elements, list->count, list->stride, sizeof(void *));
    for (size_t i = 0; good && i < list->count; i++)
        gp_feed_heap_unblock(mem_address(*(void *const *)mem_element(list->elements, i, list->stride)));
    if (!good)
        gp_feed_lost(GP_LOST_ANNOTATION);
    gp_thread_leave();
    errno = saved_errno;
}

/* ---- door -------------------------------------------------------------------------------------------------------- */

struct mem_segment {
    size_t id, count;
    intptr_t *slots;
};

struct mem_module {
    uint16_t version, bytes, module, compat;
    size_t count;
    struct mem_segment *segments;
    /* Later versions have more. */
};

/* The slots of names of regions (7) and of permissions (8 and more) stay empty: NVTX skips them. */
static void *const mem_functions[] = {
    [1] = (void *)mem_heap_register,    [2] = (void *)mem_heap_unregister, [3] = (void *)mem_heap_reset,
    [4] = (void *)mem_regions_register, [5] = (void *)mem_regions_resize,  [6] = (void *)mem_regions_unregister,
};

/* The header has one segment of slots, with number 0, and a slot for each function's number. */
GP_EXPORT int InitializeInjectionNvtxExtension(void *argument)
{
    const struct mem_module *module = argument;
    if (!module || module->bytes < sizeof(*module) || module->module != MEM_MODULE || module->compat != MEM_COMPAT ||
        module->count == 0 || !module->segments)
        return 0; /* the module's functions do nothing */
    const struct mem_segment *segment = module->segments;
    if (segment->id != 0 || !segment->slots)
        return 0;
    for (size_t i = 1; i < GP_COUNT(mem_functions) && i < segment->count; i++)
        segment->slots[i] = (intptr_t)mem_functions[i];
    return 1;
}
