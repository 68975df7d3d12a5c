/* SPDX-License-Identifier: MIT
 *
 * standin.h: a test's stand-in for a function of the product, or of libc as the product calls it:
 *
 *     STANDIN(int, gp_worker_start, void *(*main)(void *), const char *name)
 *     {
 *         ...
 *
 * The linker leads every call from another file to it (--wrap, tests.mk), wherever the function is defined.  A call from
 * the function's own file stays one, and so does one of a libc function that core/base/glibc.h gives an old version.
 * __real_NAME is the function itself.
 */
#ifndef GP_TEST_LIB_STANDIN_H
#define GP_TEST_LIB_STANDIN_H

#define STANDIN(_result, _name, ...)                                                                                   \
    extern __typeof__(_name) __wrap_##_name, __real_##_name;                                                           \
    _result __wrap_##_name(__VA_ARGS__)

/* One that does nothing, and one that only gives an answer. */
#define STANDIN_IDLE(_name, ...)                  STANDIN_PLAIN(void, _name, , __VA_ARGS__)
#define STANDIN_SAYS(_result, _name, _value, ...) STANDIN_PLAIN(_result, _name, return _value, __VA_ARGS__)
#define STANDIN_PLAIN(_result, _name, _does, ...)                                                                      \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wunused-parameter\"")                            \
        STANDIN(_result, _name, __VA_ARGS__)                                                                           \
    {                                                                                                                  \
        _does;                                                                                                         \
    }                                                                                                                  \
    _Pragma("GCC diagnostic pop") extern __typeof__(_name) __wrap_##_name

#endif
