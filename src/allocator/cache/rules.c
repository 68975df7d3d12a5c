/* SPDX-License-Identifier: MIT
 *
 * rules.c: how a policy's numbers are applied. Pure functions without state, locks or allocation,
 * because the mechanism calls them on its fast path.
 */
#include "allocator/cache/policy.h"

static uint64_t policy_round_up(uint64_t bytes, uint64_t step)
{
    return step <= 1 ? bytes : (bytes + step - 1) / step * step;
}

static uint64_t policy_log2(uint64_t bytes)
{
    return 63u - (unsigned)__builtin_clzll(bytes);
}

/* PyTorch's intervals: below 2 MB, 2-4 MB, ...; the last one is unbounded. */
static uint64_t policy_divisions(const struct gp_policy *policy, uint64_t bytes)
{
    uint64_t index = policy_log2(bytes);
    index = index > 20 ? index - 20 : 0; /* 2^20: the first interval is named 1 MB */
    return policy->divisions[index < GP_POLICY_DIVISIONS ? index : GP_POLICY_DIVISIONS - 1];
}

/* Rounds up to one of `divisions` equal steps between powers of two. */
static uint64_t policy_divide(uint64_t bytes, uint64_t divisions)
{
    uint64_t step = ((uint64_t)1 << policy_log2(bytes)) >> policy_log2(divisions);
    return policy_round_up(bytes, step);
}

uint64_t gp_policy_round(const struct gp_policy *policy, uint64_t bytes)
{
    uint64_t granule = policy->granule_bytes;
    if (bytes < granule)
        return granule;
    uint64_t divisions = policy_divisions(policy, bytes);
    /* For smaller sizes a division would be smaller than the granule. */
    if (divisions > 1 && bytes > granule * divisions)
        return policy_divide(bytes, divisions);
    return policy_round_up(bytes, granule);
}

bool gp_policy_is_small(const struct gp_policy *policy, uint64_t block_bytes)
{
    return block_bytes <= policy->small_bytes;
}

uint64_t gp_policy_segment(const struct gp_policy *policy, uint64_t block_bytes)
{
    if (gp_policy_is_small(policy, block_bytes))
        return policy->small_segment_bytes;
    if (block_bytes < policy->own_segment_bytes && policy->large_segment_bytes >= block_bytes)
        return policy->large_segment_bytes;
    return policy_round_up(block_bytes, policy->segment_round_bytes);
}

bool gp_policy_may_take(const struct gp_policy *policy, uint64_t have, uint64_t want, bool growable)
{
    if (have < want)
        return false;
    /* In a growable segment the excess is always split off. */
    if (growable)
        return true;
    if (policy->large_rest_bytes == UINT64_MAX) /* never split: limits the waste to the allowed rounding */
        return have - want <= policy->max_round_bytes;
    if (want < policy->max_split_bytes)
        return have < policy->max_split_bytes;
    return have - want < policy->max_round_bytes;
}

bool gp_policy_splits(const struct gp_policy *policy, uint64_t have, uint64_t want, bool small, bool growable)
{
    uint64_t rest = have - want;
    if (small || growable)
        return rest >= policy->small_rest_bytes;
    return want < policy->max_split_bytes && rest > policy->large_rest_bytes;
}

bool gp_policy_is_oversize(const struct gp_policy *policy, uint64_t block_bytes)
{
    return block_bytes >= policy->max_split_bytes;
}
