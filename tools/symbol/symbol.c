/* SPDX-License-Identifier: MIT
 * symbol.c: see symbol.h.  Names of single addresses. Every answer is kept: stacks share most of
 * their frames.  Its parts: addresses, stacks. */
#include <errno.h>
#include <inttypes.h>
#include <read/common/elfimage.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symbol/internal.h>
#include <sys/resource.h>

/* ---- addresses --------------------------------------------------------------------------------------------------- */

const struct gp_frame_text gp_symbols_unknown = {
    .function = "[unknown]", .file = "", .module = "", .module_index = GP_REC_NONE, .role = GP_ROLE_LIBRARY};

/* ---- objects ----------------------------------------------------------------------------------------------------- */

static const char *symbols_problem(enum gp_object_problem problem)
{
    switch (problem) {
    case GP_OBJECT_UNCHECKED:
        return "has no build id: the names shown may be those of another build";
    case GP_OBJECT_MISSING:
        return "cannot be opened: its functions are shown as offsets";
    case GP_OBJECT_OTHER:
        return "is not the build that ran (its build id differs): its functions are shown as offsets";
    case GP_OBJECT_BAD:
        return "is not an ELF file: its functions are shown as offsets";
    case GP_OBJECT_LARGE:
        return "has more symbols than fit into memory: its functions are shown as offsets";
    default:
        return NULL;
    }
}

static void symbols_add_note(struct gp_symbols *symbols, const char *path, const char *what)
{
    char text[GP_SYMBOL_TEXT];
    if (symbols->note_count == symbols->module_room) /* a module may have more than one */
        return;
    const int half = sizeof(text) / 2 - 2;
    snprintf(text, sizeof(text), "%.*s: %.*s", half, path, half, what);
    symbols->notes[symbols->note_count++] = gp_intern(&symbols->intern, text);
}

/* One note for all of them: a process whose files are out of reach has hundreds. */
static void symbols_note_missing(struct gp_symbols *symbols, const struct gp_symbol_module *module)
{
    char text[GP_SYMBOL_TEXT];
    if (symbols->missing++ == 0) {
        symbols->missing_note =
            symbols->note_count < symbols->module_room ? symbols->note_count : symbols->module_room - 1;
        symbols->missing_path = module->path;
        symbols_add_note(symbols, module->path, symbols_problem(GP_OBJECT_MISSING));
        return;
    }
    snprintf(text, sizeof(text),
             "%u objects cannot be opened: their functions are shown as offsets (the first is %.*s)", symbols->missing,
             (int)(sizeof(text) - 200), symbols->missing_path);
    symbols->notes[symbols->missing_note] = gp_intern(&symbols->intern, text);
}

/* Its debug information is read when it is first needed. */
static void symbols_note_debug(struct gp_symbols *symbols, uint32_t index)
{
    struct gp_symbol_module *module = &symbols->modules[index];
    const struct gp_object *object = module->object;
    char text[GP_SYMBOL_TEXT];
    if (!module->owner || module->noted)
        return;
    if (object->is_cut)
        symbols_add_note(
            symbols, module->path,
            "has more debug information than is read, or information that is packed too well: it has no lines");
    else if (object->refused && object->debug_fd < 0) {
        snprintf(text, sizeof(text), "its debug file %.700s is of another build, damaged or out of reach: not used",
                 object->refused);
        symbols_add_note(symbols, module->path, text);
    }
    module->noted = object->is_cut || object->refused;
}

/* Another mapping of the same file, for which opening was tried already. */
static const struct gp_symbol_module *symbols_twin(const struct gp_symbols *symbols, uint32_t index)
{
    const struct gp_symbol_source *s = &symbols->source;
    for (uint32_t i = 0; i < s->module_count; i++)
        if (symbols->modules[i].tried && i != index &&
            strcmp(symbols->modules[i].path, symbols->modules[index].path) == 0 &&
            strcmp(s->strings + s->modules[i].build_id, s->strings + s->modules[index].build_id) == 0)
            return &symbols->modules[i];
    return NULL;
}

static struct gp_object *symbols_object(struct gp_symbols *symbols, uint32_t index)
{
    struct gp_symbol_module *module = &symbols->modules[index];
    if (module->tried)
        return module->object;
    const struct gp_symbol_module *twin = symbols_twin(symbols, index);
    module->tried = true;
    if (twin)
        return module->object = twin->object;
    if (module->path[0] != '/') /* [vdso], or code that does not come from a file */
        return NULL;
    struct gp_object *object = calloc(1, sizeof(*object));
    if (!object)
        return NULL;
    const struct gp_rec_module *recorded = &symbols->source.modules[index];
    const struct gp_object_source source = {.root = symbols->source.root,
                                            .symfs = symbols->symfs,
                                            .path = module->path,
                                            .build_id = symbols->source.strings + recorded->build_id,
                                            .start = recorded->start,
                                            .end = recorded->end,
                                            .room = &symbols->room};
    enum gp_object_problem problem = gp_object_open(object, &symbols->intern, &source);
    if (problem == GP_OBJECT_UNCHECKED && module->deleted) { /* the path may belong to another file by now */
        gp_object_close(object);
        problem = GP_OBJECT_OTHER;
    }
    if (problem == GP_OBJECT_MISSING)
        symbols_note_missing(symbols, module);
    else if (problem != GP_OBJECT_FINE)
        symbols_add_note(symbols, module->path, symbols_problem(problem));
    module->owner = problem == GP_OBJECT_FINE || problem == GP_OBJECT_UNCHECKED;
    if (module->owner)
        module->object = object;
    else
        free(object);
    return module->object;
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

static struct gp_symbol_pc *symbols_slot(const struct gp_symbols *symbols, uint64_t pc, uint32_t module)
{
    uint64_t hash = (pc ^ ((uint64_t)module << 48)) * 0x9e3779b97f4a7c15ull; /* Fibonacci hashing: pcs lie close */
    uint32_t at = (uint32_t)(hash >> 32) & (symbols->pc_slots - 1);
    while (symbols->pcs[at].frames && (symbols->pcs[at].pc != pc || symbols->pcs[at].module != module))
        at = (at + 1) & (symbols->pc_slots - 1);
    return &symbols->pcs[at];
}

static int symbols_grow(struct gp_symbols *symbols)
{
    if (symbols->pc_slots && symbols->pc_count < symbols->pc_slots / 2)
        return 0;
    struct gp_symbols larger = *symbols;
    larger.pc_slots = symbols->pc_slots ? 2 * symbols->pc_slots : 4096;
    larger.pcs = calloc(larger.pc_slots, sizeof(*larger.pcs));
    if (!larger.pcs)
        return -ENOMEM;
    for (uint32_t i = 0; i < symbols->pc_slots; i++)
        if (symbols->pcs[i].frames)
            *symbols_slot(&larger, symbols->pcs[i].pc, symbols->pcs[i].module) = symbols->pcs[i];
    free(symbols->pcs);
    symbols->pcs = larger.pcs;
    symbols->pc_slots = larger.pc_slots;
    return 0;
}

/* What the recording itself says. */
static uint32_t symbols_recorded(struct gp_symbols *symbols, uint64_t pc, uint32_t module,
                                 struct gp_object_frame frames[GP_INLINES])
{
    const struct gp_symbol_source *source = &symbols->source;
    uint32_t low = 0, high = source->name_count, count = 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct gp_rec_name *name = &source->names[middle];
        if (name->module < module || (name->module == module && name->pc < pc))
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < source->name_count && count < GP_INLINES; low++, count++) {
        const struct gp_rec_name *name = &source->names[low];
        if (name->module != module || name->pc != pc || name->depth != count)
            break;
        frames[count] =
            (struct gp_object_frame){.function = gp_intern(&symbols->intern, source->strings + name->function),
                                     .file = gp_intern(&symbols->intern, source->strings + name->file),
                                     .line = name->line,
                                     .inlined = true};
    }
    if (count)
        frames[count - 1].inlined = false;
    return count;
}

/* A pc is a return address, which may belong to the next line or function: the call lies before
 * it. */
static uint32_t symbols_lookup(struct gp_symbols *symbols, uint64_t pc, uint32_t module,
                               struct gp_object_frame frames[GP_INLINES], bool *known)
{
    char text[GP_SYMBOL_TEXT];
    uint64_t before = pc ? pc - 1 : 0;
    const struct gp_rec_module *m = module < symbols->source.module_count ? &symbols->source.modules[module] : NULL;
    uint32_t recorded = symbols_recorded(symbols, pc, module, frames);
    *known = recorded > 0;
    if (recorded)
        return recorded;
    frames[0] = (struct gp_object_frame){.file = ""};
    if (m && before >= m->start && before < m->end) {
        uint64_t offset = before - m->start + m->offset;
        struct gp_object *object = symbols_object(symbols, module);
        uint32_t count = object ? gp_object_lookup(object, offset, frames) : 0;
        if (object)
            symbols_note_debug(symbols, module);
        *known = count > 0;
        if (count)
            return count;
        snprintf(text, sizeof(text), "%.500s+0x%" PRIx64, symbols->modules[module].name, offset + 1);
    } else {
        snprintf(text, sizeof(text), "0x%" PRIx64, pc);
    }
    frames[0].function = gp_intern(&symbols->intern, text);
    return 1;
}

/* The frames of a native frame, inlined calls first; at least one. Out of memory:
 * gp_symbols_unknown. */
static uint32_t symbols_native(struct gp_symbols *symbols, const struct gp_rec_frame *frame,
                               const struct gp_frame_text **frames)
{
    struct gp_object_frame found[GP_INLINES];
    uint32_t module = frame->module < symbols->source.module_count ? frame->module : GP_REC_NONE;
    *frames = &gp_symbols_unknown;
    if (symbols_grow(symbols) != 0)
        return 1;
    struct gp_symbol_pc *slot = symbols_slot(symbols, frame->pc, module);
    const struct gp_rec_module *m = module == GP_REC_NONE ? NULL : &symbols->source.modules[module];
    if (!slot->frames) {
        bool known;
        uint32_t count = symbols_lookup(symbols, frame->pc, module, found, &known);
        struct gp_frame_text *kept = gp_intern_room(&symbols->intern, count * sizeof(*kept));
        if (!kept)
            return 1;
        for (uint32_t i = 0; i < count; i++)
            kept[i] = (struct gp_frame_text){
                .function = found[i].function[0] ? found[i].function : "[unknown]",
                .file = found[i].file ? found[i].file : "",
                .module = module == GP_REC_NONE ? "" : symbols->modules[module].name,
                .line = found[i].line,
                .module_index = module,
                .offset = m && frame->pc > m->start && frame->pc <= m->end ? frame->pc - m->start + m->offset : 0,
                .pc = frame->pc,
                .inlined = found[i].inlined};
        for (uint32_t i = 0; i < count; i++)
            gp_role_set(symbols, &kept[i]);
        *slot = (struct gp_symbol_pc){frame->pc, module, count, known, kept};
        symbols->pc_count++;
    }
    *frames = slot->frames;
    return slot->count;
}

uint32_t gp_symbols_calls(struct gp_symbols *symbols, const struct gp_rec_frame *frame,
                          const struct gp_frame_text **calls)
{
    uint32_t module = frame->module < symbols->source.module_count ? frame->module : GP_REC_NONE;
    uint32_t count = symbols_native(symbols, frame, calls);
    return *calls != &gp_symbols_unknown && symbols_slot(symbols, frame->pc, module)->known ? count : 0;
}

const char *gp_symbols_note(const struct gp_symbols *symbols, uint32_t i)
{
    return i < symbols->note_count ? symbols->notes[i] : NULL;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* Copies the path, because the caller's strings may move. */
static const char *symbols_path(struct gp_symbols *symbols, const char *path, bool *deleted)
{
    static const char mark[] = " (deleted)"; /* the suffix that the kernel adds */
    size_t length = strlen(path), end = sizeof(mark) - 1;
    *deleted = length > end && strcmp(path + length - end, mark) == 0;
    if (*deleted)
        length -= end;
    char *kept = gp_intern_room(&symbols->intern, length + 1);
    if (!kept)
        return "";
    memcpy(kept, path, length);
    kept[length] = '\0';
    return kept;
}

static void symbols_module(struct gp_symbols *symbols, uint32_t index)
{
    struct gp_symbol_module *module = &symbols->modules[index];
    *module = (struct gp_symbol_module){0};
    module->path =
        symbols_path(symbols, symbols->source.strings + symbols->source.modules[index].path, &module->deleted);
    const char *slash = strrchr(module->path, '/');
    module->name = gp_intern(&symbols->intern, slash ? slash + 1 : module->path);
}

/* A program has some hundred objects, and each takes a descriptor; the usual soft limit is 1024. */
static void symbols_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Grows an array of zeroed slots to `count`. The caller asks for half as many again, because
 * updates come every second. */
static int symbols_room(void *array, uint32_t room, uint32_t count, size_t bytes)
{
    void *old, *larger = calloc(count, bytes);
    if (!larger)
        return -ENOMEM;
    memcpy(&old, array, sizeof(old));
    if (room)
        memcpy(larger, old, room * bytes);
    free(old);
    memcpy(array, &larger, sizeof(larger));
    return 0;
}

int gp_symbols_update(struct gp_symbols *symbols, const struct gp_symbol_source *source)
{
    uint32_t sites = source->site_count + source->site_count / 2 + 1;
    uint32_t modules = source->module_count + source->module_count / 2 + 1;
    if (source->site_count > symbols->site_room) {
        if (symbols_room(&symbols->sites, symbols->site_room, sites, sizeof(*symbols->sites)) != 0)
            return -ENOMEM;
        symbols->site_room = sites;
    }
    if (source->module_count > symbols->module_room) {
        if (symbols_room(&symbols->modules, symbols->module_room, modules, sizeof(*symbols->modules)) != 0 ||
            symbols_room(&symbols->notes, symbols->module_room, modules, sizeof(*symbols->notes)) != 0)
            return -ENOMEM;
        symbols->module_room = modules;
    }
    uint32_t known = symbols->source.module_count;
    symbols->source = *source;
    symbols->source.root = source->root ? source->root : "";
    for (uint32_t i = known; i < source->module_count; i++)
        symbols_module(symbols, i);
    return 0;
}

int gp_symbols_new(struct gp_symbols **out, const struct gp_symbol_source *source)
{
    struct gp_symbols *symbols = calloc(1, sizeof(*symbols));
    *out = NULL;
    if (!symbols)
        return -ENOMEM;
    symbols->work = calloc(3 * GP_SYMBOL_STACK, sizeof(*symbols->work));
    if (!symbols->work || gp_symbols_update(symbols, source) != 0) {
        gp_symbols_free(symbols);
        return -ENOMEM;
    }
    symbols->room = gp_elf_room();
    symbols->native = symbols->work + GP_SYMBOL_STACK;
    symbols->python = symbols->native + GP_SYMBOL_STACK;
    symbols_descriptors();
    *out = symbols;
    return 0;
}

void gp_symbols_look_below(struct gp_symbols *symbols, const char *folder)
{
    symbols->symfs = folder;
}

void gp_symbols_free(struct gp_symbols *symbols)
{
    if (!symbols)
        return;
    for (uint32_t i = 0; symbols->modules && i < symbols->source.module_count; i++) {
        if (!symbols->modules[i].owner)
            continue;
        gp_object_close(symbols->modules[i].object);
        free(symbols->modules[i].object);
    }
    free(symbols->modules);
    free(symbols->notes);
    free(symbols->sites);
    free(symbols->work);
    free(symbols->pcs);
    gp_hash_free(&symbols->rules);
    gp_intern_free(&symbols->intern);
    free(symbols);
}

/* ---- stacks ------------------------------------------------------------------------------------------------------ */
/* The stack of a site as viewers show it: without the frames between the program and its allocation,
 * and with Python frames in place of the interpreter's. Each site's stack is built once and kept.
 * place.c reads all of them and hands them out. */

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
        uint32_t more = symbols_native(symbols, frame, &found);
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
