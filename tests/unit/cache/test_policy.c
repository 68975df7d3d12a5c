/* SPDX-License-Identifier: MIT
 * test_policy.c: the rules against PyTorch's and Paddle's documented sizes, and that any text of GPUPROF_ALLOC_CONF gives
 * a sound policy or an error. */
#include "cache/policy.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)

static struct gp_policy gp_test_policy(const char *name, const char *conf)
{
    const struct gp_policy *found = gp_policy_find(name);
    cr_assert(found, "%s", name);
    struct gp_policy policy = *found;
    char why[256];
    cr_assert_eq(gp_policy_configure(&policy, conf, why, sizeof why), 0, "%s: %s", conf, why);
    return policy;
}

Test(policy, names_are_those_of_the_documentation)
{
    static const char *const names[] = {"caching", "pytorch", "auto_growth", "prealloc", "passthrough"};
    for (unsigned i = 0; i < 5; i++) {
        cr_assert_str_eq(gp_policy_at(i)->name, names[i]);
        cr_assert_eq(gp_policy_find(names[i]), gp_policy_at(i));
    }
    cr_assert_null(gp_policy_at(5));
    cr_assert_null(gp_policy_find("cachin"));
    cr_assert_null(gp_policy_find(""));
}

/* Properties that the mechanism relies on without checking. */
Test(policy, every_policy_is_sound)
{
    for (unsigned i = 0; gp_policy_at(i); i++) {
        const struct gp_policy *p = gp_policy_at(i);
        cr_assert(p->granule_bytes >= 256 && !(p->granule_bytes & (p->granule_bytes - 1)), "%s", p->name);
        cr_assert(p->small_bytes == 0 || p->small_segment_bytes >= p->small_bytes, "%s", p->name);
        cr_assert(p->large_segment_bytes == 0 || p->large_segment_bytes >= p->own_segment_bytes, "%s", p->name);
        cr_assert_eq(p->segment_round_bytes % p->granule_bytes, 0, "%s", p->name);
        cr_assert(!p->moves_pages || p->growable, "%s", p->name);
        cr_assert(!p->growable || (p->small_page_bytes && p->large_page_bytes), "%s", p->name);
        cr_assert(p->thread_block_bytes <= p->thread_bytes, "%s", p->name);
        for (uint64_t bytes = 1; bytes < GIB(64); bytes = bytes * 3 / 2 + 1) {
            uint64_t block = gp_policy_round(p, bytes);
            cr_assert(block >= bytes && block % p->granule_bytes == 0, "%s %lu", p->name, bytes);
            cr_assert_eq(gp_policy_round(p, block), block, "%s %lu: rounding twice", p->name, bytes);
            cr_assert(gp_policy_segment(p, block) >= block, "%s %lu", p->name, bytes);
            cr_assert(gp_policy_may_take(p, block, block, false), "%s %lu: its own size", p->name, bytes);
        }
    }
}

struct test_round {
    const char *policy, *conf;
    uint64_t bytes, block;
};

static const struct test_round test_rounds[] = {
    {"pytorch", "", 1, 512},
    {"pytorch", "", 512, 512},
    {"pytorch", "", 513, 1024},
    {"pytorch", "", MIB(1) + 1, MIB(1) + 512},
    {"auto_growth", "", 1, 256},
    {"auto_growth", "", 257, 512},
    {"prealloc", "", 1000, 1024},
    {"passthrough", "", 1000, 1024},
    {"caching", "", 1000, 1024},
    /* 4 divisions: steps of 2^k / 4 above 512 x 4 = 2048 B; smaller sizes are multiples of 512. */
    {"pytorch", "roundup_power2_divisions:4", 1200, 1536},
    {"pytorch", "roundup_power2_divisions:4", 2048, 2048},
    {"pytorch", "roundup_power2_divisions:4", 2049, 2560},
    {"pytorch", "roundup_power2_divisions:4", 5000, 5120},
    {"pytorch", "roundup_power2_divisions:4", 7169, 8192},
    {"pytorch", "roundup_power2_divisions:4", MIB(100), MIB(112)},
    {"pytorch", "roundup_power2_divisions:8", MIB(100), MIB(104)},
    {"pytorch", "roundup_power2_divisions:1", MIB(100) + 1, MIB(100) + 512},
    {"pytorch", "roundup_power2_divisions:2", MIB(128), MIB(128)},
    {"pytorch", "roundup_power2_divisions:2", MIB(128) + 1, MIB(192)},
    /* By interval: [2^k MB, 2^(k+1) MB) uses entry 2^k; sizes below the first interval use the
     * first entry; an interval without an entry is not rounded. */
    {"pytorch", "roundup_power2_divisions:[64:8,256:4,>:1]", MIB(5), MIB(5)},
    {"pytorch", "roundup_power2_divisions:[64:8,256:4,>:1]", MIB(5) + 1, MIB(5) + KIB(512)},
    {"pytorch", "roundup_power2_divisions:[64:8,256:4,>:1]", MIB(100), MIB(104)},
    {"pytorch", "roundup_power2_divisions:[64:8,256:4,>:1]", MIB(130) + 1, MIB(130) + 512},
    {"pytorch", "roundup_power2_divisions:[64:8,256:4,>:1]", MIB(300), MIB(320)},
    {"pytorch", "roundup_power2_divisions:[64:8,256:4,>:1]", MIB(600) + 1, MIB(600) + 512},
    {"pytorch", "roundup_power2_divisions:[64:8,256:4,>:2]", GIB(100), GIB(128)},
};

Test(policy, sizes_are_rounded_as_documented)
{
    for (unsigned i = 0; i < sizeof test_rounds / sizeof test_rounds[0]; i++) {
        const struct test_round *t = &test_rounds[i];
        struct gp_policy policy = gp_test_policy(t->policy, t->conf);
        cr_expect_eq(gp_policy_round(&policy, t->bytes), t->block, "%s %s: %lu gives %lu, not %lu", t->policy, t->conf,
                     t->bytes, gp_policy_round(&policy, t->bytes), t->block);
    }
}

struct test_segment {
    const char *policy, *conf;
    uint64_t block, segment;
    bool small;
};

static const struct test_segment test_segments[] = {
    {"pytorch", "", 512, MIB(2), true},
    {"pytorch", "", MIB(1), MIB(2), true},
    {"pytorch", "", MIB(1) + 512, MIB(20), false},
    {"pytorch", "", MIB(10) - 512, MIB(20), false},
    {"pytorch", "", MIB(10), MIB(10), false},
    {"pytorch", "", MIB(11), MIB(12), false},
    {"pytorch", "large_segment_size_mb:40", MIB(2), MIB(40), false},
    {"pytorch", "large_segment_size_mb:40", MIB(11), MIB(12), false},
    {"auto_growth", "", 256, 256, false},
    {"auto_growth", "", MIB(3) + 256, MIB(3) + 256, false},
    {"prealloc", "", MIB(3) + 256, MIB(3) + 256, false},
    {"passthrough", "", 512, 512, false},
    {"passthrough", "", MIB(5) + 512, MIB(5) + 512, false},
    {"caching", "", MIB(1), MIB(2), true},
};

Test(policy, segments_and_pools_are_as_documented)
{
    for (unsigned i = 0; i < sizeof test_segments / sizeof test_segments[0]; i++) {
        const struct test_segment *t = &test_segments[i];
        struct gp_policy policy = gp_test_policy(t->policy, t->conf);
        cr_expect_eq(gp_policy_segment(&policy, t->block), t->segment, "%s %lu", t->policy, t->block);
        cr_expect_eq(gp_policy_is_small(&policy, t->block), t->small, "%s %lu", t->policy, t->block);
    }
}

struct test_take {
    const char *policy, *conf;
    uint64_t have, want;
    bool growable, take, split;
};

static const struct test_take test_takes[] = {
    {"pytorch", "", MIB(2), MIB(1), false, true, true},
    /* Small pool: a rest of 512 B is split off. */
    {"pytorch", "", 1024, 512, false, true, true},
    {"pytorch", "", 512, 512, false, true, false},
    /* Large pool: a rest is split off if it is larger than 1 MiB. */
    {"pytorch", "", MIB(20), MIB(19), false, true, false},
    {"pytorch", "", MIB(20), MIB(19) - 512, false, true, true},
    {"pytorch", "", MIB(20), MIB(19), true, true, true},
    {"pytorch", "", MIB(2), MIB(3), false, false, false},
    /* max_split_size: a small request may not take an oversize block, and an oversize request may
     * not waste 20 MiB. */
    {"pytorch", "max_split_size_mb:64", MIB(64), MIB(63), false, false, false},
    {"pytorch", "max_split_size_mb:64", MIB(64) - 512, MIB(60), false, true, true},
    {"pytorch", "max_split_size_mb:64", MIB(84), MIB(64), false, false, false},
    {"pytorch", "max_split_size_mb:64", MIB(84) - 512, MIB(64), false, true, false},
    {"pytorch", "max_split_size_mb:64,max_non_split_rounding_mb:40", MIB(100), MIB(64), false, true, false},
    {"pytorch", "max_split_size_mb:64", MIB(500), MIB(64), true, true, true},
    {"auto_growth", "", MIB(1) + 256, MIB(1), false, true, true},
    {"auto_growth", "", MIB(500), 256, false, true, true},
    {"passthrough", "", MIB(2), MIB(2), false, true, false},
    {"passthrough", "", MIB(2) + 512, MIB(2), false, false, false},
    {"caching", "", MIB(20), MIB(20) - 512, true, true, true},
};

Test(policy, blocks_are_taken_and_split_as_documented)
{
    for (unsigned i = 0; i < sizeof test_takes / sizeof test_takes[0]; i++) {
        const struct test_take *t = &test_takes[i];
        struct gp_policy policy = gp_test_policy(t->policy, t->conf);
        bool small = gp_policy_is_small(&policy, t->want);
        cr_expect_eq(gp_policy_may_take(&policy, t->have, t->want, t->growable), t->take, "row %u: take", i);
        if (t->have >= t->want && t->take)
            cr_expect_eq(gp_policy_splits(&policy, t->have, t->want, small, t->growable), t->split, "row %u: split", i);
    }
}

Test(policy, oversize_begins_at_max_split_size)
{
    struct gp_policy policy = gp_test_policy("pytorch", "max_split_size_mb:20");
    cr_assert_not(gp_policy_is_oversize(&policy, MIB(20) - 512));
    cr_assert(gp_policy_is_oversize(&policy, MIB(20)));
    cr_assert_not(gp_policy_is_oversize(gp_policy_find("pytorch"), GIB(1000)));
}

/* ---- GPUPROF_ALLOC_CONF: what each text means is in test_policy_conf.c ---------------------------------------------- */

/* Words of the grammar in any order: no text crashes the parser, a failure changes nothing and has
 * a message, and an accepted text gives a working policy. */
Test(conf, any_text_is_refused_or_gives_a_sound_policy)
{
    static const char *const words[] = {"max_split_size_mb",
                                        "roundup_power2_divisions",
                                        "expandable_segments",
                                        "large_segment_size_mb",
                                        "garbage_collection_threshold",
                                        "backend",
                                        "native",
                                        "True",
                                        "False",
                                        ":",
                                        ":",
                                        ":",
                                        ",",
                                        ",",
                                        "[",
                                        "]",
                                        ">",
                                        "0",
                                        "1",
                                        "4",
                                        "20",
                                        "64",
                                        "0.5",
                                        "18446744073709551616",
                                        " ",
                                        "-",
                                        "x"};
    uint64_t random = 1, accepted = 0;
    for (unsigned round = 0; round < 200000; round++) {
        char text[512] = "", why[96] = "";
        for (unsigned n = 0; n < 1 + round % 12; n++) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            strcat(text, words[(random >> 33) % (sizeof words / sizeof words[0])]);
        }
        struct gp_policy policy = *gp_policy_at(round % 5), before = policy;
        int result = gp_policy_configure(&policy, text, why, sizeof why);
        if (result) {
            cr_assert(result == -EINVAL && why[0] && memcmp(&policy, &before, sizeof policy) == 0, "%s", text);
            continue;
        }
        accepted++;
        for (uint64_t bytes = 1; bytes < GIB(8); bytes = bytes * 7 + 1) {
            uint64_t block = gp_policy_round(&policy, bytes);
            cr_assert(block >= bytes && gp_policy_segment(&policy, block) >= block, "%s: %lu", text, bytes);
        }
    }
    cr_assert_gt(accepted, 100, "the words were never a setting: %lu", accepted);
}
