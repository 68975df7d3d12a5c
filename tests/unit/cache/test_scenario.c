/* SPDX-License-Identifier: MIT
 *
 * test_scenario.c: PyTorch's documented rules, one after another, with every statistic worked
 * out by hand. The source of the rules is CUDACachingAllocator; its function names are given
 * beside the steps.
 */
#include "scenario.h"

static struct scene scene;

/* round_size, should_split, best fit, merging. */
static const struct scene_step small_pool[] = {
    /* 1 B becomes 512 B of a new 2 MiB segment, whose rest is split off. */
    {ALLOC, 'a', 1, .small = {GIVES(512, 1), SEGMENTS(1, MIB(2)), SPLITS(1, MIB(2) - 512)}},
    /* The request gets the start of the rest. */
    {ALLOC, 'b', 513, .where = 'a', .offset = 512, .small = {GIVES(1024, 513), SPLITS(0, -1024)}},
    {ALLOC, 'c', MIB(1), .where = 'a', .offset = 1536, .small = {GIVES(MIB(1), MIB(1)), SPLITS(0, -MIB(1))}},
    /* The rest is 1 MiB - 1536 B: too small. */
    {ALLOC, 'd', MIB(1), .small = {GIVES(MIB(1), MIB(1)), SEGMENTS(1, MIB(2)), SPLITS(1, MIB(1))}},
    /* An exact fit is not split: the second segment no longer has an idle part. */
    {ALLOC, 'e', MIB(1), .where = 'd', .offset = MIB(1), .small = {GIVES(MIB(1), MIB(1)), SPLITS(-1, -MIB(1))}},
    {FREE, 'b', .small = {TAKES(1024, 513), SPLITS(1, 1024)}},
    /* Best fit: the hole of 1024 B, not the rest of nearly 1 MiB. */
    {ALLOC, 'f', 600, .where = 'b', .small = {GIVES(1024, 600), SPLITS(-1, -1024)}},
    {FREE, 'a', .small = {TAKES(512, 1), SPLITS(1, 512)}},
    /* It joins its idle neighbour: still one part. */
    {FREE, 'f', .small = {TAKES(1024, 600), SPLITS(0, 1024)}},
    /* It joins both neighbours (1536 B and 1 MiB - 1536 B): the segment is whole, and a whole
     * segment is not "split". */
    {FREE, 'c', .small = {TAKES(MIB(1), MIB(1)), SPLITS(-2, -MIB(1))}},
    /* release_cached_blocks releases whole segments; the second is in use. */
    {EMPTY, .small = {SEGMENTS(-1, -MIB(2))}},
    {FREE, 'd', .small = {TAKES(MIB(1), MIB(1)), SPLITS(1, MIB(1))}},
    /* A part of a segment in use cannot be released. */
    {.op = EMPTY},
    {FREE, 'e', .small = {TAKES(MIB(1), MIB(1)), SPLITS(-1, -MIB(1))}},
    {EMPTY, .small = {SEGMENTS(-1, -MIB(2))}},
};

Test(scenario, small_requests_share_segments_of_2_mib)
{
    scene_open(&scene, "small pool", "pytorch", "", GIB(1), 0);
    SCENE_RUN(&scene, small_pool);
    scene_close(&scene);
}

/* get_pool, get_allocation_size. */
static const struct scene_step large_pool[] = {
    /* Above 1 MiB: the large pool, 20 MiB segments; the rest of 19 MiB - 512 B is split off. */
    {ALLOC, 'a', MIB(1) + 1,
     .large = {GIVES(MIB(1) + 512, MIB(1) + 1), SEGMENTS(1, MIB(20)), SPLITS(1, MIB(19) - 512)}},
    {ALLOC, 'b', MIB(9), .where = 'a', .offset = MIB(1) + 512, .large = {GIVES(MIB(9), MIB(9)), SPLITS(0, -MIB(9))}},
    /* 10 MiB - 512 B are idle, 10 MiB are wanted: a segment of its own. */
    {ALLOC, 'c', MIB(10), .large = {GIVES(MIB(10), MIB(10)), SEGMENTS(1, MIB(10))}},
    /* 11 MiB: a segment of 12, whose rest of 1 MiB is not more than 1 MiB, so the block takes
     * the whole segment. */
    {ALLOC, 'd', MIB(11), .large = {GIVES(MIB(12), MIB(11)), SEGMENTS(1, MIB(12))}},
    /* 10.5 MiB: the rest is 1.5 MiB and is split off. */
    {ALLOC, 'e', KIB(10752), .large = {GIVES(KIB(10752), KIB(10752)), SEGMENTS(1, MIB(12)), SPLITS(1, KIB(1536))}},
    /* Best fit: the 1.5 MiB; the rest of 256 KiB stays with the block. */
    {ALLOC, 'f', KIB(1280), .where = 'e', .offset = KIB(10752),
     .large = {GIVES(KIB(1536), KIB(1280)), SPLITS(-1, -KIB(1536))}},
    /* Small requests never use the large pool, however much is idle there. */
    {ALLOC, 'g', 512, .small = {GIVES(512, 512), SEGMENTS(1, MIB(2)), SPLITS(1, MIB(2) - 512)}},
    {FREE, 'd', .large = {TAKES(MIB(12), MIB(11))}},
    /* 12 MiB - 11.5 MiB is too small to be split off. */
    {ALLOC, 'h', KIB(11776), .where = 'd', .large = {GIVES(MIB(12), KIB(11776))}},
    {FREE, 'h', .large = {TAKES(MIB(12), KIB(11776))}},
    {EMPTY, .large = {SEGMENTS(-1, -MIB(12))}},
};

Test(scenario, large_requests_have_segments_of_20_mib_or_their_own)
{
    scene_open(&scene, "large pool", "pytorch", "", GIB(1), 0);
    SCENE_RUN(&scene, large_pool);
    scene_close(&scene);
}

/* BlockComparator: a block serves only its own stream. */
static const struct scene_step streams[] = {
    {ALLOC, 'a', MIB(12), 1, .large = {GIVES(MIB(12), MIB(12)), SEGMENTS(1, MIB(12))}},
    {FREE, 'a', .large = {TAKES(MIB(12), MIB(12))}},
    {ALLOC, 'b', MIB(12), 2, .large = {GIVES(MIB(12), MIB(12)), SEGMENTS(1, MIB(12))}},
    {ALLOC, 'c', MIB(12), 1, .where = 'a', .large = {GIVES(MIB(12), MIB(12))}},
};

Test(scenario, idle_blocks_serve_their_own_stream)
{
    scene_open(&scene, "streams", "pytorch", "", GIB(1), 0);
    SCENE_RUN(&scene, streams);
    scene_close(&scene);
}

/* recordStream, insert_events, process_events. */
static const struct scene_step recorded[] = {
    {.op = PENDING},
    {ALLOC, 'a', MIB(4), 1, .large = {GIVES(MIB(4), MIB(4)), SEGMENTS(1, MIB(20)), SPLITS(1, MIB(16))}},
    {RECORD, 'a', .stream = 2},
    /* allocated falls; active and requested follow when stream 2 has finished. */
    {FREE, 'a', .large = {FREED(MIB(4))}},
    /* The start of the segment is not idle yet. */
    {ALLOC, 'b', MIB(4), 1, .where = 'a', .offset = MIB(4), .large = {GIVES(MIB(4), MIB(4)), SPLITS(0, -MIB(4))}},
    {.op = REACH},
    /* No fit: the fences are checked, so a is idle now; 13 MiB still do not fit into 4 or 12. A
     * 14 MiB segment; the rest of 1 MiB stays with the block. */
    {ALLOC, 'c', MIB(13), 1,
     .large = {.count = 1,
               .bytes = MIB(14),
               .active = 0,
               .active_bytes = MIB(10),
               .requested = MIB(9),
               SEGMENTS(1, MIB(14)),
               SPLITS(1, MIB(4))}},
    {ALLOC, 'd', MIB(4), 1, .where = 'a', .large = {GIVES(MIB(4), MIB(4)), SPLITS(-1, -MIB(4))}},
    /* The block's own stream does not count as another stream. */
    {RECORD, 'd', .stream = 1},
    {FREE, 'd', .large = {TAKES(MIB(4), MIB(4)), SPLITS(1, MIB(4))}},
};

Test(scenario, a_recorded_stream_keeps_a_block_active)
{
    scene_open(&scene, "record_stream", "pytorch", "", GIB(1), 0);
    SCENE_RUN(&scene, recorded);
    cr_assert_eq(scene.device.calls[FAKEDEV_RECORD], 1);
    cr_assert_eq(scene.device.recorded_streams, 1, "the one stream that was recorded");
    scene_close(&scene);
}

/* During a capture no event may be recorded: the block waits for the first opportunity after it. */
static const struct scene_step captured[] = {
    {ALLOC, 'a', MIB(4), 1, .large = {GIVES(MIB(4), MIB(4)), SEGMENTS(1, MIB(20)), SPLITS(1, MIB(16))}},
    {RECORD, 'a', .stream = 2},
    {FORBID, .bytes = 1},
    {FREE, 'a', .large = {FREED(MIB(4))}},
    {ALLOC, 'b', MIB(16), 1, .where = 'a', .offset = MIB(4), .large = {GIVES(MIB(16), MIB(16)), SPLITS(-1, -MIB(16))}},
    /* No block is idle, and the driver must not be called. */
    {ALLOC, 'c', MIB(4), 1, .result = GP_BACKEND_FORBIDDEN},
    {FORBID, .bytes = 0},
    /* a becomes idle and is allocated again: four of its five statistics balance. */
    {ALLOC, 'c', MIB(4), 1, .where = 'a', .large = {.count = 1, .bytes = MIB(4)}},
};

Test(scenario, a_capture_postpones_fences)
{
    scene_open(&scene, "capture", "pytorch", "", GIB(1), 0);
    SCENE_RUN(&scene, captured);
    scene_close(&scene);
}

/* cuMemFree guarantees completion on all streams: GP_FREE_UNORDERED. */
static const struct scene_step unordered[] = {
    {.op = PENDING},
    {ALLOC, 'a', MIB(20), 1, .large = {GIVES(MIB(20), MIB(20)), SEGMENTS(1, MIB(20))}},
    {FREE_UNORDERED, 'a', .large = {FREED(MIB(20))}},
    /* The driver would have waited too; it would not have made a new segment. */
    {ALLOC, 'b', MIB(20), 1, .where = 'a', .waits = 1, .large = {.count = 1, .bytes = MIB(20)}},
};

Test(scenario, an_unordered_free_waits_for_every_stream)
{
    scene_open(&scene, "unordered", "pytorch", "", GIB(1), 0);
    SCENE_RUN(&scene, unordered);
    cr_assert_eq(scene.device.recorded_streams, 0, "0 streams: all");
    scene_close(&scene);
}

/* garbage_collect_cached_blocks: 100 MiB allowed, threshold 0.4, so it starts at 40 MiB. */
static const struct scene_step collected[] = {
    {ALLOC, 'a', MIB(12), .large = {GIVES(MIB(12), MIB(12)), SEGMENTS(1, MIB(12))}},
    {FREE, 'a', .large = {TAKES(MIB(12), MIB(12))}},
    /* 12 MiB reserved: below the threshold. */
    {ALLOC, 'b', MIB(30), .large = {GIVES(MIB(30), MIB(30)), SEGMENTS(1, MIB(30))}},
    {FREE, 'b', .large = {TAKES(MIB(30), MIB(30))}},
    {ALLOC, 'b', MIB(30), .large = {GIVES(MIB(30), MIB(30))}},
    {FREE, 'b', .large = {TAKES(MIB(30), MIB(30))}},
    {ALLOC, 'b', MIB(30), .large = {GIVES(MIB(30), MIB(30))}},
    {FREE, 'b', .large = {TAKES(MIB(30), MIB(30))}},
    /* 42 MiB: 2 above the threshold. a is 4 requests old and b 1; the mean is 2.5: a is
     * released, which is enough. */
    {ALLOC, 'c', MIB(32), .large = {GIVES(MIB(32), MIB(32)), SEGMENTS(0, MIB(20))}, .swapped = 1},
    /* 62 MiB, and b is the only whole idle segment: it is released. */
    {ALLOC, 'd', MIB(34), .large = {GIVES(MIB(34), MIB(34)), SEGMENTS(0, MIB(4))}, .swapped = 1},
    /* 66 MiB: no segment is idle, so there is nothing to collect; then one with an idle part. */
    {ALLOC, 'e', MIB(2), .large = {GIVES(MIB(2), MIB(2)), SEGMENTS(1, MIB(20)), SPLITS(1, MIB(18))}},
    /* 86 MiB: split segments cannot be collected, 12 MiB fit into the idle memory. */
    {ALLOC, 'f', MIB(12), .where = 'e', .offset = MIB(2), .large = {GIVES(MIB(12), MIB(12)), SPLITS(0, -MIB(12))}},
};

Test(scenario, old_idle_segments_are_collected_above_the_threshold)
{
    scene_open(&scene, "collection", "pytorch", "garbage_collection_threshold:0.4", GIB(1), MIB(100));
    SCENE_RUN(&scene, collected);
    scene_close(&scene);
}

/* The steps of malloc: alloc_block, release_cached_blocks, alloc_block(isRetry). */
static const struct scene_step ladder[] = {
    {ALLOC, 'a', MIB(30), .large = {GIVES(MIB(30), MIB(30)), SEGMENTS(1, MIB(30))}},
    {FREE, 'a', .large = {TAKES(MIB(30), MIB(30))}},
    /* 34 of 64 MiB are free: a's segment is released, and 40 MiB succeed at the second attempt. */
    {ALLOC, 'b', MIB(40), .large = {GIVES(MIB(40), MIB(40)), SEGMENTS(0, MIB(10))}, .swapped = 1, .retries = 1},
    /* 24 MiB are free and nothing can be released: the retry is counted all the same. */
    {ALLOC, 'c', MIB(30), .result = GP_BACKEND_OOM, .retries = 1, .ooms = 1},
    /* A request for more than 2^60 bytes is refused at once. */
    {ALLOC, 'c', ((uint64_t)1 << 60) + 1, .result = GP_BACKEND_OOM, .ooms = 1},
    {ALLOC, 'd', MIB(24), .large = {GIVES(MIB(24), MIB(24)), SEGMENTS(1, MIB(24))}},
    {FREE, 'b', .large = {TAKES(MIB(40), MIB(40))}},
    /* A segment of which a part is in use stays, though 39 MiB of it are idle. */
    {ALLOC, 'e', MIB(2), .where = 'b', .large = {GIVES(MIB(2), MIB(2)), SPLITS(1, MIB(38))}},
    {ALLOC, 'f', MIB(39), .result = GP_BACKEND_OOM, .retries = 1, .ooms = 1},
};

Test(scenario, a_failed_request_is_tried_again_without_idle_segments)
{
    scene_open(&scene, "ladder", "pytorch", "", MIB(64), 0);
    SCENE_RUN(&scene, ladder);
    scene_close(&scene);
}

/* set_per_process_memory_fraction: the driver is not even called. */
static const struct scene_step limited[] = {
    {ALLOC, 'a', MIB(30), .large = {GIVES(MIB(30), MIB(30)), SEGMENTS(1, MIB(30))}},
    {ALLOC, 'b', MIB(22), .result = GP_BACKEND_OOM, .retries = 1, .ooms = 1}, /* 52 > 50 */
    {LIMIT, .bytes = MIB(60)},
    {ALLOC, 'b', MIB(22), .large = {GIVES(MIB(22), MIB(22)), SEGMENTS(1, MIB(22))}},
    {FREE, 'a', .large = {TAKES(MIB(30), MIB(30))}},
    /* 52 + 40 > 60; without a's segment 22 + 40 = 62, still too much; but a's segment has been
     * released. */
    {ALLOC, 'c', MIB(40), .result = GP_BACKEND_OOM, .large = {SEGMENTS(-1, -MIB(30))}, .retries = 1, .ooms = 1},
    {ALLOC, 'd', MIB(38), .large = {GIVES(MIB(38), MIB(38)), SEGMENTS(1, MIB(38))}}, /* 60: as much as is allowed */
    {ALLOC, 'e', 1, .result = GP_BACKEND_OOM, .retries = 1, .ooms = 1},
};

Test(scenario, the_limit_holds_before_the_driver_is_asked)
{
    scene_open(&scene, "limit", "pytorch", "", GIB(1), MIB(50));
    SCENE_RUN(&scene, limited);
    cr_assert_eq(scene.device.calls[FAKEDEV_ALLOCATE], 3, "requests stay within the limit");
    scene_close(&scene);
}

static const struct scene_step fraction[] = {
    {ALLOC, 'a', MIB(30), .large = {GIVES(MIB(30), MIB(30)), SEGMENTS(1, MIB(30))}},
    {ALLOC, 'b', KIB(900), .small = {GIVES(KIB(900), KIB(900)), SEGMENTS(1, MIB(2)), SPLITS(1, KIB(1148))}},
    {ALLOC, 'c', MIB(4), .result = GP_BACKEND_OOM, .retries = 1, .ooms = 1}, /* 32 + 20 > 64 / 2 */
};

Test(scenario, a_fraction_of_the_device_is_a_limit)
{
    scene_open(&scene, "fraction", "pytorch", "per_process_memory_fraction:0.5", MIB(64), 0);
    SCENE_RUN(&scene, fraction);
    scene_close(&scene);
}

/* max_split_size 32 MiB: get_free_block's two refusals, release_available_cached_blocks. */
static const struct scene_step oversize[] = {
    {ALLOC, 'a', MIB(64), .large = {GIVES(MIB(64), MIB(64)), SEGMENTS(1, MIB(64))}, .oversize = 1,
     .oversize_segments = 1},
    {FREE, 'a', .large = {TAKES(MIB(64), MIB(64))}, .oversize = -1},
    /* A request below the limit must not use an oversize block. */
    {ALLOC, 'b', MIB(10), .large = {GIVES(MIB(10), MIB(10)), SEGMENTS(1, MIB(10))}},
    /* 64 < 50 + 20: taken whole. */
    {ALLOC, 'c', MIB(50), .where = 'a', .large = {GIVES(MIB(64), MIB(50))}, .oversize = 1},
    {FREE, 'c', .large = {TAKES(MIB(64), MIB(50))}, .oversize = -1},
    /* 64 >= 44 + 20: refused. */
    {ALLOC, 'd', MIB(44), .large = {GIVES(MIB(44), MIB(44)), SEGMENTS(1, MIB(44))}, .oversize = 1,
     .oversize_segments = 1},
    /* 150 - 118 = 32 MiB are free, 42 requested: only the idle oversize segment of 64 is
     * released, which is not counted as a retry. */
    {ALLOC, 'e', MIB(42), .large = {GIVES(MIB(42), MIB(42)), SEGMENTS(0, -MIB(22))}, .swapped = 1, .oversize = 1},
    {FREE, 'e', .large = {TAKES(MIB(42), MIB(42))}, .oversize = -1},
    {FREE, 'b', .large = {TAKES(MIB(10), MIB(10))}},
};

Test(scenario, oversize_blocks_are_not_split)
{
    scene_open(&scene, "max_split_size", "pytorch", "max_split_size_mb:32", MIB(150), 0);
    SCENE_RUN(&scene, oversize);
    scene_close(&scene);
}

/* roundup_power2_next_division, 4 steps. */
static const struct scene_step divisions[] = {
    {ALLOC, 'a', 5000, .small = {GIVES(5120, 5000), SEGMENTS(1, MIB(2)), SPLITS(1, MIB(2) - 5120)}},
    {ALLOC, 'b', MIB(100), .large = {GIVES(MIB(112), MIB(100)), SEGMENTS(1, MIB(112))}},
    {FREE, 'b', .large = {TAKES(MIB(112), MIB(100))}},
    {ALLOC, 'c', MIB(97), .where = 'b', .large = {GIVES(MIB(112), MIB(97))}},
};

Test(scenario, sizes_are_rounded_to_divisions)
{
    scene_open(&scene, "divisions", "pytorch", "roundup_power2_divisions:4", GIB(1), 0);
    SCENE_RUN(&scene, divisions);
    scene_close(&scene);
}

/* beginAllocateToPool .. releasePool. */
static const struct scene_step private_pool[] = {
    {POOL_BEGIN, .pool = 7},
    {ALLOC, 'a', MIB(4), .pool = 7, .large = {GIVES(MIB(4), MIB(4)), SEGMENTS(1, MIB(20)), SPLITS(1, MIB(16))}},
    /* Other requests cannot use the pool's 16 MiB, nor the pool theirs. */
    {ALLOC, 'b', MIB(4), .large = {GIVES(MIB(4), MIB(4)), SEGMENTS(1, MIB(20)), SPLITS(1, MIB(16))}},
    {FREE, 'a', .large = {TAKES(MIB(4), MIB(4)), SPLITS(-1, -MIB(16))}},
    {ALLOC, 'c', MIB(4), .where = 'b', .offset = MIB(4), .large = {GIVES(MIB(4), MIB(4)), SPLITS(0, -MIB(4))}},
    {ALLOC, 'd', MIB(4), .where = 'a', .pool = 7, .large = {GIVES(MIB(4), MIB(4)), SPLITS(1, MIB(16))}},
    {FREE, 'd', .large = {TAKES(MIB(4), MIB(4)), SPLITS(-1, -MIB(16))}},
    /* A captured graph may still use the addresses: the pool keeps its segments while it is referenced. */
    {.op = EMPTY},
    {POOL_BEGIN, .pool = 7},
    {POOL_RELEASE, .pool = 7},
    {.op = EMPTY},
    {POOL_RELEASE, .pool = 7},
    {EMPTY, .large = {SEGMENTS(-1, -MIB(20))}},
};

Test(scenario, a_private_pool_keeps_its_memory)
{
    scene_open(&scene, "private pool", "pytorch", "", GIB(1), 0);
    SCENE_RUN(&scene, private_pool);
    cr_assert_eq(gp_cache_pool_release(scene.cache, 7), -2, "-ENOENT");
    scene_close(&scene);
}

/* ExpandableSegment.  Pages are mapped as they are needed, in steps of 2 MiB: PyTorch maps whole pages of 20 MiB. */
static const struct scene_step expandable[] = {
    /* 3 MiB need 4 MiB of pages; no segment is counted and no idle part. */
    {ALLOC, 'a', MIB(3), .large = {GIVES(MIB(3), MIB(3)), .reserved = MIB(4)}},
    /* 1 MiB is idle at the end: 2 MiB more. */
    {ALLOC, 'b', MIB(3), .where = 'a', .offset = MIB(3), .large = {GIVES(MIB(3), MIB(3)), .reserved = MIB(2)}},
    {FREE, 'a', .large = {TAKES(MIB(3), MIB(3))}},
    /* Split at any rest: 1 MiB stays idle behind it. */
    {ALLOC, 'c', MIB(2), .where = 'a', .large = {GIVES(MIB(2), MIB(2))}},
    /* The hole of 1 MiB is too small; 2.5 MiB at the end need 4. */
    {ALLOC, 'd', KIB(2560), .where = 'b', .offset = MIB(3), .large = {GIVES(KIB(2560), KIB(2560)), .reserved = MIB(4)}},
    {ALLOC, 's', 100, .small = {GIVES(512, 100), .reserved = MIB(2)}},
    /* c, the hole, b | d and 1.5 MiB: no page is idle as a whole. */
    {.op = EMPTY},
    {FREE, 'd', .large = {TAKES(KIB(2560), KIB(2560))}},
    {EMPTY, .large = {.reserved = -MIB(4)}},
    {FREE, 'b', .large = {TAKES(MIB(3), MIB(3))}},
    /* Idle from 2 to 6 MiB; the page of 4 to 6 is idle as a whole, that of 0 to 4 is shared with
     * c. */
    {EMPTY, .large = {.reserved = -MIB(2)}},
    /* It grows again from where it ended. */
    {ALLOC, 'e', MIB(5), .where = 'a', .offset = MIB(2), .large = {GIVES(MIB(5), MIB(5)), .reserved = MIB(4)}},
};

Test(scenario, expandable_segments_grow_and_shrink_by_pages)
{
    scene_open(&scene, "expandable", "pytorch", "expandable_segments:True", GIB(1), 0);
    SCENE_RUN(&scene, expandable);
    cr_assert_eq(scene.device.calls[FAKEDEV_ALLOCATE], 0);
    scene_close(&scene);
}
