/* SPDX-License-Identifier: MIT
 *
 * test_pep768.c: where a Python 3.14 looks for requests, in an interpreter that is made up in this
 * process's memory, and what is refused.
 */
#include <attach/pep768.h>
#include <base/compiler.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { MAIN = 4711, PATH_BYTES = 128, THREAD_BYTES = 512, INTERPRETER_BYTES = 256 };

/* _PyRuntime, an interpreter of the program's, and the first one with its main thread. */
struct made {
    uint64_t words[95], finalizing, head;
    struct {
        uint64_t id, next, main, enabled;
    } other, first;
    struct {
        uint64_t interpreter, native, breaker, unused;
        uint32_t pending;
        char path[PATH_BYTES];
        char rest[THREAD_BYTES - 4 * 8 - 4 - PATH_BYTES];
    } thread;
};

static uint64_t made_at(const void *place)
{
    return (uint64_t)(uintptr_t)place;
}

static void made_up(struct made *made)
{
    memset(made, 0, sizeof(*made));
    uint64_t *words = made->words;
    memcpy(words, "xdebugpy", 8);
    words[1] = 0x030e0af0;
    words[4] = offsetof(struct made, finalizing);
    words[5] = offsetof(struct made, head);
    words[6] = INTERPRETER_BYTES;
    words[7] = 0;
    words[8] = 8;
    words[10] = 16;
    words[22] = THREAD_BYTES;
    words[25] = 0;
    words[28] = 8;
    words[89] = 16;
    words[90] = 32;
    words[91] = 24;
    words[92] = 0;
    words[93] = 4;
    words[94] = PATH_BYTES;
    made->head = made_at(&made->other);
    made->other.id = 3;
    made->other.next = made_at(&made->first);
    made->first.main = made_at(&made->thread);
    made->first.enabled = 1;
    made->thread.interpreter = made_at(&made->first);
    made->thread.native = MAIN;
    made->thread.breaker = 0x123402;
}

static int find(const struct made *made, struct gp_pep768 *place)
{
    return gp_pep768_find(getpid(), made_at(made), MAIN, place);
}

Test(pep768, writes_a_request)
{
    struct made made;
    struct gp_pep768 place;
    made_up(&made);
    cr_assert_eq(find(&made, &place), 0, "%s", place.why);
    cr_expect_eq(place.pending, made_at(&made.thread.pending));
    cr_expect_eq(place.path, made_at(made.thread.path));
    cr_expect_eq(place.path_bytes, (size_t)PATH_BYTES);
    cr_assert_eq(gp_pep768_request(getpid(), &place, "/tmp/x.py"), 0);
    cr_expect_str_eq(made.thread.path, "/tmp/x.py");
    cr_expect_eq(made.thread.pending, 1u);
    cr_expect_eq(made.thread.breaker, 0x123422ull, "%llx", (unsigned long long)made.thread.breaker);
    cr_expect_eq(find(&made, &place), -EBUSY, "a second request");
}

Test(pep768, refuses_a_long_path)
{
    struct made made;
    struct gp_pep768 place;
    char path[PATH_BYTES + 1];
    made_up(&made);
    memset(path, 'x', PATH_BYTES);
    path[PATH_BYTES] = '\0';
    cr_assert_eq(find(&made, &place), 0);
    cr_expect_eq(gp_pep768_request(getpid(), &place, path), -ENAMETOOLONG);
    cr_expect_eq(made.thread.pending, 0u);
}

static void refused(struct made *made, int error, const char *why)
{
    struct gp_pep768 place;
    cr_expect_eq(find(made, &place), error, "%s", why);
    cr_expect_not_null(strstr(place.why, why), "'%s' instead of '%s'", place.why, why);
    made_up(made);
}

Test(pep768, says_why_not)
{
    struct made made;
    made_up(&made);
    made.first.enabled = 0;
    refused(&made, -EACCES, "disabled");
    made.words[1] = 0x030f00a7;
    refused(&made, -ENOTSUP, "Python 3.15");
    made.words[2] = 1;
    refused(&made, -ENOTSUP, "without the GIL");
    made.finalizing = 1;
    refused(&made, -ESRCH, "is ending");
    made.thread.native = MAIN + 1;
    refused(&made, -ESRCH, "main thread's state");
    made.thread.interpreter = made_at(&made.other);
    refused(&made, -ESRCH, "main thread's state");
    made.first.main = 0;
    refused(&made, -ESRCH, "main thread's state");
    made.first.main = 8;
    refused(&made, -EFAULT, "main thread's state");
    made.head = 0;
    refused(&made, -ESRCH, "main thread's state");
    made.other.next = made_at(&made.other); /* a ring */
    refused(&made, -ESRCH, "main thread's state");
}

/* Each offset that lies outside of its structure, or whose sum overflows, is refused. */
Test(pep768, refuses_offsets_that_make_no_sense)
{
    static const int words[] = {4, 5, 6, 7, 8, 10, 22, 25, 28, 89, 90, 91, 92, 93, 94};
    struct made made;
    made_up(&made);
    for (size_t i = 0; i < GP_COUNT(words); i++) {
        made.words[words[i]] = UINT64_MAX;
        refused(&made, -EPROTO, "make no sense");
        made.words[words[i]] = UINT64_MAX - 7;
        refused(&made, -EPROTO, "make no sense");
    }
}

Test(pep768, is_silent_about_older_ones)
{
    struct made made;
    struct gp_pep768 place;
    made_up(&made);
    made.words[1] = 0x030d00f0;
    cr_expect_eq(find(&made, &place), -ENOENT);
    cr_expect_str_empty(place.why);
    made.words[0] = 0;
    cr_expect_eq(find(&made, &place), -ENOENT);
    cr_expect_str_empty(place.why);
}
