/* SPDX-License-Identifier: MIT
 *
 * messages.c: everything that the sub-commands say on stderr goes through here, so that it looks the same.
 */
#include <cmd/cmd.h>

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void message(const char *command, const char *format, va_list args)
{
    char text[1024];
    vsnprintf(text, sizeof(text), format, args);
    fflush(stdout);
    if (command)
        fprintf(stderr, "gpuprof: %s: %s\n", command, text);
    else
        fprintf(stderr, "gpuprof: %s\n", text);
}

void gp_error(const char *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    message(command, format, args);
    va_end(args);
}

int gp_usage_error(const char *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    message(command, format, args);
    va_end(args);
    if (command)
        fprintf(stderr, "Try 'gpuprof %s --help'.\n", command);
    else
        fprintf(stderr, "Try 'gpuprof --help'.\n");
    return GP_EXIT_USAGE;
}

int gp_option_error(const char *command, int code, char **argv, int option_index, int option_char)
{
    const char *word = option_index > 0 ? argv[option_index - 1] : "";
    if (code == ':')
        return gp_usage_error(command, "%s: the option needs a value", word);
    /* getopt leaves optopt 0 for an unknown long option, and the option's value for a long one with a stray "=x". */
    if (option_char && strncmp(word, "--", 2) == 0)
        return gp_usage_error(command, "%s: the option takes no value", word);
    if (option_char)
        return gp_usage_error(command, "-%c: unknown option", option_char);
    return gp_usage_error(command, "%s: unknown or ambiguous option", word);
}

/* Levenshtein over words of at most 31 letters. */
static int edit_distance(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);
    int row[33];
    if (na > 31 || nb > 31)
        return 99;
    for (size_t j = 0; j <= nb; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[nb];
}

const char *gp_nearest(const char *word, const char *const *names, size_t count)
{
    const char *nearest = NULL;
    int best = 3; /* two slips of a finger; more is another word */
    for (size_t i = 0; i < count; i++) {
        int distance = edit_distance(word, names[i]);
        if (distance < best && distance < (int)strlen(names[i])) {
            best = distance;
            nearest = names[i];
        }
    }
    return nearest;
}
