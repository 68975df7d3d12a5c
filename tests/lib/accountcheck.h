/* SPDX-License-Identifier: MIT
 *
 * accountcheck.h: the invariants of the accounts, for the end of a test (TestSuite's .fini), when no
 * call is under way and nothing was lost. The accounts have each sum twice: counters, which calls
 * move, and the records of what lives.
 */
#ifndef GP_TEST_LIB_ACCOUNTCHECK_H
#define GP_TEST_LIB_ACCOUNTCHECK_H

#include "account/internal.h"
#include "account/tap.h"
#include "base/counter.h"
#include "base/gauge.h"
#include <gpuprof/wire.h>
#include <stdio.h>
#include <stdlib.h>

struct accounts_walked {
    int64_t allocated[256], unmapped[256];
};

static inline void accounts_visit(void *arg, const struct gp_tap_block *block)
{
    struct accounts_walked *walked = arg;
    if (block->kind == GP_KIND_VMM && !block->mapped)
        walked->unmapped[block->device] += (int64_t)block->bytes;
    else if (!block->segment && !block->before && block->kind != GP_KIND_VIRTUAL)
        walked->allocated[block->device] += (int64_t)block->bytes;
}

static inline void accounts_rest(void *arg)
{
    (void)arg;
}

/* Criterion counts a crash alone after a test. */
static inline void accounts_same(const char *what, unsigned device, int64_t is, int64_t wanted)
{
    if (is == wanted)
        return;
    fprintf(stderr, "device %u: %s %lld, not %lld\n", device, what, (long long)is, (long long)wanted);
    abort();
}

static inline void accounts_check(void)
{
    static struct accounts_walked walked;
    gp_tap_blocks(GP_TAP_EVERY, &walked, accounts_visit, accounts_rest);
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++) {
        struct gp_wire_device device;
        struct gp_wire_owner_value owners[GP_WIRE_OWNERS] = {0};
        struct gp_gauge_value gauges[GP_GAUGES];
        if (!gp_tap_owned(i, &device, owners))
            continue;
        gp_counter_snapshot(gp_accounts.x_devices[i]->counter, gauges);
        /* Memory of graphs has neither records nor owners: the driver tells its sum. */
        int64_t allocated = device.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current, owned = 0;
        int64_t recorded = allocated - gauges[GP_GAUGE_GRAPH_USED].current;
        for (unsigned o = 0; o < GP_WIRE_OWNERS; o++)
            owned += owners[o].allocated_bytes;
        accounts_same("the two sums of the counters differ at gauge", i,
                      gp_counter_check(gp_accounts.x_devices[i]->counter), 0);
        accounts_same("the allocated blocks have bytes:", i, walked.allocated[i], recorded);
        accounts_same("the owners have allocated bytes:", i, owned, recorded);
        accounts_same("the call sites have bytes:", i, gp_tap_site_bytes(i, &device), allocated + walked.unmapped[i]);
    }
}

#endif
