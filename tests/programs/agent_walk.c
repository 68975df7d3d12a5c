/* SPDX-License-Identifier: MIT
 *
 * agent_walk.c: allocates and frees GPU memory by commands on stdin, and answers each with a
 * number.
 *
 *      a DEVICE BYTES   allocates; answers with the block's number (-2: refused)
 *      f BLOCK          frees it
 *      c TIMES BYTES    allocates and frees that often on device 0
 *      l FILE           writes the simulator's ledger
 *      p                answers with the pid
 *      x                executes itself again, which closes GPUPROF_TEST_EXEC
 *      e  _             ends by exit, by _exit
 *      w                allocates host memory without end
 *      s CALLS_PER_S BYTES  starts to time a thread's calls, with real-time priority if allowed (answers 1, else 0)
 *      q FILE           ends that; the file has each call: start and length in ns, two uint64_t
 */
#include <cuda.h>

#include "finish.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>

#define BLOCKS 4096
#define CALLS  (1u << 21) /* 3 minutes at 10 000 a second */

struct call {
    uint64_t start_ns, took_ns;
};

static CUdeviceptr blocks[BLOCKS];
static CUcontext contexts[16];
static struct call *calls;
static uint64_t call_count;
static int is_ending;
static long every_ns;
static size_t timed_bytes;
static pthread_t timer;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static int enter(int device)
{
    if (device < 0 || device >= 16)
        return -1;
    if (!contexts[device] && CHECK(cuDevicePrimaryCtxRetain(&contexts[device], device)))
        return -1;
    return CHECK(cuCtxSetCurrent(contexts[device]));
}

static long long allocate(int device, long long bytes)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i])
            continue;
        if (enter(device) || cuMemAlloc(&blocks[i], (size_t)bytes) != CUDA_SUCCESS)
            return -2;
        return i;
    }
    return -3;
}

static long long give_back(long long i)
{
    if (i < 0 || i >= BLOCKS || !blocks[i])
        return -1;
    int bad = CHECK(cuMemFree(blocks[i]));
    blocks[i] = 0;
    return bad;
}

static long long churn(long long times, long long bytes)
{
    enter(0);
    for (; times > 0; times--) {
        CUdeviceptr pointer = 0;
        if (CHECK(cuMemAlloc(&pointer, (size_t)bytes)) || CHECK(cuMemFree(pointer)))
            return -1;
    }
    return 0;
}

static void *time_calls(void *unused)
{
    CUdeviceptr pointer = 0;
    (void)unused;
    enter(0);
    /* relaxed: only is_ending is passed on, and pthread_join orders the rest */
    while (!__atomic_load_n(&is_ending, __ATOMIC_RELAXED) && call_count < CALLS) {
        struct call *call = &calls[call_count];
        call->start_ns = now_ns();
        cuMemAlloc(&pointer, timed_bytes);
        cuMemFree(pointer);
        call->took_ns = now_ns() - call->start_ns;
        call_count++;
        clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, every_ns}, NULL);
    }
    return NULL;
}

/* A page that is touched for the first time is a stall of its own. */
static long long times_begin(long long per_second, long long bytes)
{
    struct sched_param priority = {.sched_priority = 50};
    is_ending = 0;
    call_count = 0;
    if (calls == NULL)
        calls = mmap(NULL, CALLS * sizeof *calls, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
                     -1, 0);
    every_ns = per_second > 0 ? (long)(1000000000 / per_second) : 100000;
    timed_bytes = (size_t)bytes;
    if (calls == MAP_FAILED || pthread_create(&timer, NULL, time_calls, NULL) != 0)
        return -1;
    return pthread_setschedparam(timer, SCHED_FIFO, &priority) == 0;
}

static long long times_end(const char *path)
{
    __atomic_store_n(&is_ending, 1, __ATOMIC_RELAXED);
    pthread_join(timer, NULL);
    FILE *file = fopen(path, "w");
    size_t wrote = file ? fwrite(calls, sizeof *calls, call_count, file) : 0;
    return file && fclose(file) == 0 && wrote == call_count ? (long long)call_count : -1;
}

static void execute_again(char *self)
{
    const char *fd = getenv("GPUPROF_TEST_EXEC");
    if (fd)
        fcntl(atoi(fd), F_SETFD, FD_CLOEXEC);
    execl("/proc/self/exe", self, (char *)NULL);
}

static long long command(char *line, char *self)
{
    int (*write_ledger)(const char *) = NULL;
    long long a = 0, b = 0;
    sscanf(line + 1, "%lld %lld", &a, &b);
    line[strcspn(line, "\n")] = '\0';
    switch (line[0]) {
    case 'a':
        return allocate((int)a, b);
    case 'f':
        return give_back(a);
    case 'c':
        return churn(a, b);
    case 'l':
        *(void **)&write_ledger = dlsym(RTLD_DEFAULT, "sim_ledger_write");
        return write_ledger ? write_ledger(line + 2) : -1;
    case 'p':
        return getpid();
    case 'x':
        execute_again(self);
        return -1;
    case 'w':
        for (;;)
            memset(malloc(1 << 20), 1, 1 << 20);
    case 's':
        return times_begin(a, b);
    case 'q':
        return times_end(line + 2);
    case '_':
        _exit(0);
    default:
        exit(program_failures != 0);
    }
}

int main(int argc, char **argv)
{
    char line[512];
    (void)argc;
    CHECK(cuInit(0));
    enter(0);
    setvbuf(stdin, NULL, _IONBF, 0); /* unread input survives an exec */
    printf("0\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        printf("%lld\n", command(line, argv[0]));
        fflush(stdout);
    }
    return program_failures != 0;
}
