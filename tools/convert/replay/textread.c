/* SPDX-License-Identifier: MIT
 * textread.c: reads and writes the text form of a trace, `gpuprof.trace/1`, one operation per line
 * (docs/traces.md). Called by open.c and by `gpuprof generate`.
 *
 * Bounds: each byte is looked at a constant number of times; a line becomes at most one operation,
 * and there are at most GP_REPLAY_OPS of them. */
#include "trace.h"
#include <read/recording/input.h>

#include <base/compiler.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define GP_TEXT_VERSION GP_INPUT_TRACE_NAME
/* The longest operation is below 80 characters; a mark's name may be that of a source line. */
#define GP_TEXT_LINE 1024

enum gp_text_field { GP_END, GP_NAME, GP_BYTES, GP_STREAM, GP_THREAD, GP_DEVICE, GP_REST };

/* Every operation: its word and its fields in order; those from `needed` on may be left out and are
 * 0. */
static const struct gp_text_row {
    const char *word;
    enum gp_replay_kind kind;
    uint8_t needed;
    uint8_t fields[6];
} gp_text_rows[] = {
    {"alloc", GP_REPLAY_ALLOC, 2, {GP_NAME, GP_BYTES, GP_STREAM, GP_THREAD, GP_DEVICE}},
    {"free", GP_REPLAY_FREE, 1, {GP_NAME, GP_STREAM, GP_THREAD}},
    {"record_stream", GP_REPLAY_RECORD, 2, {GP_NAME, GP_STREAM, GP_THREAD}},
    {"pool_begin", GP_REPLAY_POOL_BEGIN, 2, {GP_BYTES, GP_STREAM, GP_THREAD, GP_DEVICE}},
    {"pool_end", GP_REPLAY_POOL_END, 1, {GP_BYTES, GP_THREAD, GP_DEVICE}},
    {"pool_release", GP_REPLAY_POOL_RELEASE, 1, {GP_BYTES, GP_THREAD, GP_DEVICE}},
    {"sync", GP_REPLAY_SYNC, 0, {GP_STREAM, GP_THREAD, GP_DEVICE}},
    {"empty_cache", GP_REPLAY_EMPTY, 0, {GP_THREAD, GP_DEVICE}},
    {"limit", GP_REPLAY_LIMIT, 1, {GP_BYTES, GP_THREAD, GP_DEVICE}},
    {"step", GP_REPLAY_STEP, 1, {GP_BYTES, GP_THREAD}},
    {"mark", GP_REPLAY_MARK, 2, {GP_THREAD, GP_REST}},
};

struct gp_text_values {
    uint64_t name, bytes;
    uint32_t stream, thread, device;
    const char *rest;
    size_t rest_length;
};

struct gp_text_line {
    const char *at, *end;
};

static void text_blank(struct gp_text_line *line)
{
    while (line->at < line->end && (*line->at == ' ' || *line->at == '\t'))
        line->at++;
}

static bool text_word(struct gp_text_line *line, struct gp_text_line *word)
{
    text_blank(line);
    word->at = line->at;
    while (line->at < line->end && *line->at != ' ' && *line->at != '\t')
        line->at++;
    word->end = line->at;
    return word->end > word->at;
}

/* Accepts decimal digits only.  False: another character, or a number above `most`. */
static bool text_number(struct gp_text_line word, uint64_t most, uint64_t *value)
{
    *value = 0;
    for (; word.at < word.end; word.at++) {
        if (*word.at < '0' || *word.at > '9' || __builtin_mul_overflow(*value, 10u, value) ||
            __builtin_add_overflow(*value, (uint64_t)(*word.at - '0'), value))
            return false;
    }
    return *value <= most;
}

static bool text_field(struct gp_text_line *line, uint8_t field, struct gp_text_line word, struct gp_text_values *v)
{
    uint64_t number = 0;
    if (field == GP_REST) {
        v->rest = word.at;
        v->rest_length = (size_t)(line->end - word.at);
        line->at = line->end;
        return true;
    }
    if (field == GP_STREAM && word.end - word.at == 3 && memcmp(word.at, "any", 3) == 0) {
        v->stream = GP_REPLAY_ANY;
        return true;
    }
    if (!text_number(word, field == GP_NAME || field == GP_BYTES ? UINT64_MAX : UINT32_MAX - 1, &number))
        return false;
    if (field == GP_NAME)
        v->name = number;
    else if (field == GP_BYTES)
        v->bytes = number;
    else
        *(field == GP_STREAM ? &v->stream : field == GP_THREAD ? &v->thread : &v->device) = (uint32_t)number;
    return true;
}

static int text_apply(struct gp_replay_builder *b, const struct gp_text_row *row, const struct gp_text_values *v)
{
    bool any = row->kind == GP_REPLAY_POOL_BEGIN || row->kind == GP_REPLAY_SYNC;
    if (v->stream == GP_REPLAY_ANY && !any && row->kind != GP_REPLAY_FREE) {
        gp_replay_say(&b->problem, "%s: 'any' is no stream here", row->word);
        return -EINVAL;
    }
    switch (row->kind) {
    case GP_REPLAY_ALLOC:
        return gp_replay_alloc(b, v->name, v->bytes, v->stream, v->thread, v->device);
    case GP_REPLAY_FREE:
        return gp_replay_free(b, v->name, v->stream, v->thread);
    case GP_REPLAY_RECORD:
        return gp_replay_record(b, v->name, v->stream, v->thread);
    case GP_REPLAY_MARK:
        return gp_replay_mark(b, v->rest, v->rest_length, v->thread);
    default:
        return gp_replay_other(b, row->kind, v->bytes, any ? v->stream : GP_REPLAY_ANY, v->thread, v->device);
    }
}

static int text_operation(struct gp_replay_builder *b, struct gp_text_line line)
{
    struct gp_text_line word;
    struct gp_text_values values = {0};
    const struct gp_text_row *row = NULL;
    if (!text_word(&line, &word) || *word.at == '#')
        return 0;
    for (size_t i = 0; i < GP_COUNT(gp_text_rows); i++) {
        if (strlen(gp_text_rows[i].word) == (size_t)(word.end - word.at) &&
            memcmp(gp_text_rows[i].word, word.at, (size_t)(word.end - word.at)) == 0)
            row = &gp_text_rows[i];
    }
    if (!row) {
        gp_replay_say(&b->problem, "no such operation in " GP_TEXT_VERSION);
        return -EINVAL;
    }
    if (row->kind == GP_REPLAY_SYNC || row->kind == GP_REPLAY_FREE)
        values.stream = GP_REPLAY_ANY;
    for (unsigned i = 0; row->fields[i] != GP_END; i++) {
        if (!text_word(&line, &word)) {
            if (i >= row->needed)
                break;
            gp_replay_say(&b->problem, "%s: %u fields are needed, %u are there", row->word, row->needed, i);
            return -EINVAL;
        }
        if (!text_field(&line, row->fields[i], word, &values)) {
            gp_replay_say(&b->problem, "%s: field %u is not a number, or too large", row->word, i + 1);
            return -EINVAL;
        }
    }
    if (text_word(&line, &word)) {
        gp_replay_say(&b->problem, "%s: more fields than it has", row->word);
        return -EINVAL;
    }
    return text_apply(b, row, &values);
}

int gp_replay_text(struct gp_replay_builder *b, const uint8_t *data, size_t bytes)
{
    const char *at = (const char *)data, *end = at + bytes;
    int rc = 0;
    for (uint64_t number = 1; !rc && at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        struct gp_text_line line = {at, stop ? stop : end};
        at = stop ? stop + 1 : end;
        while (line.end > line.at && (line.end[-1] == '\r' || line.end[-1] == ' ' || line.end[-1] == '\t'))
            line.end--;
        b->problem.line = number;
        if (line.end - line.at > GP_TEXT_LINE || memchr(line.at, '\0', (size_t)(line.end - line.at))) {
            gp_replay_say(&b->problem, "longer than %d characters, or not text", GP_TEXT_LINE);
            return -EINVAL;
        }
        if (number > 1) /* the first is the version */
            rc = text_operation(b, line);
    }
    return rc;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void text_put(FILE *out, const struct gp_replay_trace *trace, const struct gp_replay_op *op)
{
    const struct gp_text_row *row = gp_text_rows;
    while (row->kind != op->kind)
        row++;
    fputs(row->word, out);
    for (unsigned i = 0; row->fields[i] != GP_END; i++) {
        switch (row->fields[i]) {
        case GP_NAME:
            fprintf(out, " %" PRIu32, op->block);
            break;
        case GP_BYTES:
            fprintf(out, " %" PRIu64, op->bytes);
            break;
        case GP_REST:
            fprintf(out, " %s", trace->names[op->block]);
            break;
        case GP_STREAM:
            if (op->stream == GP_REPLAY_ANY)
                fputs(" any", out);
            else
                fprintf(out, " %" PRIu32, op->stream);
            break;
        default:
            fprintf(out, " %u", row->fields[i] == GP_THREAD ? op->thread : op->device);
        }
    }
    fputc('\n', out);
}

int gp_replay_write(FILE *out, const struct gp_replay_trace *trace)
{
    errno = 0;
    fprintf(out, GP_TEXT_VERSION "\n");
    for (uint32_t i = 0; i < trace->count; i++)
        text_put(out, trace, &trace->ops[i]);
    return fflush(out) != 0 || ferror(out) ? -(errno ? errno : EIO) : 0;
}
