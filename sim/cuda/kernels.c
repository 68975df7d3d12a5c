/* SPDX-License-Identifier: MIT
 * kernels.c: how many kernels the processes of a run have launched, graphs' nodes included, and the most stack that
 * a thread of their contexts had: struct sim_kernels at the start of the file that GPUPROF_SIM_KERNELS names, which all of
 * them map. Without such a file, or if it is shorter, nothing is counted. */
#define _GNU_SOURCE
#include "cuda/stream.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct sim_kernels {
    uint64_t launches;
    uint64_t stack; /* bytes */
} * sim_kernels;

static void sim_kernels_open(void)
{
    const char *path = secure_getenv("GPUPROF_SIM_KERNELS");
    struct stat st;
    int fd = path && path[0] ? open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;

    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= (off_t)sizeof *sim_kernels) {
        void *map = mmap(NULL, sizeof *sim_kernels, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        sim_kernels = map == MAP_FAILED ? NULL : map;
    }
    close(fd);
}

/* Relaxed everywhere: statistics. */
static struct sim_kernels *sim_kernels_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, sim_kernels_open);
    return sim_kernels;
}

void sim_kernels_add(void)
{
    struct sim_kernels *kernels = sim_kernels_get();

    if (kernels)
        __atomic_fetch_add(&kernels->launches, 1, __ATOMIC_RELAXED);
}

void sim_kernels_stack(uint32_t bytes)
{
    struct sim_kernels *kernels = sim_kernels_get();
    uint64_t *most = kernels ? &kernels->stack : NULL, seen = most ? __atomic_load_n(most, __ATOMIC_RELAXED) : 0;

    while (most && bytes > seen &&
           !__atomic_compare_exchange_n(most, &seen, bytes, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}
