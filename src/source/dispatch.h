/* SPDX-License-Identifier: MIT
 *
 * dispatch.h: calls the handler of a row in hooks.def when its driver entry point is entered or has
 * returned.  It is independent of the source: CUPTI's callbacks and the hooks call it.
 */
#ifndef GP_SOURCE_DISPATCH_H
#define GP_SOURCE_DISPATCH_H

#include "source/params.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

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

extern const struct gp_hook gp_hooks[];
extern const unsigned gp_hook_count;

/* Ids of CUDA 13.0 end at 806, and a minor version adds some tens. */
#define GP_HOOK_IDS 2048u

/* The row of a driver callback id, or NULL. */
const struct gp_hook *gp_dispatch_find(uint32_t id);
/* The row's number + 1. */
uint8_t gp_dispatch_row(const struct gp_hook *hook);
/* Replaces the ids of all rows: row numbers + 1 by id.  Call it while no callback is enabled. */
void gp_dispatch_bind(const uint8_t bound[GP_HOOK_IDS]);

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
/* What the handler noted at the call's begin, of a thread that has one of the numbers (base/thread.c); pages that no thread
 * uses are not touched. */
#define GP_CALL_SLOTS 65538u
extern uint32_t gp_call_slots[GP_CALL_SLOTS];
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

#endif
