/* SPDX-License-Identifier: MIT
 *
 * mix.h: hashes for tables in memory. Equal hashes do not prove equality: callers must compare the
 * hashed values too.
 */
#ifndef GP_STACK_MIX_H
#define GP_STACK_MIX_H

#include <stdint.h>
#include <string.h>

/* Combines both halves of a product, so that every bit of a and b affects the result. */
static inline uint64_t gp_mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)(a ^ 0x9e3779b97f4a7c15ull) * (b ^ 0xbf58476d1ce4e5b9ull);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t gp_mix_more(uint64_t hash, uint64_t word)
{
    return (hash << 9 | hash >> 55) ^ gp_mix(word, 0x94d049bb133111ebull);
}

static inline uint64_t gp_mix_bytes(const void *bytes, uint64_t n)
{
    const char *at = bytes;
    uint64_t hash = n, word;
    for (; n >= 8; n -= 8, at += 8) {
        memcpy(&word, at, 8);
        hash = gp_mix(hash, word);
    }
    word = 0;
    memcpy(&word, at, n);
    return gp_mix(hash, word);
}

#endif
