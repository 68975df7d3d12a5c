/* SPDX-License-Identifier: MIT
 *
 * compiler.h: the few compiler attributes that the project uses.
 */
#ifndef GP_BASE_COMPILER_H
#define GP_BASE_COMPILER_H

#include <stddef.h>
#include <stdint.h>

/* ==== attributes ================================================================================================== */

#define GP_LIKELY(_x)   __builtin_expect(!!(_x), 1)
#define GP_UNLIKELY(_x) __builtin_expect(!!(_x), 0)
#define GP_COLD         __attribute__((cold, noinline))
#define GP_EXPORT       __attribute__((visibility("default")))
/* Of a variable that is declared in a header: -fvisibility=hidden is for definitions alone, and without it each access
 * loads the address first. */
#define GP_HIDDEN              __attribute__((visibility("hidden")))
#define GP_PRINTF(_fmt, _args) __attribute__((format(printf, _fmt, _args)))

/* On x86-64 the adjacent-line prefetcher fetches pairs of 64-byte lines, so a line that belongs
 * to one thread is padded to two. */
#define GP_LINE         128
#define GP_ALIGNED_LINE __attribute__((aligned(GP_LINE)))

#define GP_COUNT(_array) (sizeof(_array) / sizeof((_array)[0]))

#ifdef NDEBUG
#define GP_ASSERT(_x) ((void)0)
#else
#include <assert.h>
#define GP_ASSERT(_x) assert(_x)
#endif

/* ==== test points ================================================================================================= */
/* Named windows in concurrent code. Without GP_TESTPOINTS they compile to nothing. With it the test
 * supplies gp_testpoint(), which may yield, sleep or stop the thread there. Put one after each
 * observable side effect that another thread can race with. */

#ifdef GP_TESTPOINTS
void gp_testpoint(const char *name);
#define GP_TESTPOINT(_name) gp_testpoint(_name)
#else
#define GP_TESTPOINT(_name) ((void)0)
#endif

#endif
