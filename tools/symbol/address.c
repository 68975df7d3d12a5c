/* SPDX-License-Identifier: MIT
 *
 * address.c: names of single addresses; see symbol.h. Every answer is kept: stacks share most of
 * their frames.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <symbol/internal.h>

const struct gp_frame_text gp_symbols_unknown = {
    .function = "[unknown]", .file = "", .module = "", .module_index = GP_REC_NONE, .role = GP_ROLE_LIBRARY};

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
        struct gp_object *object = gp_symbols_object(symbols, module);
        uint32_t count = object ? gp_object_lookup(object, offset, frames) : 0;
        if (object)
            gp_symbols_note_debug(symbols, module);
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

uint32_t gp_symbols_native(struct gp_symbols *symbols, const struct gp_rec_frame *frame,
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
    uint32_t count = gp_symbols_native(symbols, frame, calls);
    return *calls != &gp_symbols_unknown && symbols_slot(symbols, frame->pc, module)->known ? count : 0;
}
