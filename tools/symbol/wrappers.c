/* SPDX-License-Identifier: MIT
 *
 * wrappers.c: finds the user's functions that allocate for many callers, and names their sites by
 * the callers; see place.h. docs/understand/symbols.md has the rule and its thresholds.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <symbol/internal.h>
#include <symbol/place.h>

/* Wrappers around wrappers. */
#define GP_PLACE_ROUNDS 8u
/* Callers and lines of a function that may be a part of a wrapper outside of it. */
#define GP_PLACE_FEW 2u
/* Distinct lines that are counted in one function; more than the rule compares with. */
#define GP_PLACE_LINES 64u

struct gp_place_walk { /* a site: the frame that names it so far, and the one that is looked at */
    uint32_t site, name, at;
};

struct gp_place_call { /* "caller at its line calls function, which requests memory at line" */
    const struct gp_frame_text *frame, *caller;
    uint32_t walk;
};

/* The next frame outward of another function of the user's own; the number of frames if there is
 * none. */
static uint32_t place_outer(const struct gp_symbol_site *site, uint32_t from)
{
    const struct gp_frame_text *frame = &site->frames[from];
    for (uint32_t i = from + 1; i < site->count; i++) {
        const struct gp_frame_text *outer = &site->frames[i];
        bool own = outer->role == GP_ROLE_USER || outer->role == GP_ROLE_WRAPPER;
        if (own && outer->python == frame->python && (outer->plain != frame->plain || outer->file != frame->file))
            return i;
    }
    return site->count;
}

static int place_order(const struct gp_frame_text *a, const struct gp_frame_text *b, bool lines)
{
    const uint64_t one[] = {(uint64_t)(uintptr_t)a->plain, (uint64_t)(uintptr_t)a->file, lines ? gp_place_line(a) : 0};
    const uint64_t other[] = {(uint64_t)(uintptr_t)b->plain, (uint64_t)(uintptr_t)b->file,
                              lines ? gp_place_line(b) : 0};
    for (int i = 0; i < 3; i++)
        if (one[i] != other[i])
            return one[i] < other[i] ? -1 : 1;
    return 0;
}

static int place_by_function(const void *one, const void *other)
{
    const struct gp_place_call *a = one, *b = other;
    int order = place_order(a->frame, b->frame, false);
    return order ? order : place_order(a->caller, b->caller, true);
}

/* What a function's calls say about it. */
struct gp_place_facts {
    uint32_t sites, callers, functions; /* functions: that the callers' lines are in */
    uint32_t lines;                     /* of its own, at which it requests memory */
    bool tentative;                     /* it requests memory through a function that is not known as a wrapper */
};

static bool has_word(const char *from, size_t length, const char *word)
{
    size_t bytes = strlen(word);
    for (size_t i = 0; i + bytes <= length; i++)
        if (strncasecmp(from + i, word, bytes) == 0)
            return true;
    return false;
}

/* The start of the component that ends at `end`, which is after "::" or ".". */
static size_t component(const char *name, size_t end)
{
    while (end && name[end - 1] != ':' && name[end - 1] != '.')
        end--;
    return end;
}

static bool is_named_allocator(const char *name)
{
    size_t length = strlen(name), last = component(name, length);
    size_t before = last && name[last - 1] == ':' ? last - (last > 1 ? 2 : 1) : last ? last - 1 : 0;
    return has_word(name + component(name, before), length - component(name, before), "alloc");
}

static bool is_constructor(const char *name)
{
    size_t length = strlen(name), last = component(name, length);
    if (strcmp(name + last, "__init__") == 0)
        return true;
    size_t before = last > 2 ? component(name, last - 2) : 0;
    return last > 2 && last - 2 - before == length - last && strncmp(name + before, name + last, length - last) == 0;
}

/* docs/understand/symbols.md gives the reasons. */
static bool place_wraps(const char *name, const struct gp_place_facts *f, uint32_t total)
{
    if (f->callers < 2 || (f->tentative && f->lines > 1))
        return false;
    if (is_named_allocator(name))
        return 2 * f->callers >= f->lines;
    if (f->callers <= f->lines)
        return false;
    if (is_constructor(name) || f->functions >= 4)
        return true;
    return f->callers >= (f->functions > 1 ? 3 : 4) && 2 * f->sites >= total;
}

static struct gp_place_facts place_facts(const struct gp_place_walk *walks, const struct gp_place_call *calls,
                                         uint32_t count)
{
    struct gp_place_facts f = {.sites = count};
    uint64_t lines[GP_PLACE_LINES];
    for (uint32_t i = 0; i < count; i++) {
        uint64_t line = gp_place_line(calls[i].frame);
        uint32_t k = 0;
        f.callers += i == 0 || place_order(calls[i].caller, calls[i - 1].caller, true) != 0;
        f.functions += i == 0 || place_order(calls[i].caller, calls[i - 1].caller, false) != 0;
        f.tentative |= walks[calls[i].walk].name != walks[calls[i].walk].at;
        while (k < f.lines && lines[k] != line)
            k++;
        if (k == f.lines && f.lines < GP_PLACE_LINES)
            lines[f.lines++] = line;
    }
    return f;
}

/* One step outward: past wrappers for good, past functions with few callers to see whether one of
 * these is a wrapper. Returns whether anything moved. */
static bool place_round(struct gp_symbols *symbols, struct gp_place_walk *walks, uint32_t total,
                        struct gp_place_call *calls)
{
    uint32_t count = 0;
    bool moved = false;
    for (uint32_t i = 0; i < total; i++) {
        const struct gp_symbol_site *site = &symbols->sites[walks[i].site];
        uint32_t outer = place_outer(site, walks[i].at);
        enum gp_frame_role role = site->frames[walks[i].at].role;
        if (outer < site->count && (role == GP_ROLE_USER || role == GP_ROLE_WRAPPER))
            calls[count++] = (struct gp_place_call){&site->frames[walks[i].at], &site->frames[outer], i};
    }
    qsort(calls, count, sizeof(*calls), place_by_function);
    for (uint32_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && !place_order(calls[first].frame, calls[end].frame, false);)
            end++;
        struct gp_place_facts f = place_facts(walks, calls + first, end - first);
        bool part = calls[first].frame->role == GP_ROLE_WRAPPER; /* a comprehension, of its function */
        bool wraps = !part && place_wraps(calls[first].frame->plain, &f, total);
        if (!part && !wraps && (f.callers > GP_PLACE_FEW || f.lines > GP_PLACE_FEW))
            continue;
        for (uint32_t i = first; i < end; i++) {
            struct gp_place_walk *walk = &walks[calls[i].walk];
            bool named = wraps || (part && walk->name == walk->at);
            walk->at = (uint32_t)(calls[i].caller - symbols->sites[walk->site].frames);
            walk->name = named ? walk->at : walk->name;
        }
        moved = true;
    }
    return moved;
}

/* A function that is a wrapper for some sites, or inside of one, is one for all of them. */
static void place_spread(struct gp_symbols *symbols, struct gp_place_walk *walks, uint32_t total)
{
    struct gp_hash wrappers = {0};
    uint32_t number;
    for (uint32_t i = 0; i < total; i++) {
        const struct gp_symbol_site *site = &symbols->sites[walks[i].site];
        for (uint32_t k = site->own; k < walks[i].name; k = place_outer(site, k))
            gp_hash_set(&wrappers, gp_place_function(&site->frames[k]), 1);
    }
    for (uint32_t i = 0; i < total; i++) {
        const struct gp_symbol_site *site = &symbols->sites[walks[i].site];
        for (uint32_t outer; gp_hash_get(&wrappers, gp_place_function(&site->frames[walks[i].name]), &number) &&
                             (outer = place_outer(site, walks[i].name)) < site->count;)
            walks[i].name = outer;
    }
    gp_hash_free(&wrappers);
}

void gp_place_names(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count)
{
    struct gp_place_walk *walks = calloc(count + 1ul, sizeof(*walks));
    struct gp_place_call *calls = calloc(count + 1ul, sizeof(*calls));
    uint32_t total = 0;
    for (uint32_t i = 0; walks && i < count; i++)
        if (symbols->sites[sites[i]].twin == sites[i])
            walks[total++] =
                (struct gp_place_walk){sites[i], symbols->sites[sites[i]].own, symbols->sites[sites[i]].own};
    for (unsigned round = 0; walks && calls && round < GP_PLACE_ROUNDS; round++)
        if (!place_round(symbols, walks, total, calls))
            break;
    if (walks && calls)
        place_spread(symbols, walks, total);
    for (uint32_t i = 0; calls && walks && i < total; i++)
        symbols->sites[walks[i].site].name = walks[i].name;
    for (uint32_t i = 0; i < count; i++) {
        struct gp_symbol_site *site = &symbols->sites[sites[i]];
        site->name = symbols->sites[site->twin].name;
        for (uint32_t k = 0; k < site->name; k++)
            if (site->frames[k].role == GP_ROLE_USER && site->frames[k].python == site->frames[site->name].python)
                site->frames[k].role = GP_ROLE_WRAPPER;
    }
    free(walks);
    free(calls);
}
