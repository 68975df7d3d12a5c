/* SPDX-License-Identifier: MIT
 *
 * A program with CUPTI of its own, or with libraries that bring one.  The arguments are done in
 * order:
 *
 *   open:FILE        dlopen
 *   init             the first context, and 1 MiB of linear memory
 *   alloc            1 MiB more
 *   user:FILE        dlopen, and a call of its cupti_user_ask
 *   subscribe:FILE   cuptiSubscribe of that CUPTI
 *   share:FILE       cuptiSubscribe_v2, with the wish to share, and the callbacks of cuMemAlloc
 *   finalize:FILE    cuptiFinalize
 *   wait             a step of the test
 *
 * Leaves the memory live.
 */
#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#include "finish.h"

static unsigned calls;

static void on_call(void *user, int domain, uint32_t id, const void *data)
{
    (void)user;
    (void)domain;
    (void)id;
    (void)data;
    calls++;
}

static void *library_open(const char *file)
{
    void *library = dlopen(file, RTLD_NOW);
    const char *slash = strrchr(file, '/');
    printf("%s: %s\n", slash != NULL ? slash + 1 : file, library != NULL ? "opened" : dlerror());
    return library;
}

static void *library_symbol(const char *file, const char *name)
{
    void *library = library_open(file);
    return library != NULL ? dlsym(library, name) : NULL;
}

static void user(const char *file)
{
    int (*ask)(void) = NULL;
    *(void **)&ask = library_symbol(file, "cupti_user_ask");
    printf("answer: %d\n", ask != NULL ? ask() : -1);
}

static void subscribe(const char *file)
{
    int (*first)(void **, void (*)(void *, int, uint32_t, const void *), void *) = NULL;
    void *handle = NULL;
    *(void **)&first = library_symbol(file, "cuptiSubscribe");
    if (first != NULL)
        REPORT("cuptiSubscribe", first(&handle, on_call, NULL));
}

static void share(const char *file)
{
    struct {
        size_t bytes;
        const char *name;
        char *old_name;
        size_t old_name_bytes;
        uint8_t share, padding[7];
    } params = {sizeof(params), "the program", NULL, 0, 1, {0}};
    int (*second)(void **, void (*)(void *, int, uint32_t, const void *), void *, void *) = NULL;
    int (*enable)(uint32_t, void *, int, uint32_t) = NULL;
    void *handle = NULL;

    *(void **)&second = library_symbol(file, "cuptiSubscribe_v2");
    *(void **)&enable = library_symbol(file, "cuptiEnableCallback");
    if (second != NULL && enable != NULL) {
        REPORT("cuptiSubscribe_v2", second(&handle, on_call, NULL, &params));
        REPORT("cuptiEnableCallback", enable(1, handle, 1, 243));
    }
}

static void finalize(const char *file)
{
    int (*end)(void) = NULL;
    *(void **)&end = library_symbol(file, "cuptiFinalize");
    if (end != NULL)
        REPORT("cuptiFinalize", end());
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(const char *file);
    } actions[] = {{"user:", user}, {"subscribe:", subscribe}, {"share:", share}, {"finalize:", finalize}};
    size_t action;
    int i;

    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "init") == 0)
            program_start();
        if (strcmp(argv[i], "init") == 0 || strcmp(argv[i], "alloc") == 0)
            program_alloc(MIB);
        if (strcmp(argv[i], "wait") == 0)
            program_hold();
        if (strncmp(argv[i], "open:", 5) == 0)
            library_open(argv[i] + 5);
        for (action = 0; action < sizeof(actions) / sizeof(actions[0]); action++) {
            size_t length = strlen(actions[action].name);
            if (strncmp(argv[i], actions[action].name, length) == 0)
                actions[action].run(argv[i] + length);
        }
    }
    printf("callbacks: %u\n", calls);
    return finish();
}
