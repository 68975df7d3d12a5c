/* SPDX-License-Identifier: MIT
 * replay.c: `gpuprof replay`: runs a trace of allocations on the simulated GPU, with one
 * allocator or all of them, and prints a table or JSON.  Called by commands.c; tools/convert/replay does
 * the work. */
#include <cmd/load.h>
#include <convert/replay/replay.h>
#include <show/text/write.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The order of the documentation. */
static const char *const replay_names[] = {"caching", "pytorch", "auto_growth", "prealloc", "passthrough", "all", NULL};

struct gp_replay_options {
    const char *trace, *allocator, *conf, *sim;
    int64_t limit, threads;
    bool json, verify;
};

static int replay_check(void *options)
{
    const struct gp_replay_options *o = options;
    if (!o->trace)
        return gp_usage_error("replay", "no trace given");
    if (!o->allocator)
        return gp_usage_error("replay", "--allocator is needed");
    return gp_conf_check("replay", "--conf", o->conf, strcmp(o->allocator, "all") == 0 ? "caching" : o->allocator);
}

/* ---- the trace --------------------------------------------------------------------------------------------------- */

static int replay_open(const struct gp_replay_options *o, struct gp_replay_trace *trace)
{
    static const char prefix[] = "generate:";
    struct gp_replay_problem problem = {0};
    int rc;
    if (strncmp(o->trace, prefix, sizeof(prefix) - 1) == 0) {
        const struct gp_generator *generator = gp_generate_find(o->trace + sizeof(prefix) - 1);
        if (!generator)
            return gp_usage_error("replay", "%s: no such generator: 'gpuprof generate --list' lists them", o->trace);
        rc = gp_generate(trace, generator, 1, 1000, &problem);
    } else {
        rc = gp_replay_load(trace, o->trace, &problem);
    }
    if (rc && problem.line)
        gp_error("replay", "%s: line %" PRIu64 ": %s", o->trace, problem.line, problem.text);
    else if (rc)
        gp_error("replay", "%s: %s", o->trace, problem.text);
    if (!rc && trace->blocks == 0) {
        gp_error("replay", "%s: this %s contains no allocation", o->trace, trace->format);
        gp_replay_trace_free(trace);
        rc = -ENODATA;
    }
    return rc ? GP_EXIT_FAILED : GP_EXIT_OK;
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

static double replay_part(uint64_t of, uint64_t whole)
{
    return whole ? (double)of / (double)whole : 0.0;
}

static json_t *replay_json_devices(const struct gp_replay_result *r)
{
    json_t *devices = json_array();
    for (uint32_t d = 0; d < r->device_count; d++)
        json_array_append_new(devices, json_pack("{s:i,s:I,s:I,s:I}", "device", (int)d, "peak_allocated_bytes",
                                                 (json_int_t)r->devices[d].peak_allocated_bytes, "peak_reserved_bytes",
                                                 (json_int_t)r->devices[d].peak_reserved_bytes, "hazards",
                                                 (json_int_t)r->devices[d].hazards));
    return devices;
}

static json_t *replay_json_calls(const struct gp_replay_result *r)
{
    json_t *calls = json_object();
    for (uint32_t i = 0; i < r->call_count; i++)
        json_object_set_new(calls, r->calls[i].name,
                            json_pack("{s:I,s:I,s:b}", "calls", (json_int_t)r->calls[i].calls, "second_half",
                                      (json_int_t)r->calls[i].second_half, "memory", (int)r->calls[i].memory));
    return calls;
}

static uint64_t replay_hazards(const struct gp_replay_result *r)
{
    uint64_t hazards = 0;
    for (uint32_t d = 0; d < r->device_count; d++)
        hazards += r->devices[d].hazards;
    return hazards;
}

static json_t *replay_json(const char *allocator, const struct gp_replay_trace *trace,
                           const struct gp_replay_options *o, const struct gp_replay_result *r)
{
    json_t *root = json_pack(
        "{s:s,s:s,s:I,s:I,s:I,s:I,s:f,s:I,s:I,s:I,s:f}", "schema", "gpuprof.replay/1", "allocator", allocator,
        "operations", (json_int_t)r->operations, "failed", (json_int_t)r->failed, "peak_allocated_bytes",
        (json_int_t)r->peak_allocated_bytes, "peak_reserved_bytes", (json_int_t)r->peak_reserved_bytes, "utilisation",
        replay_part(r->peak_allocated_bytes, r->peak_reserved_bytes), "driver_calls", (json_int_t)r->driver_calls,
        "driver_calls_second_half", (json_int_t)r->driver_calls_second_half, "simulated_driver_ns",
        (json_int_t)r->simulated_ns, "ns_per_operation", replay_part(r->elapsed_ns, r->operations));
    if (!root)
        return NULL;
    json_object_set_new(root, "trace", json_string(trace->format));
    json_object_set_new(root, "left_out", json_integer((json_int_t)trace->left_out));
    json_object_set_new(root, "refused", json_integer((json_int_t)r->refused));
    json_object_set_new(root, "fence_calls", json_integer((json_int_t)r->fence_calls));
    json_object_set_new(root, "fence_calls_second_half", json_integer((json_int_t)r->fence_calls_second_half));
    json_object_set_new(root, "retries", gp_json_known(r->retries));
    json_object_set_new(root, "syncs", gp_json_known(r->syncs));
    json_object_set_new(root, "own_peak_reserved_bytes", gp_json_known(r->own_reserved_bytes));
    json_object_set_new(root, "devices", replay_json_devices(r));
    json_object_set_new(root, "calls", replay_json_calls(r));
    if (o->verify)
        json_object_set_new(root, "verify",
                            json_pack("{s:I,s:I,s:I,s:I,s:I}", "checked", (json_int_t)r->checked, "damaged",
                                      (json_int_t)r->damaged, "overlaps", (json_int_t)r->overlaps, "misaligned",
                                      (json_int_t)r->misaligned, "hazards", (json_int_t)replay_hazards(r)));
    return root;
}

static void replay_line(const char *allocator, const struct gp_replay_options *o, const struct gp_replay_result *r)
{
    char allocated[GP_SIZE_TEXT], reserved[GP_SIZE_TEXT];
    printf("%-12s %10" PRIu64 " %7" PRIu64 " %11s %11s %6.3f %8" PRIu64 " %8" PRIu64 " %10.3f %8.1f", allocator,
           r->operations, r->failed, gp_size_text(allocated, (int64_t)r->peak_allocated_bytes),
           gp_size_text(reserved, (int64_t)r->peak_reserved_bytes),
           replay_part(r->peak_allocated_bytes, r->peak_reserved_bytes), r->driver_calls, r->driver_calls_second_half,
           (double)r->simulated_ns / 1e6, replay_part(r->elapsed_ns, r->operations));
    if (o->verify)
        printf(" %8" PRIu64 " %7" PRIu64 " %8" PRIu64 " %7" PRIu64, r->checked, r->damaged, r->overlaps,
               replay_hazards(r));
    putchar('\n');
    fflush(stdout);
}

static void replay_head(const struct gp_replay_options *o)
{
    printf("%-12s %10s %7s %11s %11s %6s %8s %8s %10s %8s%s\n", "allocator", "operations", "failed", "allocated",
           "reserved", "used", "calls", "2nd half", "driver ms", "ns/op",
           o->verify ? "  checked damaged overlaps hazards" : "");
}

static void replay_progress(void *listener, uint32_t done, uint32_t of)
{
    (void)listener;
    fprintf(stderr, "\r%3u %%", of ? (unsigned)(100ull * done / of) : 0);
    fflush(stderr);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static int replay_verdict(const char *allocator, const struct gp_replay_options *o, const struct gp_replay_result *r)
{
    uint64_t hazards = replay_hazards(r);
    if (r->refused)
        gp_error("replay", "%s: %" PRIu64 " frees, recordings or settings were refused by the library", allocator,
                 r->refused);
    if (o->verify && (r->damaged || r->overlaps || r->misaligned || hazards))
        gp_error("replay",
                 "%s: %" PRIu64 " blocks damaged, %" PRIu64 " overlapping, %" PRIu64 " misaligned, %" PRIu64
                 " hazards: the allocator is wrong",
                 allocator, r->damaged, r->overlaps, r->misaligned, hazards);
    return r->refused || r->damaged || r->overlaps || r->misaligned || hazards ? GP_EXIT_FAILED : GP_EXIT_OK;
}

static int replay_one(const char *allocator, const struct gp_replay_trace *trace, const struct gp_replay_options *o,
                      struct gp_replay_settings *settings)
{
    struct gp_replay_result result;
    bool bar = isatty(STDERR_FILENO) && !o->json;
    settings->allocator = allocator;
    settings->progress = bar ? replay_progress : NULL;
    int rc = gp_replay_run(trace, settings, &result);
    if (bar)
        fputs("\r     \r", stderr);
    if (rc) {
        gp_error("replay", "%s: %s", allocator, result.why);
        return GP_EXIT_FAILED;
    }
    if (o->json)
        rc = gp_json_print(stdout, replay_json(allocator, trace, o, &result), strcmp(o->allocator, "all") == 0);
    else
        replay_line(allocator, o, &result);
    return rc ? GP_EXIT_FAILED : replay_verdict(allocator, o, &result);
}

static int replay_all(const struct gp_replay_trace *trace, const struct gp_replay_options *o,
                      struct gp_replay_settings *settings)
{
    int worst = GP_EXIT_OK;
    if (!o->json)
        replay_head(o);
    if (strcmp(o->allocator, "all") != 0)
        return replay_one(o->allocator, trace, o, settings);
    for (size_t i = 0; strcmp(replay_names[i], "all") != 0; i++) {
        int rc = replay_one(replay_names[i], trace, o, settings);
        worst = rc ? rc : worst;
    }
    return worst;
}

static int replay_place(char *path, size_t path_bytes, const char *below)
{
    if (gp_launch_find(path, path_bytes, below) == 0)
        return GP_EXIT_OK;
    gp_launch_missing("replay", below, "install gpuprof again (in a source tree: make)");
    return GP_EXIT_USAGE;
}

static int replay_command(void *options)
{
    const struct gp_replay_options *o = options;
    struct gp_replay_trace trace;
    char library[4096], driver[4096], sim[64];
    int rc = replay_place(library, sizeof(library), "libgpuprof.so");
    if (!rc)
        rc = replay_place(driver, sizeof(driver), "gpuprof/sim/libcuda.so.1");
    if (!rc)
        rc = replay_open(o, &trace);
    if (rc)
        return rc;
    snprintf(sim, sizeof(sim), "devices=%u,memory=80GiB,latency=typical", trace.devices);
    struct gp_replay_settings settings = {.conf = o->conf,
                                          .sim = o->sim ? o->sim : sim,
                                          .limit_bytes = (uint64_t)o->limit,
                                          .threads = (unsigned)o->threads,
                                          .verify = o->verify,
                                          .library = library,
                                          .driver = driver};
    rc = replay_all(&trace, o, &settings);
    gp_replay_trace_free(&trace);
    return rc;
}

static const struct gp_command_option replay_options[] = {
    GP_OPTION(struct gp_replay_options, allocator, 0, "allocator", "NAME", GP_ARG_CHOICE,
              "the allocator; 'all' runs the trace with each of them", .words = replay_names),
    GP_OPTION(struct gp_replay_options, conf, 0, "conf", "TEXT", GP_ARG_TEXT,
              "settings of the allocator, in the grammar of PYTORCH_CUDA_ALLOC_CONF (max_split_size_mb:128,...)"),
    GP_OPTION(struct gp_replay_options, limit, 0, "limit", "SIZE", GP_ARG_SIZE,
              "the most memory that the allocator reserves on a device", .low = 1),
    GP_OPTION(struct gp_replay_options, sim, 0, "sim", "SPEC", GP_ARG_TEXT,
              "the simulated GPU: a list of devices=N, memory=SIZE, latency=zero|typical and faults=FILE (default "
              "memory=80GiB,latency=typical and the devices of the trace)"),
    GP_OPTION(struct gp_replay_options, threads, 0, "threads", "N", GP_ARG_NUMBER,
              "use at most N threads (default: those of the trace; 1: all operations on one thread)", .low = 1,
              .high = GP_REPLAY_THREADS),
    GP_FLAG(struct gp_replay_options, verify, 0, "verify",
            "write patterns into the blocks, check them, and check that live blocks do not overlap"),
    GP_FLAG(struct gp_replay_options, json, 0, "json",
            "print JSON, schema gpuprof.replay/1; with --allocator=all one line for each allocator"),
    {0}};

static const struct gp_command_option replay_operands[] = {
    GP_OPERAND(struct gp_replay_options, trace, "TRACE", GP_ARG_FILE,
               "a trace of 'gpuprof generate', 'generate:NAME', or " GP_LOAD_READS),
    {0}};

const struct gp_command_spec gp_command_replay = {
    .name = "replay",
    .summary = "run an allocation trace on the simulated GPU",
    .group = GP_GROUP_EXPORT,
    .usage =
        GP_LIST("TRACE --allocator=NAME [--conf=TEXT] [--limit=SIZE] [--sim=SPEC] [--threads=N] [--verify] [--json]"),
    .about =
        GP_LIST("Runs a trace of allocations through an allocator of libgpuprof.so on the simulated GPU, and prints "
                "peaks, driver calls and times. docs/traces.md describes the traces."),
    .options = replay_options,
    .operands = replay_operands,
    .examples = GP_EXAMPLES(
        {"gpuprof replay generate:gmlake --allocator=all", "Compare all allocators on a generated trace."},
        {"gpuprof replay train.gpuprof --allocator=caching --limit=16GiB", "Try a recording with less memory."}),
    GP_DEFAULTS(struct gp_replay_options, 0),
    .surplus = "one trace at a time",
    .check = replay_check,
    .run = replay_command,
};
