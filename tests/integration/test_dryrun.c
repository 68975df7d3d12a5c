/* SPDX-License-Identifier: MIT
 *
 * test_dryrun.c: `gpuprof dryrun` as a user and a script see it: whether a program fits on the GPUs named, what it
 * needs and which line asks for it, and the exit status.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "integration/dryruncase.h"

#define CONTEXT      (80 * MIB) /* what is estimated for a T4, which can hold 40 x 1024 threads */
#define CONTEXT_A100 (432 * MIB)

TestSuite(dryrun, .init = work_begin, .fini = work_end, .timeout = 120);

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* The smallest size of a GPU that has so much beside its context, which is at most an eighth of it. */
static long long smallest(long long bytes, long long context)
{
    for (long long size = bytes;; size += 2 * MIB) {
        long long eighth = size / 8 / (2 * MIB) * (2 * MIB);
        if (size - (eighth < context ? eighth : context) >= bytes)
            return size;
    }
}

Test(dryrun, a_program_that_fits)
{
    dryrun("--gpu=t4 -- %s mib=1024", 0);
    cr_expect_str_empty(said.err);
    cr_expect_eq(strncmp(said.out, "job\n", 4), 0); /* its own output, first */
    SAYS("t4                14.76 GiB   1.328 GiB   1.328 GiB  fits, 13.43 GiB left");
    SAYS("1.000 GiB       1 x unknown         job_weights (job.c:"); /* no framework is on its stack */
    SAYS("context                   estimated");
    SAYS("80.00 MiB: the context, 2 KiB for each thread that the GPU can hold\n");
}

Test(dryrun, a_program_that_does_not_fit_runs_again_with_plenty)
{
    dryrun("--gpu=t4,a100-40g -- %s mib=16384", 3);
    WARNS("ran out of memory on t4: it runs once more on a device of 1TiB");
    SAYS("t4                14.76 GiB   20.08 GiB   20.08 GiB  does not fit: 5.323 GiB too much");
    SAYS("a100-40g          39.59 GiB   20.42 GiB   20.42 GiB  fits, 19.16 GiB left");
    SAYS("the smallest GPU that is enough: a100-40g");
    SAYS("CMD ran out of memory on t4, and ran once more on a device of 1 TiB:\n    at ");
    SAYS("16.00 GiB asked, 14.68 GiB free: job_weights (job.c:");
}

/* Nothing of the program holds memory that it does not use: the driver's pages are larger than its blocks. */
Test(dryrun, pages_are_no_cache)
{
    dryrun("--gpu=t4 -- %s mib=1021", 0);
    SAYS("rounding                  the driver gives whole pages of 2 MiB");
    SAYS_NOT("cache");
    json_t *top = dryrun_json("--gpu=t4 --json -- %s mib=1021", 0), *rank = at(top, "ranks", 0);
    cr_expect_gt(number(rank, "rounding_bytes"), 0);
    cr_expect_eq(number(rank, "rounding_bytes"),
                 number(rank, "needed_bytes") - number(rank, "context_bytes") - number(rank, "allocated_peak_bytes"));
    cr_expect_eq(number(rank, "idle_bytes"), number(rank, "rounding_bytes"));
    json_decref(top);
}

/* The driver keeps the largest stack of a kernel for each of the 40 x 1024 threads that a T4 can hold. */
Test(dryrun, stacks_of_kernels_count)
{
    const long long threads = 40 * 1024, stack = 9216 - 1024;
    json_t *top = dryrun_json("--gpu=t4 --json -- %s mib=1024 stack=1000", 0), *rank = at(top, "ranks", 0);
    const long long needed = number(rank, "needed_bytes"), context = number(rank, "context_bytes");
    cr_expect_eq(number(rank, "thread_stack_bytes"), 1024);
    json_decref(top);
    top = dryrun_json("--gpu=t4 --json -- %s mib=1024 stack=9216", 0);
    rank = at(top, "ranks", 0);
    const long long ordinary = CONTEXT / 6 / (2 * MIB) * (2 * MIB); /* of the first kernel */
    cr_expect_eq(number(rank, "thread_stack_bytes"), 9216);
    cr_expect_eq(number(rank, "context_bytes"), context + threads * stack - ordinary);
    cr_expect_eq(number(rank, "needed_bytes"), needed + threads * stack - ordinary);
    json_decref(top);
    dryrun("--gpu=t4 -- %s mib=1024 stack=9216", 0);
    SAYS("308.0 MiB  18.3 %");
    SAYS("stacks                    of kernels, for each thread that the GPU can hold; estimated");
    SAYS(", 308.0 MiB more for stacks of 9216 bytes\n");
    SAYS("since a kernel needs it: deep");
    dryrun("--gpu=t4 -- %s mib=14000 stack=524288", 3); /* 20 GiB of them */
    SAYS("does not fit: ");
}

Test(dryrun, the_budget_names_the_line_that_breaks_it)
{
    dryrun("--gpu=t4 --budget=1300MiB -- %s mib=1024", 3);
    SAYS("over the budget of 1.270 GiB on t4:\n    at ");
    SAYS("128.0 MiB asked: job_steps (job.c:");
    dryrun("--gpu=t4 --budget=1536MiB -- %s mib=1024", 0);
    SAYS_NOT("budget");
    json_t *top = dryrun_json("--gpu=t4 --budget=1GiB --json -- %s mib=1024", 3);
    cr_expect(json_is_true(json_object_get(top, "over_budget")));
    json_t *over = json_object_get(at(top, "gpus", 0), "over_budget");
    cr_expect_str_eq(json_string_value(json_object_get(over, "function")), "job_weights");
    cr_expect(json_is_true(json_object_get(at(top, "gpus", 0), "fits")));
    json_decref(top);
}

Test(dryrun, json_adds_up_and_is_alone_on_standard_output)
{
    json_t *top = dryrun_json("--gpu=t4 --json -- %s mib=1024", 0), *rank = at(top, "ranks", 0);
    cr_expect_eq(number(top, "status"), 0);
    cr_expect_str_eq(json_string_value(json_array_get(json_object_get(top, "command"), 1)), "mib=1024");
    cr_expect_eq(number(at(top, "gpus", 0), "total_bytes"), 15843721216ll);
    cr_expect_eq(number(at(top, "gpus", 0), "needed_bytes"), 1280 * MIB + CONTEXT);
    cr_expect_eq(number(rank, "allocated_peak_bytes"), 1280 * MIB);
    cr_expect_eq(number(rank, "context_bytes"), CONTEXT);
    long long uses = 0, holders = 0;
    const char *key;
    json_t *value;
    size_t i;
    json_object_foreach(json_object_get(rank, "uses"), key, value) uses += json_integer_value(value);
    json_array_foreach(json_object_get(rank, "holders"), i, value) holders += number(value, "bytes");
    cr_expect_eq(uses, 1280 * MIB);
    cr_expect_eq(holders, 1280 * MIB);
    static const char *const names[] = {"weights",    "gradients",     "optimizer", "activations",
                                        "workspaces", "communication", "unknown"};
    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        number(json_object_get(rank, "uses"), names[i]);
    cr_expect(json_is_array(json_object_get(top, "assumptions")));
    cr_expect(json_is_array(json_object_get(top, "read_back")));
    cr_expect_str_eq(json_string_value(json_object_get(top, "fill")), "zeros");
    json_decref(top);
}

/* XLA takes three quarters of any GPU: what it had in use of them tells which one is enough. Its client is ended, or not. */
static void pool_ahead(const char *end)
{
    char line[2048];
    snprintf(line, sizeof(line), "--gpu=a100-40g --json -- %s %s", path_program("jax"), end);
    json_t *top = dryrun_json(line, 0), *rank = at(top, "ranks", 0), *pool = json_object_get(rank, "polled_pool");
    const long long total = number(at(top, "gpus", 0), "total_bytes"), taken = total / 4 * 3;
    cr_expect_eq(number(pool, "pool_bytes"), taken);
    cr_expect_eq(number(pool, "limit_bytes"), taken);
    cr_expect_eq(number(pool, "peak_bytes"), 640 * MIB);
    cr_expect_eq(number(rank, "needed_bytes"), (taken + 2 * MIB - 1) / (2 * MIB) * (2 * MIB) + CONTEXT_A100);
    cr_expect_eq(number(rank, "smallest_bytes"), smallest(640 * MIB, CONTEXT_A100));
    cr_expect_eq(number(json_object_get(rank, "uses"), "unknown"), taken);
    json_decref(top);
    snprintf(line, sizeof(line), "--gpu=a100-40g -- %s %s", path_program("jax"), end);
    dryrun(line, 0);
    SAYS("of it were in use, by XLA's own count");
    SAYS("the smallest GPU that is enough, by its size alone: ");
    SAYS_NOT("rtx-5090");
}

Test(dryrun, a_pool_that_is_taken_ahead)
{
    pool_ahead("");
}

/* Such a pool fails without a request to the driver. */
Test(dryrun, a_pool_that_is_too_small)
{
    char line[2048];
    snprintf(line, sizeof(line), "--gpu=t4,a100-40g --json -- %s much", path_program("jax"));
    json_t *top = dryrun_json(line, 3), *small = at(top, "gpus", 0), *large = at(top, "gpus", 1);
    cr_expect_str_eq(json_string_value(json_object_get(small, "verdict")), "does_not_fit");
    cr_expect_eq(number(small, "needed_bytes"), 640 * MIB + CONTEXT);
    cr_expect(json_is_null(json_object_get(small, "fails")));
    cr_expect_str_eq(json_string_value(json_object_get(large, "verdict")), "fits");
    json_decref(top);
    snprintf(line, sizeof(line), "--gpu=t4 -- %s much", path_program("jax"));
    dryrun(line, 3);
    SAYS("does not fit\n");
    SAYS("\n  CMD failed on t4, and ran once more on a device of 1 TiB, where it did not fail\n");
}

/* Half of the GPU, of which 1 MiB is used. */
Test(dryrun, a_pool_that_tells_its_pieces)
{
    char line[2048];
    snprintf(line, sizeof(line), "--gpu=t4 --json -- %s taken", path_program("nvtx_mem"));
    json_t *top = dryrun_json(line, 0), *rank = at(top, "ranks", 0);
    cr_expect_eq(number(rank, "allocated_peak_bytes"), 3 * MIB);
    cr_expect_eq(number(rank, "needed_bytes"), 8192 * MIB + CONTEXT);
    cr_expect_eq(number(rank, "smallest_bytes"), smallest(2 * MIB, CONTEXT));
    cr_expect(json_is_null(json_object_get(rank, "polled_pool")));
    json_decref(top);
    snprintf(line, sizeof(line), "--gpu=t4 -- %s taken", path_program("nvtx_mem"));
    dryrun(line, 0);
    SAYS("  a pool of 8.000 GiB counts as a whole; at most 1.000 MiB of it were in use\n");
    SAYS("the smallest GPU that is enough, by its size alone: ");
}

Test(dryrun, a_pool_that_is_left_to_the_end)
{
    pool_ahead("leave");
}

Test(dryrun, ranks_are_told_apart_and_the_largest_device_counts)
{
    json_t *top = dryrun_json("--gpu=t4 --devices=3 --json -- %s mib=1024 ranks=3", 0);
    cr_expect_eq(json_array_size(json_object_get(top, "ranks")), 3);
    for (size_t i = 0; i < 3; i++) {
        long long rank = number(at(top, "ranks", i), "rank");
        cr_expect_eq(number(at(top, "ranks", i), "device"), rank);
        cr_expect_eq(number(at(top, "ranks", i), "allocated_peak_bytes"), (1024 + 64 * rank) / 4 * 5 * MIB);
    }
    cr_expect_eq(number(at(top, "gpus", 0), "needed_bytes"), 1440 * MIB + CONTEXT);
    json_decref(top);
}

Test(dryrun, ranks_without_a_gpu_are_told_how_to_get_one)
{
    dryrun("--gpu=t4 -- %s mib=64 ranks=3", 1);
    WARNS("3 ranks of CMD ran on a machine with 1 GPU: --devices=3 gives each its own");
    dryrun("--gpu=t4 --devices=3 -- %s mib=64 ranks=3", 0);
    WARNS_NOT("--devices");
}

Test(dryrun, a_rank_that_is_missing_is_said)
{
    setenv("WORLD_SIZE", "3", 1);
    dryrun("--gpu=t4 --devices=2 -- /bin/sh -c RANK=0\t%s\tmib=64;RANK=2\t%1$s\tmib=64", 0);
    WARNS("only 2 of the 3 ranks of CMD are in the answer: ");
    setenv("WORLD_SIZE", "2", 1);
    dryrun("--gpu=t4 --devices=2 -- /bin/sh -c RANK=0\t%s\tmib=64;RANK=1\t%1$s\tmib=64", 0);
    WARNS_NOT("ranks of CMD");
    unsetenv("WORLD_SIZE");
}

/* The ranks that a launcher of MPI starts, which names them in its own variables. */
static void launched_by(const char *launcher, const char *options)
{
    char line[512], page[128];
    if (access(launcher, X_OK) != 0)
        cr_skip("no %s: deploy/needs.sh all installs it", launcher);
    snprintf(page, sizeof(page), "%s/page.html", folder);
    snprintf(line, sizeof(line), "--gpu=t4 --devices=2 --json -o %s -- %s %s -n 2 %%s local=1024", page, launcher,
             options);
    json_t *top = dryrun_json(line, 0);
    cr_expect_eq(json_array_size(json_object_get(top, "ranks")), 2);
    for (size_t i = 0; i < 2; i++) {
        long long rank = number(at(top, "ranks", i), "rank");
        cr_expect_eq(rank, (long long)i);
        cr_expect_eq(number(at(top, "ranks", i), "device"), rank);
        cr_expect_eq(number(at(top, "ranks", i), "allocated_peak_bytes"), (1024 + 64 * rank) / 4 * 5 * MIB);
    }
    cr_expect_eq(number(at(top, "gpus", 0), "needed_bytes"), 1360 * MIB + CONTEXT);
    json_decref(top);
    char *text = NULL;
    size_t room = 0;
    FILE *file = fopen(page, "r");
    cr_assert(file && getdelim(&text, &room, '\0', file) > 0 && fclose(file) == 0);
    cr_expect(strstr(text, "\"schema\":\"gpuprof.ranks/1\"") && strstr(text, "\"rank\":0,") &&
              strstr(text, "\"rank\":1,"));
    free(text);
    left[0] = "page.html";
}

Test(dryrun, ranks_of_open_mpi)
{
    launched_by("/usr/bin/mpirun.openmpi", "--allow-run-as-root --oversubscribe");
}

Test(dryrun, ranks_of_mpich)
{
    launched_by("/usr/bin/mpirun.mpich", "");
}

/* Both live for half a second, and come to their peaks again and again. */
Test(dryrun, processes_on_one_device_add_up)
{
    json_t *top = dryrun_json("--gpu=t4 --json -- /bin/sh -c %s\tmib=1024\tsteps=50&\t%1$s\tmib=512\tsteps=50;wait", 0);
    cr_expect_eq(json_array_size(json_object_get(top, "ranks")), 2);
    cr_expect_eq(number(at(top, "gpus", 0), "needed_bytes"), 1280 * MIB + 640 * MIB + 2 * CONTEXT);
    /* At one time at least the weights of both were there. */
    cr_expect_geq(number(at(top, "gpus", 0), "smallest_bytes"), 1024 * MIB + 512 * MIB + 2 * CONTEXT);
    cr_expect_leq(number(at(top, "gpus", 0), "smallest_bytes"), 1280 * MIB + 640 * MIB + 2 * CONTEXT);
    json_decref(top);
    dryrun("--gpu=t4 -- /bin/sh -c %s\tmib=1024;%1$s\tmib=512", 0);
    SAYS("PROCESS      DEVICE      NEEDED    RESERVED   ALLOCATED");
}

/* Also of a killed one, whose end nobody recorded, and of the images of one process. */
Test(dryrun, processes_in_turn_do_not_add_up)
{
    static const char *const commands[] = {"%s\tmib=8192;%1$s\tmib=4096;%1$s\tmib=8192",
                                           "%s\tmib=8192\tsteps=5\tsignal=9;%1$s\tmib=4096",
                                           "%s\tmib=4096;exec\t%1$s\tmib=8192"};
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        char line[256];
        snprintf(line, sizeof(line), "--gpu=t4 --json -- /bin/sh -c %s", commands[i]);
        json_t *top = dryrun_json(line, 0), *gpu = at(top, "gpus", 0);
        cr_expect(json_is_true(json_object_get(gpu, "fits")), "%s", line);
        cr_expect_eq(number(gpu, "needed_bytes"), 10240 * MIB + CONTEXT, "%s", line);
        cr_expect_eq(number(gpu, "smallest_bytes"), 10240 * MIB + CONTEXT, "%s", line);
        json_decref(top);
    }
}

/* A shell hides the status of the program that was refused memory. */
Test(dryrun, what_was_refused_counts_whatever_the_status)
{
    json_t *top = dryrun_json("--gpu=t4 --json -- /bin/sh -c %s\tmib=16384;true", 3), *gpu = at(top, "gpus", 0),
           *row = at(at(top, "ranks", 0), "refused", 0), *same = at(gpu, "refused", 0);
    cr_expect_eq(number(top, "status"), 0);
    cr_expect(json_is_false(json_object_get(gpu, "fits")));
    cr_expect_eq(number(gpu, "needed_bytes"), 20480 * MIB + CONTEXT);
    cr_expect(json_equal(row, same));
    cr_expect_eq(number(row, "bytes"), 16384 * MIB);
    cr_expect_eq(number(row, "count"), 1);
    cr_expect_str_eq(json_string_value(json_object_get(row, "function")), "job_weights");
    cr_expect(strstr(json_string_value(json_object_get(row, "file")), "job.c"));
    cr_expect_gt(number(row, "line"), 0);
    json_decref(top);
    dryrun("--gpu=t4 -- /bin/sh -c %s\tmib=16384;true", 3);
    SAYS("CMD ran out of memory on t4 though its status was 0, and ran once more on a device of 1 TiB:\n");
    SAYS("16.00 GiB asked, 14.68 GiB free: job_weights (job.c:");
    SAYS_NOT("requests were refused");
    dryrun("--gpu=t4 -- /bin/sh -c %s\tmib=16384;%1$s\tmib=20480;true", 3);
    SAYS("    2 requests were refused, the largest of 20.00 GiB at job_weights (job.c:");
    dryrun("--gpu=t4 --batch=4096,8192 -- /bin/sh -c %s\tmib={batch};true", 0);
    SAYS("the largest that fits: 8192 (tried, as was 12288, which does not)");
}

/* Its device is not known: it has no context. */
Test(dryrun, a_context_that_gets_no_memory_is_refused)
{
    json_t *top = dryrun_json("--gpu=t4 --memory=150MiB --json -- /bin/sh -c "
                              "%s\tmib=120\tsteps=40&\tsleep\t0.2;%1$s\tmib=1;wait",
                              3);
    json_t *gpu = at(top, "gpus", 0);
    cr_expect(json_is_false(json_object_get(gpu, "fits")));
    cr_expect_gt(json_array_size(json_object_get(gpu, "refused")), 0);
    json_decref(top);
}

Test(dryrun, processes_that_break_at_one_place_share_a_line)
{
    dryrun("--gpu=t4 --budget=600MiB --devices=3 -- %s mib=1024 ranks=3", 3);
    SAYS("    rank 0, at ");
    SAYS("    rank 2, at ");
    dryrun("--gpu=t4 --budget=600MiB -- /bin/sh -c %s\tmib=1024;%1$s\tmib=1024", 3);
    SAYS(" and 1 more, at ");
    const char *first = strstr(said.out, "asked: job_weights");
    cr_expect(first && !strstr(first + 1, "asked: job_weights"), "%s", said.out);
}

Test(dryrun, all_runs_once_for_each_capability)
{
    json_t *top = dryrun_json("--gpu=all --json -- %s mib=16384", 0);
    size_t count = json_array_size(json_object_get(top, "gpus")), own = 0, fit = 0;
    static const struct {
        const char *gpu;
        long long mib;
    } contexts[] = {{"t4", 80},   {"l4", 174}, {"rtx-4090", 384}, {"a100-40g", 432}, {"h100-80g-pcie", 456},
                    {"h200", 528}};
    for (size_t i = 0; i < count; i++) {
        json_t *gpu = at(top, "gpus", i);
        const char *name = json_string_value(json_object_get(gpu, "gpu"));
        for (size_t k = 0; k < sizeof(contexts) / sizeof(contexts[0]); k++)
            if (strcmp(name, contexts[k].gpu) == 0)
                cr_expect_eq(number(gpu, "needed_bytes"), (20480 + contexts[k].mib) * MIB, "%s", name);
        own += json_is_true(json_object_get(gpu, "run"));
        fit += json_is_true(json_object_get(gpu, "fits"));
        cr_expect_eq(json_is_true(json_object_get(gpu, "fits")), number(gpu, "total_bytes") >= 20736 * MIB, "%s", name);
    }
    cr_expect_gt(count, 20);
    cr_expect_lt(own, 13);
    cr_expect(fit > 0 && fit < count);
    json_decref(top);
}

Test(dryrun, a_program_that_fails_by_itself)
{
    dryrun("--gpu=t4,a100-40g -- %s mib=1024 status=7", 1);
    SAYS("CMD failed with status 7, and not for lack of memory: what follows is what it had used until then");
    SAYS("not known: CMD failed");
    SAYS("job_weights (job.c:");
    json_t *top = dryrun_json("--gpu=t4 --json -- %s mib=1024 status=7", 1);
    cr_expect_eq(number(top, "status"), 7);
    cr_expect(json_is_null(json_object_get(at(top, "gpus", 0), "fits")));
    json_decref(top);
}

Test(dryrun, a_program_that_is_killed_has_its_numbers)
{
    dryrun("--gpu=t4 -- %s mib=1024 steps=20 signal=9", 1);
    SAYS("CMD was ended by signal 9");
    SAYS("1.000 GiB       1 x");
    json_t *top = dryrun_json("--gpu=t4 --json -- /bin/sh -c %s\tmib=1024\tsteps=20\tsignal=9;true", 0);
    cr_expect_eq(number(at(top, "ranks", 0), "allocated_peak_bytes"), 1280 * MIB);
    json_decref(top);
}

Test(dryrun, ends_a_program_whose_peak_repeats)
{
    dryrun("--gpu=t4 --steps=8 -- %s mib=256 marked=100000", 0);
    SAYS("CMD was ended after ");
    SAYS("fits, ");
    SAYS("256.0 MiB       1 x unknown         job_weights (job.c:");
    /* The shell ends, and its child would go on. */
    json_t *top = dryrun_json("--gpu=t4 --steps=8 --json -- /bin/sh -c %s\tmib=256\tmarked=100000;true", 0);
    cr_expect(json_is_true(json_object_get(top, "ended")));
    cr_expect_geq(number(top, "steps"), 8);
    cr_expect_str_eq(json_string_value(json_object_get(top, "steps_found")), "marks");
    cr_expect_eq(kill((pid_t)number(at(top, "ranks", 0), "pid"), 0), -1);
    json_decref(top);
}

/* What only repeats may be a part of the first step. */
Test(dryrun, does_not_end_a_program_that_only_repeats)
{
    dryrun("--gpu=t4 --steps=2 -- %s mib=256 steps=250", 0);
    SAYS_NOT("CMD was ended after ");
    SAYS("CMD was not ended by --steps: ");
    SAYS(" repeats (");
    json_t *top = dryrun_json("--gpu=t4 --steps=2 --json -- %s mib=256 steps=250", 0);
    cr_expect(json_is_false(json_object_get(top, "ended")));
    cr_expect(json_is_null(json_object_get(top, "steps")));
    cr_expect_geq(number(top, "repeats"), 200);
    cr_expect_float_eq(json_real_value(json_object_get(top, "repeats_sure")), 1, 0.2);
    cr_expect_str_eq(json_string_value(json_object_get(top, "steps_found")), "repeats");
    json_decref(top);
}

Test(dryrun, the_largest_batch_that_fits_is_tried)
{
    dryrun("--gpu=t4 --batch=2048 -- %s mib={batch}", 0);
    SAYS("t4                14.76 GiB   12.58 GiB   12.58 GiB  fits");
    SAYS("10240             12.58 GiB  fits\n");
    SAYS("12288                     -  does not fit\n");
    SAYS("each more costs 1.250 MiB, between 2048 and 4096\n");
    SAYS("the largest that fits: 10240 (tried, as was 12288, which does not)");
    SAYS("\nt4: peak of 12.58 GiB");
    json_t *top = dryrun_json("--gpu=t4 --batch=512,768 --budget=2GiB --json -- %s mib={batch}", 0);
    cr_expect_eq(number(top, "batch_largest"), 1536);
    cr_expect_eq(number(top, "batch_more_bytes"), 1310720);
    json_t *last = at(top, "batches", json_array_size(json_object_get(top, "batches")) - 1);
    cr_expect_eq(number(last, "batch"), 1792);
    cr_expect_str_eq(json_string_value(json_object_get(last, "verdict")), "does_not_fit");
    json_decref(top);
    dryrun("--gpu=t4 --batch=20480 -- %s mib={batch}", 3);
    SAYS("20480                     -  does not fit\n");
    SAYS_NOT("the largest");
    dryrun("--gpu=t4 --batch=8,16 -- %s mib={batch} status=7", 1);
    SAYS("8                         -  CMD failed, and not for lack of memory\n");
    dryrun("--gpu=t4 --batch=8 -- %s mib=8", 2);
    WARNS("no argument of CMD has {batch} in it");
    dryrun("--gpu=t4 --batch=8,8 -- %s mib={batch}", 2);
}

Test(dryrun, what_cannot_be_asked)
{
    dryrun("--gpu=none-such -- %s mib=1", 2);
    WARNS("--gpu=none-such: no GPU of that name; --list shows the names");
    dryrun("--gpu=t4 --memory=much -- %s mib=1", 2);
    dryrun("--gpu=t4", 2);
    dryrun("-- /nonexistent", 127);
    dryrun("--gpu=t4,a100-40g -- /bin/true", 1);
    WARNS("no process used a GPU: does CMD use CUDA");
    WARNS_NOT("running on a100-40g");
    json_t *top = dryrun_json("--gpu=t4 --json -- /bin/true", 1);
    const json_t *row = json_array_get(json_object_get(top, "gpus"), 0);
    cr_expect(json_is_null(json_object_get(row, "verdict")) && json_is_null(json_object_get(row, "fits")));
    json_decref(top);
    dryrun("--list", 0);
    SAYS("h100-80g        NVIDIA H100 80GB HBM3");
}

Test(dryrun, notes_of_stand_ins_are_shown_and_hostile_ones_are_not)
{
    char script[512], path[96];
    snprintf(path, sizeof(path), "%s/script", folder);
    snprintf(script, sizeof(script),
             "printf '1\\tcublas\\tassumed\\ta workspace of 32 MiB\\n2\\tcublas\\tassumed\\ta workspace of 32 MiB\\n"
             "3\\tcudnn\\tunsupported\\t\\033[31mred\\033["
             "m\\n4\\tx\\tother\\tno\\n5\\tx\\n\\t\\t\\t\\nx\\tx\\tassumed\\tno\\n"
             "6\\tx\\tassumed\\tno\\tmore' >> \"$GPUPROF_STANDIN_REPORT\"\nexec %s mib=64\n",
             path_program("job"));
    write_file(path, script);
    char line[256];
    snprintf(line, sizeof(line), "--gpu=t4 -- /bin/sh %s", path);
    dryrun(line, 0);
    SAYS("assumed    cublas: a workspace of 32 MiB\n");
    SAYS("missing    cudnn: ?[31mred?[m\n");
    SAYS_NOT("no\n");
    SAYS_NOT("\033");
    left[0] = "script";
}

/* The smallest that a server's workers name counts; servers that say the same are one row, and a damaged line is none. */
Test(dryrun, what_a_server_logs_of_its_cache_is_said)
{
    char script[768], path[96], line[256];
    snprintf(path, sizeof(path), "%s/script", folder);
    snprintf(script, sizeof(script),
             "printf '1\\tvLLM\\tcache\\t1008 100 1008\\n1\\tvLLM\\tcache\\t992 100 992\\n"
             "1\\tvLLM\\tcache\\t1000 100 1000\\n2\\tvLLM\\tcache\\t992 100 992\\n"
             "3\\tSGLang\\tcache\\t4096 8192 50\\n4\\tx\\tcache\\t7 0 0\\n4\\tx\\tcache\\t7 7\\n"
             "4\\tx\\tcache\\t-7 7 7\\n4\\tx\\tcache\\t7 7 7 7\\n5\\tx\\tcache\\t77777777777777777 7 7\\n' "
             ">> \"$GPUPROF_STANDIN_REPORT\"\nexec %s mib=64\n",
             path_program("job"));
    write_file(path, script);
    snprintf(line, sizeof(line), "--gpu=t4 -- /bin/sh %s", path);
    dryrun(line, 0);
    SAYS("KV cache: 992 tokens, 9.92 requests of 100 tokens, in each of 2 processes, by the log of vLLM\n");
    SAYS("KV cache: 4096 tokens, 0.50 requests of 8192 tokens, by the log of SGLang\n");
    SAYS_NOT("1008");
    SAYS_NOT("log of x");
    snprintf(line, sizeof(line), "--json --gpu=t4 -- /bin/sh %s", path);
    json_t *top = dryrun_json(line, 0), *first = at(top, "kv_caches", 0);
    cr_assert_eq(json_array_size(json_object_get(top, "kv_caches")), 2);
    cr_expect_eq(number(first, "tokens"), 992);
    cr_expect_eq(number(first, "request_tokens"), 100);
    cr_expect_eq(number(first, "processes"), 2);
    cr_expect_float_eq(json_real_value(json_object_get(first, "requests")), 9.92, 1e-9);
    json_decref(top);
    left[0] = "script";
}

Test(dryrun, a_large_file_that_is_written_is_named)
{
    struct statfs about;
    if (statfs("/tmp", &about) != 0 || about.f_type == 0x01021994)
        cr_skip_test("the kernel does not count what is written to a tmpfs");
    dryrun("--gpu=t4 -- %s mib=64 write=96 steps=100", 0);
    SAYS("CMD wrote 96");
    SAYS("A checkpoint of a dry run holds zeros: remove it.");
    dryrun("--gpu=t4 -- %s mib=64 write=4 steps=100", 0);
    SAYS_NOT("to files");
}

Test(dryrun, results_that_are_read_back_are_counted)
{
    json_t *top = dryrun_json("--gpu=t4 --json -- %s mib=64 copies=5 steps=20 signal=9", 1); /* no exit handler runs */
    cr_expect_eq(json_array_size(json_object_get(top, "read_back")), 1);
    cr_expect_geq(number(at(top, "read_back", 0), "count"), 4);
    json_decref(top);
    top = dryrun_json("--gpu=t4 --json -- %s mib=64 copies=5", 0);
    cr_expect_eq(json_array_size(json_object_get(top, "read_back")), 1);
    cr_expect_eq(number(at(top, "read_back", 0), "count"), 5);
    cr_expect_eq(number(at(top, "read_back", 0), "bytes"), 20);
    cr_expect(json_is_null(json_object_get(at(top, "read_back", 0), "function")));
    json_decref(top);
    top = dryrun_json("--gpu=t4 --json -- %s mib=64", 0);
    cr_expect_eq(json_array_size(json_object_get(top, "read_back")), 0);
    json_decref(top);
}

/* One line of Python, for a context. */
#define STARTED                                                                                                        \
    "import ctypes, sys, time; cuda = ctypes.CDLL('libcuda.so.1'); context = ctypes.c_void_p(); cuda.cuInit(0); "      \
    "cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0); cuda.cuCtxSetCurrent(context)\n"

static const char reader[] = STARTED "pointer = ctypes.c_uint64()\n"
                                     "cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(4096))\n"
                                     "def decide():\n"
                                     "    value = ctypes.c_int(1)\n"
                                     "    cuda.cuMemcpyDtoH_v2(ctypes.byref(value), pointer, ctypes.c_size_t(4))\n"
                                     "    return value.value\n"
                                     "for i in range(9):\n"
                                     "    assert (decide() == 0) == (sys.argv[1] == 'zeros')\n";

Test(dryrun, results_that_are_read_back_have_their_line)
{
    char path[96], line[256];
    if (access("/usr/bin/python3", X_OK) != 0)
        cr_skip("no python3");
    snprintf(path, sizeof(path), "%s/reader.py", folder);
    write_file(path, reader);
    snprintf(line, sizeof(line), "--gpu=t4 -- /usr/bin/python3 %s zeros", path);
    dryrun(line, 0);
    SAYS("Results read back 9 times");
    SAYS_NOT("--fill=random");
    SAYS("kernels computed nothing, so they are zeros.");
    SAYS("36 B       9 x decide (reader.py:6)\n");
    snprintf(line, sizeof(line), "--gpu=t4 --fill=random -- /usr/bin/python3 %s not-zeros", path);
    dryrun(line, 0);
    SAYS("kernels computed nothing, so they are random.");
    snprintf(line, sizeof(line), "--gpu=t4 -- /usr/bin/python3 %s not-zeros", path);
    dryrun(line, 1);
    SAYS("  If CMD failed because of a zero, try --fill=random.\n");
    left[0] = "reader.py";
}

static const char mapped[] =
    STARTED "pointer = ctypes.c_uint64()\n"
            "cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(16 << 20))\n"
            "nccl = ctypes.CDLL(sys.argv[1])\n"
            "assert nccl.ncclMemAlloc(ctypes.byref(pointer), ctypes.c_size_t(32 << 20)) == 0\n";

/* With the creation of its memory the device holds most; it is allocated after that, when it is mapped. */
Test(dryrun, memory_that_a_library_maps_last_is_the_librarys)
{
    char path[96], line[512];
    if (access("/usr/bin/python3", X_OK) != 0)
        cr_skip("no python3");
    snprintf(path, sizeof(path), "%s/mapped.py", folder);
    write_file(path, mapped);
    snprintf(line, sizeof(line), "--gpu=h100-80g --json -- /usr/bin/python3 %s %s/standin/libnccl.so.2", path,
             path_sim());
    json_t *top = dryrun_json(line, 0), *rank = at(top, "ranks", 0);
    cr_assert_eq(number(rank, "assumed_bytes"), 32 << 20);
    cr_assert_eq(number(rank, "assumed_reserved_bytes"), 32 << 20);
    json_decref(top);
    left[0] = "mapped.py";
}

static const char layers[] =
    STARTED "def library(file, text):\n"
            "    exec(compile(text, '/v/site-packages/torch/' + file, 'exec'), globals())\n"
            "library('nn/modules/module.py', 'def _call_impl(mib): return take(mib)')\n"
            "library('_tensor.py', 'def backward(): cuda.cuMemFree_v2(take(8))')\n"
            "\n"
            "def take(mib):\n"
            "    pointer = ctypes.c_uint64()\n"
            "    cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(mib << 20))\n"
            "    return pointer\n"
            "weights = [take(4) for _ in range(8)]\n"
            "for step in range(40):\n"
            "    kept = [_call_impl(64)] if sys.argv[1] == 'infer' else [_call_impl(8) for _ in range(8)]\n"
            "    if sys.argv[1] == 'train': backward()\n"
            "    time.sleep(0.01)\n"
            "    for one in kept: cuda.cuMemFree_v2(one)\n";

Test(dryrun, what_would_help_is_told_of_what_it_helps)
{
    char path[96], line[256];
    if (access("/usr/bin/python3", X_OK) != 0)
        cr_skip("no python3");
    snprintf(path, sizeof(path), "%s/layers.py", folder);
    write_file(path, layers);
    snprintf(line, sizeof(line), "--gpu=t4 -- /usr/bin/python3 %s train", path);
    dryrun(line, 0);
    SAYS("checkpointing, a candidate: 56.00 MiB of activations live"); /* the last layer's are needed at once */
    snprintf(line, sizeof(line), "--gpu=t4 -- /usr/bin/python3 %s infer", path);
    dryrun(line, 0);
    SAYS("64.00 MiB       1 x probably activations take (layers.py:9)");
    SAYS_NOT("checkpointing"); /* without a backward pass */
    left[0] = "layers.py";
}

Test(dryrun, a_hostile_list_of_results_is_not_shown)
{
    char path[96], script[1024], line[256];
    snprintf(path, sizeof(path), "%s/script", folder);
    snprintf(
        script, sizeof(script),
        "printf '1\\t3\\t12\\t/x/\\033[31ma.py:7:run\\n1\\t2\\t8\\t/x/\\033[31ma.py:7:run\\n"
        "2\\t-1\\t4\\ta.py:1:no\\n3\\t99999999999999999999\\t4\\ta.py:1:no\\n4\\t1\\n\\n\\t\\t\\t\\n"
        "5\\t1\\t1\\ta.py:1x:no\\t:\\t::\\n"
        "6\\t2\\t8\\t/v/site-packages/torch/_t.py:1:no\\t/v/site-packages/vllm/w.py:9:sample"
        "\\t/v/site-packages/vllm/c.py:3:no\\t/v/bin/vllm:8:<module>\\n' >> \"$GPUPROF_SIM_READS\"\nexec %s mib=64\n",
        path_program("job"));
    write_file(path, script);
    snprintf(line, sizeof(line), "--gpu=t4 -- /bin/sh %s", path);
    dryrun(line, 0);
    SAYS("12 B       3 x run (?[31ma.py:7)\n");
    SAYS("8 B       2 x sample (w.py:9)\n"); /* what started it is no place */
    SAYS_NOT("no (");
    SAYS_NOT("\033");
    left[0] = "script";
}

Test(dryrun, keeps_the_recording_and_the_page)
{
    char line[512], page[96], record[96];
    struct stat status;
    snprintf(page, sizeof(page), "%s/page.html", folder);
    snprintf(record, sizeof(record), "%s/r.gpuprof", folder);
    snprintf(line, sizeof(line), "--gpu=t4 --record=%s -o %s -- %%s mib=256", record, page);
    dryrun(line, 0);
    cr_expect(stat(page, &status) == 0 && status.st_size > 1000);
    command(0, "peak", record, NULL);
    SAYS("320.0 MiB at ");
    snprintf(line, sizeof(line), "--gpu=t4 --record=%s -- %%s mib=256", page); /* not a recording: it stays */
    dryrun(line, 1);
    WARNS("exists and is not a recording");
    left[0] = "page.html", left[1] = "r.gpuprof";
}
