/* SPDX-License-Identifier: MIT
 * Selftest: fill=random.  What the host has not written reads as values that a program could have computed, each in
 * the type that the thread named, the same until the next launch; what it has written stays. */
#include "core_check.h"
#include "machine.h"

#include <math.h>

#define COUNT 1000

static CUdeviceptr results;

static void copy(void *to, CUdeviceptr from, size_t size, enum sim_fill type)
{
    CHECK(sim_fill_as(type) == SIM_FILL_ANY);
    CHECK_OK(cuMemcpyDtoH(to, from, size));
    CHECK(sim_fill_as(SIM_FILL_ANY) == (int)type);
}

static void fractions(void)
{
    static float floats[COUNT], again[COUNT];
    static double doubles[COUNT];
    static uint16_t halves[COUNT], bfloats[COUNT];
    double sum = 0;
    copy(floats, results, sizeof floats, SIM_FILL_FLOAT);
    copy(again, results, sizeof again, SIM_FILL_FLOAT);
    copy(doubles, results, sizeof doubles, SIM_FILL_DOUBLE);
    copy(halves, results, sizeof halves, SIM_FILL_HALF);
    copy(bfloats, results, sizeof bfloats, SIM_FILL_BFLOAT);
    int good = !memcmp(floats, again, sizeof floats);
    for (int i = 0; i < COUNT; i++) {
        uint32_t bits = (uint32_t)bfloats[i] << 16;
        float bfloat, half = ldexpf((float)(halves[i] & 0x3ff) / 1024 + 1, (halves[i] >> 10) - 15);
        memcpy(&bfloat, &bits, sizeof bfloat);
        good &= floats[i] > 0 && floats[i] < 1 && doubles[i] > 0 && doubles[i] < 1 && half > 0 && half < 1 &&
                bfloat > 0 && bfloat < 1;
        sum += floats[i] + doubles[i] + half + bfloat;
    }
    CHECK(good);
    CHECK(sum > 1.8 * COUNT && sum < 2.2 * COUNT); /* means of a half */
}

static void whole(void)
{
    static int64_t words[COUNT];
    int64_t word = -1;
    int32_t number = -1;
    unsigned char truth[COUNT], alone = 99;
    int least = 99, most = 0, ones = 0, good = 1;
    copy(words, results, sizeof words, SIM_FILL_INT64);
    copy(truth, results, sizeof truth, SIM_FILL_BOOL);
    for (int i = 0; i < COUNT; i++) {
        least = words[i] < least ? (int)words[i] : least;
        most = words[i] > most ? (int)words[i] : most;
        good &= truth[i] <= 1;
        ones += truth[i];
    }
    CHECK(least == 1 && most == 7);
    CHECK(good && ones > COUNT / 3 && ones < COUNT * 2 / 3);
    copy(&word, results, sizeof word, SIM_FILL_ANY);
    copy(&number, results, sizeof number, SIM_FILL_ANY);
    copy(&alone, results, sizeof alone, SIM_FILL_ANY);
    CHECK(word >= 1 && word <= 7 && number == word && alone <= 1);
    copy(words, results, sizeof words, SIM_FILL_ANY); /* in whichever type */
    for (int i = 0; i < COUNT; i++)
        good &= words[i] == 0 || words[i] == 1;
    CHECK(good);
    copy(&word, results, sizeof word, SIM_FILL_ZEROS);
    CHECK(word == 0);
}

static void written(void)
{
    int numbers[4] = {5, 0, -5, 0}, back[6];
    CHECK_OK(cuMemcpyHtoD(results, numbers, sizeof numbers));
    copy(back, results, sizeof back, SIM_FILL_INT32);
    CHECK(!memcmp(back, numbers, sizeof numbers) && back[4] >= 1 && back[5] >= 1);
    CHECK_OK(cuMemsetD8(results, 0, sizeof back));
    copy(back, results, sizeof back, SIM_FILL_INT32);
    CHECK(back[0] == 0 && back[5] == 0);
}

/* Of PyTorch's kernels, by their names. */
static void verdict(CUmodule module, const char *name, int expected)
{
    CUfunction f;
    unsigned char truth = 99;
    int ones = 0;
    void *arguments[] = {&results};
    CHECK_OK(cuModuleGetFunction(&f, module, name));
    for (int i = 0; i < 64; i++) {
        CHECK_OK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL));
        copy(&truth, results, 1, SIM_FILL_BOOL);
        ones += truth;
    }
    CHECK(expected < 0 ? ones > 0 && ones < 64 : ones == 64 * expected);
}

static void launches(void)
{
    static const char image[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                                ".visible .entry _Z15and_kernel_cudav(.param .u64 a) { ret; }\n"
                                ".visible .entry _Z14or_kernel_cudav(.param .u64 a) { ret; }\n"
                                ".visible .entry _Z5otherv(.param .u64 a) { ret; }\n";
    CUmodule module;
    int32_t before = -1, after = -2;
    copy(&before, results, sizeof before, SIM_FILL_ANY);
    CHECK_OK(cuModuleLoadData(&module, image));
    verdict(module, "_Z15and_kernel_cudav", 1);
    verdict(module, "_Z14or_kernel_cudav", 0);
    verdict(module, "_Z5otherv", -1);
    copy(&after, results + 512, sizeof after, SIM_FILL_ANY);
    CHECK(after == before); /* two masks find as many */
}

int main(void)
{
    setenv("GPUPROF_SIM", "memory=1GiB,contents=none,fill=random", 1);
    check_begin(0);
    CHECK_OK(cuMemAlloc(&results, 64 << 20));
    fractions();
    whole();
    launches();
    written();
    return check_done();
}
