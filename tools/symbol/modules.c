/* SPDX-License-Identifier: MIT
 *
 * modules.c: opens the files of a program's modules, and notes what of them could not be read; see
 * internal.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symbol/internal.h>

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

void gp_symbols_note_debug(struct gp_symbols *symbols, uint32_t index)
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

struct gp_object *gp_symbols_object(struct gp_symbols *symbols, uint32_t index)
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

const char *gp_symbols_note(const struct gp_symbols *symbols, uint32_t i)
{
    return i < symbols->note_count ? symbols->notes[i] : NULL;
}
