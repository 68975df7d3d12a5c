/* SPDX-License-Identifier: MIT
 *
 * test_python_stack.c: the functions below gp_stack_python on made-up objects: layouts, line
 * tables, kept texts (strings: test_pythontext.c). tests/integration/test_python_stack.sh tests whole stacks of real
 * interpreters.
 */
#include "python_debug.h"
#include "stack/python.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct gp_python python;
static struct gp_python_copies copies;

static int is_finalizing;

static int finalizing(void)
{
    return is_finalizing;
}

/* Both ways to read, for one version. */
static struct gp_python_way way_of(uint32_t version, bool is_copied)
{
    const char *why;
    cr_assert(gp_python_layout(&python.at, version, NULL, &why));
    python.version = version;
    gp_python_copies_start(&copies, getpid(), finalizing);
    struct gp_python_copies *way = is_copied ? &copies : NULL;
    return (struct gp_python_way){.python = &python, .objects = way, .texts = way};
}

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

Test(python_stack, layouts_from_debug_offsets)
{
    uint64_t words[96];
    struct gp_python_layout at;
    const char *why;
    for (unsigned minor = 13; minor <= 14; minor++) {
        debug_fill(words, minor);
        cr_assert(gp_python_layout(&at, 0x300 + minor, words, &why), "3.%u: %s", minor, why);
        cr_assert_eq(at.state_frame, 72);
        cr_assert_eq(at.frame_code, 0);
        cr_assert_eq(at.frame_previous, 8);
        cr_assert_eq(at.frame_instr, 56);
        cr_assert_eq(at.frame_owner, minor == 14 ? 74 : 70);
        cr_assert_eq(at.code_file, 112);
        cr_assert_eq(at.code_name, 128, "the qualified one");
        cr_assert_eq(at.code_table, 136);
        cr_assert_eq(at.code_line, 68);
        cr_assert_eq(at.code_version, 92);
        cr_assert_eq(at.code_bytes, minor == 14 ? 208 : 200);
        cr_assert_eq(at.code_traceable, minor == 14 ? 192 : 184);
        cr_assert_eq(at.object_type, 8);
        cr_assert_eq(at.bytes_size, 16);
        cr_assert_eq(at.bytes_data, 32);
        cr_assert_eq(at.text_state, 32);
        cr_assert_eq(at.text_length, 16);
        cr_assert_eq(at.text_ascii, 40);
        cr_assert_eq(at.text_wide, 56);
    }
}

Test(python_stack, layouts_that_are_refused)
{
    uint64_t words[96];
    struct gp_python_layout at;
    const char *why = NULL;
    cr_assert_not(gp_python_layout(&at, 0x0309, NULL, &why));
    cr_assert_not_null(strstr(why, "older"));
    cr_assert_not(gp_python_layout(&at, 0x030f, NULL, &why));
    cr_assert_not_null(strstr(why, "newer"));
    cr_assert_not(gp_python_layout(&at, 0x030d, NULL, &why));
    cr_assert_not_null(strstr(why, "_PyRuntime"));
    debug_fill(words, 13);
    cr_assert_not(gp_python_layout(&at, 0x030e, words, &why), "another version than its own");
    memcpy(words, "xdebugpx", 8);
    cr_assert_not(gp_python_layout(&at, 0x030d, words, &why), "no cookie");
    debug_fill(words, 14);
    words[2] = 1;
    cr_assert_not(gp_python_layout(&at, 0x030e, words, &why), "free-threaded");
    cr_assert_not_null(strstr(why, "free-threaded"));
    debug_fill(words, 13);
    words[2] = 2;
    cr_assert_not(gp_python_layout(&at, 0x030d, words, &why), "neither with nor without free threads");
    /* If any of the used offsets is wrong, all are refused. */
    unsigned refused = 0;
    for (unsigned i = 6; i < 72; i++) {
        debug_fill(words, 13);
        words[i] = 1ull << 40;
        refused += !gp_python_layout(&at, 0x030d, words, &why);
    }
    /* All 20 offsets except the size of an object head, which is not used for reading. */
    cr_assert_eq(refused, 19, "%u", refused);
    /* A field may fill what it lies in: the type, the whole head of an object. */
    for (unsigned more = 0; more < 2; more++) {
        debug_fill(words, 13);
        words[44] = 8, words[45] = more;
        cr_assert_eq(gp_python_layout(&at, 0x030d, words, &why), !more);
    }
}

/* ---- line tables ------------------------------------------------------------------------------------------------- */

struct table {
    char *object; /* a bytes object of the exact size, so that AddressSanitizer detects a read beyond it */
    uint8_t bytes[8192];
    unsigned size;
    uint32_t lines[8192]; /* of each code unit; 0 none */
    unsigned units;
};

static uint64_t table_object(struct table *table)
{
    free(table->object);
    table->object = malloc(python.at.bytes_data + table->size);
    memset(table->object, 0, python.at.bytes_data);
    uint64_t size = table->size;
    memcpy(table->object + python.at.bytes_size, &size, sizeof size);
    memcpy(table->object + python.at.bytes_data, table->bytes, table->size);
    return (uint64_t)(uintptr_t)table->object;
}

static void put_number(struct table *table, uint64_t value)
{
    while (value >= 64) {
        table->bytes[table->size++] = (uint8_t)(64 | (value & 63));
        value >>= 6;
    }
    table->bytes[table->size++] = (uint8_t)value;
}

static void put_entry_311(struct table *table, int64_t *line)
{
    unsigned form = (unsigned)rand() % 16, units = (unsigned)rand() % 8 + 1;
    if (rand() % 3 == 0)
        form = (unsigned)rand() % 13;
    table->bytes[table->size++] = (uint8_t)(128 | form << 3 | (units - 1));
    int64_t change = form == 13 || form == 14 ? rand() % 2000 - 700 : form >= 10 && form < 13 ? (int64_t)form - 10 : 0;
    if (form == 13 || form == 14) {
        change = *line + change < 1 ? 3 : change;
        put_number(table, change < 0 ? (uint64_t)-change << 1 | 1 : (uint64_t)change << 1);
    }
    for (int i = 0; form == 14 && i < 3; i++)
        put_number(table, (uint64_t)(rand() % 100000));
    for (unsigned i = 0; i < (form < 10 ? 1u : form < 13 ? 2u : 0u); i++)
        table->bytes[table->size++] = (uint8_t)(rand() % 128);
    *line += change;
    for (unsigned i = 0; i < units; i++)
        table->lines[table->units++] = form == 15 ? 0 : (uint32_t)*line;
}

static void put_entry_310(struct table *table, int64_t *line)
{
    unsigned units = (unsigned)rand() % 100;
    int change = rand() % 6 == 0 ? -128 : rand() % 255 - 127;
    if (change != -128 && *line + change < 1)
        change = 5;
    table->bytes[table->size++] = (uint8_t)(2 * units);
    table->bytes[table->size++] = (uint8_t)(int8_t)change;
    *line += change == -128 ? 0 : change;
    for (unsigned i = 0; i < units; i++)
        table->lines[table->units++] = change == -128 ? 0 : (uint32_t)*line;
}

Test(python_stack, lines_of_every_instruction)
{
    static struct table table;
    srand(20251121);
    for (int round = 0; round < 400; round++) {
        bool is_old = round % 4 == 0;
        struct gp_python_way in_place = way_of(is_old ? GP_PYTHON_310 : GP_PYTHON_311, false);
        int64_t line = 1000 + rand() % 100000;
        uint32_t first = (uint32_t)line;
        table.size = table.units = 0;
        for (int i = rand() % (is_old ? 80 : 400); i >= 0; i--)
            is_old ? put_entry_310(&table, &line) : put_entry_311(&table, &line);
        uint64_t object = table_object(&table);
        struct gp_python_way copied = {.python = &python, .objects = &copies, .texts = &copies};
        gp_python_copies_start(&copies, getpid(), finalizing);
        for (unsigned unit = 0; unit < table.units; unit++) {
            uint32_t got = gp_python_line(&in_place, object, first, 2 * (int64_t)unit);
            cr_assert_eq(got, table.lines[unit], "round %d unit %u of %u: %u, not %u", round, unit, table.units, got,
                         table.lines[unit]);
            if (unit % 7 == 0)
                cr_assert_eq(gp_python_line(&copied, object, first, 2 * (int64_t)unit), table.lines[unit],
                             "copied, round %d unit %u", round, unit);
        }
        cr_assert_eq(gp_python_line(&in_place, object, first, 2 * (int64_t)table.units), 0, "behind the end");
        cr_assert_eq(gp_python_line(&in_place, object, first, -2), first, "before the start");
    }
    free(table.object);
    table.object = NULL;
}

Test(python_stack, lines_of_nonsense)
{
    static struct table table;
    srand(7);
    for (int round = 0; round < 20000; round++) {
        struct gp_python_way way = way_of(round % 3 ? GP_PYTHON_311 : GP_PYTHON_310, round % 5 == 0);
        table.size = (unsigned)rand() % 40;
        for (unsigned i = 0; i < table.size; i++)
            table.bytes[i] = (uint8_t)rand();
        gp_python_line(&way, table_object(&table), 1, rand() % 300);
    }
    free(table.object);
    table.object = NULL;
}

Test(python_stack, lines_kept_with_their_table)
{
    /* Two tables take turns at one address, and lines are requested in random order: the answer
     * always matches the bytes there. */
    static struct table tables[2];
    static char place[8192];
    struct gp_python_way way = way_of(GP_PYTHON_311, false);
    srand(11);
    for (int i = 0; i < 2; i++) {
        int64_t line = 500;
        for (int k = 0; k < 300; k++)
            put_entry_311(&tables[i], &line);
    }
    uint64_t size = tables[0].size < tables[1].size ? tables[0].size : tables[1].size;
    memcpy(tables[1].bytes, tables[0].bytes, size / 3); /* which differ near the end, or in one byte */
    memcpy(place + python.at.bytes_size, &size, sizeof size);
    uint8_t *bytes = (uint8_t *)place + python.at.bytes_data;
    unsigned hits = 0;
    for (int round = 0; round < 30000; round++) {
        if (rand() % 50 == 0)
            memcpy(bytes, tables[rand() % 2].bytes, size);
        if (rand() % 500 == 0)
            bytes[rand() % size] ^= 1;
        uint32_t first = rand() % 40 ? 500 : 501, units = (uint32_t)(rand() % 40) * 16, line;
        struct gp_python_lines lines = {(uint64_t)(uintptr_t)place, bytes, (uint32_t)size, first};
        uint32_t got = gp_python_line(&way, lines.table, first, 2 * (int64_t)units);
        hits += gp_python_table_kept(&lines, 2 * (int64_t)units, &line) && line == got;
        /* Reading through copies decodes each time. */
        struct gp_python_way copied = way;
        copied.objects = copied.texts = &copies;
        gp_python_copies_start(&copies, getpid(), finalizing);
        cr_assert_eq(got, gp_python_line(&copied, lines.table, first, 2 * (int64_t)units), "round %d", round);
    }
    cr_assert_gt(hits, 29000, "%u: each line is kept when it is first requested", hits);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

Test(python_stack, memory_that_went_away_is_no_crash)
{
    struct gp_python_way way = way_of(GP_PYTHON_311, true);
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(pages + 4096, 4096);
    memset(pages, 'a', 4096);
    uint64_t at = (uint64_t)(uintptr_t)pages;
    char out[64];
    cr_assert(gp_python_copy(&copies, at + 4096 - 64, out, 64));
    cr_assert_eq(out[63], 'a');
    cr_assert_not(gp_python_copy(&copies, at + 4096 - 32, out, 64));
    struct gp_python_text text;
    cr_assert_not(gp_python_string(&way, at + 4096, &text));
    cr_assert_eq(gp_python_line(&way, at + 4096, 1, 4), 0);
    munmap(pages, 4096);
}

Test(python_stack, copies_of_several_ranges)
{
    gp_python_copies_start(&copies, getpid(), finalizing);
    char *pages = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 3 * 4096; i++)
        pages[i] = (char)(i % 251);
    munmap(pages + 4096, 4096);
    uint64_t at = (uint64_t)(uintptr_t)pages;
    struct gp_python_range want[] = {{at + 8, 100}, {at + 200, 50}, {at + 4000, 200}, {at + 8192, 10}};
    cr_assert_eq(gp_python_fetch(&copies, want, 4), 2, "the third ends in unmapped memory");
    cr_assert_null(gp_python_copied(&copies, at + 4000, 8), "not even its beginning");
    cr_assert_null(gp_python_copied(&copies, at + 8192, 8));
    cr_assert_null(gp_python_copied(&copies, at + 100, 9), "as far as the range goes");
    cr_assert_null(gp_python_copied(&copies, at + 7, 8));
    cr_assert_null(gp_python_copied(&copies, 0, 8));
    for (unsigned i = 0; i < 93; i++)
        cr_assert_eq(memcmp(gp_python_copied(&copies, at + 8 + i, 8), pages + 8 + i, 8), 0);
    cr_assert_eq(memcmp(gp_python_copied(&copies, at + 200, 50), pages + 200, 50), 0);
    /* Copying more than fits drops old copies; those that remain are right. */
    srand(3);
    for (int i = 0; i < 2000; i++) {
        struct gp_python_range one = {at + (unsigned)rand() % 2048, 1 + (unsigned)rand() % 2048};
        cr_assert_eq(gp_python_fetch(&copies, &one, 1), 1);
        const char *found = gp_python_copied(&copies, one.from, one.bytes);
        cr_assert(found && memcmp(found, pages + (one.from - at), one.bytes) == 0);
        cr_assert(copies.used <= GP_PYTHON_COPIED && copies.ranges <= GP_PYTHON_RANGES);
    }
    struct gp_python_range large = {at, GP_PYTHON_COPIED + 1};
    cr_assert_eq(gp_python_fetch(&copies, &large, 1), 0);
    munmap(pages, 4096);
    munmap(pages + 8192, 4096);
}

Test(python_stack, nothing_is_given_once_shutdown_began)
{
    gp_python_copies_start(&copies, getpid(), finalizing);
    uint64_t word = 7, out = 0;
    is_finalizing = 1;
    cr_assert_not(gp_python_copy(&copies, (uint64_t)(uintptr_t)&word, &out, sizeof out));
    cr_assert(copies.ended);
    is_finalizing = 0;
    cr_assert_not(gp_python_copy(&copies, (uint64_t)(uintptr_t)&word, &out, sizeof out), "nor later");
}

Test(python_stack, kept_names)
{
    struct gp_python_frame frame = {0}, got;
    frame.function = (struct gp_python_text){gp_python_keep("forward", 7), 7};
    frame.file = (struct gp_python_text){gp_python_keep("/model.py", 9), 9};
    uint64_t code = 0x7f0000001230;
    cr_assert_not(gp_python_names_kept(code, 0x90000005, &got));
    gp_python_names_keep(code, 0x90000005, &frame);
    cr_assert(gp_python_names_kept(code, 0x90000005, &got));
    cr_assert(got.function.bytes == frame.function.bytes && got.function.length == 7);
    cr_assert(got.file.bytes == frame.file.bytes && got.file.length == 9);
    cr_assert_not(gp_python_names_kept(code, 0x90000006, &got), "another code object at the same address");
    cr_assert_not(gp_python_names_kept(code, 0x80000005, &got), "nor one that differs in the upper bits");
    cr_assert_not(gp_python_names_kept(code + 16, 0x90000005, &got));
    frame.file = (struct gp_python_text){"not kept", 8};
    gp_python_names_keep(code, 7, &frame);
    cr_assert_not(gp_python_names_kept(code, 7, &got), "only kept texts");
}

static char *make_string(const void *units, unsigned kind, uint64_t length, bool is_ascii, unsigned compact)
{
    unsigned head = is_ascii ? python.at.text_ascii : python.at.text_wide;
    char *object = calloc(1, head + length * kind);
    uint32_t state = 1u | kind << 2 | compact << 5 | (is_ascii ? 1u << 6 : 0);
    memcpy(object + python.at.text_length, &length, sizeof length);
    memcpy(object + python.at.text_state, &state, sizeof state);
    memcpy(object + head, units, length * kind);
    return object;
}

static void string_is(unsigned kind, const void *units, uint64_t length, bool is_ascii, const char *want)
{
    for (int i = 0; i < 4; i++) {
        struct gp_python_way way = way_of(i & 1 ? GP_PYTHON_310 : GP_PYTHON_312, i & 2);
        char *object = make_string(units, kind, length, is_ascii, 1);
        struct gp_python_text text;
        cr_assert(gp_python_string(&way, (uint64_t)(uintptr_t)object, &text));
        cr_assert(text.length == strlen(want) && memcmp(text.bytes, want, text.length) == 0, "'%.*s', not '%s'",
                  (int)text.length, text.bytes, want);
        free(object);
    }
}

Test(python_stack, kept_texts)
{
    char name[64];
    const char *first = gp_python_keep("größe", 7);
    cr_assert_eq(gp_python_keep("größe", 7), first);
    cr_assert_neq(gp_python_keep("größe", 6), first);
    cr_assert_null(gp_python_note());
    unsigned kept = 0;
    for (unsigned i = 0; i < 200000; i++) {
        int length = snprintf(name, sizeof name, "a name that no other has %u", i);
        const char *got = gp_python_keep(name, (uint32_t)length);
        if (!got)
            continue; /* the places of its hash are taken, or the arena is full: at the end it is */
        cr_assert_eq(memcmp(got, name, (size_t)length), 0);
        kept++;
    }
    cr_assert(kept > 30000 && kept < 200000, "%u", kept);
    cr_assert_not_null(gp_python_note());
    cr_assert_eq(gp_python_keep("größe", 7), first, "kept entries stay");
    string_is(1,
              "gr\xf6\xdf"
              "e",
              5, false, "größe");
    string_is(1, "there is no room for a name as long as this one with an \xf6", 57, false, "?");
}

Test(python_stack, no_python_in_this_process)
{
    struct gp_python_frame frames[4];
    bool more = true;
    cr_assert_eq(gp_stack_python(frames, 4, &more), 0);
    cr_assert_not(more);
    cr_assert_null(gp_python_note());
}
