/* SPDX-License-Identifier: MIT
 *
 * internal.h: declarations that the files of source/ share. No other folder includes it.
 */
#ifndef GP_SOURCE_INTERNAL_H
#define GP_SOURCE_INTERNAL_H

#include "base/compiler.h"
#include "source/hooks.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ==== rows and their handlers ===================================================================================== */
/* Calls the handler of a row in hooks.def when its driver entry point is entered or has returned.
 * It is independent of the source: CUPTI's callbacks and the hooks call it. */

struct gp_hook;

struct gp_call { /* one driver call, as its handler sees it */
    const struct gp_hook *hook;
    const void *params;
    void *context;   /* current context, may be NULL */
    uint32_t ctx;    /* its number; 0 none */
    uint32_t result; /* at exit: CUresult */
    uint64_t *slot;  /* one word shared between enter and exit of this call */
    /* Filled by the exit handler, for the report of a failure. */
    uint64_t asked_bytes;
    enum gp_wire_kind asked_kind; /* GP_KIND_NONE: no memory was asked for, or of a kind that is not known */
    int device;
};

struct gp_handler {
    void (*enter)(struct gp_call *call); /* may be NULL */
    void (*exit)(struct gp_call *call);  /* result tells success; may be NULL */
};

struct gp_hook {
    uint32_t id; /* of CUDA 13.0; 0: newer, and known by name only */
    const char *name;
    const struct gp_handler *handler;
};

extern const struct gp_hook gp_hooks[] GP_HIDDEN;
extern const unsigned gp_hook_count GP_HIDDEN;

/* Ids of CUDA 13.0 end at 806, and a minor version adds some tens. */
#define GP_HOOK_IDS 2048u

/* The row of a driver callback id, or NULL. */
extern uint8_t gp_dispatch_rows[GP_HOOK_IDS] GP_HIDDEN; /* row number + 1, or 0 */
static inline const struct gp_hook *gp_dispatch_find(uint32_t id)
{
    return id < GP_HOOK_IDS && gp_dispatch_rows[id] ? &gp_hooks[gp_dispatch_rows[id] - 1] : NULL;
}

/* Runs the row's handler.  Inside gp_thread_enter/leave; never touches the call's result or
 * parameters. */
void gp_dispatch_enter(struct gp_call *call);
void gp_dispatch_exit(struct gp_call *call);

/* For handlers: device index of the current context, or -1. */
int gp_call_device(const struct gp_call *call);
/* Asks the source for a context's device when the accounts do not know it; set by the source.  -1
 * unknown. */
extern int (*gp_call_ask_device)(void *context, uint32_t ctx);
/* Asks the source for a context's number; 0 unknown. */
extern uint32_t (*gp_call_ask_number)(void *context);

/* Whether a thread is inside a call that loads a module: the driver makes other threads' calls wait for that, and the
 * poller's too. False again after two seconds. Any thread. */
bool gp_call_is_loading(void);

/* What CUPTI has reported of the driver call that a wrapper makes: if CUPTI is given up meanwhile, the wrapper reports
 * the rest. */
/* What the handler noted at the call's begin, of a thread that has one of the numbers
 * (base/thread.c); pages that no thread uses are not touched. */
#define GP_CALL_SLOTS 131072u
extern uint32_t gp_call_slots[GP_CALL_SLOTS] GP_HIDDEN;
enum gp_reported { GP_REPORTED_NOTHING, GP_REPORTED_BEGIN, GP_REPORTED_ALL };

/* For a hand-over between CUPTI and the hooks (handover.c), set where the hooks could be the source. The first two
 * tell them what CUPTI sees: a context and its number, 0: it ends; a device's primary context. The third is the
 * number that both use for a context after a hand-over; device: that of a context that is just being made, else -1. */
extern void (*gp_call_note_context)(void *context, uint32_t number);
extern void (*gp_call_note_primary)(int device, void *context, uint32_t number);
extern uint32_t (*gp_call_table_number)(void *context, int device);

/* For handlers: the device of a location: its index, GP_WIRE_HOST, or GP_DEVICE_UNKNOWN for a kind of
 * location that names none or that this build does not know. */
int gp_place_device(const struct gp_cu_location *location);

static inline bool gp_call_ok(const struct gp_call *call)
{
    return call->result == 0;
}

#define GP_PARAMS(_call, _name) ((const struct gp_params_##_name *)(_call)->params)

#define GP_HOOK(_id, _name, _handler, ...) extern const struct gp_handler gp_on_##_handler;
#include "source/hooks.def"
#undef GP_HOOK

/* ==== what the hooks share ======================================================================================== */
/* What the files of the hooks share: rows by number, parameters of the rows that wrap.def adds, one
 * call under way, and what stands in for CUPTI's resource callbacks.  Included by hooks*.c alone. */

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

/* ---- the driver's own functions (real.c) ---------------------------------------------------------------------------- */

/* The name of a row, and the row of a name; -1: none has it. */
const char *gp_hooks_name(enum gp_hooks_row row);
int gp_hooks_row_of(const char *name);
/* The program has loaded the driver. */
bool gp_hooks_have_driver(void);
/* The driver's function of a row; NULL: there is none. */
extern void *gp_hooks_x_reals[GP_HOOKS_ROWS] GP_HIDDEN; /* NULL: not looked up yet; &gp_hooks_none: there is none */
extern char gp_hooks_none GP_HIDDEN;
void *gp_hooks_real_find(enum gp_hooks_row row);
static inline void *gp_hooks_real(enum gp_hooks_row row)
{
    void *real = __atomic_load_n(&gp_hooks_x_reals[row], __ATOMIC_RELAXED); /* a code address: needs no order */
    if (GP_UNLIKELY(!real))
        return gp_hooks_real_find(row);
    return GP_LIKELY(real != &gp_hooks_none) ? real : NULL;
}
/* Rows whose function this driver has. */
unsigned gp_hooks_real_count(void);
/* Whether the address is the driver's function of this name, or libc's dlsym, if they have been looked up. */
bool gp_hooks_is_real(const char *name, const void *address);
/* Whether the address is that of a variable of some library (variable.c). Takes the loader's lock. */
bool gp_hooks_is_variable(const void *address);

/* libc's dlsym; keeps dlerror. */
void *gp_hooks_symbol(void *handle, const char *name);

/* The driver's own libraries and ours have this code (front.c). Takes the loader's lock. */
bool gp_hooks_is_inner(const void *caller);

/* ---- one accounted call ----------------------------------------------------------------------------------------- */

struct gp_hooks_call {
    struct gp_call call;
    const struct gp_hooks_resource *resource;
    uint64_t slot;
    uint32_t own;   /* the resource handler's values, kept from before to after; 0 at first */
    uint32_t token; /* of what may end in the call */
    uint32_t green; /* a green context's number */
    bool let;       /* a reference of the primary context was taken off */
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
/* A call that ends a context, of one of these rows: the number of the context, before the call; and
 * after it what CUPTI has not reported of that, with the number in `own`. */
static inline bool gp_hooks_is_end(enum gp_hooks_row row)
{
    return row == GP_HOOKS_cuCtxDestroy_v2 || row == GP_HOOKS_cuCtxDestroy || row == GP_HOOKS_cuCtxDetach ||
           row == GP_HOOKS_cuGreenCtxDestroy;
}
uint32_t gp_hooks_ends(enum gp_hooks_row row, const void *params);
void gp_hooks_ended(enum gp_hooks_row row, struct gp_hooks_call *call);
/* The context current to this thread and its number; NULL and 0: none. */
void gp_hooks_current(struct gp_call *call);

#endif
