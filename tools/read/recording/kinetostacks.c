/* SPDX-License-Identifier: MIT
 * kinetostacks.c: the call site of an allocation in a trace of PyTorch's profiler: what its thread was in at that time,
 * operators, functions of Python and annotations; see fromkineto.h.
 *
 * Bounds: a span is pushed and taken away once, and of an allocation at most GP_KINETO_DEPTH spans are looked at.
 *
 * The profiler says in which line a function begins.  Since 2.15 it also says from which line a function is called,
 * which is the line where its caller was. */
#include <read/recording/fromkineto.h>
#include <stdlib.h>
#include <string.h>

/* Deeper stacks keep their outer half. */
#define GP_KINETO_DEPTH 256u

struct gp_kineto_stack {
    struct gp_read *read;
    struct gp_torch_sites *sites;
    struct gp_kineto_span *open[GP_KINETO_DEPTH];
    uint32_t depth;
};

/* ---- frames ------------------------------------------------------------------------------------------------------ */

static bool kineto_begins(struct gp_torch_text text, const char *with)
{
    size_t length = strlen(with);
    return text.length >= length && memcmp(text.at, with, length) == 0;
}

static struct gp_torch_text kineto_until(struct gp_torch_text text, const char *what)
{
    const char *at = memmem(text.at, text.length, what, strlen(what));
    return at ? (struct gp_torch_text){text.at, (uint32_t)(at - text.at)} : text;
}

/* Reads digits and what has to follow them.  0: it is something else. */
static uint32_t kineto_line(const char *at, const char *end, const char *then)
{
    uint32_t line = 0;
    size_t length = strlen(then);
    while (at < end && *at >= '0' && *at <= '9' && line < 100000000)
        line = line * 10 + (uint32_t)(*at++ - '0');
    return (size_t)(end - at) >= length && memcmp(at, then, length) == 0 ? line : 0;
}

/* "FILE(LINE): FUNCTION", or a name alone. */
static bool kineto_source(struct gp_torch_text name, struct gp_torch_text *file, uint32_t *line,
                          struct gp_torch_text *function)
{
    const char *end = name.at + name.length, *colon = memmem(name.at, name.length, "): ", 3), *open = colon;
    while (open && open > name.at && open[-1] != '(')
        open--;
    if (!colon || open == name.at)
        return false;
    *line = kineto_line(open, end, "): ");
    *file = (struct gp_torch_text){name.at, (uint32_t)(open - 1 - name.at)};
    *function = (struct gp_torch_text){colon + 3, (uint32_t)(end - colon - 3)};
    return *line != 0;
}

/* The line of the call, if it is in this file. */
static uint32_t kineto_called(struct gp_torch_text from, struct gp_torch_text file)
{
    if (from.length <= file.length || memcmp(from.at, file.at, file.length) != 0 || from.at[file.length] != ':')
        return 0;
    return kineto_line(from.at + file.length + 1, from.at + from.length, "");
}

/* Files of packages have paths without the folder where Python found the package: such a path gets "./", so that
 * "torch/nn/" is found as the "/torch/nn/" of all other formats. */
static uint32_t kineto_python(struct gp_kineto_stack *stack, struct gp_torch_text file, uint32_t line,
                              struct gp_torch_text function)
{
    char path[4096];
    bool relative = file.at[0] != '/' && file.at[0] != '<' && file.at[0] != '.' && memchr(file.at, '/', file.length);
    if (relative && file.length < sizeof(path) - 2) {
        memcpy(path, "./", 2);
        memcpy(path + 2, file.at, file.length);
        file = (struct gp_torch_text){path, file.length + 2};
    }
    return gp_torch_frame(stack->read, stack->sites, &function, &file, line, false);
}

/* from: where the function inside was called; it becomes where this one was. */
static uint32_t kineto_frame(struct gp_kineto_stack *stack, struct gp_kineto_span *span, struct gp_torch_text *from)
{
    struct gp_torch_text file = {"", 0}, function = span->name;
    uint32_t line = 0;
    bool source = span->python && kineto_source(span->name, &file, &line, &function);
    uint32_t called = source ? kineto_called(*from, file) : 0;
    if (span->python)
        *from = span->from;
    line = called ? called : line;
    if (span->frame && span->line == line)
        return span->frame - 1;
    if (!source && kineto_begins(function, "<built-in ")) { /* with an address, which is another in each process */
        function = kineto_until((struct gp_torch_text){function.at + 1, function.length - 1}, " of ");
        function = kineto_until(kineto_until(function, " at 0x"), ">");
    }
    uint32_t frame = source ? kineto_python(stack, file, line, function)
                            : gp_torch_frame(stack->read, stack->sites, &function, &file, 0, true);
    span->frame = frame + 1;
    span->line = line;
    return frame;
}

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

static uint32_t kineto_site(struct gp_kineto_stack *stack)
{
    uint32_t frames[GP_KINETO_DEPTH], count = 0;
    struct gp_torch_text from = {"", 0};
    for (uint32_t i = stack->depth; i-- && !stack->read->error;) {
        /* One site for all steps, which have a mark each. */
        if (!kineto_begins(stack->open[i]->name, "ProfilerStep#"))
            frames[count++] = kineto_frame(stack, stack->open[i], &from);
    }
    return gp_torch_stack(stack->read, stack->sites, frames, count);
}

static void kineto_leave(struct gp_kineto_stack *stack, uint64_t time_ns)
{
    while (stack->depth && stack->open[stack->depth - 1]->end_ns < time_ns)
        stack->depth--;
}

static int kineto_span_order(const void *one, const void *other)
{
    const struct gp_kineto_span *a = one, *b = other;
    if (a->thread != b->thread)
        return a->thread < b->thread ? -1 : 1;
    if (a->start_ns != b->start_ns)
        return a->start_ns < b->start_ns ? -1 : 1;
    if (a->end_ns != b->end_ns)
        return a->end_ns > b->end_ns ? -1 : 1;
    /* A function of Python is around the operator that it calls. */
    return a->python != b->python ? b->python - a->python : (a->order > b->order) - (a->order < b->order);
}

static int kineto_memory_order(const void *one, const void *other)
{
    const struct gp_kineto_memory *a = one, *b = other;
    if (a->thread != b->thread)
        return a->thread < b->thread ? -1 : 1;
    if (a->time_ns != b->time_ns)
        return a->time_ns < b->time_ns ? -1 : 1;
    return (a->order > b->order) - (a->order < b->order);
}

bool gp_kineto_stacks(struct gp_read *read, struct gp_torch_sites *sites, struct gp_kineto_span *spans,
                      size_t span_count, struct gp_kineto_memory *memory, size_t memory_count)
{
    struct gp_kineto_stack stack = {.read = read, .sites = sites};
    size_t next = 0;
    if (span_count)
        qsort(spans, span_count, sizeof(*spans), kineto_span_order);
    qsort(memory, memory_count, sizeof(*memory), kineto_memory_order);
    for (size_t i = 0; i < memory_count && !read->error; i++) {
        struct gp_kineto_memory *event = &memory[i];
        if (i == 0 || event->thread != memory[i - 1].thread)
            stack.depth = 0;
        while (next < span_count && spans[next].thread < event->thread)
            next++;
        for (; next < span_count && spans[next].thread == event->thread && spans[next].start_ns <= event->time_ns;
             next++) {
            kineto_leave(&stack, spans[next].start_ns);
            if (stack.depth < GP_KINETO_DEPTH)
                stack.open[stack.depth++] = &spans[next];
        }
        kineto_leave(&stack, event->time_ns);
        event->site = event->bytes > 0 ? kineto_site(&stack) : 0;
    }
    return !read->error;
}
