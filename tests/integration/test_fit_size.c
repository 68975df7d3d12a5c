/* SPDX-License-Identifier: MIT
 *
 * test_fit_size.c: a program that was recorded runs in the smallest size that `gpuprof fit` names, and
 * not in 3 % less.
 */
#include <criterion/criterion.h>
#include <jansson.h>
#include <lib/paths.h>
#include <lib/spawn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIB  (1ll << 20)
#define PAGE (2 * MIB)

/* The smallest simulated GPU that has so much left beside its context, an eighth of it and at most 256 MiB. */
static long long sim_size(long long bytes)
{
    long long size = bytes, context = 0;
    do {
        size = bytes + context;
        context = size / 8 / PAGE * PAGE < 256 * MIB ? size / 8 / PAGE * PAGE : 256 * MIB;
    } while (size - context < bytes);
    return size;
}

/* The 500 steps of pool_rt, which takes ten seconds with the pauses that it makes for a viewer; record: a file, or NULL. */
static int run(const char *program, long long memory, const char *allocator, const char *record)
{
    struct spawn_result result;
    char sim[64], option[64], setting[128];
    snprintf(sim, sizeof(sim), "--sim=memory=%lldB", memory);
    snprintf(option, sizeof(option), "--allocator=%s", allocator);
    snprintf(setting, sizeof(setting), "GPUPROF_RECORD%s%s", record ? "=" : "", record ? record : "");
    const struct spawn_options options = {.argv = (const char *const[]){path_command(), "run", sim, option, "--",
                                                                        program, "--steps", "500", "--pace", "1", NULL},
                                          .env = (const char *const[]){setting, NULL}};
    cr_assert_eq(spawn_run(&options, &result), 0);
    cr_assert(!result.is_timed_out);
    int status = result.status;
    spawn_result_free(&result);
    return status;
}

static void expect_smallest(const char *allocator)
{
    char file[96], program[4096];
    const char *bin = strstr(path_command(), "/bin/gpuprof");
    struct spawn_result result;
    snprintf(program, sizeof(program), "%.*s/examples/pool_rt", (int)(bin - path_command()), path_command());
    snprintf(file, sizeof(file), "/tmp/gpuprof-test-fit-size-%d", (int)getpid());
    cr_assert_eq(run(program, 4096 * MIB, allocator, file), 0);
    spawn_command(&result, "fit", file, "--gpu", "4GiB", "--context", "0", "--json", NULL);
    cr_assert_eq(result.status, 0, "%s", result.err);
    json_t *top = json_loads(result.out, 0, NULL);
    cr_assert(top);
    cr_expect(json_is_true(json_object_get(top, "fits")));
    long long smallest = json_integer_value(json_object_get(top, "smallest_bytes"));
    json_decref(top);
    spawn_result_free(&result);
    cr_assert_gt(smallest, 60 * MIB);
    cr_expect_eq(run(program, sim_size(smallest), allocator, NULL), 0, "%s: %lld", allocator, smallest);
    cr_expect_neq(run(program, sim_size(smallest * 97 / 100 / PAGE * PAGE), allocator, NULL), 0, "%s: %lld", allocator,
                  smallest);
    unlink(file);
}

/* ---- generated traces: they call the C interface, with several threads and streams --------------------------------- */

static json_t *command_json(struct spawn_result *result)
{
    cr_assert_eq(result->status, 0, "%s", result->err);
    json_t *top = json_loads(result->out, 0, NULL);
    cr_assert(top, "%s", result->out);
    spawn_result_free(result);
    return top;
}

/* The number of requests that fail with so much memory; of a large device with 0.  file: where it is recorded, or NULL. */
static long long replay(const char *trace, const char *allocator, long long memory, const char *file)
{
    struct spawn_result result;
    char sim[64], name[64], option[64], record[128];
    snprintf(sim, sizeof(sim), "--sim=memory=%lldB,latency=zero", memory ? sim_size(memory) : 80ll << 30);
    snprintf(name, sizeof(name), "generate:%s", trace);
    snprintf(option, sizeof(option), "--allocator=%s", allocator);
    snprintf(record, sizeof(record), "GPUPROF_RECORD%s%s", file ? "=" : "", file ? file : "");
    const struct spawn_options options = {
        .argv = (const char *const[]){path_command(), "replay", name, option, sim, "--json", NULL},
        .env = (const char *const[]){record, NULL}};
    cr_assert_eq(spawn_run(&options, &result), 0);
    json_t *top = command_json(&result);
    long long failed = json_integer_value(json_object_get(top, "failed"));
    json_decref(top);
    return failed;
}

static void expect_replay(const char *trace, const char *allocator)
{
    char file[96];
    struct spawn_result result;
    snprintf(file, sizeof(file), "/tmp/gpuprof-test-fit-size-%d", (int)getpid());
    cr_assert_eq(replay(trace, allocator, 0, file), 0);
    spawn_command(&result, "fit", file, "--gpu", "80GiB", "--context", "0", "--json", NULL);
    json_t *top = command_json(&result);
    long long smallest = json_integer_value(json_object_get(top, "smallest_bytes"));
    cr_expect_str_eq(json_string_value(json_object_get(top, "allocator")), allocator);
    json_decref(top);
    cr_expect_eq(replay(trace, allocator, smallest, NULL), 0, "%s %s: %lld", trace, allocator, smallest);
    cr_expect_gt(replay(trace, allocator, smallest * 97 / 100 / PAGE * PAGE, NULL), 0, "%s %s: %lld", trace, allocator,
                 smallest);
    unlink(file);
}

Test(fit_size, counts_the_cache_of_each_thread)
{
    expect_replay("leak", "caching");
}

Test(fit_size, counts_the_pages_of_small_requests)
{
    expect_replay("diffusion", "passthrough");
}

Test(fit_size, does_not_depend_on_the_addresses_of_the_driver)
{
    expect_replay("leak", "auto_growth");
    expect_replay("cnn", "pytorch");
}

Test(fit_size, is_confirmed_by_running_at_it)
{
    expect_smallest("off");
}

Test(fit_size, is_confirmed_with_a_cache)
{
    expect_smallest("pytorch");
}
