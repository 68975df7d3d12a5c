/* SPDX-License-Identifier: MIT
 *
 * test_oom.c: the out-of-memory report as a user sees it.  `run` prints it if the program fails,
 * not if it recovers; `stat` has its numbers, the log has its text, and its advice works.
 */
#include <stdlib.h>
#include <unistd.h>

#include "integration/command.h"
#include "lib/ledger.h"

#define MIB (1024ll * 1024)

TestSuite(oom, .timeout = 60);

static const char *oom_sim = "--sim=memory=1GiB";

/* `gpuprof run --sim=memory=1GiB OPTIONS oom_fail ARGUMENT` exits with this code; wrapped lines of stderr are joined. */
static void oom_run(int code, const char *argument, const char *one, const char *two, const char *environment)
{
    const char *argv[10] = {path_command(), "run", oom_sim};
    const char *env[] = {environment, NULL};
    int count = 3;
    size_t used = 0;
    if (one)
        argv[count++] = one;
    if (two)
        argv[count++] = two;
    argv[count++] = path_program("oom_fail");
    argv[count++] = argument;
    run_program(code, &(struct spawn_options){.argv = argv, .env = environment ? env : NULL});
    for (const char *at = said.err; *at; at++) {
        char byte = *at == '\n' ? ' ' : *at;
        if (byte != ' ' || used == 0 || said.err[used - 1] != ' ')
            said.err[used++] = byte;
    }
    said.err[used] = '\0';
}

#define PAGE "gpuprof: Out of memory on device 0 (Simulated GPU 0): "

Test(oom, a_program_that_fails_gets_its_page)
{
    oom_run(2, NULL, NULL, NULL, NULL);
    cr_expect_str_eq(said.out, "asked for 939524096: 2\n");
    WARNS(PAGE "cuMemAlloc_v2 asked for 896 MiB");
    WARNS("1 GiB in total, 512 MiB free then");
    WARNS("384 MiB reserved from the driver, 384 MiB allocated: linear 384 MiB");
    WARNS("linear 2 96 MiB 192 MiB linear 2 64 MiB 128 MiB linear 2 32 MiB 64 MiB");
    WARNS("- free 384 MiB more, or ask for less");
    WARNS_NOT("--alloc");
    WARNS_NOT("WHERE"); /* there are no stacks */
}

Test(oom, a_program_that_copes_is_left_alone)
{
    oom_run(0, "copes", NULL, NULL, NULL);
    cr_expect_str_empty(said.err);
    oom_run(0, "copes", "--summary", NULL, NULL);
    WARNS("the last of 2 such failures");
}

Test(oom, pieces_are_explained_and_the_advice_works)
{
    oom_run(2, "pieces", "--allocator=pytorch", NULL, NULL);
    WARNS(PAGE "cuMemAlloc_v2 asked for 512 MiB");
    WARNS("pieces, largest 18.5 MiB, pinned by 27 live blocks: no piece is large enough");
    WARNS("linear 27 1.5 MiB 40.5 MiB");
    WARNS("- --alloc-conf=expandable_segments:True");
    oom_run(0, "pieces", "--allocator=pytorch", "--alloc-conf=expandable_segments:True", NULL);
    cr_expect_str_eq(said.out, "asked for 536870912: 0\n");
    cr_expect_str_empty(said.err);
}

/* A program without knowledge of the cache allocates in one place, which the report names with and
 * without a cache. */
Test(oom, the_page_says_where_cached_blocks_were_allocated)
{
    static const char *const allocators[] = {NULL, "--allocator=passthrough", "--allocator=pytorch"};
    for (size_t i = 0; i < sizeof(allocators) / sizeof(allocators[0]); i++) {
        oom_run(2, NULL, allocators[i], NULL, "GPUPROF_STACKS=native");
        WARNS("KIND BLOCKS OF TOGETHER WHERE");
        WARNS("linear 6 many sizes 384 MiB program_alloc");
    }
}

Test(oom, a_limit_is_named_and_the_larger_one_works)
{
    oom_run(2, "half", "--allocator=passthrough", "--limit=700MiB", NULL);
    WARNS("allocator passthrough, limit 700 MiB");
    WARNS("raise the limit: 700 MiB refused this request, not the device; it takes 832 MiB");
    oom_run(0, "half", "--allocator=passthrough", "--limit=832MiB", NULL);
    cr_expect_str_empty(said.err);
    oom_run(2, "half", "--allocator=passthrough", NULL, "GPUPROF_MEMORY_LIMIT=700MiB");
}

/* As in a cgroup whose dmem.max is 1 GiB, with a driver of CUDA 13.4. */
Test(oom, a_limit_of_the_driver_is_named)
{
    char path[] = "/tmp/gpuprof-test-XXXXXX", setting[64], text[8192] = "";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    snprintf(setting, sizeof(setting), "GPUPROF_LOG=info:%s", path);
    oom_sim = "--sim=memory=2GiB,limit=1GiB";
    oom_run(2, "half", NULL, NULL, setting);
    WARNS(PAGE "cuMemAlloc_v2 asked for 896 MiB");
    WARNS("limit 1 GiB of the device's 2 GiB, set for this process's cgroup or by MPS; 0 B of it free then");
    WARNS("- raise the cgroup's limit");
    WARNS_NOT("in total");
    cr_expect_gt(read(fd, text, sizeof(text) - 1), 0);
    cr_expect(strstr(text, "1 GiB of the device's 2 GiB") != NULL, "%s", text);
    close(fd);
    unlink(path);
}

Test(oom, the_log_has_the_page)
{
    char path[] = "/tmp/gpuprof-test-XXXXXX", setting[64], text[8192];
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    snprintf(setting, sizeof(setting), "GPUPROF_LOG=info:%s", path);
    oom_run(2, NULL, NULL, NULL, setting);
    ssize_t len = read(fd, text, sizeof(text) - 1);
    text[len > 0 ? len : 0] = '\0';
    cr_expect(strstr(text, "info: Out of memory on device 0: cuMemAlloc_v2 asked for 896 MiB") != NULL, "%s", text);
    cr_expect(strstr(text, "info: what helps") != NULL, "%s", text);
    unlink(path);
    close(fd);
}

/* The numbers in stat add up, and are those at the last failure. */
Test(oom, stat_has_the_facts)
{
    const char *argv[] = {path_program("oom"), NULL};
    struct spawn spawn;
    struct ledger_diff diff = {0};
    json_t *process, *oom, *holder;
    long long held = 0;
    size_t i;
    program_hold(&spawn, &(struct spawn_options){.argv = argv, .sim = "memory=1GiB", .want_library = true});
    process = ledger_stat(&diff, spawn.held[0]);
    oom = json_object_get(process, "oom");
    cr_assert(json_is_object(oom), "%s", diff.text);
    cr_expect_eq(json_at(oom, "count", -1), 2);
    cr_expect_eq(json_at(oom, "device", -1), 0);
    cr_expect_eq(json_at(oom, "error", -1), 2);
    cr_expect_eq(json_at(oom, "requested_bytes", -1), 512 * MIB);
    cr_expect_eq(json_at(oom, "reserved_bytes", -1), 640 * MIB);
    cr_expect_eq(json_at(oom, "kinds/linear", -1), 640 * MIB);
    cr_expect_eq(json_at(oom, "total_bytes", -1), 1024 * MIB);
    cr_expect_eq(json_at(oom, "free_bytes", -1) + json_at(oom, "other_bytes", -1) + 640 * MIB, 1024 * MIB);
    cr_expect(json_is_null(json_object_get(oom, "cache")));
    json_array_foreach(json_object_get(oom, "holders"), i, holder)
    {
        held += json_at(holder, "block_bytes", 0) * json_at(holder, "blocks", 0);
    }
    cr_expect_eq(held, 640 * MIB);
    json_decref(process);
    program_end(&spawn);
}

Test(oom, no_report_without_a_failure)
{
    oom_run(0, "half", "--summary", NULL, NULL);
    WARNS_NOT("Out of memory");
    SAYS("PyTorch CUDA memory summary");
}
