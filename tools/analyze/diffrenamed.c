/* SPDX-License-Identifier: MIT
 *
 * diffrenamed.c: finds functions and files that have another name in the second recording; see
 * analyze.h. What stays the same under a new name is most of the memory below it.
 */
#include <analyze/analyze.h>
#include <read/common/hash.h>
#include <stdlib.h>

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
