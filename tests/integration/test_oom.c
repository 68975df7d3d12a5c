/* SPDX-License-Identifier: MIT
 *
 * test_oom.c: the out-of-memory report as a user sees it.  `run` prints it if the program fails,
 * not if it recovers; `stat` has its numbers, the log has its text, and its advice works.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/ledger.h"
#include "lib/paths.h"
#include "lib/spawn.h"

#define MIB (1024ll * 1024)

TestSuite(oom, .timeout = 60);

static const char *oom_sim = "--sim=memory=1GiB";

/* `gpuprof run --sim=memory=1GiB OPTIONS oom_fail ARGUMENT`; wrapped lines of stderr are joined. */
static int oom_run(struct spawn_result *result, const char *program, const char *argument, const char *one,
                   const char *two, const char *environment)
{
    const char *argv[10] = {path_command(), "run", oom_sim};
    const char *env[] = {environment, NULL};
    int count = 3;
    size_t used = 0;

    if (one != NULL) {
        argv[count++] = one;
    }
    if (two != NULL) {
        argv[count++] = two;
    }
    argv[count++] = path_program(program);
    argv[count++] = argument;
    memset(result, 0, sizeof(*result));
    cr_assert_eq(spawn_run(&(struct spawn_options){.argv = argv, .env = environment != NULL ? env : NULL}, result), 0);
    for (const char *at = result->err; *at != '\0'; at++) {
        char byte = *at == '\n' ? ' ' : *at;
        if (byte != ' ' || used == 0 || result->err[used - 1] != ' ') {
            result->err[used++] = byte;
        }
    }
    result->err[used] = '\0';
    return WIFEXITED(result->status) ? WEXITSTATUS(result->status) : -1;
}

#define SAYS(_text)     cr_expect(strstr(result.err, _text) != NULL, "no '%s' in:\n%s", _text, result.err)
#define SAYS_NOT(_text) cr_expect(strstr(result.err, _text) == NULL, "'%s' in:\n%s", _text, result.err)
#define PAGE            "gpuprof: Out of memory on device 0 (Simulated GPU 0): "

Test(oom, a_program_that_fails_gets_its_page)
{
    struct spawn_result result;

    cr_expect_eq(oom_run(&result, "oom_fail", NULL, NULL, NULL, NULL), 2);
    cr_expect_str_eq(result.out, "asked for 939524096: 2\n");
    SAYS(PAGE "cuMemAlloc_v2 asked for 896 MiB");
    SAYS("1 GiB in total, 512 MiB free then");
    SAYS("384 MiB reserved from the driver, 384 MiB allocated: linear 384 MiB");
    SAYS("linear 2 96 MiB 192 MiB linear 2 64 MiB 128 MiB linear 2 32 MiB 64 MiB");
    SAYS("- free 384 MiB more, or ask for less");
    SAYS_NOT("--alloc");
    spawn_result_free(&result);
}

Test(oom, a_program_that_copes_is_left_alone)
{
    struct spawn_result result;

    cr_expect_eq(oom_run(&result, "oom_fail", "copes", NULL, NULL, NULL), 0);
    cr_expect_str_empty(result.err);
    spawn_result_free(&result);
    cr_expect_eq(oom_run(&result, "oom_fail", "copes", "--summary", NULL, NULL), 0);
    SAYS("the last of 2 such failures");
    spawn_result_free(&result);
}

Test(oom, pieces_are_explained_and_the_advice_works)
{
    struct spawn_result result;

    cr_expect_eq(oom_run(&result, "oom_fail", "pieces", "--allocator=pytorch", NULL, NULL), 2);
    SAYS(PAGE "cuMemAlloc_v2 asked for 512 MiB");
    SAYS("pieces, largest 18.5 MiB, pinned by 27 live blocks: no piece is large enough");
    SAYS("linear 27 1.5 MiB 40.5 MiB");
    SAYS("- --alloc-conf=expandable_segments:True");
    spawn_result_free(&result);
    cr_expect_eq(
        oom_run(&result, "oom_fail", "pieces", "--allocator=pytorch", "--alloc-conf=expandable_segments:True", NULL),
        0);
    cr_expect_str_eq(result.out, "asked for 536870912: 0\n");
    cr_expect_str_empty(result.err);
    spawn_result_free(&result);
}

/* A program without knowledge of the cache allocates in one place, which the report names with and
 * without a cache. */
Test(oom, the_page_says_where_cached_blocks_were_allocated)
{
    static const char *const allocators[] = {NULL, "--allocator=passthrough", "--allocator=pytorch"};

    for (size_t i = 0; i < sizeof(allocators) / sizeof(allocators[0]); i++) {
        struct spawn_result result;

        cr_expect_eq(oom_run(&result, "oom_fail", NULL, allocators[i], NULL, "GPUPROF_STACKS=native"), 2);
        SAYS("KIND BLOCKS OF TOGETHER WHERE");
        SAYS("linear 6 many sizes 384 MiB program_alloc");
        spawn_result_free(&result);
    }
}

Test(oom, a_limit_is_named_and_the_larger_one_works)
{
    struct spawn_result result;

    cr_expect_eq(oom_run(&result, "oom_fail", "half", "--allocator=passthrough", "--limit=700MiB", NULL), 2);
    SAYS("allocator passthrough, limit 700 MiB");
    SAYS("raise the limit: 700 MiB refused this request, not the device; it takes 832 MiB");
    spawn_result_free(&result);
    cr_expect_eq(oom_run(&result, "oom_fail", "half", "--allocator=passthrough", "--limit=832MiB", NULL), 0);
    cr_expect_str_empty(result.err);
    spawn_result_free(&result);
    cr_expect_eq(oom_run(&result, "oom_fail", "half", "--allocator=passthrough", NULL, "GPUPROF_MEMORY_LIMIT=700MiB"),
                 2);
    spawn_result_free(&result);
}

/* As in a cgroup whose dmem.max is 1 GiB, with a driver of CUDA 13.4. */
Test(oom, a_limit_of_the_driver_is_named)
{
    char path[] = "/tmp/gpuprof-test-XXXXXX", setting[64], text[8192] = "";
    struct spawn_result result;
    int fd = mkstemp(path);

    cr_assert_geq(fd, 0);
    snprintf(setting, sizeof(setting), "GPUPROF_LOG=info:%s", path);
    oom_sim = "--sim=memory=2GiB,limit=1GiB";
    cr_expect_eq(oom_run(&result, "oom_fail", "half", NULL, NULL, setting), 2);
    SAYS(PAGE "cuMemAlloc_v2 asked for 896 MiB");
    SAYS("limit 1 GiB of the device's 2 GiB, set for this process's cgroup or by MPS; 0 B of it free then");
    SAYS("- raise the cgroup's limit");
    SAYS_NOT("in total");
    cr_expect_gt(read(fd, text, sizeof(text) - 1), 0);
    cr_expect(strstr(text, "1 GiB of the device's 2 GiB") != NULL, "%s", text);
    close(fd);
    unlink(path);
    spawn_result_free(&result);
}

Test(oom, the_log_has_the_page)
{
    char path[] = "/tmp/gpuprof-test-XXXXXX", setting[64], text[8192];
    struct spawn_result result;
    int fd = mkstemp(path);

    cr_assert_geq(fd, 0);
    snprintf(setting, sizeof(setting), "GPUPROF_LOG=info:%s", path);
    cr_expect_eq(oom_run(&result, "oom_fail", NULL, NULL, NULL, setting), 2);
    ssize_t len = read(fd, text, sizeof(text) - 1);
    text[len > 0 ? len : 0] = '\0';
    cr_expect(strstr(text, "info: Out of memory on device 0: cuMemAlloc_v2 asked for 896 MiB") != NULL, "%s", text);
    cr_expect(strstr(text, "info: what helps") != NULL, "%s", text);
    unlink(path);
    close(fd);
    spawn_result_free(&result);
}

/* The numbers in stat add up, and are those at the last failure. */
Test(oom, stat_has_the_facts)
{
    const char *argv[] = {path_program("oom"), NULL};
    struct spawn spawn;
    struct spawn_result result = {0};
    struct ledger_diff diff = {0};
    json_t *process, *oom, *holder;
    long long held = 0;
    size_t i;

    cr_assert_eq(spawn_start(&spawn,
                             &(struct spawn_options){
                                 .argv = argv, .sim = "memory=1GiB", .want_library = true, .want_hold = true}),
                 0);
    cr_assert_eq(spawn_wait_held(&spawn, 1), 0);
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
    spawn_finish(&spawn, &result);
    spawn_result_free(&result);
}

Test(oom, no_report_without_a_failure)
{
    struct spawn_result result;

    cr_expect_eq(oom_run(&result, "oom_fail", "half", "--summary", NULL, NULL), 0);
    SAYS_NOT("Out of memory");
    cr_expect(strstr(result.out, "PyTorch CUDA memory summary") != NULL, "%s", result.out);
    spawn_result_free(&result);
}
