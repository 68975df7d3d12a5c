/* SPDX-License-Identifier: MIT
 * symbol.c: the life of struct gp_symbols; see symbol.h and internal.h.
 */
#include <errno.h>
#include <read/common/elfimage.h>
#include <stdlib.h>
#include <string.h>
#include <symbol/internal.h>
#include <sys/resource.h>

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
