/* SPDX-License-Identifier: MIT
 * generate.c: `gpuprof generate`: writes a trace like that of a known kind of program.  Called by main.c. */
#include <cmd/cmd.h>
#include <replay/generate.h>

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char generate_help[] =
    "usage: gpuprof generate NAME [--seed=N] [--scale=F] [-o FILE]\n"
    "       gpuprof generate --list\n"
    "\n"
    "Writes a trace of allocations for 'gpuprof replay': the same for the same name, seed and scale, on every "
    "machine.\n"
    "\n"
    "      --seed=N    chance begins here (default 1)\n"
    "      --scale=F   length of the story, from 0.01 to 100 (default 1); sizes stay what they are\n"
    "  -o, --output=FILE   (default: standard output)\n"
    "      --list      names, and what each is\n";

struct gp_generate_options {
    const char *name, *output;
    uint64_t seed;
    uint32_t scale_milli;
    bool list, help;
};

/* "1", "0.25", "2.5": digits with at most three behind the point; no locale's comma. */
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

static int generate_value(int code, const char *value, struct gp_generate_options *o)
{
    int64_t number;
    if (code == 'o') {
        o->output = value;
    } else if (code == 's') {
        if (gp_parse_number(value, 0, INT64_MAX, &number) != 0)
            return gp_usage_error("generate", "--seed=%s: not a number from 0 on", value);
        o->seed = (uint64_t)number;
    } else if (generate_scale(value, &o->scale_milli) != 0) {
        return gp_usage_error("generate",
                              "--scale=%s: not a number from 0.01 to 100 with at most three digits behind "
                              "the point",
                              value);
    }
    return GP_EXIT_OK;
}

static int generate_parse(int argc, char **argv, struct gp_generate_options *o)
{
    static const struct option options[] = {
        {"seed", required_argument, NULL, 's'},   {"scale", required_argument, NULL, 'f'},
        {"output", required_argument, NULL, 'o'}, {"list", no_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};
    int c, rc = GP_EXIT_OK;
    optind = 0;
    opterr = 0;
    while (!rc && (c = getopt_long(argc, argv, ":o:h", options, NULL)) != -1) {
        if (c == 'h' || c == 'l') {
            o->help |= c == 'h';
            o->list |= c == 'l';
        } else if (c == '?' || c == ':') {
            return gp_option_error("generate", c, argv, optind, optopt);
        } else {
            rc = generate_value(c, optarg, o);
        }
    }
    o->name = optind < argc ? argv[optind++] : NULL;
    if (!rc && optind < argc)
        return gp_usage_error("generate", "%s: one name at a time", argv[optind]);
    return rc;
}

static int generate_unknown(const char *name)
{
    const char *names[32];
    size_t count = 0;
    for (; count < GP_COUNT(names) && gp_generator_at((unsigned)count); count++)
        names[count] = gp_generator_at((unsigned)count)->name;
    const char *nearest = name ? gp_nearest(name, names, count) : NULL;
    if (!name)
        return gp_usage_error("generate", "no name given: 'gpuprof generate --list' has them");
    if (nearest)
        return gp_usage_error("generate", "%s: no such trace: did you mean '%s'?", name, nearest);
    return gp_usage_error("generate", "%s: no such trace: 'gpuprof generate --list' has them", name);
}

static int generate_write(const struct gp_generate_options *o, const struct gp_replay_trace *trace)
{
    FILE *out = o->output ? fopen(o->output, "we") : stdout;
    if (!out) {
        gp_error("generate", "%s: %s", o->output, strerror(errno));
        return GP_EXIT_FAILED;
    }
    int rc = gp_replay_write(out, trace);
    if (o->output && fclose(out) != 0 && !rc)
        rc = -errno;
    if (rc) {
        gp_error("generate", "%s: cannot be written: %s", o->output ? o->output : "stdout", strerror(-rc));
        return GP_EXIT_FAILED;
    }
    return GP_EXIT_OK;
}

int gp_cmd_generate(int argc, char **argv)
{
    struct gp_generate_options o = {.seed = 1, .scale_milli = 1000};
    struct gp_replay_trace trace;
    struct gp_replay_problem problem;
    int rc = generate_parse(argc, argv, &o);
    if (rc)
        return rc;
    if (o.help) {
        fputs(generate_help, stdout);
        return GP_EXIT_OK;
    }
    for (unsigned i = 0; o.list && gp_generator_at(i); i++)
        printf("%-13s %s\n", gp_generator_at(i)->name, gp_generator_at(i)->summary);
    if (o.list)
        return GP_EXIT_OK;
    const struct gp_generator *generator = o.name ? gp_generator_find(o.name) : NULL;
    if (!generator)
        return generate_unknown(o.name);
    if (gp_generate(&trace, generator, o.seed, o.scale_milli, &problem) != 0) {
        gp_error("generate", "%s: %s: a smaller --scale helps", o.name, problem.text);
        return GP_EXIT_FAILED;
    }
    rc = generate_write(&o, &trace);
    gp_replay_trace_free(&trace);
    return rc;
}
