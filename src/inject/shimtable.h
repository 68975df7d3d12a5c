/* SPDX-License-Identifier: MIT
 *
 * shimtable.h: the functions of libgpuprof.so that libgpuprof-shim.so (src/source/shim) calls: one table,
 * the only symbol of the version GPUPROF_PRIVATE.  Both libraries are built and installed together;
 * no other program may use it.
 */
#ifndef GP_INJECT_SHIMTABLE_H
#define GP_INJECT_SHIMTABLE_H

#include "allocator/torch.h"
#include "source/hooks.h"

struct gp_private {
    /* gp_hooks_is_missing, gp_hooks_wrap_symbol, gp_variable_start, gp_variable_opening: see source/hooks.h. */
    bool (*is_missing)(const char *name);
    void *(*wrap_symbol)(const char *name, void *real, const void *caller);

    void (*start)(void);
    void (*opening)(const char *name, int flags, const void *caller);

    /* Of CUPTI's functions. */
    int (*subscribe)(void **subscriber, void *callback, void *user, const void *caller);
    int (*subscribe_v2)(void **subscriber, void *callback, void *user, void *params, const void *caller);
    int (*unsubscribe)(void *subscriber, const void *caller);

    /* The wrapper of each row. */
#define GP_HOOK(_id, _name, _handler, ...) uint32_t (*_name)(GP_EACH_LIST(GP_HOOKS_PARAM, __VA_ARGS__));
#define GP_WRAP(_name, ...)                uint32_t (*_name)(GP_EACH_LIST(GP_HOOKS_PARAM, __VA_ARGS__));
#define GP_SELF(_name, ...)                uint32_t (*_name)(GP_EACH_LIST(GP_HOOKS_PARAM, __VA_ARGS__));
#include "source/hooks.def"
#include "source/wrap.def"
#undef GP_HOOK
#undef GP_WRAP

    /* The functions of allocator/torch.def. */
#define GP_TORCH(_result, _name, ...) _result (*_name)(GP_EACH_LIST(GP_TORCH_PARAM, __VA_ARGS__));
#include "allocator/torch.def"
#undef GP_TORCH
};

extern const struct gp_private gpuprof_private;

#endif
