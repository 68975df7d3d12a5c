/* SPDX-License-Identifier: MIT
 *
 * test_oom_page.c: the out-of-memory report word by word: each paragraph with its numbers at 0, at 1 and at their limits,
 * sizes, and the lines of a page. test_oom_advice.c has what the advice says.
 */
#include "lib/random.h"
#include <oom/oom.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1ll << 20)
#define GIB (1ll << 30)

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

Test(oom_page, a_size_has_the_largest_unit_and_four_digits)
{
    static const struct {
        int64_t bytes;
        const char *text;
    } sizes[] = {
        {INT64_MIN, "an unknown size"},
        {-1, "an unknown size"},
        {0, "0 B"},
        {1, "1 B"},
        {10, "10 B"},
        {100, "100 B"},
        {1000, "1000 B"},
        {1023, "1023 B"},
        {1024, "1 KiB"},
        {1025, "1.001 KiB"},
        {1034, "1.01 KiB"},
        {1536, "1.5 KiB"},
        {10240, "10 KiB"},
        {1048524, "1023.9 KiB"}, /* 1023.949 */
        {1048525, "1 MiB"},      /* 1023.9502 would be 1024.0 */
        {MIB, "1 MiB"},
        {GIB - 1, "1 GiB"},
        {GIB, "1 GiB"},
        {1024 * GIB, "1 TiB"},
        {1024 * GIB * 1024, "1 PiB"},
        {1024 * GIB * 1024 * 1023, "1023 PiB"},
        {1024 * GIB * 1024 * 1024, "1 EiB"},
        {INT64_MAX, "8 EiB"},
    };
    for (unsigned i = 0; i < GP_COUNT(sizes); i++) {
        char text[GP_OOM_SIZE];
        cr_expect_eq(gp_oom_size(text, sizes[i].bytes), text);
        cr_expect_str_eq(text, sizes[i].text, "%lld", (long long)sizes[i].bytes);
    }
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static char text_of_page[GP_OOM_PAGE_BYTES];

static struct gp_oom_page page_new(size_t bytes)
{
    memset(text_of_page, 0x55, sizeof(text_of_page));
    text_of_page[0] = '\0';
    return (struct gp_oom_page){.out = text_of_page, .bytes = bytes};
}

static const char *letters(size_t count)
{
    static char text[1024];
    for (size_t i = 0; i < count; i++)
        text[i] = (char)('a' + i % 26);
    text[count] = '\0';
    return text;
}

/* Of the room only a NUL is left when it fits exactly; with one byte less the line is left out. */
Test(oom_page, a_line_is_whole_or_left_out)
{
    for (size_t length = 1; length < 200; length += length < 98 ? 24 : 1) {
        size_t shown = length < GP_OOM_PAGE_COLUMNS ? length : GP_OOM_PAGE_COLUMNS;
        for (size_t room = shown; room < shown + 4; room++) {
            struct gp_oom_page page = page_new(room);
            bool fits = room >= shown + 2;
            gp_oom_title(&page, letters(length));
            cr_assert_eq(page.used, fits ? shown + 1 : 0, "%zu bytes in %zu", length, room);
            cr_assert_eq(page.lines, fits);
            cr_assert_eq(strlen(text_of_page), page.used);
            cr_assert(!fits || (memcmp(text_of_page, letters(length), shown) == 0 && text_of_page[shown] == '\n'));
            cr_assert_eq(text_of_page[room], 0x55);
        }
    }
    struct gp_oom_page page = page_new(30); /* a line after another, with a label */
    gp_oom_title(&page, "0123456789");
    gp_oom_say(&page, "label", "1234567");
    cr_expect_eq(page.used, 11, "the second needs 12 + 7 + 2 of the 19 that are left");
    gp_oom_say(&page, "label", "12345");
    cr_expect_str_eq(text_of_page, "0123456789\nlabel       12345\n");
    cr_expect_eq(page.used, 29);
}

Test(oom_page, a_page_has_forty_lines)
{
    struct gp_oom_page page = page_new(sizeof(text_of_page));
    for (unsigned i = 0; i < 50; i++) {
        gp_oom_say(&page, "x", "%u", i);
        cr_assert_eq(page.lines, i < 40 ? i + 1 : 40);
    }
    cr_expect_eq(page.used, 10 * (12 + 1 + 1) + 30 * (12 + 2 + 1));
}

/* A line is cut at the last space of its second half, else where it is full. */
Test(oom_page, a_line_is_cut_at_a_space_or_where_it_is_full)
{
    for (size_t space = 40; space < 105; space++) {
        struct gp_oom_page page = page_new(sizeof(text_of_page));
        char text[160];
        strcpy(text, letters(150));
        text[space] = ' ';
        gp_oom_title(&page, text);
        cr_assert_eq(page.used, (space > 50 && space <= 100 ? space : 100) + 1, "a space at %zu", space);
    }
}

/* A character of two to four bytes that does not fit goes to the next line as a whole. */
Test(oom_page, characters_are_not_divided)
{
    static const char *const characters[] = {"\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (unsigned i = 0; i < 3; i++)
        for (size_t at = 80; at <= 88; at++) {
            struct gp_oom_page page = page_new(sizeof(text_of_page));
            char text[256], want[256];
            size_t bytes = strlen(characters[i]), first = at + bytes <= 88 ? 88 : at;
            snprintf(text, sizeof(text), "%.*s%s%s", (int)at, letters(at), characters[i], "0123456789");
            gp_oom_say(&page, "l", "%s", text);
            snprintf(want, sizeof(want), "%-12s%.*s\n%-12s%s\n", "l", (int)first, text, "", text + first);
            if (strlen(text) <= 88)
                snprintf(want, sizeof(want), "%-12s%s\n", "l", text);
            cr_assert_str_eq(text_of_page, want, "%u at %zu", i, at);
        }
}

static void append(char *text, size_t *used, const char *more)
{
    memcpy(text + *used, more, strlen(more) + 1);
    *used += strlen(more);
}

/* Words that are shorter than half a line: each line takes as many as fit. */
Test(oom_page, words_are_put_into_lines)
{
    for (unsigned turn = 0; turn < 300; turn++) {
        struct gp_oom_page page = page_new(sizeof(text_of_page));
        char text[640], want[1024];
        size_t used = 0, out = 0, column = 0, word;
        while (used + (word = 1 + draw_below(turn % 40 + 1)) < sizeof(text) - 1) {
            const char *before = used ? " " : "label       ";
            if (used && column + 1 + word > 88) {
                before = "\n            ";
                column = 0;
            }
            append(want, &out, before);
            append(want, &out, letters(word));
            column += (column > 0) + word;
            append(text, &used, used ? " " : "");
            append(text, &used, letters(word));
        }
        append(want, &out, "\n");
        gp_oom_say(&page, "label", "%s", text);
        cr_assert_str_eq(text_of_page, want, "turn %u", turn);
    }
}

/* Spaces at the end of a line are gone, and not those at the start of a paragraph. */
Test(oom_page, a_line_does_not_begin_with_spaces)
{
    for (size_t spaces = 1; spaces < 6; spaces++) {
        struct gp_oom_page page = page_new(sizeof(text_of_page));
        char want[256];
        gp_oom_say(&page, "l", " %s%*s%s", letters(85), (int)spaces, "", "xyz");
        int kept = spaces > 2 ? 2 : (int)spaces - 1; /* of 88 columns 86 are taken */
        snprintf(want, sizeof(want), "l            %.85s%*s\n            xyz\n", letters(85), kept, "");
        cr_expect_str_eq(text_of_page, want, "%zu spaces", spaces);
    }
}

Test(oom_page, a_paragraph_is_cut_at_639_bytes)
{
    for (size_t length = 636; length < 644; length++) {
        struct gp_oom_page page = page_new(sizeof(text_of_page));
        size_t shown = length < 639 ? length : 639;
        gp_oom_say(&page, "x", "%s", letters(length));
        cr_assert_eq(page.lines, 8);
        cr_assert_eq(page.used, 8 * (12 + 1) + shown, "%zu", length);
    }
}

Test(oom_page, a_label_is_written_once)
{
    struct gp_oom_page page = page_new(sizeof(text_of_page));
    page.label = "first";
    gp_oom_say(&page, NULL, "one");
    gp_oom_say(&page, NULL, "two");
    gp_oom_say(&page, "own", "%s", "");
    gp_oom_say(&page, "", "%s", letters(90));
    char want[256];
    snprintf(want, sizeof(want), "first       one\n            two\nown         \n            %.88s\n            kl\n",
             letters(90));
    cr_expect_str_eq(text_of_page, want);
}

/* ---- paragraphs -------------------------------------------------------------------------------------------------- */

#define HELP "what helps  - free more, or ask for less: no setting is known that would have helped\n"

static struct gp_wire_oom oom;
static struct gp_oom_facts facts;

/* Nothing is known but the call and the thread. */
static void nothing(void)
{
    oom = (struct gp_wire_oom){.seq = 2,
                               .count = 1,
                               .time_ns = 5000000000,
                               .api = "cuMemAlloc_v2",
                               .error = 2,
                               .device = -1,
                               .tid = 12,
                               .free_bytes = -1,
                               .total_bytes = -1,
                               .reserved_bytes = -1,
                               .allocated_bytes = -1,
                               .pool_reserved_bytes = -1,
                               .graph_reserved_bytes = -1,
                               .graph_used_bytes = -1};
    facts = (struct gp_oom_facts){.oom = &oom, .total_bytes = -1, .untracked_bytes = -1};
}

static void expect_page(const char *want, int line)
{
    char page[GP_OOM_PAGE_BYTES];
    size_t length = gp_oom_page(page, sizeof(page), &facts);
    cr_expect_eq(length, strlen(page));
    cr_expect_str_eq(page, want, "line %d:\n%s", line, page);
}

/* What is between the lines of the caller and the advice. */
static void expect_middle(const char *want, int line)
{
    char page[GP_OOM_PAGE_BYTES];
    gp_oom_page(page, sizeof(page), &facts);
    char *from = strchr(strchr(page, '\n') + 1, '\n') + 1, *to = strstr(page, "what helps");
    cr_assert_not_null(to, "line %d: %s", line, page);
    *to = '\0';
    cr_expect_str_eq(from, want, "line %d:\n%s", line, from);
}
#define MIDDLE(_want) expect_middle(_want, __LINE__)

static void title(const char *want, int line)
{
    char page[GP_OOM_PAGE_BYTES];
    gp_oom_page(page, sizeof(page), &facts);
    *strchr(page, '\n') = '\0';
    cr_expect_str_eq(page, want, "line %d", line);
}
#define TITLE(_want) title(_want, __LINE__)

Test(oom_page, a_page_of_what_is_not_known)
{
    nothing();
    expect_page("Out of memory on an unknown device: cuMemAlloc_v2 failed\n"
                "who         thread 12\n" HELP,
                __LINE__);
    char page[200];
    for (size_t room = 0; room < 200; room++) {
        memset(page, 'x', sizeof(page));
        size_t used = gp_oom_page(page, room, &facts);
        cr_assert_eq(used,
                     room < 128                 ? 0
                     : room < 80 + strlen(HELP) ? 57 + 22
                                                : 57 + 22 + strlen(HELP),
                     "%zu: %zu", room, used);
        cr_assert(room == 0 ? page[0] == 'x' : page[used] == '\0');
    }
}

Test(oom_page, the_title_names_the_device_and_the_size)
{
    nothing();
    oom.asked_bytes = 1;
    TITLE("Out of memory on an unknown device: cuMemAlloc_v2 asked for 1 B");
    oom.device = 0;
    TITLE("Out of memory on device 0: cuMemAlloc_v2 asked for 1 B");
    facts.device_name = "";
    TITLE("Out of memory on device 0: cuMemAlloc_v2 asked for 1 B");
    facts.device_name = "H200";
    oom.device = 63;
    oom.asked_bytes = INT64_MAX;
    TITLE("Out of memory on device 63 (H200): cuMemAlloc_v2 asked for 8 EiB");
    oom.asked_bytes = (uint64_t)INT64_MAX + 1;
    TITLE("Out of memory on device 63 (H200): cuMemAlloc_v2 asked for 8 EiB");
    oom.asked_bytes = UINT64_MAX;
    TITLE("Out of memory on device 63 (H200): cuMemAlloc_v2 asked for 8 EiB");
    oom.device = (int32_t)GP_WIRE_HOST;
    oom.asked_bytes = 0;
    TITLE("Out of memory on the host: cuMemAlloc_v2 failed");
}

static void expect_who(const char *want, int line)
{
    char page[GP_OOM_PAGE_BYTES];
    gp_oom_page(page, sizeof(page), &facts);
    char *from = strchr(page, '\n') + 1, *to = strstr(page, "what helps");
    cr_assert_not_null(to);
    *to = '\0';
    cr_expect_str_eq(from, want, "line %d:\n%s", line, from);
}
#define WHO(_want) expect_who(_want, __LINE__)

Test(oom_page, who_asked)
{
    nothing();
    facts.pid = 1;
    WHO("who         PID 1 , thread 12\n");
    facts.comm = "python3";
    WHO("who         PID 1 python3, thread 12\n");
    facts.pid = 0;
    WHO("who         thread 12\n");
    facts.pid = 4;
    char name[80];
    strcpy(name, letters(70));
    facts.comm = name;
    WHO("who         PID 4 abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijkl, thread 12\n");
    facts.pid = 0;
    oom.stream = 1;
    WHO("who         thread 12, stream 0x1\n");
    oom.stream = UINT64_MAX;
    facts.start_ns = oom.time_ns;
    WHO("who         thread 12, stream 0xffffffffffffffff\n");
    oom.stream = 0;
    facts.start_ns = oom.time_ns - 1;
    WHO("who         thread 12, 0.000 s after the start\n");
    facts.start_ns = oom.time_ns + 1;
    WHO("who         thread 12\n");
    facts.start_ns = 1;
    WHO("who         thread 12, 5.000 s after the start\n");
    facts.start_ns = 3765000000;
    WHO("who         thread 12, 1.235 s after the start\n");
    facts.start_ns = 0;
    facts.place = "";
    oom.count = 0;
    WHO("who         thread 12\n");
    facts.place = "train.py:17 step";
    oom.count = 2;
    WHO("asked by    train.py:17 step\n"
        "who         thread 12\n"
        "            the last of 2 such failures\n");
}

Test(oom_page, the_device)
{
    nothing();
    oom.device = 0;
    MIDDLE("device      an unknown size in total; what was free is not known: the driver was not asked or did\n"
           "            not say\n");
    oom.flags = GP_OOM_PENDING;
    facts.total_bytes = 4 * GIB;
    MIDDLE("device      4 GiB in total; what was free is not known: the program ended before the driver could be\n"
           "            asked\n");
    oom.flags = GP_OOM_DRIVER;
    oom.free_bytes = 0;
    oom.total_bytes = 4 * GIB;
    MIDDLE("device      4 GiB in total, 0 B free then\n");
    oom.reserved_bytes = oom.allocated_bytes = 4 * GIB;
    MIDDLE("device      4 GiB in total, 0 B free then\n"
           "others      0 B held by other processes, this one's context and code, and the driver's rounding\n"
           "process     4 GiB reserved from the driver, 4 GiB allocated\n");
    facts.untracked_bytes = 0;
    oom.reserved_bytes = 0;
    oom.allocated_bytes = 0;
    oom.free_bytes = 5;
    oom.total_bytes = 6;
    facts.total_bytes = 6;
    MIDDLE("device      6 B in total, 5 B free then\n"
           "others      1 B held by other processes\n"
           "process     0 B reserved from the driver, 0 B allocated\n");
    oom.reserved_bytes = 2;
    oom.allocated_bytes = 1;
    oom.free_bytes = 1;
    oom.total_bytes = 8;
    facts.total_bytes = 64 * GIB;
    MIDDLE("limit       8 B of the device's 64 GiB, set for this process's cgroup or by MPS; 1 B of it free then\n"
           "others      5 B held by other processes under this limit\n"
           "process     2 B reserved from the driver, 1 B allocated\n");
    oom.total_bytes = 1;
    oom.free_bytes = 0;
    oom.reserved_bytes = 0;
    oom.allocated_bytes = 0;
    MIDDLE("limit       1 B of the device's 64 GiB, set for this process's cgroup or by MPS; 0 B of it free then\n"
           "others      1 B held by other processes under this limit\n"
           "process     0 B reserved from the driver, 0 B allocated\n");
    oom.device = (int32_t)GP_WIRE_HOST;
    MIDDLE("process     0 B reserved from the driver, 0 B allocated\n");
    oom.device = 63;
    oom.flags = 0;
    oom.reserved_bytes = -1;
    MIDDLE("device      64 GiB in total; what was free is not known: the driver was not asked or did not say\n");
}

Test(oom_page, what_the_process_holds_by_kind)
{
    nothing();
    oom.reserved_bytes = 3;
    oom.allocated_bytes = 2;
    for (unsigned kind = 0; kind < GP_KINDS; kind++)
        oom.kinds[kind] = (int64_t)kind;
    MIDDLE("process     3 B reserved from the driver, 2 B allocated: linear 1 B, pitched 2 B, array 3 B, vmm 4\n"
           "            B, pool 5 B, graph 6 B, managed 7 B, pinned 8 B, registered 9 B, module 13 B\n");
    for (unsigned kind = 0; kind < GP_KINDS; kind++)
        oom.kinds[kind] = kind == GP_KIND_VMM ? 0 : -1;
    MIDDLE("process     3 B reserved from the driver, 2 B allocated\n");
    oom.kinds[GP_KIND_MODULE] = 1;
    MIDDLE("process     3 B reserved from the driver, 2 B allocated: module 1 B\n");
}

Test(oom_page, the_cache_and_its_idle_memory)
{
    nothing();
    oom.flags = GP_OOM_CACHE;
    oom.asked_bytes = 6;
    strcpy(oom.policy, "caching");
    MIDDLE("allocator   caching, no limit\n"
           "cached      nothing: no idle memory was left to give\n");
    strcpy(oom.conf, "a:1");
    oom.limit_bytes = 1;
    oom.waiting_bytes = 1;
    MIDDLE("allocator   caching (a:1), limit 1 B\n"
           "cached      nothing: no idle memory was left to give\n"
           "            1 B more is freed, but work that uses it is still under way\n");
    oom.limit_bytes = oom.waiting_bytes = -1;
    oom.idle_bytes = 9;
    oom.idle_pieces = 3;
    oom.largest_idle_bytes = 5;
    oom.pinning_blocks = 7;
    MIDDLE("allocator   caching (a:1), no limit\n"
           "cached      9 B cached in 3 pieces, largest 5 B, pinned by 7 live blocks: no piece is large enough,\n"
           "            and memory that shares a segment with a live block cannot go back to the driver\n");
    oom.largest_idle_bytes = 6;
    MIDDLE("allocator   caching (a:1), no limit\n"
           "cached      9 B cached in 3 pieces, largest 6 B, pinned by 7 live blocks: the largest would do, but\n"
           "            it belongs to another stream or pool\n");
    oom.idle_bytes = 1;
    oom.idle_pieces = 1;
    oom.largest_idle_bytes = 1;
    oom.pinning_blocks = 1;
    oom.asked_bytes = 1;
    MIDDLE("allocator   caching (a:1), no limit\n"
           "cached      1 B cached in 1 pieces, largest 1 B, pinned by 1 live blocks: the largest would do, but\n"
           "            it belongs to another stream or pool\n");
}

Test(oom_page, pools_and_graphs_that_hold_more_than_is_in_use)
{
    nothing();
    oom.device = 0;
    oom.flags = GP_OOM_DRIVER;
    oom.free_bytes = 0;
    oom.total_bytes = 100;
    oom.pool_reserved_bytes = 9;
    oom.kinds[GP_KIND_POOL] = 9;
    oom.graph_reserved_bytes = oom.graph_used_bytes = 7;
    MIDDLE("device      100 B in total, 0 B free then\n");
    oom.kinds[GP_KIND_POOL] = 8;
    oom.graph_used_bytes = 6;
    MIDDLE("device      100 B in total, 0 B free then\n"
           "pools       1 B reserved by memory pools and not handed out\n"
           "graphs      1 B reserved for graphs and not in use\n");
    oom.kinds[GP_KIND_POOL] = oom.graph_used_bytes = -1;
    MIDDLE("device      100 B in total, 0 B free then\n"
           "pools       9 B reserved by memory pools and not handed out\n"
           "graphs      7 B reserved for graphs and not in use\n");
}

Test(oom_page, the_holders)
{
    static const char *const nowhere[GP_OOM_HOLDERS] = {"", "", "", "", "", "", "", "", "", "", "", ""};
    static const char *const places[GP_OOM_HOLDERS] = {
        "", "0123456789012345678901234567890123456789", "", "", "", "", "", "", "", "", "", "x"};
    nothing();
    oom.rest_count = 5;
    MIDDLE("");
    oom.holder_count = 1;
    oom.rest_count = 0;
    oom.holders[0] = (struct gp_wire_oom_holder){.block_bytes = 1024, .count = 3, .kind = GP_KIND_POOL};
    MIDDLE("holders     KIND           BLOCKS  OF               TOGETHER\n"
           "            pool                3  1 KiB               3 KiB\n");
    facts.where = nowhere;
    oom.holders_ns = oom.time_ns - 1000000;
    MIDDLE("holders     KIND           BLOCKS  OF               TOGETHER\n"
           "            pool                3  1 KiB               3 KiB\n");
    oom.holders_ns--;
    oom.rest_count = 1;
    oom.rest_bytes = 512;
    MIDDLE("holders     KIND           BLOCKS  OF               TOGETHER   (as of 0.001 s before)\n"
           "            pool                3  1 KiB               3 KiB\n"
           "            the rest            1                      512 B\n");
    oom.holders_ns = oom.time_ns + 2000000;
    oom.flags = GP_OOM_PARTIAL;
    facts.where = places;
    oom.holder_count = 2;
    oom.holders[1] = (struct gp_wire_oom_holder){.block_bytes = UINT64_MAX / 2 + 1, .count = 1, .kind = GP_KINDS};
    MIDDLE("holders     KIND           BLOCKS  OF               TOGETHER  WHERE\n"
           "            other               1  an unknown size        8 EiB \n"
           "            01234567890123456789012345678901234567\n"
           "            pool                3  1 KiB               3 KiB  \n"
           "            the rest            1  many sizes          512 B\n");
    oom.holders_ns = 1;
    oom.holders[1] =
        (struct gp_wire_oom_holder){.block_bytes = 1ull << 33, .count = 1ull << 31, .kind = GP_KIND_LINEAR};
    oom.holders[0].kind = GP_KIND_IMPORTED;
    oom.rest_count = 0;
    MIDDLE("holders     KIND           BLOCKS  OF               TOGETHER  WHERE   (as of 5.000 s before)\n"
           "            linear     2147483648  8 GiB               8 EiB  01234567890123456789012345678901234567\n"
           "            imported            3  1 KiB               3 KiB  \n");
}

/* What one place holds in blocks of several sizes is one row; without a place, each size is. */
Test(oom_page, the_holders_of_one_place)
{
    static const char *const places[GP_OOM_HOLDERS] = {"", "big", "f (x.c:1)", "f (x.c:1)", "f (x.c:1)", ""};
    nothing();
    facts.where = places;
    oom.holder_count = 6;
    for (unsigned i = 0; i < 6; i++)
        oom.holders[i] = (struct gp_wire_oom_holder){.block_bytes = 10 - i, .count = 1, .kind = GP_KIND_LINEAR};
    oom.holders[4].kind = GP_KIND_ARRAY;
    MIDDLE("holders     KIND           BLOCKS  OF               TOGETHER  WHERE\n"
           "            linear              2  many sizes           15 B  f (x.c:1)\n"
           "            linear              1  10 B                 10 B  \n"
           "            linear              1  9 B                   9 B  big\n"
           "            array               1  6 B                   6 B  f (x.c:1)\n"
           "            linear              1  5 B                   5 B  \n");
    oom.holders[2].count = UINT64_MAX;
    MIDDLE("holders     KIND           BLOCKS  OF               TOGETHER  WHERE\n"
           "            linear     18446744073709551615  many sizes          8 EiB  f (x.c:1)\n"
           "            linear              1  10 B                 10 B  \n"
           "            linear              1  9 B                   9 B  big\n"
           "            array               1  6 B                   6 B  f (x.c:1)\n"
           "            linear              1  5 B                   5 B  \n");
}

/* Only as many as a report holds are read, and a place is looked for in all of them. */
Test(oom_page, no_more_holders_than_there_are)
{
    static const char *const places[GP_OOM_HOLDERS + 1] = {"", "", "", "", "", "", "", "", "", "", "", "x", "y"};
    char want[2048];
    nothing();
    facts.where = places;
    for (unsigned i = 0; i < GP_OOM_HOLDERS; i++)
        oom.holders[i] = (struct gp_wire_oom_holder){.block_bytes = 1, .count = 20 - i, .kind = GP_KIND_ARRAY};
    for (unsigned count = 10; count < 15; count++) {
        int used = sprintf(want, "holders     KIND           BLOCKS  OF               TOGETHER%s\n",
                           count > 11 ? "  WHERE" : "");
        for (unsigned i = 0; i < GP_OOM_HOLDERS && i < count; i++)
            used += sprintf(want + used, "            %-10s %10u  %-12s %10u B%s%s\n", "array", 20 - i, "1 B", 20 - i,
                            count > 11 ? "  " : "", count > 11 ? places[i] : "");
        oom.holder_count = count;
        MIDDLE(want);
    }
}
