/* SPDX-License-Identifier: MIT
 *
 * kid.h: a program that reads commands from its standard input and answers each with a number on a line, as
 * tests/programs/{probe_fire,agent_walk}.c do.  It ends with the thread that started it.
 */
#ifndef GP_TEST_LIB_KID_H
#define GP_TEST_LIB_KID_H

#include <stdio.h>
#include <sys/types.h>

struct kid {
    pid_t pid;
    FILE *to, *from;
    int exec_fd; /* end-of-file once the kid has executed something else, if kid_begin's exec keeps the other end */
    int group;   /* the caller's */
};

/* exec runs in the child, its standard input and output in place; it executes the program, or returns and the child
 * ends with 127.  0 when the program has said hello (a 0); -errno. */
int kid_begin(struct kid *kid, void (*exec)(void *arg, int exec_fd), void *arg);
/* For kid_begin: executes the file that arg names. */
void kid_exec_file(void *arg, int exec_fd);

/* Sends without waiting, and the answer to it: -1 when it ended. */
void kid_send(struct kid *kid, const char *format, ...) __attribute__((format(printf, 2, 3)));
long long kid_answer(struct kid *kid);
long long kid_tell(struct kid *kid, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Kills (0: closes its stdin, at which it ends), waits; the status of waitpid, -1 if it was ended before. */
int kid_end(struct kid *kid, int signal);

#endif
