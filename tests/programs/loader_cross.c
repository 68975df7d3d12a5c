/* SPDX-License-Identifier: MIT
 *
 * One thread is inside cuInit while another one loads a library whose constructor calls cuInit too.
 * Where the driver or a tool waits for the loader's lock in cuInit, both wait for ever. Under
 * tests/lib/preload/pause.so the constructor runs while gpuprof starts. Leaves 1 MiB linear.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdint.h>

#include "finish.h"

static void cross_constructed(void)
{
    int *over = dlsym(RTLD_DEFAULT, "pause_over");
    if (over != NULL)
        __atomic_store_n(over, 1, __ATOMIC_SEQ_CST);
    REPORT("constructor: cuInit", cuInit(0));
}

static void *cross_init(void *unused)
{
    REPORT("thread: cuInit", cuInit(0));
    return unused;
}

/* Looks without the loader: its lock is what this is about. */
static void cross_await(const int *reached)
{
    int i;
    for (i = 0; reached != NULL && i < 2000 && !__atomic_load_n(reached, __ATOMIC_SEQ_CST); i++)
        usleep(1000);
}

static void cross_load(void)
{
    char path[4096], call[32];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 64);
    path[length > 0 ? length : 0] = '\0';
    if (strrchr(path, '/') != NULL)
        strcpy(strrchr(path, '/'), "/../preload/constructor.so");
    snprintf(call, sizeof(call), "%llx", (unsigned long long)(uintptr_t)cross_constructed);
    setenv("CONSTRUCTOR_CALL", call, 1);
    printf("library: %d\n", dlopen(path, RTLD_NOW) != NULL);
}

int main(void)
{
    const int *reached = dlsym(RTLD_DEFAULT, "pause_reached");
    pthread_t thread;
    int made;
    setvbuf(stdout, NULL, _IONBF, 0);
    made = pthread_create(&thread, NULL, cross_init, NULL) == 0;
    if (reached == NULL && made) {
        CHECK(pthread_join(thread, NULL)); /* nothing to meet: one after the other */
        made = 0;
    }
    cross_await(reached);
    cross_load();
    if (made)
        CHECK(pthread_join(thread, NULL));
    program_start();
    program_alloc(MIB);
    return finish();
}
