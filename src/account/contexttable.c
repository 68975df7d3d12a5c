/* SPDX-License-Identifier: MIT
 *
 * contexttable.c: the device of each context. The sources and context.c read it on the hot path,
 * and oomfacts.c when a request fails. It takes no lock.
 */
#include "account/context.h"
#include "account/feed/context.h"
#include "account/feed/feed.h"
#include "account/internal.h"

/* Context numbers are CUPTI's, sequential and never reused, so a small direct-mapped table is
 * enough. If a number has been replaced in it, the source asks the driver again. Entry: (number
 * << 8) | device + 1, and whether it was counted. */
#define GP_CONTEXTS        1024u
#define GP_CONTEXT_COUNTED (1ull << 63)
static uint64_t x_contexts[GP_CONTEXTS];

static uint64_t context_entry(uint32_t ctx, int device)
{
    return ((uint64_t)ctx << 8) | (uint64_t)(device + 1);
}

void gp_feed_context_learned(uint32_t ctx, int device)
{
    uint64_t *entry = &x_contexts[ctx % GP_CONTEXTS], fresh = context_entry(ctx, device);
    if (gp_account_of(device) && (__atomic_load_n(entry, __ATOMIC_RELAXED) & ~GP_CONTEXT_COUNTED) != fresh)
        __atomic_store_n(entry, fresh, __ATOMIC_RELAXED);
}

bool gp_context_count(uint32_t ctx, int device)
{
    uint64_t counted = context_entry(ctx, device) | GP_CONTEXT_COUNTED;
    return __atomic_exchange_n(&x_contexts[ctx % GP_CONTEXTS], counted, __ATOMIC_RELAXED) != counted;
}

int gp_feed_context_device(uint32_t ctx)
{
    /* One word: no tearing. */
    uint64_t entry = __atomic_load_n(&x_contexts[ctx % GP_CONTEXTS], __ATOMIC_RELAXED) & ~GP_CONTEXT_COUNTED;
    return entry >> 8 == ctx && entry ? (int)(entry & 255) - 1 : GP_DEVICE_UNKNOWN;
}

bool gp_context_forget(uint32_t ctx, int device)
{
    uint64_t *entry = &x_contexts[ctx % GP_CONTEXTS], old = __atomic_load_n(entry, __ATOMIC_RELAXED);
    return (old & ~GP_CONTEXT_COUNTED) == context_entry(ctx, device) &&
           __atomic_compare_exchange_n(entry, &old, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
