/* SPDX-License-Identifier: MIT
 *
 * dispatch.c: the table of hooks in memory, and the way from a callback id to its row.
 */
#include "account/feed/context.h"
#include "account/feed/failed.h"
#include "account/feed/graph.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/thread.h"
#include "source/abi.h"
#include "source/cuptifind.h"
#include "source/internal.h"
#include "source/source.h"
#include <gpuprof/wire.h>
#include <stddef.h>
#include <string.h>

/* ==== the table =================================================================================================== */

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
uint8_t gp_dispatch_rows[GP_HOOK_IDS] = {
#include "source/hooks.def"
};
#undef GP_HOOK
_Static_assert(GP_COUNT(gp_hooks) < 255, "row numbers fit a byte");

/* Replaces the ids of all rows: row numbers + 1 by id.  Call it while no callback is enabled. */
static void dispatch_bind(const uint8_t bound[GP_HOOK_IDS])
{
    memcpy(gp_dispatch_rows, bound, sizeof(gp_dispatch_rows));
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

/* ==== CUPTI's callback ids ======================================================================================== */

/* The last id of CUDA 13.0. Entry points up to here that have no row are left out on purpose. */
#define GP_CUPTI_JUDGED 806u
/* So are these of CUDA 13.1 to 13.4, whose ids are not published: they hold no memory. */
static const char *const name_judged[] = {
    "cuLogicalEndpointIdReserve", "cuLogicalEndpointIdRelease", "cuLogicalEndpointCreate",
    "cuLogicalEndpointAddDevice", "cuLogicalEndpointExport",    "cuLogicalEndpointImport",
    "cuLogicalEndpointQuery",     "cuLogicalEndpointGetLimits", "cuMemGetLocationInfo",
};
/* Ids have no gaps today; a few are crossed in case that one is withdrawn. */
#define GP_CUPTI_GAP 32u

static bool name_is_memory(const char *name)
{
    static const char *const parts[] = {"Mem", "Pool", "Multicast", "Endpoint", "Ipc", "Capture"};
    if (strstr(name, "Memcpy") || strstr(name, "Memset"))
        return false;
    for (size_t i = 0; i < GP_COUNT(name_judged); i++)
        if (strcmp(name, name_judged[i]) == 0)
            return false;
    for (size_t i = 0; i < GP_COUNT(parts); i++)
        if (strstr(name, parts[i]))
            return true;
    return false;
}

static void name_strange(struct gp_wire_cupti *out, const char *name)
{
    uint32_t n = out->strange;
    if (n < GP_WIRE_STRANGE) {
        size_t length = strnlen(name, sizeof(out->strange_names[0]) - 1);
        memcpy(out->strange_names[n], name, length);
        out->strange_names[n][length] = '\0';
    }
    __atomic_store_n(&out->strange, n + 1, __ATOMIC_RELEASE);
}

/* The first pass compares each name with the row that has this id in CUDA 13.0, and the second only
 * looks for rows that are left: all 800 names against all rows would take half a millisecond. */
struct gp_name_pass {
    uint8_t bound[GP_HOOK_IDS];
    bool is_found[256]; /* by row + 1 */
    unsigned left;      /* rows without an id */
    uint32_t last;      /* the last id that has a name */
    uint32_t pulse;
};

static void name_bind(struct gp_name_pass *pass, uint32_t id, uint8_t row)
{
    pass->bound[id] = row;
    pass->left -= row && !pass->is_found[row];
    pass->is_found[row] = true;
}

static void name_first(struct gp_name_pass *pass, gp_cupti_name_fn get_name)
{
    const char *name;
    for (uint32_t id = 1; id < GP_HOOK_IDS && id <= pass->last + GP_CUPTI_GAP; id++) {
        if (get_name(GP_CUPTI_DOMAIN_DRIVER, id, &name) != GP_CUPTI_OK || !name)
            continue;
        pass->last = id;
        const struct gp_hook *hook = gp_dispatch_find(id);
        if (hook && strcmp(hook->name, name) == 0)
            name_bind(pass, id, (uint8_t)(hook - gp_hooks + 1));
        else if (strcmp(name, "cuDeviceGetCount") == 0)
            pass->pulse = id;
    }
}

static void name_second(struct gp_name_pass *pass, gp_cupti_name_fn get_name)
{
    const char *name;
    for (uint32_t id = 1; pass->left && id <= pass->last; id++) {
        if (pass->bound[id] || get_name(GP_CUPTI_DOMAIN_DRIVER, id, &name) != GP_CUPTI_OK || !name)
            continue;
        for (unsigned i = 0; i < gp_hook_count && !pass->bound[id]; i++)
            if (!pass->is_found[i + 1] && strcmp(gp_hooks[i].name, name) == 0)
                name_bind(pass, id, (uint8_t)(i + 1));
    }
}

uint32_t gp_dispatch_name_rows(gp_cupti_name_fn get_name, struct gp_wire_cupti *out)
{
    static struct gp_name_pass pass; /* one thread starts us */
    const char *name;
    memset(&pass, 0, sizeof(pass));
    pass.left = gp_hook_count;
    __atomic_store_n(&out->strange, 0, __ATOMIC_RELEASE);
    if (!get_name)
        return 0;
    name_first(&pass, get_name);
    name_second(&pass, get_name);
    for (uint32_t id = GP_CUPTI_JUDGED + 1; id <= pass.last; id++)
        if (!pass.bound[id] && get_name(GP_CUPTI_DOMAIN_DRIVER, id, &name) == GP_CUPTI_OK && name &&
            name_is_memory(name))
            name_strange(out, name);
    if (pass.left < gp_hook_count)
        dispatch_bind(pass.bound);
    return pass.pulse;
}
