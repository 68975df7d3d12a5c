/* SPDX-License-Identifier: MIT
 *
 * torch.c: PyTorch's caching allocator. For every block that it hands out or takes back,
 * libc10_cuda.so calls an exported function of libc10.so that informs PyTorch's profiler, whether
 * or not one is active, with its lock of the device held. The calls are led through the functions
 * here, which report the block to the accounts and go on to PyTorch's function.
 *
 * Why no block is missed: before the first block of a device, PyTorch takes a segment from the
 * driver on the same thread, and in that driver call the slots are replaced if its libraries are
 * new. Blocks that were there before are in the totals that come with each call.
 *
 * Which thread's requests are a MemPool's or a graph's, PyTorch tells its allocator by two virtual
 * functions, which are replaced in its table.
 *
 * PyTorch's function may throw; nothing is held here when it is called. The allocators that do not
 * call it (backend:cudaMallocAsync, pluggable ones, PYTORCH_NO_CUDA_MEMORY_CACHING) take each block
 * from the driver, where it is seen.
 */
#include "account/feed/framework.h"
#include "account/framework/framework.h"
#include "account/framework/internal.h"
#include "base/compiler.h"
#include "base/image.h"
#include "base/kept.h"
#include "base/loader.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/thread.h"
#include "stack/stack.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* c10::Device: two bytes by value, in the low half of an integer register. */
struct torch_device {
    int8_t type, index;
};
#define TORCH_CUDA 1 /* c10::DeviceType::CUDA */

typedef void report_fn(void *pointer, int64_t bytes, uint64_t allocated, uint64_t reserved, struct torch_device device);
typedef void old_report_fn(void *pointer, int64_t bytes, struct torch_device device);
typedef void oom_fn(int64_t bytes, uint64_t allocated, uint64_t reserved, struct torch_device device);

static report_fn report;
static old_report_fn old_report;
static oom_fn out_of_memory;

/* Names by version: unsigned totals since 2.x, signed since 1.10 (the same registers), none since 1.6. */
enum {
    TORCH_REPORT,
    TORCH_REPORT_SIGNED,
    TORCH_REPORT_OLD,
    TORCH_OOM,
    TORCH_OOM_SIGNED,
    TORCH_POOLS,
    TORCH_GRAPH_POOLS,
    TORCH_POOLS_ATEN,
    TORCH_GRAPH_POOLS_ATEN,
    TORCH_ALLOCATOR,
    TORCH_TABLE,
    TORCH_POOL_BEGIN,
    TORCH_POOL_END,
    TORCH_IMPORTS
};
#define TORCH_IMPORT(_name, _function)                                                                                 \
    {                                                                                                                  \
        .name = "_ZN3c10" _name, .replacement = (void *)(_function), .definer = "libc10.so", .importer = "libc10_cuda" \
    }
#define TORCH_PLUGGABLE "N5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator"
static struct gp_slot_import imports[TORCH_IMPORTS] = {
    [TORCH_REPORT] = TORCH_IMPORT("27reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", report),
    [TORCH_REPORT_SIGNED] = TORCH_IMPORT("27reportMemoryUsageToProfilerEPvlllNS_6DeviceE", report),
    [TORCH_REPORT_OLD] = TORCH_IMPORT("27reportMemoryUsageToProfilerEPvlNS_6DeviceE", old_report),
    [TORCH_OOM] = TORCH_IMPORT("27reportOutOfMemoryToProfilerElmmNS_6DeviceE", out_of_memory),
    [TORCH_OOM_SIGNED] = TORCH_IMPORT("27reportOutOfMemoryToProfilerElllNS_6DeviceE", out_of_memory),
    /* Since 2.5, and elsewhere since 2.10: numbers of the next MemPool and of the next graph's
     * pool, each from 1. They are only looked up. */
    [TORCH_POOLS] = {.name = "_ZN3c104cuda7MemPool4uid_E", .definer = "libc10_cuda", .importer = "(none)"},
    [TORCH_GRAPH_POOLS] = {.name = "_ZN3c104cuda7MemPool5uuid_E", .definer = "libc10_cuda", .importer = "(none)"},
    [TORCH_POOLS_ATEN] = {.name = "_ZN2at4cuda7MemPool4uid_E", .definer = "libtorch_cuda", .importer = "(none)"},
    [TORCH_GRAPH_POOLS_ATEN] = {.name = "_ZN2at4cuda7MemPool5uuid_E", .definer = "libtorch_cuda", .importer = "(none)"},
    /* Only looked up, too: the allocator in force; and, of the pluggable one, its table and two of its functions. */
    [TORCH_ALLOCATOR] = {.name = "_ZN3c104cuda20CUDACachingAllocator9allocatorE",
                         .definer = "libc10_cuda",
                         .importer = "(none)"},
    [TORCH_TABLE] = {.name = "_ZTV" TORCH_PLUGGABLE "E", .definer = "libtorch_cuda", .importer = "(none)"},
    [TORCH_POOL_BEGIN] = {.name =
                              "_Z" TORCH_PLUGGABLE "19beginAllocateToPoolEaSt4pairIyyESt8functionIFbP11CUstream_stEE",
                          .definer = "libtorch_cuda",
                          .importer = "(none)"},
    [TORCH_POOL_END] = {.name = "_Z" TORCH_PLUGGABLE "17endAllocateToPoolEaSt4pairIyyE",
                        .definer = "libtorch_cuda",
                        .importer = "(none)"},
};

/* A thread that has just left `torch_block` goes on to the original. */
GP_KEEP(imports);

static struct gp_lock lock = GP_LOCK_INIT(GP_RANK_FRAMEWORK);
static uint8_t owner; /* PyTorch's row; set before the first slot is replaced */

/* One of two imports exists in a version. */
static void *original(unsigned one, unsigned other)
{
    void *found = __atomic_load_n(&imports[one].x_original, __ATOMIC_RELAXED);
    return found ? found : __atomic_load_n(&imports[other].x_original, __ATOMIC_RELAXED);
}

static void torch_block(void *pointer, int64_t bytes, int64_t allocated, int64_t reserved, struct torch_device device)
{
    int saved_errno = errno;
    if (device.type != TORCH_CUDA || !gp_thread_enter())
        return;
    const struct gp_framework_event event = {
        .device = device.index,
        .address = (uint64_t)(uintptr_t)pointer,
        .bytes = bytes,
        .allocated_bytes = allocated,
        .reserved_bytes = reserved,
    };
    gp_feed_framework_block(&event, owner);
    gp_thread_leave();
    errno = saved_errno;
}

static void report(void *pointer, int64_t bytes, uint64_t allocated, uint64_t reserved, struct torch_device device)
{
    torch_block(pointer, bytes, (int64_t)allocated, (int64_t)reserved, device);
    ((report_fn *)original(TORCH_REPORT, TORCH_REPORT_SIGNED))(pointer, bytes, allocated, reserved, device);
}

static void old_report(void *pointer, int64_t bytes, struct torch_device device)
{
    torch_block(pointer, bytes, -1, -1, device);
    ((old_report_fn *)imports[TORCH_REPORT_OLD].x_original)(pointer, bytes, device);
}

static void out_of_memory(int64_t bytes, uint64_t allocated, uint64_t reserved, struct torch_device device)
{
    int saved_errno = errno;
    if (device.type == TORCH_CUDA && gp_thread_enter()) {
        gp_feed_framework_oom("PyTorch's allocator", device.index, (uint64_t)bytes);
        gp_thread_leave();
        errno = saved_errno;
    }
    ((oom_fn *)original(TORCH_OOM, TORCH_OOM_SIGNED))(bytes, allocated, reserved, device);
}

/* ---- private pools ------------------------------------------------------------------------------------------------ */
/* PyTorch's allocator and the pluggable one have a base class in common, so a function has the same place in the tables of
 * both: behind two words that are no functions. Only the pluggable one's functions have names, which say their parameters. */

typedef void pool_begin_fn(void *allocator, int8_t device, uint64_t first, uint64_t second, const uint64_t *filter);
typedef void pool_end_fn(void *allocator, int8_t device, uint64_t first, uint64_t second);
static pool_begin_fn pool_begin;
static pool_end_fn pool_end;

static struct torch_method {
    unsigned named; /* of imports */
    void *replacement;
    uint64_t x_original;
    uint64_t *slot; /* NULL: not replaced */
} methods[] = {{.named = TORCH_POOL_BEGIN, .replacement = (void *)pool_begin},
               {.named = TORCH_POOL_END, .replacement = (void *)pool_end}};

GP_KEEP(methods);

/* Where the code of libtorch_python is. */
static uint64_t x_python_low, x_python_high;

static void torch_pool(int8_t device, uint64_t first, uint64_t second, enum gp_pool_use use)
{
    int saved_errno = errno;
    if (!gp_thread_enter())
        return;
    gp_feed_framework_pool(device, first, second, use);
    gp_thread_leave();
    errno = saved_errno;
}

/* The filter, a std::function, says what goes to the pool. It is not called, but those of a MemPool, which ask for this
 * thread, are libtorch_python's; those of a graph, which ask for what is captured, are not. Afterwards: PyTorch's function
 * throws if the pool is in use. */
static void pool_begin(void *allocator, int8_t device, uint64_t first, uint64_t second, const uint64_t *filter)
{
    uint64_t low = __atomic_load_n(&x_python_low, __ATOMIC_RELAXED);
    bool is_thread = filter[3] - low < __atomic_load_n(&x_python_high, __ATOMIC_RELAXED) - low; /* its code */
    ((pool_begin_fn *)(uintptr_t)__atomic_load_n(&methods[0].x_original, __ATOMIC_RELAXED))(allocator, device, first,
                                                                                            second, filter);
    torch_pool(device, first, second, is_thread ? GP_POOL_OF_THREAD : GP_POOL_OF_CAPTURE);
}

static void pool_end(void *allocator, int8_t device, uint64_t first, uint64_t second)
{
    torch_pool(device, first, second, GP_POOL_UNUSED);
    ((pool_end_fn *)(uintptr_t)__atomic_load_n(&methods[1].x_original, __ATOMIC_RELAXED))(allocator, device, first,
                                                                                          second);
}

struct torch_where {
    const uint64_t *slot;
    bool is_inside;
};

static int torch_inside(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct torch_where *where = arg;
    struct gp_image image;
    (void)size;
    if (!gp_image_read(&image, info))
        return 0;
    if (gp_image_is(&image, "libtorch_python")) {
        __atomic_store_n(&x_python_low, image.low, __ATOMIC_RELAXED);
        __atomic_store_n(&x_python_high, image.high, __ATOMIC_RELAXED);
    }
    where->is_inside |=
        gp_image_is(&image, "libc10_cuda") && (uint64_t)(uintptr_t)where->slot - image.low < image.high - image.low;
    return 0;
}

/* In the table of an allocator in libc10_cuda, which is still loaded. */
static bool torch_slot(const uint64_t *slot)
{
    struct torch_where where = {.slot = slot};
    return slot && gp_loader_look(torch_inside, &where) && where.is_inside;
}

/* Where the allocator has the function that has that name in the pluggable one; NULL: not known. */
static uint64_t *torch_method_slot(const struct torch_method *method)
{
    uint64_t **const *allocator = imports[TORCH_ALLOCATOR].x_original, **object = NULL;
    const uint64_t *table = imports[TORCH_TABLE].x_original, *at = table ? table + 2 : NULL;
    uint64_t function = (uint64_t)(uintptr_t)imports[method->named].x_original;
    while (function && at && *at && *at != function) /* 0: behind its end, or the loader has not written it yet */
        at++;
    if (allocator)
        object = __atomic_load_n(allocator, __ATOMIC_RELAXED);
    return function && at && *at && object ? *object + (at - (table + 2)) : NULL;
}

/* Inside gp_loader_with. */
static void torch_methods(void)
{
    uint64_t *slots[2] = {torch_method_slot(&methods[0]), torch_method_slot(&methods[1])};
    bool is_new = false;
    if (!slots[0] || !slots[1] || !torch_slot(slots[0]) || !torch_slot(slots[1]))
        return;
    for (unsigned i = 2; i-- > 0;) { /* the end first: no pool stays begun */
        if (*slots[i] == (uint64_t)(uintptr_t)methods[i].replacement)
            continue;
        __atomic_store_n(&methods[i].x_original, *slots[i], __ATOMIC_RELAXED);
        if (!gp_slot_put(slots[i], methods[i].replacement))
            return;
        methods[i].slot = slots[i];
        is_new = true;
    }
    if (is_new)
        gp_feed_framework_tells_pools(true);
}

static void torch_methods_restore(void)
{
    for (unsigned i = 0; i < 2; i++) {
        uint64_t *slot = methods[i].slot;
        if (torch_slot(slot) && *slot == (uint64_t)(uintptr_t)methods[i].replacement)
            gp_slot_put(slot, (void *)(uintptr_t)methods[i].x_original);
        methods[i].slot = NULL;
    }
    gp_feed_framework_tells_pools(false);
}

/* ---- looking ------------------------------------------------------------------------------------------------------- */

/* PyTorch looks once, at its first allocation, and then reports no block. */
static bool torch_uncached(void)
{
    return getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") != NULL;
}

static uint64_t torch_pools(void)
{
    bool aten = __atomic_load_n(&imports[TORCH_POOLS_ATEN].x_original, __ATOMIC_RELAXED) != NULL;
    const uint64_t *one = __atomic_load_n(&imports[aten ? TORCH_POOLS_ATEN : TORCH_POOLS].x_original, __ATOMIC_RELAXED);
    const uint64_t *other =
        __atomic_load_n(&imports[aten ? TORCH_GRAPH_POOLS_ATEN : TORCH_GRAPH_POOLS].x_original, __ATOMIC_RELAXED);
    /* Not known if the library is gone. */
    return one && other ? __atomic_load_n(one, __ATOMIC_RELAXED) - 1 + __atomic_load_n(other, __ATOMIC_RELAXED) - 1 : 1;
}

/* PyTorch reads the variable when its library is loaded; the newer name counts if the older one is not set. */
static void torch_conf(void)
{
    const char *text = getenv("PYTORCH_CUDA_ALLOC_CONF");
    struct gp_framework_conf conf = {.pools = torch_pools};
    text = text ? text : getenv("PYTORCH_ALLOC_CONF");
    strncpy(conf.text, text ? text : "", sizeof(conf.text) - 1);
    gp_feed_framework_conf(&conf);
}

struct torch_look {
    struct gp_slot_caller caller;
    uint32_t slots, refused, early;
    bool seen, first; /* its blocks are counted; nothing was said yet */
};

/* Inside gp_loader_with, where a lock of ours may be held over walks of the loader's list. */
static void torch_replace(void *arg)
{
    static bool told;
    struct torch_look *look = arg;
    gp_lock_take(&lock);
    if (!owner)
        owner = gp_owner_named("pytorch", "libc10_cuda.so");
    gp_slots_replace(imports, TORCH_IMPORTS, &look->caller);
    for (unsigned i = 0; i < TORCH_IMPORTS; i++) {
        look->slots += i <= TORCH_REPORT_OLD ? imports[i].slots : 0;
        look->refused += imports[i].refused;
        look->early += imports[i].early;
    }
    look->seen = look->slots && !look->refused && !torch_uncached();
    if (look->seen && !told)
        torch_conf();
    if (look->seen) {
        gp_feed_framework_start("pytorch");
        torch_methods();
    }
    gp_owner_segments_of(look->seen ? "libc10_cuda" : NULL);
    look->first = look->slots && !told;
    told |= look->first;
    gp_lock_give(&lock);
}

/* False: slots must be looked at again at the next allocation. */
static bool torch_find(const uint64_t *pcs, unsigned count)
{
    struct torch_look look = {.caller = {pcs, count}};
    if (!gp_loader_with(torch_replace, &look))
        return false;
    if (look.first)
        gp_log(look.seen ? GP_LOG_INFO : GP_LOG_WARN, "PyTorch's allocator: %s",
               look.seen      ? "its blocks are counted"
               : look.refused ? "its calls cannot be changed: only its segments are counted"
                              : "PYTORCH_NO_CUDA_MEMORY_CACHING is set: it has no blocks of its own");
    return gp_doors_find(pcs, count) && !look.early;
}

void gp_framework_start(void)
{
    gp_owner_on_change(torch_find);
    torch_find(NULL, 0);
}

static void torch_restore(void *arg)
{
    (void)arg;
    gp_lock_take(&lock);
    gp_slots_restore(imports, TORCH_IMPORTS);
    torch_methods_restore();
    gp_lock_give(&lock);
}

void gp_framework_stop(void)
{
    gp_loader_with(torch_restore, NULL);
    gp_doors_restore();
}
