/* SPDX-License-Identifier: MIT
 *
 * caller.c: sites of equal names, told apart; see symbol.h.  A program that asks for all of its memory in one function
 * of its own has hundreds of sites whose name is that function's.  Sorted by their stacks from the name outward, a
 * site's nearest relatives stand beside it: where it leaves the way of the nearer one, it has left all others.
 */
#include <symbol/symbol.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gp_caller {
    const struct gp_frame_text *frames; /* from the name outward */
    uint32_t count, at;                 /* at: in the caller's list */
};

static int gp_caller_frame(const struct gp_frame_text *a, const struct gp_frame_text *b)
{
    int order = a->function == b->function ? 0 : strcmp(a->function, b->function);
    if (!order && a->file != b->file)
        order = strcmp(a->file, b->file);
    return order ? order : (a->line > b->line) - (a->line < b->line);
}

static uint32_t gp_caller_common(const struct gp_caller *a, const struct gp_caller *b)
{
    uint32_t i = 0;
    while (i < a->count && i < b->count && gp_caller_frame(&a->frames[i], &b->frames[i]) == 0)
        i++;
    return i;
}

static int gp_caller_compare(const void *one, const void *other)
{
    const struct gp_caller *a = one, *b = other;
    uint32_t common = gp_caller_common(a, b);
    if (common == a->count || common == b->count)
        return (a->count > b->count) - (a->count < b->count);
    return gp_caller_frame(&a->frames[common], &b->frames[common]);
}

/* How far it goes with the nearest on one side that is not its double. */
static uint32_t gp_caller_beside(const struct gp_caller *list, uint32_t count, uint32_t i, int step)
{
    for (uint32_t k = i + (uint32_t)step; k < count; k += (uint32_t)step) { /* below 0 it is large */
        uint32_t common = gp_caller_common(&list[i], &list[k]);
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
        qsort(list, count, sizeof(*list), gp_caller_compare);
    for (uint32_t i = 0; list && i < count; i++) {
        uint32_t before = gp_caller_beside(list, count, i, -1), after = gp_caller_beside(list, count, i, 1);
        uint32_t common = before > after ? before : after;
        if (common && common < list[i].count)
            callers[list[i].at] = &list[i].frames[common];
    }
    free(list);
}

void gp_site_label(const struct gp_frame_text *name, const struct gp_frame_text *caller, char *out, size_t bytes)
{
    char outer[256], inner[256];
    if (!caller) {
        gp_frame_label(name, out, bytes);
        return;
    }
    /* In the same file its line is enough. */
    bool same = caller->file[0] && strcmp(caller->file, name->file) == 0;
    if (same && caller->line)
        snprintf(outer, sizeof(outer), "%.200s:%u", caller->function, (unsigned)caller->line);
    else
        gp_frame_label(caller, outer, sizeof(outer) < bytes / 2 ? sizeof(outer) : bytes / 2);
    size_t room = bytes > strlen(outer) + 4 ? bytes - strlen(outer) - 3 : 0;
    if (room < bytes / 2) {
        gp_frame_label(name, out, bytes);
        return;
    }
    gp_frame_label(name, inner, room < sizeof(inner) ? room : sizeof(inner));
    snprintf(out, bytes, "%s < %s", inner, outer);
}
