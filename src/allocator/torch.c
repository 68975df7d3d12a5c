/* SPDX-License-Identifier: MIT
 *
 * torch.c: the functions that PyTorch's CUDAPluggableAllocator calls; see torch.def.  From Python:
 *
 *      a = torch.cuda.memory.CUDAPluggableAllocator("libgpuprof.so", "gpuprof_torch_alloc", "gpuprof_torch_free")
 *
 * PyTorch does not check for NULL, so a failed allocation raises torch.OutOfMemoryError
 *; our report is in the session.  Below PyTorch's own allocator (a torch.cuda.MemPool)
 * it returns NULL, which that allocator does check: it empties its cache, tries again and raises the
 * error itself.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dl_iterate_phdr */
#endif
#include "allocator/torch.h"
#include "allocator/async.h"
#include "allocator/driver.h"
#include "allocator/internal.h"
#include "allocator/route.h"
#include "allocator/served.h"
#include "allocator/stream.h"
#include "base/compiler.h"
#include "base/loader.h"
#include "base/log.h"
#include "cache/cache.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* ==== the PyTorch that called ===================================================================================== */
/* PyTorch passes on whatever pointer a pluggable allocator returns; it expects a C++ exception on
 * failure.  This library links no C++, so the functions are looked up in the process when they are
 * needed.  c10::Error's constructor is exported.  Its subclass OutOfMemoryError adds no member: the
 * object becomes one when its first word points to the subclass's table of virtual functions. */

/* ---- objects ----------------------------------------------------------------------------------------------------- */

#define GP_TORCH_PATH 1024

struct gp_torch_search { /* by the beginning of the file's name, or by an address in it */
    const char *name;
    const void *address;
    char path[GP_TORCH_PATH];
};

static const char *torch_file(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool torch_contains(const struct dl_phdr_info *info, const void *address)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (uintptr_t)address - (info->dlpi_addr + part->p_vaddr) < part->p_memsz)
            return true;
    }
    return false;
}

static int torch_look(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct gp_torch_search *search = arg;
    (void)size;
    bool found = search->name ? strncmp(torch_file(info->dlpi_name), search->name, strlen(search->name)) == 0
                              : torch_contains(info, search->address);
    if (found)
        snprintf(search->path, sizeof(search->path), "%s", info->dlpi_name);
    return found;
}

/* Whether the address lies in a library whose file name begins so. */
static bool torch_lies_in(const void *address, const char *name)
{
    struct gp_torch_search search = {.address = address};
    return gp_loader_look(torch_look, &search) && strncmp(torch_file(search.path), name, strlen(name)) == 0;
}

/* A handle of a loaded library whose file name begins so, or NULL.  Python loads PyTorch's
 * libraries privately, so only a handle finds their symbols. */
static void *torch_open(const char *name)
{
    struct gp_torch_search search = {.name = name};
    if (!gp_loader_look(torch_look, &search) || !search.path[0])
        return NULL;
    return GP_LOADER(dlopen(search.path, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD));
}

/* ---- role -------------------------------------------------------------------------------------------------------- */

/* The program may load PyTorch after the first calls; one that has none by then gets none. */
#define GP_TORCH_TRIES 64

static uint32_t x_role;  /* does not change once it is not GP_TORCH_ALONE */
static uint32_t x_tries; /* searches that found no PyTorch */

/* PyTorch refuses to replace an allocator that has served a request, so the answer holds for good. */
static uint32_t torch_find_role(void)
{
    uint32_t role = GP_TORCH_ALONE;
    static const char name[] = "_ZN3c104cuda20CUDACachingAllocator9allocatorE";
    void *c10 = torch_open("libc10_cuda.so");
    /* A program in C++ may have the variable's only copy in use (a copy relocation), so that one is looked up first. */
    void *const *const *current = c10 ? GP_LOADER(dlsym(RTLD_DEFAULT, name)) : NULL;
    if (c10 && !current)
        current = GP_LOADER(dlsym(c10, name));
    /* std::atomic<CUDAAllocator *>; the first word of the object is its class's table. */
    void *const *allocator = current ? __atomic_load_n(current, __ATOMIC_RELAXED) : NULL;
    if (allocator)
        role = torch_lies_in(*allocator, "libc10_cuda.so") ? GP_TORCH_POOL : GP_TORCH_CURRENT;
    if (c10)
        GP_LOADER(dlclose(c10));
    if (role == GP_TORCH_ALONE)
        __atomic_fetch_add(&x_tries, 1, __ATOMIC_RELAXED);
    else
        __atomic_store_n(&x_role, role, __ATOMIC_RELAXED);
    return role;
}

enum gp_torch_role gp_torch_role(void)
{
    enum gp_torch_role role = __atomic_load_n(&x_role, __ATOMIC_RELAXED);
    if (GP_LIKELY(role != GP_TORCH_ALONE || __atomic_load_n(&x_tries, __ATOMIC_RELAXED) >= GP_TORCH_TRIES))
        return role;
    return torch_find_role();
}

/* ---- error ------------------------------------------------------------------------------------------------------- */

struct gp_torch_location { /* c10::SourceLocation, passed by value */
    const char *function, *file;
    uint32_t line;
};

/* The class's real size differs by version and is below 256 bytes. */
#define GP_TORCH_ERROR_BYTES 1024

struct gp_torch_throw {
    void (*make_text)(void *self, const char *text, const void *allocator); /* std::string(const char *, allocator) */
    void (*end_text)(void *self);
    /* A class that is not trivially copyable is passed by address (Itanium C++ ABI 3.1.2.3). */
    void (*make_error)(void *self, struct gp_torch_location where, void *text);
    void **table; /* of c10::OutOfMemoryError, from its first function on: the destructor */
    void *type;
    void *(*allocate)(size_t bytes);
    void (*raise)(void *object, void *type, void *destructor);
    void (*fail)(const char *function, const char *file, uint32_t line, const char *text); /* throws c10::Error */
    void (*bad_alloc)(void);
};

/* Builds of PyTorch use the C++ library's std::string of today or the one before GCC 5. */
static void torch_bind_text(struct gp_torch_throw *cxx, void *c10)
{
    static const char *const names[][3] = {
        {"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
         "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1EPKcRKS3_",
         "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev"},
        {"_ZN3c105ErrorC1ENS_14SourceLocationESs", "_ZNSsC1EPKcRKSaIcE", "_ZNSsD1Ev"},
    };
    for (unsigned i = 0; i < GP_COUNT(names) && !cxx->make_error; i++) {
        *(void **)&cxx->make_error = GP_LOADER(dlsym(c10, names[i][0]));
        *(void **)&cxx->make_text = GP_LOADER(dlsym(c10, names[i][1]));
        *(void **)&cxx->end_text = GP_LOADER(dlsym(c10, names[i][2]));
    }
}

/* A handle's search includes the libraries that it needs: libc10 and the C++ library. */
static void torch_bind(struct gp_torch_throw *cxx)
{
    void *c10 = torch_open("libc10_cuda.so");
    if (!c10)
        return;
    torch_bind_text(cxx, c10);
    cxx->type = GP_LOADER(dlsym(c10, "_ZTIN3c1016OutOfMemoryErrorE"));
    cxx->table = GP_LOADER(dlsym(c10, "_ZTVN3c1016OutOfMemoryErrorE"));
    cxx->table = cxx->table ? cxx->table + 2 : NULL; /* after offset and type */
    *(void **)&cxx->allocate = GP_LOADER(dlsym(c10, "__cxa_allocate_exception"));
    *(void **)&cxx->raise = GP_LOADER(dlsym(c10, "__cxa_throw"));
    *(void **)&cxx->fail = GP_LOADER(dlsym(c10, "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"));
    *(void **)&cxx->bad_alloc = GP_LOADER(dlsym(c10, "_ZSt17__throw_bad_allocv"));
    GP_LOADER(dlclose(c10)); /* PyTorch waits below us on this stack and keeps it */
}

static void torch_say(char *text, size_t room, uint32_t error, uint64_t bytes, int device)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double amount = (double)bytes;
    unsigned unit = 0;
    for (; amount >= 1024; unit++)
        amount /= 1024;
    if (error == GP_CU_OUT_OF_MEMORY)
        snprintf(
            text, room,
            "CUDA out of memory. Tried to allocate %.2f %s on GPU %d from gpuprof's allocator, which has given back "
            "all idle memory.",
            amount, units[unit], device);
    else
        snprintf(text, room, "CUDA error %u: gpuprof's allocator could not allocate %.2f %s on GPU %d.", error, amount,
                 units[unit], device);
}

/* Nothing of ours needs a cleanup when these functions throw. */
static void torch_throw(const struct gp_torch_throw *cxx, uint32_t error, const char *said)
{
    union {
        uint64_t align;
        unsigned char bytes[64]; /* std::string has 32 */
    } text;
    char allocator = 0; /* std::allocator has no members */
    bool whole = cxx->make_error && cxx->make_text && cxx->end_text && cxx->type && cxx->table;
    if (error != GP_CU_OUT_OF_MEMORY && cxx->fail)
        cxx->fail("gpuprof_torch_alloc", "gpuprof", 0, said);
    if (whole && cxx->allocate && cxx->raise) {
        void **object = cxx->allocate(GP_TORCH_ERROR_BYTES);
        memset(object, 0, GP_TORCH_ERROR_BYTES);
        cxx->make_text(&text, said, &allocator);
        cxx->make_error(object, (struct gp_torch_location){"gpuprof_torch_alloc", "gpuprof", 0}, &text);
        cxx->end_text(&text);
        *object = cxx->table;
        cxx->raise(object, cxx->type, cxx->table[0]);
    }
    if (cxx->bad_alloc)
        cxx->bad_alloc();
}

void gp_torch_raise(uint32_t error, uint64_t bytes, int device, const void *caller)
{
    struct gp_torch_throw cxx = {0};
    char said[512];
    /* A caller in C, such as Python's ctypes, would end in std::terminate. */
    if (gp_torch_role() != GP_TORCH_CURRENT || !torch_lies_in(caller, "libtorch"))
        return;
    torch_say(said, sizeof(said), error, bytes, device);
    torch_bind(&cxx);
    torch_throw(&cxx, error, said);
}

/* ==== its functions =============================================================================================== */

void *gpuprof_torch_alloc(size_t bytes, int device, void *stream)
{
    struct gp_async async;
    uint64_t address = 0;
    if (!bytes)
        return NULL;
    /* A MemPool's segments are cached by PyTorch, so each is a driver allocation that goes back
     * when PyTorch frees it. */
    unsigned flags = gp_torch_role() == GP_TORCH_POOL ? GP_REQUEST_DEDICATED : 0;
    if (!flags && GP_LIKELY(gp_async_give(bytes, device, (uint64_t)(uintptr_t)stream, &address)))
        return (void *)(uintptr_t)address;
    uint32_t error = gp_async_enter(&async, device);
    if (!error) {
        error = gp_async_alloc(&async, "gpuprof_torch_alloc", bytes, (uint64_t)(uintptr_t)stream, flags, &address);
        gp_async_leave(&async);
    }
    if (GP_UNLIKELY(error))
        gp_torch_raise(error, bytes, device, __builtin_return_address(0));
    return (void *)(uintptr_t)address;
}

void gpuprof_torch_free(void *pointer, size_t bytes, int device, void *stream)
{
    struct gp_async async;
    (void)bytes, (void)device, (void)stream; /* the block knows them, and PyTorch passes 0 for bytes at times */
    bool at_once = gp_torch_role() == GP_TORCH_POOL;
    if (!pointer || (!at_once && GP_LIKELY(gp_async_take((uint64_t)(uintptr_t)pointer))))
        return;
    if (gp_async_enter_any(&async) != 0)
        return;
    if (!gp_async_free((uint64_t)(uintptr_t)pointer, at_once))
        gp_log(GP_LOG_WARN, "PyTorch freed %p, which gpuprof did not allocate: ignored", pointer);
    gp_async_leave(&async);
}

/* Nothing to prepare: a device's context is retained at its first allocation. */
void gpuprof_torch_init(int devices)
{
    struct gp_async async;
    (void)devices;
    if (gp_async_enter_any(&async) == 0)
        gp_async_leave(&async);
}

/* torch.cuda.empty_cache(): empties the caches of all devices. */
void gpuprof_torch_reset(void)
{
    struct gp_async async;
    if (gp_async_enter_any(&async) != 0)
        return;
    for (unsigned i = 0; i < gp_served_count(); i++)
        if (gp_served_cache(&gp_served_contexts[i]))
            gp_cache_trim(gp_served_cache(&gp_served_contexts[i]), 0);
    gp_async_leave(&async);
}

void gpuprof_torch_set_memory_fraction(double fraction, int device)
{
    struct gp_async async;
    if (gp_async_enter(&async, device) != 0)
        return;
    if (gp_async_set_fraction(&async, fraction) != 0)
        gp_log(GP_LOG_WARN, "memory fraction %g is not between 0 and 1: ignored", fraction);
    gp_async_leave(&async);
}

void *gpuprof_torch_base_alloc(void *pointer, size_t *bytes)
{
    struct gp_async async;
    uint64_t base = 0, size = 0;
    if (gp_async_enter_any(&async) != 0)
        return NULL;
    bool found = gp_async_base((uint64_t)(uintptr_t)pointer, &base, &size);
    gp_async_leave(&async);
    if (bytes)
        *bytes = size;
    return found ? (void *)(uintptr_t)base : NULL;
}

void gpuprof_torch_record_stream(void *pointer, void *stream)
{
    struct gp_async async;
    if (!pointer || gp_async_enter_any(&async) != 0)
        return;
    gp_async_record_stream((uint64_t)(uintptr_t)pointer, (uint64_t)(uintptr_t)stream);
    gp_async_leave(&async);
}

/* ---- private pools ----------------------------------------------------------------------------------------------- */

/* PyTorch counts its pools from 1 in one of the two words.  The top bit keeps them apart from the pools of
 * gpuprof_begin_pool. */
static uint64_t torch_pool_id(struct gpuprof_torch_pool id)
{
    return 1ull << 63 | ((uint64_t)id.first << 32 ^ id.second);
}

/* The filter is called while the pool is open.  An unreadable filter is taken for "this thread": PyTorch captures and
 * fills a pool on the thread that began it. */
void gpuprof_torch_begin_allocate_to_pool(int device, struct gpuprof_torch_pool id, void *filter)
{
    struct gp_async async;
    bool readable = gp_route_filter_is_usable(filter);
    struct gp_route route = {torch_pool_id(id), device, readable ? GP_ROUTE_FILTER : GP_ROUTE_THREAD, 0, filter};
    if (gp_async_enter(&async, device) != 0)
        return;
    int error = gp_cache_pool_begin(async.cache, route.pool);
    if (!error)
        error = gp_route_begin(&route);
    if (error)
        gp_log(GP_LOG_ERROR,
               "cannot open a private pool for a CUDA graph: the graph's memory may be reused while the graph exists");
    else
        gp_stream_capture_announce(1);
    gp_async_leave(&async);
}

void gpuprof_torch_end_allocate_to_pool(int device, struct gpuprof_torch_pool id)
{
    struct gp_async async;
    if (gp_async_enter_any(&async) != 0)
        return;
    if (gp_route_end(torch_pool_id(id), device))
        gp_stream_capture_announce(-1);
    gp_async_leave(&async);
}

void gpuprof_torch_release_pool(int device, struct gpuprof_torch_pool id)
{
    struct gp_async async;
    if (gp_async_enter(&async, device) != 0)
        return;
    gp_cache_pool_release(async.cache, torch_pool_id(id));
    gp_async_leave(&async);
}
