/* SPDX-License-Identifier: MIT
 *
 * answer.c: what follows from the needs of a run's processes: see model.h.
 */
#include <dryrun/model.h>

#include <stddef.h>

const struct gp_need *gp_dryrun_worst(const struct gp_dryrun_run *run)
{
    const struct gp_need *worst = NULL;
    for (uint32_t i = 0; i < run->need_count; i++)
        if (!worst || run->needs[i].needed_bytes > worst->needed_bytes)
            worst = &run->needs[i];
    return worst;
}

const struct gp_need *gp_dryrun_broken(const struct gp_dryrun_run *run, bool over)
{
    for (uint32_t i = 0; i < run->need_count; i++)
        if (over ? run->needs[i].over : run->needs[i].oom)
            return &run->needs[i];
    return NULL;
}

int64_t gp_dryrun_refused(const struct gp_dryrun_run *run)
{
    int64_t count = run->contextless;
    for (uint32_t i = 0; i < run->need_count; i++)
        for (uint32_t k = 0; k < run->needs[i].refused_count; k++)
            count += run->needs[i].refused[k].count;
    return count;
}
