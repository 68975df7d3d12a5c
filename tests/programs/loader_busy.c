/* SPDX-License-Identifier: MIT
 *
 * Threads allocate while others load a library again and again, and while one allocates inside its own
 * callback of dl_iterate_phdr: the loader's locks are then held while the driver is called. Each does so
 * for half a second. Leaves 1 MiB linear.
 */
#include <cuda.h>
#include <link.h>
#include <time.h>

#include "finish.h"
#include "threads.h"

static char library[4096];
static int over;

static void busy_pair(size_t bytes)
{
    CUdeviceptr pointer = program_alloc(bytes);
    if (pointer != 0)
        CHECK(cuMemFree(pointer));
}

static int busy_visit(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)info;
    (void)size;
    (void)arg;
    busy_pair(4 * KIB);
    return 0;
}

static int is_over(void)
{
    return __atomic_load_n(&over, __ATOMIC_RELAXED);
}

static void busy_load(void)
{
    void *handle = dlopen(library, RTLD_NOW);
    CHECK(handle == NULL);
    if (handle != NULL)
        CHECK(dlclose(handle));
}

static void busy_thread(unsigned number)
{
    while (!is_over()) {
        if (number < 2)
            busy_pair(MIB);
        else
            busy_load();
        if (number == 3)
            dl_iterate_phdr(busy_visit, NULL);
    }
}

int main(void)
{
    struct thread_arg threads[4];
    struct timespec half = {0, 500000000};
    ssize_t length = readlink("/proc/self/exe", library, sizeof(library) - 64);
    library[length > 0 ? length : 0] = '\0';
    if (strrchr(library, '/') != NULL)
        strcpy(strrchr(library, '/'), "/../preload/constructor.so");
    program_start();
    program_alloc(MIB);
    threads_start(threads, 4, busy_thread);
    nanosleep(&half, NULL);
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    threads_join(threads, 4);
    return finish();
}
