/* SPDX-License-Identifier: MIT
 * test_cfi.c: the reader of unwind tables against tables that are made here: the rule at each address, and nothing between
 * the functions or out of a table that is not as the reader knows it.
 */
#include "site/cfi.h"
#include <criterion/criterion.h>
#include <string.h>

#define FUNCTIONS 9u
#define FRAMES    2048u /* offset of .eh_frame in the buffer, and that of the code */
#define CODE      8192u

static uint8_t buffer[16384];
static struct {
    uint32_t from, bytes, step; /* step: of the second advance */
} functions[FUNCTIONS];

static uint32_t put(uint32_t at, const void *bytes, size_t count)
{
    memcpy(buffer + at, bytes, count);
    return at + (uint32_t)count;
}

static uint32_t put_word(uint32_t at, int64_t word)
{
    int32_t value = (int32_t)word;
    return put(at, &value, sizeof(value));
}

/* Ends a description whose length is at `start`. */
static uint32_t put_end(uint32_t start, uint32_t at)
{
    while ((at - start) % 4)
        buffer[at++] = 0;
    put_word(start, at - start - 4);
    return at;
}

/* push bp; mov sp, bp; ...; pop bp; ret; and code behind the ret that has the frame again. */
static uint32_t put_function(uint32_t at, uint32_t i)
{
    const uint8_t begin[] = {0, 0x41, 0x0e, 16, 0x86, 2}; /* no augmentation; from 1 on: CFA sp + 16, bp at CFA - 16 */
    const uint8_t frame[] = {0x0d, 6, 0x0a};              /* CFA bp + 16; remember */
    const uint8_t end[] = {0x42, 0x0c, 7, 8, 0xc6, 0x43, 0x0b}; /* 2 later: CFA sp + 8, bp as before; 3 later: recall */
    uint32_t start = at, step = functions[i].step;
    at = put_word(at + 4, at + 4 - FRAMES);
    at = put_word(at, (int64_t)functions[i].from - at);
    at = put_word(at, functions[i].bytes);
    at = put(at, begin, sizeof(begin));
    if (step < 64)
        at = put(at, (uint8_t[]){(uint8_t)(0x40 | step)}, 1);
    else if (step < 256)
        at = put(at, (uint8_t[]){2, (uint8_t)step}, 2);
    else
        at = put(at, (uint8_t[]){3, (uint8_t)step, (uint8_t)(step >> 8)}, 3);
    at = put(at, frame, sizeof(frame));
    at = put(at, end, sizeof(end));
    return put_end(start, at);
}

/* The common part: identity, version, text, the two factors, the number of ra, data of the text, instructions. */
static const uint8_t plain_common[] = {0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1};
static const uint8_t *common = plain_common;
static size_t common_bytes = sizeof(plain_common);

static struct gp_cfi_table table_make(void)
{
    static const uint32_t steps[FUNCTIONS] = {1, 2, 63, 64, 65, 255, 256, 257, 300};
    uint32_t at = FRAMES + 4, code = CODE;
    at = put_end(FRAMES, put(at, common, common_bytes));
    put(0, (uint8_t[]){1, 0x1b, 0x03, 0x3b}, 4);
    put_word(4, FRAMES - 4);
    put_word(8, FUNCTIONS);
    for (uint32_t i = 0; i < FUNCTIONS; i++) {
        functions[i].from = code;
        functions[i].step = steps[i];
        functions[i].bytes = 1 + steps[i] + 2 + 3 + 4;
        put_word(12 + 8 * i, code);
        put_word(16 + 8 * i, at);
        at = put_function(at, i);
        code += functions[i].bytes + i % 3; /* some follow each other, others have a gap */
    }
    put_word(at, 0);
    return (struct gp_cfi_table){buffer, buffer + sizeof(buffer), buffer};
}

static enum gp_cfi_answer ask(const struct gp_cfi_table *table, uint32_t offset, struct gp_cfi_rule *rule)
{
    return gp_cfi_find(table, (uint64_t)(uintptr_t)buffer + offset + 1, rule);
}

static void check_rule(const struct gp_cfi_rule *is, uint32_t i, uint32_t within)
{
    uint32_t framed = 1 + functions[i].step, ended = framed + 2, again = ended + 3;
    bool pushed = within >= 1 && !(within >= ended && within < again), has = within >= framed && pushed;
    cr_assert_eq(is->base, has ? GP_CFI_BP : GP_CFI_SP, "function %u + %u", i, within);
    cr_assert_eq(is->offset, pushed ? 16 : 8, "function %u + %u: %d", i, within, is->offset);
    cr_assert_eq(is->bp, pushed ? GP_CFI_CFA : GP_CFI_SAME, "function %u + %u", i, within);
    cr_assert(!pushed || is->bp_offset == -16);
    cr_assert(is->ra == GP_CFI_CFA && is->ra_offset == -8 && !is->deref && is->add == 0);
}

Test(cfi, each_address_has_the_rule_of_its_row)
{
    struct gp_cfi_table table = table_make();
    struct gp_cfi_rule rule;
    uint32_t i = 0;
    cr_assert_eq(ask(&table, CODE - 1, &rule), GP_CFI_NONE, "before the first");
    for (uint32_t at = CODE; i < FUNCTIONS; at++) {
        bool inside = at >= functions[i].from;
        cr_assert_eq(ask(&table, at, &rule), inside ? GP_CFI_RULE : GP_CFI_NONE, "offset %u", at - CODE);
        if (inside)
            check_rule(&rule, i, at - functions[i].from);
        i += at + 1 == functions[i].from + functions[i].bytes;
    }
    uint32_t last = functions[FUNCTIONS - 1].from + functions[FUNCTIONS - 1].bytes;
    cr_assert_eq(ask(&table, last, &rule), GP_CFI_NONE, "behind the last");
    cr_assert_eq(gp_cfi_find(&table, 0, &rule), GP_CFI_NONE);
}

Test(cfi, another_form_of_the_header_is_not_read)
{
    static const struct {
        uint32_t at;
        uint8_t value;
    } changes[] = {{0, 0}, {0, 2}, {1, 0xff}, {2, 0xff}, {3, 0x1b}, {3, 0x3c}, {3, 0xff}, {8, 0}, {10, 1}, {11, 0xff}};
    struct gp_cfi_rule rule;
    for (unsigned i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct gp_cfi_table table = table_make();
        cr_assert_eq(ask(&table, CODE, &rule), GP_CFI_RULE);
        buffer[changes[i].at] = changes[i].value;
        cr_expect_eq(ask(&table, CODE, &rule), GP_CFI_NONE, "byte %u is %u", changes[i].at, changes[i].value);
    }
    struct gp_cfi_table table = table_make();
    table.header = table.end;
    cr_expect_eq(ask(&table, CODE, &rule), GP_CFI_NONE, "no header");
}

/* No byte behind the end is read, and what is cut off is not known. */
Test(cfi, a_table_that_is_cut_off_gives_the_same_rules_or_none)
{
    struct gp_cfi_table table = table_make();
    struct gp_cfi_rule whole, rule;
    for (uint32_t i = 0; i < FUNCTIONS; i++) {
        uint32_t at = functions[i].from + functions[i].bytes - 1;
        cr_assert_eq(ask(&table, at, &whole), GP_CFI_RULE);
        for (uint32_t end = 0; end < FRAMES + 1024; end++) {
            table.end = buffer + end;
            enum gp_cfi_answer answer = ask(&table, at, &rule);
            if (answer == GP_CFI_RULE)
                cr_assert_eq(memcmp(&rule, &whole, sizeof(rule)), 0, "function %u, end %u", i, end);
            cr_assert(answer != GP_CFI_RULE || end > FRAMES);
        }
        table.end = buffer + sizeof(buffer);
    }
}

#define BYTES(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})
#define RULES      0x0c, 7, 8, 0x90, 1 /* CFA = sp + 8, and ra one factor from it */

/* Each field of the common part at both ends of what is read. */
Test(cfi, the_common_part)
{
    const struct {
        const uint8_t *bytes;
        size_t count;
        enum gp_cfi_answer answer;
        int ra_offset;
    } forms[] = {
        {BYTES(0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, RULES), GP_CFI_RULE, -8},
        {BYTES(0, 0, 0, 0, 3, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, RULES), GP_CFI_RULE, -8},
        {BYTES(0, 0, 0, 0, 3, 'z', 'R', 0, 1, 0x78, 0x90, 0, 1, 0x1b, RULES), GP_CFI_RULE, -8},
        {BYTES(0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 0x90, 0, 1, 0x1b, RULES), GP_CFI_NONE, 0},
        {BYTES(0, 0, 0, 0, 2, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, RULES), GP_CFI_NONE, 0},
        {BYTES(0, 0, 0, 0, 4, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, RULES), GP_CFI_NONE, 0},
        {BYTES(1, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, RULES), GP_CFI_NONE, 0},
        {BYTES(0, 0, 0, 0, 1, 'z', 'R', 0, 0, 0x78, 16, 1, 0x1b, RULES), GP_CFI_NONE, 0},
        {BYTES(0, 0, 0, 0, 1, 'z', 'R', 0, 64, 0x78, 16, 1, 0x1b, RULES), GP_CFI_RULE, -8},
        {BYTES(0, 0, 0, 0, 1, 'z', 'R', 0, 65, 0x78, 16, 1, 0x1b, RULES), GP_CFI_NONE, 0},
        {BYTES(0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x40, 16, 1, 0x1b, RULES), GP_CFI_RULE, -64},
        {BYTES(0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0xbf, 0x7f, 16, 1, 0x1b, RULES), GP_CFI_NONE, 0},
        {BYTES(0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0xc0, 0, 16, 1, 0x1b, RULES), GP_CFI_RULE, 64},
        {BYTES(0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0xc1, 0, 16, 1, 0x1b, RULES), GP_CFI_NONE, 0},
        {BYTES(0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 15, 1, 0x1b, RULES), GP_CFI_NONE, 0},
        {BYTES(0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 17, 1, 0x1b, RULES), GP_CFI_NONE, 0},
        {BYTES(0, 0, 0, 0, 1, 'z', 'P', 'L', 'R', 0, 1, 0x78, 16, 7, 0x1b, 1, 2, 3, 4, 5, 0x1b, RULES), GP_CFI_RULE,
         -8},
        {BYTES(0, 0, 0, 0, 1, 'z', 'R', 'P', 'L', 0, 1, 0x78, 16, 7, 0x1b, 0x9b, 1, 2, 3, 4, 5, RULES), GP_CFI_RULE,
         -8},
        {BYTES(0, 0, 0, 0, 1, 'z', 'P', 'R', 0, 1, 0x78, 16, 10, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x1b, RULES), GP_CFI_RULE,
         -8},
        {BYTES(0, 0, 0, 0, 1, 'z', 'L', 'R', 0, 1, 0x78, 16, 1, 0x1b, RULES), GP_CFI_NONE, 0},
        {BYTES(0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 3, 0x1b, 9, 9, RULES), GP_CFI_RULE, -8},
        {BYTES(0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 100, 0x1b, RULES), GP_CFI_NONE, 0},
        {BYTES(0, 0, 0, 0, 1, 'z', 'R', 'S', 0, 1, 0x78, 16, 1, 0x1b, RULES), GP_CFI_END, 0},
        {BYTES(0, 0, 0, 0, 1, 'z', 'R', 'X', 0, 1, 0x78, 16, 1, 0x1b, RULES), GP_CFI_NONE, 0},
        {BYTES(0, 0, 0, 0, 1, 'y', 'R', 0, 1, 0x78, 16, 1, 0x1b, RULES), GP_CFI_NONE, 0},
        {BYTES(0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x9b, RULES), GP_CFI_NONE, 0},
        {BYTES(0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x2b, RULES), GP_CFI_NONE, 0},
        {BYTES(0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x2d), GP_CFI_END, 0},
    };
    struct gp_cfi_rule rule;
    for (unsigned i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        common = forms[i].bytes;
        common_bytes = forms[i].count;
        struct gp_cfi_table table = table_make();
        cr_expect_eq(ask(&table, CODE, &rule), forms[i].answer, "form %u", i);
        cr_expect(forms[i].answer != GP_CFI_RULE || (rule.offset == 8 && rule.ra_offset == forms[i].ra_offset),
                  "form %u: %d", i, rule.ra_offset);
    }
}

/* Words at the start of a description: its length and where its common part is. */
Test(cfi, a_description_that_points_elsewhere)
{
    static const int64_t lengths[] = {0, -1, 1, 4, 100000, INT32_MAX};
    static const int64_t backs[] = {0, 4, -4, INT32_MAX, -1, FRAMES + 64 + 4096};
    struct gp_cfi_rule rule;
    for (unsigned k = 0; k < 6; k++) {
        struct gp_cfi_table table = table_make();
        int32_t at;
        memcpy(&at, buffer + 16, 4); /* of the first function */
        put_word((uint32_t)at, lengths[k]);
        cr_expect_eq(ask(&table, CODE, &rule), GP_CFI_NONE, "length %u", k);
        table = table_make();
        put_word((uint32_t)at + 4, backs[k]);
        cr_expect_eq(ask(&table, CODE, &rule), GP_CFI_NONE, "back %u", k);
        table = table_make();
        put_word(16, k % 2 ? (int64_t)sizeof(buffer) + 4 * k : -4 - 4 * (int64_t)k); /* outside of the segment */
        cr_expect_eq(ask(&table, CODE, &rule), GP_CFI_NONE, "place %u", k);
    }
}
