/* SPDX-License-Identifier: MIT
 *
 * hooks_row.h: what the files of the hooks share: rows by number, parameters of the rows that
 * wrap.def adds, one call under way, and what stands in for CUPTI's resource callbacks.  Included
 * by hooks*.c alone.
 */
#ifndef GP_SOURCE_HOOKS_ROW_H
#define GP_SOURCE_HOOKS_ROW_H

#include "source/dispatch.h"
#include "source/hooks.h"

/* Those of hooks.def first, so that a row is its hook's index in gp_hooks[]. */
enum gp_hooks_row {
#define GP_HOOK(_id, _name, _handler, ...) GP_HOOKS_##_name,
#define GP_WRAP(_name, ...)                GP_HOOKS_##_name,
#define GP_SELF(_name, ...)                GP_HOOKS_##_name,
#include "source/hooks.def"
#include "source/wrap.def"
#undef GP_HOOK
#undef GP_WRAP
    GP_HOOKS_ROWS
};

/* Parameters of the rows that only wrap.def has: struct gp_params_<name>. */
#define GP_WRAP(_name, ...)
#define GP_RESOURCE(_name, ...)                                                                                        \
    struct gp_params_##_name {                                                                                         \
        GP_EACH(GP_PARAMS_FIELD, __VA_ARGS__)                                                                          \
    };
#include "source/wrap.def"
#undef GP_WRAP

/* The driver's function of a row; NULL: there is none. */
void *gp_hooks_real(enum gp_hooks_row row);
/* Rows whose function this driver has. */
unsigned gp_hooks_real_count(void);

/* libc's dlsym; keeps dlerror. */
void *gp_hooks_symbol(void *handle, const char *name);

/* ---- one accounted call ----------------------------------------------------------------------------------------- */

struct gp_hooks_call {
    struct gp_call call;
    const struct gp_hooks_resource *resource; /* NULL: none */
    uint64_t slot;
    uint32_t own; /* the resource handler's value, kept from before to after; 0 at first */
    uint8_t heed;
};

/* Both run inside gp_thread_enter/leave.  before: the call has not been made, call.ctx is not known
 * yet.  after: it has, and the row's own handler comes next. */
struct gp_hooks_resource {
    void (*before)(struct gp_hooks_call *call); /* may be NULL */
    void (*after)(struct gp_hooks_call *call);  /* may be NULL */
    bool is_maker; /* after numbers what is the current context now, so call.ctx is not known there either */
};

/* Per row, in hooks_resource.c; both members NULL: nothing to do. */
extern const struct gp_hooks_resource gp_hooks_resources[GP_HOOKS_ROWS];

/* Once, before the first call is accounted: the driver functions that hooks_resource.c asks. */
void gp_hooks_resource_prepare(void); /* looks the driver up; gp_hooks_resource_start does if it was not called */
void gp_hooks_resource_start(void);
/* From now on it notes what CUPTI sees, for the case that hooks become the source. */
void gp_hooks_resource_note(void);
/* CUPTI was the source until now: numbers of modules that it has not given. */
void gp_hooks_resource_apart(void);
/* A call that ends a context, of one of these rows: the number of the context, before the call; and after it what CUPTI has
 * not reported of that, with the number in `own`. */
static inline bool gp_hooks_is_end(enum gp_hooks_row row)
{
    return row == GP_HOOKS_cuCtxDestroy_v2 || row == GP_HOOKS_cuCtxDestroy || row == GP_HOOKS_cuCtxDetach ||
           row == GP_HOOKS_cuGreenCtxDestroy;
}
uint32_t gp_hooks_ends(enum gp_hooks_row row, const void *params);
void gp_hooks_ended(enum gp_hooks_row row, struct gp_hooks_call *call);
/* The context current to this thread and its number; NULL and 0: none. */
void gp_hooks_current(struct gp_call *call);

/* ---- numbers for handles (hooks_number.c) ------------------------------------------------------------------------ */

/* The driver reuses handles of dead objects.  Numbers are never reused, like CUPTI's context and
 * module ids.  Any thread, inside gp_thread_enter/leave. */
struct gp_hooks_numbers;
extern struct gp_hooks_numbers gp_hooks_contexts, gp_hooks_modules;

/* Returns the handle's number, or 0. */
uint32_t gp_hooks_number_of(struct gp_hooks_numbers *numbers, uint64_t handle);
/* The handle's number, a new one if it has none.  0: the table is full (counted as lost). */
uint32_t gp_hooks_number_learn(struct gp_hooks_numbers *numbers, uint64_t handle);
/* New numbers come after this one. */
void gp_hooks_number_after(struct gp_hooks_numbers *numbers, uint32_t number);
/* Gives a new object at this handle a new number, also if the handle had one.  0 as above. */
uint32_t gp_hooks_number_new(struct gp_hooks_numbers *numbers, uint64_t handle);
/* Removes the handle's number and returns it, or 0. */
uint32_t gp_hooks_number_take(struct gp_hooks_numbers *numbers, uint64_t handle);
/* Removes it, if it is still this one. */
void gp_hooks_number_drop(struct gp_hooks_numbers *numbers, uint64_t handle, uint32_t number);
/* Gives the handle this number: after a take whose object stays alive, or for a second handle of one
 * object.  False: the table is full. */
bool gp_hooks_number_put(struct gp_hooks_numbers *numbers, uint64_t handle, uint32_t number);

#endif
