/* SPDX-License-Identifier: MIT
 *
 * hooks.h: the driver's entry points with us in front, without CUPTI.  libgpuprof-shim.so (src/preload) brings programs here by
 * exported symbols, dlsym and cuGetProcAddress; from here a call goes
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

/* Entry points that are wrapped: the rows of hooks.def, and those of wrap.def, which the shim serves or the hooks source
 * needs in the place of CUPTI's resource callbacks. */
#define GP_HOOKS_PARAM(_type, _name) _type _name

/* gp_pass_<name>(params): the call as it would be without a server: accounted if hooks are the source. */
#define GP_HOOK(_id, _name, _handler, ...) uint32_t gp_pass_##_name(GP_LIST(GP_HOOKS_PARAM, __VA_ARGS__));
#define GP_WRAP(_name, ...)                uint32_t gp_pass_##_name(GP_LIST(GP_HOOKS_PARAM, __VA_ARGS__));
#include "source/hooks.def"
#include "source/wrap.def"
#undef GP_HOOK
#undef GP_WRAP

/* Puts `server`, a function of the entry point's own type, in front of it.  Before the program's cuInit returns.  False: no such
 * row. */
bool gp_hooks_serve(const char *name, void *server);

/* Is anybody sent here: was libgpuprof-shim.so in front when the program was linked? */
bool gp_hooks_present(void);

/* The driver's own function (never a wrapper), or NULL; name with its suffix.  Loads no driver. */
void *gp_hooks_driver(const char *name);

/* What to give a program that asks for `name` in this version and with these flags (cuGetProcAddress; dlsym: version 0, flags 0)
 * and would get `real`: the wrapper of exactly that function, or `real`. */
void *gp_hooks_wrap(const char *name, int version, uint64_t flags, void *real);

/* Makes hooks the source of events.  False: nobody is in front. */
bool gp_hooks_start(struct gp_source_status *out);

#endif
