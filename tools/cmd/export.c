/* SPDX-License-Identifier: MIT
 * export.c: `gpuprof export`: writes a recording in the format of another tool.  Called by
 * commands.c; the formats are in tools/convert/export. */
#include <analyze/analyze.h>
#include <cmd/cmd.h>
#include <cmd/exportfolder.h>
#include <cmd/load.h>
#include <convert/export/arrow.h>
#include <convert/export/formats.h>
#include <convert/export/out.h>
#include <gpuprof/wire.h>
#include <read/recording/recording.h>
#include <symbol/symbol.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

struct gp_export_options {
    const char *file, *output;
    const char *format_name;
    const struct gp_export_format *format;
    int weight;     /* enum gp_export_weight; -1: not given */
    int64_t blocks; /* -1: not given */
    int table;      /* of arrow; -1: not given */
    const char *job;
    char job_name[256]; /* job, or made of the file's name */
    bool force, full_stacks;
    const char *step; /* NULL: not given */
    const char *symfs;
    struct gp_load_part part;
};

static const char *export_format_name(unsigned i)
{
    const struct gp_export_format *format = gp_export_format_at(i);
    return format ? format->name : NULL;
}

/* Viewers and forms that people name, and the format that they read or are made of. */
static const char *export_meant(const char *name)
{
    static const char *const words[][2] = {
        {"perfetto", "chrome"},      {"trace", "chrome"},    {"speedscope", "collapsed"},
        {"flamegraph", "collapsed"}, {"flame", "collapsed"}, {"folded", "collapsed"},
        {"json", "jsonl"},           {"ndjson", "jsonl"},    {"db", "sqlite"},
        {"sqlite3", "sqlite"},       {"ipc", "arrow"}};
    for (size_t i = 0; i < GP_COUNT(words); i++)
        if (strcasecmp(name, words[i][0]) == 0)
            return words[i][1];
    return NULL;
}

/* ---- the output ------------------------------------------------------------------------------------------------- */

static int export_write(struct gp_export *export, const struct gp_export_options *o, const struct gp_output *target)
{
    static struct gp_out out;
    if (o->format->create)
        return o->format->create(export, target->part);
    gp_out_begin(&out, target->fd);
    int rc = o->format->write(export, &out);
    int end = gp_out_end(&out);
    return rc ? rc : end;
}

/* A program that has ended holds next to nothing, so its stacks weigh what they did at the peak. */
static enum gp_export_weight export_weight(const struct gp_export_options *o, const struct gp_recording *recording)
{
    if (o->weight >= 0)
        return (enum gp_export_weight)o->weight;
    for (uint32_t i = recording->event_count; o->format->weighed && i-- > 0;)
        if (recording->events[i].type == GP_EVENT_PROCESS_EXIT)
            return GP_EXPORT_PEAK;
    return GP_EXPORT_LIVE;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int export_run(struct gp_export *export, const struct gp_export_options *o)
{
    struct gp_output target;
    int rc = gp_output_open(&target, o->output);
    if (!rc && o->format->create && !target.part[0]) {
        gp_output_close(&target, 0);
        gp_error("export", "%s: not a regular file, which a database needs", o->output);
        return GP_EXIT_FAILED;
    }
    if (!rc) {
        gp_progress_begin("writing");
        rc = gp_output_close(&target, export_write(export, o, &target));
        gp_progress_end();
    }
    if (rc == -EPROTO && export->why[0])
        gp_error("export", "%s: cannot be written: %s", o->output ? o->output : "stdout", export->why);
    else if (rc)
        gp_write_error("export", o->output, -rc);
    else if (o->output)
        fprintf(stderr, "gpuprof: export: %s: written%s%s; open it %s\n", o->output,
                o->format->weighed ? ", weighed by " : "",
                o->format->weighed ? gp_export_weight_name(export->weight) : "", o->format->opens);
    return rc ? GP_EXIT_FAILED : GP_EXIT_OK;
}

static int export_read(const struct gp_export_options *o, struct gp_recording **recording)
{
    char why[256] = "";
    gp_progress_begin("reading");
    int rc = gp_recording_open(recording, o->file, why, sizeof(why), gp_progress_listener, NULL);
    gp_progress_end();
    if (rc)
        return gp_load_refused("export", o->file, rc, why);
    return gp_load_cut("export", *recording, &o->part);
}

/* The tables of a recording, or of all recordings in a folder. */
static int export_folder(const struct gp_export_options *o)
{
    char **files = NULL, *one[] = {(char *)o->file, NULL};
    int rc = gp_rank_files("export", o->file, &files);
    struct gp_export_folder all = {.files = files ? files : one,
                                   .listed = files,
                                   .folder = o->output,
                                   .job = o->job_name,
                                   .symfs = o->symfs,
                                   .part = o->part,
                                   .force = o->force};
    while (all.files[all.count])
        all.count++;
    if (!rc)
        rc = gp_export_folder(&all);
    gp_rank_files_free(files);
    return rc;
}

static int export_command(void *options)
{
    const struct gp_export_options *o = options;
    if (o->format->write == gp_export_arrow && o->table < 0)
        return export_folder(o);
    struct gp_recording *recording = NULL;
    struct gp_steps *steps = NULL;
    if (o->format->binary && !o->output && isatty(STDOUT_FILENO))
        return gp_usage_error("export", "%s: binary data is not written to a terminal: name a file with -o",
                              o->format->name);
    int rc = gp_output_check("export", "-o ", o->output, o->force);
    rc = rc ? rc : export_read(o, &recording);
    if (!rc && o->step)
        rc = gp_load_steps("export", recording, o->step, &steps);
    if (rc) {
        gp_recording_free(recording);
        return rc;
    }
    struct gp_arrow_job job = gp_export_job(o->job_name, o->file, recording);
    struct gp_export export = {.recording = recording,
                               .job = &job,
                               .table = o->table < 0 ? 0 : (unsigned)o->table,
                               .steps = steps,
                               .weight = export_weight(o, recording),
                               .full_stacks = o->full_stacks,
                               .block_limit = o->blocks < 0 ? GP_EXPORT_BLOCKS : (uint32_t)o->blocks,
                               .progress = gp_progress_listener};
    struct gp_symbol_source source = gp_symbol_source_of(recording, "");
    if (gp_symbols_new(&export.symbols, &source) != 0) {
        gp_error("export", "out of memory");
        rc = GP_EXIT_FAILED;
    } else {
        gp_symbols_look_below(export.symbols, o->symfs);
        gp_load_warn("export", o->file, recording);
        rc = export_run(&export, o);
    }
    gp_symbols_free(export.symbols);
    gp_recording_free(recording);
    free(steps);
    return rc;
}

static const struct gp_command_option export_options[] = {
    /* Comes first: export_check names its choices. */
    GP_OPTION(struct gp_export_options, format_name, 'f', "format", "FORMAT", GP_ARG_CHOICE, "the format",
              .choice = export_format_name, .meant = export_meant),
    GP_OPTION(struct gp_export_options, output, 'o', "output", "OUT", GP_ARG_FILE,
              "the file to write; without it, or with '-', standard output; sqlite needs a file, and arrow a folder"),
    GP_OPTION(struct gp_export_options, table, 0, "table", "TABLE", GP_ARG_INDEX,
              "arrow: this table alone, as a stream", .choice = gp_arrow_table_name),
    GP_OPTION(struct gp_export_options, job, 0, "job", "NAME", GP_ARG_TEXT,
              "arrow: the name of the job, in every row (default the name of the folder or of the file)"),
    GP_OPTION(struct gp_export_options, weight, 0, "weight", "WEIGHT", GP_ARG_INDEX,
              "weigh the stacks of pprof and collapsed by the memory that is live at the end, live at the peak, "
              "allocated in total, or suspected by 'gpuprof leaks' (default peak if the program has ended, else live)",
              .choice = gp_export_weight_name),
    GP_OPTION(struct gp_export_options, blocks, 0, "blocks", "N", GP_ARG_NUMBER,
              "chrome: draw the lifetimes of the N largest blocks (default 20000)", .high = 10000000),
    GP_FLAG(struct gp_export_options, full_stacks, 0, "full-stacks",
            "pprof: begin stacks at the function that CUDA offers, not at the place that is responsible"),
    GP_OPTION_FORCE(struct gp_export_options),
    GP_LOAD_OPTION_STEP(struct gp_export_options),
    GP_LOAD_OPTION_FROM(struct gp_export_options),
    GP_LOAD_OPTION_TO(struct gp_export_options),
    GP_LOAD_OPTION_SYMFS(struct gp_export_options),
    {0}};

/* Reports options that contradict each other before anything is read. */
static int export_check(void *options)
{
    struct gp_export_options *o = options;
    if (o->output && strcmp(o->output, "-") == 0)
        o->output = NULL;
    if (!o->file)
        return gp_usage_error("export",
                              "no recording given: 'gpuprof record' or 'gpuprof run --record=FILE' makes one");
    if (!o->format_name) {
        char formats[128];
        gp_option_choices(formats, sizeof(formats), export_options);
        return gp_usage_error("export", "--format is needed: %s", formats);
    }
    const struct gp_export_format *format = o->format = gp_export_format_find(o->format_name);
    if (o->weight >= 0 && !format->weighed)
        return gp_usage_error("export", "--weight: %s has no stacks to weigh", format->name);
    if (o->blocks >= 0 && format->write != gp_export_chrome)
        return gp_usage_error("export", "--blocks: for --format=chrome alone");
    bool arrow = format->write == gp_export_arrow;
    if (!arrow && (o->table >= 0 || o->job))
        return gp_usage_error("export", "%s: for --format=arrow alone", o->job ? "--job" : "--table");
    if (arrow && o->table < 0 && !o->output)
        return gp_usage_error("export", "arrow: name a folder for the tables with -o, or one of them with --table");
    struct stat is;
    if ((!arrow || o->table >= 0) && stat(o->file, &is) == 0 && S_ISDIR(is.st_mode))
        return gp_usage_error("export", "%s: is a folder: all recordings in one are written by --format=arrow -o OUT",
                              o->file);
    if (o->job && !*o->job)
        return gp_usage_error("export", "--job: the name is empty");
    if (o->job && strlen(o->job) >= sizeof(o->job_name))
        return gp_usage_error("export", "--job: the name has more than %zu bytes", sizeof(o->job_name) - 1);
    if (o->job)
        snprintf(o->job_name, sizeof(o->job_name), "%s", o->job);
    else
        gp_export_job_name(o->job_name, sizeof(o->job_name), o->file);
    if (o->full_stacks && format->write != gp_export_pprof)
        return gp_usage_error("export", "--full-stacks: for --format=pprof alone");
    if (o->step && o->weight != GP_EXPORT_LEAKED)
        return gp_usage_error("export", "--step: for --weight=leaked alone: no other weight has steps");
    if (format->create && !o->output)
        return gp_usage_error("export", "%s: a database cannot be written to standard output: name a file with -o",
                              format->name);
    return GP_EXIT_OK;
}

static const struct gp_command_option export_operands[] = {
    GP_OPERAND(struct gp_export_options, file, "FILE", GP_ARG_RECORDING, GP_LOAD_READS), {0}};

const struct gp_command_spec gp_command_export = {
    .name = "export",
    .summary = "write a recording in the format of another tool",
    .group = GP_GROUP_EXPORT,
    .usage = GP_LIST("FILE --format=FORMAT [-o OUT [--force]] [--weight=WEIGHT] [--blocks=N] [--full-stacks] "
                     "[--step=NAME|TIME] [--from=WHEN] [--to=WHEN] [--symfs=DIR]",
                     "FILE|DIR --format=arrow (-o OUT | --table=TABLE [-o OUT]) [--job=NAME] [--force] [--from=WHEN] "
                     "[--to=WHEN] [--symfs=DIR]"),
    .about = GP_LIST(
        "Writes a recording in the format of another tool: pprof (gzipped) for go tool pprof, Pyroscope, "
        "Parca, Grafana and speedscope; chrome for Perfetto and chrome://tracing; collapsed for flame graph "
        "scripts and speedscope; csv and jsonl with one event per line; sqlite as a database; arrow as typed tables "
        "for ClickHouse, polars, pyarrow and "
        "others.",
        "A program that has exited holds almost nothing at the end of its recording, so its stacks are "
        "weighed at its peak unless '--weight' says otherwise. A pprof file has all weights; '--weight' "
        "chooses the one that is shown first. docs/export.md describes columns and sample types.",
        "With '--format=arrow' OUT is a folder, with a folder for each table in it. FILE may be the folder of a "
        "job's recordings, which are written several at a time. A second run goes on where the first one ended, "
        "and leaves alone what is newer than its recording."),
    .options = export_options,
    .operands = export_operands,
    .examples =
        GP_EXAMPLES({"gpuprof export train.gpuprof --format=pprof --weight=peak -o x.pb.gz; go tool pprof x.pb.gz",
                     "Show the memory at the peak in pprof."},
                    {"gpuprof export train.gpuprof --format=csv > events.csv", "Write the events as a table."},
                    {"gpuprof export job/ --format=arrow -o tables/", "Write the tables of all ranks of a job."}),
    GP_DEFAULTS(struct gp_export_options, .weight = -1, .blocks = -1, .table = -1),
    .surplus = "one recording at a time",
    .check = export_check,
    .run = export_command,
};
