/* SPDX-License-Identifier: MIT
 * c10_cuda.cc: see c10.h. */
#include "c10.h"

namespace c10
{
Error::Error(SourceLocation where, std::string text) : said(text + " (" + where.function + ")")
{
    for (std::string &one : more)
        one = text;
}
Error::~Error() = default;

namespace detail
{
void torchCheckFail(const char *function, const char *file, uint32_t line, const char *text)
{
    throw Error({function, file, line}, text);
}
} // namespace detail

namespace cuda
{
namespace CUDACachingAllocator
{
std::atomic<CUDAAllocator *> allocator;

CUDAAllocator::~CUDAAllocator() = default;

class NativeAllocator : public CUDAAllocator
{
    CUDAAllocator *below;

  public:
    explicit NativeAllocator(CUDAAllocator *pool) : below(pool)
    {
    }
    void *raw_alloc(size_t bytes) override
    {
        for (int i = 0; i < 2; i++)
            if (void *segment = below->raw_alloc(bytes))
                return segment;
        throw OutOfMemoryError({"native", "c10_cuda.cc", 0}, "the native allocator's own error");
    }
    void raw_delete(void *pointer) override
    {
        below->raw_delete(pointer);
    }
};

CUDAAllocator *native(CUDAAllocator *below)
{
    return new NativeAllocator(below);
}
} // namespace CUDACachingAllocator
} // namespace cuda
} // namespace c10
