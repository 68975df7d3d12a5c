/* SPDX-License-Identifier: MIT
 *
 * diffsites.c: finds the call sites of two recordings that are the same; see analyze.h. Sites of
 * equal stacks, but for the lines, are a group. Lines move between versions of a program, and keep
 * their order: within a group the sites of one recording are matched with those of the other in
 * order, so that as many as possible have the same memory, and the lines of all move by the same
 * number if possible.
 */
#include <analyze/analyze.h>
#include <read/common/hash.h>
#include <stdlib.h>
#include <string.h>

/* Most comparisons for one group; larger groups are matched in order. */
#define GP_DIFF_WORK (1ull << 20)
/* What memory says counts before what lines say: lines that were inserted above or below a line move it
 * by the same number. */
#define GP_DIFF_OTHER    (1ll << 46)
#define GP_DIFF_LINE_OFF (INT64_C(1) << 32)

struct gp_diff_place { /* a site; equal ones are merged */
    const struct gp_diff_site *site;
    uint32_t number, row;
    int side;
    int64_t sum; /* of the lines that tell it from others of its side */
    int64_t bytes, calls;
};

static int place_lines(const struct gp_diff_site *a, const struct gp_diff_site *b)
{
    for (uint32_t i = a->line_count; i-- > 0;) { /* outermost first: the order in the program */
        if (a->lines[i] != b->lines[i])
            return GP_ORDER(a->lines[i], b->lines[i]);
    }
    return 0;
}

static int place_group(const struct gp_diff_place *a, const struct gp_diff_place *b)
{
    if (a->site->line_count != b->site->line_count)
        return GP_ORDER(a->site->line_count, b->site->line_count);
    return strcmp(a->site->stack, b->site->stack);
}

static int place_compare(const void *one, const void *other)
{
    const struct gp_diff_place *a = one, *b = other;
    int order = place_group(a, b);
    order = order ? order : a->side - b->side;
    order = order ? order : place_lines(a->site, b->site);
    return order ? order : (a->number > b->number) - (a->number < b->number);
}

/* How much the memory of two places differs: the size of their blocks, and how many there were. */
static int64_t place_other(const struct gp_diff_place *a, const struct gp_diff_place *b)
{
    double one = a->calls ? (double)a->bytes / (double)a->calls : 0,
           other = b->calls ? (double)b->bytes / (double)b->calls : 0;
    return (2 * (one > other || one < other) + (a->calls != b->calls)) * GP_DIFF_OTHER;
}

/* The cost of matching all of few[] with some of many[], in order, if lines move by `by`; the
 * chosen ones in chosen[].  table: (few + 1) * (many + 1). */
static int64_t match_cost(const struct gp_diff_place *const *few, uint32_t few_count,
                          const struct gp_diff_place *const *many, uint32_t many_count, int64_t by, int64_t *table,
                          uint32_t *chosen)
{
    size_t width = many_count + 1ul;
    for (uint32_t i = 0; i <= few_count; i++) {
        for (uint32_t k = 0; k <= many_count; k++) {
            int64_t *at = &table[i * width + k];
            if (i == 0 || k < i) {
                *at = i == 0 ? 0 : INT64_MAX / 2;
                continue;
            }
            int64_t off = many[k - 1]->sum - few[i - 1]->sum - by;
            off = off < 0 ? -off : off;
            off = (off < GP_DIFF_LINE_OFF ? off : GP_DIFF_LINE_OFF) + place_other(many[k - 1], few[i - 1]);
            int64_t take = table[(i - 1) * width + k - 1] + off, leave = at[-1];
            *at = take <= leave ? take : leave;
        }
    }
    for (uint32_t i = few_count, k = many_count; i > 0; k--) {
        if (table[i * width + k] == table[i * width + k - 1]) /* with k == i it is not */
            continue;
        chosen[--i] = k - 1;
    }
    return table[few_count * width + many_count];
}

/* Chooses for each of few[] one of many[].  False: out of memory. */
static bool match_choose(const struct gp_diff_place *const *few, uint32_t few_count,
                         const struct gp_diff_place *const *many, uint32_t many_count, uint32_t *chosen)
{
    int64_t best = INT64_MAX, moved = 0;
    for (uint32_t i = 0; i < few_count; i++)
        chosen[i] = i;
    if (few_count == 0 || few_count == many_count ||
        (many_count - few_count + 1ull) * few_count * many_count > GP_DIFF_WORK)
        return true;
    int64_t *table = malloc((few_count + 1ul) * (many_count + 1ul) * sizeof(*table));
    uint32_t *try = malloc(few_count * sizeof(*try));
    bool ok = table && try;
    /* A good match moves the first of few[] to one of many[] exactly. */
    for (uint32_t k = 0; ok && k + few_count <= many_count; k++) {
        int64_t by = many[k]->sum - few[0]->sum, size = by < 0 ? -by : by;
        int64_t cost = match_cost(few, few_count, many, many_count, by, table, try);
        if (cost > best || (cost == best && size >= moved))
            continue;
        best = cost;
        moved = size;
        memcpy(chosen, try, few_count * sizeof(*try));
    }
    free(table);
    free(try);
    return ok;
}

/* Collects the first place of each line of a side; equal ones get its row.  Returns their number. */
static uint32_t match_distinct(struct gp_diff_place *places, uint32_t count, const struct gp_diff_place **out)
{
    uint32_t distinct = 0;
    struct gp_diff_place *first = NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (i == 0 || place_lines(places[i - 1].site, places[i].site) != 0)
            out[distinct++] = first = &places[i];
        first->bytes = (int64_t)((uint64_t)first->bytes + (uint64_t)places[i].site->bytes);
        first->calls = (int64_t)((uint64_t)first->calls + (uint64_t)places[i].site->calls);
    }
    return distinct;
}

/* A frame that has one line in all sites of each side, such as main, says nothing about which of them
 * are the same. */
static void match_sums(struct gp_diff_place *places, uint32_t count, uint32_t split)
{
    for (uint32_t frame = 0; frame < places[0].site->line_count; frame++) {
        bool differs = false;
        for (uint32_t i = 1; i < count && !differs; i++)
            differs = i != split && places[i].site->lines[frame] != places[i - 1].site->lines[frame];
        for (uint32_t i = 0; i < count && differs; i++)
            places[i].sum += places[i].site->lines[frame];
    }
}

/* Numbers the rows of one group: places[count], side 0 first. */
static bool match_group(struct gp_diff_place *places, uint32_t count, uint32_t *rows)
{
    uint32_t split = 0, distinct[2];
    while (split < count && places[split].side == 0)
        split++;
    match_sums(places, count, split);
    const struct gp_diff_place **list = calloc(count + 1ul, sizeof(*list));
    uint32_t *chosen = calloc(count + 1ul, sizeof(*chosen));
    bool ok = list && chosen;
    if (ok) {
        distinct[0] = match_distinct(places, split, list);
        distinct[1] = match_distinct(places + split, count - split, list + split);
        int fewer = distinct[1] < distinct[0];
        const struct gp_diff_place **few = fewer ? list + split : list, **many = fewer ? list : list + split;
        ok = match_choose(few, distinct[fewer], many, distinct[!fewer], chosen);
        uint32_t next = *rows;
        for (uint32_t i = 0; ok && i < distinct[!fewer]; i++)
            places[many[i] - places].row = next++;
        for (uint32_t i = 0; ok && i < distinct[fewer]; i++)
            places[few[i] - places].row = many[chosen[i]]->row;
        for (uint32_t i = 1; ok && i < count; i++) {
            if (i != split && place_lines(places[i - 1].site, places[i].site) == 0)
                places[i].row = places[i - 1].row;
        }
        *rows = next;
    }
    free(list);
    free(chosen);
    return ok;
}

bool gp_diff_match(const struct gp_diff_site *const sites[2], const uint32_t counts[2], uint32_t *rows[2],
                   uint32_t *row_count)
{
    uint32_t count = counts[0] + counts[1], next;
    struct gp_diff_place *places = calloc(count + 1ul, sizeof(*places));
    bool ok = places;
    *row_count = 0;
    for (uint32_t i = 0; ok && i < count; i++) {
        int side = i >= counts[0];
        uint32_t number = side ? i - counts[0] : i;
        places[i] = (struct gp_diff_place){.site = &sites[side][number], .number = number, .side = side};
    }
    if (ok && count)
        qsort(places, count, sizeof(*places), place_compare);
    for (uint32_t i = 0; ok && i < count; i = next) {
        for (next = i + 1; next < count && place_group(&places[i], &places[next]) == 0;)
            next++;
        ok = match_group(&places[i], next - i, row_count);
    }
    for (uint32_t i = 0; ok && i < count; i++)
        rows[places[i].side][places[i].number] = places[i].row;
    free(places);
    return ok;
}
