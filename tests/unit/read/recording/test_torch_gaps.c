/* SPDX-License-Identifier: MIT
 *
 * test_torch_gaps.c: what the reader makes of snapshots of PyTorch whose trace lacks entries
 * (tools/read/recording/torchgaps.c).
 */
#include "torchtext.h"

/* ---- entries that are missing ------------------------------------------------------------------------------------ */

/* A segment of 4 KiB with a live block of 512 bytes at its end. */
#define SEGMENT(_more)                                                                                                 \
    "segments: [{address: 0x10000, total_size: 4096, blocks: [{size: 3584, state: 'inactive'},"                        \
    "{size: 512, requested_size: 500, state: 'active_allocated', frames: []}]" _more "}]"
#define MADE "{action: 'segment_alloc', addr: 0x10000, size: 4096, time_us: 1},"

static void expect_bound(const char *snapshot, enum gp_rec_bound bound, uint64_t unseen, uint64_t unfreed)
{
    struct gp_recording *r = NULL;
    cr_assert_eq(read_text(&r, "%s", snapshot), 0, "%s: %s", why, snapshot);
    cr_expect_eq(r->devices[0].bound, bound, "%u: %s", r->devices[0].bound, snapshot);
    cr_expect(r->unseen_blocks == unseen && r->unfreed_blocks == unfreed, "%s", snapshot);
    gp_recording_free(r);
}

static void expect_gap(const char *snapshot, const char *wanted, enum gp_rec_bound bound, uint64_t unseen,
                       uint64_t unfreed)
{
    expect_shown(snapshot, wanted);
    expect_bound(snapshot, bound, unseen, unfreed);
}

/* Recorded without frees: what does not live at the end counts for a moment, and the one after it does not see it. */
Test(torch_trace, frees_are_missing)
{
    expect_gap("{device_traces: [[" MADE "{action: 'alloc', addr: 0x10000, size: 2048, time_us: 2},"
               "{action: 'alloc', addr: 0x10e00, size: 500, time_us: 2},"
               "{action: 'alloc', addr: 0x10000, size: 1024, time_us: 2}]]," SEGMENT("") "}",
               "1000 segment+ gpu0 10000 4096-0 stream0 -\n2000 alloc gpu0 10000 2048-0 stream0 - >2\n"
               "2000 free gpu0 10000 2048-0 stream0 - >1\n2000 alloc gpu0 10e00 512-12 stream0 -\n"
               "2000 alloc gpu0 10000 1024-0 stream0 - >5\n2000 free gpu0 10000 1024-0 stream0 - >4\n"
               "from 1000 to 2000, before 0 in 0, unknown 0\n",
               GP_REC_AT_LEAST, 0, 2);
}

/* A trace with frees lacks one: the block lived until the trace ended, or its address was allocated again. */
Test(torch_trace, one_free_is_missing)
{
    expect_gap("{device_traces: [[" MADE "{action: 'alloc', addr: 0x10000, size: 512, time_us: 2},"
               "{action: 'free_requested', addr: 0x10000, size: 512, time_us: 3},"
               "{action: 'alloc', addr: 0x10200, size: 1024, time_us: 4},"
               "{action: 'alloc', addr: 0x10e00, size: 500, time_us: 5}]]," SEGMENT("") "}",
               "1000 segment+ gpu0 10000 4096-0 stream0 -\n2000 alloc gpu0 10000 512-0 stream0 - >2\n"
               "3000 free gpu0 10000 512-0 stream0 - >1\n4000 alloc gpu0 10200 1024-0 stream0 - >5\n"
               "5000 alloc gpu0 10e00 512-12 stream0 -\n5000 free gpu0 10200 1024-0 stream0 - >3\n"
               "from 1000 to 5000, before 0 in 0, unknown 0\n",
               GP_REC_EXACT, 0, 1);
    expect_gap("{device_traces: [[" MADE "{action: 'alloc', addr: 0x10000, size: 512, time_us: 2},"
               "{action: 'alloc', addr: 0x10000, size: 512, time_us: 3},"
               "{action: 'free_requested', addr: 0x10000, size: 512, time_us: 4},"
               "{action: 'alloc', addr: 0x10e00, size: 500, time_us: 5}]]," SEGMENT("") "}",
               "1000 segment+ gpu0 10000 4096-0 stream0 -\n2000 alloc gpu0 10000 512-0 stream0 - >2\n"
               "2000 free gpu0 10000 512-0 stream0 - >1\n3000 alloc gpu0 10000 512-0 stream0 - >4\n"
               "4000 free gpu0 10000 512-0 stream0 - >3\n5000 alloc gpu0 10e00 512-12 stream0 -\n"
               "from 1000 to 5000, before 0 in 0, unknown 0\n",
               GP_REC_AT_LEAST, 0, 1);
}

/* Recorded without allocations: a block counts when it is freed, or from the end on, which a failure may follow. */
Test(torch_trace, allocations_are_missing)
{
    expect_gap("{device_traces: [[" MADE "{action: 'free_requested', addr: 0x10000, size: 1000, time_us: 2},"
               "{action: 'free_completed', addr: 0x10000, size: 1000, time_us: 3},"
               "{action: 'oom', size: 9, time_us: 5}]]," SEGMENT("") "}",
               "1000 segment+ gpu0 10000 4096-0 stream0 -\n"
               "2000 alloc gpu0 10000 1024-24 stream0 allocation not in th/:0 >2\n"
               "2000 free gpu0 10000 1024-24 stream0 allocation not in th/:0 >1\n"
               "3000 alloc gpu0 10e00 512-12 stream0 allocation not in th/:0\n5000 oom gpu0 0 9-0 stream0 -\n"
               "from 1000 to 5000, before 0 in 0, unknown 0\n",
               GP_REC_AT_LEAST, 2, 0);
}

/* Blocks without an allocation in segments that the trace allocates, beside one that has it: they were not there before. */
Test(torch_trace, some_allocations_are_missing)
{
    expect_gap("{device_traces: [[" MADE "{action: 'alloc', addr: 0x10000, size: 512, time_us: 2},"
               "{action: 'free_requested', addr: 0x10400, size: 512, time_us: 3},"
               "{action: 'free_requested', addr: 0x10000, size: 512, time_us: 4}]]," SEGMENT("") "}",
               "1000 segment+ gpu0 10000 4096-0 stream0 -\n2000 alloc gpu0 10000 512-0 stream0 - >4\n"
               "3000 alloc gpu0 10400 512-0 stream0 - >3\n3000 free gpu0 10400 512-0 stream0 - >2\n"
               "4000 free gpu0 10000 512-0 stream0 - >1\n4000 alloc gpu0 10e00 512-12 stream0 -\n"
               "from 1000 to 4000, before 0 in 0, unknown 0\n",
               GP_REC_AT_LEAST, 2, 0);
}

/* Entries without frames (context="state"): a live block has its own, and the first block of a segment has the segment's. */
Test(torch_trace, frames_of_blocks_and_segments)
{
    expect_gap("{device_traces: [[" MADE "{action: 'alloc', addr: 0x10000, size: 512, time_us: 2},"
               "{action: 'free_requested', addr: 0x10000, size: 512, time_us: 3},"
               "{action: 'alloc', addr: 0x10000, size: 512, time_us: 4},"
               "{action: 'free_requested', addr: 0x10000, size: 512, time_us: 5},"
               "{action: 'alloc', addr: 0x10e00, size: 500, time_us: 6}]]," SEGMENT("," FRAMES) "}",
               "1000 segment+ gpu0 10000 4096-0 stream0 -\n"
               "2000 alloc gpu0 10000 512-0 stream0 f/a.py:7<g/b.py:8 >2\n"
               "3000 free gpu0 10000 512-0 stream0 f/a.py:7<g/b.py:8 >1\n"
               "4000 alloc gpu0 10000 512-0 stream0 - >4\n5000 free gpu0 10000 512-0 stream0 - >3\n"
               "6000 alloc gpu0 10e00 512-12 stream0 -\nfrom 1000 to 6000, before 0 in 0, unknown 0\n",
               GP_REC_EXACT, 0, 0);
}

/* Sums are bounds where something is not in the trace, and exact in a trace of all. */
Test(torch_trace, bounds)
{
#define ALLOCATED "{action: 'alloc', addr: 0x10000, size: 512, time_us: 2},"
#define LIVES     "{action: 'alloc', addr: 0x10e00, size: 500, time_us: 9}"
    expect_bound("{device_traces: [[" MADE LIVES "]]," SEGMENT("") "}", GP_REC_EXACT, 0, 0);
    expect_bound("{device_traces: [[" LIVES "]]," SEGMENT("") "}", GP_REC_AT_LEAST, 0, 0); /* the segment was there */
    expect_bound("{device_traces: [[{action: 'segment_alloc', addr: 0x10000, size: 4096, time_us: 1}]]}",
                 GP_REC_AT_LEAST, 0, 0); /* the segment was made for a block */
    expect_bound("{device_traces: []," SEGMENT("") "}", GP_REC_AT_LEAST, 0, 0);
    expect_bound("{device_traces: [[" MADE ALLOCATED
                 "{action: 'free_completed', addr: 0x10000, size: 512, time_us: 3}," LIVES "]]," SEGMENT("") "}",
                 GP_REC_AT_MOST, 0, 0);
    expect_bound("{device_traces: [[" ALLOCATED
                 "{action: 'free_completed', addr: 0x10000, size: 512, time_us: 3}," LIVES "]]," SEGMENT("") "}",
                 GP_REC_ABOUT, 0, 0);
    expect_bound("{device_traces: [[" MADE LIVES "]]}", GP_REC_AT_MOST, 0, 0); /* no frees, and no end */
    expect_bound("{device_traces: [[" MADE LIVES "]], allocator_settings: {max_split_size: 1}," SEGMENT("") "}",
                 GP_REC_AT_LEAST, 0, 0);
    expect_bound("{device_traces: [[{action: 'segment_map', addr: 0x10000, size: 4096, time_us: 1}," LIVES
                 "]], allocator_settings: {max_split_size: 1}," SEGMENT(", is_expandable: T") "}",
                 GP_REC_EXACT, 0, 0);
}
