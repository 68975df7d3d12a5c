/* SPDX-License-Identifier: MIT
 * rows.c: finds the call sites of two recordings that are the same, by what a reader sees of them: the
 * functions of the user's own code, their files below the folder of the program, and the operation of a
 * framework.  Another version of Python or of a library, or another folder, changes none of that.  A
 * function or file with another name is known by the memory below it.
 */
#include <show/gate/growth.h>
#include <symbol/symbol.h>

#include <ctype.h>
#include <read/common/hash.h>
#include <stdlib.h>
#include <string.h>

struct rows_site {
    char *key;
    uint32_t *lines;
    uint32_t line_count;
};

struct rows_name {                 /* a function of either side */
    const char *function, *module; /* module: of a function without a file */
    uint32_t file;                 /* 0: without */
};

struct rows_names {
    struct rows_name *names;
    uint32_t *same; /* the name that it had in the first recording */
    uint32_t count, room;
    struct gp_hash known;
};

struct rows_marks {
    struct gp_diff_mark *marks;
    size_t count, room;
};

struct rows_side {
    struct rows_names *names; /* of both sides */
    const struct gp_report *report;
    struct rows_site *sites;
    uint32_t count;
    bool classes;       /* its functions of Python are named with their classes */
    const char **files; /* of frames; the strings are the symbols' */
    uint32_t *ids, file_count, file_room;
    struct gp_hash known; /* the number of a file by its text: the symbols keep each text once */
};

static bool is_users(const struct gp_frame_text *frame)
{
    return frame->role == GP_ROLE_USER || frame->role == GP_ROLE_WRAPPER;
}

/* Until Python 3.11 a function has no class: then classes of the other side are left out.  From 3.12 on a
 * comprehension has no frame. */
static const char *rows_function(const struct rows_side *side, const struct gp_frame_text *frame)
{
    const char *function = frame->plain ? frame->plain : frame->function, *dot, *last;
    if (!frame->python)
        return function;
    dot = strrchr(function, '.');
    last = dot ? dot + 1 : function;
    if (strcmp(last, "<listcomp>") == 0 || strcmp(last, "<dictcomp>") == 0 || strcmp(last, "<setcomp>") == 0)
        return NULL;
    return side->classes ? function : last;
}

static bool rows_is_row(const struct rows_side *side, const struct gp_frame_text *frame)
{
    return is_users(frame) && !frame->folded && rows_function(side, frame);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static uint32_t *side_file(struct rows_side *side, const char *file)
{
    bool added;
    uint32_t *number =
        gp_hash_add(&side->known, gp_hash_of_number((uintptr_t)file), NULL, NULL, side->file_count, &added);
    if (!number || !added)
        return number;
    if (side->file_count == side->file_room) {
        uint32_t room = side->file_room ? side->file_room * 2 : 64;
        const char **files = realloc(side->files, room * sizeof(*files));
        if (!files)
            return NULL;
        side->files = files;
        side->file_room = room;
    }
    side->files[side->file_count++] = file;
    return number;
}

static bool side_new(struct rows_side *side, const struct gp_report *report)
{
    *side = (struct rows_side){.report = report, .count = report->recording->site_count};
    side->sites = calloc(side->count + 1ul, sizeof(*side->sites));
    for (uint32_t i = 0; side->sites && i < side->count; i++) {
        const struct gp_frame_text *frames;
        uint32_t count = gp_symbols_site(report->symbols, i, &frames);
        for (uint32_t k = 0; k < count; k++) {
            side->classes |= frames[k].python && is_users(&frames[k]) && strchr(frames[k].function, '.');
            if (rows_is_row(side, &frames[k]) && !side_file(side, frames[k].file))
                return false;
        }
    }
    side->ids = side->sites ? calloc(side->file_count + 1ul, sizeof(*side->ids)) : NULL;
    return side->ids;
}

static void side_free(struct rows_side *side)
{
    for (uint32_t i = 0; side->sites && i < side->count; i++) {
        free(side->sites[i].key);
        free(side->sites[i].lines);
    }
    free(side->sites);
    free(side->files);
    free(side->ids);
    gp_hash_free(&side->known);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

struct rows_looked {
    const struct rows_names *names;
    struct rows_name name;
};

static bool name_is(const void *key, uint32_t number)
{
    const struct rows_looked *looked = key;
    const struct rows_name *a = &looked->name, *b = &looked->names->names[number];
    return a->file == b->file && strcmp(a->function, b->function) == 0 && strcmp(a->module, b->module) == 0;
}

/* The number of the function of a row; NULL: out of memory. */
static uint32_t *names_find(struct rows_side *side, const struct gp_frame_text *frame)
{
    struct rows_names *names = side->names;
    const uint32_t *file = side_file(side, frame->file);
    bool has_file = frame->file[0], added;
    if (!file)
        return NULL;
    struct rows_looked looked = {
        names, {rows_function(side, frame), has_file ? "" : frame->module, has_file ? side->ids[*file] + 1 : 0}};
    uint64_t hash = gp_hash_of_text(looked.name.function) ^ gp_hash_of_text(looked.name.module) ^
                    gp_hash_of_number(looked.name.file);
    uint32_t *number = gp_hash_add(&names->known, hash, name_is, &looked, names->count, &added);
    if (!number || !added)
        return number;
    if (names->count == names->room) {
        uint32_t room = names->room ? names->room * 2 : 256;
        struct rows_name *more = realloc(names->names, room * sizeof(*more));
        if (!more) {
            gp_hash_remove_at(&names->known, number);
            return NULL;
        }
        names->names = more;
        names->room = room;
    }
    names->names[names->count++] = looked.name;
    return number;
}

static bool marks_add(struct rows_marks *to, uint32_t thing, uint64_t mark)
{
    if (to->count == to->room) {
        size_t room = to->room ? to->room * 2 : 1024;
        struct gp_diff_mark *more = realloc(to->marks, room * sizeof(*more));
        if (!more)
            return false;
        to->marks = more;
        to->room = room;
    }
    to->marks[to->count++] = (struct gp_diff_mark){thing, mark};
    return true;
}

/* The marks of the side's files, or of its functions: what was allocated below each, in a file by its function. */
static bool side_marks(struct rows_side *side, bool files, struct rows_marks *to)
{
    for (uint32_t i = 1; i < side->count; i++) {
        const struct gp_frame_text *frames;
        uint32_t count = gp_symbols_site(side->report->symbols, i, &frames);
        const struct gp_rec_site *site = &side->report->recording->sites[i];
        const int64_t memory[2] = {site->allocated_bytes, site->calls};
        uint64_t mark = gp_hash_of_bytes(memory, sizeof(memory));
        for (uint32_t k = 0; k < count; k++) {
            if (!rows_is_row(side, &frames[k]) || (files && !frames[k].file[0]))
                continue;
            const uint32_t *thing = files ? side_file(side, frames[k].file) : names_find(side, &frames[k]);
            uint64_t function = files ? gp_hash_of_text(rows_function(side, &frames[k])) : 0;
            if (!thing || !marks_add(to, files ? side->ids[*thing] : *thing, mark ^ function))
                return false;
        }
    }
    return true;
}

/* Finds files (which get the numbers of those before), then functions, that are the same by another name. */
static bool names_pair(struct rows_side sides[2], bool files)
{
    struct rows_marks marks[2] = {{0}, {0}};
    struct rows_names *names = sides[0].names;
    bool ok = side_marks(&sides[0], files, &marks[0]) && side_marks(&sides[1], files, &marks[1]);
    uint32_t count = files ? sides[0].file_count + sides[1].file_count : names->count;
    uint32_t *group = calloc(count + 1ul, sizeof(*group)), *same = calloc(count + 1ul, sizeof(*same));
    ok = ok && group && same;
    for (uint32_t i = 0; ok && !files && i < count; i++)
        group[i] = names->names[i].file ? names->names[i].file : (uint32_t)gp_hash_of_text(names->names[i].module);
    struct gp_diff_mark *const both[2] = {marks[0].marks, marks[1].marks};
    const size_t counts[2] = {marks[0].count, marks[1].count};
    ok = ok && gp_diff_renamed(both, counts, group, count, same);
    for (uint32_t i = 0; ok && files && i < sides[1].file_count; i++)
        sides[1].ids[i] = same[sides[1].ids[i]];
    if (ok && !files) {
        names->same = same;
        same = NULL;
    }
    free(group);
    free(same);
    free(marks[0].marks);
    free(marks[1].marks);
    return ok;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static void key_frame(struct rows_side *side, FILE *out, struct rows_site *to, const struct gp_frame_text *frame)
{
    const uint32_t *number = names_find(side, frame); /* all are known */
    const struct rows_name *name = &side->names->names[number ? side->names->same[*number] : 0];
    fprintf(out, "%s\t%u\t%s\n", name->function, name->file, name->module);
    to->lines[to->line_count++] = frame->line;
}

/* Until Python 3.11 the name of the file stands for the class of a layer or an optimizer. */
static void key_operation(FILE *out, const char *text)
{
    const char *colon = strstr(text, ": ");
    if (colon && strncmp(text, "backward", 8) != 0 && strncmp(text, "recompute", 9) != 0 &&
        strncmp(text, "optimizer", 9) != 0)
        text = colon + 2;
    for (; *text; text++)
        if (*text != '_')
            fputc(tolower((unsigned char)*text), out);
}

/* Where no operation is known: the frames of libraries, those of Python alone if there are any. */
static void key_libraries(const struct rows_side *side, FILE *out, const struct gp_frame_text *frames, uint32_t count)
{
    bool python = false;
    for (uint32_t i = 0; i < count; i++)
        python |= frames[i].python;
    for (uint32_t i = 0; i < count; i++) {
        const struct gp_frame_text *frame = &frames[i];
        const char *function = rows_function(side, frame), *slash = strrchr(frame->file, '/');
        if (frame->folded || is_users(frame) || frame->python != python || !function)
            continue;
        fprintf(out, "%s\t%s\n", function, !python ? "" : slash ? slash + 1 : frame->file);
    }
}

static bool side_key(struct rows_side *side, uint32_t site)
{
    const struct gp_frame_text *frames;
    uint32_t count = gp_symbols_site(side->report->symbols, site, &frames);
    const struct gp_operation *operation = gp_symbols_operation(side->report->symbols, site);
    struct rows_site *to = &side->sites[site];
    size_t size;
    to->lines = calloc(count + 1ul, sizeof(*to->lines));
    FILE *out = to->lines ? open_memstream(&to->key, &size) : NULL;
    if (!out)
        return false;
    /* Python's first: where its frames lie among native ones depends on its version. */
    for (int native = 0; native < 2; native++)
        for (uint32_t i = 0; i < count; i++)
            if (rows_is_row(side, &frames[i]) && !frames[i].python == native)
                key_frame(side, out, to, &frames[i]);
    if (operation->text)
        key_operation(out, operation->text);
    else
        key_libraries(side, out, frames, count);
    return fclose(out) == 0;
}

/* The frame that names the site, alone. */
static bool side_key_line(struct rows_side *side, uint32_t site)
{
    const struct gp_frame_text *name = gp_symbols_name(side->report->symbols, site);
    const struct gp_operation *operation = gp_symbols_operation(side->report->symbols, site);
    struct rows_site *to = &side->sites[site];
    size_t size;
    free(to->key);
    to->key = NULL;
    to->line_count = 0;
    FILE *out = open_memstream(&to->key, &size);
    if (!out)
        return false;
    if (rows_is_row(side, name))
        key_frame(side, out, to, name);
    else if (operation->text)
        key_operation(out, operation->text);
    else
        fprintf(out, "%s\t%s", name->plain ? name->plain : name->function, name->module);
    return fclose(out) == 0;
}

static bool side_key_operation(struct rows_side *side, uint32_t site)
{
    const struct gp_operation *operation = gp_symbols_operation(side->report->symbols, site);
    struct rows_site *to = &side->sites[site];
    size_t size;
    if (!operation->text) {
        bool ok = side_key_line(side, site);
        to->line_count = 0; /* the function */
        return ok;
    }
    free(to->key);
    to->key = NULL;
    to->line_count = 0;
    FILE *out = open_memstream(&to->key, &size);
    if (!out)
        return false;
    fputs("operation ", out);
    key_operation(out, operation->text);
    return fclose(out) == 0;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

typedef bool rows_key_fn(struct rows_side *side, uint32_t site);

static bool rows_number(struct rows_side sides[2], rows_key_fn *key, uint32_t *of[2], uint32_t *count)
{
    struct gp_diff_site *sites[2] = {calloc(sides[0].count + 1ul, sizeof(**sites)),
                                     calloc(sides[1].count + 1ul, sizeof(**sites))};
    bool ok = sites[0] && sites[1];
    for (int side = 0; side < 2; side++) {
        for (uint32_t i = 0; ok && i < sides[side].count; i++) {
            ok = key(&sides[side], i);
            const struct rows_site *from = &sides[side].sites[i];
            const struct gp_rec_site *row = &sides[side].report->recording->sites[i];
            sites[side][i] =
                (struct gp_diff_site){from->key, from->lines, from->line_count, row->allocated_bytes, row->calls};
        }
    }
    const struct gp_diff_site *const both[2] = {sites[0], sites[1]};
    const uint32_t counts[2] = {sides[0].count, sides[1].count};
    ok = ok && gp_diff_match(both, counts, of, count);
    free(sites[0]);
    free(sites[1]);
    return ok;
}

/* Which frame names a site may differ between the recordings, where one has more callers of a function
 * than the other.  So what is one site by its stack is in one line: rows of `of` that have sites of one
 * row of `stacks` become one. */
static bool rows_unite(struct rows_side sides[2], uint32_t *const stacks[2], uint32_t stack_count,
                       uint32_t *const of[2], uint32_t row_count)
{
    uint32_t *to = calloc(stack_count + 1ul, sizeof(*to)), *old = calloc(row_count + 1ul, sizeof(*old));
    bool ok = to && old;
    if (ok) {
        memset(to, 0xff, stack_count * sizeof(*to));
        memset(old, 0xff, row_count * sizeof(*old));
    }
    for (uint32_t i = 0; ok && i < sides[1].count; i++)
        to[stacks[1][i]] = of[1][i];
    for (uint32_t i = 0; ok && i < sides[0].count; i++) {
        uint32_t named = to[stacks[0][i]];
        if (named != UINT32_MAX && old[of[0][i]] == UINT32_MAX)
            old[of[0][i]] = named;
    }
    for (uint32_t i = 0; ok && i < sides[0].count; i++) {
        uint32_t named = to[stacks[0][i]];
        of[0][i] = named != UINT32_MAX ? named : old[of[0][i]] != UINT32_MAX ? old[of[0][i]] : of[0][i];
    }
    free(to);
    free(old);
    return ok;
}

/* Whether both recordings have memory of the row. */
static bool rows_paired(struct rows_side sides[2], struct gp_gate_rows *rows)
{
    uint8_t *seen = calloc(rows->count + 1ul, 1);
    for (int side = 0; seen && side < 2; side++)
        for (uint32_t i = 1; i < sides[side].count; i++) /* site 0 is the unknown one */
            seen[rows->of[side][i]] |= (uint8_t)(1 << side);
    for (uint32_t i = 0; seen && i < rows->count; i++)
        rows->paired += seen[i] == 3;
    bool ok = seen;
    free(seen);
    return ok;
}

static const char *rows_why(struct rows_side sides[2], uint32_t paired)
{
    const char *one = sides[0].report->recording->comm, *other = sides[1].report->recording->comm;
    if (paired)
        return "";
    if (sides[0].count <= 1 && sides[1].count <= 1)
        return "neither recording has call sites: record with --stacks=all";
    if (sides[0].count <= 1 || sides[1].count <= 1)
        return sides[0].count <= 1 ? "the recording before has no call sites: record it with --stacks=all"
                                   : "the recording after has no call sites: record it with --stacks=all";
    if (strcmp(one, other) != 0)
        return "no call site is in both: they are recordings of programs with different names";
    return "no call site is in both: no functions and source files of the two programs agree";
}

bool gp_gate_match(const struct gp_report *const reports[2], enum gp_gate_by by, struct gp_gate_rows *rows)
{
    struct rows_side sides[2] = {{0}, {0}};
    struct rows_names names = {0};
    uint32_t *stacks[2] = {NULL, NULL}, stack_count = 0;
    *rows = (struct gp_gate_rows){.why = ""};
    bool ok = side_new(&sides[0], reports[0]) && side_new(&sides[1], reports[1]);
    if (ok) {
        const char *const *const files[2] = {sides[0].files, sides[1].files};
        const uint32_t counts[2] = {sides[0].file_count, sides[1].file_count};
        uint32_t *const ids[2] = {sides[0].ids, sides[1].ids};
        sides[0].names = sides[1].names = &names;
        sides[0].classes = sides[1].classes = sides[0].classes && sides[1].classes;
        ok = gp_diff_files(files, counts, ids) && names_pair(sides, true) && names_pair(sides, false);
    }
    for (int side = 0; ok && side < 2; side++) {
        rows->of[side] = calloc(sides[side].count + 1ul, sizeof(*rows->of[side]));
        stacks[side] = calloc(sides[side].count + 1ul, sizeof(*stacks[side]));
        ok = rows->of[side] && stacks[side];
    }
    ok = ok && rows_number(sides, side_key, by == GP_GATE_SITE ? rows->of : stacks,
                           by == GP_GATE_SITE ? &rows->count : &stack_count);
    if (ok && by != GP_GATE_SITE)
        ok = rows_number(sides, by == GP_GATE_LINE ? side_key_line : side_key_operation, rows->of, &rows->count) &&
             rows_unite(sides, stacks, stack_count, rows->of, rows->count);
    ok = ok && rows_paired(sides, rows);
    if (ok)
        rows->why = rows_why(sides, rows->paired);
    for (int side = 0; side < 2; side++) {
        free(stacks[side]);
        side_free(&sides[side]);
    }
    free(names.names);
    free(names.same);
    gp_hash_free(&names.known);
    return ok;
}

void gp_gate_rows_free(struct gp_gate_rows *rows)
{
    free(rows->of[0]);
    free(rows->of[1]);
}

const char *gp_gate_by_name(unsigned by)
{
    static const char *const names[] = {"site", "line", "operation", "use"};
    return by < sizeof(names) / sizeof(names[0]) ? names[by] : NULL;
}
