/* SPDX-License-Identifier: MIT
 *
 * stack.c: the stack of a site as viewers show it: without the frames between the program and its
 * allocation, with Python frames in place of the interpreter's, and with the frame that names the
 * site. Each site's stack is built once and kept.
 */
#include <symbol/state.h>

#include <ctype.h>
#include <string.h>

static bool has_prefix(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

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

/* "python3.11", "libpython3.11.so.1.0", "python3.13t". */
static bool is_python(const char *module)
{
    if (has_prefix(module, "lib"))
        module += 3;
    if (!has_prefix(module, "python"))
        return false;
    for (module += 6; isdigit((unsigned char)*module) || (*module && strchr(".mdtu", *module)); module++)
        if (has_prefix(module, ".so"))
            return true;
    return *module == '\0';
}

static bool is_eval(const struct gp_frame_text *frame)
{
    return has_prefix(frame->function, "_PyEval_EvalFrame") || has_prefix(frame->function, "PyEval_EvalFrame");
}

static bool is_interpreter(const struct gp_frame_text *frame)
{
    return is_python(frame->module) || is_eval(frame);
}

static bool is_start(const struct gp_frame_text *frame)
{
    return has_prefix(frame->function, "__libc_start") || strcmp(frame->function, "_start") == 0;
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
        evals += is_eval(&stack->native[i]);
    bool one_to_one = evals == stack->python_count;
    for (uint32_t i = 0; i < stack->native_count; i++) {
        const struct gp_frame_text *frame = &stack->native[i];
        if (!is_interpreter(frame)) {
            if (!(started && is_start(frame)))
                stack_add(stack, frame);
            continue;
        }
        started = true;
        uint32_t upto = one_to_one ? used + is_eval(frame) : stack->python_count;
        for (; used < upto; used++)
            stack_add(stack, &stack->python[used]);
    }
    for (; used < stack->python_count; used++) /* the native frames ended before the interpreter's */
        stack_add(stack, &stack->python[used]);
}

/* ---- the name ---------------------------------------------------------------------------------------------------- */

static bool is_system_file(const char *file)
{
    return strstr(file, "/site-packages/") || strstr(file, "/dist-packages/") || strstr(file, "/lib/python") ||
           has_prefix(file, "<frozen ");
}

/* Libraries that allocate on behalf of their callers. */
static bool is_system_library(const char *path, const char *name)
{
    static const char *const folders[] = {"/lib/",       "/lib64/",         "/usr/lib/",
                                          "/usr/lib64/", "/usr/local/cuda", "/opt/cuda"};
    static const char *const names[] = {"libcu",     "libnv",       "libnccl", "libtorch", "libc10",
                                        "libstdc++", "libonnxrunt", "librmm",  "libjax",   "libtensorflow"};
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
        if (has_prefix(path, folders[i]))
            return true;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (has_prefix(name, names[i]))
            return true;
    return strstr(path, "/site-packages/") || strstr(path, "/dist-packages/");
}

/* Functions that are compiled into the program but not written by its author: a static CUDA
 * runtime, container headers. */
static bool is_system_function(const char *function)
{
    static const char *const begins[] = {
        "std::", "__gnu_cxx::", "thrust::", "cub::", "operator new", "core::", "alloc::"};
    for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
        if (has_prefix(function, begins[i]))
            return true;
    return (has_prefix(function, "cuda") && isupper((unsigned char)function[4])) ||
           (has_prefix(function, "cu") && isupper((unsigned char)function[2]));
}

static bool is_own(const struct gp_symbols *symbols, const struct gp_frame_text *frame)
{
    if (frame->python)
        return !is_system_file(frame->file);
    if (frame->module_index == GP_REC_NONE || is_start(frame))
        return false;
    return !is_system_library(symbols->modules[frame->module_index].path, frame->module) &&
           !is_system_function(frame->function);
}

static uint32_t stack_name(const struct gp_symbols *symbols, const struct gp_frame_text *frames, uint32_t count)
{
    uint32_t python = count, own = count;
    for (uint32_t i = count; i-- > 0;) {
        bool is_users = is_own(symbols, &frames[i]);
        if (frames[i].python && (is_users || python == count || !is_own(symbols, &frames[python])))
            python = i;
        if (!frames[i].python && is_users)
            own = i;
    }
    return python < count ? python : own < count ? own : 0;
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
    for (uint32_t i = 0; i < site->frame_count && count < GP_SITE_FRAMES; i++) {
        const struct gp_rec_frame *frame = &symbols->source.frames[site->first_frame + i];
        if (frame->pc)
            continue;
        const char *function = gp_intern(&symbols->intern, symbols->source.strings + frame->function);
        const char *file = gp_intern(&symbols->intern, symbols->source.strings + frame->file);
        /* "before stacks" has the form of a Python frame, and no place. */
        out[count++] = (struct gp_frame_text){.function = function[0] ? function : "[unknown]",
                                              .file = file,
                                              .module = "",
                                              .line = frame->line,
                                              .module_index = GP_REC_NONE,
                                              .python = file[0] || frame->line};
    }
    return count;
}

/* Builds the stack of a site in symbols->work. Returns the number of frames; *name: the index of
 * the frame that names the site. */
static uint32_t stack_build(struct gp_symbols *symbols, const struct gp_rec_site *site, uint32_t *name)
{
    static const struct gp_frame_text truncated = {
        .function = "[truncated]", .file = "", .module = "", .module_index = GP_REC_NONE};
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
    *name = stack_name(symbols, stack.frames, stack.count);
    if (site->truncated || stack.native_count >= GP_SYMBOL_STACK - 1)
        stack.frames[stack.count++] = truncated;
    return stack.count;
}

static bool stack_keep(struct gp_symbols *symbols, uint32_t index)
{
    struct gp_symbol_site *site = &symbols->sites[index];
    uint32_t count = stack_build(symbols, &symbols->source.sites[index], &site->name);
    struct gp_frame_text *kept = count ? gp_intern_room(&symbols->intern, count * sizeof(*kept)) : NULL;
    if (!kept)
        return false;
    memcpy(kept, symbols->work, count * sizeof(*kept));
    site->frames = kept;
    site->count = count;
    return true;
}

uint32_t gp_symbols_site(struct gp_symbols *symbols, uint32_t site, const struct gp_frame_text **frames)
{
    *frames = &gp_symbols_unknown;
    if (site >= symbols->source.site_count)
        return 1;
    if (!symbols->sites[site].frames && !stack_keep(symbols, site))
        return 1;
    *frames = symbols->sites[site].frames;
    return symbols->sites[site].count;
}

const struct gp_frame_text *gp_symbols_name(struct gp_symbols *symbols, uint32_t site)
{
    const struct gp_frame_text *frames;
    uint32_t count = gp_symbols_site(symbols, site, &frames);
    uint32_t name = frames == &gp_symbols_unknown ? 0 : symbols->sites[site].name;
    return &frames[name < count ? name : 0];
}
