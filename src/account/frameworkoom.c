/* SPDX-License-Identifier: MIT
 *
 * frameworkoom.c: what an out-of-memory report says about the allocator of a framework, whoever asked: the memory that
 * it holds and does not use, which segments are of private pools, and the history of its requests, which the poller
 * has replayed with other settings (allocator/replay.c).
 *
 * A private pool is one of a CUDA graph or a MemPool: its memory serves only requests of that pool, and emptying the
 * cache leaves it. The framework does not report pools. A segment is known to be a pool's if it was made during a
 * capture, or had no block when the framework emptied its cache and is still there.
 */
#include "account/account.h"
#include "base/kept.h"
#include <string.h>
#include <sys/mman.h>

static struct gp_framework_conf x_conf; /* written before the first block, read after it */

void gp_feed_framework_conf(const struct gp_framework_conf *conf)
{
    x_conf = *conf;
}

/* ---- the history -------------------------------------------------------------------------------------------------- */

/* Under the framework's lock of the device, as the next two. */
static void history_put(struct gp_framework *framework, uint64_t entry)
{
    uint32_t count = framework->x_history_count;
    if (GP_UNLIKELY(count == GP_HISTORY_MOST || !framework->history)) {
        framework->history_broken = true;
        return;
    }
    framework->history[count] = entry;
    __atomic_store_n(&framework->x_history_count, count + 1,
                     __ATOMIC_RELEASE); /* [history.R] the entry; pairs with [history.A] */
}

void gp_framework_history_begin(struct gp_framework *framework)
{
    /* Its pages are touched as it grows. */
    framework->history = gp_kept_map(GP_HISTORY_MOST * sizeof(uint64_t), MAP_NORESERVE);
}

uint32_t gp_framework_history_alloc(struct gp_framework *framework, uint64_t bytes)
{
    if (GP_UNLIKELY(framework->history_broken))
        return 0;
    history_put(framework, bytes << 2 | GP_HISTORY_ALLOC);
    return ++framework->history_allocs;
}

void gp_framework_history_free(struct gp_framework *framework, uint32_t number)
{
    if (GP_UNLIKELY(framework->history_broken))
        return;
    if (number)
        history_put(framework, (uint64_t)(number - 1) << 2 | GP_HISTORY_FREE);
    else
        framework->history_broken = true;
}

/* While the framework answers a failure, it empties its cache as a replay does, too. */
static void history_trim(struct gp_framework *framework)
{
    uint32_t count = framework->x_history_count;
    if (!framework->history_broken && count && !__atomic_load_n(&framework->x_failing, __ATOMIC_RELAXED) &&
        framework->history[count - 1] != GP_HISTORY_TRIM)
        history_put(framework, GP_HISTORY_TRIM);
}

/* ---- private pools ------------------------------------------------------------------------------------------------ */

void gp_framework_gave_back(struct gp_framework *framework)
{
    history_trim(framework);
    __atomic_store_n(&framework->x_gave_back, 1, __ATOMIC_RELAXED);
}

static bool segment_private(struct gp_record *record, void *arg)
{
    struct gp_account *account = gp_account_of(record->device);
    (void)arg;
    if (account && !(record->flags & GP_FLAG_PRIVATE))
        __atomic_fetch_add(&account->framework.x_private_bytes, (int64_t)record->bytes, __ATOMIC_RELAXED);
    record->flags |= GP_FLAG_PRIVATE;
    return false;
}

static void segment_survived(uint64_t address, uint64_t bytes)
{
    (void)bytes;
    gp_map_update(gp_accounts.blocks, GP_SPACE_DEVICE, address, segment_private, NULL);
}

static bool framework_has_no_pools(void)
{
    return x_conf.pools && x_conf.pools() == 0;
}

/* With these settings the framework also gives back single segments. */
static bool framework_gives_all(void)
{
    return !strstr(x_conf.text, "max_split_size_mb") && !strstr(x_conf.text, "garbage_collection_threshold");
}

GP_COLD void gp_framework_look_at_survivors(struct gp_framework *framework, int device)
{
    struct gp_framework_idle idle;
    __atomic_store_n(&framework->x_gave_back, 0, __ATOMIC_RELAXED);
    if (!framework_has_no_pools() && framework_gives_all())
        gp_framework_idle(device, &idle, segment_survived);
}

/* ---- the report --------------------------------------------------------------------------------------------------- */

static int64_t number(uint64_t value)
{
    return value > INT64_MAX / 8 ? INT64_MAX / 8 : (int64_t)value;
}

/* failures: the driver allocations of this request that failed; -1: the request is not the framework's. */
void gp_framework_oom_facts(struct gp_wire_oom *report, struct gp_wire_oom_framework *out, int failures)
{
    struct gp_account *account =
        report->device < 0 || report->device >= (int)GP_WIRE_GPUS ? NULL : gp_account_of(report->device);
    struct gp_framework_idle idle;
    if (!account || gp_accounts.setup.late || !__atomic_load_n(&account->framework.x_events, __ATOMIC_RELAXED))
        return;
    if (failures < 0)
        out->flags |= GP_OOM_BESIDE;
    else if (failures < 2) /* after the first failure it gives back what it can and asks again */
        out->flags |= failures ? GP_OOM_KEPT : GP_OOM_REFUSED;
    if (framework_has_no_pools())
        out->flags = (out->flags | GP_OOM_NO_POOLS) & ~GP_OOM_KEPT;
    strncpy(report->policy, gp_framework_name() ? gp_framework_name() : "", sizeof(report->policy) - 1);
    memcpy(report->conf, x_conf.text, sizeof(report->conf)); /* of the same size, terminated */
    if (!gp_framework_idle(report->device, &idle, NULL) || idle.strange_blocks)
        return;
    out->flags |= GP_OOM_FRAMEWORK;
    out->segment_bytes = number(idle.segment_bytes);
    out->blocks = number(idle.blocks);
    report->idle_bytes = number(idle.idle_bytes);
    report->idle_pieces = number(idle.pieces);
    report->largest_idle_bytes = number(idle.largest_bytes);
    report->releasable_bytes = number(idle.whole_bytes);
    out->private_bytes = number(idle.private_bytes);
    report->pinning_blocks = number(idle.pinning_blocks);
}

bool gp_framework_replay_begin(const struct gp_wire_oom *report, const struct gp_wire_oom_framework *part,
                               struct gp_feed_replay *out)
{
    struct gp_account *account = part->flags & GP_OOM_FRAMEWORK ? gp_account_of(report->device) : NULL;
    if (!account || account->framework.history_broken || !account->framework.history || part->flags & GP_OOM_KEPT)
        return false;
    const struct gp_framework *framework = &account->framework;
    /* [history.A] another thread than the framework's may read it; pairs with [history.R]. */
    uint32_t count = __atomic_load_n(&framework->x_history_count, __ATOMIC_ACQUIRE);
    *out = (struct gp_feed_replay){
        .history = framework->history,
        .count = count,
        .allocs = framework->history_allocs,
        .flags = part->flags,
        .asked_bytes = report->asked_bytes,
        .reserved_bytes = (uint64_t)part->segment_bytes,
        .peak_bytes = (uint64_t)__atomic_load_n(&framework->x_segment_peak, __ATOMIC_RELAXED),
        .others_bytes =
            report->reserved_bytes > part->segment_bytes ? (uint64_t)(report->reserved_bytes - part->segment_bytes) : 0,
        .conf = x_conf.text,
    };
    return true;
}
