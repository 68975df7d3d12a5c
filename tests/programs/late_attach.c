/* SPDX-License-Identifier: MIT
 *
 * A program that gpuprof is attached to and detached from while it runs: late_attach WHAT LIBRARY [N]
 *
 *   hold     memory from before, attach, more memory, and the end; a harness compares
 *   cycles   N times attach and detach, while 8 threads allocate
 */
#include <cuda.h>

#include "finish.h"

#include "attach.h"
#include "threads.h"

#define THREADS 8

static int hold(void)
{
    CUdeviceptr before[3];
    for (int i = 0; i < 3; i++)
        before[i] = program_alloc((size_t)(i + 1) * 3 * MIB);
    REPORT("attach", attach_on(""));
    CUdeviceptr after = program_alloc(5 * MIB), other = program_alloc(MIB);
    (void)after;
    CHECK(cuMemFree(before[1]));
    CHECK(cuMemFree(other));
    return finish();
}

static int x_stop;
static uint64_t x_calls;

static void busy(unsigned number)
{
    while (!__atomic_load_n(&x_stop, __ATOMIC_RELAXED)) {
        CUdeviceptr pointers[4];
        for (unsigned i = 0; i < 4; i++)
            pointers[i] = program_alloc((number + 1) * 4096 * (i + 1));
        for (unsigned i = 0; i < 4; i++)
            CHECK(cuMemFree(pointers[i]));
        __atomic_fetch_add(&x_calls, 8, __ATOMIC_RELAXED);
    }
}

static int descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

/* Kilobytes of memory and address space in use, from /proc/self/statm. */
static long resident(void)
{
    long size = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld %ld", &size, &pages) != 2)
        pages = 0;
    if (file)
        fclose(file);
    return pages * 4;
}

#include <malloc.h>
static int cycles(int count)
{
    struct thread_arg threads[THREADS];
    int bad = 0, descriptors_before = 0;
    long first = 0;
    CUdeviceptr keep = program_alloc(MIB);
    threads_start(threads, THREADS, busy);
    for (int i = 0; i < count; i++) {
        struct gp_wire_device last;
        if (i % 50 == 10)
            fprintf(stderr, "%d: malloc %zu resident %ld\n", i, mallinfo2().uordblks, resident());
        if (i == 10) {
            first = resident();
            descriptors_before = descriptors();
        }
        int on = attach_on("");
        for (int again = 0; on == -EBUSY && again < 50; again++) {
            fprintf(stderr, "cycle %d: busy (%s)\n", i, attach_state->text);
            usleep(100000);
            on = attach_on("");
        }
        int off = on ? -1 : attach_off(&last, 0);
        if (on || off) {
            printf("cycle %d: attach %d (%s), detach %d\n", i, on, attach_state->text, off);
            bad++;
            break;
        }
    }
    long grown = resident() - first;
    int more = descriptors() - descriptors_before;
    __atomic_store_n(&x_stop, 1, __ATOMIC_RELAXED);
    threads_join(threads, THREADS);
    for (int i = 0; i < 100 && attach_threads(); i++)
        usleep(10000);
    printf("threads of gpuprof: %d\n", attach_threads());
    if (count > 10) {
        printf("descriptors: %d more\n", more);
        printf("memory: %s\n", grown < 4096 ? "not grown" : "grown");
        if (grown >= 4096)
            fprintf(stderr, "by %ld KiB\n", grown);
    }
    char line[300];
    FILE *maps = getenv("LATE_MAPS") ? fopen("/proc/self/maps", "r") : NULL;
    while (maps && fgets(line, sizeof(line), maps))
        fputs(line, stderr);
    fprintf(stderr, "%llu calls\n", (unsigned long long)x_calls);
    CHECK(cuMemFree(keep));
    printf("cycles: %s\n", bad ? "failed" : "done");
    return finish() || bad;
}

int main(int argc, char **argv)
{
    program_start();
    if (argc < 3 || attach_load(argv[2]) != 0)
        return 2;
    if (strcmp(argv[1], "hold") == 0)
        return hold();
    if (strcmp(argv[1], "cycles") == 0)
        return cycles(argc > 3 ? atoi(argv[3]) : 10);
    return 2;
}
