/* SPDX-License-Identifier: MIT
 *
 * later.h: entry points that are newer than the CUDA headers, by name.  A program that is about
 * them ends with 77 on a driver that is older.
 */
#ifndef GP_TEST_PROGRAMS_LATER_H
#define GP_TEST_PROGRAMS_LATER_H

#define LATER_MISSING 500 /* CUDA_ERROR_NOT_FOUND */

/* cuGetProcAddress by its plain name has two forms; this is the one of all drivers since 12.0. */
static PROGRAM_UNUSED void *later(const char *name, int version)
{
    void *function = NULL;
    CUdriverProcAddressQueryResult status;
    if (cuGetProcAddress(name, &function, version, 0, &status) != CUDA_SUCCESS || function == NULL) {
        printf("not here: %s of %d\n", name, version);
        return NULL;
    }
    return function;
}

static PROGRAM_UNUSED CUdevice later_start(int version)
{
    int is = 0;
    if (cuDriverGetVersion(&is) == CUDA_SUCCESS && is < version) {
        printf("the driver is of %d and not of %d\n", is, version);
        exit(77);
    }
    return program_start();
}

#define LATER(_function, ...) ((_function) != NULL ? (int)(_function)(__VA_ARGS__) : LATER_MISSING)

#endif
