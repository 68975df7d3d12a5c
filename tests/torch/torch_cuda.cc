/* SPDX-License-Identifier: MIT
 * torch_cuda.cc: see c10.h. */
#include "c10.h"

#include <utility>

class PluggableAllocator : public c10::cuda::CUDACachingAllocator::CUDAAllocator
{
    std::function<void *(size_t, int, void *)> alloc;
    std::function<void(void *, size_t, int, void *)> release;

  public:
    PluggableAllocator(std::function<void *(size_t, int, void *)> a, std::function<void(void *, size_t, int, void *)> r)
        : alloc(std::move(a)), release(std::move(r))
    {
    }
    void *raw_alloc(size_t bytes) override
    {
        void *pointer = alloc(bytes, 0, nullptr); /* as PyTorch: no check */
        return pointer;
    }
    void raw_delete(void *pointer) override
    {
        release(pointer, 0, 0, nullptr);
    }
};

c10::cuda::CUDACachingAllocator::CUDAAllocator *pluggable(std::function<void *(size_t, int, void *)> alloc,
                                                          std::function<void(void *, size_t, int, void *)> release)
{
    return new PluggableAllocator(std::move(alloc), std::move(release));
}
