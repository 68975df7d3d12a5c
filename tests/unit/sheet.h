/* SPDX-License-Identifier: MIT
 * sheet.h: the numbers of a result as one checksum, so that thousands of results are one line of a golden file.
 * GP_GOLDEN_SHOW=folder writes the numbers themselves there, to be read and compared. */
#ifndef GP_TEST_UNIT_SHEET_H
#define GP_TEST_UNIT_SHEET_H

#include <criterion/criterion.h>
#include <lib/golden.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sheet {
    char name[48];
    uint32_t sum; /* FNV-1a */
    uint32_t count;
    FILE *show;
};

static inline struct sheet sheet_new(const char *golden, const char *name)
{
    struct sheet sheet = {.sum = 2166136261u};
    const char *folder = getenv("GP_GOLDEN_SHOW");
    snprintf(sheet.name, sizeof(sheet.name), "%s", name);
    if (folder) {
        char path[512];
        snprintf(path, sizeof(path), "%s/%s-%s", folder, golden, name);
        sheet.show = fopen(path, "w");
        cr_assert(sheet.show, "%s", path);
    }
    return sheet;
}

static inline void sheet_number(struct sheet *sheet, int64_t value)
{
    for (unsigned i = 0; i < 64; i += 16)
        sheet->sum = (sheet->sum ^ ((uint64_t)value >> i & 0xffff)) * 16777619u;
    sheet->count++;
    if (sheet->show)
        fprintf(sheet->show, " %lld", (long long)value);
}

static inline void sheet_word(struct sheet *sheet, const char *text)
{
    for (const char *at = text; *at; at++)
        sheet->sum = (sheet->sum ^ (unsigned char)*at) * 16777619u;
    sheet->count++;
    if (sheet->show)
        fprintf(sheet->show, " %s", text);
}

/* Five digits, because another compiler may round the last one of a sum in another way. */
static inline void sheet_real(struct sheet *sheet, double value)
{
    char text[32];
    snprintf(text, sizeof(text), "%.5g", value == 0 ? 0 : value);
    sheet_word(sheet, text);
}

/* So that one more number of one result is not the first one of the next. */
static inline void sheet_line(struct sheet *sheet)
{
    sheet->sum = (sheet->sum ^ 10u) * 16777619u;
    if (sheet->show)
        fputc('\n', sheet->show);
}

#define SHEET_NUMBERS(_sheet, ...)                                                                                     \
    do {                                                                                                               \
        const int64_t numbers_[] = {__VA_ARGS__};                                                                      \
        for (size_t i_ = 0; i_ < sizeof(numbers_) / sizeof(numbers_[0]); i_++)                                         \
            sheet_number((_sheet), numbers_[i_]);                                                                      \
    } while (0)

/* ---- the golden file ----------------------------------------------------------------------------------------------- */

struct golden_sheets {
    const char *file;
    char text[1 << 15];
};

static inline void golden_begin(struct golden_sheets *golden, const char *file)
{
    memset(golden, 0, sizeof(*golden));
    golden->file = file;
}

static inline void golden_add(struct golden_sheets *golden, struct sheet *sheet)
{
    char line[80];
    if (sheet->show)
        fclose(sheet->show);
    snprintf(line, sizeof(line), "%.47s %u %08x\n", sheet->name, sheet->count, sheet->sum);
    cr_assert_lt(strlen(golden->text) + strlen(line), sizeof(golden->text));
    strcat(golden->text, line);
}

static inline void golden_end(struct golden_sheets *golden)
{
    golden_expect(golden->file, golden->text, true);
}

#endif
