/* SPDX-License-Identifier: MIT
 *
 * test_names.c: the names of Python frames in the session: equal names are one, others are never mixed up, what is cut and
 * what is cleaned, and the last byte of the room.
 */
#include "stack/internal.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM 65536u

static struct gp_wire_sites head;
static char strings[ROOM + 64];
static bool full;

static void start(uint32_t limit)
{
    memset(strings, 0, limit);
    memset(strings + limit, 'x', sizeof(strings) - limit);
    cr_assert_eq(gp_names_start(&head, strings, limit), 0);
    cr_assert_eq(head.strings, 1);
}

static struct gp_wire_frame frame_of(uint64_t code, const char *function, size_t function_bytes, const char *file,
                                     size_t file_bytes)
{
    struct gp_python_frame from = {.code = code, .line = 77};
    struct gp_wire_frame to;
    /* Not ended by a NUL, and in memory of their own. */
    char *one = malloc(function_bytes + 1), *two = malloc(file_bytes + 1);
    memcpy(one, function, function_bytes);
    memcpy(two, file, file_bytes);
    one[function_bytes] = two[file_bytes] = '!';
    from.function = (struct gp_python_text){one, (uint32_t)function_bytes};
    from.file = (struct gp_python_text){two, (uint32_t)file_bytes};
    full = false;
    gp_names_frame(&from, &to, &full);
    cr_assert(to.line == 77 && to.type == GP_FRAME_PYTHON);
    free(one);
    free(two);
    return to;
}

static struct gp_wire_frame frame(uint64_t code, const char *function, const char *file)
{
    return frame_of(code, function, strlen(function), file, strlen(file));
}

Test(names, equal_names_are_one)
{
    char name[64];
    start(ROOM);
    srand(20251123);
    uint32_t places[500] = {0}, used = 1;
    for (unsigned round = 0; round < 20000; round++) {
        unsigned one = (unsigned)rand() % 500, two = (unsigned)rand() % 500;
        char other[64];
        /* Prefixes of each other, and of different lengths; few code objects, whose addresses come again. */
        snprintf(name, sizeof(name), "%.*s%u", (int)(one % 40), "a.name.that.many.functions.have.in.part.x", one);
        snprintf(other, sizeof(other), "%.*s%u", (int)(two % 40), "a.name.that.many.functions.have.in.part.x", two);
        struct gp_wire_frame is = frame(16 * ((uint64_t)rand() % 300), name, other);
        cr_assert_not(full);
        cr_assert_str_eq(strings + is.function, name);
        cr_assert_str_eq(strings + is.file, other);
        if (!places[one])
            places[one] = is.function, used += (uint32_t)strlen(name) + 1;
        if (!places[two])
            places[two] = is.file, used += (uint32_t)strlen(other) + 1;
        cr_assert_eq(places[one], is.function, "round %u", round);
        cr_assert_eq(places[two], is.file, "round %u", round);
        cr_assert_eq(head.strings, used, "round %u: %u, not %u", round, head.strings, used);
    }
}

Test(names, what_is_cut_and_cleaned)
{
    char name[600];
    start(ROOM);
    struct gp_wire_frame is = frame(16, "", "");
    cr_assert(is.function == 0 && is.file == 0 && !full && head.strings == 1);
    is = frame_of(32, "a\0b", 3, "\0", 1);
    cr_assert_str_eq(strings + is.function, "a?b");
    cr_assert_str_eq(strings + is.file, "?");
    for (size_t length = 508; length <= 514; length++) {
        memset(name, 'n', sizeof(name));
        is = frame_of(48, name, length, "f", 1);
        cr_assert_eq(strlen(strings + is.function), length < 512 ? length : 511, "%zu", length);
        /* A character of so many bytes ends there: it is left out whole. */
        for (size_t bytes = 2; bytes <= 4; bytes++) {
            memset(name, 'n', sizeof(name));
            name[length - bytes] = (char)0xf0;
            memset(name + length - bytes + 1, 0x80, bytes - 1);
            is = frame_of(64 + 16 * bytes, name, length, "f", 1);
            size_t whole = length < 512 ? length : length - bytes < 511 ? length - bytes : 511;
            cr_assert_eq(strlen(strings + is.function), whole, "%zu with %zu: %zu", length, bytes,
                         strlen(strings + is.function));
        }
    }
}

/* The names of one room more: the last one that fits ends with its last byte, and none is written behind. */
Test(names, the_last_byte)
{
    start(1 + 4 + 6);
    struct gp_wire_frame is = frame(16, "abc", "abcdef");
    cr_assert(full && is.function == 1 && is.file == 0, "seven bytes where six are left");
    is = frame(16, "abc", "abcde");
    cr_assert(!full && is.function == 1 && is.file == 5);
    cr_assert_str_eq(strings + 5, "abcde");
    cr_assert_eq(head.strings, 11);
    cr_assert_eq(strings[11], 'x');
    is = frame(32, "abcde", "z");
    cr_assert(full && is.function == 5 && is.file == 0);
    is = frame(32, "abcde", "abc");
    cr_assert(!full && is.function == 5 && is.file == 1);
    cr_assert_eq(head.strings, 11);
}

/* The names that a code object had last are looked at before any other place: here they alone are where the index does not
 * say, because their texts were changed behind it. */
Test(names, the_last_names_of_a_code_object_come_first)
{
    start(ROOM);
    struct gp_wire_frame before = frame(16, "abc", "defg"), is;
    uint32_t used = head.strings;
    strings[before.function] = 'X';
    strings[before.file] = 'Y';
    is = frame(16, "Xbc", "Yefg");
    cr_assert(is.function == before.function && is.file == before.file && head.strings == used);
    is = frame(32, "Xbc", "Yefg");
    cr_assert(is.function != before.function && is.file != before.file && head.strings == used + 9);
}
