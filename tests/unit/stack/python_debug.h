/* SPDX-License-Identifier: MIT
 *
 * python_debug.h: the offsets for debuggers that Python 3.13 and 3.14 describe their structures with.
 */
#ifndef GP_TEST_PYTHON_DEBUG_H
#define GP_TEST_PYTHON_DEBUG_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The offsets in the headers of 3.13.0 and 3.14.10, in the order of _Py_DebugOffsets. */
static inline void debug_fill(uint64_t *words, unsigned minor)
{
    static const uint64_t state[] = {2000, 0, 8, 16, 72, 152, 160, 200, 40}, type[] = {416, 24, 88, 168},
                          tuple[] = {32, 24, 16}, list[] = {40, 24, 16}, set[] = {200, 24, 40, 32},
                          dict[] = {48, 32, 40}, number[] = {24, 16, 32, 16, 24}, bytes[] = {40, 16, 32},
                          text[] = {64, 32, 16, 40};
    bool is_14 = minor == 14;
    memset(words, 0, 96 * sizeof *words);
    memcpy(words, "xdebugpy", 8);
    words[1] = (3ull << 24) + ((uint64_t)minor << 16) + 0xf0;
    uint64_t *at = words + 6 + (is_14 ? 16 : 13);
    memcpy(at, state, sizeof state), at += 9;
    uint64_t frame[] = {is_14 ? 88 : 80, 8, 0, 56, is_14 ? 80 : 72, is_14 ? 74 : 70, 64, 0};
    memcpy(at, frame, sizeof frame), at += is_14 ? 8 : 6;
    uint64_t code[] = {is_14 ? 216 : 208, 112, 120, 128, 136, 68, 48, 96, 104, is_14 ? 208 : 200, 0};
    memcpy(at, code, sizeof code), at += is_14 ? 11 : 10;
    *at++ = 16, *at++ = 8;
    memcpy(at, type, sizeof type), at += 4;
    memcpy(at, tuple, sizeof tuple), at += 3;
    memcpy(at, list, sizeof list), at += 3;
    if (is_14)
        memcpy(at, set, sizeof set), at += 4;
    memcpy(at, dict, sizeof dict), at += 3;
    memcpy(at, number, sizeof number), at += 5;
    memcpy(at, bytes, sizeof bytes), at += 3;
    memcpy(at, text, sizeof text);
}

#endif
