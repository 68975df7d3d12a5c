/* SPDX-License-Identifier: MIT
 *
 * stub.c: every wrapped driver entry point under its own name, for programs that are linked with
 * the driver, and PyTorch's functions for programs that load this library by its path.  Each is a
 * jump through libgpuprof.so's table.
 *
 * Every child process inherits libgpuprof-shim.so from a preload, and most never use a GPU: so it
 * has no thread and no memory, does not load the driver, and its constructor only looks for names
 * that others define as variables.  The loader runs that one first (-z initfirst), since another
 * constructor may use such a variable.  A weak reference to
 * one of these names is not empty in a process without a driver: a call through it returns
 * CUDA_ERROR_NO_DEVICE.
 */
#include "base/compiler.h"
#include "inject/shimtable.h"

#define GP_STUB_NAME(_type, _name) _name
#define GP_STUB(_name, ...)                                                                                            \
    GP_EXPORT uint32_t _name(GP_EACH_LIST(GP_HOOKS_PARAM, __VA_ARGS__));                                               \
    uint32_t _name(GP_EACH_LIST(GP_HOOKS_PARAM, __VA_ARGS__))                                                          \
    {                                                                                                                  \
        return gpuprof_private._name(GP_EACH_LIST(GP_STUB_NAME, __VA_ARGS__));                                         \
    }

#define GP_HOOK(_id, _name, _handler, ...) GP_STUB(_name, __VA_ARGS__)
#define GP_WRAP(_name, ...)                GP_STUB(_name, __VA_ARGS__)
#define GP_SELF(_name, ...)                GP_STUB(_name, __VA_ARGS__)
#include "source/hooks.def"
#include "source/wrap.def"
#undef GP_HOOK
#undef GP_WRAP

/* A profiler of the program that is linked with CUPTI: source/foreign.c. */
GP_EXPORT int cuptiSubscribe(void **subscriber, void *callback, void *user);
GP_EXPORT int cuptiSubscribe_v2(void **subscriber, void *callback, void *user, void *params);
GP_EXPORT int cuptiUnsubscribe(void *subscriber);

int cuptiSubscribe(void **subscriber, void *callback, void *user)
{
    return gpuprof_private.subscribe(subscriber, callback, user, __builtin_return_address(0));
}

int cuptiSubscribe_v2(void **subscriber, void *callback, void *user, void *params)
{
    return gpuprof_private.subscribe_v2(subscriber, callback, user, params, __builtin_return_address(0));
}

int cuptiUnsubscribe(void *subscriber)
{
    return gpuprof_private.unsubscribe(subscriber, __builtin_return_address(0));
}

__attribute__((constructor)) static void shim_start(void)
{
    gpuprof_private.start();
}

#define GP_TORCH(_result, _name, ...)                                                                                  \
    _result _name(GP_EACH_LIST(GP_TORCH_PARAM, __VA_ARGS__))                                                           \
    {                                                                                                                  \
        return gpuprof_private._name(GP_EACH_LIST(GP_STUB_NAME, __VA_ARGS__));                                         \
    }
#include "allocator/torch.def"
#undef GP_TORCH
