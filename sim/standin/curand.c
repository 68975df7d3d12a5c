/* SPDX-License-Identifier: MIT
 * libcurand.so.10.  Numbers are zeros. */
#include "standin.h"

enum { STANDIN_NO_MEMORY = 102, STANDIN_INVALID = 103, STANDIN_NOT_SUPPORTED = 999 };

RULE(none, )
RULE(c1, CREATE(1) standin_assumed("generators: no memory for states");)
RULE(d1, DROP(1))

F(curandCreateGenerator, c1)
F(curandCreateGeneratorHost, c1)
REFUSED(curandCreatePoissonDistribution)
F(curandDestroyDistribution, none)
F(curandDestroyGenerator, d1)
F(curandGenerateSeeds, none)
F(curandSetGeneratorOffset, none)
F(curandSetGeneratorOrdering, none)
F(curandSetPseudoRandomGeneratorSeed, none)
F(curandSetQuasiRandomGeneratorDimensions, none)
F(curandSetStream, none)
REFUSED(curandGetDirectionVectors32)
REFUSED(curandGetDirectionVectors64)
REFUSED(curandGetScrambleConstants32)
REFUSED(curandGetScrambleConstants64)

/* Arguments 2 and 3 are the memory and how many numbers, on the device or on the host. */
#define NUMBERS(_function, _bytes)                                                                                     \
    EXPORT int _function(void *generator, word to, size_t count);                                                      \
    EXPORT int _function(void *generator, word to, size_t count)                                                       \
    {                                                                                                                  \
        (void)generator;                                                                                               \
        standin_written(to, count *_bytes);                                                                            \
        return 0;                                                                                                      \
    }
NUMBERS(curandGenerate, 4)
NUMBERS(curandGenerateLongLong, 8)
NUMBERS(curandGenerateUniform, 4)
NUMBERS(curandGenerateUniformDouble, 8)
NUMBERS(curandGenerateNormal, 4)
NUMBERS(curandGenerateNormalDouble, 8)
NUMBERS(curandGenerateLogNormal, 4)
NUMBERS(curandGenerateLogNormalDouble, 8)
NUMBERS(curandGeneratePoisson, 4)
NUMBERS(curandGeneratePoissonMethod, 4)

static int version(int part)
{
    static const int newest[3] = {10, 3, 10};
    return standin_version(part, newest);
}

EXPORT int curandGetVersion(int *value);
EXPORT int curandGetVersion(int *value)
{
    *value = version(0) * 1000 + version(1) * 100 + version(2);
    return 0;
}

EXPORT int curandGetProperty(int part, int *value);
EXPORT int curandGetProperty(int part, int *value)
{
    return standin_property(part, value, version, STANDIN_INVALID);
}
