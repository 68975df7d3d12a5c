/* SPDX-License-Identifier: MIT
 *
 * test_unpickle.c: the reader of pickles (tools/read/recording/pickleread.c), one opcode at a time.  What each does is what Python's
 * pickletools says.
 */
#include <base/compiler.h>
#include <criterion/criterion.h>
#include <lib/lackmemory.h>
#include <read/recording/pickleread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* ---- values as text ---------------------------------------------------------------------------------------------- */

struct shown {
    char text[65536];
    size_t used;
};

static void show(struct shown *to, const struct gp_pickle *value, unsigned depth);

static void show_text(struct shown *to, const char *text, size_t length)
{
    cr_assert_lt(to->used + length, sizeof(to->text));
    memcpy(to->text + to->used, text, length);
    to->text[to->used += length] = '\0';
}

static void show_items(struct shown *to, const struct gp_pickle_items *items, const char *ends, bool pairs,
                       unsigned depth)
{
    show_text(to, ends, 1);
    for (uint32_t i = 0; i < items->count; i++) {
        if (i)
            show_text(to, pairs && i % 2 ? ":" : ",", 1);
        show(to, &items->at[i], depth + 1);
    }
    show_text(to, ends + 1, 1);
}

static void show(struct shown *to, const struct gp_pickle *value, unsigned depth)
{
    char number[32];
    cr_assert_lt(depth, 8);
    switch (value->type) {
    case GP_PICKLE_NONE:
        return show_text(to, "N", 1);
    case GP_PICKLE_BOOL:
        return show_text(to, value->number == 1 ? "T" : value->number == 0 ? "F" : "?", 1);
    case GP_PICKLE_INT:
        snprintf(number, sizeof(number), "%lld", (long long)value->number);
        return show_text(to, number, strlen(number));
    case GP_PICKLE_FLOAT:
        return show_text(to, "f", 1);
    case GP_PICKLE_TEXT:
        show_text(to, "'", 1);
        show_text(to, value->text, value->length);
        return show_text(to, "'", 1);
    case GP_PICKLE_LIST:
        return show_items(to, value->items, "[]", false, depth);
    case GP_PICKLE_DICT:
        return show_items(to, value->items, "{}", true, depth);
    default:
        return show_text(to, "?", 1);
    }
}

/* The value, or why it is refused and at which byte. */
static const char *shown(const void *data, size_t bytes)
{
    static struct shown to;
    struct gp_pickle_file file;
    int rc = gp_pickle_read(&file, data, bytes);
    to.used = 0;
    to.text[0] = '\0';
    if (rc == -EINVAL)
        to.used = (size_t)snprintf(to.text, sizeof(to.text), "at %zu: %s", file.position, file.why);
    else if (rc)
        to.used = (size_t)snprintf(to.text, sizeof(to.text), "error %d", rc);
    else
        show(&to, &file.root, 0);
    gp_pickle_free(&file);
    cr_assert_null(file.all);
    return to.text;
}

#define SHORT   "it ends in the middle of a value"
#define NO_STOP "it ends without a STOP opcode"
#define OUTSIDE "values outside a container"
#define KIND    "a container of another kind"
#define FEW     "too few values for a container"
#define STOPS   "it stops with no value or with several"
#define DIGITS  "not a number"
#define WIDE    "an integer of more than 8 bytes"

#define CASE(_bytes, _shown)                                                                                           \
    {                                                                                                                  \
        _bytes, sizeof(_bytes) - 1, _shown                                                                             \
    }
static const struct {
    const char *bytes;
    size_t size;
    const char *shown;
} good[] = {
    CASE("N.", "N"),
    CASE("\x88.", "T"),
    CASE("\x89.", "F"),
    /* BININT1, BININT2, BININT */
    CASE("K\0.", "0"),
    CASE("K\xff.", "255"),
    CASE("M\0\x80.", "32768"),
    CASE("M\x34\x12.", "4660"),
    CASE("J\xff\xff\xff\x7f.", "2147483647"),
    CASE("J\0\0\0\x80.", "-2147483648"),
    CASE("J\xff\xff\xff\xff.", "-1"),
    CASE("J\x78\x56\x34\x12.", "305419896"),
    /* LONG1, LONG4 */
    CASE("\x8a\0.", "0"),
    CASE("\x8a\1\x7f.", "127"),
    CASE("\x8a\1\x80.", "-128"),
    CASE("\x8a\2\0\x80.", "-32768"),
    CASE("\x8a\2\xff\x7f.", "32767"),
    CASE("\x8a\7\0\0\0\0\0\0\x80.", "-36028797018963968"),
    CASE("\x8a\7\0\0\0\0\0\0\x40.", "18014398509481984"),
    CASE("\x8a\x08\0\0\0\0\0\0\0\x80.", "-9223372036854775808"),
    CASE("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f.", "9223372036854775807"),
    CASE("\x8a\x08\xfe\xff\xff\xff\xff\xff\xff\xff.", "-2"),
    CASE("\x8b\2\0\0\0\x34\x12.", "4660"),
    CASE("\x8b\1\0\0\0\x80.", "-128"),
    /* an address above 2^63, with its sign */
    CASE("\x8a\x09\1\0\0\0\0\0\0\x80\0K\5\x86.", "[-9223372036854775807,5]"),
    CASE("\x8b\x09\0\0\0\1\0\0\0\0\0\0\x80\0K\5\x86.", "[-9223372036854775807,5]"),
    /* INT */
    CASE("I123\n.", "123"),
    CASE("I-5\n.", "-5"),
    CASE("I0000000000000000000042\n.", "42"),
    CASE("I00000000000000000000042\n.", "42"),
    CASE("I7\nI8\n\x86.", "[7,8]"),
    /* BINFLOAT */
    CASE("G\1\2\3\4\5\6\7\x08K\1\x86.", "[f,1]"),
    /* texts and bytes */
    CASE("X\3\0\0\0abc.", "'abc'"),
    CASE("X\0\0\0\0.", "''"),
    CASE("\x8c\3abcN\x86.", "['abc',N]"),
    CASE("\x8d\3\0\0\0\0\0\0\0abcN\x86.", "['abc',N]"),
    CASE("B\3\0\0\0abcN\x86.", "['abc',N]"),
    CASE("T\3\0\0\0abcN\x86.", "['abc',N]"),
    CASE("C\3abcN\x86.", "['abc',N]"),
    CASE("U\3abcN\x86.", "['abc',N]"),
    /* containers */
    CASE("}.", "{}"),
    CASE("].", "[]"),
    CASE(").", "[]"),
    CASE("(NK\1d.", "{N:1}"),
    CASE("(d.", "{}"),
    CASE("(K\1K\2l.", "[1,2]"),
    CASE("(t.", "[]"),
    CASE("(K\1t.", "[1]"),
    CASE("K\1\x85.", "[1]"),
    CASE("K\1K\2\x86.", "[1,2]"),
    CASE("K\1K\2K\3\x87.", "[1,2,3]"),
    CASE("K\x09K\1K\2K\3\x87\x86.", "[9,[1,2,3]]"),
    CASE("]K\1a.", "[1]"),
    CASE("]K\1aK\2a.", "[1,2]"),
    CASE("K\x09]K\1a\x86.", "[9,[1]]"),
    CASE("](K\1K\2e.", "[1,2]"),
    CASE("](e.", "[]"),
    CASE("K\x09](K\1K\2e\x86.", "[9,[1,2]]"),
    CASE("}NK\1s.", "{N:1}"),
    CASE("}NK\1sK\2K\3s.", "{N:1,2:3}"),
    CASE("}(NK\1K\2K\3u.", "{N:1,2:3}"),
    CASE("}(u.", "{}"),
    CASE("](](K\1eK\2e.", "[[1],2]"),
    CASE("K\x08(K\x09(K\1tt\x86.", "[8,[9,[1]]]"),
    /* POP, POP_MARK, DUP */
    CASE("K\1K\0020.", "1"),
    CASE("(0N.", "N"),
    CASE("K\7(K\1K\0021.", "7"),
    CASE("(1N.", "N"),
    CASE("(K\7(K\0011K\2t.", "[7,2]"),
    CASE("K\0012\x86.", "[1,1]"),
    CASE("K\3K\0012\x87.", "[3,1,1]"),
    /* BINPUT, LONG_BINPUT, MEMOIZE, BINGET, LONG_BINGET */
    CASE("]q\0K\1a0h\0.", "[1]"),
    CASE("K\5r\0\0\0\0N0h\0\x86.", "[5,5]"),
    CASE("(K\5\x94K\6\x94h\0h\1t.", "[5,6,5,6]"),
    CASE("K\5\x94j\0\0\0\0\x86.", "[5,5]"),
    CASE("K\5r\0\0\1\0j\0\0\1\0\x86.", "[5,5]"),
    CASE("(K\1q\3K\2q\1K\3\x94h\4h\3h\1h\2t.", "[1,2,3,3,1,2,N]"),
    CASE("(K\1q\0K\2q\0K\3\x94h\0h\1t.", "[1,2,3,2,3]"),
    /* PROTO, FRAME */
    CASE("\x80\2N.", "N"),
    CASE("\x80\5N.", "N"),
    CASE("\x95........N.", "N"),
};
static const struct {
    const char *bytes;
    size_t size;
    const char *shown;
} bad[] = {
    CASE("", "at 0: " NO_STOP),
    CASE("N", "at 1: " NO_STOP),
    CASE("K", "at 0: " SHORT),
    CASE("NM\1", "at 1: " SHORT),
    CASE("NJ\1\1\1", "at 1: " SHORT),
    CASE("\x8a", "at 0: " SHORT),
    CASE("\x8b\1\0\0", "at 0: " SHORT),
    CASE("\x8a\2\1", "at 0: " SHORT),
    CASE("\x8a\x09\0\0\0\0\0\0\0\0\1.", "at 0: " WIDE),
    CASE("\x8a\x09\0\0\0\0\0\0\0\0", "at 0: " WIDE),
    CASE("\x8a\x0a\0\0\0\0\0\0\0\0\0\0.", "at 0: " WIDE),
    CASE("\x8a\x09\1\0\0\0\0\0\0\0\0", "at 11: " NO_STOP),
    CASE("I\n.", "at 0: " DIGITS),
    CASE("I12", "at 0: " DIGITS),
    CASE("I000000000000000000000042\n.", "at 0: " DIGITS),
    CASE("G\1\2\3\4\5\6\7", "at 0: " SHORT),
    CASE("X\3\0\0\0ab", "at 0: " SHORT),
    CASE("X\3\0\0", "at 0: " SHORT),
    CASE("X\3\0\0\0abc", "at 8: " NO_STOP),
    CASE("\x8d\3\0\0\0\0\0\0", "at 0: " SHORT),
    CASE("\x80", "at 0: " SHORT),
    CASE("\x80\1N.", "at 0: a protocol other than 2 to 5"),
    CASE("\x80\6N.", "at 0: a protocol other than 2 to 5"),
    CASE("\x95.......", "at 0: " SHORT),
    CASE("\x95........", "at 9: " NO_STOP),
    CASE(".", "at 0: " STOPS),
    CASE("NN.", "at 2: " STOPS),
    CASE("(.", "at 1: " STOPS),
    CASE("(Nd.", "at 2: " FEW),
    CASE("K\1\x86.", "at 2: " FEW),
    CASE("\x85.", "at 0: " FEW),
    CASE("(K\1\x86.", "at 3: " FEW),
    CASE("(\x85.", "at 1: " FEW),
    CASE("K\1K\2\x87.", "at 4: " FEW),
    CASE("K\5\x94K\6\x94h\0h\1t.", "at 10: no mark"),
    CASE("d.", "at 0: no mark"),
    CASE("K\1t.", "at 2: no mark"),
    CASE("l", "at 0: no mark"),
    CASE("K\1a.", "at 2: " OUTSIDE),
    CASE("NK\1a.", "at 3: " KIND),
    CASE("a", "at 0: " OUTSIDE),
    CASE("}K\1a.", "at 3: " KIND),
    CASE("](a.", "at 2: " OUTSIDE),
    CASE("]K\1e.", "at 3: no mark"),
    CASE("(e.", "at 1: " OUTSIDE),
    CASE("N(K\1e.", "at 4: " KIND),
    CASE("}(K\1K\2e.", "at 6: " KIND),
    CASE("](K\1K\2u.", "at 6: " KIND),
    CASE("NK\1s.", "at 3: " OUTSIDE),
    CASE("]NNs.", "at 3: " KIND),
    CASE("}(Ns.", "at 3: " OUTSIDE),
    CASE("}(Nu.", "at 3: " KIND),
    CASE("}NNu.", "at 3: no mark"),
    CASE("0.", "at 0: no value to drop"),
    CASE("1.", "at 0: no value to drop"),
    CASE("K\0011.", "at 2: no value to drop"),
    CASE("2.", "at 0: no value to copy"),
    CASE("(2.", "at 1: no value to copy"),
    CASE("h\0.", "at 0: an empty memo"),
    CASE("K\5\x94h\1.", "at 3: an empty memo"),
    CASE("K\5\x94j\1\0\0\0.", "at 3: an empty memo"),
    CASE("q\0", "at 0: no value to remember"),
    CASE("(q\0", "at 1: no value to remember"),
    CASE("q", "at 0: " SHORT),
    CASE("Nh", "at 1: " SHORT),
    CASE("Nr\0\0\0", "at 1: " SHORT),
    CASE("(\x94", "at 1: no value to remember"),
    CASE("K\5r\0\0\2\0.", "at 2: a memo number out of order"),
    CASE("K\5q\0r\0\0\2\0.", "at 4: a memo number out of order"),
    CASE("K\5q\0r\1\0\1\0", "at 9: " NO_STOP),
};

Test(unpickle, each_opcode_does_what_python_says)
{
    for (size_t i = 0; i < GP_COUNT(good); i++)
        cr_expect_str_eq(shown(good[i].bytes, good[i].size), good[i].shown, "case %zu: %s", i,
                         shown(good[i].bytes, good[i].size));
    for (size_t i = 0; i < GP_COUNT(bad); i++)
        cr_expect_str_eq(shown(bad[i].bytes, bad[i].size), bad[i].shown, "bad case %zu: %s", i,
                         shown(bad[i].bytes, bad[i].size));
}

/* Each opcode ends its value, so what is cut has no STOP, or ends inside of an opcode. */
Test(unpickle, what_is_cut_is_refused)
{
    for (size_t i = 0; i < GP_COUNT(good); i++)
        for (size_t cut = 0; cut < good[i].size; cut++) {
            char *exact = malloc(cut + !cut); /* so that a sanitizer detects a read beyond it */
            memcpy(exact, good[i].bytes, cut);
            const char *found = shown(exact, cut);
            free(exact);
            cr_expect(strncmp(found, "at ", 3) == 0, "case %zu, %zu bytes: %s", i, cut, found);
        }
}

Test(unpickle, no_other_opcode_is_known)
{
    static const char known[] = "N\x88\x89JKM\x8a\x8bIGX\x8c\x8d"
                                "BTCU(}])dlt\x85\x86\x87"
                                "aesu012\x80\x95.qr\x94hj",
                      calls[] = "c\x93Rbio\x81\x92\x82\x83\x84PQ";
    for (int opcode = 0; opcode < 256; opcode++) {
        char byte = (char)opcode;
        bool is_known = opcode && strchr(known, opcode), is_call = opcode && strchr(calls, opcode);
        const char *found = shown(&byte, 1);
        cr_expect_eq(strcmp(found, "at 0: an opcode that no snapshot has") == 0, !is_known && !is_call, "%d: %s",
                     opcode, found);
        cr_expect_eq(
            strcmp(found, "at 0: it names classes or functions, which a snapshot never does; nothing was executed") ==
                0,
            is_call, "%d: %s", opcode, found);
    }
}

/* ---- growth ------------------------------------------------------------------------------------------------------ */

static size_t put_number(uint8_t *at, unsigned number)
{
    at[0] = 'M', at[1] = (uint8_t)number, at[2] = (uint8_t)(number >> 8);
    return 3;
}

static void expect_numbers(const void *data, size_t bytes, unsigned count)
{
    static struct shown to;
    char number[32];
    to.used = 0;
    show_text(&to, "[", 1);
    for (unsigned i = 0; i < count; i++) {
        snprintf(number, sizeof(number), "%s%u", i ? "," : "", i);
        show_text(&to, number, strlen(number));
    }
    show_text(&to, "]", 1);
    cr_expect_str_eq(shown(data, bytes), to.text, "%u", count);
}

/* A list that gets `first` values at once, then `then` ones, then one more. */
Test(unpickle, containers_grow_in_every_step)
{
    static uint8_t data[4096];
    for (unsigned first = 0; first < 40; first++)
        for (unsigned then = 0; then < 40; then++) {
            size_t put = 0;
            unsigned count = 0;
            data[put++] = ']', data[put++] = '(';
            while (count < first)
                put += put_number(data + put, count++);
            data[put++] = 'e', data[put++] = '(';
            while (count < first + then)
                put += put_number(data + put, count++);
            data[put++] = 'e';
            put += put_number(data + put, count++);
            data[put++] = 'a', data[put++] = '.';
            expect_numbers(data, put, count);
        }
}

Test(unpickle, the_stack_and_the_memo_grow)
{
    static uint8_t data[65536];
    for (unsigned count = 0; count < 6000; count += 1 + count / 3) {
        size_t put = 0;
        data[put++] = '(';
        for (unsigned i = 0; i < count; i++) {
            put += put_number(data + put, i);
            data[put++] = 0x94;
        }
        data[put++] = 't', data[put++] = '.';
        expect_numbers(data, put, count);
        data[--put] = '0'; /* all of them again, from the memo */
        data[++put] = '(';
        for (unsigned i = 0; i < count; i++, put += 5) {
            const uint8_t get[] = {'j', (uint8_t)i, (uint8_t)(i >> 8), 0, 0};
            cr_assert_lt(put + 8, sizeof(data));
            memcpy(data + put + 1, get, sizeof(get));
        }
        memcpy(data + put + 1, "t.", 2);
        expect_numbers(data, put + 3, count);
    }
}

/* Not a byte of a text is looked at. */
Test(unpickle, texts_of_four_gigabytes)
{
    for (uint64_t more = 0; more < 2; more++) {
        uint64_t length = UINT32_MAX + more, bytes = length + 10;
        struct gp_pickle_file file;
        uint8_t *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (data == MAP_FAILED)
            cr_skip("no address space");
        data[0] = 0x8d;
        memcpy(data + 1, &length, sizeof(length));
        data[bytes - 1] = '.';
        cr_expect_eq(gp_pickle_read(&file, data, bytes), more ? -E2BIG : 0);
        cr_expect(more || (file.root.type == GP_PICKLE_TEXT && file.root.length == UINT32_MAX));
        gp_pickle_free(&file);
        munmap(data, bytes);
    }
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static int read_once(void *arg)
{
    static uint8_t data[1024];
    struct gp_pickle_file file;
    size_t put = 0;
    (void)arg;
    memcpy(data, "}(X\1\0\0\0a](", 10), put = 10;
    for (unsigned i = 0; i < 40; i++) {
        put += put_number(data + put, i);
        data[put++] = 0x94;
    }
    memcpy(data + put, "eX\1\0\0\0b)u.", 10), put += 10;
    int rc = gp_pickle_read(&file, data, put);
    if (!rc && gp_pickle_count(gp_pickle_get(&file.root, "a")) != 40)
        rc = -1;
    gp_pickle_free(&file);
    return rc;
}

Test(unpickle, lack_of_memory_is_said)
{
    if (!MEMORY_IS_COUNTED)
        cr_skip("a sanitizer's allocator");
    struct memory_tried tried = memory_each(read_once, NULL);
    cr_expect(tried.calls > 8 && tried.calls < 30, "%u", tried.calls);
    cr_expect_eq(tried.none, 0, "%u", tried.none);
    cr_expect_eq(tried.wrong, 0);
    cr_expect_eq(tried.kept, 0);
}

/* ---- reading the values ------------------------------------------------------------------------------------------ */

Test(unpickle, values_of_another_type_are_none)
{
    struct gp_pickle_file file;
    /* {'a': 7, 'b': true, 'ab': [1, 2], 7: 'a', 'c': 'a'} */
    static const char data[] = "}(X\1\0\0\0aK\7X\1\0\0\0b\x88X\2\0\0\0abK\1K\2\x86K\7X\1\0\0\0aX\1\0\0\0cX\1\0\0\0au.";
    cr_assert_eq(gp_pickle_read(&file, (const uint8_t *)data, sizeof(data) - 1), 0);
    const struct gp_pickle *root = &file.root, *list = gp_pickle_get(root, "ab"), *text = gp_pickle_get(root, "c");
    cr_expect_eq(gp_pickle_number(gp_pickle_get(root, "a"), 9), 7);
    cr_expect_eq(gp_pickle_number(gp_pickle_get(root, "b"), 9), 1);
    cr_expect_eq(gp_pickle_number(list, 9), 9);
    cr_expect_eq(gp_pickle_number(text, 9), 9);
    cr_expect_eq(gp_pickle_number(NULL, 9), 9);
    cr_expect(!gp_pickle_get(root, "d") && !gp_pickle_get(root, "") && !gp_pickle_get(list, "a") &&
              !gp_pickle_get(NULL, "a"));
    cr_expect(gp_pickle_is(text, "a") && !gp_pickle_is(text, "b") && !gp_pickle_is(text, "ab") &&
              !gp_pickle_is(text, ""));
    cr_expect(!gp_pickle_is(list, "a") && !gp_pickle_is(NULL, "a"));
    cr_expect(gp_pickle_count(list) == 2 && gp_pickle_count(root) == 0 && gp_pickle_count(NULL) == 0);
    cr_expect(gp_pickle_number(gp_pickle_at(list, 0), 9) == 1 && gp_pickle_number(gp_pickle_at(list, 1), 9) == 2);
    cr_expect(!gp_pickle_at(list, 2) && !gp_pickle_at(root, 0) && !gp_pickle_at(NULL, 0));
    gp_pickle_free(&file);
}
