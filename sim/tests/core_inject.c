/* SPDX-License-Identifier: MIT
 * Selftest: CUDA_INJECTION64_PATH: loaded in the first cuInit, once, whatever the threads; cuInit's own ENTER is not
 * seen; the library's names stay its own; a driver in another namespace of the loader loads its own copy. */
#define _GNU_SOURCE
#include <pthread.h>

#include "core_check.h"

static void *init_thread(void *unused)
{
    return cuInit(0) == CUDA_SUCCESS ? unused : NULL;
}

static int number(void *library, const char *name)
{
    int *at = dlsym(library, name);
    return at ? *at : -1;
}

/* The loader ends the program if a library of such a namespace is opened with RTLD_GLOBAL (glibc 2.36). */
static void other_namespace(void)
{
    void *driver = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CUresult (*init)(unsigned) = driver ? (CUresult(*)(unsigned))dlsym(driver, "cuInit") : NULL;
    CHECK(init != NULL);
    if (!init)
        return;
    CHECK_OK(init(0));
    Lmid_t id = LM_ID_BASE;
    CHECK(dlinfo(driver, RTLD_DI_LMID, &id) == 0 && id != LM_ID_BASE);
    void *library = dlmopen(id, getenv("CUDA_INJECTION64_PATH"), RTLD_NOW | RTLD_NOLOAD);
    CHECK(library != NULL);
    CHECK_EQ(number(library, "inject_calls"), 1);
}

int main(void)
{
    pthread_t threads[4];
    char path[600];
    const char *folder = getenv("SIM_SELFTEST_DIR");
    snprintf(path, sizeof path, "%s/library_inject.so", folder ? folder : ".");
    setenv("CUDA_INJECTION64_PATH", path, 1);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, init_thread, threads) == 0);
    for (int i = 0; i < 4; i++) {
        void *result = NULL;
        CHECK(pthread_join(threads[i], &result) == 0 && result == threads);
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    CHECK(library != NULL);
    CHECK_EQ(number(library, "inject_calls"), 1);
    CHECK_EQ(number(library, "inject_init_finished"), 1);
    int seen = number(library, "inject_init_calls");
    CHECK_EQ(seen % 2, 0); /* whole calls of other threads, no EXIT without its ENTER */
    CHECK_OK(cuInit(0));
    CHECK_EQ(number(library, "inject_calls"), 1);
    CHECK_EQ(number(library, "inject_init_calls"), seen + 2);
    CHECK(dlsym(RTLD_DEFAULT, "inject_calls") == NULL);
    other_namespace();
    CHECK_EQ(number(library, "inject_calls"), 1);
    return check_done();
}
