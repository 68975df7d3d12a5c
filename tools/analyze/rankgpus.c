/* SPDX-License-Identifier: MIT
 * rankgpus.c: finds the GPUs on which several ranks of a job hold memory (analyze.h).  Called by ranks.c. */
#include <analyze/ranks.h>
#include <base/numbers.h>
#include <read/common/hash.h>

#include <stdlib.h>
#include <string.h>

struct ranks_use { /* of a GPU by a rank */
    struct gp_job_rank *rank;
    struct gp_rank_gpu *gpu;
};

static uint64_t use_begin(const struct ranks_use *use)
{
    return use->rank->begin_ns + use->rank->shift_ns;
}

static int use_gpu_order(const struct ranks_use *a, const struct ranks_use *b)
{
    int hosts = strcmp(a->rank->host, b->rank->host);
    return hosts ? hosts : strcmp(a->gpu->uuid, b->gpu->uuid);
}

static int use_order(const void *one, const void *other)
{
    const struct ranks_use *a = one, *b = other;
    int gpus = use_gpu_order(a, b);
    return gpus ? gpus : GP_ORDER(use_begin(a), use_begin(b));
}

/* The uses from here on that are of one GPU, each of which begins before one that came before it ends: runs that
 * came one after the other did not share the GPU. */
static uint32_t uses_together(const struct ranks_use *uses, uint32_t count)
{
    uint32_t n = 0;
    for (uint64_t end = 0; n < count; n++) {
        if (n && (use_gpu_order(uses, &uses[n]) != 0 || use_begin(&uses[n]) >= end))
            break;
        GP_RAISE(end, uses[n].rank->end_ns + uses[n].rank->shift_ns);
    }
    return n;
}

bool gp_ranks_shared(struct gp_ranks *all)
{
    uint32_t most = 1, count = 0;
    for (uint32_t i = 0; i < all->count; i++)
        most += all->ranks[i].gpus ? all->ranks[i].device_count : 0;
    struct ranks_use *uses = calloc(most, sizeof(*uses));
    for (uint32_t i = 0; uses && i < all->count; i++) {
        struct gp_job_rank *rank = &all->ranks[i];
        for (uint32_t g = 0; rank->gpus && g < rank->device_count; g++)
            if (rank->host[0] && rank->gpus[g].uuid[0])
                uses[count++] = (struct ranks_use){rank, &rank->gpus[g]};
    }
    if (count)
        qsort(uses, count, sizeof(*uses), use_order);
    for (uint32_t i = 0, n; i < count; i += n) {
        int64_t reserved = 0;
        n = uses_together(&uses[i], count - i);
        all->shared_count += n > 1;
        for (uint32_t k = i; n > 1 && k < i + n; k++)
            reserved += uses[k].gpu->reserved_peak_bytes;
        for (uint32_t k = i; n > 1 && k < i + n; k++) {
            struct gp_job_rank *rank = uses[k].rank;
            uses[k].gpu->shared = all->shared_count;
            if (uses[k].gpu->own && rank->total_bytes > 0)
                rank->headroom_bytes = rank->total_bytes > reserved ? rank->total_bytes - reserved : 0;
        }
    }
    free(uses);
    return uses;
}

/* Whether this one rather than `was` is the rank that is there by mistake: one that has another GPU, and of
 * these the one that holds most. */
static bool share_is_worse(const struct gp_job_rank *rank, const struct gp_rank_gpu *gpu,
                           const struct gp_rank_share *was)
{
    if (!was->rank || (rank->device_count > 1) != (was->rank->device_count > 1))
        return !was->rank || rank->device_count > 1;
    if (gpu->own != was->gpu->own && rank->device_count > 1)
        return !gpu->own;
    return gpu->peak_bytes > was->gpu->peak_bytes;
}

struct gp_rank_share gp_ranks_share(const struct gp_ranks *all, uint32_t number)
{
    struct gp_rank_share share = {0};
    for (unsigned pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < all->count; i++) {
            const struct gp_job_rank *rank = &all->ranks[i];
            for (uint32_t g = 0; rank->gpus && g < rank->device_count; g++) {
                const struct gp_rank_gpu *gpu = &rank->gpus[g];
                if (gpu->shared != number)
                    continue;
                if (pass && gpu != share.gpu && (!share.other_gpu || gpu->peak_bytes > share.other_gpu->peak_bytes)) {
                    share.other = rank;
                    share.other_gpu = gpu;
                }
                if (pass)
                    continue;
                share.ranks++;
                share.strays += rank->device_count > 1;
                share.together_bytes += gpu->peak_bytes;
                if (share_is_worse(rank, gpu, &share)) {
                    share.rank = rank;
                    share.gpu = gpu;
                }
            }
        }
    }
    return share;
}
