/* SPDX-License-Identifier: MIT
 * kernels.c: how many kernels the processes of a run have launched, graphs' nodes included: the first
 * 8 bytes of the file that GPUPROF_SIM_KERNELS names, which all of them map. Without such a file, or
 * if it is shorter, nothing is counted. */
#define _GNU_SOURCE
#include "cuda/stream.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t *sim_kernels;

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

void sim_kernels_add(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, sim_kernels_open);
    if (sim_kernels)
        __atomic_fetch_add(sim_kernels, 1, __ATOMIC_RELAXED); /* relaxed: a statistic */
}
