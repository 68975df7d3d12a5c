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

/* Row number + 1 by callback id, at first with the ids of CUDA 13.0; rows that are newer have none.
 * The source may replace it before it enables a callback. */
#define GP_HOOK(_id, _name, _handler, ...) GP_ROW_##_name,
enum {
#include "source/hooks.def"
};
#undef GP_HOOK
#define GP_HOOK_NAMED(_name, _handler, ...)
#define GP_HOOK(_id, _name, _handler, ...) [_id] = GP_ROW_##_name + 1,
static uint8_t rows[GP_HOOK_IDS] = {
#include "source/hooks.def"
};
#undef GP_HOOK
_Static_assert(GP_COUNT(gp_hooks) < 255, "row numbers fit a byte");

bool gp_call_timed;
int (*gp_call_ask_device)(void *context, uint32_t ctx);
uint32_t (*gp_call_ask_number)(void *context);
uint32_t gp_call_slots[GP_CALL_SLOTS];
void (*gp_call_note_context)(void *context, uint32_t number);
void (*gp_call_note_primary)(int device, void *context, uint32_t number);
uint32_t (*gp_call_table_number)(void *context, int device);

const struct gp_hook *gp_dispatch_find(uint32_t id)
{
    return id < GP_HOOK_IDS && rows[id] ? &gp_hooks[rows[id] - 1] : NULL;
}

uint8_t gp_dispatch_row(const struct gp_hook *hook)
{
    return (uint8_t)(hook - gp_hooks + 1);
}

void gp_dispatch_bind(const uint8_t bound[GP_HOOK_IDS])
{
    memcpy(rows, bound, sizeof(rows));
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
        int device = call->device < 0 ? gp_call_device(call) : call->device;
        if (call->result == GP_CU_CAPTURE_UNSUPPORTED)
            gp_feed_capture_forbidden();
        gp_feed_failed(call->hook->name, call->result, call->asked_bytes, device, call->asked_kind);
        if (call->result == GP_ERROR_OUT_OF_MEMORY)
            gp_feed_oom_context(call->ctx, (uint64_t)(uintptr_t)call->context);
    } else if (call->asked_kind != GP_KIND_NONE) {
        gp_feed_context_used(call->device, call->ctx, (uint64_t)(uintptr_t)call->context);
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
