/* SPDX-License-Identifier: MIT
 * trace.c: see replay.h. */
#include <base/numbers.h>
#include <convert/replay/replay.h>

#include <base/compiler.h>
#include <errno.h>
#include <inttypes.h>
#include <read/recording/recording.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- how a trace is built ---------------------------------------------------------------------------------------- */
/* Appends checked operations to a trace.  Called by every reader and generator. */

void gp_replay_say(struct gp_replay_problem *problem, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(problem->text, sizeof(problem->text), format, args);
    va_end(args);
}

/* ---- builder ----------------------------------------------------------------------------------------------------- */

void gp_replay_trace_free(struct gp_replay_trace *trace)
{
    for (uint32_t i = 0; i < trace->name_count; i++)
        free(trace->names[i]);
    free(trace->names);
    free(trace->ops);
    memset(trace, 0, sizeof(*trace));
}

void gp_replay_builder_free(struct gp_replay_builder *builder)
{
    gp_hash_free(&builder->live);
    gp_hash_free(&builder->streams);
}

static int builder_no(struct gp_replay_builder *b, int error, const char *what, uint64_t number)
{
    gp_replay_say(&b->problem, "%s%" PRIu64, what, number);
    return error;
}

static int builder_memory(struct gp_replay_builder *b)
{
    gp_replay_say(&b->problem, "out of memory");
    return -ENOMEM;
}

static void builder_most(uint32_t *most, uint32_t number)
{
    if (number >= *most)
        *most = number + 1;
}

static int builder_append(struct gp_replay_builder *b, struct gp_replay_op op)
{
    struct gp_replay_trace *trace = b->trace;
    if (op.stream != GP_REPLAY_ANY && op.stream >= GP_REPLAY_STREAMS)
        return builder_no(b, -ERANGE, "streams are numbered 0 to 1023, not ", op.stream);
    if (trace->count == GP_REPLAY_OPS)
        return builder_no(b, -E2BIG, "more operations than a trace may have: ", GP_REPLAY_OPS);
    if (trace->count == trace->room) {
        uint32_t room = trace->room ? 2 * trace->room : 1024;
        struct gp_replay_op *ops = realloc(trace->ops, room * sizeof(ops[0]));
        if (!ops)
            return builder_memory(b);
        trace->ops = ops;
        trace->room = room;
    }
    trace->ops[trace->count++] = op;
    builder_most(&trace->threads, op.thread);
    builder_most(&trace->devices, op.device);
    if (op.stream != GP_REPLAY_ANY)
        builder_most(&trace->streams, op.stream);
    return 0;
}

static int builder_place(struct gp_replay_builder *b, uint32_t thread, uint32_t device)
{
    if (thread >= GP_REPLAY_THREADS)
        return builder_no(b, -ERANGE, "threads are numbered 0 to 63, not ", thread);
    if (device >= GP_REPLAY_DEVICES)
        return builder_no(b, -ERANGE, "devices are numbered 0 to 15, not ", device);
    return 0;
}

int gp_replay_alloc(struct gp_replay_builder *b, uint64_t name, uint64_t bytes, uint32_t stream, uint32_t thread,
                    uint32_t device)
{
    uint32_t before;
    int rc = builder_place(b, thread, device);
    if (rc)
        return rc;
    if (bytes > GP_REPLAY_BYTES)
        return builder_no(b, -ERANGE, "more bytes than any allocator serves: ", bytes);
    if (gp_hash_get(&b->live, name, &before))
        return builder_no(b, -EEXIST, "a block of this name lives already: ", name);
    if (gp_hash_set(&b->live, name, b->trace->blocks) != 0)
        return builder_memory(b);
    struct gp_replay_op op = {.kind = GP_REPLAY_ALLOC,
                              .device = (uint8_t)device,
                              .thread = (uint16_t)thread,
                              .stream = stream,
                              .block = b->trace->blocks,
                              .bytes = bytes};
    rc = builder_append(b, op);
    b->trace->blocks += rc == 0;
    return rc;
}

static int builder_use(struct gp_replay_builder *b, enum gp_replay_kind kind, uint64_t name, uint32_t stream,
                       uint32_t thread)
{
    struct gp_replay_op op = {.kind = (uint8_t)kind, .thread = (uint16_t)thread, .stream = stream};
    int rc = builder_place(b, thread, 0);
    if (rc)
        return rc;
    if (!gp_hash_get(&b->live, name, &op.block))
        return builder_no(b, -ENOENT, "no block of this name is live: ", name);
    if (kind == GP_REPLAY_FREE)
        gp_hash_remove(&b->live, gp_hash_of_number(name), NULL, NULL);
    return builder_append(b, op);
}

int gp_replay_free(struct gp_replay_builder *b, uint64_t name, uint32_t stream, uint32_t thread)
{
    return builder_use(b, GP_REPLAY_FREE, name, stream, thread);
}

int gp_replay_record(struct gp_replay_builder *b, uint64_t name, uint32_t stream, uint32_t thread)
{
    return builder_use(b, GP_REPLAY_RECORD, name, stream, thread);
}

int gp_replay_other(struct gp_replay_builder *b, enum gp_replay_kind kind, uint64_t number, uint32_t stream,
                    uint32_t thread, uint32_t device)
{
    bool pool = kind == GP_REPLAY_POOL_BEGIN || kind == GP_REPLAY_POOL_END || kind == GP_REPLAY_POOL_RELEASE;
    int rc = builder_place(b, thread, device);
    if (rc)
        return rc;
    if (pool && number == 0)
        return builder_no(b, -ERANGE, "the pool may not be number ", 0);
    if (kind == GP_REPLAY_LIMIT && number > GP_REPLAY_BYTES)
        return builder_no(b, -ERANGE, "a limit beyond any device: ", number);
    return builder_append(b, (struct gp_replay_op){.kind = (uint8_t)kind,
                                                   .device = (uint8_t)device,
                                                   .thread = (uint16_t)thread,
                                                   .stream = stream,
                                                   .bytes = number});
}

int gp_replay_mark(struct gp_replay_builder *b, const char *name, size_t length, uint32_t thread)
{
    struct gp_replay_trace *trace = b->trace;
    int rc = builder_place(b, thread, 0);
    if (rc)
        return rc;
    if (trace->name_count == trace->name_room) {
        uint32_t room = trace->name_room ? 2 * trace->name_room : 16;
        char **names = realloc(trace->names, room * sizeof(names[0]));
        if (!names)
            return builder_memory(b);
        trace->names = names;
        trace->name_room = room;
    }
    char *copy = strndup(name, length);
    if (!copy)
        return builder_memory(b);
    trace->names[trace->name_count++] = copy;
    return builder_append(b, (struct gp_replay_op){.kind = GP_REPLAY_MARK,
                                                   .thread = (uint16_t)thread,
                                                   .stream = GP_REPLAY_ANY,
                                                   .block = trace->name_count - 1});
}

/* Numbers streams in order of first appearance; the name 0 is stream 0.  0, -ERANGE (too many),
 * -ENOMEM. */
static int replay_stream(struct gp_replay_builder *b, uint64_t name, uint32_t *stream)
{
    *stream = 0;
    if (name == 0 || gp_hash_get(&b->streams, name, stream))
        return 0;
    *stream = 1 + b->streams.count;
    if (*stream >= GP_REPLAY_STREAMS)
        return builder_no(b, -ERANGE, "more streams than a trace may name: ", GP_REPLAY_STREAMS);
    return gp_hash_set(&b->streams, name, *stream) ? builder_memory(b) : 0;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */
/* Reads and writes the text form of a trace, `gpuprof.trace/1`, one operation per line
 * (docs/traces.md). Called by trace.c and by `gpuprof generate`. Bounds: each byte is looked at a
 * constant number of times; a line becomes at most one operation, and there are at most
 * GP_REPLAY_OPS of them. */

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

/* The reader of the text form (trace.c), and that of everything that is read as a recording
 * (trace.c).  0, -errno with the problem in the builder. */
static int replay_text(struct gp_replay_builder *b, const uint8_t *data, size_t bytes)
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

/* ---- recordings -------------------------------------------------------------------------------------------------- */
/* Turns recordings, and what is read as one (snapshots, logs of RMM), into traces. Called by trace.c,
 * and by tests for a recording that is in memory. A trace takes the allocations that a caching
 * allocator could have served instead of the driver: linear, pitched and pool memory.  Other
 * requests (host memory, arrays, physical memory, segments, contexts) are left out and counted, and
 * so are frees of blocks that the recording did not see allocated. */

#define GP_MARK_BYTES 200u /* ours have 32; the text form's lines have 1024 */

struct gp_import {
    struct gp_replay_builder *b;
    const struct gp_recording *recording;
    uint32_t *numbers; /* of devices; GP_REC_NONE: the host */
};

static bool import_is_request(const struct gp_import *import, const struct gp_rec_event *event)
{
    return gp_kind_is(event->kind, GP_TRAIT_SERVED) && event->device < import->recording->device_count &&
           import->numbers[event->device] != GP_REC_NONE;
}

/* The calling thread does not change the order of operations, so threads beyond the limit of a
 * trace share numbers. */
static uint32_t import_thread(const struct gp_rec_event *event)
{
    return event->thread % GP_REPLAY_THREADS;
}

static int import_stream(const struct gp_import *import, const struct gp_rec_event *event, uint32_t *stream)
{
    const struct gp_recording *recording = import->recording;
    uint64_t name = event->stream < recording->stream_count ? recording->streams[event->stream] : 0;
    return replay_stream(import->b, name == 1 ? 0 : name, stream); /* 1: the handle of the default stream */
}

static int import_alloc(const struct gp_import *import, const struct gp_rec_event *event, uint32_t name)
{
    uint32_t stream;
    if (!import_is_request(import, event)) {
        import->b->trace->left_out++;
        return 0;
    }
    int rc = import_stream(import, event, &stream);
    return rc ? rc
              : gp_replay_alloc(import->b, name, gp_rec_requested(event), stream, import_thread(event),
                                import->numbers[event->device]);
}

static int import_free(const struct gp_import *import, size_t index)
{
    const struct gp_rec_event *event = &import->recording->events[index];
    uint32_t stream, name = import->recording->peer[index];
    if (name == GP_REC_NONE) {
        import->b->trace->left_out++;
        return 0;
    }
    int rc = import_stream(import, event, &stream);
    /* Only a stream-ordered free names a stream; any other waits for the device. */
    bool ordered = event->kind == GP_KIND_POOL || import->recording->from_rmm;
    if (!rc)
        rc = gp_replay_free(import->b, name, ordered ? stream : GP_REPLAY_ANY, import_thread(event));
    import->b->trace->left_out += rc == -ENOENT; /* its allocation was left out */
    return rc == -ENOENT ? 0 : rc;
}

/* Marks of the text form are one line, without blanks at its ends. */
static int import_mark(const struct gp_import *import, const struct gp_rec_event *event)
{
    const char *name = import->recording->strings + event->bytes;
    char text[GP_MARK_BYTES];
    size_t length = 0;
    while (*name == ' ' || *name == '\t')
        name++;
    for (; name[length] && length < sizeof(text); length++)
        text[length] = (unsigned char)name[length] < 0x20 ? ' ' : name[length];
    while (length && text[length - 1] == ' ')
        length--;
    if (length == 0) /* no character that a line can hold */
        return gp_replay_mark(import->b, "mark", 4, import_thread(event));
    return gp_replay_mark(import->b, text, length, import_thread(event));
}

static int import_event(const struct gp_import *import, size_t index)
{
    const struct gp_rec_event *event = &import->recording->events[index];
    switch (event->type) {
    case GP_EVENT_ALLOC:
        return import_alloc(import, event, (uint32_t)index);
    case GP_EVENT_FREE:
        return import_free(import, index);
    case GP_EVENT_MARK:
        return import_mark(import, event);
    case GP_EVENT_OOM:
        import->b->trace->left_out++;
        return gp_replay_mark(import->b, "oom", 3, import_thread(event));
    default:
        import->b->trace->left_out++;
        return 0;
    }
}

static int import_all(const struct gp_import *import)
{
    const struct gp_recording *recording = import->recording;
    int rc = 0;
    for (size_t i = 0; i < recording->baseline_count && !rc; i++) {
        if (recording->baseline[i].type == GP_EVENT_ALLOC)
            rc = import_alloc(import, &recording->baseline[i], (uint32_t)(recording->event_count + i));
    }
    for (size_t i = 0; i < recording->event_count && !rc; i++)
        rc = import_event(import, i);
    return rc;
}

int gp_replay_import(struct gp_replay_builder *b, const struct gp_recording *recording)
{
    struct gp_import import = {b, recording, calloc(recording->device_count + 1, sizeof(uint32_t))};
    uint32_t next = 0;
    if (!import.numbers) {
        gp_replay_say(&b->problem, "out of memory");
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < recording->device_count; i++)
        import.numbers[i] = recording->devices[i].index == GP_WIRE_HOST ? GP_REC_NONE : next++;
    int rc = import_all(&import);
    free(import.numbers);
    return rc;
}

static int replay_recording(struct gp_replay_builder *b, const uint8_t *data, size_t bytes)
{
    struct gp_recording *recording;
    int rc = gp_recording_parse(&recording, data, bytes, b->problem.text, sizeof(b->problem.text));
    if (rc)
        return rc;
    rc = gp_replay_import(b, recording);
    b->trace->format = recording->from_torch ? "PyTorch snapshot"
                       : recording->from_rmm ? "RMM log"
                                             : "gpuprof recording";
    b->trace->left_out += recording->dropped + recording->damaged_blocks; /* at least one event each */
    b->trace->left_out += recording->torch_unknown;
    gp_recording_free(recording);
    return rc;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */
/* Reads a trace from a file of any format that read/recording/recording.h knows.  Called by the commands
 * and the fuzz target.  Its bounds are those of input.c and of the readers. */

int gp_replay_read(struct gp_replay_trace *trace, const uint8_t *data, size_t bytes, struct gp_replay_problem *problem)
{
    struct gp_replay_builder builder = {.trace = trace};
    struct gp_input file;
    memset(trace, 0, sizeof(*trace));
    memset(problem, 0, sizeof(*problem));
    int rc = gp_input_unwrap(&file, data, bytes, builder.problem.text, sizeof(builder.problem.text));
    if (!rc && file.format == GP_INPUT_TRACE) {
        trace->format = GP_INPUT_TRACE_NAME;
        rc = replay_text(&builder, file.data, file.bytes);
    } else if (!rc) {
        rc = replay_recording(&builder, file.data, file.bytes);
    }
    if (rc && !builder.problem.text[0])
        gp_replay_say(&builder.problem, "%s", strerror(-rc));
    gp_input_free(&file);
    gp_replay_builder_free(&builder);
    if (rc) {
        *problem = builder.problem;
        gp_replay_trace_free(trace);
    }
    return rc;
}

int gp_replay_load(struct gp_replay_trace *trace, const char *path, struct gp_replay_problem *problem)
{
    int64_t size;
    uint8_t *data = NULL;
    size_t bytes = 0;
    memset(trace, 0, sizeof(*trace));
    memset(problem, 0, sizeof(*problem));
    int fd = gp_input_open(path, &size);
    int rc = fd < 0 ? fd : gp_input_slurp(fd, size, &data, &bytes, problem->text, sizeof(problem->text), NULL, NULL);
    if (!rc)
        rc = gp_replay_read(trace, data, bytes, problem);
    else if (!problem->text[0])
        gp_replay_say(problem, "%s", strerror(-rc));
    free(data);
    if (fd >= 0)
        close(fd);
    return rc;
}
