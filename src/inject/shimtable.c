/* SPDX-License-Identifier: MIT
 * shimtable.c: the table that libgpuprof-shim.so calls, and cuInit, where gpuprof starts in a
 * process that preloads it. */
#include "inject/shimtable.h"
#include "allocator/allocator.h"
#include "base/compiler.h"
#include "base/thread.h"
#include "inject/inject.h"
#include <errno.h>
#include <gpuprof/gpuprof.h>

/* The driver may inject the library as well (CUDA_INJECTION64_PATH), inside this call and before it
 * knows whether there is a device.  The start waits for the result: a process without a device gets
 * none, and a cuInit that succeeds later gets it then. */
uint32_t gp_wrap_cuInit(unsigned int flags)
{
    uint32_t (*real)(unsigned int) = gp_hooks_driver("cuInit");
    uint8_t before = gp_thread.starts_later;
    gp_thread.starts_later = 1;
    if (real) { /* before the driver takes its lock: base/opener.h */
        int saved_errno = errno;
        gp_hooks_prepare();
        gp_allocator_prepare();
        errno = saved_errno;
    }
    uint32_t result = real ? real(flags) : GP_HOOKS_NO_DRIVER;
    gp_thread.starts_later = before;
    if (result == 0) {
        gp_nogpu_refute();
        InitializeInjection();
    }
    return result;
}

GP_EXPORT const struct gp_private gpuprof_private = {
    .is_missing = gp_hooks_is_missing,
    .wrap_symbol = gp_hooks_wrap_symbol,
    .start = gp_variable_start,
    .opening = gp_variable_opening,
    .subscribe = gp_foreign_subscribe,
    .subscribe_v2 = gp_foreign_subscribe_v2,
    .unsubscribe = gp_foreign_unsubscribe,
#define GP_HOOK(_id, _name, _handler, ...) ._name = gp_wrap_##_name,
#define GP_WRAP(_name, ...)                ._name = gp_wrap_##_name,
#define GP_SELF(_name, ...)                ._name = gp_wrap_##_name,
#include "source/hooks.def"
#include "source/wrap.def"
#undef GP_HOOK
#undef GP_WRAP
#define GP_TORCH(_result, _name, ...) ._name = _name,
#include "allocator/torch.def"
#undef GP_TORCH
};
