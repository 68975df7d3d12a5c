/* SPDX-License-Identifier: MIT
 *
 * A program that neither links nor loads the driver, and lookups whose answer depends on the
 * caller: the plug-in named by the first argument (tests/lib/preload/caller.c) finds its own symbol
 * by dlsym(RTLD_DEFAULT), this program does not.
 */
#include <dlfcn.h>
#include <stdio.h>

__attribute__((visibility("default"))) int hook_caller_main = 1;

static void driver_print(const char *when)
{
    void *program = dlopen(NULL, RTLD_NOW);
    printf("%s: default %d, next %d, program %d", when, dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL,
           dlsym(RTLD_NEXT, "cuInit") != NULL, dlsym(program, "cuMemFree_v2") != NULL);
    printf(", error %d\n", dlerror() != NULL);
    dlclose(program);
}

int main(int argc, char **argv)
{
    void (*ask)(void) = NULL;
    void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (plugin == NULL) {
        printf("no plug-in: %s\n", dlerror());
        return 1;
    }
    *(void **)&ask = dlsym(plugin, "caller_ask");
    printf("program: own by default %d\n", dlsym(RTLD_DEFAULT, "caller_mark") != NULL);
    printf("program: next getpid %d\n", dlsym(RTLD_NEXT, "getpid") != NULL);
    ask();
    driver_print("without a driver");
    printf("dlsym(NULL handle) of libc: %d\n", dlsym(RTLD_DEFAULT, "getpid") == dlsym(RTLD_NEXT, "getpid"));
    return 0;
}
