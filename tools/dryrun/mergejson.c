/* SPDX-License-Identifier: MIT
 * mergejson.c: an answer of `dryrun --json` (show/text/dryrunjson.c writes it) read back: see merge.h.  Its numbers are somebody
 * else's: each is looked at, and texts are cleaned. */
#include <base/compiler.h>
#include <base/text.h>
#include <common/values.h>
#include <dryrun/merge.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GP_SAID_ROWS  65536 /* of one list */
#define GP_SAID_BYTES (INT64_C(1) << 50)

struct said_reader {
    char *why;
    bool failed;
};

static void said_wrong(struct said_reader *reader, const char *key, const char *what)
{
    if (!reader->failed)
        snprintf(reader->why, GP_NEED_TEXT, "\"%s\" is %s: the answer is damaged, or of another version of gpuprof",
                 key, what);
    reader->failed = true;
}

/* A number from 0 on; `none` where it is null or the key is missing, if that may be (below 0 it may). */
static int64_t said_number(struct said_reader *reader, const json_t *object, const char *key, int64_t most,
                           int64_t none)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value)) {
        if (none == INT64_MIN || (value && !json_is_null(value)))
            said_wrong(reader, key, value ? "not a whole number" : "missing");
        return none == INT64_MIN ? 0 : none;
    }
    if (json_integer_value(value) < 0 || json_integer_value(value) > most) {
        said_wrong(reader, key, "out of range");
        return 0;
    }
    return json_integer_value(value);
}

static int64_t said_bytes(struct said_reader *reader, const json_t *object, const char *key)
{
    return said_number(reader, object, key, GP_SAID_BYTES, INT64_MIN);
}

static void said_text(char *to, size_t bytes, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    gp_text_clean(to, bytes, text ? text : "", text ? strlen(text) : 0);
}

/* The rows of a list, and room for so many; NULL and failed: it is no list, or there is no memory. */
static void *said_rows(struct said_reader *reader, const json_t *object, const char *key, size_t each, uint32_t *count)
{
    const json_t *list = json_object_get(object, key);
    *count = 0;
    if (!json_is_array(list) || json_array_size(list) > GP_SAID_ROWS) {
        said_wrong(reader, key, list ? "no list, or too long" : "missing");
        return NULL;
    }
    void *rows = calloc(json_array_size(list) + 1, each);
    if (rows)
        *count = (uint32_t)json_array_size(list);
    else
        said_wrong(reader, key, "more than there is memory for");
    return rows;
}

static const json_t *said_row(const json_t *object, const char *key, uint32_t i)
{
    return json_array_get(json_object_get(object, key), i);
}

static void said_place(struct said_reader *reader, const json_t *row, struct gp_need_place *place)
{
    said_text(place->function, sizeof(place->function), row, "function");
    said_text(place->file, sizeof(place->file), row, "file");
    said_text(place->operation, sizeof(place->operation), row, "operation");
    said_text(place->text, sizeof(place->text), row, "text");
    place->line = (uint32_t)said_number(reader, row, "line", INT_MAX, 0);
    if (!place->text[0]) /* of a version that did not write it */
        snprintf(place->text, sizeof(place->text), "%.100s %.100s", place->function, place->operation);
}

/* ---- a rank ------------------------------------------------------------------------------------------------------ */

static void rank_uses(struct said_reader *reader, const json_t *row, struct gp_need *need)
{
    const json_t *uses = json_object_get(row, "uses"), *sure = json_object_get(row, "uses_sure");
    for (unsigned use = 0; use < GP_USES; use++) {
        const char *name = use == GP_USE_WORKSPACE ? "workspaces" : gp_use_name((enum gp_use)use);
        need->uses[use] = said_number(reader, uses, name, GP_SAID_BYTES, 0);
        const json_t *its = json_object_get(sure, name);
        need->sure[use] = json_is_number(its) ? json_number_value(its) : 0;
    }
}

static void rank_lines(struct said_reader *reader, const json_t *row, struct gp_need *need)
{
    need->lines = said_rows(reader, row, "holders", sizeof(*need->lines), &need->line_count);
    for (uint32_t i = 0; i < need->line_count; i++) {
        const json_t *line = said_row(row, "holders", i);
        struct gp_need_line *to = &need->lines[i];
        char use[32];
        said_place(reader, line, &to->place);
        said_text(use, sizeof(use), line, "use");
        to->use = GP_USE_UNKNOWN;
        for (unsigned k = 0; k < GP_USES; k++)
            if (strcmp(use, gp_use_name((enum gp_use)k)) == 0)
                to->use = (enum gp_use)k;
        to->bytes = said_bytes(reader, line, "bytes");
        to->count = said_bytes(reader, line, "blocks");
        to->life_ns = (uint64_t)said_number(reader, line, "life_ns", INT64_MAX, 0);
        to->spared_bytes = said_number(reader, line, "spared_bytes", GP_SAID_BYTES, 0);
    }
}

static void rank_refused(struct said_reader *reader, const json_t *row, struct gp_need *need)
{
    need->refused = said_rows(reader, row, "refused", sizeof(*need->refused), &need->refused_count);
    for (uint32_t i = 0; i < need->refused_count; i++) {
        const json_t *refused = said_row(row, "refused", i);
        need->refused[i].bytes = said_bytes(reader, refused, "bytes");
        need->refused[i].count = said_bytes(reader, refused, "count");
        said_place(reader, refused, &need->refused[i].place);
    }
}

static void rank_stands(struct said_reader *reader, const json_t *row, struct gp_need *need)
{
    if (!json_is_array(json_object_get(row, "stands_for"))) {
        said_wrong(reader, "stands_for", "no list: it is not of a job of --world=N");
        return;
    }
    need->stands_for = said_rows(reader, row, "stands_for", sizeof(*need->stands_for), &need->stands_count);
    for (uint32_t i = 0; i < need->stands_count; i++) {
        const json_t *rank = said_row(row, "stands_for", i);
        if (!json_is_integer(rank) || json_integer_value(rank) < 0 || json_integer_value(rank) >= GP_WORLD_MOST)
            said_wrong(reader, "stands_for", "no list of ranks");
        need->stands_for[i] = (int32_t)json_integer_value(rank);
    }
}

static void rank_steps(struct said_reader *reader, const json_t *row, struct gp_need *need)
{
    static const char *const found[] = {"optimizer", "backward", "calls", "marks", "ranges", "repeats", "given"};
    char text[24];
    said_text(text, sizeof(text), row, "steps_found");
    need->steps_found = "";
    for (size_t i = 0; i < GP_COUNT(found); i++)
        if (strcmp(text, found[i]) == 0)
            need->steps_found = found[i];
    need->steps = (uint32_t)said_number(reader, row, "steps", INT_MAX, 0);
    need->repeats = (uint32_t)said_number(reader, row, "repeats", INT_MAX, 0);
    need->repeats_sure = json_number_value(json_object_get(row, "repeats_sure"));
    need->peak_step = (uint32_t)said_number(reader, row, "peak_step", INT_MAX, 0);
    need->peak_ns = (uint64_t)said_number(reader, row, "peak_ns", INT64_MAX, 0);
}

static void rank_read(struct said_reader *reader, const json_t *row, struct gp_need *need)
{
    need->rank = (int32_t)said_number(reader, row, "rank", GP_WORLD_MOST - 1, -1);
    need->pid = (uint32_t)said_number(reader, row, "pid", UINT32_MAX, 0);
    need->device = (int32_t)said_number(reader, row, "device", INT_MAX, 0);
    said_text(need->comm, sizeof(need->comm), row, "comm");
    said_text(need->uuid, sizeof(need->uuid), row, "uuid");
    need->complete = !json_is_false(json_object_get(row, "complete"));
    need->missing = (uint64_t)said_number(reader, row, "missing_events", INT64_MAX, 0);
    need->allocated_peak_bytes = said_bytes(reader, row, "allocated_peak_bytes");
    need->reserved_peak_bytes = said_bytes(reader, row, "reserved_peak_bytes");
    need->needed_bytes = said_bytes(reader, row, "needed_bytes");
    need->smallest_bytes = said_bytes(reader, row, "smallest_bytes");
    need->context_bytes = said_bytes(reader, row, "context_bytes");
    need->code_bytes = said_number(reader, row, "code_bytes", GP_SAID_BYTES, 0);
    need->stack = (uint32_t)said_number(reader, row, "thread_stack_bytes", 512 << 10, 0);
    need->assumed_bytes = said_number(reader, row, "assumed_bytes", GP_SAID_BYTES, 0);
    need->assumed_reserved_bytes = said_number(reader, row, "assumed_reserved_bytes", GP_SAID_BYTES, 0);
    need->growable_bytes = said_number(reader, row, "expandable_segments_bytes", GP_SAID_BYTES, -1);
    const json_t *pool = json_object_get(row, "polled_pool");
    if (json_is_object(pool)) {
        need->ahead.pool_bytes = (uint64_t)said_bytes(reader, pool, "pool_bytes");
        need->ahead.peak_bytes = (uint64_t)said_bytes(reader, pool, "peak_bytes");
        need->ahead_told = true;
    }
    rank_uses(reader, row, need);
    rank_lines(reader, row, need);
    rank_refused(reader, row, need);
    rank_stands(reader, row, need);
    rank_steps(reader, row, need);
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

const char *gp_dryrun_said_gpu(const json_t *top, char why[GP_NEED_TEXT])
{
    const char *schema = json_string_value(json_object_get(top, "schema"));
    const json_t *gpus = json_object_get(top, "gpus");
    if (!schema || strcmp(schema, "gpuprof.dryrun/1") != 0) {
        snprintf(why, GP_NEED_TEXT, "it is JSON, and no answer of 'gpuprof dryrun --json'");
        return NULL;
    }
    const char *name = json_string_value(json_object_get(json_array_get(gpus, 0), "gpu"));
    if (!name)
        snprintf(why, GP_NEED_TEXT, "it names no GPU: the answer is damaged");
    return name;
}

/* The row of the GPU among "gpus"; NULL with the reason. */
static const json_t *said_gpu(struct said_reader *reader, const json_t *top, const char *gpu)
{
    const json_t *gpus = json_object_get(top, "gpus");
    for (size_t i = 0; i < json_array_size(gpus); i++) {
        const json_t *row = json_array_get(gpus, i);
        const char *name = json_string_value(json_object_get(row, "gpu"));
        if (name && strcmp(name, gpu) == 0)
            return row;
    }
    char other[64];
    said_text(other, sizeof(other), json_array_get(gpus, 0), "gpu");
    snprintf(reader->why, GP_NEED_TEXT, "it is an answer about the GPU %s, not %s", other, gpu);
    reader->failed = true;
    return NULL;
}

static void said_ranks(struct said_reader *reader, const json_t *top, const char *gpu, struct gp_dryrun_run *run)
{
    uint32_t count;
    run->needs = said_rows(reader, top, "ranks", sizeof(*run->needs), &count);
    for (uint32_t i = 0; i < count; i++) {
        const json_t *row = said_row(top, "ranks", i);
        const char *its = json_string_value(json_object_get(row, "gpu"));
        if (!its || strcmp(its, gpu) != 0)
            continue;
        rank_read(reader, row, &run->needs[run->need_count++]);
        run->plenty |= json_is_true(json_object_get(row, "plenty"));
    }
    if (!run->need_count && !reader->failed) {
        snprintf(reader->why, GP_NEED_TEXT, "it has no rank that used a GPU");
        reader->failed = true;
    }
}

static void said_notes(struct said_reader *reader, const json_t *top, struct gp_dryrun_run *run)
{
    run->notes = said_rows(reader, top, "assumptions", sizeof(*run->notes), &run->note_count);
    for (uint32_t i = 0; i < run->note_count; i++) {
        const json_t *row = said_row(top, "assumptions", i);
        said_text(run->notes[i].library, sizeof(run->notes[i].library), row, "library");
        said_text(run->notes[i].kind, sizeof(run->notes[i].kind), row, "kind");
        said_text(run->notes[i].text, sizeof(run->notes[i].text), row, "what");
        run->notes[i].count = (uint64_t)said_number(reader, row, "count", INT64_MAX, 1);
    }
    run->reads = said_rows(reader, top, "read_back", sizeof(*run->reads), &run->read_count);
    for (uint32_t i = 0; i < run->read_count; i++) {
        const json_t *row = said_row(top, "read_back", i);
        said_place(reader, row, &run->reads[i].place);
        run->reads[i].count = said_bytes(reader, row, "count");
        run->reads[i].bytes = said_bytes(reader, row, "bytes");
    }
}

/* Of the GPU; requests without a limit of tokens have no room to be counted in. */
static void said_caches(struct said_reader *reader, const json_t *top, const char *gpu, struct gp_dryrun_run *run)
{
    uint32_t count;
    if (!json_object_get(top, "kv_caches")) /* an earlier gpuprof's */
        return;
    run->caches = said_rows(reader, top, "kv_caches", sizeof(*run->caches), &count);
    for (uint32_t i = 0; i < count; i++) {
        const json_t *row = said_row(top, "kv_caches", i);
        const char *its = json_string_value(json_object_get(row, "gpu"));
        const double requests = json_number_value(json_object_get(row, "requests"));
        struct gp_dryrun_cache cache = {.tokens = said_number(reader, row, "tokens", GP_SAID_BYTES, 0),
                                        .request_tokens = said_number(reader, row, "request_tokens", GP_SAID_BYTES, 0),
                                        .count = said_number(reader, row, "processes", GP_SAID_BYTES, 1)};
        said_text(cache.server, sizeof(cache.server), row, "server");
        cache.hundredths = requests > 0 && requests < 1e12 ? (int64_t)(requests * 100 + 0.5) : 0;
        if (its && strcmp(its, gpu) == 0 && cache.tokens && cache.request_tokens)
            run->caches[run->cache_count++] = cache;
    }
}

int gp_dryrun_said(struct gp_dryrun_said *said, const json_t *top, const char *gpu, char why[GP_NEED_TEXT])
{
    struct said_reader reader = {.why = why};
    struct gp_dryrun_run *run = &said->run;
    *said = (struct gp_dryrun_said){.needed_bytes = -1, .smallest_bytes = -1};
    const json_t *row = said_gpu(&reader, top, gpu);
    if (row) {
        const char *verdict = json_string_value(json_object_get(row, "verdict"));
        said->too_large = verdict && strcmp(verdict, "does_not_fit") == 0;
        said->total_bytes = said_bytes(&reader, row, "total_bytes");
        said->needed_bytes = said_number(&reader, row, "needed_bytes", GP_SAID_BYTES, -1);
        said->smallest_bytes = said_number(&reader, row, "smallest_bytes", GP_SAID_BYTES, -1);
        run->world = (uint32_t)said_number(&reader, top, "world", GP_WORLD_MOST, 0);
        run->status = (int)said_number(&reader, top, "status", 255, 0);
        run->ended = json_is_true(json_object_get(top, "ended"));
        run->cut = (uint32_t)said_number(&reader, top, "cut_recordings", INT_MAX, 0);
        run->written_bytes = said_number(&reader, top, "written_bytes", INT64_MAX, 0);
        if (!run->world && !reader.failed) {
            snprintf(why, GP_NEED_TEXT, "it is not of a job of --world=N");
            reader.failed = true;
        }
        said_ranks(&reader, top, gpu, run);
        said_notes(&reader, top, run);
        said_caches(&reader, top, gpu, run);
    }
    /* A rank of another job would be a row of this one. */
    for (uint32_t i = 0; i < run->need_count; i++) {
        if (run->needs[i].rank >= (int32_t)run->world)
            said_wrong(&reader, "rank", "not in the job");
        for (uint32_t k = 0; k < run->needs[i].stands_count; k++)
            if (run->needs[i].stands_for[k] >= (int32_t)run->world)
                said_wrong(&reader, "stands_for", "not of the job");
    }
    return reader.failed ? -EPROTO : 0;
}
