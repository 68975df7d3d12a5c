/* SPDX-License-Identifier: MIT
 *
 * pattern.h: a block filled with a number of its own and read back, for the programs that check the
 * owner of memory. Included after cuda.h and finish.h.  Reads device memory only by copies.
 */
#ifndef GP_TEST_PROGRAMS_PATTERN_H
#define GP_TEST_PROGRAMS_PATTERN_H

/* Numerical Recipes' generator: good enough to choose by its high bits. */
static PROGRAM_UNUSED unsigned random_next(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Words of `value`, then single bytes of its lowest. */
static PROGRAM_UNUSED void pattern_fill(CUdeviceptr at, size_t bytes, unsigned value, CUstream stream)
{
    if (bytes >= 4)
        CHECK(cuMemsetD32Async(at, value, bytes / 4, stream));
    if (bytes % 4 != 0)
        CHECK(cuMemsetD8Async(at + bytes / 4 * 4, (unsigned char)value, bytes % 4, stream));
}

/* Bytes that differ; the stream that filled them is waited for first. */
static PROGRAM_UNUSED size_t pattern_wrong(CUdeviceptr at, size_t bytes, unsigned value, CUstream stream)
{
    static __thread unsigned char chunk[256 * 1024]; /* small enough for the processor's cache */
    static __thread unsigned wanted[sizeof(chunk) / 4];
    size_t wrong = 0, words = bytes / 4 * 4, done, part, i;
    for (i = 0; i < sizeof(wanted) / 4 && i < bytes / 4; i++)
        wanted[i] = value;
    CHECK(cuStreamSynchronize(stream));
    for (done = 0; done < bytes; done += part) {
        part = bytes - done < sizeof(chunk) ? bytes - done : sizeof(chunk);
        if (CHECK(cuMemcpyDtoH(chunk, at + done, part)) != 0)
            return bytes;
        /* Bytes are counted one by one only where something differs, and after the last whole word. */
        i = done + part < words ? part : words - done;
        for (i = memcmp(chunk, wanted, i) == 0 ? i : 0; i < part; i++) {
            size_t place = done + i;
            unsigned shift = place / 4 * 4 + 4 <= bytes ? place % 4 * 8 : 0;
            wrong += chunk[i] != (unsigned char)(value >> shift);
        }
    }
    return wrong;
}

#endif
