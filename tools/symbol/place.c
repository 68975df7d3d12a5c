/* SPDX-License-Identifier: MIT
 * place.c: The frame that names a site, found by comparing the stacks of all sites; see symbol.h. A
 * function of the user's own that allocates for many callers says little: the caller is the place
 * that matters. docs/understand/symbols.md has the rule and its thresholds. It also finds sites
 * whose stacks have equal text, and how much of a file's path a reader needs.  Its parts: short
 * names of files, places. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <symbol/internal.h>

/* ---- short names of files ---------------------------------------------------------------------------------------- */
/* How much of a file's path a reader needs: its base name, or as many folders before it as tell it
 * from the other files of the stacks. Called by place.c. */

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

/* place.c. Fills in short_file of all frames of these sites. */
static void symbols_shorten(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count)
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

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* More sites than a session can have are not compared: such a recording is made up. */
#define GP_PLACE_SITES 65536u
/* Wrappers around wrappers. */
#define GP_PLACE_ROUNDS 8u
/* Callers and lines of a function that may be a part of a wrapper outside of it. */
#define GP_PLACE_FEW 2u
/* Distinct lines that are counted in one function; more than the rule compares with. */
#define GP_PLACE_LINES 64u

/* ---- equal text -------------------------------------------------------------------------------------------------- */

struct gp_place_text {
    uint64_t hash;
    uint32_t site;
};

/* Where no line is known, two calls in one function differ by their addresses alone. */
static uint64_t place_line(const struct gp_frame_text *frame)
{
    return frame->line || frame->python ? frame->line : frame->pc;
}

/* One source in two libraries has two owners. */
static bool place_same_frame(const struct gp_frame_text *a, const struct gp_frame_text *b)
{
    return a->plain == b->plain && a->file == b->file && place_line(a) == place_line(b) && a->python == b->python &&
           a->module_index == b->module_index;
}

static uint64_t place_hash(const struct gp_symbols *symbols, uint32_t index)
{
    const struct gp_symbol_site *site = &symbols->sites[index];
    const struct gp_rec_site *row = &symbols->source.sites[index];
    uint64_t hash = (uint64_t)row->device << 8 | row->kind;
    for (uint32_t i = 0; i < site->count; i++) {
        const struct gp_frame_text *frame = &site->frames[i];
        const uint64_t words[] = {(uint64_t)(uintptr_t)frame->plain, (uint64_t)(uintptr_t)frame->file,
                                  place_line(frame)};
        for (size_t k = 0; k < 3; k++)
            hash = (hash ^ words[k]) * 0x9e3779b97f4a7c15ull, hash ^= hash >> 29;
    }
    return hash;
}

static bool place_equal(const struct gp_symbols *symbols, uint32_t one, uint32_t other)
{
    const struct gp_symbol_site *a = &symbols->sites[one], *b = &symbols->sites[other];
    const struct gp_rec_site *x = &symbols->source.sites[one], *y = &symbols->source.sites[other];
    if (a->count != b->count || x->device != y->device || x->kind != y->kind)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (!place_same_frame(&a->frames[i], &b->frames[i]))
            return false;
    return true;
}

static int place_by_hash(const void *one, const void *other)
{
    const struct gp_place_text *a = one, *b = other;
    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    return a->site < b->site ? -1 : a->site > b->site;
}

/* Instances of a template are one line of source, so their row has the name without arguments. */
static void place_join(struct gp_symbol_site *to, const struct gp_symbol_site *twin)
{
    for (uint32_t i = 0; i < to->count; i++)
        if (to->frames[i].function != twin->frames[i].function)
            to->frames[i].function = to->frames[i].plain;
}

static void place_twins(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count)
{
    struct gp_place_text *texts = calloc(count + 1ul, sizeof(*texts));
    for (uint32_t i = 0; texts && i < count; i++)
        texts[i] = (struct gp_place_text){place_hash(symbols, sites[i]), sites[i]};
    if (texts)
        qsort(texts, count, sizeof(*texts), place_by_hash);
    for (uint32_t i = 1; texts && i < count; i++) {
        uint32_t before = symbols->sites[texts[i - 1].site].twin, at = texts[i].site;
        bool same = texts[i].hash == texts[i - 1].hash && place_equal(symbols, before, at);
        symbols->sites[at].twin = same ? before : at;
        if (same)
            place_join(&symbols->sites[before], &symbols->sites[at]);
    }
    free(texts);
}

/* ---- wrappers ---------------------------------------------------------------------------------------------------- */

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
    const uint64_t one[] = {(uint64_t)(uintptr_t)a->plain, (uint64_t)(uintptr_t)a->file, lines ? place_line(a) : 0};
    const uint64_t other[] = {(uint64_t)(uintptr_t)b->plain, (uint64_t)(uintptr_t)b->file, lines ? place_line(b) : 0};
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
        uint64_t line = place_line(calls[i].frame);
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

static uint64_t place_function(const struct gp_frame_text *frame)
{
    return (uint64_t)(uintptr_t)frame->plain * 31 + (uint64_t)(uintptr_t)frame->file;
}

/* A function that is a wrapper for some sites, or inside of one, is one for all of them. */
static void place_spread(struct gp_symbols *symbols, struct gp_place_walk *walks, uint32_t total)
{
    struct gp_hash wrappers = {0};
    uint32_t number;
    for (uint32_t i = 0; i < total; i++) {
        const struct gp_symbol_site *site = &symbols->sites[walks[i].site];
        for (uint32_t k = site->own; k < walks[i].name; k = place_outer(site, k))
            gp_hash_set(&wrappers, place_function(&site->frames[k]), 1);
    }
    for (uint32_t i = 0; i < total; i++) {
        const struct gp_symbol_site *site = &symbols->sites[walks[i].site];
        for (uint32_t outer; gp_hash_get(&wrappers, place_function(&site->frames[walks[i].name]), &number) &&
                             (outer = place_outer(site, walks[i].name)) < site->count;)
            walks[i].name = outer;
    }
    gp_hash_free(&wrappers);
}

/* total: only sites without a lower twin count, so that what a compiler did has no influence. */
static void place_names(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count)
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

/* ---- operations -------------------------------------------------------------------------------------------------- */

/* The end of the frames that tell a name from another.  From Python 3.11 on, C code between calls of
 * Python stands outside of all Python frames: PyTorch's way to a function of Python says nothing. */
uint32_t gp_place_end(const struct gp_frame_text *frames, uint32_t count, uint32_t name)
{
    while (count > name + 1 && frames[name].python && !frames[count - 1].python &&
           frames[count - 1].role != GP_ROLE_USER)
        count--;
    return count;
}

/* Of the frames from the name outward, and the operation. */
static uint64_t place_row_hash(const struct gp_symbols *symbols, uint32_t index)
{
    const struct gp_symbol_site *site = &symbols->sites[index];
    const struct gp_rec_site *row = &symbols->source.sites[index];
    uint64_t hash = ((uint64_t)row->device << 8 | row->kind) * 31 + (uint64_t)(uintptr_t)site->operation.text;
    uint32_t end = gp_place_end(site->frames, site->count, site->name);
    for (uint32_t i = site->operation.below ? site->name : end; i < end; i++)
        hash = (hash ^ place_function(&site->frames[i]) ^ place_line(&site->frames[i])) * 0x9e3779b97f4a7c15ull,
        hash ^= hash >> 29;
    return hash;
}

static bool place_row_equal(const struct gp_symbols *symbols, uint32_t one, uint32_t other)
{
    const struct gp_symbol_site *a = &symbols->sites[one], *b = &symbols->sites[other];
    const struct gp_rec_site *x = &symbols->source.sites[one], *y = &symbols->source.sites[other];
    if (a->operation.text != b->operation.text || a->operation.below != b->operation.below || x->device != y->device ||
        x->kind != y->kind)
        return false;
    if (!a->operation.below)
        return true;
    uint32_t end = gp_place_end(a->frames, a->count, a->name);
    if (end - a->name != gp_place_end(b->frames, b->count, b->name) - b->name)
        return false;
    for (uint32_t i = 0; i < end - a->name; i++)
        if (!place_same_frame(&a->frames[a->name + i], &b->frames[b->name + i]))
            return false;
    return true;
}

static void place_rows(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count)
{
    struct gp_place_text *texts = calloc(count + 1ul, sizeof(*texts));
    uint32_t known = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct gp_symbol_site *site = &symbols->sites[sites[i]];
        site->operation = gp_operation_find(symbols, site->frames, site->count, site->name, &site->operator);
        site->row = site->twin;
    }
    gp_operation_states(symbols, sites, count);
    for (uint32_t i = 0; texts && i < count; i++)
        if (symbols->sites[sites[i]].operation.text)
            texts[known++] = (struct gp_place_text){place_row_hash(symbols, sites[i]), sites[i]};
    if (texts)
        qsort(texts, known, sizeof(*texts), place_by_hash);
    for (uint32_t i = 1; texts && i < known; i++) {
        uint32_t before = symbols->sites[texts[i - 1].site].row, at = texts[i].site;
        if (texts[i].hash == texts[i - 1].hash && place_row_equal(symbols, before, at))
            symbols->sites[at].row = before;
    }
    free(texts);
}

/* ---- sites ------------------------------------------------------------------------------------------------------- */

/* What an earlier comparison with fewer sites found. */
static void place_forget(struct gp_symbols *symbols, struct gp_symbol_site *site, uint32_t index)
{
    site->twin = site->row = index;
    site->name = site->own;
    for (uint32_t k = 0; k < site->count; k++)
        if (site->frames[k].role == GP_ROLE_WRAPPER || site->frames[k].python)
            gp_role_set(symbols, &site->frames[k]);
    gp_role_of_program(site->frames, site->count);
}

static void place_all(struct gp_symbols *symbols)
{
    uint32_t count = symbols->source.site_count, known = 0;
    uint32_t *sites = calloc(count + 1ul, sizeof(*sites));
    symbols->placed = count;
    for (uint32_t i = 1; sites && i < count && known < GP_PLACE_SITES; i++) {
        struct gp_symbol_site *site = gp_symbols_stack(symbols, i);
        if (site) {
            place_forget(symbols, site, i);
            sites[known++] = i;
        }
    }
    if (sites) {
        place_twins(symbols, sites, known);
        place_names(symbols, sites, known);
        place_rows(symbols, sites, known);
        symbols_shorten(symbols, sites, known);
    }
    free(sites);
}

static struct gp_symbol_site *place_of(struct gp_symbols *symbols, uint32_t site)
{
    if (symbols->placed != symbols->source.site_count)
        place_all(symbols);
    return gp_symbols_stack(symbols, site);
}

uint32_t gp_symbols_site(struct gp_symbols *symbols, uint32_t site, const struct gp_frame_text **frames)
{
    const struct gp_symbol_site *found = place_of(symbols, site);
    *frames = found ? found->frames : &gp_symbols_unknown;
    return found ? found->count : 1;
}

const struct gp_frame_text *gp_symbols_name(struct gp_symbols *symbols, uint32_t site)
{
    const struct gp_symbol_site *found = place_of(symbols, site);
    return found ? &found->frames[found->name] : &gp_symbols_unknown;
}

const struct gp_operation *gp_symbols_operation(struct gp_symbols *symbols, uint32_t site)
{
    static const struct gp_operation unknown = {0};
    const struct gp_symbol_site *found = place_of(symbols, site);
    return found ? &found->operation : &unknown;
}

bool gp_symbols_is_loss(struct gp_symbols *symbols, uint32_t site)
{
    static const char *const parts[] = {"loss", "cross_entropy", "log_softmax", "logsumexp", "kl_div"};
    const char *text = gp_symbols_operation(symbols, site)->text;
    for (size_t i = 0; text && i < sizeof(parts) / sizeof(parts[0]); i++)
        if (strcasestr(text, parts[i]))
            return true;
    return false;
}

uint32_t gp_symbols_row(struct gp_symbols *symbols, uint32_t site)
{
    const struct gp_symbol_site *found = place_of(symbols, site);
    return found ? found->row : site;
}

uint32_t gp_symbols_twin(struct gp_symbols *symbols, uint32_t site)
{
    const struct gp_symbol_site *found = place_of(symbols, site);
    return found ? found->twin : site;
}
