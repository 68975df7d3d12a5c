/* SPDX-License-Identifier: MIT
 *
 * test_torch_trace.c: what the reader makes of each entry, block, segment, annotation and frame of a snapshot of PyTorch
 * (tools/read/recording/fromtorch.c, torchsites.c), and of values at and beyond their limits.
 */
#include "torchtext.h"

#include <base/compiler.h>
#include <lib/lackmemory.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- entries ----------------------------------------------------------------------------------------------------- */

Test(torch_trace, each_action_is_an_event)
{
    expect_shown("{device_traces: [[], [{action: 'alloc', addr: 0x1000, size: 1000, stream: 5, time_us: 10, " FRAMES
                 "},"
                 "{action: 'oom', addr: 3, size: 999, stream: 6, time_us: 11, " FRAMES "},"
                 "{action: 'snapshot', addr: 4, size: 888, stream: 0, time_us: 12, " FRAMES "},"
                 "{action: 'free_requested', addr: 0x1000, size: 1, stream: 7, time_us: 13, frames: []},"
                 "{action: 'free_completed', addr: 0x1000, size: 1, stream: 8, time_us: 14, frames: []},"
                 "{action: 'segment_alloc', addr: 0x200000, size: 2097152, stream: 9, time_us: 15, " FRAMES "},"
                 "{action: 'segment_free', addr: 0x200000, size: 2097152, stream: 1, time_us: 16, " FRAMES "},"
                 "{action: 'segment_map', addr: 0x400000, size: 100, stream: 2, time_us: 17, " FRAMES "},"
                 "{action: 'segment_unmap', addr: 0x400000, size: 100, stream: 3, time_us: 18, " FRAMES "},"
                 "{action: 'new', addr: 0x500000, size: 100, stream: 3, time_us: 19, " FRAMES "},"
                 "{action: 'alloc', addr: 0x1000, size: 1024, time_us: 20}]]}",
                 "10000 alloc gpu1 1000 1024-24 stream5 f/a.py:7<g/b.py:8 >3\n"
                 "11000 oom gpu1 0 999-0 stream6 f/a.py:7<g/b.py:8\n"
                 "12000 snap none gpu1 0 0-0 stream0 -\n"
                 "13000 free gpu1 1000 1024-24 stream7 f/a.py:7<g/b.py:8 >0\n"
                 "15000 segment+ gpu1 200000 2097152-0 stream9 - >5\n"
                 "16000 segment- gpu1 200000 2097152-0 stream1 - >4\n"
                 "17000 map+ gpu1 400000 100-0 stream2 -\n"
                 "18000 map- gpu1 400000 100-0 stream3 -\n"
                 "20000 alloc gpu1 1000 1024-0 stream0 -\n"
                 "from 10000 to 20000, before 0 in 0, unknown 1\n");
}

/* Of one address on two devices; freed twice; freed without an allocation, in a trace that has others and in one without. */
Test(torch_trace, frees_of_what_was_there_before)
{
    expect_shown("{device_traces: [[{action: 'free_requested', addr: 0x1000, size: 600, stream: 5, time_us: 10},"
                 "{action: 'free_completed', addr: 0x1000, size: 600, stream: 5, time_us: 11},"
                 "{action: 'free_requested', addr: 0x1000, size: 600, stream: 5, time_us: 12},"
                 "{action: 'free_completed', addr: 0x2000, size: 700, stream: 5, time_us: 13},"
                 "{action: 'free_requested', addr: 0x2000, size: 700, stream: 5, time_us: 14}],"
                 "[{action: 'alloc', addr: 0x1000, size: 0, time_us: 3},"
                 "{action: 'free_requested', addr: 0x1000, size: 0, time_us: 11},"
                 "{action: 'alloc', addr: 0x1000, size: 513, time_us: 12},"
                 "{action: 'free_requested', addr: 0x3000, size: 5, time_us: 12}]]}",
                 "before 3000 alloc gpu1 3000 512-507 stream0 allocated before the/:0\n"
                 "3000 alloc gpu1 1000 0-0 stream0 - >3\n"
                 "10000 alloc gpu0 1000 1024-424 stream5 allocation not in th/:0 >2\n"
                 "10000 free gpu0 1000 1024-424 stream5 allocation not in th/:0 >1\n"
                 "11000 free gpu1 1000 0-0 stream0 - >0\n"
                 "12000 alloc gpu0 1000 1024-424 stream5 allocation not in th/:0 >5\n"
                 "12000 free gpu0 1000 1024-424 stream5 allocation not in th/:0 >4\n"
                 "12000 alloc gpu1 1000 1024-511 stream0 -\n"
                 "12000 free gpu1 3000 512-507 stream0 allocated before the/:0 >10\n"
                 "14000 alloc gpu0 2000 1024-324 stream5 allocation not in th/:0 >9\n"
                 "14000 free gpu0 2000 1024-324 stream5 allocation not in th/:0 >8\n"
                 "from 3000 to 14000, before 512 in 1, unknown 0\n");
}

/* Recorded with skip_actions=["free_requested"]: each block ends at free_completed, also one from before the trace. */
Test(torch_trace, frees_that_are_completed_only)
{
    expect_shown("{device_traces: [[{action: 'free_completed', addr: 0x3000, size: 512, stream: 0, time_us: 9},"
                 "{action: 'alloc', addr: 0x1000, size: 512, stream: 0, time_us: 10},"
                 "{action: 'free_completed', addr: 0x1000, size: 512, stream: 0, time_us: 11},"
                 "{action: 'alloc', addr: 0x2000, size: 512, stream: 0, time_us: 12}]]}",
                 "before 9000 alloc gpu0 3000 512-0 stream0 allocated before the/:0\n"
                 "9000 free gpu0 3000 512-0 stream0 allocated before the/:0 >4\n"
                 "10000 alloc gpu0 1000 512-0 stream0 - >2\n"
                 "11000 free gpu0 1000 512-0 stream0 - >1\n"
                 "12000 alloc gpu0 2000 512-0 stream0 -\n"
                 "from 9000 to 12000, before 512 in 1, unknown 0\n");
}

/* Versions up to 2.0 keep a live block's stack in its history. */
Test(torch_trace, stacks_in_the_history_of_a_block)
{
    expect_shown("{device_traces: [[]], segments: [{device: 0, address: 0x1000, total_size: 512, stream: 0, blocks: ["
                 "{size: 512, requested_size: 500, state: 'active_allocated', history: [{real_size: 500, addr: 0x1000,"
                 "frames: [{name: 'f', filename: 'a.py', line: 7}]}]}]}]}",
                 "before 0 alloc gpu0 1000 512-12 stream0 f/a.py:7\n"
                 "before 0 segment+ gpu0 1000 512-0 stream0 -\n"
                 "from 0 to 0, before 0 in 0, unknown 0\n");
}

/* What the program says about a block is its outermost frame; an annotation is a mark. */
Test(torch_trace, metadata_of_the_user)
{
    expect_shown("{device_traces: [[{action: 'alloc', addr: 0x1000, size: 512, stream: 0, time_us: 10,"
                 "frames: [{name: 'f', filename: 'a.py', line: 7}], user_metadata: 'layer 1'},"
                 "{action: 'alloc', addr: 0x2000, size: 512, stream: 0, time_us: 11, user_metadata: 'layer 1'},"
                 "{action: 'annotate', addr: 0x2000, size: 512, stream: 0, time_us: 12, user_metadata: 'now'}]]}",
                 "10000 alloc gpu0 1000 512-0 stream0 f/a.py:7<layer 1/:0\n"
                 "11000 alloc gpu0 2000 512-0 stream0 layer 1/:0\n"
                 "12000 mark now\n"
                 "from 10000 to 12000, before 0 in 0, unknown 0\n");
}

/* Since 2.15 pinned memory is of the device -1. */
Test(torch_trace, pinned_memory)
{
    expect_shown("{device_traces: [[]], host_traces: [],"
                 "host_segments: [{device: -1, address: 0x1000, total_size: 1024, stream: 0, blocks: []}]}",
                 "before 0 segment+ ? gpu64 1000 1024-0 stream0 -\nfrom 0 to 0, before 0 in 0, unknown 0\n");
    expect_shown(
        "{device_traces: [[]], host_traces: [{action: 'alloc', addr: 0x1000, size: 700, stream: 0, time_us: 5}],"
        "host_segments: [{device: 0, address: 0x1000, total_size: 1024, stream: 0, blocks: ["
        "{address: 0x1000, size: 1024, requested_size: 700, state: 'active_allocated'}]}]}",
        "before 5000 segment+ ? gpu64 1000 1024-0 stream0 -\n"
        "5000 alloc ? gpu64 1000 1024-324 stream0 -\n"
        "from 5000 to 5000, before 0 in 0, unknown 0\n");
}

/* Without times each entry counts as a microsecond; a clock that is set back stands still. */
Test(torch_trace, times_never_fall)
{
    expect_shown("{device_traces: [[{action: 'snapshot'}, {action: 'snapshot'}, {action: 'snapshot', time_us: 9},"
                 "{action: 'snapshot', time_us: 4}, {action: 'snapshot', time_us: N}]]}",
                 "1000 snap none gpu0 0 0-0 stream0 -\n2000 snap none gpu0 0 0-0 stream0 -\n"
                 "9000 snap none gpu0 0 0-0 stream0 -\n9000 snap none gpu0 0 0-0 stream0 -\n"
                 "10000 snap none gpu0 0 0-0 stream0 -\nfrom 1000 to 10000, before 0 in 0, unknown 0\n");
    expect_shown("{device_traces: [[{action: 'snapshot', time_us: -5}, {action: 'snapshot'}]]}",
                 "0 snap none gpu0 0 0-0 stream0 -\n1000 snap none gpu0 0 0-0 stream0 -\n"
                 "from 0 to 1000, before 0 in 0, unknown 0\n");
    expect_shown("{device_traces: [[{action: 'snapshot', time_us: 9223372036854775}]]}",
                 "9223372036854775000 snap none gpu0 0 0-0 stream0 -\n"
                 "from 9223372036854775000 to 9223372036854775000, before 0 in 0, unknown 0\n");
    expect_refused("{device_traces: [[{action: 'snapshot', time_us: 9223372036854776}]]}",
                   "a pickle of PyTorch, but it has an entry with an impossible time");
    expect_shown("{device_traces: []}", "from 0 to 0, before 0 in 0, unknown 0\n");
}

Test(torch_trace, sizes_at_their_limits)
{
    static const char refusal[] = "a pickle of PyTorch, but it has an entry with an impossible size or address";
    expect_shown(
        "{device_traces: [[{action: 'segment_alloc', addr: 0xfffbffffffffffff, size: 0x4000000000000, time_us: 1},"
        "{action: 'alloc', addr: 1, size: 0x4000000000000, time_us: 2},"
        "{action: 'alloc', addr: 2, size: 5, gpuprof_bytes: 0x4000000000000, time_us: 3},"
        "{action: 'alloc', addr: 3, size: 5, gpuprof_bytes: 0x4000000000001, time_us: 4},"
        "{action: 'alloc', addr: 4, size: 5, gpuprof_bytes: 1, time_us: 5},"
        "{action: 'alloc', addr: 5, size: 5, gpuprof_bytes: 0, time_us: 6},"
        "{action: 'alloc', addr: 6, size: 5, gpuprof_bytes: -7, time_us: 7},"
        "{action: 'alloc', addr: 7, size: 5, gpuprof_bytes: 4294967299, time_us: 8},"
        "{action: 'alloc', addr: 8, size: 5, gpuprof_bytes: 4294967300, time_us: 9},"
        "{action: 'alloc', addr: 9, size: 700, gpuprof_bytes: 700, time_us: 10},"
        "{action: 'alloc', addr: 10, size: 512, time_us: 11}]]}",
        "1000 segment+ gpu0 fffbffffffffffff 1125899906842624-0 stream0 -\n"
        "2000 alloc gpu0 1 1125899906842624-0 stream0 -\n"
        "3000 alloc gpu0 2 1125899906842624-0 stream0 -\n4000 alloc gpu0 3 512-507 stream0 -\n"
        "5000 alloc gpu0 4 1-0 stream0 -\n6000 alloc gpu0 5 512-507 stream0 -\n7000 alloc gpu0 6 512-507 stream0 -\n"
        "8000 alloc gpu0 7 4294967299-4294967294 stream0 -\n9000 alloc gpu0 8 4294967300-0 stream0 -\n"
        "10000 alloc gpu0 9 700-0 stream0 -\n11000 alloc gpu0 a 512-0 stream0 -\n"
        "from 1000 to 11000, before 0 in 0, unknown 0\n");
    expect_refused("{device_traces: [[{action: 'alloc', addr: 0xfffc000000000000, size: 1}]]}", refusal);
    expect_refused("{device_traces: [[{action: 'alloc', addr: 1, size: 0x4000000000001}]]}", refusal);
    expect_refused("{device_traces: [[{action: 'alloc', addr: 1, size: -1}]]}", refusal);
}

/* Of an entry the first 64 keys count. */
Test(torch_trace, keys_of_an_entry)
{
    for (unsigned before = 62; before < 66; before++) {
        static char keys[2000];
        struct gp_recording *r = NULL;
        keys[0] = '\0';
        for (unsigned i = 0; i < before; i++)
            sprintf(keys + strlen(keys), i % 2 ? "5: 6, " : "other: 7, ");
        cr_assert_eq(read_text(&r, "{device_traces: [[{%s action: 'snapshot'}]]}", keys), 0);
        cr_expect(r->event_count == (before < 64) && r->torch_unknown == (before >= 64), "%u", before);
        gp_recording_free(r);
    }
    expect_shown("{device_traces: [[{action: 'alloc', addr: N, size: N, stream: N, time_us: 'x', gpuprof_bytes: N}]]}",
                 "1000 alloc gpu0 0 0-0 stream0 -\nfrom 1000 to 1000, before 0 in 0, unknown 0\n");
    expect_shown(
        "{segments: [{device: N, address: N, total_size: N, is_expandable: N, blocks: [{size: N, state: "
        "'active_allocated'}]},"
        "{device: N, address: 4096, total_size: 512, is_expandable: N}]}",
        "before 0 alloc gpu0 0 0-0 stream0 allocated before the/:0\nbefore 0 segment+ gpu0 1000 512-0 stream0 -\n"
        "from 0 to 0, before 0 in 1, unknown 0\n");
    expect_shown("{device_traces: [[[], 5, {}, {action: 5}, {action: 'allo'}, {action: 'allocs'}]]}",
                 "from 1000 to 1000, before 0 in 0, unknown 6\n");
}

/* ---- segments and blocks ----------------------------------------------------------------------------------------- */

/* Blocks follow each other unless they have addresses; those that are allocated were there before the trace. */
Test(torch_trace, blocks_of_segments)
{
    expect_shown("{segments: [{device: 2, address: 0x10000, total_size: 8192, blocks: ["
                 "{size: 1024, requested_size: 1000, state: 'active_allocated', " FRAMES "},"
                 "{size: 512, requested_size: 500, state: 'inactive'},"
                 "{size: 512, state: 'active_allocated'},"
                 "{size: 512, requested_size: -5, state: 'active_allocated'},"
                 "{size: 512, requested_size: 9, state: 'active_awaiting_free'},"
                 "{address: 0x11800, size: 1024, requested_size: 1023, state: 'active_allocated'},"
                 "{size: 1024, requested_size: 1, state: 'active_allocated', frames: []}]},"
                 "{address: 0x20000, total_size: 512, is_expandable: T, blocks: N},"
                 "{device: 2, address: 0x20200, total_size: 0}]}",
                 "before 0 alloc gpu2 10000 1024-24 stream0 f/a.py:7<g/b.py:8\n"
                 "before 0 alloc gpu2 10600 512-0 stream0 allocated before the/:0\n"
                 "before 0 alloc gpu2 10800 512-512 stream0 allocated before the/:0\n"
                 "before 0 alloc gpu2 11800 1024-1 stream0 allocated before the/:0\n"
                 "before 0 alloc gpu2 11c00 1024-1023 stream0 allocated before the/:0\n"
                 "before 0 map+ gpu0 20000 512-0 stream0 -\n"
                 "before 0 segment+ gpu2 10000 8192-0 stream0 -\n"
                 "from 0 to 0, before 3072 in 4, unknown 0\n");
}

/* A block that lives at the end has its true size, and its frames if the trace has none; also one that the trace has freed,
 * and that was allocated again in no entry. */
Test(torch_trace, blocks_that_the_trace_knows)
{
    expect_shown("{device_traces: [[{action: 'alloc', addr: 0x10000, size: 700, time_us: 5},"
                 "{action: 'alloc', addr: 0x10800, size: 700, time_us: 6},"
                 "{action: 'free_requested', addr: 0x10800, size: 700, time_us: 7}]],"
                 "segments: [{address: 0x10000, total_size: 4096, blocks: ["
                 "{size: 2048, requested_size: 701, state: 'active_allocated', " FRAMES "},"
                 "{size: 2048, requested_size: 9, state: 'active_allocated', " FRAMES "}]}]}",
                 "before 5000 segment+ gpu0 10000 4096-0 stream0 -\n"
                 "5000 alloc gpu0 10000 2048-1347 stream0 f/a.py:7<g/b.py:8\n"
                 "6000 alloc gpu0 10800 1024-324 stream0 - >2\n7000 free gpu0 10800 1024-324 stream0 - >1\n"
                 "7000 alloc gpu0 10800 2048-2039 stream0 f/a.py:7<g/b.py:8\n"
                 "from 5000 to 7000, before 0 in 0, unknown 0\n");
}

/* What the trace frees or maps was not there, or was there, before it. */
Test(torch_trace, the_start_is_found_from_the_end)
{
    expect_shown("{device_traces: [[{action: 'free_completed', addr: 0x30000000, size: 512, time_us: 1000},"
                 "{action: 'alloc', addr: 0x50000000, size: 512, time_us: 1001},"
                 "{action: 'free_requested', addr: 0x20000000, size: 1048576, time_us: 1002},"
                 "{action: 'free_completed', addr: 0x20000000, size: 1048576, time_us: 1003},"
                 "{action: 'segment_free', addr: 0x20000000, size: 2097152, time_us: 1004},"
                 "{action: 'segment_map', addr: 0x50200000, size: 2097152, time_us: 1005}]],"
                 "segments: [{address: 0x50000000, total_size: 4194304, is_expandable: T}]}",
                 "before 1000000 alloc gpu0 20000000 1048576-0 stream0 allocated before the/:0\n"
                 "before 1000000 segment+ gpu0 20000000 2097152-0 stream0 -\n"
                 "before 1000000 map+ gpu0 50000000 2097152-0 stream0 -\n"
                 "1001000 alloc gpu0 50000000 512-0 stream0 -\n"
                 "1002000 free gpu0 20000000 1048576-0 stream0 allocated before the/:0 >4\n"
                 "1004000 segment- gpu0 20000000 2097152-0 stream0 - >5\n"
                 "1005000 map+ gpu0 50200000 2097152-0 stream0 -\n"
                 "from 1000000 to 1005000, before 1048576 in 1, unknown 0\n");
}

Test(torch_trace, segments_that_cannot_be)
{
    static const char size[] = "a pickle of PyTorch, but it has a segment with an impossible size or address",
                      device[] = "a pickle of PyTorch, but it has a segment of an impossible device",
                      block[] = "a pickle of PyTorch, but it has a block with an impossible size or address";
    expect_shown("{segments: [{device: 63, address: 0x1000, total_size: 512}]}",
                 "before 0 segment+ gpu63 1000 512-0 stream0 -\nfrom 0 to 0, before 0 in 0, unknown 0\n");
    expect_refused("{segments: [{device: 64, address: 0x1000, total_size: 512}]}", device);
    expect_refused("{segments: [{device: -1, address: 0x1000, total_size: 512}]}", device);
    expect_refused("{segments: [{address: 0x1000, total_size: -512}]}", size);
    expect_refused("{segments: [{address: 0xffffffffffff0000, total_size: 512}]}", size);
    expect_refused("{segments: [{address: 0x1000, total_size: 512, blocks: [{size: -1}]}]}", block);
    expect_refused(
        "{segments: [{address: 0x1000, total_size: 512, blocks: [{size: 5}, {address: 0xffffffffffff0000}]}]}", block);
}

/* Traces of 64 devices, and a file without any. */
Test(torch_trace, devices_and_tables)
{
    char traces[400] = "";
    struct gp_recording *r = NULL;
    for (unsigned i = 0; i < 64; i++)
        strcat(traces, "[],");
    cr_assert_eq(read_text(&r, "{device_traces: [%s]}", traces), 0);
    cr_expect_eq(r->device_count, 0);
    gp_recording_free(r);
    cr_expect_eq(read_text(&r, "{device_traces: [%s[]]}", traces), -EPROTO);
    cr_expect_str_eq(why, "a pickle of PyTorch, but it has traces of too many devices");
    cr_assert_eq(read_text(&r, "{device_traces: [%.*s[{action: 'snapshot'}]]}", 63 * 3, traces), 0);
    cr_expect(r->device_count == 1 && r->devices[0].index == 63);
    gp_recording_free(r);
    static const char none[] = "a pickle, but no memory snapshot of PyTorch: it has no 'device_traces'";
    expect_refused("{external_annotations: []}", none);
    expect_refused("[]", none);
    expect_shown("{segments: []}", "from 0 to 0, before 0 in 0, unknown 0\n");
}

/* A file of this size whose root has these parts; memo 0 is a list of 100 empty dictionaries. */
static int again(const char *parts, size_t part_bytes, size_t bytes)
{
    struct gp_recording *r = NULL;
    free(file.at);
    recfile_begin(&file);
    recfile_raw(&file, "\x80\2](", 4);
    for (unsigned i = 0; i < 100; i++)
        recfile_raw(&file, "}", 1);
    recfile_raw(&file,
                "e\x94"
                "0}(",
                5);
    recfile_raw(&file, parts, part_bytes);
    pickle_text(&file, "x", 1);
    size_t left = bytes - file.size - 7;
    char *filler = calloc(1, left);
    pickle_text(&file, filler, left);
    free(filler);
    recfile_raw(&file, "u.", 2);
    cr_assert_eq(file.size, bytes);
    int rc = gp_recording_parse(&r, file.at, file.size, why, sizeof(why));
    if (rc == 0)
        gp_recording_free(r);
    return rc;
}

/* Rows of lists that are named again count again: a file has one for every eight of its bytes at most. */
Test(torch_trace, lists_that_are_named_again)
{
#define TRACES      "X\x0d\0\0\0device_traces"
#define NOTES       "X\x14\0\0\0external_annotations"
#define BLOCKS      "}X\6\0\0\0blocksh\0s"
#define SEGMENTS(_) "X\x08\0\0\0segments](" _ "e"
    static const struct {
        const char *parts;
        size_t part_bytes, bytes; /* that are enough */
        const char *why;
    } rows[] = {
#define ROW(_parts, _rows, _why) {_parts, sizeof(_parts) - 1, 8 * (_rows), "a pickle of PyTorch, but " _why}
        ROW(TRACES "](h\0h\0h\0h\0h\0e", 500, "it names one list of entries many times"),
        ROW(SEGMENTS(BLOCKS BLOCKS BLOCKS), 303, "it names one list of blocks many times"),
        ROW(SEGMENTS(BLOCKS BLOCKS "}"), 203, "it has a segment with an impossible size or address"),
        ROW(TRACES "]" NOTES "h\0", 100, "it names one list of annotations many times"),
        ROW(TRACES "](h\0e" NOTES "h\0", 200, "it names one list of annotations many times"),
        ROW(TRACES "](h\0e" SEGMENTS(BLOCKS) NOTES "h\0", 301, "it names one list of annotations many times"),
        ROW(TRACES "](h\0h\0e" SEGMENTS(BLOCKS), 301, "it names one list of blocks many times"),
    };
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        cr_expect_eq(again(rows[i].parts, rows[i].part_bytes, rows[i].bytes), 0, "%zu: %s", i, why);
        cr_expect_eq(again(rows[i].parts, rows[i].part_bytes, rows[i].bytes - 1), -EPROTO, "%zu", i);
        cr_expect_str_eq(why, rows[i].why, "%zu: %s", i, why);
    }
}

/* A key is looked for among the first 256 of its dictionary. */
Test(torch_trace, keys_are_among_the_first)
{
    for (unsigned before = 254; before < 259; before++) {
        struct gp_recording *r = NULL;
        char bytes[2048] = "\x80\x02}(";
        size_t put = 4;
        for (unsigned i = 0; i < before; i++, put += 4)
            memcpy(bytes + put, "K\x01K\x01", 4);
        memcpy(bytes + put, "X\x0d\0\0\0device_traces]u.", 21);
        int rc = gp_recording_parse(&r, bytes, put + 21, why, sizeof(why));
        cr_expect_eq(rc == 0, before < 256, "after %u keys: %s", before, why);
        if (rc == 0)
            gp_recording_free(r);
    }
}

static void rises(void *arg, unsigned parts)
{
    unsigned *last = arg;
    cr_expect(parts >= *last && parts <= 1000, "%u after %u", parts, *last);
    *last = parts;
}

/* A file of more than two pieces of what is read at a time, by its path and from memory. */
Test(torch_trace, a_long_file_is_read_in_pieces)
{
    enum { ENTRIES = 100000 };
    struct gp_recording *whole = NULL, *pieces = NULL;
    char path[64], *text = malloc(ENTRIES * 80), *at = text;
    unsigned last = 0;
    at += sprintf(at, "{device_traces: [[");
    for (unsigned i = 0; i < ENTRIES; i++)
        at += sprintf(at, "{action: '%s', addr: %u, size: 512, time_us: %u},", i % 2 ? "free_completed" : "alloc",
                      0x10000000 + i / 2 % 1000 * 4096, 1000 + i);
    strcpy(at, "]]}");
    pickle(text);
    free(text);
    cr_assert_gt(file.size, 2 * GP_FORMAT_BLOCK_BYTES);
    cr_assert_eq(gp_recording_parse(&whole, file.at, file.size, why, sizeof(why)), 0, "%s", why);
    int fd = memfd_create("gpuprof-test", MFD_CLOEXEC);
    cr_assert_eq(write(fd, file.at, file.size), (ssize_t)file.size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    cr_assert_eq(gp_recording_open(&pieces, path, why, sizeof(why), rises, &last), 0, "%s", why);
    cr_assert_eq(whole->event_count, ENTRIES);
    cr_assert_eq(pieces->event_count, ENTRIES);
    cr_expect_arr_eq(pieces->events, whole->events, ENTRIES * sizeof(whole->events[0]));
    gp_recording_free(whole);
    gp_recording_free(pieces);
    close(fd);
}

/* A text of 4 GiB is too long for this version; none of its bytes is looked at. */
Test(torch_trace, a_text_that_is_too_long)
{
    const uint64_t length = UINT32_MAX + 1ull, bytes = length + 12;
    struct gp_recording *r = NULL;
    uint8_t *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED)
        cr_skip("no address space");
    memcpy(data, "\x80\2\x8d", 3);
    memcpy(data + 3, &length, sizeof(length));
    cr_expect_eq(gp_recording_parse(&r, data, bytes, why, sizeof(why)), -EFBIG);
    cr_expect_str_eq(why, "more events or sites than this version opens (268435456 events)");
    munmap(data, bytes);
}

/* ---- annotations ------------------------------------------------------------------------------------------------- */

Test(torch_trace, annotations_are_marks)
{
    expect_shown("{device_traces: [[{action: 'snapshot', time_us: 20}]], external_annotations: ["
                 "{name: 'step', stage: 'START', time_us: 5}, {name: 'step', stage: 'END', time_us: 30},"
                 "{name: 'one', stage: 'START', time_us: 31}, {name: 'one', stage: 'END', time_us: 31},"
                 "{name: 'two', stage: 'START', time_us: 32}, {name: 'twx', stage: 'END', time_us: 32},"
                 "{name: 'two', stage: 'START', time_us: 33}, {name: 'tw', stage: 'END', time_us: 33},"
                 "{name: 'x', stage: 'START', time_us: 34}, {name: 'x', stage: 'START', time_us: 34},"
                 "{name: 'y', stage: 'END', time_us: 0}, {name: 5, time_us: 6}, {time_us: 6}, {name: 'z'},"
                 "{name: 'z', time_us: -1}, {name: 'z', time_us: 9223372036854776},"
                 "{name: 'last', time_us: 9223372036854775}]}",
                 "0 mark /y\n5000 mark step\n20000 snap none gpu0 0 0-0 stream0 -\n30000 mark /step\n31000 mark one\n"
                 "32000 mark two\n32000 mark /twx\n33000 mark two\n33000 mark /tw\n34000 mark x\n34000 mark x\n"
                 "9223372036854775000 mark last\nfrom 0 to 9223372036854775000, before 0 in 0, unknown 0\n");
}

/* Of a name 500 bytes are kept. */
Test(torch_trace, names_of_annotations_are_cut)
{
    char name[600];
    for (int length = 498; length < 504; length++)
        for (int end = 0; end < 2; end++) {
            struct gp_recording *r = NULL;
            memset(name, 'n', sizeof(name));
            cr_assert_eq(read_text(&r,
                                   "{segments: [], external_annotations: [{name: '%.*s', stage: '%s', time_us: 5}]}",
                                   length, name, end ? "END" : "START"),
                         0, "%s", why);
            cr_assert_eq(r->event_count, 1);
            cr_expect_eq(strlen(r->strings + r->events[0].bytes), (size_t)(end + (length < 500 ? length : 500)), "%d",
                         length);
            gp_recording_free(r);
        }
}

/* ---- frames ------------------------------------------------------------------------------------------------------ */

#define ENTRY(_frames) "{action: 'alloc', addr: 1, size: 512, frames: [" _frames "]},"
#define ONE            "{name: 'f', filename: 'a.py', line: 7}"

Test(torch_trace, stacks_with_equal_frames_are_one_site)
{
    struct gp_recording *r = NULL;
    cr_assert_eq(read_text(&r, "{device_traces: [[%s]]}",
                           ENTRY(ONE) ENTRY(ONE) ENTRY(ONE ONE) ENTRY(ONE "5, [], N") ENTRY("5") ENTRY("") ENTRY(
                               "{name: 'f', filename: 'a.py', line: 8}") ENTRY("{name: 'f', filename: 'b.py', line: 7}")
                               ENTRY("{name: 'g', filename: 'a.py', line: 7}") ENTRY("{name: 5, line: 2147483647}")
                                   ENTRY("{name: 'a.py', line: 2147483648}") ENTRY("{filename: 'f', line: -1}")
                                       ENTRY("{line: 1}") ENTRY(ONE "{line: 1}")),
                 0, "%s", why);
    static const char *const wanted[] = {
        "f/a.py:7", "f/a.py:7", "f/a.py:7<f/a.py:7", "f/a.py:7", "-",    "-",   "f/a.py:8",
        "f/b.py:7", "g/a.py:7", "/:2147483647",      "a.py/:0",  "/f:0", "/:1", "f/a.py:7</:1"};
    static const uint32_t site[] = {1, 1, 2, 1, 0, 0, 3, 4, 5, 6, 7, 8, 9, 10};
    cr_assert_eq(r->event_count, GP_COUNT(wanted));
    for (size_t i = 0; i < GP_COUNT(wanted); i++) {
        cr_expect_str_eq(site_text(r, r->events[i].site), wanted[i], "%zu: %s", i, site_text(r, r->events[i].site));
        cr_expect_eq(r->events[i].site, site[i], "%zu", i);
    }
    cr_expect(r->site_count == 11 && r->frame_count == 12, "%u, %u", r->site_count, r->frame_count);
    cr_expect(r->sites[1].kind == GP_KIND_LINEAR && !r->sites[1].truncated && r->frames[0].module == GP_REC_NONE);
    cr_expect(r->sites[1].calls == 3 && r->sites[1].allocated_bytes == 3 * 512);
    cr_expect_eq(r->string_bytes, strlen("PyTorch snapshot") + 2 + strlen("f a.py b.py g") + 3, "%u", r->string_bytes);
    gp_recording_free(r);
}

/* Of a stack the first 1024 frames are kept. */
Test(torch_trace, deep_stacks_are_cut)
{
    static char frames[40000];
    for (unsigned count = 1022; count < 1028; count++) {
        struct gp_recording *r = NULL;
        frames[0] = '\0';
        char *at = frames;
        for (unsigned i = 0; i < count; i++)
            at += sprintf(at, "{line: %u}", i + 1);
        cr_assert_eq(read_text(&r, "{device_traces: [[{action: 'alloc', addr: 1, size: 512, frames: [%s]}]]}", frames),
                     0, "%s", why);
        const struct gp_rec_site *site = &r->sites[r->events[0].site];
        cr_expect(site->frame_count == (count < 1024 ? count : 1024) && site->truncated == (count > 1024), "%u", count);
        for (uint32_t i = 0; i < site->frame_count; i++)
            cr_assert_eq(r->frames[site->first_frame + i].line, i + 1);
        gp_recording_free(r);
    }
}

/* A name of up to 4095 bytes is kept as it is; of a longer one, this many. */
Test(torch_trace, long_names_are_cut)
{
    char name[4200];
    memset(name, 'n', sizeof(name));
    for (int length = 4090; length < 4100; length++) {
        struct gp_recording *r = NULL;
        cr_assert_eq(read_text(&r, "{device_traces: [[{action: 'alloc', addr: 1, size: 1, frames: [{name: '%.*s'}]}]]}",
                               length, name),
                     0, "%s", why);
        cr_expect_eq(strlen(r->strings + r->frames[0].function), (size_t)(length < 4095 ? length : 4095));
        gp_recording_free(r);
    }
}

/* ---- granted sizes ----------------------------------------------------------------------------------------------- */

/* A block of 1 MiB + 512 bytes in a segment of 2 MiB: what is left is too little to be cut off. */
static uint64_t granted(const char *settings, const char *segment)
{
    struct gp_recording *r = NULL;
    cr_assert_eq(read_text(&r,
                           "{device_traces: [[{action: 'alloc', addr: 0x200000, size: 1049088}]], %s"
                           "segments: [{address: 0x200000, total_size: 0x200000 %s}]}",
                           settings, segment),
                 0, "%s", why);
    uint64_t bytes = r->events[0].bytes;
    cr_expect_eq(gp_rec_requested(&r->events[0]), 1049088);
    gp_recording_free(r);
    return bytes;
}

Test(torch_trace, granted_sizes_follow_only_from_known_settings)
{
    static const struct {
        const char *settings, *segment;
        bool known;
    } rows[] = {
        {"", "", true},
        {"", ", is_expandable: F", true},
        {"", ", is_expandable: T", false},
        {"allocator_settings: {},", "", true},
        {"allocator_settings: {max_split_size: -1},", "", true},
        {"allocator_settings: {max_split_size: 0},", "", true},
        {"allocator_settings: {max_split_size: 1},", "", false},
        {"allocator_settings: {roundup_power2_divisions: {'1': 0, '2': 1}},", "", true},
        {"allocator_settings: {roundup_power2_divisions: {'1': 2}},", "", false},
        {"allocator_settings: {roundup_power2_divisions: {'1': 0, '2': 0, '4': 2}},", "", false},
        {"allocator_settings: {roundup_power2_divisions: {5: 1, 7: 1}},", "", true}, /* the keys do not matter */
        {"allocator_settings: {roundup_power2_divisions: [2, 2]},", "", true},
        {"allocator_settings: {gpuprof_allocator: 'caching'},", "", false},
    };
    for (size_t i = 0; i < GP_COUNT(rows); i++)
        cr_expect_eq(granted(rows[i].settings, rows[i].segment), rows[i].known ? 2u << 20 : 1049088, "%zu", i);
}

/* A block that leaves too little of its free piece has all of it. */
Test(torch_trace, granted_sizes_follow_from_the_addresses)
{
    expect_shown(
        "{device_traces: [[{action: 'segment_alloc', addr: 0x10000000, size: 20971520, time_us: 1},"
        "{action: 'alloc', addr: 0x10000000, size: 12582912, time_us: 2}," /* 8 MiB are left: split */
        "{action: 'alloc', addr: 0x10c00000, size: 7954432, time_us: 3},"  /* 424 KiB are left: not split */
        "{action: 'free_requested', addr: 0x10000000, size: 12582912, time_us: 4},"
        "{action: 'alloc', addr: 0x10000000, size: 11534337, time_us: 6}," /* up to the next block */
        "{action: 'free_requested', addr: 0x10000000, size: 11534337, time_us: 7}]],"
        "segments: [{address: 0x10000000, total_size: 20971520, blocks: [{size: 12582912, state: 'inactive'},"
        "{size: 8388608, requested_size: 7954432, state: 'active_allocated'}]}]}",
        "1000 segment+ gpu0 10000000 20971520-0 stream0 -\n"
        "2000 alloc gpu0 10000000 12582912-0 stream0 - >3\n3000 alloc gpu0 10c00000 8388608-434176 stream0 -\n"
        "4000 free gpu0 10000000 12582912-0 stream0 - >1\n6000 alloc gpu0 10000000 12582912-1048575 stream0 - >5\n"
        "7000 free gpu0 10000000 12582912-1048575 stream0 - >4\nfrom 1000 to 7000, before 0 in 0, unknown 0\n");
}

Test(torch_trace, the_allocator_is_named)
{
    static const char name[] = "0123456789012345678901234567890123456789012345678901234567890123456789";
    for (int length = 62; length < 67; length++) {
        struct gp_recording *r = NULL;
        cr_assert_eq(read_text(&r, "{segments: [], allocator_settings: {gpuprof_allocator: '%.*s'}}", length, name), 0);
        cr_expect_eq(strlen(r->allocator), (size_t)(length < 64 ? length : 64));
        gp_recording_free(r);
    }
    struct gp_recording *r = NULL;
    cr_assert_eq(read_text(&r, "{segments: [], allocator_settings: {gpuprof_allocator: 5}}"), 0);
    cr_expect_str_eq(r->allocator, "off");
    gp_recording_free(r);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static int read_once(void *arg)
{
    struct gp_recording *r = NULL;
    (void)arg;
    int rc = gp_recording_parse(&r, file.at, file.size, why, sizeof(why));
    if (!rc && (r->event_count != 202 || r->baseline_count != 101 || r->site_count != 103))
        rc = -1;
    gp_recording_free(r);
    return rc;
}

/* Enough rows that every table grows. */
Test(torch_trace, each_allocation_of_the_reader_fails)
{
    static char text[60000];
    char *at = text;
    if (!MEMORY_IS_COUNTED)
        cr_skip("a sanitizer's allocator");
    at += sprintf(at, "{device_traces: [[");
    for (unsigned i = 0; i < 100; i++)
        at += sprintf(at,
                      "{action: 'alloc', addr: %u, size: 512, frames: [{name: 'f%u', line: %u}]},"
                      "{action: 'free_requested', addr: %u, size: 512, frames: []},",
                      0x100000 + i * 512, i, i, 0x900000 + i * 512);
    sprintf(at, "{action: 'oom', size: 1, frames: [{name: 'f'}]}]], external_annotations: [{name: 'a', time_us: 1}],"
                "segments: [{address: 0x100000, total_size: 0x200000}]}");
    pickle(text);
    struct memory_tried tried = memory_each(read_once, NULL);
    cr_expect_gt(tried.calls, 400, "%u", tried.calls);
    cr_expect_eq(tried.wrong, 0, "%u", tried.wrong);
    cr_expect_eq(tried.kept, 0, "%u", tried.kept);
}
