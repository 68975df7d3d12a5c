/* SPDX-License-Identifier: MIT
 *
 * test_text.c: UTF-8 of every character and of what is none, against an encoder of the test's; which characters are shown;
 * texts that are cleaned, against a model; and UUIDs (core/base/text.c).
 */
#include "base/text.h"
#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(text, .timeout = 60);

/* The code in this many bytes, even if fewer would do. */
static void encode(unsigned char *to, uint32_t code, unsigned bytes)
{
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0, 0xf8, 0xfc};
    for (unsigned i = bytes; i-- > 1; code >>= 6)
        to[i] = 0x80 | (code & 0x3f);
    to[0] = (unsigned char)(first[bytes] | code);
}

static unsigned shortest(uint32_t code)
{
    return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

/* Every code in each length: valid only in the shortest one, and if it is no surrogate. */
Test(text, every_character)
{
    static const uint32_t most[] = {0, 0x7f, 0x7ff, 0xffff, 0x1fffff};
    for (unsigned bytes = 1; bytes <= 4; bytes++)
        for (uint32_t code = 0; code <= most[bytes]; code += code > 0x20000 ? 37 : 1) {
            unsigned char text[8] = {0};
            uint32_t got = 12345;
            bool valid = bytes == shortest(code) && (code < 0xd800 || code > 0xdfff) && code <= 0x10ffff;
            encode(text, code, bytes);
            cr_assert_eq(gp_utf8_decode(text, bytes, &got), valid ? bytes : 0, "%x in %u", code, bytes);
            cr_assert(!valid || got == code, "%x", code);
            char put[4];
            cr_assert(!valid || (gp_utf8_put(put, code) == bytes && memcmp(put, text, bytes) == 0), "%x", code);
            cr_assert_eq(gp_utf8_decode(text, 7, &got), valid ? bytes : 0, "more follows");
            for (unsigned left = 1; left < bytes; left++)
                cr_assert_eq(gp_utf8_decode(text, left, &got), 0, "%x cut", code);
        }
    for (unsigned last = 0x10fffe; last <= 0x110001; last++) {
        unsigned char text[8] = {0};
        uint32_t got;
        encode(text, last, 4);
        cr_assert_eq(gp_utf8_decode(text, 4, &got), last <= 0x10ffff ? 4 : 0, "%x", last);
    }
}

/* Each byte of a character replaced by each other one that cannot be there. */
Test(text, bytes_that_cannot_be_there)
{
    for (unsigned first = 0x80; first < 0x100; first++) {
        unsigned char text[4] = {(unsigned char)first, 0xa0, 0xa0, 0xa0};
        uint32_t code;
        unsigned want = first < 0xc2    ? 0
                        : first < 0xe0  ? 2
                        : first < 0xf0  ? 3
                        : first == 0xf0 ? 4
                        : first < 0xf4  ? 4
                                        : 0;
        cr_expect_eq(gp_utf8_decode(text, 4, &code), first == 0xed ? 0 : want, "%x", first);
    }
    for (unsigned bytes = 2; bytes <= 4; bytes++)
        for (unsigned at = 1; at < bytes; at++)
            for (unsigned byte = 0; byte < 0x100; byte++) {
                unsigned char text[4];
                uint32_t code;
                encode(text, bytes == 2 ? 0x430 : bytes == 3 ? 0x4e8c : 0x1f600, bytes);
                text[at] = (unsigned char)byte;
                cr_expect_eq(gp_utf8_decode(text, bytes, &code) != 0,
                             (byte & 0xc0) == 0x80 && (bytes < 4 || at > 1 || byte >= 0x90), "%u %u %x", bytes, at,
                             byte);
            }
}

/* Control characters, and those that are invisible or change the order of a line. */
Test(text, characters_that_are_not_shown)
{
    static const uint32_t hidden[][2] = {{0, 0x1f},        {0x7f, 0x9f},     {0x200b, 0x200f},
                                         {0x2028, 0x202e}, {0x2066, 0x2069}, {0xfeff, 0xfeff}};
    for (uint32_t code = 0; code < 0x11000; code++) {
        bool shown = true;
        for (unsigned i = 0; i < 6; i++)
            shown &= code < hidden[i][0] || code > hidden[i][1];
        cr_assert_eq(gp_utf8_printable(code) != 0, shown, "%x", code);
    }
}

/* A character of the model: how many bytes it takes, and what is shown of it. */
static unsigned piece(const unsigned char *from, size_t left, char shown[5])
{
    uint32_t code = 0;
    size_t n = gp_utf8_decode(from, left, &code);
    memset(shown, 0, 5);
    if (n && gp_utf8_printable(code))
        memcpy(shown, from, n);
    else
        shown[0] = '?';
    return n ? (unsigned)n : 1;
}

Test(text, cleaned_texts)
{
    static const char *const pieces[] = {"a",    "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                                         "\n",   "\xff",     "\xe2\x80\xae", "\xed\xa0\x80",
                                         "\xc3", "\x7f"};
    unsigned state = 5;
    for (unsigned turn = 0; turn < 20000; turn++) {
        char from[64] = "", to[64], want[128] = "", shown[5];
        for (unsigned i = 0; i < turn % 9; i++) {
            state = state * 1664525u + 1013904223u;
            strcat(from, pieces[(state >> 16) % 10]);
        }
        size_t bytes = strlen(from), limit = turn % 3 ? bytes + turn % 4 : bytes / 2, room = 1 + (state >> 8) % 20;
        size_t length = limit < bytes ? limit : bytes;
        for (size_t at = 0; at < length;) {
            at += piece((const unsigned char *)from + at, length - at, shown);
            if (strlen(want) + strlen(shown) >= room)
                break;
            strcat(want, shown);
        }
        memset(to, '#', sizeof(to));
        gp_text_clean(to, room, from, limit);
        cr_assert_str_eq(to, want);
        cr_assert_eq(to[room], '#');
    }
}

Test(text, uuids)
{
    uint8_t uuid[16] = {0};
    char text[48], want[48];
    memset(text, 'x', sizeof(text));
    gp_text_uuid(text, sizeof(text), uuid);
    cr_expect_str_eq(text, "");
    for (unsigned i = 0; i < 16; i++) { /* each byte by itself */
        memset(uuid, 0, sizeof(uuid));
        uuid[i] = (uint8_t)(0xa1 + i);
        strcpy(want, "GPU-00000000-0000-0000-0000-000000000000");
        unsigned at = 4 + 2 * i + (i >= 4) + (i >= 6) + (i >= 8) + (i >= 10);
        char digits[3];
        snprintf(digits, sizeof(digits), "%02x", uuid[i]);
        memcpy(want + at, digits, 2);
        gp_text_uuid(text, sizeof(text), uuid);
        cr_expect_str_eq(text, want);
    }
}
