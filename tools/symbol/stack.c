/* SPDX-License-Identifier: MIT
 *
 * stack.c: the stack of a site as viewers show it: without the frames between the program and its
 * allocation, and with Python frames in place of the interpreter's. Each site's stack is built
 * once and kept. place.c reads all of them and hands them out.
 */
#include <string.h>
#include <symbol/internal.h>

/* "libcuda.so", "libcuda.so.1", "libcuda-550.54.so". */
static bool is_library(const char *module, const char *name)
{
    size_t length = strlen(name);
    return strncmp(module, name, length) == 0 && (module[length] == '.' || module[length] == '-');
}

/* ---- the inner end ----------------------------------------------------------------------------------------------- */

static bool is_ours(const struct gp_frame_text *frame)
{
    static const char *const names[] = {"libgpuprof", "libcupti", "libcuda"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (is_library(frame->module, names[i]))
            return true;
    return false;
}

/* The number of frames to leave out at the inner end: those of gpuprof and of the driver, then
 * those of libcudart up to the function that the program called. If all frames are such, the
 * outermost stays. */
static uint32_t stack_skip(const struct gp_frame_text *frames, uint32_t count)
{
    uint32_t at = 0;
    while (at < count && is_ours(&frames[at]))
        at++;
    while (at + 1 < count && is_library(frames[at].module, "libcudart") &&
           is_library(frames[at + 1].module, "libcudart"))
        at++;
    return at == count && count ? count - 1 : at;
}

/* ---- Python ------------------------------------------------------------------------------------------------------ */

static bool is_interpreter(const struct gp_frame_text *frame)
{
    return gp_role_is_python(frame->module) || gp_role_is_eval(frame);
}

struct gp_stack {
    struct gp_frame_text *frames; /* out */
    uint32_t count;
    const struct gp_frame_text *native;
    uint32_t native_count;
    const struct gp_frame_text *python;
    uint32_t python_count;
};

static void stack_add(struct gp_stack *stack, const struct gp_frame_text *frame)
{
    if (stack->count < GP_SYMBOL_STACK - 1) /* one is kept for "[truncated]" */
        stack->frames[stack->count++] = *frame;
}

/* Puts Python frames in the place of the interpreter's. Interpreters until 3.10 enter one C
 * function for each Python function: if there are as many of both, each Python frame replaces its
 * own. Later ones call Python from Python without a C call, and a recording does not say which
 * frames share one C function: then all Python frames go to the innermost place of the
 * interpreter. */
static void stack_merge(struct gp_stack *stack)
{
    uint32_t evals = 0, used = 0;
    bool started = false;
    for (uint32_t i = 0; i < stack->native_count; i++)
        evals += gp_role_is_eval(&stack->native[i]);
    bool one_to_one = evals == stack->python_count;
    for (uint32_t i = 0; i < stack->native_count; i++) {
        const struct gp_frame_text *frame = &stack->native[i];
        if (!is_interpreter(frame)) {
            if (!(started && gp_role_is_start(frame)))
                stack_add(stack, frame);
            continue;
        }
        started = true;
        uint32_t upto = one_to_one ? used + gp_role_is_eval(frame) : stack->python_count;
        for (; used < upto; used++)
            stack_add(stack, &stack->python[used]);
    }
    for (; used < stack->python_count; used++) /* the native frames ended before the interpreter's */
        stack_add(stack, &stack->python[used]);
}

/* ---- the name ---------------------------------------------------------------------------------------------------- */

/* Lower is better. Python frames are what their users wrote, so any of them is better than a native
 * one. */
static unsigned stack_rank(const struct gp_frame_text *frame)
{
    bool own = frame->role == GP_ROLE_USER || frame->role == GP_ROLE_WRAPPER;
    if (frame->python)
        return own ? 0 : frame->role == GP_ROLE_LIBRARY ? 1 : 2;
    if (own)
        return 3;
    switch (frame->role) {
    case GP_ROLE_LIBRARY:
        return 4;
    case GP_ROLE_ALLOCATOR:
        return 5;
    case GP_ROLE_INTERPRETER:
        return 6;
    default:
        return 7;
    }
}

static uint32_t stack_name(const struct gp_frame_text *frames, uint32_t count)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++)
        if (stack_rank(&frames[i]) < stack_rank(&frames[best]))
            best = i;
    return best;
}

/* ---- sites ------------------------------------------------------------------------------------------------------- */

static uint32_t stack_native(struct gp_symbols *symbols, const struct gp_rec_site *site, struct gp_frame_text *out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < site->frame_count; i++) {
        const struct gp_rec_frame *frame = &symbols->source.frames[site->first_frame + i];
        const struct gp_frame_text *found;
        if (!frame->pc)
            continue;
        uint32_t more = gp_symbols_native(symbols, frame, &found);
        for (uint32_t k = 0; k < more && count < GP_SYMBOL_STACK; k++)
            out[count++] = found[k];
    }
    return count;
}

static uint32_t stack_python(struct gp_symbols *symbols, const struct gp_rec_site *site, struct gp_frame_text *out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < site->frame_count && count < GP_SYMBOL_STACK; i++) {
        const struct gp_rec_frame *frame = &symbols->source.frames[site->first_frame + i];
        if (frame->pc)
            continue;
        const char *function = gp_intern(&symbols->intern, symbols->source.strings + frame->function);
        const char *file = gp_intern(&symbols->intern, symbols->source.strings + frame->file);
        /* This name of a site without a stack (wire.h) has the form of a Python frame. */
        bool named = !file[0] && !frame->line && strcmp(function, GP_SITE_BEFORE) == 0;
        out[count++] = (struct gp_frame_text){.function = function[0] ? function : "[unknown]",
                                              .file = file,
                                              .module = "",
                                              .line = frame->line,
                                              .module_index = GP_REC_NONE,
                                              .python = !named && !frame->named};
        gp_role_set(symbols, &out[count - 1]);
    }
    return count;
}

/* Builds the stack of a site in symbols->work. Returns the number of frames; *name: the index of
 * the frame that names the site. */
static uint32_t stack_build(struct gp_symbols *symbols, const struct gp_rec_site *site, uint32_t *name)
{
    static const struct gp_frame_text truncated = {
        .function = "[truncated]", .file = "", .module = "", .module_index = GP_REC_NONE, .role = GP_ROLE_START};
    struct gp_stack stack = {.frames = symbols->work, .native = symbols->native, .python = symbols->python};
    if ((uint64_t)site->first_frame + site->frame_count > symbols->source.frame_count)
        return 0;
    stack.native_count = stack_native(symbols, site, symbols->native);
    stack.python_count = stack_python(symbols, site, symbols->python);
    uint32_t skip = stack_skip(stack.native, stack.native_count);
    /* If only frames of the driver are left, the one that stays is useless next to Python
     * frames. */
    if (stack.python_count && stack.native_count && skip == stack.native_count - 1 && is_ours(&stack.native[skip]))
        skip++;
    stack.native += skip;
    stack.native_count -= skip;
    if (stack.python_count)
        stack_merge(&stack);
    else
        for (uint32_t i = 0; i < stack.native_count; i++)
            stack_add(&stack, &stack.native[i]);
    if (!stack.count)
        return 0;
    gp_role_of_program(stack.frames, stack.count);
    *name = stack_name(stack.frames, stack.count);
    if (site->truncated || stack.count >= GP_SYMBOL_STACK - 1)
        stack.frames[stack.count++] = truncated;
    return stack.count;
}

static bool stack_keep(struct gp_symbols *symbols, uint32_t index)
{
    struct gp_symbol_site *site = &symbols->sites[index];
    uint32_t count = stack_build(symbols, &symbols->source.sites[index], &site->own);
    struct gp_frame_text *kept = count ? gp_intern_room(&symbols->intern, count * sizeof(*kept)) : NULL;
    if (!kept)
        return false;
    memcpy(kept, symbols->work, count * sizeof(*kept));
    site->frames = kept;
    site->count = count;
    site->name = site->own;
    site->twin = site->row = index;
    return true;
}

struct gp_symbol_site *gp_symbols_stack(struct gp_symbols *symbols, uint32_t site)
{
    if (site >= symbols->source.site_count)
        return NULL;
    return symbols->sites[site].frames || stack_keep(symbols, site) ? &symbols->sites[site] : NULL;
}
