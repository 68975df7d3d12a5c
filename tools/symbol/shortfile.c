/* SPDX-License-Identifier: MIT
 *
 * shortfile.c: how much of a file's path a reader needs: its base name, or as many folders before
 * it as tell it from the other files of the stacks; see place.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symbol/internal.h>
#include <symbol/place.h>

struct gp_short_file {
    const char *file, *short_file;
};

/* The bytes that two paths have in common at their ends. */
static size_t short_common(const char *a, const char *b, size_t *left, size_t *right)
{
    size_t common = 0;
    *left = strlen(a), *right = strlen(b);
    while (*left && *right && a[*left - 1] == b[*right - 1])
        --*left, --*right, common++;
    return common;
}

static int short_by_end(const void *one, const void *other)
{
    const struct gp_short_file *a = one, *b = other;
    size_t left, right;
    short_common(a->file, b->file, &left, &right);
    if (!left || !right)
        return (left > 0) - (right > 0);
    return (unsigned char)a->file[left - 1] < (unsigned char)b->file[right - 1] ? -1 : 1;
}

static int short_by_file(const void *one, const void *other)
{
    const struct gp_short_file *a = one, *b = other;
    return (uintptr_t)a->file < (uintptr_t)b->file ? -1 : (uintptr_t)a->file > (uintptr_t)b->file;
}

/* A backslash is Windows' slash: snapshots of PyTorch are read wherever they were made. */
static bool short_starts(const char *file, size_t at)
{
    return at == 0 || file[at - 1] == '/' || file[at - 1] == '\\';
}

/* The bytes of the whole components that two paths share at their ends. */
static size_t short_shared(const char *file, const char *other)
{
    size_t left, right, common = short_common(file, other, &left, &right);
    for (; common && !(short_starts(file, left) && short_starts(other, right)); common--)
        left++, right++;
    return common;
}

/* Paths with a common end are neighbours, so two of them are enough to compare with. */
static const char *short_of(const char *file, const char *before, const char *after)
{
    size_t one = before ? short_shared(file, before) : 0, other = after ? short_shared(file, after) : 0;
    size_t shared = one > other ? one : other, at = strlen(file) - shared;
    at -= shared && at; /* the slash */
    while (!short_starts(file, at))
        at--;
    return file + at;
}

/* What a user of a notebook calls the file of a cell; NULL: it is none. IPython counts its
 * cells, ipykernel names them by a hash of their text, which it shows in tracebacks. */
static const char *short_cell(struct gp_symbols *symbols, const char *file)
{
    static const char input[] = "<ipython-input-", kernel[] = "/ipykernel_";
    char text[48];
    const char *at = strstr(file, kernel);
    if (strncmp(file, input, sizeof(input) - 1) == 0)
        at = file + sizeof(input) - 1;
    else if (at)
        at = strchr(at + 1, '/') ? strchr(at + 1, '/') + 1 : NULL;
    size_t digits = at ? strspn(at, "0123456789") : 0;
    if (!digits || digits > 20 || (at[digits] != '-' && strcmp(at + digits, ".py") != 0))
        return NULL;
    snprintf(text, sizeof(text), "%s %.*s", at[digits] == '-' ? "cell" : "notebook cell", (int)digits, at);
    return gp_intern(&symbols->intern, text);
}

/* Collects each file once, by the address of its interned name. */
static struct gp_short_file *short_collect(const struct gp_symbols *symbols, const uint32_t *sites, uint32_t count,
                                           uint32_t *used)
{
    struct gp_short_file *files = NULL, *more;
    struct gp_hash known = {0};
    uint32_t room = 0, number;
    for (uint32_t i = 0; i < count; i++) {
        const struct gp_symbol_site *site = &symbols->sites[sites[i]];
        for (uint32_t k = 0; k < site->count; k++) {
            const char *file = site->frames[k].file;
            if (!file[0] || gp_hash_get(&known, (uintptr_t)file, &number))
                continue;
            if (*used == room) {
                room = room ? 2 * room : 64;
                more = realloc(files, room * sizeof(*files));
                if (!more)
                    break;
                files = more;
            }
            if (gp_hash_set(&known, (uintptr_t)file, *used) == 0)
                files[(*used)++] = (struct gp_short_file){file, NULL};
        }
    }
    gp_hash_free(&known);
    return files;
}

void gp_place_shorten(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count)
{
    uint32_t used = 0;
    struct gp_short_file *files = short_collect(symbols, sites, count, &used);
    if (!used)
        return free(files);
    qsort(files, used, sizeof(*files), short_by_end);
    for (uint32_t i = 0; i < used; i++)
        files[i].short_file =
            short_of(files[i].file, i ? files[i - 1].file : NULL, i + 1 < used ? files[i + 1].file : NULL);
    for (uint32_t i = 0; i < used; i++) {
        const char *cell = short_cell(symbols, files[i].file);
        files[i].short_file = cell ? cell : files[i].short_file;
    }
    qsort(files, used, sizeof(*files), short_by_file);
    for (uint32_t i = 0; i < count; i++) {
        struct gp_symbol_site *site = &symbols->sites[sites[i]];
        for (uint32_t k = 0; k < site->count; k++) {
            const struct gp_short_file key = {site->frames[k].file, NULL};
            const struct gp_short_file *found = bsearch(&key, files, used, sizeof(*files), short_by_file);
            site->frames[k].short_file = found ? found->short_file : NULL;
        }
    }
    free(files);
}
