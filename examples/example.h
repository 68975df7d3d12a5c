/* SPDX-License-Identifier: MIT
 * Code shared by the example programs: arguments, time, a repeatable random sequence, checks.  It
 * does not concern profiling: the examples are ordinary CUDA programs and compile unchanged with
 * NVIDIA's toolkit. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Run for `steps` (0: no limit) or `seconds`, with `pace` milliseconds between steps. */
struct example_limits {
    long steps;
    double seconds;
    long pace;
    double started;
};

static inline double example_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline double example_number(const char *name, int *index, int count, char **arguments)
{
    char *end = NULL;
    double value = *index + 1 < count ? strtod(arguments[*index + 1], &end) : 0;

    if (!end || *end || end == arguments[*index + 1] || value < 0) {
        fprintf(stderr, "%s: %s needs a number of at least 0\n", arguments[0], name);
        exit(2);
    }
    ++*index;
    return value;
}

/* --steps without --seconds removes the time limit, so that a run is the same on a slow machine. */
static inline struct example_limits example_arguments(int count, char **arguments, double seconds, long pace)
{
    struct example_limits limits = {.seconds = seconds, .pace = pace};
    int timed = 0;

    for (int i = 1; i < count; i++) {
        if (!strcmp(arguments[i], "--steps")) {
            limits.steps = (long)example_number("--steps", &i, count, arguments);
        } else if (!strcmp(arguments[i], "--seconds")) {
            limits.seconds = example_number("--seconds", &i, count, arguments);
            timed = 1;
        } else if (!strcmp(arguments[i], "--pace")) {
            limits.pace = (long)example_number("--pace", &i, count, arguments);
        } else {
            fprintf(stderr, "usage: %s [--steps N] [--seconds S] [--pace MILLISECONDS]\n", arguments[0]);
            exit(2);
        }
    }
    if (limits.steps && !timed)
        limits.seconds = 1e9;
    limits.started = example_now();
    return limits;
}

static inline int example_goes_on(const struct example_limits *limits, long step)
{
    return (!limits->steps || step < limits->steps) && example_now() - limits->started < limits->seconds;
}

static inline void example_pause(const struct example_limits *limits)
{
    struct timespec pause = {limits->pace / 1000, limits->pace % 1000 * 1000000};

    nanosleep(&pause, NULL);
}

/* The same in every run: 32 bits of a linear congruential generator (Knuth's MMIX constants). */
static inline uint32_t example_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

static inline void example_fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why ? why : "unknown error");
    exit(1);
}

/* For the runtime API and for the driver API. */
#define CHECK_RT(call)                                                                                                 \
    do {                                                                                                               \
        cudaError_t check_error = (call);                                                                              \
        if (check_error != cudaSuccess)                                                                                \
            example_fail(#call, cudaGetErrorString(check_error));                                                      \
    } while (0)
#define CHECK_CU(call)                                                                                                 \
    do {                                                                                                               \
        CUresult check_result = (call);                                                                                \
        const char *check_text = NULL;                                                                                 \
        if (check_result != CUDA_SUCCESS) {                                                                            \
            cuGetErrorString(check_result, &check_text);                                                               \
            example_fail(#call, check_text);                                                                           \
        }                                                                                                              \
    } while (0)

#endif
