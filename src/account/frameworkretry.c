/* SPDX-License-Identifier: MIT
 *
 * frameworkretry.c: failed driver allocations of a framework's segments. The framework answers one
 * by freeing its cache and asking again, so it is a retry; only the framework can say that memory
 * is out (framework.c).
 */
#include "account/account.h"
#include "owner/owner.h"

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
 * retry. True: the failure is not the end. */
bool gp_framework_failed(int device)
{
    struct gp_account *account = device < 0 ? NULL : gp_account_of(device);
    if (!gp_framework_name() || !account || !gp_owner_here().segment)
        return false;
    if (!__atomic_exchange_n(&account->framework.x_failing, 1, __ATOMIC_RELAXED))
        __atomic_fetch_add(&account->framework.x_retries, 1, __ATOMIC_RELAXED);
    return true;
}

bool gp_framework_failed_in(int device, uint32_t ctx, uint64_t context)
{
    struct gp_account *account = device < 0 ? NULL : gp_account_of(device);
    if (!account || !__atomic_load_n(&account->framework.x_failing, __ATOMIC_RELAXED))
        return false;
    account->framework.ctx = ctx;
    account->framework.context = context;
    return true;
}
