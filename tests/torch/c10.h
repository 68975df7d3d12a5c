/* SPDX-License-Identifier: MIT
 *
 * c10.h: a stand-in for the parts of PyTorch's C++ libraries that meet a pluggable allocator: the same names, the same
 * calling conventions, other contents.  libc10_cuda.so (c10_cuda.cc) has the exceptions and the pointer to the current
 * allocator; libtorch_cuda.so (torch_cuda.cc) has the pluggable allocator; main.cc uses both as PyTorch does.
 */
#ifndef GP_TEST_TORCH_C10_H
#define GP_TEST_TORCH_C10_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>

namespace c10
{

struct SourceLocation {
    const char *function;
    const char *file;
    uint32_t line;
};

class __attribute__((visibility("default"))) Error : public std::exception
{
    std::string said;
    std::string more[4]; /* PyTorch's class is larger, and its size differs by version */

  public:
    Error(SourceLocation where, std::string text);
    ~Error() override;
    const char *what() const noexcept override
    {
        return said.c_str();
    }
};

class __attribute__((visibility("default"))) OutOfMemoryError : public Error
{
    using Error::Error;
};

namespace detail
{
[[noreturn]] void torchCheckFail(const char *function, const char *file, uint32_t line, const char *text);
}

namespace cuda
{
namespace CUDACachingAllocator
{
class __attribute__((visibility("default"))) CUDAAllocator
{
  public:
    virtual ~CUDAAllocator();
    virtual void *raw_alloc(size_t bytes) = 0;
    virtual void raw_delete(void *pointer) = 0;
};
extern std::atomic<CUDAAllocator *> allocator;

/* PyTorch's own cache, with a torch.cuda.MemPool over `below`: it checks the pointer, tries again and throws. */
CUDAAllocator *native(CUDAAllocator *below);
} // namespace CUDACachingAllocator
} // namespace cuda
} // namespace c10

/* libtorch_cuda.so */
c10::cuda::CUDACachingAllocator::CUDAAllocator *pluggable(std::function<void *(size_t, int, void *)> alloc,
                                                          std::function<void(void *, size_t, int, void *)> release);

#endif
