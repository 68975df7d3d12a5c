/* SPDX-License-Identifier: MIT
 * What every other file stands on: the lock, the calling thread, the flags of cuInit, and memory for the
 * simulator's own books. */
#include "cuda/stream.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

pthread_mutex_t sim_mutex = PTHREAD_MUTEX_INITIALIZER;
__thread struct sim_thread sim_self;
bool sim_initialized;
bool sim_deinitialized;

void sim_lock(void)
{
    pthread_mutex_lock(&sim_mutex);
}

void sim_unlock(void)
{
    pthread_mutex_unlock(&sim_mutex);
}

CUstream sim_stream_default(CUstream stream)
{
    if (stream)
        return stream;
    const struct sim_call *call = sim_self.call;
    return call && call->entry->flags & SIM_ENTRY_TWIN ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

void *sim_grow(void *old, size_t bytes)
{
    void *p = realloc(old, bytes);

    if (!p) {
        fprintf(stderr, "simulated GPU: out of host memory: %zu bytes\n", bytes);
        abort();
    }
    return p;
}
