/* SPDX-License-Identifier: MIT
 *
 * option.c: the parser of all commands: reads a command line as the command's tables describe it;
 * see cmd.h.  Called by commands.c.
 */
#include <cmd/cmd.h>

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Options of one command; the largest table has 13. */
#define GP_OPTION_MOST 24
/* Values of getopt_long for long options start above all letters. */
#define GP_OPTION_LONG 256

const char *gp_option_choice(const struct gp_command_option *option, unsigned i)
{
    if (option->choice)
        return option->choice(i);
    for (unsigned k = 0; option->words && option->words[k]; k++) {
        if (k == i)
            return option->words[k];
    }
    return NULL;
}

void gp_option_choices(char *text, size_t text_bytes, const struct gp_command_option *option)
{
    const char *word;
    text[0] = '\0';
    for (unsigned i = 0; (word = gp_option_choice(option, i)); i++) {
        size_t used = strlen(text);
        const char *comma = !i ? "" : gp_option_choice(option, i + 1) ? ", " : " or ";
        snprintf(text + used, text_bytes - used, "%s%s", comma, word);
    }
}

/* How messages name the argument: "--device=x", or the operand itself. */
static const char *option_written(char *written, size_t bytes, const struct gp_command_option *option, const char *text)
{
    bool operand = gp_option_is_operand(option);
    snprintf(written, bytes, operand ? "%s%s" : "--%s=%s", operand ? "" : option->name, text);
    return written;
}

/* The index of the choice with this name; -1 after a message. */
static int option_choose(const struct gp_command_spec *spec, const struct gp_command_option *option, const char *text)
{
    const char *names[64], *word;
    char written[256], choices[512];
    unsigned count = 0;
    for (; count < GP_COUNT(names) && (word = gp_option_choice(option, count)); count++) {
        if ((option->any_case ? strcasecmp : strcmp)(word, text) == 0)
            return (int)count;
        names[count] = word;
    }
    if (option->meant && (word = option->meant(text)))
        return option_choose(spec, option, word);
    const char *nearest = gp_nearest(text, names, count);
    gp_option_choices(choices, sizeof(choices), option);
    gp_usage_error(spec->name, "%s: must be %s%s%s%s", option_written(written, sizeof(written), option, text), choices,
                   nearest ? ": did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    return -1;
}

static int option_list(const struct gp_command_spec *spec, const struct gp_command_option *option, const char *text,
                       uint32_t *bits)
{
    char *copy = strdup(text), *state = copy, *word;
    int rc = copy ? GP_EXIT_OK : GP_EXIT_FAILED;
    while (!rc && (word = strsep(&state, ","))) {
        int number = option->blanks && !*word ? -2 : option_choose(spec, option, word);
        if (number == -1)
            rc = GP_EXIT_USAGE;
        else if (number >= 0)
            *bits |= 1u << number;
    }
    free(copy);
    return rc;
}

/* 4096 as "4KiB". */
static const char *option_size(char text[24], int64_t bytes)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    unsigned unit = 0;
    for (; bytes && bytes % 1024 == 0 && unit < GP_COUNT(units) - 1; unit++)
        bytes /= 1024;
    snprintf(text, 24, "%lld%s", (long long)bytes, units[unit]);
    return text;
}

static int option_number(const struct gp_command_spec *spec, const struct gp_command_option *option, const char *text,
                         void *into)
{
    char written[256], low[24], high[24], why[GP_TEXT_WHY];
    int64_t value = 0, most = option->high ? option->high : INT64_MAX;
    bool size = option->type == GP_ARG_SIZE;
    int rc = size ? gp_text_size_parse(text, &value) : gp_parse_number(text, option->low, most, &value);
    if (rc == -EDOM && option->small)
        rc = 0;
    if (!rc && value >= option->low && value <= most) {
        if (option->bytes == sizeof(uint32_t))
            *(uint32_t *)into = (uint32_t)value;
        else
            *(int64_t *)into = value;
        return GP_EXIT_OK;
    }
    option_written(written, sizeof(written), option, text);
    if (size && option->high)
        return gp_usage_error(spec->name, "%s: not a size from %s to %s", written, option_size(low, option->low),
                              option_size(high, option->high));
    if (size)
        return gp_usage_error(spec->name, "%s: %s", written, rc ? gp_text_size_why(why, text) : "out of range");
    if (option->high)
        return gp_usage_error(spec->name, "%s: not a whole number from %lld to %lld", written, (long long)option->low,
                              (long long)option->high);
    return gp_usage_error(spec->name, "%s: not a whole number from %lld", written, (long long)option->low);
}

static int option_share(const struct gp_command_spec *spec, const struct gp_command_option *option, const char *text,
                        struct gp_share *share)
{
    char written[256], why[GP_TEXT_WHY];
    *share = (struct gp_share){.given = true, .bytes = -1};
    int rc = gp_text_percent_parse(text, &share->percent);
    if (rc == -ERANGE)
        return gp_usage_error(spec->name, "%s: not a percentage from above 0 to 100",
                              option_written(written, sizeof(written), option, text));
    if (rc && gp_text_size_parse(text, &share->bytes) != 0)
        return gp_usage_error(spec->name, "%s: %s", option_written(written, sizeof(written), option, text),
                              gp_text_size_why(why, text));
    return GP_EXIT_OK;
}

static int option_store(const struct gp_command_spec *spec, const struct gp_command_option *option, void *options,
                        const char *text)
{
    void *into = (char *)options + option->offset;
    int number;
    if (option->parse)
        return option->parse(options, option, text);
    switch (option->type) {
    case GP_ARG_FLAG:
        *(bool *)into = true;
        return GP_EXIT_OK;
    case GP_ARG_NUMBER:
    case GP_ARG_SIZE:
        return option_number(spec, option, text, into);
    case GP_ARG_SHARE:
        return option_share(spec, option, text, into);
    case GP_ARG_CHOICE:
        number = option_choose(spec, option, text);
        if (number >= 0)
            *(const char **)into = gp_option_choice(option, (unsigned)number);
        return number >= 0 ? GP_EXIT_OK : GP_EXIT_USAGE;
    case GP_ARG_INDEX:
        number = option_choose(spec, option, text);
        if (number >= 0)
            *(int *)into = number;
        return number >= 0 ? GP_EXIT_OK : GP_EXIT_USAGE;
    case GP_ARG_LIST:
        return option_list(spec, option, text, into);
    case GP_ARG_PIDS:
    case GP_ARG_PID:
        return gp_target_pids(into, text);
    case GP_ARG_DEVICE:
        return gp_target_device(into, text);
    default:
        *(const char **)into = text ? text : "";
        return GP_EXIT_OK;
    }
}

/* Reports the option that getopt_long has refused with the code '?' or ':'. */
static int option_refused(const struct gp_command_spec *spec, int code, char **argv)
{
    const char *word = optind > 0 ? argv[optind - 1] : "";
    if (code == ':')
        return gp_usage_error(spec->name, "%s: the option needs a value", word);
    /* getopt leaves optopt 0 for an unknown long option, and the option's value for a long one
     * with a stray "=x". */
    if (optopt && strncmp(word, "--", 2) == 0)
        return gp_usage_error(spec->name, "%s: the option takes no value", word);
    if (optopt)
        return gp_usage_error(spec->name, "-%c: unknown option", optopt);
    const char *names[GP_OPTION_MOST];
    size_t count = 0;
    for (const struct gp_command_option *option = spec->options; option && option->name && count < GP_OPTION_MOST;
         option++)
        names[count++] = option->name;
    char name[64];
    const char *given = word + strspn(word, "-");
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(given, "="), given);
    const char *nearest = gp_nearest(name, names, count);
    return gp_usage_error(spec->name, "%s: unknown or ambiguous option%s%s%s", word, nearest ? ": did you mean --" : "",
                          nearest ? nearest : "", nearest ? "?" : "");
}

/* Builds the tables of getopt_long.  By default it accepts options behind operands; a "+" in
 * front of the letters ends the options at the first operand. */
static void option_tables(const struct gp_command_spec *spec, struct option longs[GP_OPTION_MOST + 2],
                          char letters[3 * GP_OPTION_MOST + 4])
{
    char *at = letters;
    int count = 0;
    if (spec->operand_ends)
        *at++ = '+';
    *at++ = ':';
    *at++ = 'h';
    longs[count++] = (struct option){"help", no_argument, NULL, 'h'};
    for (int i = 0; spec->options && spec->options[i].name && i < GP_OPTION_MOST; i++) {
        const struct gp_command_option *option = &spec->options[i];
        int argument = !option->argument ? no_argument : option->optional ? optional_argument : required_argument;
        longs[count++] = (struct option){option->name, argument, NULL, GP_OPTION_LONG + i};
        if (!option->letter)
            continue;
        *at++ = option->letter;
        if (option->argument)
            *at++ = ':';
    }
    longs[count] = (struct option){NULL, 0, NULL, 0};
    *at = '\0';
}

static const struct gp_command_option *option_of(const struct gp_command_spec *spec, int code)
{
    if (code >= GP_OPTION_LONG)
        return &spec->options[code - GP_OPTION_LONG];
    for (const struct gp_command_option *option = spec->options; option->name; option++) {
        if (option->letter == code)
            return option;
    }
    return NULL;
}

static int option_operands(const struct gp_command_spec *spec, int argc, char **argv, void *options)
{
    const struct gp_command_option *operand = spec->operands;
    int rc = GP_EXIT_OK;
    for (; !rc && optind < argc; optind++, operand++) {
        if (!operand || !operand->name)
            return gp_usage_error(spec->name, "%s: unexpected argument%s%s%s", argv[optind], spec->surplus ? " (" : "",
                                  spec->surplus ? spec->surplus : "", spec->surplus ? ")" : "");
        if (operand->type == GP_ARG_PROGRAM || operand->type == GP_ARG_RECORDINGS) {
            *(char ***)(void *)((char *)options + operand->offset) =
                operand->type == GP_ARG_PROGRAM ? gp_launch_argv(argv + optind) : argv + optind;
            return rc;
        }
        rc = option_store(spec, operand, options, argv[optind]);
    }
    return rc;
}

int gp_command_parse(const struct gp_command_spec *spec, int argc, char **argv, void *options, bool *help)
{
    struct option longs[GP_OPTION_MOST + 2];
    char letters[3 * GP_OPTION_MOST + 4];
    int code, rc = GP_EXIT_OK;
    option_tables(spec, longs, letters);
    memcpy(options, spec->defaults, spec->bytes);
    *help = false;
    optind = 0; /* getopt_long starts again */
    opterr = 0;
    while (!rc && (code = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
        if (code == 'h')
            *help = true;
        if (*help)
            return GP_EXIT_OK;
        rc = code == '?' || code == ':' ? option_refused(spec, code, argv)
                                        : option_store(spec, option_of(spec, code), options, optarg);
    }
    if (!rc)
        rc = option_operands(spec, argc, argv, options);
    for (const struct gp_command_option *option = spec->options; !rc && option && option->name; option++) {
        const struct gp_target *target = (const void *)((const char *)options + option->offset);
        if (option->type == GP_ARG_PID && target->pid_count > 1)
            rc = gp_usage_error(spec->name, "-p: one process at a time");
    }
    return rc || !spec->check ? rc : spec->check(options);
}

static void options_free(const struct gp_command_option *table, void *options)
{
    for (const struct gp_command_option *option = table; option && option->name; option++) {
        if (option->type == GP_ARG_PIDS || option->type == GP_ARG_PID)
            gp_target_free((void *)((char *)options + option->offset));
    }
}

void gp_options_free(const struct gp_command_spec *spec, void *options)
{
    options_free(spec->options, options);
    options_free(spec->operands, options);
}
