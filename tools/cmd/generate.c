/* SPDX-License-Identifier: MIT
 * generate.c: `gpuprof generate`: writes an allocation trace of a typical program.  Called by
 * commands.c. */
#include <cmd/cmd.h>
#include <convert/replay/replay.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct gp_generate_options {
    const char *name, *output;
    int64_t seed;
    uint32_t scale_milli;
    bool list, force;
};

/* Parses "1", "0.25", "2.5": at most three digits after the point, which no locale turns into a
 * comma.  0 or -errno. */
static int generate_scale(const char *text, uint32_t *milli)
{
    char whole[24];
    const char *point = strchr(text, '.');
    int64_t number = 0;
    size_t digits = point ? (size_t)(point - text) : strlen(text);
    uint32_t part = 0;
    if (digits == 0 || digits >= sizeof(whole))
        return -EINVAL;
    memcpy(whole, text, digits);
    whole[digits] = '\0';
    if (gp_parse_number(whole, 0, 100, &number) != 0)
        return -EINVAL;
    for (uint32_t i = 1, unit = 100; point && point[i]; i++, unit /= 10) {
        if (point[i] < '0' || point[i] > '9' || unit == 0)
            return -EINVAL;
        part += (uint32_t)(point[i] - '0') * unit;
    }
    *milli = (uint32_t)number * 1000 + part;
    return *milli >= 10 && *milli <= 100000 ? 0 : -ERANGE;
}

static int generate_scale_option(void *options, const struct gp_command_option *option, const char *text)
{
    struct gp_generate_options *o = options;
    (void)option;
    if (generate_scale(text, &o->scale_milli) == 0)
        return GP_EXIT_OK;
    return gp_usage_error("generate",
                          "--scale=%s: not a number from 0.01 to 100 with at most three digits after the point", text);
}

static const char *generate_name(unsigned i)
{
    const struct gp_generator *generator = gp_generate_at(i);
    return generator ? generator->name : NULL;
}

static int generate_check(void *options)
{
    const struct gp_generate_options *o = options;
    if (o->name || o->list)
        return GP_EXIT_OK;
    return gp_usage_error("generate", "no name given: 'gpuprof generate --list' prints the names");
}

static int generate_text(FILE *out, const void *trace)
{
    return gp_replay_write(out, trace);
}

static int generate_run(void *options)
{
    const struct gp_generate_options *o = options;
    struct gp_replay_trace trace;
    struct gp_replay_problem problem;
    for (unsigned i = 0; o->list && gp_generate_at(i); i++)
        printf("%-13s %s\n", gp_generate_at(i)->name, gp_generate_at(i)->summary);
    if (o->list)
        return GP_EXIT_OK;
    if (gp_output_check("generate", "-o ", o->output, o->force))
        return GP_EXIT_FAILED;
    if (gp_generate(&trace, gp_generate_find(o->name), (uint64_t)o->seed, o->scale_milli, &problem) != 0) {
        gp_error("generate", "%s: %s: try a smaller --scale", o->name, problem.text);
        return GP_EXIT_FAILED;
    }
    int rc = gp_output_write(o->output, generate_text, &trace);
    gp_replay_trace_free(&trace);
    return rc ? gp_write_error("generate", o->output, -rc) : GP_EXIT_OK;
}

static const struct gp_command_option generate_options[] = {
    GP_OPTION(struct gp_generate_options, seed, 0, "seed", "N", GP_ARG_NUMBER,
              "seed of the random numbers (default 1)"),
    {.name = "scale",
     .argument = "F",
     .type = GP_ARG_TEXT,
     .parse = generate_scale_option,
     .help = "length of the trace, from 0.01 to 100 (default 1); the sizes of blocks stay the same"},
    GP_OPTION(struct gp_generate_options, output, 'o', "output", "FILE", GP_ARG_FILE,
              "the file to write (default: standard output)"),
    GP_OPTION_FORCE(struct gp_generate_options),
    GP_FLAG(struct gp_generate_options, list, 0, "list", "list the traces with a description of each"),
    {0}};

static const struct gp_command_option generate_operands[] = {
    GP_OPERAND(struct gp_generate_options, name, "NAME", GP_ARG_CHOICE, "the trace", .choice = generate_name), {0}};

const struct gp_command_spec gp_command_generate = {
    .name = "generate",
    .summary = "write an allocation trace of a typical program",
    .group = GP_GROUP_EXPORT,
    .usage = GP_LIST("NAME [--seed=N] [--scale=F] [-o FILE [--force]]", "--list"),
    .about = GP_LIST("Writes a trace of allocations for 'gpuprof replay'. The same name, seed and scale give the same "
                     "trace on every machine. docs/traces.md describes the format."),
    .options = generate_options,
    .operands = generate_operands,
    .examples = GP_EXAMPLES({"gpuprof generate --list", "List the traces."},
                            {"gpuprof generate gmlake --scale=0.1 -o gmlake.trace", "Write a short trace to a file."}),
    GP_DEFAULTS(struct gp_generate_options, .seed = 1, .scale_milli = 1000),
    .surplus = "one name at a time",
    .check = generate_check,
    .run = generate_run,
};
