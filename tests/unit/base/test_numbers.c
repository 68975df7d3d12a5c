/* SPDX-License-Identifier: MIT
 *
 * test_numbers.c: the ids of numbers.def, which recordings and sessions rely on, are those of tests/golden/numbers.txt.
 * A new row of the table is a new line there (GP_GOLDEN_UPDATE=1 adds it, and never takes one away).
 */
#include <criterion/criterion.h>

#include <base/numbers.h>
#include <lib/golden.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(numbers, .timeout = 60);

Test(numbers, ids_are_permanent)
{
    static const char *const rows[] = {
#define GP_STAT(_id, _gauge, _tag, _name, _reset, _told) "stat " #_id " " #_name "\n",
#define GP_VALUE(_id, _name)                             "value " #_id " " #_name "\n",
#define GP_NUMBER(_id, _name)                            "number " #_id " " #_name "\n",
#define GP_KIND(_id, _tag, _name, ...)                   "kind " #_id " " #_name "\n",
#define GP_LOST(_id, _tag, _name)                        "lost " #_id " " #_name "\n",
#include <gpuprof/numbers.def>
    };
    char *golden = golden_read("tests/golden/numbers.txt");
    size_t lines = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t id = (size_t)(strrchr(rows[i], ' ') + 1 - rows[i]);
        for (size_t j = 0; j < i; j++)
            cr_assert(strncmp(rows[i], rows[j], id) != 0, "one id for two: %s%s", rows[j], rows[i]);
        if (!strstr(golden, rows[i]) && getenv("GP_GOLDEN_UPDATE")) {
            FILE *file = fopen(path_source("tests/golden/numbers.txt"), "ae");
            cr_assert(file && fputs(rows[i], file) >= 0 && fclose(file) == 0);
            continue;
        }
        cr_expect(strstr(golden, rows[i]), "not in tests/golden/numbers.txt: %s", rows[i]);
    }
    for (const char *at = golden; (at = strchr(at, '\n')); at++)
        lines++;
    cr_expect_leq(lines, sizeof(rows) / sizeof(rows[0]), "numbers.def lacks a row that had an id");
    free(golden);
}

/* Each int64_t of a device's numbers is in one row of a recording, and no row has anything else. */
Test(numbers, rows_cover_the_numbers_of_a_device)
{
    static uint8_t seen[sizeof(struct gp_wire_device)];
    const size_t from = offsetof(struct gp_wire_device, stats), to = sizeof(struct gp_wire_device);
    for (unsigned i = 0; i < GP_NUMBER_ROWS; i++) {
        const struct gp_number_row *row = &gp_number_rows[i];
        cr_expect_eq(gp_number_row(row->id), row, "id %u occurs twice", row->id);
        for (size_t at = row->offset; at < row->offset + row->count * sizeof(int64_t); at++)
            seen[at]++;
    }
    for (size_t at = 0; at < sizeof(seen); at++)
        cr_expect_eq(seen[at], at >= from && at < to, "byte %zu", at);
    cr_expect_null(gp_number_row(0));
}
