/* SPDX-License-Identifier: MIT
 *
 * test_oom_framework.c: the page of a failure where PyTorch's own allocator is in use: which advice is sure, which is
 * denied and which is not known, and what the page says about idle memory. tests/real/torch_oom.py puts the advice to
 * the proof with PyTorch.
 */
#include <oom/oom.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define MIB          (1ll << 20)
#define BIT(_advice) (1u << GP_ADVICE_##_advice)

static struct gp_wire_oom oom;
static struct gp_wire_oom_framework framework;

/* 1200 MiB are asked for, 1044 are free, and 970 idle beside a block of 30. */
static void fragmented(void)
{
    oom = (struct gp_wire_oom){.seq = 2,
                               .count = 1,
                               .api = "PyTorch's allocator",
                               .error = 2,
                               .flags = GP_OOM_DRIVER,
                               .asked_bytes = 1200 * MIB,
                               .free_bytes = 1044 * MIB,
                               .total_bytes = 2048 * MIB,
                               .reserved_bytes = 1000 * MIB,
                               .allocated_bytes = 30 * MIB,
                               .idle_bytes = 970 * MIB,
                               .idle_pieces = 1,
                               .largest_idle_bytes = 970 * MIB,
                               .pinning_blocks = 1,
                               .policy = "pytorch"};
    framework = (struct gp_wire_oom_framework){
        .flags = GP_OOM_FRAMEWORK | GP_OOM_NO_POOLS, .segment_bytes = 1000 * MIB, .blocks = 1, .split_bytes = -1};
}

static struct gp_oom_advised advised(void)
{
    const struct gp_oom_facts facts = {.oom = &oom, .framework = &framework, .total_bytes = -1, .untracked_bytes = 0};
    return gp_oom_advise(&facts);
}

#define ADVISED(_helps, _unknown, _fails)                                                                              \
    do {                                                                                                               \
        struct gp_oom_advised is = advised();                                                                          \
        cr_expect(is.helps == (_helps) && is.unknown == (_unknown) && is.fails == (_fails), "%x %x %x", is.helps,      \
                  is.unknown, is.fails);                                                                               \
    } while (0)

static void expect_page(const char *words, bool there)
{
    char page[GP_OOM_PAGE_BYTES], flat[GP_OOM_PAGE_BYTES];
    const struct gp_oom_facts facts = {.oom = &oom, .framework = &framework, .total_bytes = -1, .untracked_bytes = 0};
    size_t used = 0;
    gp_oom_page(page, sizeof(page), &facts);
    for (const char *at = page; *at; at++)
        if (!((*at == ' ' || *at == '\n') && used && flat[used - 1] == ' '))
            flat[used++] = *at == '\n' ? ' ' : *at;
    flat[used] = '\0';
    cr_expect_eq(strstr(flat, words) != NULL, there, "'%s' in:\n%s", words, page);
}

static void replayed(unsigned helps, unsigned fails)
{
    fragmented();
    framework.flags |= GP_OOM_REPLAYED;
    framework.helps = helps;
    framework.fails = fails;
}

Test(oom_framework, what_is_not_replayed_is_not_known)
{
    fragmented();
    ADVISED(BIT(LESS), BIT(TORCH_EXPANDABLE), 0);
    expect_page("expandable_segments:True may help", true);
    expect_page("no setting would have helped", false);
    expect_page("970 MiB idle in 1 piece, largest 970 MiB, beside 1 live block in the same segments", true);
    strcpy(oom.conf, "expandable_segments:True");
    ADVISED(BIT(LESS), 0, 0);
    fragmented();
    oom.flags = 0, oom.free_bytes = -1; /* the driver was not asked */
    ADVISED(BIT(LESS), BIT(TORCH_EXPANDABLE), 0);
}

Test(oom_framework, replays_decide)
{
    replayed(1u << GP_OOM_TRY_EXPANDABLE | 1u << GP_OOM_TRY_SPLIT, 0);
    framework.split_bytes = 600 * MIB;
    ADVISED(BIT(TORCH_EXPANDABLE) | BIT(TORCH_SPLIT), 0, 0);
    expect_page("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (in newer PyTorch also", true);
    expect_page("max_split_size_mb:600", true);
    replayed(0, 1u << GP_OOM_TRY_EXPANDABLE);
    ADVISED(BIT(LESS), 0, BIT(TORCH_EXPANDABLE));
    expect_page("free 156 MiB more, or ask for less: expandable_segments:True would not have helped", true);
    replayed(0, 0);
    ADVISED(BIT(LESS), BIT(TORCH_EXPANDABLE), 0);
}

/* Blocks that were not split may each be a MiB larger than what was asked for: that is not advised, and not denied. */
Test(oom_framework, too_little_is_too_little_in_any_order)
{
    fragmented();
    oom.asked_bytes = (uint64_t)((1044 + 970) * MIB);
    ADVISED(BIT(LESS), BIT(TORCH_EXPANDABLE), 0);
    oom.asked_bytes++;
    ADVISED(BIT(LESS), 0, 0);
    expect_page("expandable_segments", false);
    expect_page("no setting would have helped", false);
    oom.asked_bytes = (uint64_t)((1044 + 970 + 1) * MIB);
    ADVISED(BIT(LESS), 0, 0);
    framework.flags |= GP_OOM_REPLAYED; /* a replay has seen it */
    framework.helps = 1u << GP_OOM_TRY_EXPANDABLE;
    ADVISED(BIT(TORCH_EXPANDABLE), 0, 0);
    framework.flags &= ~GP_OOM_REPLAYED;
    oom.asked_bytes++;
    ADVISED(BIT(LESS), 0, BIT(TORCH_EXPANDABLE));
    expect_page("no setting would have helped", true);
}

/* A request of 5 MiB takes a segment of 20. */
Test(oom_framework, a_segment_has_to_fit)
{
    fragmented();
    oom.idle_bytes = oom.idle_pieces = 0;
    oom.asked_bytes = 5 * MIB;
    oom.free_bytes = 8 * MIB;
    oom.reserved_bytes = 2040 * MIB; /* others hold nothing */
    ADVISED(BIT(LESS), 0, 0);
    expect_page("free 12 MiB more", true);
    oom.free_bytes = 20 * MIB;
    ADVISED(BIT(AGAIN), 0, 0);
}

Test(oom_framework, its_own_limit)
{
    replayed(1u << GP_OOM_TRY_FRACTION, 1u << GP_OOM_TRY_EXPANDABLE);
    framework.flags |= GP_OOM_REFUSED;
    oom.free_bytes = 2000 * MIB;
    ADVISED(BIT(FRACTION), 0, BIT(TORCH_EXPANDABLE));
    expect_page(
        "limit PyTorch's own (set_per_process_memory_fraction) refused this, before the driver was asked: it is "
        "at least 1000 MiB and less than 2.148 GiB",
        true);
    expect_page("try again", false);
    fragmented();
    framework.flags |= GP_OOM_REFUSED;
    ADVISED(BIT(LESS), BIT(FRACTION) | BIT(TORCH_EXPANDABLE), 0);
    replayed(0, 1u << GP_OOM_TRY_FRACTION | 1u << GP_OOM_TRY_EXPANDABLE);
    framework.flags |= GP_OOM_REFUSED;
    ADVISED(BIT(LESS), 0, BIT(FRACTION) | BIT(TORCH_EXPANDABLE));
}

static void beside(void)
{
    fragmented();
    framework.flags |= GP_OOM_BESIDE;
    framework.blocks = 0;
    oom.releasable_bytes = 970 * MIB;
}

Test(oom_framework, another_library_asks)
{
    beside();
    ADVISED(BIT(EMPTY), BIT(TORCH_EXPANDABLE) | BIT(LESS_CACHE), 0);
    expect_page("torch.cuda.empty_cache() before it: PyTorch gives 970 MiB back", true);
    expect_page("free 156 MiB more", false);
    framework.flags &= ~GP_OOM_NO_POOLS; /* it may have private pools */
    ADVISED(BIT(LESS), BIT(EMPTY) | BIT(TORCH_EXPANDABLE) | BIT(LESS_CACHE), 0);
    expect_page("up to 970 MiB back; what CUDA graphs and MemPools hold of it stays", true);
    expect_page("or held by CUDA graphs and MemPools", true);
    framework.private_bytes = 900 * MIB;
    ADVISED(BIT(LESS), BIT(TORCH_EXPANDABLE) | BIT(LESS_CACHE), BIT(EMPTY));
    expect_page("900 MiB of it is in segments of CUDA graphs and MemPools, and stays there", true);
    beside();
    oom.releasable_bytes = 155 * MIB;
    ADVISED(BIT(LESS), BIT(TORCH_EXPANDABLE) | BIT(LESS_CACHE), BIT(EMPTY));
    beside();
    framework.flags |= GP_OOM_REPLAYED;
    framework.helps = 1u << GP_OOM_TRY_FRACTION;
    framework.fails = 1u << GP_OOM_TRY_EXPANDABLE;
    ADVISED(BIT(EMPTY) | BIT(LESS_CACHE), 0, BIT(TORCH_EXPANDABLE));
    expect_page("set_per_process_memory_fraction(0.412)", true); /* 844 of 2048 MiB */
}

Test(oom_framework, a_private_pool_asks)
{
    fragmented();
    framework.flags = GP_OOM_FRAMEWORK | GP_OOM_KEPT;
    framework.blocks = 0;
    oom.releasable_bytes = 970 * MIB;
    ADVISED(BIT(LESS), BIT(EMPTY) | BIT(TORCH_EXPANDABLE), 0);
    expect_page("PyTorch did not give it back, as it asked for a CUDA graph or a MemPool", true);
    oom.releasable_bytes = 100 * MIB;
    ADVISED(BIT(LESS), BIT(TORCH_EXPANDABLE), BIT(EMPTY));
}

/* PyTorch emptied its cache before it failed, so what is left without a block is not its cache. */
Test(oom_framework, what_an_emptied_cache_leaves_is_of_pools)
{
    fragmented();
    framework.flags = GP_OOM_FRAMEWORK;
    oom.releasable_bytes = 900 * MIB;
    expect_page("CUDA graphs and MemPools hold it, since PyTorch gave its cache back before it failed", true);
    expect_page("empty_cache", false);
}

Test(oom_framework, blocks_that_are_not_known)
{
    fragmented();
    framework.flags = GP_OOM_BESIDE;
    ADVISED(BIT(LESS), 0, 0);
    expect_page("whether a setting of PyTorch's would have helped is not known", true);
    expect_page("idle in", false);
}
