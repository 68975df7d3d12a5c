/* SPDX-License-Identifier: MIT
 * rows.c: finds the call sites of two recordings that are the same, by what a reader sees of them: the
 * functions of the user's own code, their files below the folder of the program, and the operation of a
 * framework.  Another version of Python or of a library, or another folder, changes none of that.
 */
#include <gate/gate.h>
#include <symbol/symbol.h>

#include <common/hash.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct rows_site {
    char *key;
    uint32_t *lines;
    uint32_t line_count;
};

struct rows_side {
    const struct gp_report *report;
    struct rows_site *sites;
    uint32_t count;
    const char **files; /* of frames; the strings are the symbols' */
    uint32_t *ids, file_count, file_room;
    struct gp_hash known; /* the number of a file by its text: the symbols keep each text once */
};

static bool is_users(const struct gp_frame_text *frame)
{
    return frame->role == GP_ROLE_USER || frame->role == GP_ROLE_WRAPPER;
}

/* Until Python 3.11 a function has no class, and from 3.12 on a comprehension has no frame. */
static const char *rows_function(const struct gp_frame_text *frame)
{
    const char *function = frame->plain ? frame->plain : frame->function, *dot;
    if (!frame->python)
        return function;
    dot = strrchr(function, '.');
    function = dot ? dot + 1 : function;
    return strcmp(function, "<listcomp>") == 0 || strcmp(function, "<dictcomp>") == 0 ||
                   strcmp(function, "<setcomp>") == 0
               ? NULL
               : function;
}

static bool rows_is_row(const struct gp_frame_text *frame)
{
    return is_users(frame) && !frame->folded && rows_function(frame);
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
        for (uint32_t k = 0; k < count; k++)
            if (rows_is_row(&frames[k]) && !side_file(side, frames[k].file))
                return false;
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

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static void key_frame(struct rows_side *side, FILE *out, struct rows_site *to, const struct gp_frame_text *frame)
{
    const uint32_t *file = side_file(side, frame->file);
    fprintf(out, "%s\t%u\t%s\n", rows_function(frame), file && frame->file[0] ? side->ids[*file] + 1 : 0,
            frame->file[0] ? "" : frame->module);
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
static void key_libraries(FILE *out, const struct gp_frame_text *frames, uint32_t count)
{
    bool python = false;
    for (uint32_t i = 0; i < count; i++)
        python |= frames[i].python;
    for (uint32_t i = 0; i < count; i++) {
        const struct gp_frame_text *frame = &frames[i];
        const char *function = rows_function(frame), *slash = strrchr(frame->file, '/');
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
            if (rows_is_row(&frames[i]) && !frames[i].python == native)
                key_frame(side, out, to, &frames[i]);
    if (operation->text)
        key_operation(out, operation->text);
    else
        key_libraries(out, frames, count);
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
    if (rows_is_row(name))
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
    uint32_t *stacks[2] = {NULL, NULL}, stack_count = 0;
    *rows = (struct gp_gate_rows){.why = ""};
    bool ok = side_new(&sides[0], reports[0]) && side_new(&sides[1], reports[1]);
    if (ok) {
        const char *const *const files[2] = {sides[0].files, sides[1].files};
        const uint32_t counts[2] = {sides[0].file_count, sides[1].file_count};
        uint32_t *const ids[2] = {sides[0].ids, sides[1].ids};
        ok = gp_diff_files(files, counts, ids);
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
