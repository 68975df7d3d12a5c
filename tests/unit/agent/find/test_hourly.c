/* SPDX-License-Identifier: MIT
 * test_hourly.c: a line of the agent's log appears once an hour, and what had no line is counted. */
#include "agent/find/library.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>

#define MINUTE 60000000000ull
#define START  (5 * MINUTE)

static struct gp_hourly hourly;
static uint64_t more, others;

static bool take(const char *text, uint64_t minute)
{
    more = others = 0;
    return gp_library_hourly_take(&hourly, text, START + minute * MINUTE, &more, &others);
}

Test(hourly, programs_that_come_and_go_are_one_line_an_hour)
{
    unsigned lines = 0;
    uint64_t told = 0;
    for (unsigned minute = 0; minute < 180; minute++)
        for (unsigned i = 0; i < 10; i++)
            if (take("armed libgpuprof.so", minute)) {
                lines++;
                told += more;
            }
    cr_assert(eq(uint, lines, 3));
    cr_assert(eq(u64, told, 2 * 599));
}

Test(hourly, another_library_has_a_line_of_its_own)
{
    cr_assert(take("a", 0) && take("b", 0) && !take("a", 1) && !take("b", 59));
    cr_assert(take("a", 60));
    cr_assert(eq(u64, more, 1));
}

Test(hourly, a_flood_of_names_is_a_line_a_minute_and_every_one_is_counted)
{
    unsigned lines = 0;
    uint64_t told = 0;
    char text[32];
    for (unsigned i = 0; i < 60 * 1000; i++) {
        snprintf(text, sizeof(text), "name %u", i);
        if (take(text, i / 1000)) {
            lines++;
            told += others + more;
        }
    }
    cr_assert(le(uint, lines, GP_HOURLY_BURST + 60));
    cr_assert(ge(uint, lines, 60));
    for (unsigned minute = 200; !take("last", minute); minute++)
        ;
    cr_assert(eq(u64, told + others, 60 * 1000 - lines));
}
