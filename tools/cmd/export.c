/* SPDX-License-Identifier: MIT
 * export.c: `gpuprof export`: a recording in the format of another tool.  Called by main.c; the formats are in
 * tools/export. */
#include <cmd/load.h>
#include <cmd/progress.h>
#include <export/formats.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char export_help[] =
    "usage: gpuprof export FILE --format=FORMAT [-o OUT] [--weight=WEIGHT] [--blocks=N]\n"
    "\n"
    "Writes a recording in the format of another tool.\n"
    "\n"
    "      --format=FORMAT   pprof      go tool pprof, Pyroscope, Parca, Grafana, speedscope (gzipped)\n"
    "                        chrome     Perfetto, chrome://tracing\n"
    "                        collapsed  flame graph scripts, speedscope\n"
    "                        csv, jsonl one line an event\n"
    "                        sqlite     a database\n"
    "  -o, --output=OUT      (default and '-': standard output; sqlite needs a file)\n"
    "      --weight=WEIGHT   what stacks are weighed by: live at the end (default; where a program has ended that\n"
    "                        is mostly nothing), at the peak, allocated in all, leaked (what 'gpuprof leaks'\n"
    "                        suspects).  pprof has all of them, this one first shown\n"
    "      --blocks=N        chrome: draw the lifetimes of the N largest blocks (default 20000)\n"
    "\n"
    "docs/export.md says what each column and sample type means.\n";

struct gp_export_options {
    const char *file, *output;
    const struct gp_export_format *format;
    enum gp_export_weight weight;
    bool weighed, bounded, help;
    int64_t blocks;
};

static int export_format_option(struct gp_export_options *o, const char *value)
{
    const char *names[16], *nearest;
    unsigned count = 0;
    o->format = gp_export_format_find(value);
    if (o->format)
        return GP_EXIT_OK;
    for (; count < GP_COUNT(names) && gp_export_format_at(count); count++)
        names[count] = gp_export_format_at(count)->name;
    nearest = gp_nearest(value, names, count);
    if (nearest)
        return gp_usage_error("export", "--format=%s: no such format: did you mean '%s'?", value, nearest);
    return gp_usage_error("export", "--format=%s: one of pprof, chrome, collapsed, csv, jsonl, sqlite", value);
}

static int export_weight_option(struct gp_export_options *o, const char *value)
{
    o->weighed = true;
    for (unsigned i = 0; gp_export_weight_name(i); i++) {
        if (strcmp(gp_export_weight_name(i), value) == 0) {
            o->weight = (enum gp_export_weight)i;
            return GP_EXIT_OK;
        }
    }
    return gp_usage_error("export", "--weight=%s: one of live, peak, allocated, leaked", value);
}

static int export_option(int code, const char *value, struct gp_export_options *o)
{
    switch (code) {
    case 'o':
        o->output = value;
        return GP_EXIT_OK;
    case 'f':
        return export_format_option(o, value);
    case 'w':
        return export_weight_option(o, value);
    case 'b':
        o->bounded = true;
        if (gp_parse_number(value, 0, 10000000, &o->blocks) != 0)
            return gp_usage_error("export", "--blocks=%s: a number from 0 to 10000000", value);
        return GP_EXIT_OK;
    default:
        o->help = true;
        return GP_EXIT_OK;
    }
}

/* What does not go together is said before anything is read. */
static int export_check(const struct gp_export_options *o)
{
    if (!o->file)
        return gp_usage_error("export",
                              "no recording given: 'gpuprof record' or 'gpuprof run --record=FILE' makes one");
    if (!o->format)
        return gp_usage_error("export", "--format is needed: pprof, chrome, collapsed, csv, jsonl or sqlite");
    if (o->weighed && !o->format->weighed)
        return gp_usage_error("export", "--weight: a %s has no stacks to weigh: pprof and collapsed have",
                              o->format->name);
    if (o->bounded && o->format->write != gp_export_chrome)
        return gp_usage_error("export", "--blocks: of --format=chrome alone");
    if (o->format->create && !o->output)
        return gp_usage_error("export", "%s: it is a file of many pages, not a stream: name it with -o",
                              o->format->name);
    if (o->format->binary && !o->output && isatty(STDOUT_FILENO))
        return gp_usage_error("export", "%s: not to a terminal, it is no text: name a file with -o", o->format->name);
    return GP_EXIT_OK;
}

static int export_parse(int argc, char **argv, struct gp_export_options *o)
{
    static const struct option options[] = {
        {"format", required_argument, NULL, 'f'}, {"output", required_argument, NULL, 'o'},
        {"weight", required_argument, NULL, 'w'}, {"blocks", required_argument, NULL, 'b'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};
    int c, rc = GP_EXIT_OK;
    optind = 0;
    opterr = 0;
    while (!rc && (c = getopt_long(argc, argv, ":o:f:h", options, NULL)) != -1) {
        if (c == '?' || c == ':')
            return gp_option_error("export", c, argv, optind, optopt);
        rc = export_option(c, optarg, o);
    }
    o->file = optind < argc ? argv[optind++] : NULL;
    if (!rc && optind < argc)
        return gp_usage_error("export", "%s: one recording at a time", argv[optind]);
    if (o->output && strcmp(o->output, "-") == 0)
        o->output = NULL;
    return rc || o->help ? rc : export_check(o);
}

/* ---- the file that comes out ------------------------------------------------------------------------------------- */

/* Half an export must not look like a whole one: a regular file is written aside and gets its name at the end.  What is
 * no regular file (a pipe, /dev/null) is written as it is. */
struct gp_export_target {
    const char *path;
    char aside[4096]; /* "": none */
    int fd;
};

static int export_open(struct gp_export_target *target, const struct gp_export_options *o)
{
    struct stat st;
    bool there = o->output && lstat(o->output, &st) == 0;
    target->path = o->output;
    target->aside[0] = '\0';
    target->fd = STDOUT_FILENO;
    if (!o->output)
        return 0;
    if (there && !S_ISREG(st.st_mode)) {
        if (o->format->create)
            return -EEXIST; /* a database needs a file */
        target->fd = open(o->output, O_WRONLY | O_TRUNC | O_CLOEXEC);
        return target->fd < 0 ? -errno : 0;
    }
    int length = snprintf(target->aside, sizeof(target->aside), "%s.%d.part", o->output, (int)getpid());
    if (length < 0 || (size_t)length >= sizeof(target->aside)) {
        target->aside[0] = '\0';
        return -ENAMETOOLONG;
    }
    /* O_EXCL: in a folder that others may write, nobody's file or link is taken for ours. */
    target->fd = open(target->aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (target->fd < 0) {
        target->aside[0] = '\0';
        return -errno;
    }
    return 0;
}

static int export_close(struct gp_export_target *target, int rc)
{
    if (target->fd >= 0 && target->fd != STDOUT_FILENO && close(target->fd) != 0 && !rc)
        rc = -errno;
    if (target->aside[0] && !rc && rename(target->aside, target->path) != 0)
        rc = -errno;
    if (target->aside[0] && rc)
        unlink(target->aside);
    return rc;
}

static int export_write(struct gp_export *export, const struct gp_export_options *o,
                        const struct gp_export_target *target)
{
    static struct gp_out out;
    if (o->format->create)
        return o->format->create(export, target->aside);
    gp_out_begin(&out, target->fd);
    int rc = o->format->write(export, &out);
    int end = gp_out_end(&out);
    return rc ? rc : end;
}

/* ---- what a person must know ------------------------------------------------------------------------------------- */

static void export_warn(const struct gp_export_options *o, const struct gp_recording *recording)
{
    if (recording->dropped || recording->damaged_blocks)
        gp_error("export",
                 "%s: %" PRIu64 " of %" PRIu64 " events were lost while it was recorded, and %" PRIu64
                 " blocks of it are damaged: sums of events are lower bounds",
                 o->file, recording->dropped, recording->tried, recording->damaged_blocks);
    if (!recording->complete)
        gp_error("export", "%s: it was cut off: it ends where its writer was stopped", o->file);
}

static int export_run(struct gp_export *export, const struct gp_export_options *o)
{
    struct gp_export_target target;
    int rc = export_open(&target, o);
    if (rc == -EEXIST && !target.aside[0] && o->format->create) {
        gp_error("export", "%s: it is no regular file: a database needs one", o->output);
        return GP_EXIT_FAILED;
    }
    if (!rc) {
        gp_progress_begin("writing");
        rc = export_close(&target, export_write(export, o, &target));
        gp_progress_end();
    }
    if (rc)
        gp_error("export", "%s: cannot be written: %s", o->output ? o->output : "stdout",
                 rc == -EPROTO && export->why[0] ? export->why : strerror(-rc));
    return rc ? GP_EXIT_FAILED : GP_EXIT_OK;
}

static int export_read(const struct gp_export_options *o, struct gp_recording **recording)
{
    char why[256] = "";
    gp_progress_begin("reading");
    int rc = gp_recording_open(recording, o->file, why, sizeof(why), gp_progress_listener, NULL);
    gp_progress_end();
    return rc ? gp_load_refused("export", o->file, rc, why) : GP_EXIT_OK;
}

int gp_cmd_export(int argc, char **argv)
{
    struct gp_export_options o = {.blocks = GP_EXPORT_BLOCKS};
    struct gp_recording *recording = NULL;
    int rc = export_parse(argc, argv, &o);
    if (rc)
        return rc;
    if (o.help) {
        fputs(export_help, stdout);
        return GP_EXIT_OK;
    }
    rc = gp_load_overwrites("export", o.output) ? GP_EXIT_FAILED : export_read(&o, &recording);
    if (rc)
        return rc;
    struct gp_export export = {.recording = recording,
                               .weight = o.weight,
                               .block_limit = (uint32_t)o.blocks,
                               .progress = gp_progress_listener};
    struct gp_symbol_source source = {
        recording->sites,      recording->frames,      recording->modules,      recording->strings,
        recording->site_count, recording->frame_count, recording->module_count, ""};
    if (gp_symbols_new(&export.symbols, &source) != 0) {
        gp_error("export", "out of memory");
        rc = GP_EXIT_FAILED;
    } else {
        export_warn(&o, recording);
        rc = export_run(&export, &o);
    }
    gp_symbols_free(export.symbols);
    gp_recording_free(recording);
    return rc;
}
