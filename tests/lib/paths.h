/* SPDX-License-Identifier: MIT
 *
 * paths.h: where the product under test and the test programs are, from where the running test binary lies.
 *
 * A test binary is BUILD/tests/integration/test_x; programs lie in BUILD/tests/programs.  The product is always the
 * release build beside it (TOP/build), since a sanitized library cannot be loaded into a plain program; the environment
 * variable GPUPROF_BUILD names another.
 */
#ifndef GP_TEST_LIB_PATHS_H
#define GP_TEST_LIB_PATHS_H

/* All answers are absolute, static, and valid for the process's life.  A missing file is the caller's test failure. */
const char *path_command(void); /* the gpuprof command */
const char *path_library(void); /* libgpuprof.so */
const char *path_sim(void);     /* the folder of the simulated GPU's libraries */
const char *path_program(const char *name);
const char *path_source(const char *relative); /* under the source tree's top */

#endif
