/* SPDX-License-Identifier: MIT
 *
 * kid.h: starts a program that reads commands from its standard input and answers each with a line that has a
 * number, as tests/programs/{probe_fire,agent_walk}.c do. It is killed when the thread that started it ends.
 */
#ifndef GP_TEST_LIB_KID_H
#define GP_TEST_LIB_KID_H

#include <stdio.h>
#include <sys/types.h>

struct kid {
    pid_t pid;
    FILE *to, *from;
    int exec_fd; /* ends when the kid executes another program, if kid_begin's exec keeps the other end */
    int group;   /* the caller may use it */
};

/* exec runs in the child, whose standard input and output are connected. It executes the program; if it
 * returns, the child exits with 127. 0 after the program has sent its first answer (a 0), or -errno. */
int kid_begin(struct kid *kid, void (*exec)(void *arg, int exec_fd), void *arg);
/* For kid_begin: executes the file whose name is arg. */
void kid_exec_file(void *arg, int exec_fd);

/* Send a command without waiting, and read the answer to it: -1 if the kid has ended. */
void kid_send(struct kid *kid, const char *format, ...) __attribute__((format(printf, 2, 3)));
long long kid_answer(struct kid *kid);
long long kid_tell(struct kid *kid, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Sends the signal (0: closes the kid's stdin, which ends it) and waits. Returns waitpid's status, or -1 if
 * kid_end was called before. */
int kid_end(struct kid *kid, int signal);

#endif
