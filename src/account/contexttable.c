/* SPDX-License-Identifier: MIT
 *
 * contexttable.c: the device of each context. The sources and context.c read it on the hot path,
 * and oomfacts.c when a request fails. It takes no lock.
 */
#include "account/account.h"

/* Context numbers are CUPTI's, sequential and never reused, so a small direct-mapped table is
 * enough. If a number has been replaced in it, the source asks the driver again. Entry: (number
 * << 8) | device + 1. */
#define GP_CONTEXTS 1024u
static uint64_t x_contexts[GP_CONTEXTS];

void gp_feed_context_learned(uint32_t ctx, int device)
{
    if (gp_account_of(device))
        __atomic_store_n(&x_contexts[ctx % GP_CONTEXTS], ((uint64_t)ctx << 8) | (uint64_t)(device + 1),
                         __ATOMIC_RELAXED);
}

int gp_feed_context_device(uint32_t ctx)
{
    uint64_t entry = __atomic_load_n(&x_contexts[ctx % GP_CONTEXTS], __ATOMIC_RELAXED); /* one word: no tearing */
    return entry >> 8 == ctx && entry ? (int)(entry & 255) - 1 : GP_DEVICE_UNKNOWN;
}

bool gp_context_forget(uint32_t ctx, int device)
{
    uint64_t *entry = &x_contexts[ctx % GP_CONTEXTS], old = ((uint64_t)ctx << 8) | (uint64_t)(device + 1);
    return __atomic_compare_exchange_n(entry, &old, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
