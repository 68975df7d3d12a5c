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
 * PyTorch's function may throw; nothing is held here when it is called. The allocators that do not
 * call it (backend:cudaMallocAsync, pluggable ones, PYTORCH_NO_CUDA_MEMORY_CACHING) take each block
 * from the driver, where it is seen.
 */
#include "account/feed.h"
#include "account/framework/framework.h"
#include "account/framework/internal.h"
#include "base/compiler.h"
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
    TORCH_IMPORTS
};
#define TORCH_IMPORT(_name, _function)                                                                                 \
    {                                                                                                                  \
        .name = "_ZN3c10" _name, .replacement = (void *)(_function), .definer = "libc10.so", .importer = "libc10_cuda" \
    }
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
    if (look->seen)
        gp_feed_framework_start("pytorch");
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
    gp_lock_give(&lock);
}

void gp_framework_stop(void)
{
    gp_loader_with(torch_restore, NULL);
    gp_doors_restore();
}
