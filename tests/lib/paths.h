/* SPDX-License-Identifier: MIT
 *
 * paths.h: paths of the product under test and of the test programs, relative to the running test binary.
 *
 * A test binary is BUILD/tests/integration/test_x; programs lie in BUILD/tests/programs.  The product is always the
 * release build beside it (TOP/build), since a sanitized library cannot be loaded into a plain program; the environment
 * variable GPUPROF_BUILD names another.
 */
#ifndef GP_TEST_LIB_PATHS_H
#define GP_TEST_LIB_PATHS_H

/* All paths are absolute, static, and valid until the process ends. The caller checks that the file exists. */
const char *path_command(void); /* the gpuprof command */
const char *path_library(void); /* libgpuprof.so */
const char *path_sim(void);     /* the folder of the simulated GPU's libraries */
const char *path_program(const char *name);
const char *path_source(const char *relative); /* relative to the top of the source tree */

#endif
