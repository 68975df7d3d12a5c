/* SPDX-License-Identifier: MIT
 * replay.c: `gpuprof replay`: a trace of allocations on the simulated GPU, under one allocator or all of them, as a
 * table for people or JSON for scripts.  Called by main.c; what it does is in tools/replay. */
#include <cmd/cmd.h>
#include <replay/generate.h>
#include <replay/isolate.h>
#include <write/write.h>

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char replay_help[] =
    "usage: gpuprof replay TRACE --allocator=NAME [--conf=TEXT] [--limit=SIZE] [--sim=SPEC] [--json]\n"
    "\n"
    "Runs a trace of allocations on the simulated GPU through the real library.  TRACE: a recording, a file in our "
    "text\n"
    "form, an RMM log (CSV), a PyTorch snapshot (pickle), '-' for standard input, or 'generate:NAME' (see 'gpuprof\n"
    "generate').\n"
    "\n"
    "      --allocator=NAME  caching, pytorch, auto_growth, prealloc, passthrough; all: one line for each\n"
    "      --conf=TEXT       options as in PYTORCH_CUDA_ALLOC_CONF: max_split_size_mb:128,...\n"
    "      --limit=SIZE      most bytes reserved\n"
    "      --sim=SPEC        devices=N,memory=SIZE,latency=zero|typical,faults=FILE\n"
    "                        (default memory=80GiB,latency=typical and the devices that the trace uses)\n"
    "      --threads=N       at most N real threads (default: those of the trace; 1: all operations on one)\n"
    "      --verify          write patterns on the blocks' streams, check them and that no two live blocks overlap\n"
    "      --json            gpuprof.replay/1; with 'all' one line for each allocator\n";

/* In the order of the documentation. */
static const char *const replay_names[] = {"caching", "pytorch", "auto_growth", "prealloc", "passthrough"};

struct gp_replay_options {
    const char *trace, *allocator, *conf, *sim;
    int64_t limit, threads;
    bool json, verify, help;
};

enum { GP_REPLAY_ALLOCATOR = 256, GP_REPLAY_CONF, GP_REPLAY_MOST, GP_REPLAY_SIM, GP_REPLAY_REAL_THREADS };

static int replay_value(int code, const char *value, struct gp_replay_options *o)
{
    switch (code) {
    case GP_REPLAY_ALLOCATOR:
        o->allocator = value;
        break;
    case GP_REPLAY_CONF:
        o->conf = value;
        break;
    case GP_REPLAY_SIM:
        o->sim = value;
        break;
    case GP_REPLAY_MOST:
        if (gp_parse_size(value, &o->limit) != 0 || o->limit == 0)
            return gp_usage_error("replay", "--limit=%s: not a size (like 512MiB or 16GiB), or out of range", value);
        break;
    default:
        if (gp_parse_number(value, 1, GP_REPLAY_THREADS, &o->threads) != 0)
            return gp_usage_error("replay", "--threads=%s: from 1 to %u", value, GP_REPLAY_THREADS);
    }
    return GP_EXIT_OK;
}

static int replay_parse(int argc, char **argv, struct gp_replay_options *o)
{
    static const struct option options[] = {{"allocator", required_argument, NULL, GP_REPLAY_ALLOCATOR},
                                            {"conf", required_argument, NULL, GP_REPLAY_CONF},
                                            {"limit", required_argument, NULL, GP_REPLAY_MOST},
                                            {"sim", required_argument, NULL, GP_REPLAY_SIM},
                                            {"threads", required_argument, NULL, GP_REPLAY_REAL_THREADS},
                                            {"verify", no_argument, NULL, 'v'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int c, rc = GP_EXIT_OK;
    optind = 0;
    opterr = 0;
    while (!rc && (c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (c == 'v' || c == 'j' || c == 'h') {
            o->verify |= c == 'v';
            o->json |= c == 'j';
            o->help |= c == 'h';
        } else if (c == '?' || c == ':') {
            return gp_option_error("replay", c, argv, optind, optopt);
        } else {
            rc = replay_value(c, optarg, o);
        }
    }
    o->trace = optind < argc ? argv[optind++] : NULL;
    if (!rc && !o->help && !o->trace)
        return gp_usage_error("replay", "no trace given");
    if (!rc && optind < argc)
        return gp_usage_error("replay", "%s: one trace at a time", argv[optind]);
    return rc;
}

static int replay_check(const struct gp_replay_options *o)
{
    const char *all = "caching, pytorch, auto_growth, prealloc, passthrough, all";
    if (!o->allocator)
        return gp_usage_error("replay", "--allocator is needed: one of %s", all);
    if (strcmp(o->allocator, "all") == 0)
        return GP_EXIT_OK;
    for (size_t i = 0; i < GP_COUNT(replay_names); i++) {
        if (strcmp(o->allocator, replay_names[i]) == 0)
            return GP_EXIT_OK;
    }
    return gp_usage_error("replay", "--allocator=%s: not one of %s", o->allocator, all);
}

/* ---- the trace --------------------------------------------------------------------------------------------------- */

static int replay_open(const struct gp_replay_options *o, struct gp_replay_trace *trace)
{
    static const char prefix[] = "generate:";
    struct gp_replay_problem problem = {0};
    int rc;
    if (strncmp(o->trace, prefix, sizeof(prefix) - 1) == 0) {
        const struct gp_generator *generator = gp_generator_find(o->trace + sizeof(prefix) - 1);
        if (!generator)
            return gp_usage_error("replay", "%s: no such generator: 'gpuprof generate --list' has them", o->trace);
        rc = gp_generate(trace, generator, 1, 1000, &problem);
    } else {
        rc = gp_replay_load(trace, o->trace, &problem);
    }
    if (rc && problem.line)
        gp_error("replay", "%s: line %" PRIu64 ": %s", o->trace, problem.line, problem.text);
    else if (rc)
        gp_error("replay", "%s: %s", o->trace, problem.text);
    if (!rc && trace->blocks == 0) {
        gp_error("replay", "%s: a %s without a single allocation", o->trace, trace->format);
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
    for (size_t i = 0; i < GP_COUNT(replay_names); i++) {
        int rc = replay_one(replay_names[i], trace, o, settings);
        worst = rc ? rc : worst;
    }
    return worst;
}

static int replay_place(char *path, size_t path_bytes, const char *below)
{
    if (gp_launch_find(path, path_bytes, below) == 0)
        return GP_EXIT_OK;
    gp_error("replay", "%s: missing: build or install it (make)", path);
    return GP_EXIT_USAGE;
}

int gp_cmd_replay(int argc, char **argv)
{
    struct gp_replay_options o = {0};
    struct gp_replay_trace trace;
    char library[4096], driver[4096], sim[64];
    int rc = replay_parse(argc, argv, &o);
    if (!rc && o.help) {
        fputs(replay_help, stdout);
        return GP_EXIT_OK;
    }
    if (!rc)
        rc = replay_check(&o);
    if (!rc)
        rc = replay_place(library, sizeof(library), "libgpuprof.so");
    if (!rc)
        rc = replay_place(driver, sizeof(driver), "gpuprof/sim/libcuda.so.1");
    if (!rc)
        rc = replay_open(&o, &trace);
    if (rc)
        return rc;
    snprintf(sim, sizeof(sim), "devices=%u,memory=80GiB,latency=typical", trace.devices);
    struct gp_replay_settings settings = {.conf = o.conf,
                                          .sim = o.sim ? o.sim : sim,
                                          .limit_bytes = (uint64_t)o.limit,
                                          .threads = (unsigned)o.threads,
                                          .verify = o.verify,
                                          .library = library,
                                          .driver = driver};
    rc = replay_all(&trace, &o, &settings);
    gp_replay_trace_free(&trace);
    return rc;
}
