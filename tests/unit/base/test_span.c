/* SPDX-License-Identifier: MIT
 * test_span.c: the set of address ranges against a plain array. */
#include "base/span.h"
#include "lib/random.h"
#include <criterion/criterion.h>
#include <stdint.h>

TestSuite(span, .timeout = 60);

#define SLOTS 512u
#define UNIT  256u

/* owner[i]: 1 + the slot at which the span over slot i starts; 0 none. */
static uint32_t owner[SLOTS];

static uint32_t lowest(uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count && i < SLOTS; i++)
        if (owner[i])
            return owner[i];
    return 0;
}

static void fill(uint32_t first, uint32_t count, uint32_t value)
{
    for (uint32_t i = first; i < first + count; i++)
        owner[i] = value;
}

Test(span, random_steps_agree_with_an_array)
{
    const uint64_t base = 0x7f0000000000ull;
    struct gp_span_set set = {0};
    uint64_t seed = 1, count = 0;
    for (unsigned step = 0; step < 200000; step++) {
        uint32_t first = (uint32_t)(random_mix(&seed) % SLOTS), many = 1 + (uint32_t)(random_mix(&seed) % 7);
        uint64_t address = base + (uint64_t)first * UNIT, inside = random_mix(&seed) % UNIT;
        uint32_t want = lowest(first, many);
        struct gp_span *found = gp_span_in(&set, address + inside, (uint64_t)many * UNIT - inside);
        cr_assert_eq(found != NULL, want != 0, "step %u", step);
        if (found)
            cr_assert_eq(found->address, base + (uint64_t)(want - 1) * UNIT);
        if (!found && first + many <= SLOTS) {
            found = gp_span_put(&set, address, (uint64_t)many * UNIT);
            cr_assert(found && found->claim.asleep == 0 && found->claim.counted == 0);
            found->claim.asleep = step;
            fill(first, many, first + 1);
            count++;
        } else if (found) {
            cr_assert_eq(gp_span_at(&set, found->address), found);
            cr_assert_null(gp_span_at(&set, found->address + 1));
            fill(want - 1, (uint32_t)(found->bytes / UNIT), 0);
            gp_span_drop(&set, found);
            count--;
        }
        cr_assert_eq(set.count, count);
    }
}

Test(span, the_ends_of_the_address_space_and_the_limit)
{
    struct gp_span_set set = {.limit = 2};
    cr_assert_null(gp_span_in(&set, 0, UINT64_MAX));
    struct gp_span *high = gp_span_put(&set, UINT64_MAX - 10, 10);
    cr_assert_eq(gp_span_in(&set, 5, UINT64_MAX - 5), high);
    cr_assert_null(gp_span_in(&set, 5, UINT64_MAX - 15));
    cr_assert(gp_span_put(&set, 1, 4));
    cr_assert_null(gp_span_put(&set, 100, 1));
    cr_assert_eq(gp_span_in(&set, 4, 1)->address, 1);
    cr_assert_null(gp_span_in(&set, 5, 1));
}
