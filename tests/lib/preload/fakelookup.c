/* SPDX-License-Identifier: MIT
 *
 * fakelookup.c: libcuda.so.1 with a function for each row of the hooks but cuGreenCtxCreate, and cuGetProcAddress, whose
 * answer the test sets.
 */
#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the callers look them up by name */
#include <stddef.h>
#include <stdint.h>

#define cuGreenCtxCreate cuNotGreenCtxCreate

/* Each has its own code, so that no two are folded into one. */
#define GP_HOOK(_id, _name, _handler, ...)                                                                             \
    int _name(void)                                                                                                    \
    {                                                                                                                  \
        return __LINE__ * 1000 + sizeof(#_name);                                                                       \
    }
#define GP_WRAP(_name, ...) GP_HOOK(0, _name, , __VA_ARGS__)
#include "../../../src/source/hooks.def"
#include "../../../src/source/wrap.def"

int cuCtxGetCurrent(void)
{
    return 1;
}

int cuInit(unsigned flags)
{
    return (int)flags;
}

void *fake_found;
uint32_t fake_result;
const char *fake_symbol;
int fake_version, *fake_status;
uint64_t fake_flags;

uint32_t cuGetProcAddress(const char *symbol, void **found, int version, uint64_t flags)
{
    fake_symbol = symbol, fake_version = version, fake_flags = flags;
    if (found)
        *found = fake_found;
    return fake_result;
}

uint32_t cuGetProcAddress_v2(const char *symbol, void **found, int version, uint64_t flags, int *status)
{
    fake_status = status;
    return cuGetProcAddress(symbol, found, version, flags);
}
