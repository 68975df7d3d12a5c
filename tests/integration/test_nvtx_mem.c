/* SPDX-License-Identifier: MIT
 *
 * test_nvtx_mem.c: sub-allocators that describe their heaps through NVTX's memory extension. The
 * program compares gpuprof's numbers with its own after every step; here the numbers at its end are
 * read from outside, and from a recording.
 */
#include "integration/command.h"
#include "lib/ledger.h"
#include <unistd.h>

TestSuite(nvtx_mem, .timeout = 120);

#define MIB 1048576ll

/* What the program leaves: a heap of 2 MiB in a driver allocation of 3 MiB, with two blocks. */
#define LEFT_BLOCKS    (768 * 1024ll)
#define LEFT_ALLOCATED (LEFT_BLOCKS + MIB)
#define LEFT_RESERVED  (3 * MIB)

static json_t *run_scene(const char *scene, const char *source)
{
    const char *argv[] = {path_program("nvtx_mem"), scene, NULL};
    char path[4200];
    snprintf(path, sizeof(path), "NVTX_INJECTION64_PATH=%s", path_library());
    bool refused = strcmp(scene, "refused") == 0;
    const char *env[] = {path, refused ? "GPUPROF_SIM_FAULTS=cuMemFree_v2 1 fail 2\ncuMemUnmap 1 fail 2" : NULL, NULL};
    struct spawn_options options = {.argv = argv, .env = env, .source = source, .want_library = true};
    struct ledger_diff diff = {0};
    struct spawn spawn;
    program_hold(&spawn, &options);
    json_t *process = ledger_stat(&diff, spawn.held[0]);
    program_end(&spawn);
    cr_assert_not_null(process, "%s", diff.text);
    return process;
}

static void check_left(const json_t *process, const char *source)
{
    long long reserved = 0, allocated = 0;
    const json_t *device = json_array_get(json_object_get(process, "devices"), 0), *row;
    size_t i;
    cr_expect_str_eq(json_string_value(json_object_get(process, "source")), source);
    cr_expect_eq(json_at(device, "stats/allocated_bytes.all.current", -1), LEFT_ALLOCATED);
    cr_expect_eq(json_at(device, "stats/reserved_bytes.all.current", -1), LEFT_RESERVED);
    cr_expect_eq(json_at(device, "stats/allocation.all.current", -1), 3,
                 "two blocks and what lies outside of the heap");
    cr_expect_eq(json_at(device, "stats/segment.all.current", -1), 1);
    cr_expect_str_eq(
        json_string_value(json_object_get(json_array_get(json_object_get(device, "frameworks"), 0), "name")), "nvtx");
    cr_expect_eq(json_at(device, "frameworks/0/blocks", -1), 2);
    cr_expect_eq(json_at(device, "frameworks/0/segments", -1), 1);
    cr_expect_eq(json_at(device, "frameworks/0/allocated_bytes", -1), LEFT_BLOCKS);
    cr_expect_eq(json_at(device, "frameworks/0/reserved_bytes", -1), LEFT_RESERVED);
    json_array_foreach(json_object_get(device, "owners"), i, row)
    {
        reserved += json_at(row, "reserved_bytes", -1);
        allocated += json_at(row, "allocated_bytes", -1);
    }
    cr_expect_eq(reserved, LEFT_RESERVED, "owners: %lld", reserved);
    cr_expect_eq(allocated, LEFT_ALLOCATED, "owners: %lld", allocated);
}

Test(nvtx_mem, every_step_counts)
{
    static const char *const sources[] = {"cupti", "hooks"};
    for (int i = 0; i < 2; i++) {
        json_t *process = run_scene("", sources[i]);
        check_left(process, sources[i]);
        cr_expect_eq(json_at(process, "lost/annotation", -1), 0);
        cr_expect_eq(json_at(process, "lost/missed_free", -1), 0);
        json_decref(process);
    }
}

Test(nvtx_mem, contradictions_change_nothing_and_are_counted)
{
    json_t *process = run_scene("hostile", "cupti");
    check_left(process, "cupti");
    cr_expect_gt(json_at(process, "lost/annotation", -1), 20);
    cr_expect_str_eq(said.out, "no module: 0\nanother module: 0\nanother version: 0\na short one: 0\nno segments: 0\n"
                               "segments, none: 0\nanother segment: 0\nfew slots: 1\nwithin them: 1\nhost: 1\n"
                               "nothing there: 1\nnull: 1\nempty: 1\nwraps: 1\ntoo long: 1\ntwice: 1\nnested: 1\n"
                               "over the end: 1\n");
    json_decref(process);
}

Test(nvtx_mem, a_refused_free_leaves_the_memory_without_its_heap)
{
    json_t *process = run_scene("refused", "cupti");
    check_left(process, "cupti");
    SAYS("refused: 1\n");
    SAYS("unmap refused: 1\n");
    json_decref(process);
}

/* Blocks without memory are counted, and nothing else. */
Test(nvtx_mem, heaps_over_mappings_count)
{
    static const char *const sources[] = {"cupti", "hooks"};
    for (int i = 0; i < 2; i++) {
        json_t *process = run_scene("mapped", sources[i]);
        check_left(process, sources[i]);
        cr_expect_str_eq(said.out, "not mapped: 1\nmapped twice: 1\n");
        cr_expect_eq(json_at(process, "lost/annotation", -1), 8);
        cr_expect_eq(json_at(process, "lost/missed_free", -1), 0);
        json_decref(process);
    }
}

Test(nvtx_mem, threads_agree_at_the_end)
{
    static const char *const sources[] = {"cupti", "hooks"};
    for (int i = 0; i < 2; i++) {
        json_t *process = run_scene("threads", sources[i]);
        check_left(process, sources[i]);
        json_decref(process);
    }
}

static long long peak_of(const char *file, const char *key)
{
    command(0, "report", "--json", file, NULL);
    json_t *report = said_json();
    char path[64];
    snprintf(path, sizeof(path), "devices/0/%s", key);
    long long value = json_at(report, path, -1);
    json_decref(report);
    return value;
}

static void record_program(const char *scene, long long allocated, long long reserved)
{
    char file[64], option[96];
    snprintf(file, sizeof(file), "/tmp/nvtx_mem.%d.gpuprof", (int)getpid());
    snprintf(option, sizeof(option), "--record=%s", file);
    command(0, "run", "--sim", option, "--", path_program("nvtx_mem"), scene, NULL);
    cr_expect_eq(peak_of(file, "allocated_end_bytes"), LEFT_ALLOCATED, "%s", scene);
    cr_expect_eq(peak_of(file, "reserved_end_bytes"), LEFT_RESERVED, "%s", scene);
    if (allocated) {
        cr_expect_eq(peak_of(file, "allocated_peak_bytes"), allocated);
        cr_expect_eq(peak_of(file, "reserved_peak_bytes"), reserved);
    }
    unlink(file);
}

Test(nvtx_mem, a_recording_has_the_same_totals)
{
    record_program("", 16 * MIB, 16 * MIB);
    record_program("mapped", 0, 0);
    record_program("threads", 0, 0);                    /* addresses pass from thread to thread */
    record_program("taken", LEFT_RESERVED, 8192 * MIB); /* what was taken was never allocated */
}
