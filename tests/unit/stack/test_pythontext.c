/* SPDX-License-Identifier: MIT
 *
 * test_pythontext.c: strings of the interpreter as UTF-8 at every boundary of a character and of the room, lines at the ends
 * of what a number holds, copies at the ends of their room, and that the caches keep what programs need side by side.
 */
#include "stack/python.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct gp_python python;
static struct gp_python_copies copies;

static int not_finalizing(void)
{
    return 0;
}

static struct gp_python_way way_of(uint32_t version, bool is_copied)
{
    const char *why;
    cr_assert(gp_python_layout(&python.at, version, NULL, &why));
    python.version = version;
    gp_python_copies_start(&copies, getpid(), not_finalizing);
    struct gp_python_copies *way = is_copied ? &copies : NULL;
    return (struct gp_python_way){.python = &python, .objects = way, .texts = way};
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

#define MOST 1100

static uint64_t object[(128 + 4 * MOST) / 8];

static void string_make(const uint32_t *codes, uint64_t length, unsigned kind, bool is_ascii, unsigned stored)
{
    char *at = (char *)object, *data = at + (is_ascii ? python.at.text_ascii : python.at.text_wide);
    uint32_t state = 1u | kind << 2 | 1u << 5 | (is_ascii ? 1u << 6 : 0);
    memset(object, 0, 128);
    memcpy(at + python.at.text_length, &length, 8);
    memcpy(at + python.at.text_state, &state, 4);
    for (unsigned i = 0; i < stored; i++)
        memcpy(data + i * kind, &codes[i], kind); /* little-endian */
}

/* One character as UTF-8; 0: there is no such character. Halves of pairs as Python prints them. */
static unsigned encoded(uint32_t code, char *to)
{
    static const char digits[] = "0123456789abcdef";
    if (code >= 0xd800 && code <= 0xdfff) {
        to[0] = '\\', to[1] = 'u';
        for (unsigned i = 0; i < 4; i++)
            to[2 + i] = digits[(code >> 4 * (3 - i)) % 16];
        return 6;
    }
    if (code > 0x10ffff)
        return 0;
    unsigned bytes = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (unsigned i = bytes; i-- > 1; code /= 64)
        to[i] = (char)(0x80 + code % 64);
    to[0] = (char)(marks[bytes] + code);
    return bytes;
}

/* The longest start of the string that has room, whole characters. */
static unsigned expected(const uint32_t *codes, uint64_t length, char *to)
{
    unsigned used = 0;
    for (uint64_t i = 0; i < length; i++) {
        char one[6];
        unsigned bytes = encoded(codes[i], one);
        if (bytes == 0 || used + bytes > GP_STACK_TEXT)
            break;
        memcpy(to + used, one, bytes);
        used += bytes;
    }
    return used;
}

static void string_is(const uint32_t *codes, uint64_t length, unsigned kind)
{
    char want[GP_STACK_TEXT + 8];
    unsigned bytes = expected(codes, length, want);
    for (unsigned i = 0; i < 4; i++) {
        struct gp_python_way way = way_of(i & 1 ? GP_PYTHON_311 : GP_PYTHON_312, i & 2);
        struct gp_python_text text;
        string_make(codes, length, kind, false, (unsigned)length);
        cr_assert(gp_python_string(&way, (uint64_t)(uintptr_t)object, &text));
        cr_assert_eq(text.length, bytes, "kind %u, %lu characters: %u, not %u", kind, (unsigned long)length,
                     text.length, bytes);
        cr_assert_eq(memcmp(text.bytes, want, bytes), 0);
        cr_assert(text.bytes < (char *)object || text.bytes >= (char *)object + sizeof(object), "it is kept elsewhere");
    }
}

/* Every boundary of an encoding, by itself and at the end of the room. */
Test(pythontext, characters)
{
    static const uint32_t ends[] = {0,      1,       0x7f,     0x80,     0xff,       0x7ff,
                                    0x800,  0xd7ff,  0xd800,   0xdbff,   0xdfff,     0xe000,
                                    0xffff, 0x10000, 0x10ffff, 0x110000, 0x7fffffff, UINT32_MAX};
    uint32_t codes[MOST];
    for (unsigned i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        for (unsigned kind = 1; kind <= 4; kind *= 2) {
            if (kind < 4 && ends[i] >> 8 * kind)
                continue;
            for (unsigned before = 0; before < 514; before += before < 500 ? 250 : 1) {
                for (unsigned k = 0; k < before; k++)
                    codes[k] = 'a' + k % 26;
                codes[before] = ends[i];
                codes[before + 1] = 'z';
                string_is(codes, before + 2, kind);
                string_is(codes, before + 1, kind);
            }
        }
}

Test(pythontext, long_strings)
{
    uint32_t codes[MOST];
    srand(20251123);
    for (unsigned length = 505; length < 520; length++)
        for (unsigned kind = 1; kind <= 4; kind *= 2) {
            for (unsigned i = 0; i < length; i++)
                codes[i] = (uint32_t)rand() % (kind == 1 ? 0x100 : kind == 2 ? 0xd800 : 0x110000);
            string_is(codes, length, kind);
            for (unsigned i = 0; i < length; i++)
                codes[i] = 'a' + (uint32_t)rand() % 26;
            string_is(codes, length, kind);
        }
}

/* What is ASCII is used where it lies, whole, unless it has to be copied. */
Test(pythontext, ascii_in_place_and_copied)
{
    uint32_t codes[MOST];
    struct gp_python_text text;
    for (unsigned i = 0; i < MOST; i++)
        codes[i] = 'a' + i % 26;
    for (unsigned length = 0; length < MOST; length += length < 510 || length > 514 ? 73 : 1) {
        struct gp_python_way way = way_of(GP_PYTHON_312, false);
        string_make(codes, length, 1, true, length);
        cr_assert(gp_python_string(&way, (uint64_t)(uintptr_t)object, &text));
        cr_assert_eq(text.bytes, (char *)object + python.at.text_ascii);
        cr_assert_eq(text.length, length);
        way = way_of(GP_PYTHON_312, true);
        cr_assert(gp_python_string(&way, (uint64_t)(uintptr_t)object, &text));
        cr_assert(text.bytes < (char *)object || text.bytes >= (char *)object + sizeof(object));
        cr_assert_eq(text.length, length < 512 ? length : 512);
        cr_assert_eq(memcmp(text.bytes, (char *)object + python.at.text_ascii, text.length), 0);
    }
}

/* Shapes that the compiler never makes are no text, but no error either. */
Test(pythontext, shapes)
{
    const uint32_t codes[] = {'a', 'b', 'c'};
    struct gp_python_text text;
    struct gp_python_way way = way_of(GP_PYTHON_312, false);
    for (unsigned kind = 0; kind < 8; kind++) {
        bool good = kind == 1 || kind == 2 || kind == 4;
        string_make(codes, 3, good ? kind : 1, false, 3);
        uint32_t state = 1u | kind << 2 | 1u << 5;
        memcpy((char *)object + python.at.text_state, &state, 4);
        cr_assert(gp_python_string(&way, (uint64_t)(uintptr_t)object, &text));
        cr_expect_eq(text.length, good ? 3 : 1, "kind %u", kind);
        cr_expect_eq(text.bytes[0], good ? 'a' : '?', "kind %u", kind);
    }
    static const uint64_t lengths[] = {INT32_MAX, INT32_MAX + 1ull, UINT32_MAX, 1ull << 40};
    for (unsigned i = 0; i < 4; i++) {
        string_make(codes, lengths[i], 1, true, 3);
        cr_assert(gp_python_string(&way, (uint64_t)(uintptr_t)object, &text));
        cr_expect_eq(text.length, i == 0 ? INT32_MAX : 1);
    }
    uint32_t apart = 1u | 1u << 2; /* the characters lie elsewhere */
    string_make(codes, 1, 1, true, 1);
    memcpy((char *)object + python.at.text_state, &apart, 4);
    cr_assert(gp_python_string(&way, (uint64_t)(uintptr_t)object, &text));
    cr_expect(text.length == 1 && text.bytes[0] == '?');
    cr_expect_not(gp_python_string(&way, 65535, &text));
    cr_expect_not(gp_python_string(&way, 1ull << 48, &text));
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static uint32_t line_of(uint32_t version, uint32_t first, const uint8_t *bytes, unsigned count, int64_t offset)
{
    uint32_t lines[2];
    for (unsigned copied = 0; copied < 2; copied++) {
        struct gp_python_way way = way_of(version, copied);
        uint64_t size = count;
        memset(object, 0, sizeof(object));
        memcpy((char *)object + python.at.bytes_size, &size, 8);
        if (count)
            memcpy((char *)object + python.at.bytes_data, bytes, count);
        lines[copied] = gp_python_line(&way, (uint64_t)(uintptr_t)object, first, offset);
    }
    cr_assert_eq(lines[0], lines[1]);
    return lines[0];
}

/* An entry of one unit with a change of so much, in the form without columns. */
static uint32_t changed(uint32_t version, uint32_t first, int64_t change)
{
    uint8_t bytes[16] = {128 | 13 << 3};
    unsigned count = 1;
    uint64_t value = change < 0 ? (uint64_t)-change << 1 | 1 : (uint64_t)change << 1;
    for (; value >= 64; value >>= 6)
        bytes[count++] = (uint8_t)(64 | (value & 63));
    bytes[count++] = (uint8_t)value;
    return line_of(version, first, bytes, count, 0);
}

/* A line that is none, below 0 or too large, is 0. */
Test(pythontext, lines_at_the_ends)
{
    static const int64_t changes[] = {0,    1,    31,     32,     33,      63,        64,
                                      2047, 2048, 131071, 131072, 8388608, 536870912, 1 << 30};
    static const uint32_t firsts[] = {0, 1, 5, 32, 1 << 30, INT32_MAX, 1u << 31, UINT32_MAX - 1, UINT32_MAX};
    for (unsigned i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)
        for (unsigned k = 0; k < sizeof(firsts) / sizeof(firsts[0]); k++)
            for (int sign = -1; sign <= 1; sign += 2) {
                int64_t line = firsts[k] + sign * changes[i];
                uint32_t want = line < 0 || line > UINT32_MAX ? 0 : (uint32_t)line;
                cr_expect_eq(changed(GP_PYTHON_311, firsts[k], sign * changes[i]), want, "%u %+ld", firsts[k],
                             (long)(sign * changes[i]));
                cr_expect_eq(changed(GP_PYTHON_312, firsts[k], sign * changes[i]), want);
            }
    cr_expect_eq(changed(GP_PYTHON_311, 5, UINT32_MAX), 0);
    cr_expect_eq(changed(GP_PYTHON_311, 0, UINT32_MAX), UINT32_MAX);
    /* A number has six groups: what follows is not read as a part of it. */
    static const uint8_t endless[] = {128 | 13 << 3, 64, 64, 64, 64, 64, 66, 1};
    cr_expect_eq(line_of(GP_PYTHON_311, 7, endless, sizeof(endless), 0), 7 + (1 << 30));
    static const uint8_t zeros[] = {128 | 13 << 3, 64 | 4, 64, 64, 64, 64, 64, 63};
    cr_expect_eq(line_of(GP_PYTHON_311, 7, zeros, sizeof(zeros), 0), 9);
    for (int change = -127; change < 128; change++) {
        uint8_t pair[] = {2, (uint8_t)(int8_t)change};
        cr_expect_eq(line_of(GP_PYTHON_310, 50, pair, 2, 0), change < -50 ? 0 : (uint32_t)(50 + change), "%d", change);
    }
}

/* Each form, of which the offset is inside, and behind. */
Test(pythontext, forms_of_entries)
{
    for (unsigned form = 0; form < 16; form++)
        for (unsigned units = 1; units <= 8; units++) {
            const uint8_t bytes[] = {(uint8_t)(128 | form << 3 | (units - 1)), 6, 0, 0, 0, 128 | 10 << 3 | 1, 0, 0};
            unsigned change = form == 11 ? 1 : form == 12 ? 2 : form == 13 || form == 14 ? 3 : 0;
            for (unsigned offset = 0; offset < 2 * units + 8; offset++) {
                uint32_t want = offset < 2 * units       ? (form == 15 ? 0 : 20 + change)
                                : offset < 2 * units + 4 ? 20 + change
                                                         : 0;
                cr_expect_eq(line_of(GP_PYTHON_311, 20, bytes, sizeof(bytes), offset), want, "form %u of %u at %u",
                             form, units, offset);
            }
        }
    cr_expect_eq(line_of(GP_PYTHON_311, 20, NULL, 0, 0), 0);
    cr_expect_eq(line_of(GP_PYTHON_311, 20, NULL, 0, -1), 20);
    cr_expect_eq(line_of(GP_PYTHON_310, 20, (const uint8_t[]){2}, 1, 0), 0, "half a pair");
}

/* ---- caches ------------------------------------------------------------------------------------------------------ */

/* Functions that a program calls in turn lie apart by a few hundred bytes: nearly all of them are kept side by side. */
Test(pythontext, caches_hold_many)
{
    static uint8_t bytes[100];
    for (uint64_t apart = 16; apart <= 65536; apart *= 4) {
        unsigned tables = 0, lines = 0, names = 0, places = 0;
        uint32_t line;
        struct gp_python_frame frame = {0}, got;
        frame.function = (struct gp_python_text){gp_python_keep("forward", 7), 7};
        frame.file = (struct gp_python_text){gp_python_keep("/model.py", 9), 9};
        for (unsigned round = 0; round < 2; round++)
            for (unsigned i = 0; i < 64; i++) {
                uint64_t at = 0x7f0000000000 + apart * (i + 1);
                struct gp_python_lines table = {at, bytes, sizeof(bytes), (uint32_t)i};
                if (round == 0) {
                    gp_python_table_keep(&table, 20, 60, i + 1);
                    gp_python_line_keep(at, 5, 20, i + 1);
                    gp_python_names_keep(at, 5, &frame);
                } else {
                    tables += gp_python_table_kept(&table, 20, &line) && line == i + 1;
                    lines += gp_python_line_kept(at, 5, 20, &line) && line == i + 1;
                    names += gp_python_names_kept(at, 5, &got);
                }
            }
        struct gp_python_lines one = {0x7e0000000000 + apart, bytes, sizeof(bytes), 1};
        for (unsigned i = 0; i < 16; i++)
            gp_python_table_keep(&one, 2 * i, 60, i + 1);
        for (unsigned i = 0; i < 16; i++)
            places += gp_python_table_kept(&one, 2 * i, &line) && line == i + 1;
        cr_expect(tables >= 44 && lines >= 56 && names >= 56 && places >= 9, "apart %lu: %u %u %u %u",
                  (unsigned long)apart, tables, lines, names, places);
    }
}

/* Tables of 24 bytes and on are kept, with as many bytes as there is room for. */
Test(pythontext, which_tables_are_kept)
{
    static uint8_t bytes[8192];
    static const uint32_t sizes[] = {23, 24, 25, 5632, 5633, 8192};
    uint32_t line;
    for (unsigned i = 0; i < 6; i++)
        for (unsigned used = 0; used < 6; used++) {
            struct gp_python_lines table = {0x7d0000000000 + 4096 * (6 * i + used), bytes, sizes[i], 1};
            gp_python_table_keep(&table, 8, sizes[used], 77);
            bool want = sizes[i] >= 24 && sizes[used] <= sizes[i] && sizes[used] <= 5632;
            cr_expect_eq(gp_python_table_kept(&table, 8, &line), want, "%u of %u", sizes[used], sizes[i]);
            cr_expect(!want || line == 77);
            if (!want)
                continue;
            bytes[sizes[used] - 1] ^= 1;
            cr_expect_not(gp_python_table_kept(&table, 8, &line), "the last byte that counts");
            bytes[sizes[used] - 1] ^= 1;
            bytes[sizes[used]] ^= 1;
            cr_expect(gp_python_table_kept(&table, 8, &line), "the first that does not");
            bytes[sizes[used]] ^= 1;
        }
    struct gp_python_lines table = {0x7c0000000000, bytes, 100, 1};
    static const int64_t offsets[] = {0, UINT32_MAX - 2ll, UINT32_MAX - 1ll, UINT32_MAX, UINT32_MAX + 1ll};
    for (unsigned i = 0; i < 5; i++) {
        gp_python_table_keep(&table, offsets[i], 50, i + 1);
        cr_expect_eq(gp_python_table_kept(&table, offsets[i], &line) && line == i + 1, i < 3, "%u", i);
    }
}

/* The ends of a key: addresses of 16 bytes, offsets of 21 bits. */
Test(pythontext, which_lines_are_kept)
{
    static const struct {
        uint64_t code;
        int64_t offset;
        bool good;
    } keys[] = {{0x7f0000001230, 0, true},
                {0x7f0000001230, (1 << 21) - 2, true},
                {0x7f0000001230, 1 << 21, false},
                {0x7f0000001230, -2, false},
                {0x7f0000001231, 0, false},
                {0x7f0000001238, 0, false},
                {0, 0, false}};
    uint32_t line;
    for (unsigned i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        gp_python_line_keep(keys[i].code, 3, keys[i].offset, 9 + i);
        cr_expect_eq(gp_python_line_kept(keys[i].code, 3, keys[i].offset, &line) && line == 9 + i, keys[i].good, "%u",
                     i);
    }
    cr_expect_not(gp_python_line_kept(0x7f0000001230, 3, 4, &line));
    cr_expect_not(gp_python_line_kept(0x7f0000001230, 4, 0, &line));
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

Test(pythontext, how_much_is_copied)
{
    static _Alignas(4096) char from[16384];
    static char to[16384];
    srand(20251123);
    for (unsigned i = 0; i < sizeof(from); i++)
        from[i] = (char)rand();
    for (unsigned bytes = 4090; bytes < 4100; bytes++)
        for (unsigned at = 0; at < 1024; at += 511) {
            gp_python_copies_start(&copies, getpid(), not_finalizing);
            memset(to, 0, sizeof(to));
            bool got = gp_python_copy(&copies, (uint64_t)(uintptr_t)from + at, to, bytes);
            cr_expect_eq(got, bytes <= 4096, "%u at %u", bytes, at);
            cr_expect(!got || (memcmp(to, from + at, bytes) == 0 && to[bytes] == 0));
        }
    gp_python_copies_start(&copies, getpid(), not_finalizing);
    to[0] = 'x';
    cr_expect(gp_python_copy(&copies, (uint64_t)(uintptr_t)from, to, 0));
    cr_expect_eq(to[0], 'x');
    struct gp_python_range want[GP_PYTHON_RANGES + 1];
    for (unsigned count = 1; count <= GP_PYTHON_RANGES + 1; count++) {
        for (unsigned i = 0; i < count; i++)
            want[i] = (struct gp_python_range){(uint64_t)(uintptr_t)from + 100 * i, 50 + i};
        gp_python_copies_start(&copies, getpid(), not_finalizing);
        cr_expect_eq(gp_python_fetch(&copies, want, count), count <= GP_PYTHON_RANGES ? count : 0);
        for (unsigned i = 0; i < count && count <= GP_PYTHON_RANGES; i++) {
            const char *found = gp_python_copied(&copies, want[i].from, want[i].bytes);
            cr_expect(found && memcmp(found, from + 100 * i, want[i].bytes) == 0);
        }
    }
    for (uint32_t bytes = GP_PYTHON_COPIED - 1; bytes <= GP_PYTHON_COPIED + 1; bytes++) {
        want[0] = (struct gp_python_range){(uint64_t)(uintptr_t)from, bytes / 2};
        want[1] = (struct gp_python_range){(uint64_t)(uintptr_t)from + 9, bytes - bytes / 2};
        gp_python_copies_start(&copies, getpid(), not_finalizing);
        cr_expect_eq(gp_python_fetch(&copies, want, 2), bytes <= GP_PYTHON_COPIED ? 2 : 0);
    }
}

/* Earlier copies stay as long as there is room for them and the new one. */
Test(pythontext, when_copies_are_forgotten)
{
    static char from[16384];
    struct gp_python_range first = {(uint64_t)(uintptr_t)from, 100}, next = {(uint64_t)(uintptr_t)from + 4096, 0};
    for (uint32_t bytes = GP_PYTHON_COPIED - 101; bytes <= GP_PYTHON_COPIED - 99; bytes++) {
        next.bytes = bytes;
        gp_python_copies_start(&copies, getpid(), not_finalizing);
        cr_expect_eq(gp_python_fetch(&copies, &first, 1), 1);
        cr_expect_eq(gp_python_fetch(&copies, &next, 1), 1);
        cr_expect_eq(gp_python_copied(&copies, first.from, 100) != NULL, bytes <= GP_PYTHON_COPIED - 100, "%u", bytes);
        cr_expect_not_null(gp_python_copied(&copies, next.from, bytes));
    }
    gp_python_copies_start(&copies, getpid(), not_finalizing);
    for (unsigned i = 1; i <= GP_PYTHON_RANGES + 1; i++) {
        next = (struct gp_python_range){(uint64_t)(uintptr_t)from + 4096 + i, 1};
        gp_python_fetch(&copies, i == 1 ? &first : &next, 1);
        cr_expect_eq(gp_python_copied(&copies, first.from, 100) != NULL, i <= GP_PYTHON_RANGES, "%u", i);
    }
}
