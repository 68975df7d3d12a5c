/* SPDX-License-Identifier: MIT
 *
 * messages.c: prints the errors of all commands on stderr, so that they look the same; see messages.h.
 */
#include <base/text.h>
#include <common/messages.h>

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* A message may name a file, a library or a thread of another process: none of its bytes may act on
 * the terminal. */
static void message(const char *command, const char *format, va_list args)
{
    char raw[1024], text[1024];
    vsnprintf(raw, sizeof(raw), format, args);
    gp_text_clean(text, sizeof(text), raw, sizeof(raw));
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

int gp_write_error(const char *command, const char *path, int error)
{
    bool standard = !path || strcmp(path, "-") == 0;
    if (!standard || error != EPIPE)
        gp_error(command, "%s: cannot be written: %s", standard ? "stdout" : path, strerror(error));
    return GP_EXIT_FAILED;
}

/* Levenshtein over words of at most 47 letters. */
static int edit_distance(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);
    int row[49];
    if (na > 47 || nb > 47)
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
    int best = 3; /* two wrong letters; with more it is another word */
    for (size_t i = 0; i < count; i++) {
        int distance = edit_distance(word, names[i]);
        if (distance < best && distance < (int)strlen(names[i])) {
            best = distance;
            nearest = names[i];
        }
    }
    return nearest;
}

int gp_memory_error(const char *command)
{
    gp_error(command, "out of memory");
    return GP_EXIT_FAILED;
}
