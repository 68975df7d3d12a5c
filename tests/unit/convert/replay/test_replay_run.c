/* SPDX-License-Identifier: MIT
 * test_replay_run.c: `gpuprof generate` and `gpuprof replay` as users and scripts run them, with the
 * built command, library and simulated GPU. */
#include <unit/cmd/cli.h>

#include <convert/replay/replay.h>

#define MIB (1ll << 20)

static char folder[64], path[128];

static void begin(void)
{
    strcpy(folder, "/tmp/gpuprof-test-XXXXXX");
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/trace", folder);
}

static void end(void)
{
    unlink(path);
    rmdir(folder);
}

static void write_trace(const void *data, size_t bytes)
{
    FILE *file = fopen(path, "w");
    cr_assert(file && fwrite(data, 1, bytes, file) == bytes);
    cr_assert_eq(fclose(file), 0);
}

static int64_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    cr_assert(json_is_integer(value), "%s", key);
    return json_integer_value(value);
}

static json_t *replay(const char *trace, const char *allocator, const char *more)
{
    return expect_json(run("replay %s --allocator=%s --json%s", trace, allocator, more), "gpuprof.replay/1");
}

/* ---- usage ------------------------------------------------------------------------------------------------------- */

Test(replay_run, wrong_usage, .init = begin, .fini = end)
{
    static const struct {
        const char *line;
        int status;
        const char *err;
    } wrong[] = {
        {"replay", 2, "no trace given"},
        {"replay x", 2, "--allocator is needed"},
        {"replay x --allocator=magic", 2, "--allocator=magic: must be caching"},
        {"replay x --allocator=caching", 1, "No such file"},
        {"replay x y --allocator=caching", 2, "one trace at a time"},
        {"replay x --allocator=caching --limit=much", 2, "not a size"},
        {"replay x --allocator=caching --threads=0", 2, "from 1 to 64"},
        {"replay x --allocator=caching --garbage", 2, "--garbage"},
        {"replay generate:none --allocator=caching", 2, "no such generator"},
        {"replay generate:gmlake --allocator=caching --sim=nonsense", 1, "simulated GPU does not start"},
        {"generate", 2, "no name given"},
        {"generate gmlak", 2, "did you mean 'gmlake'"},
        {"generate gmlake --scale=0", 2, "not a number from 0.01"},
        {"generate gmlake --scale=1e9", 2, "not a number from 0.01"},
        {"generate gmlake --seed=x", 2, "--seed=x"},
        {"generate gmlake cnn", 2, "one name at a time"},
        {"generate gmlake -o /nonexistent/file", 1, "No such file"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        expect(run("%s", wrong[i].line), wrong[i].status, NULL, wrong[i].err);
    expect(run("replay --help"), 0, "--verify", NULL);
    expect(run("help generate"), 0, "--seed", NULL);
    expect(run("generate --list"), 0, "llm-zero3", NULL);
    write_trace("gpuprof.trace/1\nalloc 1 x\n", 26);
    expect(run("replay %s --allocator=caching", path), 1, NULL, "line 2: alloc: field 2 is not a number");
    write_trace("gpuprof.trace/1\nstep 1\n", 23);
    expect(run("replay %s --allocator=caching", path), 1, NULL, "contains no allocation");
}

Test(replay_run, generate_writes_what_replay_reads, .init = begin, .fini = end)
{
    expect(run("generate gmlake -o %s", path), 0, NULL, NULL);
    json_t *file = replay(path, "pytorch", ""), *made = replay("generate:gmlake", "pytorch", "");
    cr_assert_eq(number(file, "peak_reserved_bytes"), number(made, "peak_reserved_bytes"));
    cr_assert_eq(number(file, "operations"), 12);
    cr_assert_str_eq(json_string_value(json_object_get(file, "trace")), "gpuprof.trace/1");
    json_decref(file);
    json_decref(made);
}

/* ---- figures ----------------------------------------------------------------------------------------------------- */

/* 256 MiB, then 160 MiB, which fit in neither of two holes of 100 MiB. */
Test(replay_run, gmlake_by_hand)
{
    json_t *r = replay("generate:gmlake", "pytorch", "");
    cr_assert_eq(number(r, "peak_allocated_bytes"), 256 * MIB);
    cr_assert_eq(number(r, "peak_reserved_bytes"), 416 * MIB);
    cr_assert_eq(number(r, "driver_calls"), 2);
    cr_assert_eq(number(r, "driver_calls_second_half"), 1);
    cr_assert_eq(number(r, "failed"), 0);
    cr_assert_eq(number(json_object_get(json_object_get(r, "calls"), "cuMemAlloc_v2"), "calls"), 2);
    cr_assert_gt(number(r, "simulated_driver_ns"), 0);
    cr_assert(json_real_value(json_object_get(r, "ns_per_operation")) > 0);
    json_decref(r);
    /* Every request is one driver call: six of each kind. */
    r = replay("generate:gmlake", "passthrough", "");
    cr_assert_eq(number(r, "peak_reserved_bytes"), 256 * MIB);
    cr_assert_eq(number(r, "driver_calls"), 12);
    json_decref(r);
}

/* The request of the article fails with PyTorch's default rules, as reported, but not with others. */
Test(replay_run, article)
{
    static const struct {
        const char *allocator, *more;
        int64_t failed;
    } cases[] = {{"pytorch", "", 1}, {"caching", "", 0}, {"pytorch", " --conf=expandable_segments:True", 0}};
    for (size_t i = 0; i < 3; i++) {
        json_t *r = replay("generate:oom-article", cases[i].allocator, cases[i].more);
        cr_expect_eq(number(r, "failed"), cases[i].failed, "%s%s", cases[i].allocator, cases[i].more);
        cr_expect_leq(number(r, "peak_reserved_bytes"), 11520 * MIB);
        if (cases[i].failed)
            cr_expect_eq(number(r, "peak_reserved_bytes"), 10886 * MIB);
        json_decref(r);
    }
}

/* The default allocator's goals, on every trace: at least 95 % of the reserved bytes are used at
 * the peak; the training and serving traces become steady, so their second half needs no driver
 * call; no request fails. */
Test(replay_run, caching_goals, .timeout = 120)
{
    char line[64];
    for (unsigned i = 0; gp_generate_at(i); i++) {
        const char *name = gp_generate_at(i)->name;
        bool rests = strcmp(name, "leak") != 0 && strcmp(name, "oom-article") != 0 && strcmp(name, "gmlake") != 0;
        snprintf(line, sizeof(line), "generate:%s", name);
        json_t *r = replay(line, "caching", "");
        double used = json_real_value(json_object_get(r, "utilisation"));
        cr_expect(used >= 0.95, "%s: %.3f", name, used);
        cr_expect(!rests || number(r, "driver_calls_second_half") == 0, "%s: %ld calls in the second half", name,
                  (long)number(r, "driver_calls_second_half"));
        cr_expect_eq(number(r, "failed"), 0, "%s", name);
        json_decref(r);
    }
}

/* ---- verify ------------------------------------------------------------------------------------------------------ */

static const char *const allocators[] = {"caching", "pytorch", "auto_growth", "prealloc", "passthrough"};

Test(replay_run, verified, .timeout = 120, .init = begin, .fini = end)
{
    static const char *const names[] = {"llm-zero3", "cnn"};
    for (size_t n = 0; n < 2; n++) {
        expect(run("generate %s --scale=0.01 -o %s", names[n], path), 0, NULL, NULL);
        for (size_t i = 0; i < 5; i++) {
            json_t *r = replay(path, allocators[i], " --verify"), *verify = json_object_get(r, "verify");
            cr_expect_gt(number(verify, "checked"), 1000, "%s on %s", allocators[i], names[n]);
            cr_expect_eq(number(r, "failed"), 0);
            json_decref(r);
        }
    }
}

/* Blocks pass between threads and streams at every operation. */
Test(replay_run, threads_and_devices, .timeout = 60, .init = begin, .fini = end)
{
    FILE *file = fopen(path, "w");
    fprintf(file, "gpuprof.trace/1\n");
    for (unsigned i = 0; i < 3000; i++) {
        fprintf(file, "alloc %u %u %u %u %u\n", i, 1000 + i * 977 % 3000000, i % 5, i % 7, i % 2);
        if (i % 3 == 0)
            fprintf(file, "record_stream %u %u %u\n", i, (i + 1) % 5, (i + 1) % 7);
        if (i >= 40)
            fprintf(file, "free %u any %u\n", i - 40, (i + 2) % 7);
    }
    cr_assert_eq(fclose(file), 0);
    for (size_t i = 0; i < 5; i++) {
        json_t *many = replay(path, allocators[i], " --verify"), *one = replay(path, allocators[i], " --threads=1");
        cr_expect_eq(number(many, "operations"), 3000 + 1000 + 2960);
        cr_expect_eq(number(many, "operations"), number(one, "operations"));
        cr_expect_eq(number(many, "peak_allocated_bytes"), number(one, "peak_allocated_bytes"));
        cr_expect_eq(json_array_size(json_object_get(many, "devices")), 2);
        json_decref(many);
        json_decref(one);
    }
}

/* ---- other files, output ----------------------------------------------------------------------------------------- */

Test(replay_run, rmm_log, .init = begin, .fini = end)
{
    static const char log[] = "Thread,Time,Action,Pointer,Size,Stream\n"
                              "1,10:00:00:000001,allocate,0x1000,3000000,0x0\n"
                              "2,10:00:00:000002,allocate,0x2000,700,0x77\n"
                              "1,10:00:00:000003,free,0x1000,3000000,0x77\n"
                              "2,10:00:00:000004,free,0x2000,700,0x77\n";
    write_trace(log, sizeof(log) - 1);
    json_t *r = replay(path, "pytorch", " --verify");
    /* Two allocations and two frees. The free on another stream counts as a use of that stream. */
    cr_assert_eq(number(r, "operations"), 5);
    cr_assert_eq(number(r, "peak_allocated_bytes"), 3000320 + 1024);
    cr_assert_eq(number(r, "peak_reserved_bytes"), 22 * MIB);
    cr_assert_str_eq(json_string_value(json_object_get(r, "trace")), "RMM log");
    json_decref(r);
}

Test(replay_run, table_of_all)
{
    struct result r = run("replay generate:gmlake --allocator=all");
    for (size_t i = 0; i < 5; i++)
        cr_assert(strstr(r.out, allocators[i]), "%s: %s", allocators[i], r.out);
    cr_assert(strstr(r.out, "416.0 MiB"), "%s", r.out);
    expect(r, 0, "allocator", NULL);
    r = run("replay generate:gmlake --allocator=all --json");
    unsigned lines = 0;
    for (const char *at = r.out; (at = strchr(at, '\n')); at++)
        lines++;
    cr_assert_eq(lines, 5, "%s", r.out);
    expect(r, 0, NULL, NULL);
}

/* --limit refuses requests that do not fit, and the run continues. */
Test(replay_run, limit)
{
    json_t *r = replay("generate:gmlake", "pytorch", " --limit=300MiB");
    cr_assert_eq(number(r, "failed"), 1);
    cr_assert_eq(number(r, "peak_reserved_bytes"), 256 * MIB);
    json_decref(r);
    r = replay("generate:gmlake", "caching", " --limit=300MiB");
    cr_assert_eq(number(r, "failed"), 0);
    json_decref(r);
}
