/* SPDX-License-Identifier: MIT
 *
 * keeper.h: a process that waits for the end of a test, however it ends, and then takes away what still bears its pid:
 * files and folders /tmp/gpuprof-test-NAME-PID[.so] and cgroups gpuprof-test-[NAME-]PID[-N].  Processes are the test's
 * own affair (PR_SET_PDEATHSIG).
 */
#ifndef GP_TEST_LIB_KEEPER_H
#define GP_TEST_LIB_KEEPER_H

/* Called by the test's process.  file: one that bears no pid; or NULL. */
void keeper_start(const char *file);

/* In a child that is to tidy up after its test: leaves all that it shares with it but this end of a pipe, and returns
 * when the other end is closed, whatever end the test came to. */
void keeper_outlive(int fd);

#endif
