/* SPDX-License-Identifier: MIT
 *
 * contexttable.c: the device of each context. The sources and context.c read it on the hot path,
 * and oomfacts.c when a request fails. It takes no lock.
 */
#include "account/context.h"
#include "account/feed/context.h"
#include "account/feed/feed.h"
#include "account/internal.h"

/* Entry: (number << 8) | device + 1, and whether it was counted; 0: free. A number is in one of the
 * GP_CONTEXT_PLACES entries from its own on. Numbers are sequential and never reused, and few contexts live
 * at a time, so it is nearly always in its own. An entry that was counted stays until its context ends: without it,
 * the end would not be counted. One that was only learned gives way to others, and the source asks the driver
 * again. */
#define GP_CONTEXTS        1024u
#define GP_CONTEXT_PLACES  16u
#define GP_CONTEXT_COUNTED (1ull << 63)
static uint64_t x_contexts[GP_CONTEXTS];
static uint64_t x_devices; /* a bit per device that a context has or had */

static uint64_t context_entry(uint32_t ctx, int device)
{
    return ((uint64_t)ctx << 8) | (uint64_t)(device + 1);
}

static uint64_t *context_place(uint32_t ctx, unsigned i)
{
    return &x_contexts[(ctx + i) % GP_CONTEXTS];
}

/* The entry of this number; NULL: none. *was: what was in it. */
static uint64_t *context_find(uint32_t ctx, uint64_t *was)
{
    for (unsigned i = 0; i < GP_CONTEXT_PLACES; i++) {
        uint64_t *entry = context_place(ctx, i);
        /* One word: no tearing. */
        *was = __atomic_load_n(entry, __ATOMIC_RELAXED);
        if ((*was & ~GP_CONTEXT_COUNTED) >> 8 == ctx && *was)
            return entry;
    }
    return NULL;
}

/* Relaxed, as the entries are: who uses a stream of a context has learned of it after the context was made. */
static void context_device(int device)
{
    __atomic_fetch_or(&x_devices, 1ull << (unsigned)device % 64, __ATOMIC_RELAXED);
}

/* Puts it into a free entry, else into one whose context was not counted. False: there is none. */
static bool context_put(uint32_t ctx, uint64_t fresh)
{
    for (unsigned i = 0; i < 2 * GP_CONTEXT_PLACES; i++) {
        uint64_t *entry = context_place(ctx, i % GP_CONTEXT_PLACES), was = __atomic_load_n(entry, __ATOMIC_RELAXED);
        bool may_take = !was || (i >= GP_CONTEXT_PLACES && !(was & GP_CONTEXT_COUNTED));
        if (may_take && __atomic_compare_exchange_n(entry, &was, fresh, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return true;
    }
    return false;
}

void gp_feed_context_learned(uint32_t ctx, int device)
{
    uint64_t was;
    if (!gp_account_of(device))
        return;
    context_device(device);
    if (!context_find(ctx, &was))
        context_put(ctx, context_entry(ctx, device));
}

bool gp_context_count(uint32_t ctx, int device)
{
    context_device(device);
    uint64_t was, *entry = context_find(ctx, &was), counted = context_entry(ctx, device) | GP_CONTEXT_COUNTED;
    /* A thread that learned it while another counted it may have put it in front of the counted one. */
    for (unsigned i = 0; i < GP_CONTEXT_PLACES; i++)
        if (__atomic_load_n(context_place(ctx, i), __ATOMIC_RELAXED) == counted)
            return false;
    if (!entry)
        return context_put(ctx, counted);
    return !(was & GP_CONTEXT_COUNTED) &&
           __atomic_compare_exchange_n(entry, &was, counted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

int gp_feed_context_device(uint32_t ctx)
{
    uint64_t was;
    return ctx && context_find(ctx, &was) ? (int)(was & 255) - 1 : GP_DEVICE_UNKNOWN;
}

bool gp_feed_context_is_only(int device)
{
    return __atomic_load_n(&x_devices, __ATOMIC_RELAXED) == 1ull << (unsigned)device % 64;
}

bool gp_context_forget(uint32_t ctx, int device)
{
    uint64_t was, *entry;
    bool is_counted = false;
    /* A thread that learned it while another counted it may have put it a second time. */
    while ((entry = context_find(ctx, &was)) != NULL && (was & ~GP_CONTEXT_COUNTED) == context_entry(ctx, device))
        if (__atomic_compare_exchange_n(entry, &was, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            is_counted |= (was & GP_CONTEXT_COUNTED) != 0;
    return is_counted;
}
