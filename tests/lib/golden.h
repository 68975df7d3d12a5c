/* SPDX-License-Identifier: MIT
 *
 * golden.h: the one comparison with a file of tests/golden.  GP_GOLDEN_UPDATE=1 writes the file instead; read the
 * difference before you commit it.
 */
#ifndef GP_TEST_LIB_GOLDEN_H
#define GP_TEST_LIB_GOLDEN_H

#include <criterion/criterion.h>
#include <lib/paths.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The file's text, which the caller frees. */
static inline char *golden_read(const char *name)
{
    char *text = NULL;
    size_t room = 0;
    FILE *file = fopen(path_source(name), "re");
    cr_assert(file, "%s is missing: GP_GOLDEN_UPDATE=1 writes it", name);
    cr_assert_gt(getdelim(&text, &room, '\0', file), 0);
    fclose(file);
    return text;
}

/* Prints the first line that differs, or all of TEXT. */
static inline void golden_expect(const char *name, const char *text, bool all)
{
    if (getenv("GP_GOLDEN_UPDATE")) {
        FILE *file = fopen(path_source(name), "we");
        cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0, "%s", name);
        return;
    }
    char *wanted = golden_read(name);
    size_t at = 0, start = 0, line = 1;
    for (; text[at] && text[at] == wanted[at]; at++)
        if (text[at] == '\n')
            start = at + 1, line++;
    const char *now = all ? text : text + start, *was = wanted + start;
    cr_expect(text[at] == wanted[at], "%s, line %zu was \"%.*s\", now:\n%.*s", name, line, (int)strcspn(was, "\n"), was,
              all ? (int)strlen(now) : (int)strcspn(now, "\n"), now);
    free(wanted);
}

#endif
