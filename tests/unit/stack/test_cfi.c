/* SPDX-License-Identifier: MIT
 * test_cfi.c: the reader of unwind tables against tables that are made here: the rule at each address, and nothing between
 * the functions or out of a table that is not as the reader knows it.
 */
#include "stack/internal.h"
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

/* ---- encodings --------------------------------------------------------------------------------------------------- */

static uint8_t large[81920];

enum { ULEB = 1, U2, U4, U8, SLEB = 9, S2, S4, S8 };

/* Writes the value in a format; 0: it does not fit, or there is no such format. */
static size_t put_format(uint8_t *at, unsigned format, int64_t value)
{
    static const unsigned widths[16] = {[0] = 8, [U2] = 2, [U4] = 4, [U8] = 8, [S2] = 2, [S4] = 4, [S8] = 8};
    unsigned bits = 8 * widths[format];
    size_t used = 0;
    if (format == ULEB || format == SLEB) {
        if (format == ULEB && value < 0)
            return 0;
        for (bool more = true; more; used++) {
            at[used] = value & 0x7f;
            value >>= 7;
            more = format == ULEB ? value != 0 : value != (at[used] & 0x40 ? -1 : 0);
            at[used] |= more ? 0x80 : 0;
        }
        return used;
    }
    if (bits == 0 || (bits < 64 && format < SLEB && (value < 0 || value >> bits != 0)) ||
        (bits < 64 && format > SLEB && (value < -(1ll << (bits - 1)) || value >= 1ll << (bits - 1))))
        return 0;
    memcpy(at, &value, bits / 8);
    return bits / 8;
}

static void put_32(uint8_t *at, int64_t value)
{
    int32_t word = (int32_t)value;
    memcpy(at, &word, 4);
}

/* One function of 77 bytes: the header's pointer and count, and the description's pointers, in these encodings, the rules
 * after them.  False: an encoding cannot say it. */
static bool one_make(struct gp_cfi_table *table, unsigned pointer, unsigned count, unsigned encoding, uint32_t from,
                     const uint8_t *rules, size_t rule_bytes)
{
    uint8_t *at = large + 4, *common_at = large + 20000, *described;
    memset(large, 0, sizeof(large));
    memcpy(large, (uint8_t[]){1, (uint8_t)pointer, (uint8_t)count, 0x3b}, 4);
    size_t used = put_format(at, pointer & 15, 1);
    at += used;
    used = used ? put_format(at, count & 15, 1) : 0;
    if (used == 0)
        return false;
    at += used;
    described = common_at + 4 + 32;
    put_32(at, from);
    put_32(at + 4, described - large);
    memcpy(common_at + 4, (uint8_t[]){0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, (uint8_t)encoding, RULES}, 18);
    put_32(common_at, 32);
    put_32(described + 4, described + 4 - common_at);
    uint8_t *next = described + 8;
    int64_t base = (encoding & 0x70) == 0x10 ? next - large : (encoding & 0x70) == 0 ? -(int64_t)(uintptr_t)large : 0;
    used = put_format(next, encoding & 15, from - base);
    next += used;
    if (used == 0 || (used = put_format(next, encoding & 15, 77)) == 0)
        return false;
    next += used;
    *next++ = 0; /* no augmentation */
    if (rule_bytes)
        memcpy(next, rules, rule_bytes);
    next += rule_bytes;
    put_32(described, next - described - 4);
    *table = (struct gp_cfi_table){large, large + sizeof(large), large};
    return true;
}

static enum gp_cfi_answer ask_one(const struct gp_cfi_table *table, uint32_t offset, struct gp_cfi_rule *rule)
{
    return gp_cfi_find(table, (uint64_t)(uintptr_t)large + offset + 1, rule);
}

/* Every format of a pointer, relative to each base, for code before and behind the table, near and far. */
Test(cfi, encodings_of_addresses)
{
    static const uint32_t places[] = {10000, 19000, 21000, 32700, 32768, 60000, 65535, 65536, 80000};
    struct gp_cfi_table table;
    struct gp_cfi_rule rule;
    unsigned said = 0;
    for (unsigned encoding = 0; encoding < 256; encoding++)
        for (unsigned i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
            unsigned base = encoding & 0x70, format = encoding & 15;
            bool is_known = (base == 0 || base == 0x10 || base == 0x30) && encoding < 0x80;
            if (!one_make(&table, 0x1b, 3, encoding, places[i], NULL, 0))
                continue;
            enum gp_cfi_answer want = is_known ? GP_CFI_RULE : GP_CFI_NONE;
            cr_assert_eq(ask_one(&table, places[i], &rule), want, "%#x at %u", encoding, places[i]);
            cr_assert_eq(ask_one(&table, places[i] + 76, &rule), want, "%#x at %u", encoding, places[i]);
            cr_assert_eq(ask_one(&table, places[i] + 77, &rule), GP_CFI_NONE, "%#x at %u", encoding, places[i]);
            cr_assert_eq(ask_one(&table, places[i] - 1, &rule), GP_CFI_NONE, "%#x at %u", encoding, places[i]);
            said |= is_known ? 1u << format : 0;
        }
    cr_assert_eq(said, 0x1e1f, "%#x", said);
}

/* A format that is none is not read, whatever stands there. */
Test(cfi, formats_that_are_none)
{
    struct gp_cfi_table table;
    struct gp_cfi_rule rule;
    for (unsigned format = 5; format < 16; format++) {
        if (format >= SLEB && format <= S8)
            continue;
        cr_assert(one_make(&table, 0x1b, 3, 0x38, 30000, NULL, 0) == false);
        cr_assert(one_make(&table, 0x1b, 3, 0x3b, 30000, NULL, 0));
        large[20000 + 16] = (uint8_t)(0x30 | format);
        cr_expect_eq(ask_one(&table, 30000, &rule), GP_CFI_NONE, "%u", format);
        cr_assert(one_make(&table, 0x1b, 3, 0x3b, 30000, NULL, 0));
        large[1] = (uint8_t)(0x10 | format);
        cr_expect_eq(ask_one(&table, 30000, &rule), GP_CFI_NONE, "%u", format);
        cr_assert(one_make(&table, 0x1b, 3, 0x3b, 30000, NULL, 0));
        large[2] = (uint8_t)format;
        cr_expect_eq(ask_one(&table, 30000, &rule), GP_CFI_NONE, "%u", format);
    }
}

Test(cfi, encodings_of_the_header)
{
    static const uint8_t formats[] = {0, ULEB, U2, U4, U8, SLEB, S2, S4, S8};
    struct gp_cfi_table table;
    struct gp_cfi_rule rule;
    for (unsigned i = 0; i < sizeof(formats); i++)
        for (unsigned k = 0; k < sizeof(formats); k++) {
            cr_assert(one_make(&table, 0x10 | formats[i], formats[k], 0x1b, 30000, NULL, 0));
            cr_assert_eq(ask_one(&table, 30000, &rule), GP_CFI_RULE, "%u %u", formats[i], formats[k]);
            cr_assert_eq(ask_one(&table, 29999, &rule), GP_CFI_NONE, "%u %u", formats[i], formats[k]);
            cr_assert(one_make(&table, 0x50 | formats[i], formats[k], 0x1b, 30000, NULL, 0));
            cr_assert_eq(ask_one(&table, 30000, &rule), GP_CFI_NONE, "another base");
        }
    for (unsigned k = 6; k < sizeof(formats); k++) { /* a count below 0 */
        cr_assert(one_make(&table, 0x1b, formats[k], 0x1b, 30000, NULL, 0));
        memset(large + 8, 0xff, formats[k] == S2 ? 2 : formats[k] == S4 ? 4 : 8);
        cr_assert_eq(ask_one(&table, 30000, &rule), GP_CFI_NONE);
    }
}

/* ---- expressions that depend on the address ---------------------------------------------------------------------- */

/* As linkers describe the entries of a PLT: CFA = sp + 8 + ((pc & 15) >= 11) * 8. */
Test(cfi, the_expression_of_a_plt)
{
    static const uint8_t rules[] = {0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22};
    static const uint8_t later[] = {0x0f, 11, 0x77, 8, 0x80, 0x7b, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22};
    struct gp_cfi_table table;
    struct gp_cfi_rule rule;
    for (uint32_t at = 30000; at < 30077; at++) {
        uint64_t pc = (uint64_t)(uintptr_t)large + at + 1;
        cr_assert(one_make(&table, 0x1b, 3, 0x1b, 30000, rules, sizeof(rules)));
        cr_assert_eq(ask_one(&table, at, &rule), GP_CFI_RULE);
        cr_assert(rule.base == GP_CFI_SP && rule.offset == ((pc & 15) >= 11 ? 16 : 8), "%u: %d", at, rule.offset);
        cr_assert(one_make(&table, 0x1b, 3, 0x1b, 30000, later, sizeof(later)));
        cr_assert_eq(ask_one(&table, at, &rule), GP_CFI_RULE);
        cr_assert(rule.offset == (((pc - 5) & 15) >= 11 ? 16 : 8), "%u: %d", at, rule.offset);
    }
}

/* A location that is set is an address in the encoding of the description. */
Test(cfi, locations_that_are_set)
{
    struct gp_cfi_table table;
    struct gp_cfi_rule rule;
    uint8_t rules[16] = {0x01};
    uint64_t location = (uint64_t)(uintptr_t)large + 30040;
    memcpy(rules + 1, &location, 8);
    memcpy(rules + 9, (uint8_t[]){0x0e, 32}, 2);
    cr_assert(one_make(&table, 0x1b, 3, 0x00, 30000, rules, 11));
    for (uint32_t at = 0; at < 77; at++) {
        cr_assert_eq(ask_one(&table, 30000 + at, &rule), GP_CFI_RULE);
        cr_assert_eq(rule.offset, at < 40 ? 8 : 32, "at %u", at);
    }
}
