/* SPDX-License-Identifier: MIT
 * build.c: appends checked operations to a trace; see trace.h.  Called by every reader and
 * generator. */
#include "trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

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
    gp_hash_free(&builder->threads);
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

static int builder_number(struct gp_replay_builder *b, struct gp_hash *map, uint64_t name, uint32_t first,
                          uint32_t limit, const char *what, uint32_t *number)
{
    if (gp_hash_get(map, name, number))
        return 0;
    *number = first + map->count;
    if (*number >= limit)
        return builder_no(b, -ERANGE, what, limit);
    return gp_hash_set(map, name, *number) ? builder_memory(b) : 0;
}

int gp_replay_stream(struct gp_replay_builder *b, uint64_t name, uint32_t *stream)
{
    *stream = 0;
    return name == 0 ? 0
                     : builder_number(b, &b->streams, name, 1, GP_REPLAY_STREAMS,
                                      "more streams than a trace may name: ", stream);
}

int gp_replay_thread(struct gp_replay_builder *b, uint64_t name, uint32_t *thread)
{
    return builder_number(b, &b->threads, name, 0, GP_REPLAY_THREADS, "more threads than a trace may name: ", thread);
}
