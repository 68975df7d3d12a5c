/* SPDX-License-Identifier: MIT
 * cached.c: what our own cache tells beside the gauges that it moves by itself.  Called by shim/. */
#include "account/account.h"

struct gp_counter *gp_feed_cache_gauges(int device)
{
    struct gp_account *account = gp_account_of(device);
    return account ? account->counter : NULL;
}

void gp_feed_cache_count(int device, enum gp_feed_count what, uint64_t n)
{
    struct gp_account *account = gp_account_of(device);
    if (account)
        __atomic_fetch_add(&account->x_counts[what], n, __ATOMIC_RELAXED); /* a count */
}

void gp_feed_cache_split_limit(int device, int64_t bytes)
{
    struct gp_account *account = gp_account_of(device);
    if (account)
        __atomic_store_n(&account->x_split_limit, bytes, __ATOMIC_RELAXED);
}

void gp_feed_cache_event(enum gp_wire_event_type type, int device, uint64_t address, uint64_t bytes,
                         uint64_t requested_bytes, uint64_t stream)
{
    struct gp_wire_event event = {
        .type = (uint8_t)type,
        .kind = GP_KIND_LINEAR, /* what the program asked for; where the cache keeps it is a segment event */
        .device = device < 0 ? 255 : (uint8_t)device,
    };
    event.address = address;
    event.bytes = bytes;
    event.requested_bytes = requested_bytes;
    event.stream = stream;
    gp_event_write(&event);
}
