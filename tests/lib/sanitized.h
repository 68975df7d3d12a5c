/* SPDX-License-Identifier: MIT
 *
 * sanitized.h: leaves a test program out of the builds with sanitizers.  A test that takes the place of functions which the
 * sanitizers call themselves, from their start on, cannot be in them.
 */
#ifndef GP_TEST_LIB_SANITIZED_H
#define GP_TEST_LIB_SANITIZED_H

#include <criterion/criterion.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GP_TEST_SANITIZED 1
#else
#define GP_TEST_SANITIZED 0
#endif

/* The only test of such a program there: it is reported as skipped. */
#define GP_TEST_UNSANITIZED_ONLY(_suite)                                                                               \
    Test(_suite, not_with_sanitizers)                                                                                  \
    {                                                                                                                  \
        cr_skip("it takes the place of functions that the sanitizers call");                                           \
    }

#endif
