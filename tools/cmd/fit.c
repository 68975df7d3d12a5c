/* SPDX-License-Identifier: MIT
 * fit.c: `gpuprof fit`: whether a recorded program fits on a GPU of another size.  Called by
 * commands.c; tools/analyze/fit.h has the work. */
#include <analyze/fit.h>
#include <analyze/report.h>
#include <cmd/cmd.h>
#include <cmd/load.h>
#include <gpuprof/wire.h>
#include <read/recording/recording.h>
#include <show/text/fittext.h>
#include <show/text/text.h>
#include <show/text/write.h>

#include <cache/policy.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The first member is what gp_load_check and gp_load take. */
struct gp_fit_options {
    struct gp_load_options load;
    int64_t tenants, context;           /* context: -1 not given */
    const char *gpu, *allocator, *conf; /* gpu: a size, or the name of a GPU */
    bool all;
};

static int fit_check(void *options)
{
    const struct gp_fit_options *o = options;
    int rc = gp_load_check(options);
    if (!rc && !o->gpu)
        rc = gp_usage_error("fit", "--gpu is needed: the size of the GPU to try, such as 24GiB, or its name");
    if (!rc && o->all && o->allocator)
        rc = gp_usage_error("fit", "--all tries every allocator: leave --allocator out");
    if (!rc && o->conf && (!o->allocator || strcmp(o->allocator, "off") == 0))
        rc = gp_usage_error("fit", "--alloc-conf sets an allocator: name one with --allocator");
    return rc ? rc : gp_conf_check("fit", "--alloc-conf", o->conf, o->allocator ? o->allocator : "off");
}

/* Above it is no size: "3080ti" is a card. */
#define GP_FIT_MOST (256ll << 40)

/* The size of the GPU to try, and what its context takes if it is one of the table. */
static int fit_gpu(const struct gp_fit_options *o, struct gp_fit_question *question, char key[GP_SIM_KEY])
{
    struct gp_sim_gpu *table = NULL;
    uint32_t count = 0, i = 0;
    int64_t bytes = 0;
    char why[GP_TEXT_WHY];
    int size = gp_text_size_parse(o->gpu, &bytes);
    if (size == 0 && bytes > 0 && bytes <= GP_FIT_MOST) {
        question->gpu_bytes = (uint64_t)bytes;
        return GP_EXIT_OK;
    }
    int rc = gp_launch_gpu_key("fit", "--gpu ", o->gpu, key);
    if (!rc)
        rc = gp_launch_gpu_table("fit", &table, &count);
    while (!rc && i < count && strcmp(table[i].key, key) != 0)
        i++;
    if (!rc && i == count && size == -EDOM)
        rc = gp_usage_error("fit", "--gpu %s: %s", o->gpu, gp_text_size_why(why, o->gpu));
    else if (!rc && i == count)
        rc = gp_usage_error("fit",
                            "--gpu %s: neither a size (like 24GiB) nor the name of a GPU: 'gpuprof dryrun --list' "
                            "shows the names",
                            o->gpu);
    if (!rc) {
        question->gpu = key;
        question->gpu_bytes = (uint64_t)table[i].total_bytes;
        question->threads = (uint64_t)table[i].threads;
    }
    free(table);
    return rc;
}

static int fit_print(const struct gp_fit_options *o, const struct gp_fit_answer *answer)
{
    struct gp_text_page page = gp_load_page();
    int rc = GP_EXIT_OK;
    if (o->load.json)
        rc = gp_load_json("fit", gp_fit_json(answer));
    else
        gp_text_fit(&page, answer);
    return rc ? rc : gp_fit_answer_fits(answer) ? GP_EXIT_OK : GP_EXIT_OVER;
}

/* What was held, by its names, and the step of a failure. */
static int fit_explain(struct gp_loaded *loaded, const struct gp_fit_answer *answer, struct gp_fit_result *results)
{
    int rc = gp_fit_answer_fits(answer) ? 0 : gp_report_steps(&loaded->report);
    if (!rc && !gp_load_join(loaded))
        rc = -ENOMEM;
    for (uint32_t i = 0; !rc && i < answer->count; i++)
        rc = gp_fit_judge_held(loaded->report.flow, &results[i]);
    return rc;
}

/* Each replay has a bar of its own, since nobody knows how many there will be. */
static void fit_progress(unsigned parts)
{
    static unsigned replay;
    char what[32];
    if (parts == 0) {
        snprintf(what, sizeof(what), "replay %u", ++replay);
        gp_progress_begin(what);
    }
    gp_progress_step(parts);
}

static int fit_answer(const struct gp_fit_options *o, struct gp_loaded *loaded, const struct gp_fit_question *question)
{
    const struct gp_report *report = &loaded->report;
    const struct gp_recording *recording = report->recording;
    struct gp_fit_result *results = calloc(recording->device_count + 1ul, sizeof(*results));
    struct gp_fit_answer answer = {report, question, results, 0};
    int rc = results ? 0 : -ENOMEM;
    for (uint32_t d = 0; !rc && d < recording->device_count; d++) {
        if (report->devices[d].used && recording->devices[d].index != GP_WIRE_HOST)
            rc = gp_fit_judge(report->flow, d, question, &results[answer.count++]);
    }
    gp_progress_end();
    if (!rc)
        rc = fit_explain(loaded, &answer, results);
    if (rc == -ERANGE)
        gp_error("fit", "%s: no size was found at which the requests fit: is the recording damaged?", report->file);
    else if (rc)
        gp_memory_error("fit");
    else if (!answer.count)
        gp_error("fit", "%s: the recording has no memory of a GPU", report->file);
    int status = rc || !answer.count ? GP_EXIT_FAILED : fit_print(o, &answer);
    for (uint32_t i = 0; i < answer.count; i++)
        gp_fit_result_fini(&results[i]);
    free(results);
    return status;
}

static int fit_run(void *options)
{
    const struct gp_fit_options *o = options;
    struct gp_fit_question question = {.tenants = (uint32_t)o->tenants,
                                       .context_bytes = o->context,
                                       .allocator = o->allocator,
                                       .conf = o->conf,
                                       .all = o->all,
                                       .progress = fit_progress};
    struct gp_loaded loaded;
    char gpu[GP_SIM_KEY];
    int rc = fit_gpu(o, &question, gpu);
    rc = rc ? rc : gp_load(&loaded, &o->load, 0);
    if (rc)
        return rc;
    if (o->load.json)
        gp_load_warn("fit", loaded.report.file, loaded.recording);
    rc = fit_answer(o, &loaded, &question);
    gp_load_free(&loaded);
    return rc;
}

static const struct gp_command_option fit_options[] = {
    GP_OPTION(struct gp_fit_options, gpu, 0, "gpu", "GPU", GP_ARG_TEXT,
              "the GPU to try: its memory, such as 24GiB, or a name that 'gpuprof dryrun --list' shows"),
    GP_OPTION(struct gp_fit_options, allocator, 0, "allocator", "NAME", GP_ARG_CHOICE,
              "replay with this allocator (default: the one that was recorded)", .choice = gp_allocator_name),
    GP_OPTION(struct gp_fit_options, conf, 0, "alloc-conf", "K:V,..", GP_ARG_TEXT,
              "settings of the allocator, in the grammar of PYTORCH_CUDA_ALLOC_CONF"),
    GP_FLAG(struct gp_fit_options, all, 0, "all", "try every allocator"),
    GP_OPTION(struct gp_fit_options, tenants, 0, "tenants", "N", GP_ARG_NUMBER,
              "N such programs share the GPU, each at its peak at the same time (default 1)", .low = 1, .high = 1024),
    GP_OPTION(struct gp_fit_options, context, 0, "context", "SIZE", GP_ARG_SIZE,
              "what the context of one program takes (default: as NVML measured it, otherwise an estimate)"),
    GP_OPTION(struct gp_fit_options, load.json, 0, "json", NULL, GP_ARG_FLAG, "print JSON, schema gpuprof.fit/1"),
    {0}};

const struct gp_command_spec gp_command_fit = {
    .name = "fit",
    .summary = "say whether a recorded program fits on another GPU",
    .group = GP_GROUP_ANALYSE,
    .usage = GP_LIST("FILE --gpu=GPU [--allocator=NAME [--alloc-conf=K:V,..] | --all] [--tenants=N] [--context=SIZE] "
                     "[--json]"),
    .about =
        GP_LIST("Replays the requests of a recording on a GPU of another size, and prints whether they fit, the "
                "smallest size that fits, and otherwise the request that fails and what was held then. The exit "
                "status is 0 if the program fits, 3 if it does not, and 1 if there is no answer. docs/fit.md explains "
                "the model."),
    .options = fit_options,
    .operands = gp_load_operand,
    .examples = GP_EXAMPLES(
        {"gpuprof fit train.gpuprof --gpu 24GiB", "Ask whether a recorded program fits on a GPU of 24 GiB."},
        {"gpuprof fit train.gpuprof --gpu l4", "Ask the same of an L4, whose context is not that of the recorded GPU."},
        {"gpuprof fit train.gpuprof --gpu 16GiB --all", "Find the allocator with which it fits."},
        {"gpuprof fit serve.gpuprof --gpu 80GiB --tenants 4", "Ask whether four of them can share a GPU."}),
    GP_DEFAULTS(struct gp_fit_options, .load.target = GP_TARGET_INIT("fit"), .load.file_count = 1, .load.sites = true,
                .load.plain = true, .tenants = 1, .context = -1),
    .surplus = "one recording at a time",
    .check = fit_check,
    .run = fit_run,
};
