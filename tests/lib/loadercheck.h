/* SPDX-License-Identifier: MIT
 *
 * loadercheck.h: for tests that stand in for src/base/loader.c. With sanitizers GP_LOADER calls this function, and the object
 * of loader.c would come along with what the test replaces.
 */
#ifndef GP_TEST_LIB_LOADERCHECK_H
#define GP_TEST_LIB_LOADERCHECK_H

#include "base/loader.h"

#ifdef GP_DEBUG
void gp_loader_check(void)
{
}
#endif

#endif
