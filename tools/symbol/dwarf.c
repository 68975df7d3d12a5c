/* SPDX-License-Identifier: MIT
 *
 * dwarf.c: function, line and inlined calls of an address; see internal.h. elfutils has a lookup too,
 * but it walks a whole compilation unit each time, and finds units only by .debug_aranges, which
 * clang does not write. Here the ranges of every unit are listed once, and each unit that is needed
 * is walked once: its functions become disjoint intervals, each with the innermost function there,
 * and each function knows the one that it was inlined into.
 */
#include <symbol/internal.h>

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bounds for hostile files; real ones stay far below. */
#define GP_DWARF_NESTING 256u       /* nested lexical blocks */
#define GP_DWARF_RANGES  65536u     /* of one entry */
#define GP_DWARF_MOST    (1u << 24) /* units, functions or intervals of one file: about a gigabyte */

#define GP_DWARF_NONE UINT32_MAX /* no function */

struct gp_dwarf_span { /* [start, end) belongs to `owner`: a unit, or a function of the unit */
    uint64_t start, end;
    uint32_t owner, depth;
};

struct gp_dwarf_spans {
    struct gp_dwarf_span *items;
    uint32_t count, room;
};

struct gp_dwarf_function {
    Dwarf_Die die;
    uint32_t outer; /* the function it was inlined into; GP_DWARF_NONE: not inlined */
    const char *name;
};

struct gp_dwarf_unit {
    Dwarf_Die die, split; /* split: the unit that has the functions; the same one if not split */
    Dwarf_Addr bias;
    bool walked;
    struct gp_dwarf_spans spans; /* disjoint, ordered */
    struct gp_dwarf_function *functions;
    uint32_t function_count, function_room;
};

struct gp_dwarf {
    struct gp_intern *intern;
    Dwarf *shared; /* the file of .gnu_debugaltlink; NULL none */
    Elf *shared_elf;
    int shared_fd;
    struct gp_dwarf_unit *units;
    uint32_t unit_count, unit_room;
    struct gp_dwarf_spans spans; /* of units, ordered by start */
};

/* ---- growing ----------------------------------------------------------------------------------------------------- */

/* Returns the items with room for one more; NULL: out of memory, or more than a sound file has. */
static void *dwarf_room(void *items, uint32_t count, uint32_t *room, size_t bytes)
{
    if (count < *room)
        return items;
    uint32_t more = *room ? 2 * *room : 64;
    void *moved = more > GP_DWARF_MOST ? NULL : realloc(items, more * bytes);
    if (moved)
        *room = more;
    return moved;
}

static void dwarf_span_add(struct gp_dwarf_spans *spans, uint64_t start, uint64_t end, uint32_t owner, uint32_t depth)
{
    /* Functions that the linker discarded are described at address 0. */
    if (start == 0 || start >= end)
        return;
    void *items = dwarf_room(spans->items, spans->count, &spans->room, sizeof(*spans->items));
    if (!items)
        return;
    spans->items = items;
    spans->items[spans->count++] = (struct gp_dwarf_span){start, end, owner, depth};
}

static void dwarf_ranges_add(struct gp_dwarf_spans *spans, Dwarf_Die *die, uint32_t owner, uint32_t depth)
{
    Dwarf_Addr base, start, end;
    ptrdiff_t at = 0;
    for (uint32_t i = 0; i < GP_DWARF_RANGES && (at = dwarf_ranges(die, at, &base, &start, &end)) > 0; i++)
        dwarf_span_add(spans, start, end, owner, depth);
}

static int dwarf_order(const void *left, const void *right)
{
    const struct gp_dwarf_span *a = left, *b = right;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    if (a->depth != b->depth)
        return a->depth < b->depth ? -1 : 1;
    return (a->owner > b->owner) - (a->owner < b->owner);
}

static void dwarf_sort(struct gp_dwarf_spans *spans)
{
    if (spans->count > 1)
        qsort(spans->items, spans->count, sizeof(*spans->items), dwarf_order);
}

/* Index + 1 of the last span that starts at or before the address; 0: none. */
static uint32_t dwarf_find(const struct gp_dwarf_spans *spans, uint64_t address)
{
    uint32_t low = 0, high = spans->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (spans->items[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- units ------------------------------------------------------------------------------------------------------- */

static void dwarf_unit_add(struct gp_object *object, struct gp_dwarf *dwarf, Dwarf_Die *die, Dwarf_Addr bias)
{
    uint8_t type = 0;
    /* Nearly every function of libdw may look for the split part. */
    if (dwarf_cu_info(die->cu, NULL, &type, NULL, NULL, NULL, NULL, NULL) != 0 ||
        (type == DW_UT_skeleton && !gp_debugfile_split(object, die)))
        return;
    Dwarf_Die split;
    void *units = dwarf_room(dwarf->units, dwarf->unit_count, &dwarf->unit_room, sizeof(*dwarf->units));
    if (!units)
        return;
    dwarf->units = units;
    struct gp_dwarf_unit *unit = &dwarf->units[dwarf->unit_count];
    *unit = (struct gp_dwarf_unit){.die = *die, .split = *die, .bias = bias};
    if (type == DW_UT_skeleton && dwarf_cu_info(die->cu, NULL, &type, NULL, &split, NULL, NULL, NULL) == 0 && split.cu)
        unit->split = split;
    uint32_t before = dwarf->spans.count;
    dwarf_ranges_add(&dwarf->spans, die, dwarf->unit_count, 0);
    for (uint32_t i = before; i < dwarf->spans.count; i++) {
        dwarf->spans.items[i].start += bias;
        dwarf->spans.items[i].end += bias;
    }
    dwarf->unit_count++;
}

/* If libdw needs the shared file and has none, it opens the file by its name. So it is opened here,
 * and without it the debug information is not used. */
static bool dwarf_share(struct gp_object *object, struct gp_dwarf *dwarf, Dwarf *main)
{
    const char *name, *file = NULL, *debug = NULL;
    const void *id;
    ssize_t bytes = dwelf_dwarf_gnu_debugaltlink(main, &name, &id);
    if (bytes == 0)
        return true;
    dwfl_module_info(object->module, NULL, NULL, NULL, NULL, NULL, &file, &debug);
    if (bytes > 0)
        dwarf->shared_fd = gp_debugfile_shared(object, debug ? debug : file ? file : "", name, id, (size_t)bytes);
    if (dwarf->shared_fd >= 0)
        dwarf->shared_elf = elf_begin(dwarf->shared_fd, ELF_C_READ, NULL);
    if (dwarf->shared_elf)
        dwarf->shared = dwarf_begin_elf(dwarf->shared_elf, DWARF_C_READ, NULL);
    if (!dwarf->shared || dwelf_dwarf_gnu_debugaltlink(dwarf->shared, &name, &id) != 0)
        return false;
    dwarf_setalt(main, dwarf->shared);
    return true;
}

struct gp_dwarf *gp_dwarf_new(struct gp_object *object)
{
    struct gp_dwarf *dwarf = calloc(1, sizeof(*dwarf));
    Dwarf_Addr bias = 0;
    Dwarf_Die *die = NULL;
    if (!dwarf)
        return NULL;
    dwarf->intern = object->intern;
    dwarf->shared_fd = -1;
    Dwarf *main = dwfl_module_getdwarf(object->module, &bias);
    if (!main || !dwarf_share(object, dwarf, main)) {
        gp_dwarf_free(dwarf);
        return NULL;
    }
    while (dwarf->unit_count < GP_DWARF_MOST && (die = dwfl_module_nextcu(object->module, die, &bias)))
        dwarf_unit_add(object, dwarf, die, bias);
    dwarf_sort(&dwarf->spans);
    if (dwarf->spans.count)
        return dwarf;
    gp_dwarf_free(dwarf);
    return NULL;
}

void gp_dwarf_free(struct gp_dwarf *dwarf)
{
    if (!dwarf)
        return;
    for (uint32_t i = 0; i < dwarf->unit_count; i++) {
        free(dwarf->units[i].spans.items);
        free(dwarf->units[i].functions);
    }
    free(dwarf->units);
    free(dwarf->spans.items);
    if (dwarf->shared)
        dwarf_end(dwarf->shared);
    if (dwarf->shared_elf)
        elf_end(dwarf->shared_elf);
    if (dwarf->shared_fd >= 0)
        close(dwarf->shared_fd);
    free(dwarf);
}

/* ---- functions of a unit ----------------------------------------------------------------------------------------- */

static uint32_t dwarf_function_add(struct gp_dwarf_unit *unit, struct gp_dwarf_spans *spans, Dwarf_Die *die,
                                   uint32_t outer, uint32_t depth)
{
    void *functions = dwarf_room(unit->functions, unit->function_count, &unit->function_room, sizeof(*unit->functions));
    if (!functions)
        return outer;
    unit->functions = functions;
    bool inlined = dwarf_tag(die) == DW_TAG_inlined_subroutine;
    uint32_t index = unit->function_count++;
    unit->functions[index] = (struct gp_dwarf_function){.die = *die, .outer = inlined ? outer : GP_DWARF_NONE};
    dwarf_ranges_add(spans, die, index, depth);
    return index;
}

/* Types are walked too, because a function may be defined inside one. */
static void dwarf_walk(struct gp_dwarf_unit *unit, struct gp_dwarf_spans *spans, Dwarf_Die *parent, uint32_t outer,
                       uint32_t depth)
{
    Dwarf_Die die;
    Dwarf_Off last = 0;
    if (depth == GP_DWARF_NESTING || dwarf_child(parent, &die) != 0)
        return;
    do {
        int tag = dwarf_tag(&die);
        uint32_t inner = outer;
        Dwarf_Off here = dwarf_dieoffset(&die);
        if (here <= last) /* a sibling at a lower offset: a cycle */
            return;
        last = here;
        if (tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine)
            inner = dwarf_function_add(unit, spans, &die, outer, depth);
        if (dwarf_haschildren(&die) == 1 && tag != DW_TAG_enumeration_type && tag != DW_TAG_subroutine_type)
            dwarf_walk(unit, spans, &die, inner, depth + 1);
    } while (dwarf_siblingof(&die, &die) == 0);
}

/* Converts nested spans to disjoint ones with the innermost owner. */
static void dwarf_flatten(const struct gp_dwarf_spans *nested, struct gp_dwarf_spans *flat)
{
    const struct gp_dwarf_span *open[GP_DWARF_NESTING];
    uint32_t depth = 0;
    uint64_t at = 0;
    for (uint32_t i = 0; i <= nested->count; i++) {
        const struct gp_dwarf_span *next = i < nested->count ? &nested->items[i] : NULL;
        while (depth && (!next || open[depth - 1]->end <= next->start || depth == GP_DWARF_NESTING)) {
            const struct gp_dwarf_span *top = open[--depth];
            dwarf_span_add(flat, at > top->start ? at : top->start, top->end, top->owner, 0);
            at = at > top->end ? at : top->end;
        }
        if (!next)
            break;
        if (depth)
            dwarf_span_add(flat, at > open[depth - 1]->start ? at : open[depth - 1]->start, next->start,
                           open[depth - 1]->owner, 0);
        at = at > next->start ? at : next->start;
        open[depth++] = next;
    }
}

static void dwarf_unit_walk(struct gp_dwarf_unit *unit)
{
    struct gp_dwarf_spans nested = {0};
    unit->walked = true;
    dwarf_walk(unit, &nested, &unit->split, GP_DWARF_NONE, 0);
    dwarf_sort(&nested);
    dwarf_flatten(&nested, &unit->spans);
    free(nested.items);
}

/* ---- lookup ------------------------------------------------------------------------------------------------------ */

static const char *dwarf_name(struct gp_dwarf *dwarf, struct gp_dwarf_function *function)
{
    Dwarf_Attribute attribute;
    const char *name = NULL;
    if (function->name)
        return function->name;
    if (dwarf_attr_integrate(&function->die, DW_AT_linkage_name, &attribute) ||
        dwarf_attr_integrate(&function->die, DW_AT_MIPS_linkage_name, &attribute))
        name = dwarf_formstring(&attribute);
    if (!name)
        name = dwarf_diename(&function->die);
    function->name = name ? gp_intern_name(dwarf->intern, name) : "";
    return function->name;
}

/* Fills in the file and line of the inlined call: they are the position in the calling function. */
static void dwarf_call(struct gp_dwarf *dwarf, struct gp_dwarf_unit *unit, Dwarf_Die *inlined,
                       struct gp_object_frame *caller)
{
    Dwarf_Attribute attribute;
    Dwarf_Word number;
    Dwarf_Files *files;
    size_t count;
    if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_line, &attribute), &number) == 0 && number <= UINT32_MAX)
        caller->line = (uint32_t)number;
    if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_file, &attribute), &number) == 0 &&
        dwarf_getsrcfiles(&unit->split, &files, &count) == 0 && number < count) {
        const char *file = dwarf_filesrc(files, number, NULL, NULL);
        caller->file = file ? gp_intern(dwarf->intern, file) : "";
    }
}

static void dwarf_line(struct gp_dwarf *dwarf, struct gp_dwarf_unit *unit, uint64_t address,
                       struct gp_object_frame *frame)
{
    Dwarf_Line *line = dwarf_getsrc_die(&unit->die, address);
    const char *file = line ? dwarf_linesrc(line, NULL, NULL) : NULL;
    int number = 0;
    if (!file)
        return;
    frame->file = gp_intern(dwarf->intern, file);
    if (dwarf_lineno(line, &number) == 0 && number > 0)
        frame->line = (uint32_t)number;
}

static uint32_t dwarf_frames(struct gp_dwarf *dwarf, struct gp_dwarf_unit *unit, uint64_t address,
                             struct gp_object_frame frames[GP_INLINES])
{
    uint32_t count = 0, at = dwarf_find(&unit->spans, address);
    uint32_t owner = at && address < unit->spans.items[at - 1].end ? unit->spans.items[at - 1].owner : GP_DWARF_NONE;
    frames[count++] = (struct gp_object_frame){.function = "", .file = ""};
    dwarf_line(dwarf, unit, address, &frames[0]);
    while (owner != GP_DWARF_NONE) {
        struct gp_dwarf_function *function = &unit->functions[owner];
        frames[count - 1].function = dwarf_name(dwarf, function);
        owner = function->outer;
        if (owner == GP_DWARF_NONE || count == GP_INLINES)
            break;
        frames[count - 1].inlined = true;
        frames[count] = (struct gp_object_frame){.function = "", .file = ""};
        dwarf_call(dwarf, unit, &function->die, &frames[count++]);
    }
    return count;
}

uint32_t gp_dwarf_lookup(struct gp_dwarf *dwarf, uint64_t address, struct gp_object_frame frames[GP_INLINES])
{
    uint32_t at = dwarf_find(&dwarf->spans, address);
    /* Units of one file hardly overlap: going back a few spans passes those that do. */
    for (uint32_t steps = 0; at-- > 0 && steps < 16; steps++) {
        const struct gp_dwarf_span *span = &dwarf->spans.items[at];
        if (address >= span->end)
            continue;
        struct gp_dwarf_unit *unit = &dwarf->units[span->owner];
        if (!unit->walked)
            dwarf_unit_walk(unit);
        return dwarf_frames(dwarf, unit, address - unit->bias, frames);
    }
    return 0;
}
