/* SPDX-License-Identifier: MIT
 *
 * main.cc: loads gpuprof's allocator as PyTorch does (c10.h) and prints how a request fails that no GPU can serve.
 *
 *      main LIBRARY current    gpuprof's functions are PyTorch's allocator
 *      main LIBRARY device     the same, on a device that does not exist
 *      main LIBRARY pool       PyTorch's own allocator is in place, and asks for a MemPool's segments
 *      main LIBRARY direct     this program calls the function itself: not PyTorch
 *      main LIBRARY uncaught   as current, without a handler
 */
#include "c10.h"

#include <cstdio>
#include <cstring>
#include <dlfcn.h>

using c10::cuda::CUDACachingAllocator::allocator;

static void *(*gp_alloc)(size_t, int, void *);
static void (*gp_free)(void *, size_t, int, void *);
static int64_t (*gp_reserved)(int);

static const size_t HUGE_BYTES = (size_t)100 << 40, SEGMENT = (size_t)20 << 20;

static void *alloc_elsewhere(size_t bytes, int, void *stream)
{
    return gp_alloc(bytes, 99, stream);
}

/* Exactly the failed request is refused: the next one is served. */
static int serve(c10::cuda::CUDACachingAllocator::CUDAAllocator *from)
{
    void *pointer = from->raw_alloc(SEGMENT);
    long held = (long)gp_reserved(0);
    from->raw_delete(pointer);
    std::printf("served %d, reserved %ld, then %ld\n", pointer != nullptr, held, (long)gp_reserved(0));
    return 0;
}

static int fail(const char *how)
{
    c10::cuda::CUDACachingAllocator::CUDAAllocator *ours =
        std::strcmp(how, "device") ? pluggable(gp_alloc, gp_free) : pluggable(alloc_elsewhere, gp_free);
    allocator = std::strcmp(how, "pool") ? ours : c10::cuda::CUDACachingAllocator::native(ours);
    if (!std::strcmp(how, "uncaught"))
        return allocator.load()->raw_alloc(HUGE_BYTES) != nullptr;
    try {
        void *pointer = allocator.load()->raw_alloc(std::strcmp(how, "device") ? HUGE_BYTES : SEGMENT);
        std::printf("returned %p\n", pointer);
        return 0;
    } catch (const c10::OutOfMemoryError &error) {
        std::printf("OutOfMemoryError: %s\n", error.what());
    } catch (const c10::Error &error) {
        std::printf("Error: %s\n", error.what());
    }
    return std::strcmp(how, "device") ? serve(allocator) : 0;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    gp_alloc = (void *(*)(size_t, int, void *))dlsym(library, "gpuprof_torch_alloc");
    gp_free = (void (*)(void *, size_t, int, void *))dlsym(library, "gpuprof_torch_free");
    gp_reserved = (int64_t(*)(int))dlsym(dlopen("libgpuprof.so", RTLD_NOW | RTLD_NOLOAD), "gpuprof_memory_reserved");
    if (std::strcmp(argv[2], "direct"))
        return fail(argv[2]);
    allocator = pluggable(gp_alloc, gp_free);
    void *pointer = gp_alloc(HUGE_BYTES, 0, nullptr);
    std::printf("returned %p\n", pointer);
    return 0;
}
