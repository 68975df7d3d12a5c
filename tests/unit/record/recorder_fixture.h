/* SPDX-License-Identifier: MIT
 *
 * recorder_fixture.h: for the tests of the recorder: a clock that the test sets, writes and mappings that fail, a file and
 * what it has.
 */
#ifndef GP_TEST_UNIT_RECORDER_FIXTURE_H
#define GP_TEST_UNIT_RECORDER_FIXTURE_H

#include "record/recorder.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <lib/mappings.h>
#include <lib/recdump.h>
#include <lib/recimage.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MS        1000000ull
#define SECOND    (1000 * MS)
#define WALL      (1700000000 * SECOND + 123456789)
#define TEST_WALL WALL
#include "lib/testclock.h"

/* ---- the clock, and calls that fail ------------------------------------------------------------------------------ */

static unsigned test_write_fails; /* the number of the write that fails; 0: none */
static int test_write_error;
static unsigned test_writes;

STANDIN(ssize_t, write, int fd, const void *bytes, size_t count)
{
    test_writes++;
    if (test_write_fails && --test_write_fails == 0) {
        errno = test_write_error;
        return -1;
    }
    return __real_write(fd, bytes, count);
}

static char test_path[64];

static inline int test_file(void)
{
    snprintf(test_path, sizeof(test_path), "%s/gpuprof-test-recorder-XXXXXX", recimage_folder());
    int fd = mkstemp(test_path);
    cr_assert_geq(fd, 0);
    return fd;
}

static inline struct gp_recorder *test_begin(const struct gp_recorder_setup *setup)
{
    struct gp_recorder *r = NULL;
    cr_assert_eq(gp_recorder_new(&r, test_file(), setup), 0);
    return r;
}

/* Three seconds after the session's start, with nothing but what is in the session. */
static inline struct gp_recorder *test_started(void)
{
    struct gp_recorder_setup setup = recimage_setup();
    test_now = 8 * SECOND;
    return test_begin(&setup);
}

static inline struct gp_recorder_stats test_end(struct gp_recorder *r, enum gp_format_why why)
{
    struct gp_recorder_stats stats;
    cr_assert_eq(gp_recorder_end(r, why, &stats), 0);
    return stats;
}

/* The text is that of the file's blocks with these names; the file goes away. */
#define EXPECT(_word, _text)                                                                                           \
    do {                                                                                                               \
        char *is_ = recdump_of(test_path, _word);                                                                      \
        cr_expect_str_eq(is_, _text, "%s", is_);                                                                       \
        free(is_);                                                                                                     \
    } while (0)

static inline void test_done(void)
{
    char *all = recdump(test_path);
    cr_expect_null(strstr(all, " bad") ? all : strstr(all, "bad ") == all ? all : NULL, "%s", all);
    free(all);
    unlink(test_path);
    recimage_end();
    test_now = 0;
}

#endif
