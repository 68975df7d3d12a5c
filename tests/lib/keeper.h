/* SPDX-License-Identifier: MIT
 *
 * keeper.h: a process that waits until a test ends or is killed, and then removes what has its pid in its name:
 * files and folders /tmp/gpuprof-test-NAME-PID[.so] and cgroups gpuprof-test-[NAME-]PID[-N]. It does not kill
 * processes: the test does that (PR_SET_PDEATHSIG).
 */
#ifndef GP_TEST_LIB_KEEPER_H
#define GP_TEST_LIB_KEEPER_H

/* Called by the test's process. file: one more file to remove, without the pid in its name; or NULL. */
void keeper_start(const char *file);

/* Called in a child that cleans up after its test. It gives up all that the two share except this end of a
 * pipe, and returns when the other end is closed, that is when the test has ended in any way. */
void keeper_outlive(int fd);

#endif
