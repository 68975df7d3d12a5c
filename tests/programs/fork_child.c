/* SPDX-License-Identifier: MIT
 *
 * A child of fork that runs beside its parent, using the heap, stdio and threads but no CUDA.  The
 * child owns no session; the parent's numbers go on.  Both hold: the child (without CUDA) and the
 * parent. Leaves 3 MiB linear in the parent.
 */
#include <cuda.h>
#include <pthread.h>
#include <sys/wait.h>

#include "finish.h"

static void *thread_nothing(void *arg)
{
    free(malloc(100000));
    return arg;
}

int main(void)
{
    pthread_t thread;
    int status = 0, code;
    pid_t child;
    program_start();
    program_alloc(2 * MIB);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        if (pthread_create(&thread, NULL, thread_nothing, NULL) == 0)
            pthread_join(thread, NULL);
        program_hold();
        exit(9);
    }
    program_alloc(MIB);
    code = finish();
    waitpid(child, &status, 0);
    printf("child: %d\n", WEXITSTATUS(status));
    return code;
}
