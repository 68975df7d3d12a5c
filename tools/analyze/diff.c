/* SPDX-License-Identifier: MIT
 * diff.c: Compares two recordings of one program by call site; see analyze.h.  Its parts: files,
 * matches, renamed functions, the comparison. */
#include <analyze/analyze.h>
#include <analyze/flow.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>
#include <stdlib.h>
#include <string.h>

/* ---- files ------------------------------------------------------------------------------------------------------- */
/* Finds the source files of two recordings that are the same, though the program lay in another
 * folder; see analyze.h.  A file is that of the other side whose path has the most folders in common
 * with it, counted from its name. */

/* Each round pairs the files that are next to each other in the order of their reversed paths; what a
 * round leaves are files between which stood others of one side. */
#define GP_DIFF_ROUNDS 16u

struct diff_file {
    const char *path;
    size_t length;
    uint32_t number; /* of its side */
    int side;
    bool paired;
};

/* The byte `at` before the end, with separators before all others: the files of one folder are together. */
static int file_byte(const struct diff_file *file, size_t at)
{
    if (at >= file->length)
        return 0;
    unsigned char byte = (unsigned char)file->path[file->length - 1 - at];
    return byte == '/' || byte == '\\' ? 1 : byte + 1;
}

static int file_compare(const void *one, const void *other)
{
    const struct diff_file *a = one, *b = other;
    for (size_t at = 0; at <= a->length && at <= b->length; at++) {
        int x = file_byte(a, at), y = file_byte(b, at);
        if (x != y)
            return x - y;
    }
    return a->side - b->side;
}

/* How many of the last parts of both paths are equal.  The same path is next to its like, and nothing before it has as
 * many. */
static uint32_t file_common(const struct diff_file *a, const struct diff_file *b)
{
    uint32_t parts = 0;
    if (!a->length && !b->length)
        return 1;
    for (size_t at = 0;; at++) {
        int x = file_byte(a, at), y = file_byte(b, at);
        parts += x <= 1 && y <= 1 && at; /* a part ends on both sides */
        if (x != y || x == 0)
            return parts;
    }
}

/* Pairs neighbours of different sides that are nearer to each other than to their other neighbours.
 * Returns how many pairs were made. */
static uint32_t files_round(struct diff_file **left, uint32_t count, uint32_t *common, uint32_t *partner)
{
    uint32_t pairs = 0;
    for (uint32_t i = 0; i + 1 < count; i++)
        common[i] = left[i]->side == left[i + 1]->side ? 0 : file_common(left[i], left[i + 1]);
    for (uint32_t i = 0; i + 1 < count; i++) {
        uint32_t before = i ? common[i - 1] : 0, after = i + 2 < count ? common[i + 1] : 0;
        if (!common[i] || common[i] < after || common[i] <= before || left[i]->paired || left[i + 1]->paired)
            continue;
        struct diff_file *old = left[left[i]->side ? i + 1 : i], *new = left[left[i]->side ? i : i + 1];
        partner[new->number] = old->number;
        old->paired = new->paired = true;
        pairs++;
    }
    return pairs;
}

bool gp_diff_files(const char *const *const paths[2], const uint32_t counts[2], uint32_t *const ids[2])
{
    uint32_t count = counts[0] + counts[1], left_count = 0;
    struct diff_file *files = calloc(count + 1ul, sizeof(*files)), **left = calloc(count + 1ul, sizeof(*left));
    uint32_t *common = calloc(count + 1ul, sizeof(*common)), *partner = calloc(counts[1] + 1ul, sizeof(*partner));
    bool ok = files && left && common && partner;
    for (uint32_t i = 0; ok && i < count; i++) {
        int side = i >= counts[0];
        uint32_t number = side ? i - counts[0] : i;
        const char *path = paths[side][number];
        files[i] = (struct diff_file){.path = path, .length = strlen(path), .number = number, .side = side};
    }
    if (ok && count)
        qsort(files, count, sizeof(*files), file_compare);
    for (uint32_t i = 0; ok && i < count; i++)
        left[left_count++] = &files[i];
    for (uint32_t i = 0; ok && i < counts[1]; i++)
        partner[i] = UINT32_MAX;
    for (uint32_t round = 0; ok && round < GP_DIFF_ROUNDS && files_round(left, left_count, common, partner); round++) {
        uint32_t kept = 0;
        for (uint32_t i = 0; i < left_count; i++)
            if (!left[i]->paired)
                left[kept++] = left[i];
        left_count = kept;
    }
    for (uint32_t i = 0; ok && i < counts[0]; i++)
        ids[0][i] = i;
    for (uint32_t i = 0; ok && i < counts[1]; i++)
        ids[1][i] = partner[i] == UINT32_MAX ? counts[0] + i : partner[i];
    free(files);
    free(left);
    free(common);
    free(partner);
    return ok;
}

/* ---- matches ----------------------------------------------------------------------------------------------------- */
/* Finds the call sites of two recordings that are the same; see analyze.h.  Sites of equal stacks,
 * but for the lines, are a group.  Lines move between versions of a program, and keep their order:
 * within a group the sites of one recording are matched with those of the other in order, so that as
 * many as possible have the same memory, and the lines of all move by the same number if possible. */

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

/* ---- renamed functions ------------------------------------------------------------------------------------------- */
/* Finds functions and files that have another name in the second recording; see analyze.h. What
 * stays the same under a new name is most of the memory below it. */

/* Most comparisons of marks; what is left is not looked at. */
#define GP_DIFF_RENAMED_WORK (1ull << 22)

struct renamed_thing { /* marks[begin] to marks[end] */
    uint32_t thing, group;
    size_t begin, end;
};

struct renamed_pair {
    uint32_t thing[2];
    size_t shared, most; /* marks of both, and of the larger one */
};

static int mark_compare(const void *one, const void *other)
{
    const struct gp_diff_mark *a = one, *b = other;
    return a->thing != b->thing ? GP_ORDER(a->thing, b->thing) : GP_ORDER(a->mark, b->mark);
}

static int thing_compare(const void *one, const void *other)
{
    const struct renamed_thing *a = one, *b = other;
    return a->group != b->group ? GP_ORDER(a->group, b->group) : GP_ORDER(a->thing, b->thing);
}

/* The most alike first. */
static int pair_compare(const void *one, const void *other)
{
    const struct renamed_pair *a = one, *b = other;
    double x = (double)a->shared / (double)a->most, y = (double)b->shared / (double)b->most;
    if (x > y || x < y)
        return x > y ? -1 : 1;
    if (a->shared != b->shared)
        return GP_ORDER(b->shared, a->shared);
    return a->thing[0] != b->thing[0] ? GP_ORDER(a->thing[0], b->thing[0]) : GP_ORDER(a->thing[1], b->thing[1]);
}

/* The things of these sorted marks that the other side does not have.  on: of each thing, which sides. */
static struct renamed_thing *things_left(const struct gp_diff_mark *marks, size_t count, const uint32_t *group,
                                         const uint8_t *on, uint32_t *left)
{
    struct renamed_thing *things = calloc(count + 1, sizeof(*things));
    *left = 0;
    for (size_t i = 0, next; things && i < count; i = next) {
        for (next = i + 1; next < count && marks[next].thing == marks[i].thing;)
            next++;
        if (on[marks[i].thing] != 3)
            things[(*left)++] = (struct renamed_thing){marks[i].thing, group[marks[i].thing], i, next};
    }
    if (things && *left)
        qsort(things, *left, sizeof(*things), thing_compare);
    return things;
}

static size_t marks_shared(const struct gp_diff_mark *a, size_t a_count, const struct gp_diff_mark *b, size_t b_count)
{
    size_t shared = 0;
    for (size_t i = 0, k = 0; i < a_count && k < b_count;) {
        if (a[i].mark == b[k].mark) {
            shared++;
            i++;
            k++;
        } else if (a[i].mark < b[k].mark) {
            i++;
        } else {
            k++;
        }
    }
    return shared;
}

/* Pairs of things of one group that share at least half of their marks.  NULL: out of memory. */
static struct renamed_pair *pairs_find(struct gp_diff_mark *const marks[2], struct renamed_thing *const things[2],
                                       const uint32_t left[2], size_t *count)
{
    size_t room = 64;
    struct renamed_pair *pairs = malloc(room * sizeof(*pairs));
    uint64_t work = 0;
    *count = 0;
    for (uint32_t i = 0, first = 0; pairs && i < left[0]; i++) {
        const struct renamed_thing *a = &things[0][i];
        while (first < left[1] && things[1][first].group < a->group)
            first++;
        for (uint32_t k = first; k < left[1] && things[1][k].group == a->group; k++) {
            const struct renamed_thing *b = &things[1][k];
            size_t one = a->end - a->begin, other = b->end - b->begin, most = one > other ? one : other;
            work += one + other;
            if (work > GP_DIFF_RENAMED_WORK)
                return pairs;
            size_t shared = marks_shared(marks[0] + a->begin, one, marks[1] + b->begin, other);
            if (shared * 2 < most)
                continue;
            if (*count == room) {
                struct renamed_pair *more = realloc(pairs, 2 * room * sizeof(*pairs));
                if (!more) {
                    free(pairs);
                    return NULL;
                }
                pairs = more;
                room *= 2;
            }
            pairs[(*count)++] = (struct renamed_pair){{a->thing, b->thing}, shared, most};
        }
    }
    return pairs;
}

bool gp_diff_renamed(struct gp_diff_mark *const marks[2], const size_t counts[2], const uint32_t *group,
                     uint32_t thing_count, uint32_t *same)
{
    uint8_t *on = calloc(thing_count + 1ul, 1);
    struct renamed_thing *things[2] = {NULL, NULL};
    struct renamed_pair *pairs = NULL;
    uint32_t left[2];
    size_t pair_count = 0;
    for (uint32_t i = 0; i < thing_count; i++)
        same[i] = i;
    for (int side = 0; on && side < 2; side++) {
        if (counts[side])
            qsort(marks[side], counts[side], sizeof(**marks), mark_compare);
        for (size_t i = 0; i < counts[side]; i++)
            on[marks[side][i].thing] |= (uint8_t)(1 << side);
    }
    for (int side = 0; on && side < 2; side++)
        things[side] = things_left(marks[side], counts[side], group, on, &left[side]);
    if (things[0] && things[1])
        pairs = pairs_find(marks, things, left, &pair_count);
    if (pairs && pair_count)
        qsort(pairs, pair_count, sizeof(*pairs), pair_compare);
    for (size_t i = 0; i < pair_count; i++) {
        uint32_t old = pairs[i].thing[0], new = pairs[i].thing[1];
        if (on[old] == 3 || on[new] == 3)
            continue;
        on[old] = on[new] = 3;
        same[new] = old;
    }
    bool ok = pairs;
    free(on);
    free(things[0]);
    free(things[1]);
    free(pairs);
    return ok;
}

/* ---- the comparison ---------------------------------------------------------------------------------------------- */

static int64_t diff_change(const struct gp_diff_row *row)
{
    return (int64_t)((uint64_t)row->peak_bytes[1] - (uint64_t)row->peak_bytes[0]);
}

static int diff_compare(const void *one, const void *other)
{
    const struct gp_diff_row *a = one, *b = other;
    int64_t left = diff_change(a), right = diff_change(b);
    if (left != right)
        return GP_ORDER(right, left);
    left = (int64_t)((uint64_t)a->live_bytes[1] - (uint64_t)a->live_bytes[0]);
    right = (int64_t)((uint64_t)b->live_bytes[1] - (uint64_t)b->live_bytes[0]);
    if (left != right)
        return GP_ORDER(right, left);
    if (a->site[0] != b->site[0])
        return GP_ORDER(a->site[0], b->site[0]);
    return GP_ORDER(a->site[1], b->site[1]);
}

/* For site i: [2i] its bytes at the peak of the device, [2i + 1] its live bytes at the end. */
static int64_t *diff_numbers(const struct gp_flow *flow, int64_t *calls)
{
    const struct gp_recording *recording = flow->recording;
    int64_t *numbers = calloc((size_t)recording->site_count * 2 + 2, sizeof(*numbers));
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    for (uint32_t d = 0; numbers && d < recording->device_count; d++) {
        struct gp_peak *peak = gp_flow_peak(flow, d, 0);
        if (!peak) {
            free(numbers);
            return NULL;
        }
        for (uint32_t i = 0; i < peak->count; i++)
            numbers[peak->parts[i].site * 2] += peak->parts[i].bytes;
        free(peak);
    }
    while (numbers && gp_flow_next(&walk, &change)) {
        uint64_t bytes = change.add ? change.item->bytes : -change.item->bytes;
        if (!(change.what & GP_FLOW_KIND))
            continue;
        calls[change.item->site] += change.add;
        numbers[change.item->site * 2 + 1] = (int64_t)((uint64_t)numbers[change.item->site * 2 + 1] + bytes);
    }
    return numbers;
}

/* The highest number of bytes that each row held at one moment: peaks[row_count].  False: out of memory. */
static bool diff_peaks(const struct gp_flow *flow, const uint32_t *rows, uint32_t row_count, int64_t *peaks)
{
    int64_t *held = calloc(row_count + 1ul, sizeof(*held));
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    while (held && gp_flow_next(&walk, &change)) {
        if (!(change.what & GP_FLOW_SUMMED)) /* as in the peak of the device: code that is loaded at a line is none */
            continue;
        uint64_t bytes = change.add ? gp_flow_bytes(&change) : -gp_flow_bytes(&change);
        uint32_t row = rows[change.item->site];
        held[row] = (int64_t)((uint64_t)held[row] + bytes);
        peaks[row] = held[row] > peaks[row] ? held[row] : peaks[row];
    }
    bool ok = held;
    free(held);
    return ok;
}

/* at: for each row the index of its numbers in diff->rows + 1; 0: none yet. */
static bool diff_side(struct gp_diff *diff, const struct gp_recording *recording, int side, const uint32_t *rows,
                      uint32_t row_count, uint32_t *at)
{
    struct gp_flow *flow = gp_flow_new(recording);
    int64_t *calls = calloc(recording->site_count + 1u, sizeof(*calls));
    int64_t *peaks = calloc(row_count + 1ul, sizeof(*peaks));
    int64_t *numbers = flow && calls && peaks ? diff_numbers(flow, calls) : NULL;
    bool ok = numbers && diff_peaks(flow, rows, row_count, peaks);
    for (uint32_t i = 0; ok && i < recording->site_count; i++) {
        if (calls[i] == 0 && numbers[i * 2] == 0)
            continue;
        if (!at[rows[i]]) {
            diff->rows[diff->count] = (struct gp_diff_row){.site = {GP_REC_NONE, GP_REC_NONE}};
            at[rows[i]] = ++diff->count;
        }
        struct gp_diff_row *to = &diff->rows[at[rows[i]] - 1];
        to->site[side] = to->site[side] == GP_REC_NONE ? i : to->site[side];
        to->peak_bytes[side] += numbers[i * 2];
        to->own_bytes[side] = peaks[rows[i]];
        to->live_bytes[side] += numbers[i * 2 + 1];
        to->calls[side] += calls[i];
    }
    free(calls);
    free(peaks);
    free(numbers);
    gp_flow_free(flow);
    return ok;
}

struct gp_diff *gp_diff_find(const struct gp_recording *const recordings[2], const uint32_t *const rows[2],
                             uint32_t row_count)
{
    struct gp_diff *diff = calloc(1, sizeof(*diff) + (row_count + 1ul) * sizeof(struct gp_diff_row));
    uint32_t *at = calloc(row_count + 1ul, sizeof(*at));
    bool ok = diff && at;
    for (int side = 0; ok && side < 2; side++)
        ok = diff_side(diff, recordings[side], side, rows[side], row_count, at);
    free(at);
    if (!ok) {
        free(diff);
        return NULL;
    }
    qsort(diff->rows, diff->count, sizeof(diff->rows[0]), diff_compare);
    return diff;
}
