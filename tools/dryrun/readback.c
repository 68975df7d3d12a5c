/* SPDX-License-Identifier: MIT
 *
 * readback.c: the results that a program read back in a dry run, by the line of the user's that
 * asked for them; see job.h. The simulated driver writes them to a file while it runs, which a
 * program may have changed.
 */
#include <base/text.h>
#include <common/messages.h>
#include <dryrun/dryrun.h>
#include <dryrun/job.h>
#include <read/common/hash.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symbol/symbol.h>

#define GP_READS_BYTES  (8u << 20) /* of the file */
#define GP_READS_PLACES 4096u      /* of all processes */
#define GP_READS_MOST   (1ull << 60)

struct reads_work {
    struct gp_dryrun_run *run;
    struct gp_hash known; /* of a process and its frames: index in rows */
    struct gp_dryrun_read rows[GP_READS_PLACES];
    uint32_t count;
};

/* "FILE:LINE:FUNCTION" */
static bool reads_frame(char *text, struct gp_need_place *place)
{
    char *function = strrchr(text, ':'), *line = NULL;
    if (!function)
        return false;
    *function++ = '\0';
    line = strrchr(text, ':');
    if (!line || line[1 + strspn(line + 1, "0123456789")] || strlen(line + 1) > 9)
        return false;
    *line++ = '\0';
    gp_text_clean(place->file, sizeof(place->file), text, strlen(text));
    gp_text_clean(place->function, sizeof(place->function), function, strlen(function));
    place->line = (uint32_t)strtoul(line, NULL, 10);
    return true;
}

/* The innermost frame of the user's own, or of the package that it only started; without both the
 * outermost. */
static void reads_place(char *frames, struct gp_need_place *place)
{
    struct gp_need_place command = {0}; /* the innermost of the frames so far that may be of `python -c` */
    char *text;
    bool found = false, package = false;
    while (!found && (text = strsep(&frames, "\t"))) {
        struct gp_need_place frame = {0};
        if (!reads_frame(text, &frame))
            continue;
        enum gp_frame_role role = gp_role_of_python(frame.function, frame.file);
        found = (role == GP_ROLE_USER || role == GP_ROLE_WRAPPER) &&
                !(package && gp_role_is_launcher(frame.function, frame.file));
        if (found || !package)
            *place = frame;
        package |= gp_role_is_package(frame.file);
        if (strcmp(frame.file, "<string>") != 0)
            command.function[0] = '\0';
        else if (!command.function[0])
            command = frame;
    }
    if (!found && command.function[0] && !(package && gp_role_is_launcher(command.function, command.file)))
        *place = command;
    const char *base = strrchr(place->file, '/');
    if (!place->function[0])
        return;
    char label[sizeof(place->text)]; /* the compiler sees one object in `place`, and would warn of an overlap */
    snprintf(label, sizeof(label), "%s (%.100s:%u)", place->function, base ? base + 1 : place->file, place->line);
    memcpy(place->text, label, strlen(label) + 1);
}

/* A line "PID<TAB>COUNT<TAB>BYTES<TAB>FRAME..": the counts of a place only rise. */
static bool reads_line(struct reads_work *w, char *line)
{
    uint64_t numbers[3];
    char *end = line;
    for (unsigned i = 0; i < 3; i++) {
        line = end;
        numbers[i] = strtoull(line, &end, 10);
        if (*line < '0' || *line > '9' || (*end != '\t' && !(i == 2 && !*end)) || numbers[i] > GP_READS_MOST)
            return true;
        end += *end == '\t';
    }
    uint64_t hash = gp_hash_of_number(numbers[0]) ^ gp_hash_of_text(end);
    bool added = false;
    const uint32_t *at = gp_hash_add(&w->known, hash, NULL, NULL, w->count, &added);
    if (!at)
        return false;
    uint32_t index = *at;
    if (added && w->count == GP_READS_PLACES)
        return true; /* more than a person reads */
    if (added) {
        w->rows[w->count] = (struct gp_dryrun_read){0};
        reads_place(end, &w->rows[w->count++].place);
    }
    if (index < w->count) {
        GP_RAISE(w->rows[index].count, (int64_t)numbers[1]);
        GP_RAISE(w->rows[index].bytes, (int64_t)numbers[2]);
    }
    return true;
}

static int reads_by_place(const void *one, const void *other)
{
    const struct gp_dryrun_read *a = one, *b = other;
    int order = strcmp(a->place.file, b->place.file);
    order = order ? order : GP_ORDER(a->place.line, b->place.line);
    return order ? order : strcmp(a->place.function, b->place.function);
}

static int reads_by_count(const void *one, const void *other)
{
    const struct gp_dryrun_read *a = one, *b = other;
    return a->count != b->count ? GP_ORDER(b->count, a->count) : reads_by_place(one, other);
}

/* One row for each place. */
static void reads_join(struct reads_work *w)
{
    uint32_t joined = 0;
    qsort(w->rows, w->count, sizeof(w->rows[0]), reads_by_place);
    for (uint32_t i = 0; i < w->count; i++) {
        if (joined && reads_by_place(&w->rows[joined - 1], &w->rows[i]) == 0) {
            w->rows[joined - 1].count += w->rows[i].count;
            w->rows[joined - 1].bytes += w->rows[i].bytes;
        } else {
            w->rows[joined++] = w->rows[i];
        }
    }
    w->count = joined;
    qsort(w->rows, w->count, sizeof(w->rows[0]), reads_by_count);
}

int gp_dryrun_readback(struct gp_dryrun_run *run, const char *path)
{
    char *text = NULL;
    struct reads_work *w = calloc(1, sizeof(*w));
    bool ok = w && gp_dryrun_text(path, GP_READS_BYTES, &text);
    char *rest = text, *line;
    while (ok && (line = strsep(&rest, "\n")))
        ok = reads_line(w, line);
    if (ok) {
        reads_join(w);
        run->reads = calloc(w->count + 1ul, sizeof(*run->reads));
        ok = run->reads;
    }
    if (ok) {
        memcpy(run->reads, w->rows, w->count * sizeof(*run->reads));
        run->read_count = w->count;
    }
    if (w)
        gp_hash_free(&w->known);
    free(w);
    free(text);
    return ok ? GP_EXIT_OK : gp_memory_error("dryrun");
}
