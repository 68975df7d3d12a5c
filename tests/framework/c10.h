/* SPDX-License-Identifier: MIT
 *
 * c10.h: what the stand-ins for PyTorch's libc10.so (c10.c) and libc10_cuda.so (c10_cuda.c) export, for each other
 * and for the programs that open them.
 */
#ifndef GP_TEST_FRAMEWORK_C10_H
#define GP_TEST_FRAMEWORK_C10_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* PyTorch's names for its functions, without the types of the totals. */
#define C10_REPORT "_ZN3c1027reportMemoryUsageToProfilerEPvl"
#define C10_OOM    "_ZN3c1027reportOutOfMemoryToProfilerEl"

struct c10_device {
    int8_t type, index;
};
#define C10_CUDA 1

/* libc10: the arguments of the last call of either function, and how often each was called. */
struct c10_seen {
    void *pointer;
    int64_t bytes, allocated, reserved;
    struct c10_device device;
    uint64_t reports, ooms;
};
extern struct c10_seen c10_seen;
/* libc10: calls of either function for each device, counted under the caller's lock of the device. */
#define C10_DEVICES 4
extern uint64_t c10_calls[C10_DEVICES];
/* libc10: called last in both functions, if set; it may unwind the stack. */
extern void (*c10_thrower)(void);

/* libc10_cuda: a small caching allocator. Segments: 2 MiB for blocks up to 1 MiB, 20 MiB for those up to 10 MiB,
 * else as large as the block. Blocks are multiples of 512 bytes. */
struct torch_stats {
    int64_t allocated, allocated_peak, reserved, reserved_peak, blocks, segments, retries, ooms;
};
struct torch_conf {
    int expandable; /* segments come from cuMemCreate */
    int uncached;   /* each block comes from the driver, and nothing is reported */
    int64_t lie;    /* bytes by which the reported total of allocated bytes is wrong */
};
/* Built with FAKE: what takes the place of the driver. *address 0: it returns `bytes` of memory there; else it takes
 * them back. */
extern bool (*torch_driver)(int device, uint64_t *address, size_t bytes);

void torch_report(void *pointer, int64_t bytes, uint64_t allocated, uint64_t reserved, struct c10_device device);

/* The allocator in force: the places of two of its virtual functions, and what the last call of each got. */
#define C10_ALLOCATOR "_ZN3c104cuda20CUDACachingAllocator9allocatorE"
enum { C10_POOL_BEGIN = 2, C10_POOL_END = 4, C10_METHODS };
struct c10_allocator;
union c10_method {
    void (*other)(void);
    void (*begin)(struct c10_allocator *self, int8_t device, uint64_t first, uint64_t second, void *filter);
    void (*end)(struct c10_allocator *self, int8_t device, uint64_t first, uint64_t second);
};
struct c10_allocator {
    const union c10_method *methods;
};
struct c10_pools {
    uint64_t begun, ended, first, second;
    int device;
};
extern struct c10_pools c10_pools;

/* Built with EARLY: the function whose address the program left at this address is called while the loader relocates
 * libc10_cuda. */
#define TORCH_EARLY 0x200000000ul

#define TORCH_ROWS(_row)                                                                                               \
    _row(void, torch_configure, (const struct torch_conf *conf))                                                       \
        _row(void *, torch_alloc, (int device, size_t bytes)) /* NULL: out of memory */                                \
        _row(void, torch_free, (int device, void *pointer)) _row(void, torch_empty_cache, (int device))                \
            _row(void, torch_stats, (int device, struct torch_stats *out)) _row(void, torch_reset_peaks, (int device))
#define TORCH_ROW(_result, _name, _params) _result _name _params;
TORCH_ROWS(TORCH_ROW)
#undef TORCH_ROW

#endif
