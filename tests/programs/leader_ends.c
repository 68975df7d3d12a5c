/* SPDX-License-Identifier: MIT
 *
 * The main thread leaves by pthread_exit, and the process lives on in its other threads: it ends with
 * the last of them, which runs the exit handlers.
 *
 *   leader_ends return|pthread_exit|exit|fork
 *
 * says how the last thread ends; after `fork` it returns, and so does the only thread of a child.
 * Leaves 3 MiB linear; exit code 0, of `exit` 5.
 */
#include <cuda.h>

#include "finish.h"
#include "threads.h"

#include <sys/wait.h>

static const char *leader_way;
static pid_t leader_pid;

static void leader_handler(void)
{
    if (getpid() == leader_pid)
        puts("exit handler");
}

/* Its main thread is this one: no other thread is left in a child. */
static void leader_fork(void)
{
    int status = -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        pthread_exit(NULL);
    REPORT("the child is there", child > 0 && waitpid(child, &status, 0) == child);
    REPORT("its status", status);
}

static void leader_last(unsigned number)
{
    (void)number;
    usleep(20000); /* the main thread has ended */
    program_alloc(2 * MIB);
    if (strcmp(leader_way, "fork") == 0)
        leader_fork();
    int failed = finish();
    if (strcmp(leader_way, "exit") == 0)
        exit(5 + failed);
    if (strcmp(leader_way, "pthread_exit") == 0)
        pthread_exit(NULL);
}

static void leader_short(unsigned number)
{
    (void)number;
    usleep(10000);
}

int main(int argc, char **argv)
{
    static struct thread_arg last, others[3];
    leader_way = argc > 1 ? argv[1] : "return";
    leader_pid = getpid();
    atexit(leader_handler);
    program_start();
    program_alloc(MIB);
    threads_start(&last, 1, leader_last);
    threads_start(others, 3, leader_short);
    pthread_exit(NULL);
}
