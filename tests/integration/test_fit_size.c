/* SPDX-License-Identifier: MIT
 *
 * test_fit_size.c: a program that was recorded runs in the smallest size that `gpuprof fit` names, and
 * not in 3 % less.
 */
#include "integration/command.h"
#include <unistd.h>

#define MIB  (1ll << 20)
#define PAGE (2 * MIB)

#define CONTEXT (132 * 2048 * 2048ll) /* of the GPU that has no name */

/* The smallest simulated GPU that has so much left beside its context, an eighth of it and at most that. */
static long long sim_size(long long bytes)
{
    long long size = bytes, context = 0;
    do {
        size = bytes + context;
        context = size / 8 / PAGE * PAGE < CONTEXT ? size / 8 / PAGE * PAGE : CONTEXT;
    } while (size - context < bytes);
    return size;
}

/* The 500 steps of pool_rt, which takes ten seconds with the pauses that it makes for a viewer; record: a file, or NULL.
 * Whether it ends well. */
static bool runs(const char *program, long long memory, const char *allocator, const char *record)
{
    char sim[64], option[64], setting[128];
    snprintf(sim, sizeof(sim), "--sim=memory=%lldB", memory);
    snprintf(option, sizeof(option), "--allocator=%s", allocator);
    snprintf(setting, sizeof(setting), "GPUPROF_RECORD%s%s", record ? "=" : "", record ? record : "");
    const struct spawn_options options = {.argv = (const char *const[]){path_command(), "run", sim, option, "--",
                                                                        program, "--steps", "500", "--pace", "1", NULL},
                                          .env = (const char *const[]){setting, NULL}};
    spawn_result_free(&said);
    cr_assert_eq(spawn_run(&options, &said), 0);
    cr_assert(!said.is_timed_out);
    return said.status == 0;
}

static void expect_smallest(const char *allocator)
{
    char file[96], program[4096];
    const char *bin = strstr(path_command(), "/bin/gpuprof");
    snprintf(program, sizeof(program), "%.*s/examples/pool_rt", (int)(bin - path_command()), path_command());
    snprintf(file, sizeof(file), "/tmp/gpuprof-test-fit-size-%d", (int)getpid());
    cr_assert(runs(program, 4096 * MIB, allocator, file));
    command(0, "fit", file, "--gpu", "4GiB", "--context", "0", "--json", NULL);
    json_t *top = said_json();
    cr_expect(json_is_true(json_object_get(top, "fits")));
    long long smallest = json_integer_value(json_object_get(top, "smallest_bytes"));
    json_decref(top);
    cr_assert_gt(smallest, 60 * MIB);
    cr_expect(runs(program, sim_size(smallest), allocator, NULL), "%s: %lld", allocator, smallest);
    cr_expect(!runs(program, sim_size(smallest * 97 / 100 / PAGE * PAGE), allocator, NULL), "%s: %lld", allocator,
              smallest);
    unlink(file);
}

/* The recorded GPU tells how many threads it can hold, and a name that of another one. */
Test(fit_size, a_context_is_that_of_the_gpu_that_is_asked_about)
{
    static const struct {
        const char *gpu;
        long long memory, context;
    } cases[] = {{"1GiB", 1024 * MIB, 80}, {"t4", 15843721216, 80}, {"NVIDIA H100 PCIe", 81008 * MIB, 456}};
    char file[96], record[128];
    snprintf(file, sizeof(file), "/tmp/gpuprof-test-fit-size-%d", (int)getpid());
    snprintf(record, sizeof(record), "--record=%s", file);
    command(0, "run", "--sim=gpu=t4", record, "--", path_program("job"), "mib=64", NULL);
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        command(0, "fit", file, "--gpu", cases[i].gpu, "--json", NULL);
        json_t *top = said_json(), *device = json_array_get(json_object_get(top, "devices"), 0);
        cr_expect_eq(json_integer_value(json_object_get(top, "gpu_bytes")), cases[i].memory);
        cr_expect_eq(json_integer_value(json_object_get(device, "context_bytes")), cases[i].context * MIB);
        cr_expect_eq(json_integer_value(json_object_get(device, "peak_bytes")), (80 + cases[i].context) * MIB);
        cr_expect_str_eq(json_string_value(json_object_get(device, "context")), "estimated");
        json_decref(top);
    }
    command(0, "fit", file, "--gpu", "l4", NULL);
    SAYS("fits in 21.99 GiB of l4 (");
    SAYS("a context of 174.0 MiB (estimated: 2 KiB for each thread that the GPU can hold; ");
    unlink(file);
}

/* ---- generated traces: they call the C interface, with several threads and streams --------------------------------- */

/* The number of requests that fail with so much memory; of a large device with 0.  file: where it is recorded, or NULL. */
static long long replay(const char *trace, const char *allocator, long long memory, const char *file)
{
    char sim[64], name[64], option[64], record[128];
    snprintf(sim, sizeof(sim), "--sim=memory=%lldB,latency=zero", memory ? sim_size(memory) : 80ll << 30);
    snprintf(name, sizeof(name), "generate:%s", trace);
    snprintf(option, sizeof(option), "--allocator=%s", allocator);
    snprintf(record, sizeof(record), "GPUPROF_RECORD%s%s", file ? "=" : "", file ? file : "");
    const struct spawn_options options = {
        .argv = (const char *const[]){path_command(), "replay", name, option, sim, "--json", NULL},
        .env = (const char *const[]){record, NULL}};
    run_program(0, &options);
    json_t *top = said_json();
    long long failed = json_integer_value(json_object_get(top, "failed"));
    json_decref(top);
    return failed;
}

static void expect_replay(const char *trace, const char *allocator)
{
    char file[96];
    snprintf(file, sizeof(file), "/tmp/gpuprof-test-fit-size-%d", (int)getpid());
    cr_assert_eq(replay(trace, allocator, 0, file), 0);
    command(0, "fit", file, "--gpu", "80GiB", "--context", "0", "--json", NULL);
    json_t *top = said_json();
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
