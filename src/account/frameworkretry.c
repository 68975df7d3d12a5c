/* SPDX-License-Identifier: MIT
 *
 * frameworkretry.c: failed driver allocations of a framework's segments. The framework answers one
 * by freeing its cache and asking again, so it is a retry; only the framework can say that memory
 * is out (framework.c).
 */
#include "account/feed/failed.h"
#include "account/feed/framework.h"
#include "account/framework.h"
#include "account/internal.h"
#include "account/segment.h"
#include "base/compiler.h"
#include "stack/stack.h"
#include <gpuprof/wire.h>

static const char *x_name; /* of the framework; NULL: none reports */

void gp_feed_framework_start(const char *name)
{
    __atomic_store_n(&x_name, name, __ATOMIC_RELAXED);
}

const char *gp_framework_name(void)
{
    return __atomic_load_n(&x_name, __ATOMIC_RELAXED);
}

/* A failed request for a segment. The framework frees its cache and asks again, several times: one
 * retry. True: the failure is not the end. Memory of other kinds, such as that of cudaMallocAsync behind
 * PyTorch's other backend, is handed out as it is, so there the failure is the end. */
bool gp_framework_failed(int device, enum gp_wire_kind kind)
{
    struct gp_account *account = device < 0 ? NULL : gp_account_of(device);
    if (!gp_framework_name() || !account || !gp_account_is_divisible(kind) || !gp_owner_here().segment)
        return false;
    if (!__atomic_fetch_add(&account->framework.x_failing, 1, __ATOMIC_RELAXED))
        __atomic_fetch_add(&account->framework.x_retries, 1, __ATOMIC_RELAXED);
    return true;
}

/* A context of the device, in which the poller can ask the driver: the framework's own limit may refuse a request
 * without a driver call. x_ctx is 0, busy while x_context is written, or its number. */
#define GP_CTX_BUSY UINT32_MAX

void gp_feed_context_used(int device, uint32_t ctx, uint64_t context)
{
    struct gp_account *account = device < 0 || !ctx || !context ? NULL : gp_account_at(device);
    uint32_t none = 0;
    if (!account || GP_LIKELY(__atomic_load_n(&account->framework.x_ctx, __ATOMIC_RELAXED)) ||
        !__atomic_compare_exchange_n(&account->framework.x_ctx, &none, GP_CTX_BUSY, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return;
    __atomic_store_n(&account->framework.x_context, context, __ATOMIC_RELAXED);
    __atomic_store_n(&account->framework.x_ctx, ctx, __ATOMIC_RELEASE); /* [used.R] x_context; pairs with [used.A] */
}

void gp_framework_context_gone(uint32_t ctx, int device)
{
    struct gp_account *account = device < 0 || device >= (int)GP_WIRE_DEVICES
                                     ? NULL
                                     : __atomic_load_n(&gp_accounts.x_devices[device], __ATOMIC_ACQUIRE);
    if (account && ctx)
        __atomic_compare_exchange_n(&account->framework.x_ctx, &ctx, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

uint32_t gp_framework_context(const struct gp_framework *framework, uint64_t *context)
{
    uint32_t ctx = __atomic_load_n(&framework->x_ctx, __ATOMIC_ACQUIRE); /* [used.A] pairs with [used.R] */
    *context = __atomic_load_n(&framework->x_context, __ATOMIC_RELAXED);
    return ctx == GP_CTX_BUSY ? 0 : ctx;
}

bool gp_framework_failed_in(int device, uint32_t ctx, uint64_t context)
{
    struct gp_account *account = device < 0 ? NULL : gp_account_of(device);
    if (!account || !__atomic_load_n(&account->framework.x_failing, __ATOMIC_RELAXED))
        return false;
    gp_feed_context_used(device, ctx, context);
    return true;
}
