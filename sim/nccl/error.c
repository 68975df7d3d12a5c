/* SPDX-License-Identifier: MIT
 * What failed last, as programs ask for it. */
#define _GNU_SOURCE
#include "nccl.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static __thread char error_text[512];

enum nccl_result nccl_error(enum nccl_result result, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(error_text, sizeof error_text, format, list);
    va_end(list);
    const char *debug = secure_getenv("NCCL_DEBUG");
    if (debug && *debug)
        fprintf(stderr, "gpuprof: sim: NCCL: %s\n", error_text);
    return result;
}

/* Work fails on the simulator's thread; programs ask on theirs. */
static char error_failure[512];
static pthread_mutex_t error_lock = PTHREAD_MUTEX_INITIALIZER;

NCCL_API(const char *, ncclGetLastError, struct nccl_comm *comm)
{
    (void)comm;
    pthread_mutex_lock(&error_lock);
    if (*error_failure)
        snprintf(error_text, sizeof error_text, "%s", error_failure);
    pthread_mutex_unlock(&error_lock);
    return error_text;
}

NCCL_API(const char *, ncclGetErrorString, enum nccl_result result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return (unsigned)result < sizeof texts / sizeof *texts ? texts[result] : "unknown result code";
}

void nccl_error_failure(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    pthread_mutex_lock(&error_lock);
    vsnprintf(error_failure, sizeof error_failure, format, list);
    pthread_mutex_unlock(&error_lock);
    va_end(list);
}
