/* SPDX-License-Identifier: MIT
 *
 * Blocks are freed and allocated in every phase of a process's end: the destructor of a
 * thread-local object, exit handlers that were registered after and before cuInit, destructors of
 * the program and of libraries that were loaded before and after cuInit, a child that is forked
 * there, and the handlers of quick_exit. In each phase the first block that is freed begins a
 * segment of the cache and has a live neighbour, whose contents are read at the end of the phase.
 * Argument: exit, quick or now (_exit). Leaves 27 x 600 KiB linear.
 */
#include <cuda.h>
#include <sys/wait.h>

#include "finish.h"
#include "pattern.h"

#define BLOCK (600 * KIB) /* three fill a segment of 2 MiB */

enum {
    PHASE_THREAD,
    PHASE_HANDLER_AFTER,
    PHASE_HANDLER_BEFORE,
    PHASE_QUICK_AFTER,
    PHASE_QUICK_BEFORE,
    PHASE_PROGRAM,
    PHASE_LIBRARY_AFTER,
    PHASE_LIBRARY_BEFORE,
    PHASE_SPARE,
    PHASES
};
static const char *const phase_names[] = {"thread",        "handler after cuInit", "handler before cuInit",
                                          "quick after",   "quick before",         "program's destructor",
                                          "library after", "library before",       "spare"};

static struct {
    CUdeviceptr first, neighbour, last;
} blocks[PHASES];

static void phase_check(int phase)
{
    static unsigned char bytes[BLOCK];
    size_t wrong = 0, i;
    memset(bytes, 0, sizeof(bytes));
    REPORT("  read", cuMemcpyDtoH(bytes, blocks[phase].neighbour, BLOCK));
    for (i = 0; i < BLOCK; i++)
        wrong += bytes[i] != phase + 1;
    printf("  wrong bytes: %zu\n", wrong);
}

static void phase_run(int phase)
{
    CUdeviceptr late = 0, base = 0;
    size_t bytes = 0;
    if (blocks[phase].first == 0)
        return; /* cuInit failed */
    printf("%s\n", phase_names[phase]);
    REPORT("  range", cuMemGetAddressRange(&base, &bytes, blocks[phase].first + 5));
    printf("  %s, %zu bytes\n", base == blocks[phase].first ? "start" : "another start", bytes);
    REPORT("  free", cuMemFree(blocks[phase].first));
    REPORT("  free in a stream", cuMemFreeAsync(blocks[phase].last, NULL));
    REPORT("  small alloc", cuMemAlloc(&late, BLOCK));
    REPORT("  fill", cuMemsetD8(late, 0xee, BLOCK));
    REPORT("  free", cuMemFree(late));
    REPORT("  large alloc", cuMemAlloc(&late, 5 * MIB));
    REPORT("  fill", cuMemsetD8(late, 0xee, 5 * MIB));
    REPORT("  free", cuMemFree(late));
    phase_check(phase);
    fflush(stdout);
}

static void phase_thread(void *unused)
{
    (void)unused;
    phase_run(PHASE_THREAD);
}

static void phase_handler_after(void)
{
    phase_run(PHASE_HANDLER_AFTER);
}

static void phase_handler_before(void)
{
    phase_run(PHASE_HANDLER_BEFORE);
}

static void phase_quick_after(void)
{
    phase_run(PHASE_QUICK_AFTER);
}

static void phase_quick_before(void)
{
    phase_run(PHASE_QUICK_BEFORE);
}

static void phase_library_after(void)
{
    phase_run(PHASE_LIBRARY_AFTER);
}

/* The driver is of no use in the child. */
static void phase_child(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        REPORT("  child: free", cuMemFree(blocks[PHASE_SPARE].first));
        fflush(stdout);
        _exit(3);
    }
    printf("  child: %d\n", child > 0 && waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : -1);
}

static void phase_library_before(void)
{
    phase_run(PHASE_LIBRARY_BEFORE);
    if (blocks[PHASE_SPARE].first != 0) {
        phase_child();
        phase_check(PHASE_SPARE);
    }
    fflush(stdout);
}

__attribute__((destructor)) static void phase_program(void)
{
    phase_run(PHASE_PROGRAM);
}

/* Beside the program's folder, as the build has it. */
static void library_open(const char *name, void (*call)(void))
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 64);
    void *library, **place;
    path[length > 0 ? length : 0] = '\0';
    if (strrchr(path, '/') != NULL)
        strcpy(strrchr(path, '/'), "/../preload/");
    strcat(path, name);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    place = library != NULL ? dlsym(library, "destructor_call") : NULL;
    if (place == NULL) {
        printf("no library %s\n", name);
        return;
    }
    *(void (**)(void))(void *)place = call;
}

/* glibc: what the destructor of a C++ thread_local object is registered with. */
extern int __cxa_thread_atexit_impl(void (*destructor)(void *), void *object, void *dso);
extern void *__dso_handle;

static void blocks_make(void)
{
    int i;
    for (i = 0; i < PHASES; i++) {
        blocks[i].first = program_alloc(BLOCK);
        blocks[i].neighbour = program_alloc(BLOCK);
        blocks[i].last = program_alloc(BLOCK);
        CHECK(cuMemsetD8(blocks[i].neighbour, (unsigned char)(i + 1), BLOCK));
    }
    CHECK(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
    const char *end = argc > 1 ? argv[1] : "exit";
    int failed;
    atexit(phase_handler_before);
    at_quick_exit(phase_quick_before);
    library_open("destructor.so", phase_library_before);
    program_start();
    library_open("destructor_too.so", phase_library_after);
    atexit(phase_handler_after);
    at_quick_exit(phase_quick_after);
    __cxa_thread_atexit_impl(phase_thread, NULL, &__dso_handle);
    blocks_make();
    failed = finish();
    if (strcmp(end, "quick") == 0)
        quick_exit(failed);
    if (strcmp(end, "now") == 0)
        _exit(failed);
    return failed;
}
