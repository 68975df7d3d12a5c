/* SPDX-License-Identifier: MIT
 *
 * test_oom_advice.c: the sums of an out-of-memory report and the advice that follows from them, each condition exactly at
 * its limit and one byte beside it, and the words of each piece of advice. test_oom.c has whole cases.
 */
#include <oom/oom.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define MIB (1ll << 20)
#define GIB (1ll << 30)

#define BIT(_advice) (1u << GP_ADVICE_##_advice)

static struct gp_wire_oom oom;
static struct gp_oom_facts facts;

/* A device of 12 GiB that is full: 1 GiB is missing, and no one else has any. */
static void full_device(void)
{
    oom = (struct gp_wire_oom){.seq = 2,
                               .count = 1,
                               .time_ns = 5,
                               .api = "f",
                               .error = 2,
                               .flags = GP_OOM_DRIVER,
                               .tid = 1,
                               .asked_bytes = (uint64_t)GIB,
                               .free_bytes = 0,
                               .total_bytes = 12 * GIB,
                               .reserved_bytes = 12 * GIB,
                               .allocated_bytes = 12 * GIB};
    facts = (struct gp_oom_facts){.oom = &oom, .total_bytes = -1, .untracked_bytes = 0};
}

static struct gp_oom_sums sums(void)
{
    struct gp_oom_sums out;
    gp_oom_sum(&out, &facts);
    return out;
}

/* Lines are joined: test_oom_page.c has how they are cut. */
static const char *joined(char *text)
{
    char *to = text;
    for (const char *at = text; *at; at++)
        if (!(*at == ' ' || *at == '\n'))
            *to++ = *at;
        else if (to > text && to[-1] != ' ')
            *to++ = ' ';
    *to = '\0';
    return text;
}

/* The advice is exactly this, and the page has these words of it and no other. */
static void expect_advice(unsigned bits, const char *words, int line)
{
    char page[GP_OOM_PAGE_BYTES];
    unsigned is = gp_oom_advise(&facts).helps;
    cr_expect_eq(is, bits, "line %d: %x, not %x", line, is, bits);
    if (!words)
        return;
    gp_oom_page(page, sizeof(page), &facts);
    char *from = strstr(page, "what helps  ");
    cr_assert_not_null(from, "line %d: %s", line, page);
    cr_expect_str_eq(joined(from + 12), words, "line %d:\n%s", line, page);
}
#define ADVICE(_bits)       expect_advice(_bits, NULL, __LINE__)
#define SAYS(_bits, _words) expect_advice(_bits, _words, __LINE__)

/* ---- sums -------------------------------------------------------------------------------------------------------- */

Test(oom_advice, without_the_driver_nothing_is_known)
{
    full_device();
    oom.flags = 0;
    facts.total_bytes = 7;
    cr_expect_eq(sums().total_bytes, 7);
    cr_expect(sums().room_bytes == -1 && sums().missing_bytes == -1 && sums().other_bytes == -1);
    cr_expect(sums().capped_bytes == 0 && !sums().others_are_sure);
    facts.total_bytes = 0;
    cr_expect_eq(sums().total_bytes, -1);
    facts.total_bytes = 1;
    cr_expect_eq(sums().total_bytes, 1);
    oom.flags = GP_OOM_DRIVER;
    oom.free_bytes = -1;
    facts.total_bytes = -1;
    cr_expect(sums().total_bytes == -1 && sums().room_bytes == -1, "the driver did not say");
    for (int device = -1; device <= (int)GP_WIRE_GPUS; device += (int)GP_WIRE_GPUS + 1) { /* not a GPU */
        full_device();
        oom.device = device;
        oom.pool_reserved_bytes = 7;
        cr_expect(sums().total_bytes == -1 && sums().room_bytes == -1 && sums().missing_bytes == -1);
        cr_expect(sums().other_bytes == -1 && sums().pool_idle_bytes == 0);
        ADVICE(BIT(LESS));
    }
    full_device();
    oom.device = GP_WIRE_GPUS - 1;
    cr_expect_eq(sums().total_bytes, 12 * GIB);
}

Test(oom_advice, what_the_driver_lacks)
{
    full_device();
    oom.free_bytes = 100;
    oom.releasable_bytes = -1;
    cr_expect_eq(sums().room_bytes, 100);
    cr_expect_eq(sums().missing_bytes, GIB - 100);
    oom.releasable_bytes = 30;
    cr_expect_eq(sums().missing_bytes, GIB - 130);
    oom.releasable_bytes = GIB - 100;
    cr_expect_eq(sums().missing_bytes, 0);
    oom.releasable_bytes = GIB;
    cr_expect_eq(sums().missing_bytes, 0);
    oom.releasable_bytes = oom.free_bytes = 0;
    static const uint64_t most = INT64_MAX / 4;
    for (uint64_t asked = most - 1; asked < most + 3; asked++) {
        oom.asked_bytes = asked;
        cr_expect_eq(sums().missing_bytes, (int64_t)(asked < most ? asked : most));
    }
    oom.asked_bytes = UINT64_MAX;
    cr_expect_eq(sums().missing_bytes, (int64_t)most);
}

Test(oom_advice, the_room_is_the_smaller_of_the_device_s_and_the_limit_s)
{
    full_device();
    oom.limit_bytes = 10;
    oom.reserved_bytes = 4;
    oom.free_bytes = 7;
    cr_expect_eq(sums().room_bytes, 7, "a limit is the cache's");
    oom.flags |= GP_OOM_CACHE;
    cr_expect_eq(sums().room_bytes, 6);
    oom.free_bytes = 5;
    cr_expect_eq(sums().room_bytes, 5);
    oom.reserved_bytes = 11;
    cr_expect_eq(sums().room_bytes, 0);
    oom.reserved_bytes = -1;
    oom.free_bytes = 20;
    cr_expect_eq(sums().room_bytes, 10);
    oom.limit_bytes = 1;
    cr_expect_eq(sums().room_bytes, 1);
    oom.limit_bytes = 0;
    cr_expect_eq(sums().room_bytes, 20);
    oom.limit_bytes = 10;
    oom.flags = GP_OOM_CACHE;
    cr_expect_eq(sums().room_bytes, 10, "the limit's alone");
    oom.free_bytes = 0;
    oom.flags |= GP_OOM_DRIVER;
    cr_expect_eq(sums().room_bytes, 0);
}

Test(oom_advice, the_rest_of_the_device_is_of_others)
{
    full_device();
    oom.total_bytes = 1000;
    oom.free_bytes = 100;
    oom.reserved_bytes = 300;
    facts.untracked_bytes = 50;
    cr_expect(sums().other_bytes == 550 && sums().others_are_sure);
    facts.untracked_bytes = 0;
    cr_expect(sums().other_bytes == 600 && sums().others_are_sure);
    facts.untracked_bytes = -1;
    cr_expect(sums().other_bytes == 600 && !sums().others_are_sure);
    oom.reserved_bytes = 0;
    cr_expect_eq(sums().other_bytes, 900);
    oom.reserved_bytes = 901;
    cr_expect_eq(sums().other_bytes, 0);
    oom.reserved_bytes = -1;
    cr_expect_eq(sums().other_bytes, -1);
    oom.reserved_bytes = 0;
    oom.total_bytes = 0; /* only the device's total is known */
    cr_expect_eq(sums().other_bytes, -1);
    facts.total_bytes = 101;
    cr_expect(sums().other_bytes == 1 && sums().capped_bytes == 0);
    oom.total_bytes = 1;
    oom.free_bytes = 0;
    facts.total_bytes = 1000;
    cr_expect(sums().other_bytes == 1 && sums().capped_bytes == 1 && sums().total_bytes == 1000);
}

Test(oom_advice, pools_and_graphs)
{
    static const struct {
        int64_t reserved, used, idle;
    } rows[] = {{5, 3, 2}, {5, 0, 5}, {5, -1, 5}, {5, 5, 0}, {5, 6, 0}, {-1, 3, 0}, {-1, -1, 0}, {1, 0, 1}};
    full_device();
    for (unsigned i = 0; i < GP_COUNT(rows); i++) {
        oom.pool_reserved_bytes = rows[i].reserved;
        oom.kinds[GP_KIND_POOL] = rows[i].used;
        oom.graph_reserved_bytes = 3 * rows[i].reserved;
        oom.graph_used_bytes = 3 * rows[i].used;
        cr_expect_eq(sums().pool_idle_bytes, rows[i].idle, "row %u", i);
        cr_expect_eq(sums().graph_idle_bytes, 3 * rows[i].idle, "row %u", i);
    }
}

/* ---- conditions -------------------------------------------------------------------------------------------------- */

Test(oom_advice, less_or_again)
{
    full_device();
    SAYS(BIT(LESS), "- free 1 GiB more, or ask for less: no setting would have helped ");
    oom.free_bytes = 3 * GIB / 4;
    oom.reserved_bytes = 12 * GIB - oom.free_bytes;
    SAYS(BIT(LESS), "- free 256 MiB more, or ask for less: no setting would have helped ");
    oom.releasable_bytes = GIB / 4 - 1;
    SAYS(BIT(LESS), "- free 1 B more, or ask for less: no setting would have helped ");
    oom.releasable_bytes = GIB / 4;
    SAYS(BIT(AGAIN), "- try again: right after the failure 768 MiB was free, as if another program had "
                     "just given memory back ");
    oom.asked_bytes = 0;
    SAYS(BIT(LESS), "- free more, or ask for less: no setting is known that would have helped ");
    oom.asked_bytes = 1;
    ADVICE(BIT(AGAIN));
    oom.flags = 0;
    SAYS(BIT(LESS), "- free more, or ask for less: no setting is known that would have helped ");
    full_device();
    oom.free_bytes = 0;
    oom.flags |= GP_OOM_CACHE;
    oom.limit_bytes = 13 * GIB - 1; /* the limit's room is smaller than what is missing */
    oom.reserved_bytes = 12 * GIB + GIB / 2;
    SAYS(BIT(LESS), "- free 1 GiB more, or ask for less: no setting would have helped ");
}

Test(oom_advice, more_than_the_device_has)
{
    full_device();
    oom.asked_bytes = 12 * (uint64_t)GIB;
    ADVICE(BIT(LESS));
    oom.asked_bytes++;
    oom.pool_reserved_bytes = 100 * GIB; /* what would come after it is not said */
    SAYS(BIT(TOO_LARGE), "- ask for less: 12 GiB is more than the whole device has (12 GiB) ");
    oom.total_bytes = 1;
    oom.asked_bytes = 2;
    oom.pool_reserved_bytes = oom.reserved_bytes = 0;
    SAYS(BIT(TOO_LARGE), "- ask for less: 2 B is more than the whole device has (1 B) ");
    oom.flags = 0;
    ADVICE(BIT(LESS));
}

Test(oom_advice, the_limit)
{
    full_device();
    oom.flags |= GP_OOM_CACHE;
    oom.free_bytes = GIB;
    oom.reserved_bytes = 10 * GIB;
    facts.untracked_bytes = -1;
    oom.limit_bytes = 11 * GIB;
    ADVICE(BIT(AGAIN));
    oom.limit_bytes--;
    SAYS(BIT(LIMIT), "- raise the limit: 11 GiB refused this request, not the device; it takes 11 GiB "
                     "(--limit, GPUPROF_MEMORY_LIMIT) ");
    oom.releasable_bytes = 1;
    ADVICE(BIT(AGAIN));
    oom.releasable_bytes = -1;
    ADVICE(BIT(LIMIT));
    oom.free_bytes = GIB - 1; /* the device would have refused it too */
    ADVICE(BIT(OTHERS));      /* their context of 1 GiB and one byte */
    oom.releasable_bytes = 2 * GIB;
    oom.limit_bytes = 8 * GIB;
    SAYS(BIT(LIMIT), "- raise the limit: 8 GiB refused this request, not the device; it takes 9 GiB "
                     "(--limit, GPUPROF_MEMORY_LIMIT) ");
    oom.releasable_bytes = 0;
    oom.flags = GP_OOM_CACHE; /* what the device has is not known */
    ADVICE(BIT(LIMIT));
    oom.reserved_bytes = -1;
    ADVICE(BIT(LESS));
    oom.reserved_bytes = 0;
    ADVICE(BIT(LESS));
    oom.asked_bytes = 2;
    oom.limit_bytes = 1;
    ADVICE(BIT(LIMIT));
    oom.flags = 0;
    ADVICE(BIT(LESS));
}

/* A driver's total below 63/64 of the device's is a limit. */
Test(oom_advice, a_limit_of_the_driver)
{
    full_device();
    facts.total_bytes = 64 * GIB;
    oom.total_bytes = 63 * GIB;
    oom.reserved_bytes = 63 * GIB;
    cr_expect_eq(sums().capped_bytes, 0);
    ADVICE(BIT(LESS));
    oom.total_bytes--;
    cr_expect_eq(sums().capped_bytes, 63 * GIB - 1);
    SAYS(BIT(CAP), "- raise the cgroup's limit (dmem.max, nvidia-smi, NVIDIA_GPU_MEMORY_LIMIT) or "
                   "MPS's: the driver lets this process use 63 GiB of the device's 64 GiB, and this "
                   "takes 64 GiB ");
    oom.asked_bytes = (uint64_t)GIB + 1; /* exactly what the device has more */
    ADVICE(BIT(CAP));
    oom.asked_bytes++;
    ADVICE(BIT(LESS));
    oom.asked_bytes = 1;
    ADVICE(BIT(CAP));
    oom.asked_bytes = 0;
    ADVICE(BIT(LESS));
    oom.asked_bytes = 1;
    oom.free_bytes = 1;
    ADVICE(BIT(AGAIN));
    oom.free_bytes = 0;
    oom.total_bytes = 1;
    oom.reserved_bytes = 1;
    ADVICE(BIT(CAP));
}

/* 100 MiB are asked for, 40 MiB are free, and ten pieces of idle memory have 60 MiB in whole pages. */
static void fragments(const char *policy)
{
    full_device();
    oom.flags |= GP_OOM_CACHE;
    oom.asked_bytes = 100 * (uint64_t)MIB;
    oom.free_bytes = 40 * MIB;
    oom.reserved_bytes = 12 * GIB - 40 * MIB;
    oom.idle_pieces = 10;
    oom.idle_bytes = 100 * MIB;
    oom.largest_idle_bytes = 20 * MIB;
    strcpy(oom.policy, policy);
}

Test(oom_advice, pieces)
{
    fragments("pytorch");
    SAYS(BIT(EXPANDABLE) | BIT(MAX_SPLIT),
         "- --alloc-conf=expandable_segments:True (or GPUPROF_ALLOC_CONF): whole pages of "
         "idle memory, 60 MiB at least, can then be put together - "
         "--alloc-conf=max_split_size_mb:50: larger blocks stay whole for requests like this "
         "one, where small ones took from them ");
    oom.idle_bytes--;
    ADVICE(BIT(LESS));
    oom.idle_bytes++;
    oom.largest_idle_bytes = 100 * MIB;
    ADVICE(BIT(LESS)); /* it would do, but for its stream or pool */
    oom.largest_idle_bytes--;
    ADVICE(BIT(EXPANDABLE) | BIT(MAX_SPLIT));
    oom.free_bytes = 100 * MIB;
    ADVICE(BIT(AGAIN));
    fragments("pytorch");
    oom.flags = GP_OOM_DRIVER;
    ADVICE(BIT(LESS));
    fragments("pytorch");
    oom.idle_pieces = 1000; /* the largest piece alone is enough, without its ends */
    oom.largest_idle_bytes = 64 * MIB;
    ADVICE(BIT(EXPANDABLE) | BIT(MAX_SPLIT));
    oom.largest_idle_bytes--;
    ADVICE(BIT(LESS));
    oom.largest_idle_bytes = 64 * MIB;
    oom.idle_pieces = INT64_MAX; /* their ends are more than any machine has */
    ADVICE(BIT(LESS));
    oom.idle_pieces = -1;
    oom.idle_bytes = 60 * MIB;
    oom.largest_idle_bytes = MIB;
    ADVICE(BIT(EXPANDABLE) | BIT(MAX_SPLIT));
    oom.flags = GP_OOM_CACHE; /* what is free is not known */
    ADVICE(BIT(LESS));
    oom.idle_bytes = 100 * MIB;
    ADVICE(BIT(EXPANDABLE) | BIT(MAX_SPLIT));
}

Test(oom_advice, which_setting_puts_pieces_together)
{
    fragments("caching");
    SAYS(BIT(EXPANDABLE), "- --alloc-conf=expandable_segments:True (or GPUPROF_ALLOC_CONF): whole pages of "
                          "idle memory, 60 MiB at least, can then be put together ");
    strcpy(oom.conf, "a:b,expandable_segments:True");
    ADVICE(BIT(LESS));
    strcpy(oom.conf, "expandable_segments:False");
    ADVICE(BIT(EXPANDABLE));
    fragments("auto_growth");
    SAYS(BIT(CACHING), "- --allocator=caching --alloc-conf=expandable_segments:True: whole pages of idle "
                       "memory, 60 MiB at least, can then be put together ");
    strcpy(oom.conf, "max_split_size_mb:5");
    ADVICE(BIT(CACHING));
    fragments("pytorch");
    strcpy(oom.conf, "expandable_segments:True");
    ADVICE(BIT(CACHING));
    strcpy(oom.conf, "a:b,max_split_size_mb:5");
    ADVICE(BIT(EXPANDABLE));
    fragments("pytorch");
    oom.asked_bytes = 40 * (uint64_t)MIB;
    oom.free_bytes = 0;
    oom.reserved_bytes = 12 * GIB;
    SAYS(BIT(EXPANDABLE) | BIT(MAX_SPLIT),
         "- --alloc-conf=expandable_segments:True (or GPUPROF_ALLOC_CONF): whole pages of "
         "idle memory, 60 MiB at least, can then be put together - "
         "--alloc-conf=max_split_size_mb:20: larger blocks stay whole for requests like this "
         "one, where small ones took from them ");
    oom.asked_bytes--; /* its half is below the smallest value of the setting */
    ADVICE(BIT(EXPANDABLE));
}

Test(oom_advice, idle_pools_and_graphs)
{
    full_device();
    oom.pool_reserved_bytes = GIB - 1;
    oom.graph_reserved_bytes = GIB - 1;
    ADVICE(BIT(LESS));
    oom.pool_reserved_bytes++;
    SAYS(BIT(POOL), "- trim the memory pools (cuMemPoolTrimTo, or a lower release threshold): 1 GiB "
                    "would come back ");
    oom.graph_reserved_bytes++;
    SAYS(BIT(POOL) | BIT(GRAPH), "- trim the memory pools (cuMemPoolTrimTo, or a lower release threshold): 1 GiB "
                                 "would come back - trim the graphs' memory (cuDeviceGraphMemTrim): 1 GiB would come "
                                 "back ");
    oom.free_bytes = GIB - 1; /* one byte is missing */
    oom.pool_reserved_bytes = 0;
    oom.graph_reserved_bytes = 1;
    oom.reserved_bytes -= GIB - 1;
    ADVICE(BIT(GRAPH));
    oom.graph_reserved_bytes = 2;
    oom.free_bytes = GIB;
    ADVICE(BIT(AGAIN));
    oom.flags = 0;
    ADVICE(BIT(LESS));
}

Test(oom_advice, other_processes)
{
    full_device();
    oom.reserved_bytes = 11 * GIB + 1;
    ADVICE(BIT(LESS));
    oom.reserved_bytes--;
    SAYS(BIT(OTHERS), "- stop or move other processes on this device: they hold 1 GiB, and 1 GiB is "
                      "missing ");
    facts.untracked_bytes = -1; /* 1 GiB may be this process's context */
    ADVICE(BIT(LESS));
    oom.reserved_bytes = 10 * GIB + 1;
    ADVICE(BIT(LESS));
    oom.reserved_bytes--;
    SAYS(BIT(OTHERS), "- stop or move other processes on this device (see nvidia-smi): they hold up to 2 "
                      "GiB, and 1 GiB is missing ");
    facts.total_bytes = 64 * GIB;
    facts.untracked_bytes = 0;
    SAYS(BIT(CAP) | BIT(OTHERS), "- raise the cgroup's limit (dmem.max, nvidia-smi, NVIDIA_GPU_MEMORY_LIMIT) or "
                                 "MPS's: the driver lets this process use 12 GiB of the device's 64 GiB, and this "
                                 "takes 13 GiB - stop or move other processes under this limit: they hold 2 GiB, and "
                                 "1 GiB is missing ");
}

Test(oom_advice, each_has_a_name)
{
    static const char *const names[] = {"ask_for_less_than_the_device",
                                        "raise_limit",
                                        "raise_driver_limit",
                                        "expandable_segments",
                                        "allocator_caching",
                                        "max_split_size",
                                        "raise_memory_fraction",
                                        "empty_cache",
                                        "lower_memory_fraction",
                                        "pytorch_expandable_segments",
                                        "pytorch_max_split_size",
                                        "trim_pools",
                                        "trim_graphs",
                                        "other_processes",
                                        "try_again",
                                        "free_or_ask_for_less"};
    for (unsigned i = 0; i < GP_ADVICES; i++)
        cr_expect_str_eq(gp_oom_advice_name(i), names[i]);
    cr_expect_null(gp_oom_advice_name(GP_ADVICES));
    cr_expect_null(gp_oom_advice_name((enum gp_oom_advice) - 1));
}
