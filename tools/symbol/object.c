/* SPDX-License-Identifier: MIT
 * object.c: opens and checks one ELF file, and reads its symbol tables (internal.h). */
#include <symbol/internal.h>

#include <errno.h>
#include <gelf.h>
#include <read/common/elfimage.h>
#include <read/common/foreign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A search path without a folder: elfutils finds no file by its name. Its default has some. */
#define NO_FOLDER "+"

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static enum gp_object_problem object_check(Dwfl_Module *module, const char *recorded)
{
    const unsigned char *bits;
    GElf_Addr address;
    int length = dwfl_module_build_id(module, &bits, &address);
    if (length <= 0)
        return recorded[0] ? GP_OBJECT_OTHER : GP_OBJECT_UNCHECKED;
    if (strlen(recorded) != 2 * (size_t)length)
        return GP_OBJECT_OTHER;
    for (int i = 0; i < length; i++) {
        char hex[3];
        snprintf(hex, sizeof(hex), "%02x", bits[i]);
        if (strncasecmp(recorded + 2 * i, hex, 2) != 0)
            return GP_OBJECT_OTHER;
    }
    return GP_OBJECT_FINE;
}

static int object_no_elf(Dwfl_Module *module, void **data, const char *name, Dwarf_Addr base, char **file, Elf **elf)
{
    (void)module, (void)data, (void)name, (void)base, (void)file, (void)elf;
    return -1; /* only the file that was checked may be used */
}

static bool object_report(struct gp_object *object, const char *path)
{
    void **userdata;
    object->debug_path = NO_FOLDER;
    object->callbacks = (Dwfl_Callbacks){.find_elf = object_no_elf,
                                         .find_debuginfo = gp_debugfile_find,
                                         .section_address = dwfl_offline_section_address,
                                         .debuginfo_path = &object->debug_path};
    object->dwfl = dwfl_begin(&object->callbacks);
    if (object->dwfl) {
        dwfl_report_begin(object->dwfl);
        object->module = dwfl_report_elf(object->dwfl, path, path, object->fd, 0, true);
        dwfl_report_end(object->dwfl, NULL, NULL);
    }
    if (!object->module)
        return false;
    dwfl_module_info(object->module, &userdata, NULL, NULL, NULL, NULL, NULL, NULL);
    *userdata = object;
    return true;
}

enum object_way { OBJECT_SYMFS, OBJECT_MAPPED, OBJECT_BELOW_ROOT, OBJECT_HERE, OBJECT_WAYS };

static int object_file(const struct gp_object_source *source, enum object_way way)
{
    char proc[32];
    size_t length = strlen(source->root);
    switch (way) {
    case OBJECT_SYMFS:
        return source->symfs ? gp_foreign_below(source->symfs, source->path) : -ENOENT;
    case OBJECT_MAPPED: /* the root without "/root" is the process's directory */
        if (length < 5 || length >= sizeof(proc))
            return -ENOENT;
        snprintf(proc, sizeof(proc), "%.*s", (int)length - 5, source->root);
        return gp_foreign_mapped(proc, source->start, source->end, source->path);
    case OBJECT_BELOW_ROOT:
        return gp_foreign_open(source->root, source->path);
    default:
        return length && source->build_id[0] ? gp_foreign_open("", source->path) : -ENOENT;
    }
}

static enum gp_object_problem object_try(struct gp_object *object, struct gp_intern *intern,
                                         const struct gp_object_source *source, enum object_way way)
{
    enum gp_object_problem problem = GP_OBJECT_BAD;
    struct gp_elf_strings names = {0};
    bool is_cut = false;
    int file = object_file(source, way);
    if (file < 0)
        return file == -ENOEXEC ? GP_OBJECT_BAD : GP_OBJECT_MISSING;
    int fd =
        gp_debugfile_is_package(file) ? file : gp_elf_image_lean(file, GP_ELF_NAMES, source->room, &is_cut, &names);
    const bool left = fd >= 0 && names.bytes;
    if (fd != file && !left)
        close(file);
    if (fd < 0)
        return fd == -EFBIG ? GP_OBJECT_LARGE : fd == -ENOEXEC ? GP_OBJECT_BAD : GP_OBJECT_MISSING;
    *object = (struct gp_object){.intern = intern,
                                 .symfs = source->symfs,
                                 .path = source->path,
                                 .fd = fd,
                                 .debug_fd = -1,
                                 .names_fd = left ? file : -1,
                                 .names = names,
                                 .room = source->room,
                                 .is_cut = is_cut};
    snprintf(object->root, sizeof(object->root), "%s", source->root);
    if (!object_report(object, source->path)) {
        close(fd);
        if (left)
            close(file);
        object->names_fd = -1;
    } else {
        problem = object_check(object->module, source->build_id);
    }
    if (problem != GP_OBJECT_FINE && problem != GP_OBJECT_UNCHECKED)
        gp_object_close(object);
    return problem;
}

enum gp_object_problem gp_object_open(struct gp_object *object, struct gp_intern *intern,
                                      const struct gp_object_source *source)
{
    enum gp_object_problem problem = GP_OBJECT_MISSING;
    for (enum object_way way = OBJECT_SYMFS; way < OBJECT_WAYS; way++) {
        enum gp_object_problem now = object_try(object, intern, source, way);
        if (now == GP_OBJECT_FINE || (now == GP_OBJECT_UNCHECKED && way != OBJECT_HERE))
            return now;
        if (now == GP_OBJECT_UNCHECKED)
            gp_object_close(object);
        else if (problem == GP_OBJECT_MISSING)
            problem = now;
    }
    return problem;
}

void gp_object_close(struct gp_object *object)
{
    gp_dwarf_free(object->dwarf);
    free(object->symbols);
    free(object->refused);
    if (object->dwfl)
        dwfl_end(object->dwfl);
    if (object->dwfl && object->names_fd >= 0)
        close(object->names_fd);
    *object = (struct gp_object){0};
}

/* ---- symbol tables ----------------------------------------------------------------------------------------------- */

/* Ranks symbols of code; 0: not used. */
static uint8_t symbol_rank(const GElf_Sym *symbol)
{
    int type = GELF_ST_TYPE(symbol->st_info), binding = GELF_ST_BIND(symbol->st_info);
    if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx == SHN_ABS || symbol->st_value == 0)
        return 0;
    if (type != STT_FUNC && type != STT_GNU_IFUNC && !(type == STT_NOTYPE && symbol->st_size > 0))
        return 0;
    return (uint8_t)(1 + (type != STT_NOTYPE) + 2 * (binding != STB_LOCAL) + (binding == STB_GLOBAL));
}

static int symbol_order(const void *left, const void *right)
{
    const struct gp_object_symbol *a = left, *b = right;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

/* A symbol without a size, as in assembler code, extends to the next one. */
static void object_stretch(struct gp_object *object)
{
    for (uint32_t i = 0; i + 1 < object->symbol_count; i++) {
        struct gp_object_symbol *symbol = &object->symbols[i];
        if (symbol->end == symbol->start)
            symbol->end = symbol[1].start;
    }
}

static void object_load_symbols(struct gp_object *object)
{
    object->has_symbols = true;
    int count = dwfl_module_getsymtab(object->module);
    if (count <= 0)
        return;
    object->symbols = calloc((size_t)count, sizeof(*object->symbols));
    GElf_Addr bias;
    const Elf *own = dwfl_module_getelf(object->module, &bias);
    for (int i = 0; object->symbols && i < count; i++) {
        GElf_Sym symbol;
        GElf_Addr address;
        Elf *of = NULL;
        const char *name = dwfl_module_getsym_info(object->module, i, &symbol, &address, NULL, &of, NULL);
        /* Its only symbols are then those of .symtab.  A look at a name would make a page of the copy's hole. */
        const bool left = of == own && symbol.st_name && symbol.st_name < object->names.bytes;
        uint8_t rank = left || (name && name[0]) ? symbol_rank(&symbol) : 0;
        uint64_t end = address + symbol.st_size;
        if (rank && end >= address)
            object->symbols[object->symbol_count++] =
                (struct gp_object_symbol){address, end, left ? NULL : name, symbol.st_name, rank};
    }
    if (object->symbol_count)
        qsort(object->symbols, object->symbol_count, sizeof(*object->symbols), symbol_order);
    object_stretch(object);
}

static const struct gp_object_symbol *object_symbol(struct gp_object *object, uint64_t address)
{
    uint32_t low = 0, high;
    if (!object->has_symbols)
        object_load_symbols(object);
    for (high = object->symbol_count; low < high;) {
        uint32_t middle = low + (high - low) / 2;
        if (object->symbols[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    /* Shorter symbols may lie inside a longer one: going back a few symbols finds it. */
    for (uint32_t steps = 0; low-- > 0 && steps < 8; steps++)
        if (address < object->symbols[low].end)
            return &object->symbols[low];
    return NULL;
}

/* ---- lookup ------------------------------------------------------------------------------------------------------ */

/* Uses the program headers: the address of a segment differs from its offset in the file. */
static bool object_address(struct gp_object *object, uint64_t offset, uint64_t *address)
{
    GElf_Addr bias;
    size_t count;
    Elf *elf = dwfl_module_getelf(object->module, &bias);
    if (!elf || elf_getphdrnum(elf, &count) != 0)
        return false;
    for (size_t i = 0; i < count && i < 4096; i++) {
        GElf_Phdr header;
        if (!gelf_getphdr(elf, (int)i, &header) || header.p_type != PT_LOAD || offset < header.p_offset ||
            offset - header.p_offset >= header.p_filesz)
            continue;
        *address = offset - header.p_offset + header.p_vaddr + bias;
        return true;
    }
    return false;
}

uint32_t gp_object_lookup(struct gp_object *object, uint64_t offset, struct gp_object_frame frames[GP_INLINES])
{
    uint64_t address;
    if (!object_address(object, offset, &address))
        return 0;
    if (!object->has_dwarf) {
        object->has_dwarf = true;
        object->dwarf = gp_dwarf_new(object);
    }
    uint32_t count = object->dwarf ? gp_dwarf_lookup(object->dwarf, address, frames) : 0;
    if (count > 0 && frames[count - 1].function[0])
        return count;
    const struct gp_object_symbol *symbol = object_symbol(object, address);
    char *left = symbol && !symbol->name ? gp_elf_string(object->names_fd, &object->names, symbol->name_at) : NULL;
    const char *name = left ? left : symbol ? symbol->name : NULL;
    if (name && count == 0)
        frames[count++] = (struct gp_object_frame){.file = ""};
    if (name)
        frames[count - 1].function = gp_intern_name(object->intern, name);
    free(left);
    return name ? count : 0;
}
