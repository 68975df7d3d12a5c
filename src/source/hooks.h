/* SPDX-License-Identifier: MIT
 *
 * hooks.h: wrappers in front of the driver's entry points, without CUPTI.  libgpuprof-shim.so
 * (src/source/shim) leads programs here through exported symbols, dlsym and cuGetProcAddress.  A
 * call then goes
 *
 *      wrapper -> server, if allocator/ set one -> pass: accounted if hooks are the source -> the driver
 *
 * Calls of our own code, of a forked child, and of a process in which gpuprof is off go directly to
 * the driver.
 */
#ifndef GP_SOURCE_HOOKS_H
#define GP_SOURCE_HOOKS_H

#include "source/abi.h"
#include "source/source.h"
#include <stdbool.h>
#include <stdint.h>

/* ==== parameters ================================================================================================== */
/* The parameter structs of every row of hooks.def, as CUPTI hands them over: struct
 * gp_params_<name>. */

#define GP_PARAMS_FIELD(_type, _name) _type _name;
#define GP_HOOK(_id, _name, _handler, ...)                                                                             \
    struct gp_params_##_name {                                                                                         \
        GP_EACH(GP_PARAMS_FIELD, __VA_ARGS__)                                                                          \
    };
#include "source/hooks.def"
#undef GP_HOOK

/* ==== wrappers ==================================================================================================== */

/* Entry points that are wrapped: the rows of hooks.def, and those of wrap.def, which the shim
 * serves or the hooks source needs in the place of CUPTI's resource callbacks. */
#define GP_HOOKS_PARAM(_type, _name) _type _name

/* gp_wrap_<name>(params): the function that programs get instead of the driver's.
 * gp_pass_<name>(params): the call without a server: accounted if hooks are the source. */
#define GP_HOOKS_DECLARED(_name, ...)                                                                                  \
    uint32_t gp_wrap_##_name(GP_EACH_LIST(GP_HOOKS_PARAM, __VA_ARGS__));                                               \
    uint32_t gp_pass_##_name(GP_EACH_LIST(GP_HOOKS_PARAM, __VA_ARGS__));
#define GP_HOOK(_id, _name, _handler, ...) GP_HOOKS_DECLARED(_name, __VA_ARGS__)
#define GP_WRAP(_name, ...)                GP_HOOKS_DECLARED(_name, __VA_ARGS__)
#define GP_SELF(_name, ...)                uint32_t gp_wrap_##_name(GP_EACH_LIST(GP_HOOKS_PARAM, __VA_ARGS__));
#include "source/hooks.def"
#include "source/wrap.def"
#undef GP_HOOK
#undef GP_WRAP

/* The result of a wrapper in a process without a driver: CUDA_ERROR_NO_DEVICE, as from cuInit. */
#define GP_HOOKS_NO_DRIVER 100u

/* Puts `server`, a function of the entry point's type, in front of the entry point.  Call it before
 * the program's cuInit returns.  False: no such row. */
bool gp_hooks_serve(const char *name, void *server);

/* Looks up everything that gp_hooks_start and gp_hooks_present need, so that they need no loader.
 * Any thread, any number of times. */
void gp_hooks_prepare(void);

/* Returns whether calls arrive here: libgpuprof-shim.so was in front of libc and libcuda when the program
 * was linked. */
bool gp_hooks_present(void);

/* The driver's own function (never a wrapper), or NULL; name with its suffix.  Loads no driver. */
void *gp_hooks_driver(const char *name);

/* The result of cuGetProcAddress for `name`, in any version and with any flags, if the driver's result
 * is `real`: the wrapper of exactly that function, or `real` itself.  The pointer shows which of NAME,
 * NAME_v2, NAME_ptsz ... the driver chose. */
void *gp_hooks_wrap(const char *name, void *real);

/* The same for dlsym, where the name is exact.  caller: an address in the calling code; the driver's
 * own libraries and ours get `real`. */
void *gp_hooks_wrap_symbol(const char *name, void *real, const void *caller);

/* Returns whether `name` has a row, and so a symbol in libgpuprof-shim.so, but no driver function: there is
 * no driver in this process, or an older one.  Loads no driver. */
bool gp_hooks_is_missing(const char *name);

/* variable.c: a name of ours that is a variable in another library is taken out of libgpuprof-shim.so's
 * symbols. start: once, by the shim's constructor. opening: before the program's dlopen(name, flags);
 * caller: an address in the calling code. */
void gp_variable_start(void);
void gp_variable_opening(const char *name, int flags, const void *caller);
/* Whether the shim no longer defines it. */
bool gp_variable_is_hidden(const char *name);

/* The versions of libc's dlsym and dlopen, the right one first: after a miss libc allocates a message, and the
 * caller may be the program's own malloc.  glibc 2.34 moved them from libdl. */
#if defined(__x86_64__)
#define GP_HOOKS_DLSYM_VERSIONS "GLIBC_2.2.5", "GLIBC_2.34"
#else
#define GP_HOOKS_DLSYM_VERSIONS "GLIBC_2.17", "GLIBC_2.34"
#endif

/* Looks for objects whose calls do not come here although hooks are the source: RTLD_DEEPBIND binds
 * a library to the driver that it is linked to. Waits for the loader. Poll thread only. */
void gp_hooks_look(void);
/* Which one was found, as a sentence; false: none. Any thread. */
bool gp_hooks_past(char *text, size_t bytes);

/* CUPTI's functions by which another tool becomes the subscriber, or ceases to be it (foreign.c). caller: an address in
 * the calling code. The results are CUPTI's. */
enum gp_foreign_call { GP_FOREIGN_SUBSCRIBE, GP_FOREIGN_SUBSCRIBE_V2, GP_FOREIGN_UNSUBSCRIBE, GP_FOREIGN_CALLS };
int gp_foreign_subscribe(void **subscriber, void *callback, void *user, const void *caller);
int gp_foreign_subscribe_v2(void **subscriber, void *callback, void *user, void *params, const void *caller);
int gp_foreign_unsubscribe(void *subscriber, const void *caller);
/* enum gp_foreign_call; -1: it is none of them. */
int gp_foreign_call_of(const char *name);
/* What dlsym answers in the place of `real`. */
void *gp_foreign_wrap(int call, void *real);

/* Another source counts the calls that begin from now on. */
void gp_hooks_end(void);
/* Makes hooks the source of events.  False: libgpuprof-shim.so is not in front of the driver. */
bool gp_hooks_start(struct gp_source_status *out);

#endif
