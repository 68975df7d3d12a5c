/* SPDX-License-Identifier: MIT
 * dispatch.c: the table of hooks in memory, and the way from a callback id to its row. */
#include "source/dispatch.h"
#include "account/feed.h"
#include "base/clock.h"
#include "base/thread.h"
#include "source/source.h"
#include <gpuprof/wire.h>
#include <string.h>

#define GP_HOOK(_id, _name, _handler, ...) {_id, #_name, &gp_on_##_handler},
const struct gp_hook gp_hooks[] = {
#include "source/hooks.def"
};
#undef GP_HOOK
const unsigned gp_hook_count = GP_COUNT(gp_hooks);

/* Row number + 1 by callback id.  1024 holds all ids of CUDA 13.0 (807) and room for the years of a
 * minor version. */
#define GP_IDS                             1024
#define GP_IDS_KNOWN                       807 /* ids from here on are newer than CUDA 13.0 */
#define GP_HOOK(_id, _name, _handler, ...) GP_ROW_##_name,
enum {
#include "source/hooks.def"
};
#undef GP_HOOK
#define GP_HOOK_NAMED(_name, _handler, ...)
#define GP_HOOK(_id, _name, _handler, ...) [_id] = GP_ROW_##_name + 1,
static uint8_t x_rows[GP_IDS] = {
#include "source/hooks.def"
};
#undef GP_HOOK
_Static_assert(GP_COUNT(gp_hooks) < 255, "row numbers fit a byte");
static uint32_t x_learned[GP_COUNT(gp_hooks)]; /* the ids of named rows; 0: not known */

bool gp_call_timed;
int (*gp_call_ask_device)(void *context, uint32_t ctx);
uint32_t (*gp_call_ask_number)(void *context);

const struct gp_hook *gp_hook_find(uint32_t id)
{
    unsigned row = id < GP_IDS ? __atomic_load_n(&x_rows[id], __ATOMIC_RELAXED) : 0;
    return row ? &gp_hooks[row - 1] : NULL;
}

uint32_t gp_hook_id(const struct gp_hook *hook)
{
    return hook->id ? hook->id : __atomic_load_n(&x_learned[hook - gp_hooks], __ATOMIC_RELAXED);
}

static void hook_learn(uint32_t id, const char *name)
{
    for (unsigned row = 0; row < GP_COUNT(gp_hooks); row++)
        if (!gp_hooks[row].id && strcmp(gp_hooks[row].name, name) == 0) {
            __atomic_store_n(&x_learned[row], id, __ATOMIC_RELAXED);
            __atomic_store_n(&x_rows[id], (uint8_t)(row + 1), __ATOMIC_RELAXED);
        }
}

void gp_hook_learn_ids(const char *(*name_of)(uint32_t id))
{
    const char *name;
    for (uint32_t id = GP_IDS_KNOWN; id < GP_IDS && (name = name_of(id)) != NULL; id++)
        hook_learn(id, name);
}

void gp_dispatch_enter(struct gp_call *call)
{
    *call->slot = 0;
    gp_thread.node_type = 0;
    if (GP_UNLIKELY(gp_call_timed))
        gp_thread.call_ns = (uint32_t)gp_clock_ns();
    if (call->hook->handler->enter)
        call->hook->handler->enter(call);
}

void gp_dispatch_exit(struct gp_call *call)
{
    call->device = -1;
    /* 32 bits are enough: a call of more than four seconds is a problem of the driver, not the cost
     * of an allocation. */
    if (GP_UNLIKELY(gp_call_timed))
        gp_thread.cost = gp_wire_cost((uint32_t)gp_clock_ns() - gp_thread.call_ns);
    if (call->hook->handler->exit)
        call->hook->handler->exit(call);
    gp_thread.cost = 0;
    if (GP_UNLIKELY(!gp_call_ok(call))) {
        gp_feed_failed(call->hook->name, call->result, call->asked_bytes,
                       call->device < 0 ? gp_call_device(call) : call->device);
        if (call->result == GP_ERROR_OUT_OF_MEMORY)
            gp_feed_oom_context(call->ctx, (uint64_t)(uintptr_t)call->context);
    }
}

int gp_call_device(const struct gp_call *call)
{
    int device = gp_feed_context_device(call->ctx);
    if (GP_LIKELY(device >= 0) || !call->context || !gp_call_ask_device)
        return device;
    device = gp_call_ask_device(call->context, call->ctx);
    if (device >= 0)
        gp_feed_context_learned(call->ctx, device);
    return device;
}
