/* SPDX-License-Identifier: MIT
 * crc.c: CRC-32C, eight bytes per step; see crc.h. */
#include "record/crc.h"
#include <string.h>

/* Entry i of table k is the checksum of the byte i followed by k zeros. The checksum is linear, so
 * all entries follow from the eight single-bit entries: the compiler computes the tables, and
 * nothing is done at start. */
#define BIT(_i, _n, _v) (((_i) >> (_n)&1u) * (_v))
#define ENTRY(_i, a, b, c, d, e, f, g, h)                                                                              \
    (BIT(_i, 0, a) ^ BIT(_i, 1, b) ^ BIT(_i, 2, c) ^ BIT(_i, 3, d) ^ BIT(_i, 4, e) ^ BIT(_i, 5, f) ^ BIT(_i, 6, g) ^   \
     BIT(_i, 7, h))
#define FOUR(_i, ...)                                                                                                  \
    ENTRY(_i, __VA_ARGS__), ENTRY((_i) + 1, __VA_ARGS__), ENTRY((_i) + 2, __VA_ARGS__), ENTRY((_i) + 3, __VA_ARGS__)
#define SIXTEEN(_i, ...)                                                                                               \
    FOUR(_i, __VA_ARGS__), FOUR((_i) + 4, __VA_ARGS__), FOUR((_i) + 8, __VA_ARGS__), FOUR((_i) + 12, __VA_ARGS__)
#define QUARTER(_i, ...)                                                                                               \
    SIXTEEN(_i, __VA_ARGS__), SIXTEEN((_i) + 16, __VA_ARGS__), SIXTEEN((_i) + 32, __VA_ARGS__),                        \
        SIXTEEN((_i) + 48, __VA_ARGS__)
#define ROW(...)                                                                                                       \
    {                                                                                                                  \
        QUARTER(0u, __VA_ARGS__), QUARTER(64u, __VA_ARGS__), QUARTER(128u, __VA_ARGS__), QUARTER(192u, __VA_ARGS__)    \
    }

static const uint32_t crc_table[8][256] = {
    ROW(0xf26b8303, 0xe13b70f7, 0xc79a971f, 0x8ad958cf, 0x105ec76f, 0x20bd8ede, 0x417b1dbc, 0x82f63b78),
    ROW(0x13a29877, 0x274530ee, 0x4e8a61dc, 0x9d14c3b8, 0x3fc5f181, 0x7f8be302, 0xff17c604, 0xfbc3faf9),
    ROW(0xa541927e, 0x4f6f520d, 0x9edea41a, 0x38513ec5, 0x70a27d8a, 0xe144fb14, 0xc76580d9, 0x8b277743),
    ROW(0xdd45aab8, 0xbf672381, 0x7b2231f3, 0xf64463e6, 0xe964b13d, 0xd725148b, 0xaba65fe7, 0x52a0c93f),
    ROW(0x38116fac, 0x7022df58, 0xe045beb0, 0xc5670b91, 0x8f2261d3, 0x1ba8b557, 0x37516aae, 0x6ea2d55c),
    ROW(0xef306b19, 0xdb8ca0c3, 0xb2f53777, 0x6006181f, 0xc00c303e, 0x85f4168d, 0x0e045beb, 0x1c08b7d6),
    ROW(0x68032cc8, 0xd0065990, 0xa5e0c5d1, 0x4e2dfd53, 0x9c5bfaa6, 0x3d5b83bd, 0x7ab7077a, 0xf56e0ef4),
    ROW(0x493c7d27, 0x9278fa4e, 0x211d826d, 0x423b04da, 0x847609b4, 0x0d006599, 0x1a00cb32, 0x34019664),
};

uint32_t gp_crc32c(uint32_t before, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint32_t crc = ~before;
    for (; count >= 8; count -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof(word));
        word ^= crc;
        crc = crc_table[7][word & 255] ^ crc_table[6][word >> 8 & 255] ^ crc_table[5][word >> 16 & 255] ^
              crc_table[4][word >> 24 & 255] ^ crc_table[3][word >> 32 & 255] ^ crc_table[2][word >> 40 & 255] ^
              crc_table[1][word >> 48 & 255] ^ crc_table[0][word >> 56];
    }
    for (; count; count--, at++)
        crc = crc >> 8 ^ crc_table[0][(crc ^ *at) & 255];
    return ~crc;
}
