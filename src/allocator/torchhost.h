/* SPDX-License-Identifier: MIT
 *
 * torchhost.h: what torch.c needs to know of the PyTorch that called it, and PyTorch's error.
 */
#ifndef GP_ALLOCATOR_TORCHHOST_H
#define GP_ALLOCATOR_TORCHHOST_H

#include "base/compiler.h"
#include <stdbool.h>
#include <stdint.h>

enum gp_torch_role {
    GP_TORCH_ALONE,   /* no PyTorch was found: a test, or a program of its own */
    GP_TORCH_CURRENT, /* PyTorch's allocator is a pluggable one, so every tensor's memory is asked for here */
    GP_TORCH_POOL,    /* PyTorch caches memory itself, and asks here only for the segments of a torch.cuda.MemPool */
};

/* Any thread, without a lock of ours: the first calls ask the dynamic loader. */
enum gp_torch_role gp_torch_role(void);

/* Raises torch.OutOfMemoryError (error 2) or RuntimeError in PyTorch, which does not check for NULL.  Returns if PyTorch
 * would check (GP_TORCH_POOL), or if the caller is not PyTorch.  caller: the return address of the
 * exported function.  Call it last, outside the library's code and without a lock: it does not come back. */
GP_COLD void gp_torch_raise(uint32_t error, uint64_t bytes, int device, const void *caller);

#endif
