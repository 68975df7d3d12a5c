/* SPDX-License-Identifier: MIT
 *
 * twins.c: finds sites whose stacks have equal text; see place.h.
 */
#include <stdlib.h>
#include <symbol/internal.h>
#include <symbol/place.h>

uint64_t gp_place_line(const struct gp_frame_text *frame)
{
    return frame->line || frame->python ? frame->line : frame->pc;
}

bool gp_place_same_frame(const struct gp_frame_text *a, const struct gp_frame_text *b)
{
    return a->plain == b->plain && a->file == b->file && gp_place_line(a) == gp_place_line(b) &&
           a->python == b->python && a->module_index == b->module_index;
}

uint64_t gp_place_function(const struct gp_frame_text *frame)
{
    return (uint64_t)(uintptr_t)frame->plain * 31 + (uint64_t)(uintptr_t)frame->file;
}

static uint64_t place_hash(const struct gp_symbols *symbols, uint32_t index)
{
    const struct gp_symbol_site *site = &symbols->sites[index];
    const struct gp_rec_site *row = &symbols->source.sites[index];
    uint64_t hash = (uint64_t)row->device << 8 | row->kind;
    for (uint32_t i = 0; i < site->count; i++) {
        const struct gp_frame_text *frame = &site->frames[i];
        const uint64_t words[] = {(uint64_t)(uintptr_t)frame->plain, (uint64_t)(uintptr_t)frame->file,
                                  gp_place_line(frame)};
        for (size_t k = 0; k < 3; k++)
            hash = (hash ^ words[k]) * 0x9e3779b97f4a7c15ull, hash ^= hash >> 29;
    }
    return hash;
}

static bool place_equal(const struct gp_symbols *symbols, uint32_t one, uint32_t other)
{
    const struct gp_symbol_site *a = &symbols->sites[one], *b = &symbols->sites[other];
    const struct gp_rec_site *x = &symbols->source.sites[one], *y = &symbols->source.sites[other];
    if (a->count != b->count || x->device != y->device || x->kind != y->kind)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (!gp_place_same_frame(&a->frames[i], &b->frames[i]))
            return false;
    return true;
}

int gp_place_by_hash(const void *one, const void *other)
{
    const struct gp_place_text *a = one, *b = other;
    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    return a->site < b->site ? -1 : a->site > b->site;
}

/* Instances of a template are one line of source, so their row has the name without arguments. */
static void place_join(struct gp_symbol_site *to, const struct gp_symbol_site *twin)
{
    for (uint32_t i = 0; i < to->count; i++)
        if (to->frames[i].function != twin->frames[i].function)
            to->frames[i].function = to->frames[i].plain;
}

void gp_place_twins(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count)
{
    struct gp_place_text *texts = calloc(count + 1ul, sizeof(*texts));
    for (uint32_t i = 0; texts && i < count; i++)
        texts[i] = (struct gp_place_text){place_hash(symbols, sites[i]), sites[i]};
    if (texts)
        qsort(texts, count, sizeof(*texts), gp_place_by_hash);
    for (uint32_t i = 1; texts && i < count; i++) {
        uint32_t before = symbols->sites[texts[i - 1].site].twin, at = texts[i].site;
        bool same = texts[i].hash == texts[i - 1].hash && place_equal(symbols, before, at);
        symbols->sites[at].twin = same ? before : at;
        if (same)
            place_join(&symbols->sites[before], &symbols->sites[at]);
    }
    free(texts);
}
