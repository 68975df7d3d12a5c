/* SPDX-License-Identifier: MIT
 *
 * Compares our stacks with glibc's backtrace() where NVIDIA's libraries call out: in
 * InitializeInjection (walkhere.c), and in malloc, free and getenv, which this program defines.
 * Arguments: libcupti and libcudart files, which are loaded and called.  Prints "N passed, N failed".
 */
#define _GNU_SOURCE
#include "gpuprof/wire.h"
#include "stack/internal.h"
#include "stack/stack.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void __libc_free(void *memory);
extern char **environ;
void walk_here(const char *where);

static __thread int walk_busy;
static int walk_on;
static unsigned passed, failed, injected, deepest;

/* The code of NVIDIA's libraries that a stack goes through. */
static int walk_is_theirs(const void *address)
{
    Dl_info info;
    return dladdr(address, &info) && info.dli_fname &&
           (strstr(info.dli_fname, "libcuda") || strstr(info.dli_fname, "libcupti"));
}

static void walk_compare(const char *where, unsigned n, const uint64_t *ours, unsigned m, void *const *theirs)
{
    unsigned skip = 0, i;
    int right;

    /* The innermost frames are this file's, at different lines. */
    while (n > 1 && skip < 3 && (uint64_t)(uintptr_t)theirs[skip + 1] != ours[1])
        skip++;
    /* Ours may be longer: constructors and destructors are called from _init and _fini, which no table describes.  There
     * glibc ends, and we follow the frame pointer. */
    right = n > 2 && n + skip >= m;
    for (i = 1; right && i < n && i + skip < m; i++)
        right = ours[i] == (uint64_t)(uintptr_t)theirs[i + skip];
    if (right) {
        passed++;
        deepest = n > deepest ? n : deepest;
        return;
    }
    if (failed++ >= 5)
        return;
    printf("%s: ours has %u frames, glibc's %u\n", where, n, m);
    for (i = 0; i < n || i < m; i++) {
        Dl_info info = {0};
        if (i < m)
            dladdr(theirs[i], &info);
        printf("%3u %#18lx %#18lx %s\n", i, i < n ? (unsigned long)ours[i] : 0,
               i < m ? (unsigned long)(uintptr_t)theirs[i] : 0, info.dli_fname ? info.dli_fname : "");
    }
}

__attribute__((noinline)) void walk_here(const char *where)
{
    uint64_t ours[GP_SITE_FRAMES];
    void *theirs[GP_SITE_FRAMES + 8];
    bool more = false;
    unsigned n, m;

    if (walk_busy || !walk_on)
        return;
    walk_busy = 1;
    n = gp_stack_native(ours, GP_SITE_FRAMES, &more);
    m = (unsigned)backtrace(theirs, GP_SITE_FRAMES + 8);
    if (!more) {
        walk_compare(where, n, ours, m, theirs);
        injected += strcmp(where, "InitializeInjection") == 0;
    }
    walk_busy = 0;
}

void *malloc(size_t bytes)
{
    if (walk_on && !walk_busy && walk_is_theirs(__builtin_return_address(0)))
        walk_here("malloc");
    return __libc_malloc(bytes);
}

void free(void *memory)
{
    if (walk_on && !walk_busy && walk_is_theirs(__builtin_return_address(0)))
        walk_here("free");
    __libc_free(memory);
}

char *getenv(const char *name)
{
    size_t length = strlen(name);
    char **variable;

    if (walk_on && !walk_busy && walk_is_theirs(__builtin_return_address(0)))
        walk_here("getenv");
    for (variable = environ; *variable; variable++)
        if (strncmp(*variable, name, length) == 0 && (*variable)[length] == '=')
            return *variable + length + 1;
    return NULL;
}

static void walk_call(void *library, const char *name)
{
    static char room[4096];
    int (*function)(void *, void *, void *) = (int (*)(void *, void *, void *))dlsym(library, name);

    if (function)
        function(room, NULL, NULL);
}

int main(int argc, char **argv)
{
    void *warm[4], *driver;
    int i;

    backtrace(warm, 4); /* loads libgcc */
    if (gp_native_start() != 0)
        return 1;
    walk_on = 1;
    for (i = 1; i < argc; i++) {
        void *library = dlopen(argv[i], RTLD_LAZY);
        if (!library) {
            printf("%s\n", dlerror());
            return 1;
        }
        walk_call(library, "cudaGetDeviceCount");
        walk_call(library, "cuptiGetVersion");
        walk_call(library, "cuptiSubscribe");
    }
    driver = dlopen("libcuda.so.1", RTLD_LAZY);
    if (driver)
        ((int (*)(unsigned))dlsym(driver, "cuInit"))(0);
    walk_on = 0;
    printf("%u stacks, the deepest with %u frames, %u in InitializeInjection\n", passed + failed, deepest, injected);
    printf("%u passed, %u failed\n", passed, failed + (driver == NULL) + (injected == 0));
    fflush(stdout);
    _exit(failed != 0);
}
