/* SPDX-License-Identifier: MIT
 *
 * Memory for snapshots, in two steps.  First, at rest: 1500 blocks of which half are freed again, a
 * failed request, marks, memory of gpuprof's cache, pinned memory, a second device.  Then, until it
 * is let go: a thread allocates and frees, while the program forks children that look whether they
 * have inherited a descriptor of ours. Leaves 750 blocks of 4 KiB and more, 34 blocks of the cache,
 * 1 MiB on device 1, 64 KiB pinned.
 */
#include <cuda.h>
#include <dirent.h>
#include <poll.h>
#include <sys/wait.h>

#include "api.h"
#include "threads.h"

#define BLOCKS 1500
#define CACHED 50

static int x_stop;

static void memory_own(void)
{
    static CUdeviceptr blocks[BLOCKS];
    CUdeviceptr none = 0;
    void *pinned = NULL;
    int i;
    for (i = 0; i < BLOCKS; i++)
        blocks[i] = program_alloc(4 * KIB + (size_t)i);
    CHECK(api_gpuprof_mark("half"));
    for (i = 0; i < BLOCKS; i += 2)
        CHECK(cuMemFree(blocks[i]));
    CHECK(api_gpuprof_mark("/half"));
    REPORT("too much", cuMemAlloc(&none, 1ul << 46));
    CHECK(cuMemAllocHost(&pinned, 64 * KIB));
}

static void memory_cached(void)
{
    void *blocks[CACHED] = {NULL};
    int i;
    for (i = 0; i < CACHED; i++)
        CHECK(api_gpuprof_alloc(&blocks[i], (size_t)(i + 1) * 700, 0, NULL));
    for (i = 0; i < CACHED; i += 3)
        CHECK(api_gpuprof_free(blocks[i]));
}

static void memory_second(void)
{
    CUcontext first = NULL, second = NULL;
    CUdevice device = 0;
    CHECK(cuCtxGetCurrent(&first));
    CHECK(cuDeviceGet(&device, 1));
    CHECK(cuDevicePrimaryCtxRetain(&second, device));
    CHECK(cuCtxSetCurrent(second));
    program_alloc(MIB);
    CHECK(cuCtxSetCurrent(first));
}

static void thread_busy(unsigned number)
{
    void *cached = NULL;
    (void)number;
    while (!__atomic_load_n(&x_stop, __ATOMIC_RELAXED)) {
        CHECK(cuMemFree(program_alloc(MIB / 2)));
        CHECK(api_gpuprof_alloc(&cached, 3 * MIB, 0, NULL));
        CHECK(api_gpuprof_free(cached));
    }
}

/* In a child: how many descriptors of snapshots it has. */
static int inherited(void)
{
    struct dirent *entry;
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        char path[300], target[64] = "";
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, target, sizeof(target) - 1) > 0 && strstr(target, "gpuprof-pieces") != NULL)
            count++;
    }
    return count;
}

/* Forks until the harness lets go; the number of inherited descriptors. */
static int fork_on(int *forks)
{
    const char *go = getenv("GPUPROF_TEST_GO");
    struct pollfd wait = {.fd = go != NULL ? atoi(go) : -1, .events = POLLIN};
    int leaked = 0, status;
    do {
        pid_t child = fork();
        if (child == 0)
            _exit(inherited());
        if (child > 0 && waitpid(child, &status, 0) == child) {
            leaked += WIFEXITED(status) ? WEXITSTATUS(status) : 1;
            (*forks)++;
        }
    } while (wait.fd >= 0 && poll(&wait, 1, 0) == 0);
    return leaked;
}

int main(void)
{
    struct thread_arg busy;
    int forks = 0, leaked;
    program_start();
    if (!api_load())
        return 3;
    memory_own();
    memory_cached();
    memory_second();
    program_hold();
    threads_start(&busy, 1, thread_busy);
    leaked = fork_on(&forks);
    __atomic_store_n(&x_stop, 1, __ATOMIC_RELAXED);
    threads_join(&busy, 1);
    printf("forked: %d\nleaked: %d\n", forks > 0, leaked);
    return finish();
}
