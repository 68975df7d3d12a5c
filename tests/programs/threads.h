/* SPDX-License-Identifier: MIT
 *
 * threads.h: start and join for the programs with several threads; each thread gets the primary
 * context and its number.
 */
#ifndef GP_TEST_PROGRAMS_THREADS_H
#define GP_TEST_PROGRAMS_THREADS_H

#include <pthread.h>

struct thread_arg {
    pthread_t thread;
    unsigned number;
    void (*body)(unsigned number);
    CUcontext context;
};

static PROGRAM_UNUSED void *thread_main(void *arg)
{
    struct thread_arg *self = arg;
    CHECK(cuCtxSetCurrent(self->context));
    self->body(self->number);
    return NULL;
}

static PROGRAM_UNUSED void threads_start(struct thread_arg *threads, unsigned count, void (*body)(unsigned))
{
    CUcontext context = NULL;
    unsigned i;
    CHECK(cuCtxGetCurrent(&context));
    for (i = 0; i < count; i++) {
        threads[i] = (struct thread_arg){.number = i, .body = body, .context = context};
        if (pthread_create(&threads[i].thread, NULL, thread_main, &threads[i]) != 0) {
            printf("no thread\n");
            exit(3);
        }
    }
}

static PROGRAM_UNUSED void threads_join(struct thread_arg *threads, unsigned count)
{
    unsigned i;
    for (i = 0; i < count; i++)
        pthread_join(threads[i].thread, NULL);
}

#endif
