/* SPDX-License-Identifier: MIT
 * place.c: The frame that names a site, found by comparing the stacks of all sites; see symbol.h. A
 * function of the user's own that allocates for many callers says little: the caller is the place
 * that matters. docs/understand/symbols.md has the rule and its thresholds. twins.c finds sites
 * whose stacks have equal text, and shortfile.c how much of a file's path a reader needs.
 */
#include <stdlib.h>
#include <string.h>
#include <symbol/internal.h>
#include <symbol/operation.h>
#include <symbol/place.h>

/* ---- operations -------------------------------------------------------------------------------------------------- */

/* More sites than a session can have are not compared: such a recording is made up. */
#define GP_PLACE_SITES 65536u

/* The end of the frames that tell a name from another.  From Python 3.11 on, C code between calls of
 * Python stands outside of all Python frames: PyTorch's way to a function of Python says nothing. */
uint32_t gp_place_end(const struct gp_frame_text *frames, uint32_t count, uint32_t name)
{
    while (count > name + 1 && frames[name].python && !frames[count - 1].python &&
           frames[count - 1].role != GP_ROLE_USER)
        count--;
    return count;
}

/* Of the frames from the name outward, and the operation. */
static uint64_t place_row_hash(const struct gp_symbols *symbols, uint32_t index)
{
    const struct gp_symbol_site *site = &symbols->sites[index];
    const struct gp_rec_site *row = &symbols->source.sites[index];
    uint64_t hash = ((uint64_t)row->device << 8 | row->kind) * 31 + (uint64_t)(uintptr_t)site->operation.text;
    uint32_t end = gp_place_end(site->frames, site->count, site->name);
    for (uint32_t i = site->operation.below ? site->name : end; i < end; i++)
        hash = (hash ^ gp_place_function(&site->frames[i]) ^ gp_place_line(&site->frames[i])) * 0x9e3779b97f4a7c15ull,
        hash ^= hash >> 29;
    return hash;
}

static bool place_row_equal(const struct gp_symbols *symbols, uint32_t one, uint32_t other)
{
    const struct gp_symbol_site *a = &symbols->sites[one], *b = &symbols->sites[other];
    const struct gp_rec_site *x = &symbols->source.sites[one], *y = &symbols->source.sites[other];
    if (a->operation.text != b->operation.text || a->operation.below != b->operation.below || x->device != y->device ||
        x->kind != y->kind)
        return false;
    if (!a->operation.below)
        return true;
    uint32_t end = gp_place_end(a->frames, a->count, a->name);
    if (end - a->name != gp_place_end(b->frames, b->count, b->name) - b->name)
        return false;
    for (uint32_t i = 0; i < end - a->name; i++)
        if (!gp_place_same_frame(&a->frames[a->name + i], &b->frames[b->name + i]))
            return false;
    return true;
}

static void place_rows(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count)
{
    struct gp_place_text *texts = calloc(count + 1ul, sizeof(*texts));
    uint32_t known = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct gp_symbol_site *site = &symbols->sites[sites[i]];
        site->operation = gp_operation_find(symbols, site->frames, site->count, site->name, &site->operator);
        site->row = site->twin;
    }
    gp_operation_states(symbols, sites, count);
    for (uint32_t i = 0; texts && i < count; i++)
        if (symbols->sites[sites[i]].operation.text)
            texts[known++] = (struct gp_place_text){place_row_hash(symbols, sites[i]), sites[i]};
    if (texts)
        qsort(texts, known, sizeof(*texts), gp_place_by_hash);
    for (uint32_t i = 1; texts && i < known; i++) {
        uint32_t before = symbols->sites[texts[i - 1].site].row, at = texts[i].site;
        if (texts[i].hash == texts[i - 1].hash && place_row_equal(symbols, before, at))
            symbols->sites[at].row = before;
    }
    free(texts);
}

/* ---- sites ------------------------------------------------------------------------------------------------------- */

/* What an earlier comparison with fewer sites found. */
static void place_forget(struct gp_symbols *symbols, struct gp_symbol_site *site, uint32_t index)
{
    site->twin = site->row = index;
    site->name = site->own;
    for (uint32_t k = 0; k < site->count; k++)
        if (site->frames[k].role == GP_ROLE_WRAPPER || site->frames[k].python)
            gp_role_set(symbols, &site->frames[k]);
    gp_role_of_program(site->frames, site->count);
}

static void place_all(struct gp_symbols *symbols)
{
    uint32_t count = symbols->source.site_count, known = 0;
    uint32_t *sites = calloc(count + 1ul, sizeof(*sites));
    symbols->placed = count;
    for (uint32_t i = 1; sites && i < count && known < GP_PLACE_SITES; i++) {
        struct gp_symbol_site *site = gp_symbols_stack(symbols, i);
        if (site) {
            place_forget(symbols, site, i);
            sites[known++] = i;
        }
    }
    if (sites) {
        gp_place_twins(symbols, sites, known);
        gp_place_names(symbols, sites, known);
        place_rows(symbols, sites, known);
        gp_place_shorten(symbols, sites, known);
    }
    free(sites);
}

static struct gp_symbol_site *place_of(struct gp_symbols *symbols, uint32_t site)
{
    if (symbols->placed != symbols->source.site_count)
        place_all(symbols);
    return gp_symbols_stack(symbols, site);
}

uint32_t gp_symbols_site(struct gp_symbols *symbols, uint32_t site, const struct gp_frame_text **frames)
{
    const struct gp_symbol_site *found = place_of(symbols, site);
    *frames = found ? found->frames : &gp_symbols_unknown;
    return found ? found->count : 1;
}

const struct gp_frame_text *gp_symbols_name(struct gp_symbols *symbols, uint32_t site)
{
    const struct gp_symbol_site *found = place_of(symbols, site);
    return found ? &found->frames[found->name] : &gp_symbols_unknown;
}

const struct gp_operation *gp_symbols_operation(struct gp_symbols *symbols, uint32_t site)
{
    static const struct gp_operation unknown = {0};
    const struct gp_symbol_site *found = place_of(symbols, site);
    return found ? &found->operation : &unknown;
}

bool gp_symbols_is_loss(struct gp_symbols *symbols, uint32_t site)
{
    static const char *const parts[] = {"loss", "cross_entropy", "log_softmax", "logsumexp", "kl_div"};
    const char *text = gp_symbols_operation(symbols, site)->text;
    for (size_t i = 0; text && i < sizeof(parts) / sizeof(parts[0]); i++)
        if (strcasestr(text, parts[i]))
            return true;
    return false;
}

uint32_t gp_symbols_row(struct gp_symbols *symbols, uint32_t site)
{
    const struct gp_symbol_site *found = place_of(symbols, site);
    return found ? found->row : site;
}

uint32_t gp_symbols_twin(struct gp_symbols *symbols, uint32_t site)
{
    const struct gp_symbol_site *found = place_of(symbols, site);
    return found ? found->twin : site;
}
