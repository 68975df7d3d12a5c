/* SPDX-License-Identifier: MIT
 *
 * answer.c: what follows from the needs of a run's processes: see model.h.
 */
#include <dryrun/model.h>

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

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

int64_t gp_need_idle(const struct gp_need *need, int64_t *rounding)
{
    int64_t rest = need->needed_bytes - need->context_bytes - need->allocated_peak_bytes;
    int64_t cache = need->reserved_peak_bytes - need->allocated_peak_bytes;
    rest = rest > 0 ? rest : 0;
    cache = cache < 0 ? 0 : cache < rest ? cache : rest;
    *rounding = rest - cache;
    return cache;
}

double gp_dryrun_batch_more(const struct gp_dryrun_answer *answer)
{
    int64_t needed[2] = {-1, -1};
    for (uint32_t i = 0; i < answer->batch_count; i++)
        for (unsigned k = 0; k < 2; k++)
            if (answer->batches[i].size == answer->batch_sizes[k] && answer->batches[i].verdict == GP_DRYRUN_FITS)
                needed[k] = answer->batches[i].needed_bytes;
    if (needed[0] < 0 || needed[1] < 0)
        return 0;
    return (double)(needed[1] - needed[0]) / (double)(answer->batch_sizes[1] - answer->batch_sizes[0]);
}

const struct gp_dryrun_batch *gp_dryrun_batch_largest(const struct gp_dryrun_answer *answer)
{
    const struct gp_dryrun_batch *largest = NULL;
    for (uint32_t i = 0; i < answer->batch_count; i++)
        if (answer->batches[i].verdict == GP_DRYRUN_FITS)
            largest = &answer->batches[i];
    return largest;
}

bool gp_dryrun_cache_add(struct gp_dryrun_run *run, const struct gp_dryrun_cache *cache)
{
    for (uint32_t i = 0; i < run->cache_count; i++) {
        struct gp_dryrun_cache *its = &run->caches[i];
        if (its->tokens == cache->tokens && its->request_tokens == cache->request_tokens &&
            its->hundredths == cache->hundredths && strcmp(its->server, cache->server) == 0) {
            its->count += cache->count;
            return true;
        }
    }
    struct gp_dryrun_cache *grown = realloc(run->caches, (run->cache_count + 1ul) * sizeof(*grown));
    if (!grown)
        return false;
    run->caches = grown;
    run->caches[run->cache_count++] = *cache;
    return true;
}
