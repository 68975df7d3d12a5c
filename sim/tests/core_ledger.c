/* SPDX-License-Identifier: MIT
 * Selftest: two threads on one device for a second or longer: the ledger balances at the end, the
 * peak is a value that was reached, no byte of a block belongs to two allocations, and the device
 * has all its memory back. */
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

#include "core_check.h"

#define SLOTS 64
/* A second of a loaded machine may have fewer, so the threads go on for up to half a minute. */
#define CALLS 1000

struct worker {
    CUcontext context;
    unsigned seed;
    unsigned long long calls, bytes;
    long long failed, mixed;
};

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static size_t random_size(struct worker *w)
{
    unsigned r = (unsigned)rand_r(&w->seed);
    return r % 8 ? 1 + r % 70000 : 1 + r % (6u << 20);
}

/* Each block is stamped at both ends with its address; a foreign stamp means that two blocks shared bytes. */
static void stamp(struct worker *w, CUdeviceptr p, size_t size, int check)
{
    CUdeviceptr ends[2] = {p, p + size - 8}, value;
    for (int i = 0; i < 2 && size >= 16; i++) {
        value = p + (CUdeviceptr)i;
        if (!check)
            w->failed += cuMemcpyHtoD(ends[i], &value, 8) != CUDA_SUCCESS;
        else if (cuMemcpyDtoH(&value, ends[i], 8) != CUDA_SUCCESS)
            w->failed++;
        else
            w->mixed += value != p + (CUdeviceptr)i;
    }
}

static void *work(void *argument)
{
    struct worker *w = argument;
    CUdeviceptr p[SLOTS] = {0};
    size_t size[SLOTS];
    double begin = seconds();
    w->failed += cuCtxSetCurrent(w->context) != CUDA_SUCCESS;
    while (seconds() < begin + 1 || (w->calls <= CALLS && seconds() < begin + 30))
        for (int i = 0; i < 100; i++) {
            int slot = rand_r(&w->seed) % SLOTS;
            if (p[slot]) {
                stamp(w, p[slot], size[slot], 1);
                w->failed += cuMemFree(p[slot]) != CUDA_SUCCESS;
                p[slot] = 0;
            } else {
                size[slot] = random_size(w);
                w->failed += cuMemAlloc(&p[slot], size[slot]) != CUDA_SUCCESS;
                w->calls++;
                w->bytes += size[slot];
                stamp(w, p[slot], size[slot], 0);
            }
        }
    for (int slot = 0; slot < SLOTS; slot++)
        if (p[slot]) {
            stamp(w, p[slot], size[slot], 1);
            w->failed += cuMemFree(p[slot]) != CUDA_SUCCESS;
        }
    return NULL;
}

/* A process of its own, forked before any CUDA call: allocates, forks, exits; its fork writes nothing. */
static void exit_child(const char *pattern)
{
    CUdeviceptr p;
    setenv("GPUPROF_SIM_LEDGER", pattern, 1);
    check_begin(0);
    CHECK_OK(cuMemAlloc(&p, 12345));
    pid_t child = fork();
    if (child == 0)
        exit(0);
    CHECK(waitpid(child, NULL, 0) == child);
    exit(check_failed != 0);
}

static void written_at_exit(void)
{
    char folder[] = "/tmp/sim-ledger-XXXXXX", path[128], text[65536] = "", pattern[128];
    int status = -1;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(pattern, sizeof pattern, "%s/%%p.json", folder);
    pid_t child = fork();
    if (child == 0)
        exit_child(pattern);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    snprintf(path, sizeof path, "%s/%d.json", folder, (int)child);
    FILE *file = fopen(path, "r");
    CHECK(file && fread(text, 1, sizeof text - 1, file) > 0);
    CHECK(strstr(text,
                 "\"linear\":{\"current_bytes\":12345,\"peak_bytes\":12345,\"calls\":1,\"live\":1,\"live_peak\":1}") !=
          NULL);
    CHECK(strstr(text, "\"contexts\":1,") != NULL);
    if (file)
        fclose(file);
    unlink(path);
    CHECK(rmdir(folder) == 0); /* fails if another file was written */
}

int main(void)
{
    written_at_exit();
    struct worker workers[2] = {{.seed = 1}, {.seed = 2}};
    pthread_t threads[2];
    size_t before, after, total;
    CUcontext context = check_begin(0);
    CHECK_OK(cuMemGetInfo(&before, &total));
    for (int i = 0; i < 2; i++) {
        workers[i].context = context;
        CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(workers[i].failed, 0);
        CHECK_EQ(workers[i].mixed, 0);
    }
    CHECK_OK(cuMemGetInfo(&after, &total));
    CHECK_EQ(after, before);
    CHECK_EQ(check_kind(0, "linear", "current_bytes"), 0);
    CHECK_EQ(check_reserved(0, "\"current\":"), 0);
    CHECK_EQ(check_allocated(0, "\"current\":"), 0);
    CHECK_EQ(check_kind(0, "linear", "calls"), workers[0].calls + workers[1].calls);
    CHECK_EQ(check_reserved(0, "\"peak\":"), check_kind(0, "linear", "peak_bytes"));
    CHECK(check_reserved(0, "\"peak\":") < (long long)(workers[0].bytes + workers[1].bytes));
    CHECK(workers[0].calls > CALLS && workers[1].calls > CALLS);
    fprintf(stderr, "core_ledger: %llu allocations\n", workers[0].calls + workers[1].calls);
    return check_done();
}
