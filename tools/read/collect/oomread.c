/* SPDX-License-Identifier: MIT
 * oomread.c: see oomread.h. */
#include <read/collect/oomread.h>

#include <base/text.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define GP_OOM_FLAGS (GP_OOM_CACHE | GP_OOM_DRIVER | GP_OOM_PENDING | GP_OOM_PARTIAL)
#define GP_OOM_FRAMEWORK_FLAGS                                                                                         \
    (GP_OOM_FRAMEWORK | GP_OOM_REFUSED | GP_OOM_KEPT | GP_OOM_NO_POOLS | GP_OOM_BESIDE | GP_OOM_REPLAYED)

/* No machine has 2^60 bytes: sums stay in range. */
#define GP_OOM_MOST (1ll << 60)

static bool framework_good(const struct gp_wire_oom_framework *framework)
{
    const int64_t numbers[] = {framework->segment_bytes, framework->blocks, framework->private_bytes,
                               framework->split_bytes};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (numbers[i] < -1 || numbers[i] > GP_OOM_MOST)
            return false;
    return !(framework->flags & ~GP_OOM_FRAMEWORK_FLAGS);
}

static bool oom_numbers_good(const struct gp_wire_oom *oom)
{
    const int64_t numbers[] = {
        oom->free_bytes,          oom->total_bytes,          oom->reserved_bytes,   oom->allocated_bytes,
        oom->pool_reserved_bytes, oom->graph_reserved_bytes, oom->graph_used_bytes, oom->limit_bytes,
        oom->idle_bytes,          oom->largest_idle_bytes,   oom->releasable_bytes, oom->waiting_bytes,
        oom->idle_pieces,         oom->pinning_blocks,       oom->rest_bytes,       oom->rest_count};
    const int64_t most = GP_OOM_MOST;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (numbers[i] < -1 || numbers[i] > most)
            return false;
    for (unsigned i = 0; i < GP_KINDS; i++)
        if (oom->kinds[i] < -1 || oom->kinds[i] > most)
            return false;
    return true;
}

static const char *oom_wrong(const struct gp_wire_oom *oom)
{
    if (oom->count == 0 || oom->flags & ~GP_OOM_FLAGS || oom->error == 0)
        return "its head is invalid";
    if (oom->device < -1 || oom->device > (int32_t)GP_WIRE_HOST)
        return "device out of range";
    if (oom->holder_count > GP_OOM_HOLDERS)
        return "too many holders";
    for (uint32_t i = 0; i < oom->holder_count; i++)
        if (oom->holders[i].kind == GP_KIND_NONE || oom->holders[i].kind >= GP_KINDS)
            return "a holder has an unknown kind";
    if (!oom_numbers_good(oom))
        return "a number is negative or too large";
    return NULL;
}

int gp_oom_take(const struct gp_wire_oom *oom, const struct gp_wire_oom_framework *framework,
                struct gp_process *process)
{
    memset(&process->oom, 0, sizeof(process->oom));
    memset(&process->oom_framework, 0, sizeof(process->oom_framework));
    if (oom->seq == 0)
        return 0;
    const char *wrong = oom_wrong(oom);
    if (!wrong && !framework_good(framework))
        wrong = "its part about a framework is invalid";
    if (wrong) {
        snprintf(process->problem, sizeof(process->problem), "out-of-memory report: %s", wrong);
        return -EPROTO;
    }
    process->oom = *oom;
    process->oom_framework = *framework;
    gp_text_clean(process->oom.api, sizeof(process->oom.api), oom->api, sizeof(oom->api));
    gp_text_clean(process->oom.policy, sizeof(process->oom.policy), oom->policy, sizeof(oom->policy));
    gp_text_clean(process->oom.conf, sizeof(process->oom.conf), oom->conf, sizeof(oom->conf));
    return 0;
}
