/* SPDX-License-Identifier: MIT
 *
 * cached.c: counts and events of our own cache. The cache moves the gauges itself. Called by
 * allocator/.
 */
#include "account/event.h"
#include "account/feed/cache.h"
#include "account/feed/feed.h"
#include "account/internal.h"
#include "base/compiler.h"
#include "base/counter.h"
#include "base/thread.h"
#include "stack/stack.h"
#include <gpuprof/wire.h>

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

bool gp_feed_cache_wants_time(void)
{
    return gp_event_heard() || gp_site_on();
}

bool gp_feed_cache_wants_block(uint32_t site)
{
    return site || gp_event_heard() || gp_site_is_partial();
}

/* The cache outlives the session (gp_thread_enter_late), whose contents are final by then. */
void gp_feed_cache_event(const struct gp_feed_event *fed)
{
    bool block = fed->type == GP_EVENT_ALLOC || fed->type == GP_EVENT_FREE;
    if (GP_UNLIKELY(!gp_thread_life_on()))
        return;
    struct gp_wire_event event = {
        .time_ns = fed->time_ns,
        .type = (uint8_t)fed->type,
        .kind = GP_KIND_LINEAR, /* the bytes that the program requested; where the cache puts them is a segment event */
        .device = fed->device < 0 ? 255 : (uint8_t)fed->device,
        .site = fed->site,
    };
    event.address = fed->address;
    event.bytes = fed->bytes;
    event.requested_bytes = fed->requested_bytes;
    event.stream = fed->stream;
    if (block)
        gp_event_write_if_heard(&event);
    else
        gp_event_write(&event);
}
