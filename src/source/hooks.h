/* SPDX-License-Identifier: MIT
 *
 * hooks.h: the driver's entry points with us in front, without CUPTI.  libgpuprof-shim.so (src/shim) brings programs
 * here by exported symbols, dlsym and cuGetProcAddress; from here a call goes
 *
 *      wrapper -> server, if shim/ put one in -> pass: accounted (hooks as the event source) -> the driver
 *
 * A thread on which our own code runs, a forked child and a process that switched us off go straight to the driver.
 */
#ifndef GP_SOURCE_HOOKS_H
#define GP_SOURCE_HOOKS_H

#include "source/each.h"
#include "source/params.h"
#include "source/source.h"
#include <stdbool.h>
#include <stdint.h>

/* Entry points that are wrapped: the rows of hooks.def, and those of wrap.def, which the shim serves or the hooks
 * source needs in the place of CUPTI's resource callbacks. */
#define GP_HOOKS_PARAM(_type, _name) _type _name

/* gp_wrap_<name>(params): what programs get in the place of the driver's function.
 * gp_pass_<name>(params): the call as it would be without a server: accounted if hooks are the source. */
#define GP_HOOKS_DECLARED(_name, ...)                                                                                  \
    uint32_t gp_wrap_##_name(GP_LIST(GP_HOOKS_PARAM, __VA_ARGS__));                                                    \
    uint32_t gp_pass_##_name(GP_LIST(GP_HOOKS_PARAM, __VA_ARGS__));
#define GP_HOOK(_id, _name, _handler, ...) GP_HOOKS_DECLARED(_name, __VA_ARGS__)
#define GP_WRAP(_name, ...)                GP_HOOKS_DECLARED(_name, __VA_ARGS__)
#define GP_SELF(_name, ...)                uint32_t gp_wrap_##_name(GP_LIST(GP_HOOKS_PARAM, __VA_ARGS__));
#include "source/hooks.def"
#include "source/wrap.def"
#undef GP_HOOK
#undef GP_WRAP

/* What a wrapper answers in a process without a driver: CUDA_ERROR_NO_DEVICE, as cuInit does there. */
#define GP_HOOKS_NO_DRIVER 100u

/* Puts `server`, a function of the entry point's own type, in front of it.  Before the program's cuInit returns. False:
 * no such row. */
bool gp_hooks_serve(const char *name, void *server);

/* Is anybody sent here: was libgpuprof-shim.so in front of libc and libcuda when the program was linked? */
bool gp_hooks_present(void);

/* The driver's own function (never a wrapper), or NULL; name with its suffix.  Loads no driver. */
void *gp_hooks_driver(const char *name);

/* What to give a program that asks cuGetProcAddress for `name`, in whatever version and with whatever flags, and would
 * get `real`: the wrapper of exactly that function, or `real`.  The driver's own choice decides: which of NAME,
 * NAME_v2, NAME_ptsz ... it took is told by the pointer. */
void *gp_hooks_wrap(const char *name, void *real);

/* The same for dlsym, where the name is exact.  caller: an address in the code that asks; the driver's own libraries
 * and ours get `real`. */
void *gp_hooks_wrap_symbol(const char *name, void *real, const void *caller);

/* Has `name` a row, hence a symbol of its own in libgpuprof-shim.so, but no function of the driver behind it: is there
 * none in this process, or an older one?  Loads none. */
bool gp_hooks_is_missing(const char *name);

/* libc's dlsym, in the versions to ask for: the right one first, because a miss makes libc allocate its message, and
 * who asks may be the program's own malloc.  2.34 moved it from libdl. */
#if defined(__x86_64__)
#define GP_HOOKS_DLSYM_VERSIONS "GLIBC_2.2.5", "GLIBC_2.34"
#else
#define GP_HOOKS_DLSYM_VERSIONS "GLIBC_2.17", "GLIBC_2.34"
#endif

/* Makes hooks the source of events.  False: nobody is in front. */
bool gp_hooks_start(struct gp_source_status *out);

#endif
