/* SPDX-License-Identifier: MIT
 *
 * caller.c: tells sites of equal names apart; see symbol.h. A program that allocates all of its
 * memory in one function of its own has hundreds of sites with that function's name. When the sites
 * are sorted by their stacks from the named frame outward, the most similar stacks are adjacent:
 * the frame at which a site differs from the more similar neighbour distinguishes it from all
 * others.
 */
#include <symbol/symbol.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A shortened name below this length is useless. */
#define GP_CALLER_LEAST 16u

struct gp_caller {
    const struct gp_frame_text *frames; /* from the named frame outward */
    uint32_t count, at;                 /* at: index in the sites passed in */
};

static int caller_frame(const struct gp_frame_text *a, const struct gp_frame_text *b)
{
    int order = a->function == b->function ? 0 : strcmp(a->function, b->function);
    if (!order && a->file != b->file)
        order = strcmp(a->file, b->file);
    return order ? order : (a->line > b->line) - (a->line < b->line);
}

static uint32_t caller_common(const struct gp_caller *a, const struct gp_caller *b)
{
    uint32_t i = 0;
    while (i < a->count && i < b->count && caller_frame(&a->frames[i], &b->frames[i]) == 0)
        i++;
    return i;
}

static int caller_compare(const void *one, const void *other)
{
    const struct gp_caller *a = one, *b = other;
    uint32_t common = caller_common(a, b);
    if (common == a->count || common == b->count)
        return (a->count > b->count) - (a->count < b->count);
    return caller_frame(&a->frames[common], &b->frames[common]);
}

/* How many frames the site shares with the nearest one on one side that has a different stack. */
static uint32_t caller_beside(const struct gp_caller *list, uint32_t count, uint32_t i, int step)
{
    for (uint32_t k = i + (uint32_t)step; k < count; k += (uint32_t)step) { /* below 0 it wraps around */
        uint32_t common = caller_common(&list[i], &list[k]);
        if (common < list[i].count || common < list[k].count)
            return common;
    }
    return 0;
}

void gp_symbols_callers(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count,
                        const struct gp_frame_text **callers)
{
    struct gp_caller *list = calloc(count + 1ul, sizeof(*list));
    memset(callers, 0, count * sizeof(struct gp_frame_text *));
    for (uint32_t i = 0; list && i < count; i++) {
        const struct gp_frame_text *frames, *name = gp_symbols_name(symbols, sites[i]);
        uint32_t frame_count = gp_symbols_site(symbols, sites[i], &frames);
        list[i] = (struct gp_caller){name, frame_count - (uint32_t)(name - frames), i};
    }
    if (list)
        qsort(list, count, sizeof(*list), caller_compare);
    for (uint32_t i = 0; list && i < count; i++) {
        uint32_t before = caller_beside(list, count, i, -1), after = caller_beside(list, count, i, 1);
        uint32_t common = before > after ? before : after;
        if (common && common < list[i].count)
            callers[list[i].at] = &list[i].frames[common];
    }
    free(list);
}

/* Tries shorter and shorter forms: first the name's file is left out, then the caller's. */
void gp_site_label(const struct gp_frame_text *name, const struct gp_frame_text *caller, char *out, size_t bytes)
{
    char inner[512], outer[512], line[512];
    gp_frame_label(name, out, bytes);
    if (!caller)
        return;
    gp_frame_label(name, inner, sizeof(inner));
    gp_frame_label(caller, outer, sizeof(outer));
    snprintf(line, sizeof(line), caller->line ? "%.400s:%u" : "%.400s", caller->function, (unsigned)caller->line);
    bool same = caller->file[0] && strcmp(caller->file, name->file) == 0; /* its line is enough in that case */
    const char *ways[][2] = {
        {inner, same ? line : outer}, {name->function, same ? line : outer}, {name->function, line}};
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        if (strlen(ways[i][0]) + strlen(ways[i][1]) + 3 < bytes) {
            snprintf(out, bytes, "%s < %s", ways[i][0], ways[i][1]);
            return;
        }
    }
    /* As a last resort the middle of the caller's name is cut out. */
    const struct gp_frame_text bare = {.function = line, .file = "", .module = ""};
    size_t used = strlen(name->function) + 3;
    if (used + GP_CALLER_LEAST < bytes) {
        gp_frame_label(&bare, outer, bytes - used);
        snprintf(out, bytes, "%s < %s", name->function, outer);
    }
}
