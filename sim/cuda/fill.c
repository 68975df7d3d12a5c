/* SPDX-License-Identifier: MIT
 * fill=random: what a program reads back of results (contents=none, so they are nothing but zeros) are values that it
 * could have computed, so that one goes on that divides by a count, samples from probabilities or checks that a result
 * is finite.  Bytes that are not zero stay: the host, or another process, has written them.  Values are equal until
 * the next launch.
 *
 * The driver does not know types.  Who does (PyTorch, sim/python) says what the thread's next copies are;
 * without that a value is a whole number, which is small in every type: as a count that asks for memory, a fraction's
 * bits would be a billion.  A lone truth value follows from the kernel that was last given its address, where the
 * name of PyTorch's kernel says how such a test ends well: all() true, any() and isnan() false. */
#include "contents.h"
#include "machine.h"

#include <string.h>

#define SIM_FILL_MOST  (16 * SIM_MIB) /* a larger read is a checkpoint */
#define SIM_FILL_COUNT 7u             /* whole numbers are 1 .. 7: 0 divides nothing, and more would not be an index */
#define SIM_FILL_ALONE 4u /* as many that a mask finds: x[mask] = y[mask] counts twice, and wants both to be equal */
#define SIM_VERDICTS   4096u

SIM_EXPORT int sim_fill_as(int type);

/* The kernels' last word on an address; a later one of the same slot replaces it. */
static struct {
    CUdeviceptr at;
    enum sim_verdict verdict;
} sim_verdicts[SIM_VERDICTS];
static enum sim_verdict sim_verdict_now; /* of the launch whose parameters are being looked at */
static uint64_t sim_launches;

static uint64_t sim_fill_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static size_t sim_verdict_slot(CUdeviceptr p)
{
    return sim_fill_mix(p) % SIM_VERDICTS;
}

int sim_fill_as(int type)
{
    int before = sim_self.fill;
    sim_self.fill = type;
    return before;
}

void sim_fill_launch(struct sim_function *f)
{
    static const struct {
        const char *part;
        enum sim_verdict verdict;
    } names[] = {{"15and_kernel_cuda", SIM_VERDICT_TRUE},
                 {"10MulFunctorIb", SIM_VERDICT_TRUE}, /* isfinite() of one number */
                 {"23logical_and_kernel_cuda", SIM_VERDICT_TRUE},
                 {"14or_kernel_cuda", SIM_VERDICT_FALSE},
                 {"22logical_or_kernel_cuda", SIM_VERDICT_FALSE},
                 {"16CompareEqFunctor", SIM_VERDICT_FALSE}}; /* isnan() of one number, and == */
    sim_launches++;
    sim_verdict_now = SIM_VERDICT_OPEN;
    if (!f)
        return;
    if (f->verdict == SIM_VERDICT_UNKNOWN) {
        f->verdict = SIM_VERDICT_OPEN;
        for (size_t i = 0; i < sizeof names / sizeof names[0] && f->verdict == SIM_VERDICT_OPEN; i++)
            if (f->name && strstr(f->name, names[i].part))
                f->verdict = names[i].verdict;
    }
    sim_verdict_now = f->verdict;
}

void sim_fill_given(CUdeviceptr p)
{
    size_t slot = sim_verdict_slot(p);
    if (sim_verdict_now != SIM_VERDICT_OPEN || sim_verdicts[slot].at == p) {
        sim_verdicts[slot].at = p;
        sim_verdicts[slot].verdict = sim_verdict_now;
    }
}

static uint64_t sim_fill_truth(CUdeviceptr p, uint64_t random, bool alone)
{
    size_t slot = sim_verdict_slot(p);
    if (alone && sim_verdicts[slot].at == p && sim_verdicts[slot].verdict > SIM_VERDICT_OPEN)
        return sim_verdicts[slot].verdict == SIM_VERDICT_TRUE;
    return random & 1;
}

/* Bytes of a value; of one whose type is not known those of the read, or a word. */
static size_t sim_fill_width(int type, size_t read)
{
    switch (type) {
    case SIM_FILL_BOOL:
    case SIM_FILL_INT8:
        return 1;
    case SIM_FILL_INT16:
    case SIM_FILL_HALF:
    case SIM_FILL_BFLOAT:
        return 2;
    case SIM_FILL_INT32:
    case SIM_FILL_FLOAT:
        return 4;
    case SIM_FILL_ANY:
        return read == 1 || read == 2 || read == 4 ? read : 8;
    default:
        return 8;
    }
}

/* The bits of a value: fractions lie between 0 and 1, and are neither. */
static uint64_t sim_fill_value(CUdeviceptr p, int type, size_t read, size_t width)
{
    uint64_t random = sim_fill_mix(p ^ sim_fill_mix(sim_launches)), bits = 0;
    float fraction = (float)(random % 1023 + 1) / 1024;
    double fine = (double)((random >> 11) | 1) / 9007199254740992.0;
    if (type == SIM_FILL_DOUBLE) {
        memcpy(&bits, &fine, sizeof fine);
    } else if (type == SIM_FILL_FLOAT || type == SIM_FILL_BFLOAT || type == SIM_FILL_HALF) {
        fraction = type == SIM_FILL_FLOAT ? (float)(random % 16777215 + 1) / 16777216 : fraction;
        memcpy(&bits, &fraction, sizeof fraction);
        if (type == SIM_FILL_BFLOAT)
            bits >>= 16;
        else if (type == SIM_FILL_HALF) /* at least 2^-10, so it is no denormal */
            bits = ((bits >> 23) - 127 + 15) << 10 | (bits >> 13 & 0x3ff);
    } else if (type == SIM_FILL_BOOL || (type == SIM_FILL_ANY && width == 1)) {
        bits = sim_fill_truth(p, random, read == 1);
    } else if (type == SIM_FILL_ANY && read > 8) {
        bits = random & 1; /* a list of truth values, or of whole numbers of any size */
    } else if (type == SIM_FILL_ANY && read == width) {
        bits = SIM_FILL_ALONE;
    } else {
        bits = random % SIM_FILL_COUNT + 1;
    }
    return bits;
}

void sim_fill_bytes(char *to, CUdeviceptr from, size_t size, int type, size_t read)
{
    static const char zeros[8];
    const size_t width = sim_fill_width(type, read);
    if (type == SIM_FILL_ZEROS || read > SIM_FILL_MOST)
        return;
    for (size_t at = (width - from % width) % width; at + width <= size; at += width) {
        uint64_t bits = sim_fill_value(from + at, type, read, width);
        if (!memcmp(to + at, zeros, width))
            memcpy(to + at, &bits, width);
    }
}
