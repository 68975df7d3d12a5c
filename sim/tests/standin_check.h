/* SPDX-License-Identifier: MIT
 * What the tests of the stand-ins share. */
#ifndef GP_TEST_SIM_STANDIN_CHECK_H
#define GP_TEST_SIM_STANDIN_CHECK_H

#include "core_check.h"

static inline void *library(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/standin/%s", getenv("LD_LIBRARY_PATH"), name);
    void *handle = dlopen(path, RTLD_NOW);
    if (!handle)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(handle != NULL);
    return handle;
}

#define FUNCTION(_type, _name, _handle, ...)                                                                           \
    _type (*_name)(__VA_ARGS__) = (_type(*)(__VA_ARGS__))dlsym(_handle, #_name);                                       \
    CHECK(_name != NULL)

/* Bytes of device 0 that calls asked for. */
static inline long long used(void)
{
    return check_allocated(0, "\"current\":");
}

#endif
