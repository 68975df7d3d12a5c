/* SPDX-License-Identifier: MIT
 * caller.c: tells sites of equal names apart; see symbol.h. A program that allocates all of its
 * memory in one function of its own has hundreds of sites with that function's name. When the sites
 * are sorted by their stacks from the named frame outward, the most similar stacks are adjacent: the
 * frame at which a site differs from the more similar neighbour distinguishes it from all others.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symbol/internal.h>
#include <symbol/place.h>

/* A shortened name below this length is useless. */
#define GP_CALLER_LEAST 16u

struct gp_caller {
    const struct gp_frame_text *name; /* the frame that names the site */
    uint32_t outer, inner;            /* frames from the name outward, with it; inside of it */
    uint32_t at;                      /* index in the sites passed in */
    uint32_t group;                   /* equal for equal frames from the name outward */
};

static int caller_frame(const struct gp_frame_text *a, const struct gp_frame_text *b)
{
    const char *one = a->plain ? a->plain : a->function, *other = b->plain ? b->plain : b->function;
    int order = one == other ? 0 : strcmp(one, other);
    if (!order && a->file != b->file)
        order = strcmp(a->file, b->file);
    if (!order)
        order = (a->line > b->line) - (a->line < b->line);
    return order || a->line || a->python ? order : (a->pc > b->pc) - (a->pc < b->pc);
}

/* The frames that two sites share, from the name outward, or from the name inward. */
static uint32_t caller_outer(const struct gp_caller *a, const struct gp_caller *b)
{
    uint32_t i = 0;
    while (i < a->outer && i < b->outer && caller_frame(&a->name[i], &b->name[i]) == 0)
        i++;
    return i;
}

static uint32_t caller_inner(const struct gp_caller *a, const struct gp_caller *b)
{
    uint32_t i = 0;
    while (i < a->inner && i < b->inner && caller_frame(a->name - 1 - i, b->name - 1 - i) == 0)
        i++;
    return i;
}

static int caller_compare(const void *one, const void *other)
{
    const struct gp_caller *a = one, *b = other;
    uint32_t common = caller_outer(a, b);
    if (common == a->outer || common == b->outer)
        return (a->outer > b->outer) - (a->outer < b->outer);
    return caller_frame(&a->name[common], &b->name[common]);
}

static int caller_compare_inner(const void *one, const void *other)
{
    const struct gp_caller *a = one, *b = other;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    uint32_t common = caller_inner(a, b);
    if (common == a->inner || common == b->inner)
        return (a->inner > b->inner) - (a->inner < b->inner);
    return caller_frame(a->name - 1 - common, b->name - 1 - common);
}

/* How many frames the site shares with the nearest one on one side that has a different stack. */
static uint32_t caller_beside(const struct gp_caller *list, uint32_t count, uint32_t i, int step)
{
    for (uint32_t k = i + (uint32_t)step; k < count; k += (uint32_t)step) { /* below 0 it wraps around */
        if (list[i].group == list[k].group)
            continue;
        return caller_outer(&list[i], &list[k]);
    }
    return 0;
}

/* The same among sites of one group, inward. *differs: there is such a site. */
static uint32_t caller_within(const struct gp_caller *list, uint32_t count, uint32_t i, int step, bool *differs)
{
    for (uint32_t k = i + (uint32_t)step; k < count && list[k].group == list[i].group; k += (uint32_t)step) {
        uint32_t common = caller_inner(&list[i], &list[k]);
        if (common == list[i].inner && common == list[k].inner)
            continue;
        *differs = true;
        return common;
    }
    return 0;
}

static void callers_group(struct gp_caller *list, uint32_t count)
{
    qsort(list, count, sizeof(*list), caller_compare);
    for (uint32_t i = 1; i < count; i++)
        list[i].group = list[i - 1].group + (caller_compare(&list[i - 1], &list[i]) != 0);
}

static void callers_outside(struct gp_caller *list, uint32_t count, const struct gp_frame_text **callers)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t before = caller_beside(list, count, i, -1), after = caller_beside(list, count, i, 1);
        uint32_t common = before > after ? before : after;
        if (common && common < list[i].outer)
            callers[list[i].at] = &list[i].name[common];
    }
}

/* Sites that are equal from the name outward: one line that calls a library in several ways, or a
 * wrapper that requests memory on several lines. */
static void callers_inside(struct gp_caller *list, uint32_t count, const struct gp_frame_text **callees)
{
    qsort(list, count, sizeof(*list), caller_compare_inner);
    for (uint32_t i = 0; i < count; i++) {
        bool differs = false;
        uint32_t before = caller_within(list, count, i, -1, &differs);
        uint32_t after = caller_within(list, count, i, 1, &differs);
        uint32_t common = before > after ? before : after;
        if (differs && common < list[i].inner)
            callees[list[i].at] = list[i].name - 1 - common;
    }
}

static void callers_find(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count,
                         const struct gp_frame_text **out, bool inside)
{
    struct gp_caller *list = calloc(count + 1ul, sizeof(*list));
    memset(out, 0, count * sizeof(struct gp_frame_text *));
    for (uint32_t i = 0; list && i < count; i++) {
        const struct gp_frame_text *frames, *name = gp_symbols_name(symbols, sites[i]);
        uint32_t frame_count = gp_symbols_site(symbols, sites[i], &frames);
        uint32_t inner = (uint32_t)(name - frames);
        list[i] = (struct gp_caller){name, gp_place_end(frames, frame_count, inner) - inner, inner, i, 0};
    }
    if (list)
        callers_group(list, count);
    if (list && inside)
        callers_inside(list, count, out);
    else if (list)
        callers_outside(list, count, out);
    free(list);
}

void gp_symbols_callers(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count,
                        const struct gp_frame_text **callers)
{
    callers_find(symbols, sites, count, callers, false);
}

void gp_symbols_callees(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count,
                        const struct gp_frame_text **callees)
{
    callers_find(symbols, sites, count, callees, true);
}

/* "forward:90", or with its file; a file that the name has too is left out. */
static void label_of(const struct gp_frame_text *frame, const struct gp_frame_text *name, bool file, char *out,
                     size_t bytes)
{
    bool same = frame->file[0] && strcmp(frame->file, name->file) == 0;
    if (file && !same)
        gp_frame_label(frame, out, bytes);
    else
        snprintf(out, bytes, frame->line ? "%.400s:%u" : "%.400s", frame->function, (unsigned)frame->line);
}

/* Tries shorter and shorter forms: first the name's file is left out, then those of the others. */
size_t gp_caller_text(const struct gp_frame_text *name, const struct gp_frame_text *caller,
                      const struct gp_frame_text *callee, char *out, size_t bytes)
{
    char named[512], text[1024], part[512];
    size_t large = gp_frame_label(name, out, bytes), length = strlen(name->function);
    const struct gp_frame_text *const others[] = {callee, caller};
    if (!caller && !callee)
        return large;
    gp_frame_label(name, named, sizeof(named));
    for (int way = 0; way < 3; way++) {
        size_t used = (size_t)snprintf(text, sizeof(text), "%.511s", way ? name->function : named);
        for (int i = 0; i < 2 && used < sizeof(text); i++) {
            if (!others[i])
                continue;
            label_of(others[i], name, way < 2, part, sizeof(part));
            used += (size_t)snprintf(text + used, sizeof(text) - used, " %c %s", i ? '<' : '>', part);
        }
        if (used < bytes && used < sizeof(text)) {
            memcpy(out, text, used + 1);
            return length;
        }
    }
    /* As a last resort the middle of the other's name is cut out. */
    label_of(caller ? caller : callee, name, false, part, sizeof(part));
    const struct gp_frame_text bare = {.function = part, .file = "", .module = ""};
    if (length + 3 + GP_CALLER_LEAST >= bytes)
        return large;
    gp_frame_label(&bare, text, bytes - length - 3);
    snprintf(out, bytes, "%s %c %s", name->function, caller ? '<' : '>', text);
    return length;
}

/* Most room that a place takes from the name of an operation. */
#define GP_LINE_PLACE 27u
/* With less room the operation is left out. */
#define GP_LINE_OPERATION 12u

/* A line of a script needs no function: "train.py:19". Where there is no room for the file, the
 * line matters more. */
static size_t line_place(const struct gp_frame_text *name, const struct gp_frame_text *caller, char *out, size_t bytes)
{
    char text[512];
    const char *file = name->short_file ? name->short_file : name->file;
    bool script = name->python && strcmp(name->function, "<module>") == 0;
    size_t large = gp_caller_text(name, caller, NULL, text, sizeof(text));
    if (caller || !name->line || (!script && strlen(text) < bytes))
        return gp_caller_text(name, caller, NULL, out, bytes);
    int used = snprintf(out, bytes, "%s:%u", script ? file : name->function, (unsigned)name->line);
    if (used < 0 || (size_t)used >= bytes)
        return gp_caller_text(name, NULL, NULL, out, bytes);
    return script ? (size_t)used : large;
}

size_t gp_caller_line(const struct gp_frame_text *name, const struct gp_operation *operation,
                      const struct gp_frame_text *caller, const struct gp_frame_text *callee, char *out, size_t bytes)
{
    size_t length = operation->text ? strlen(operation->text) : 0;
    if (!length)
        return gp_caller_text(name, caller, callee, out, bytes);
    if (!operation->below) /* the place is a library's, at best an offset in it */
        return gp_frame_label(&(struct gp_frame_text){.function = operation->text, .file = "", .module = ""}, out,
                              bytes);
    size_t least = strlen(name->function) + 8, room = bytes > length + 2 ? bytes - length - 2 : 0;
    least = least < GP_LINE_PLACE ? least : GP_LINE_PLACE;
    if (bytes < least + 2 + GP_LINE_OPERATION)
        return gp_caller_text(name, caller, NULL, out, bytes);
    room = room > least ? room : least;
    size_t large = line_place(name, caller, out, room), used = strlen(out);
    if (bytes - used < 3)
        return large;
    /* The middle is cut out: the end tells "(exp_avg)" from "(exp_avg_sq)". */
    const struct gp_frame_text bare = {.function = operation->text, .file = "", .module = ""};
    memcpy(out + used, "  ", 2);
    gp_frame_label(&bare, out + used + 2, bytes - used - 2);
    return large;
}

size_t gp_symbols_line(struct gp_symbols *symbols, uint32_t site, const struct gp_frame_text *caller,
                       const struct gp_frame_text *callee, char *out, size_t bytes)
{
    return gp_caller_line(gp_symbols_name(symbols, site), gp_symbols_operation(symbols, site), caller, callee, out,
                          bytes);
}
