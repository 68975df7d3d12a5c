/* SPDX-License-Identifier: MIT
 *
 * later.h: entry points that are newer than the CUDA headers, by name.  A driver that has not the
 * version answers that it does not know them; then the programs only say so.
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

#define LATER(_function, ...) ((_function) != NULL ? (int)(_function)(__VA_ARGS__) : LATER_MISSING)

#endif
