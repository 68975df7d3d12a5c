/* SPDX-License-Identifier: MIT
 *
 * Programs that request memory in the ways that hide who asked. The argument chooses one; in each,
 * holder() is the place that matters: it has most at the peak.
 *
 *      wrapper     one function of the program's own requests all memory
 *      chain       the same, through two more
 *      kinds       the wrapper requests device and pinned memory, on lines of their own
 *      unrolled    holder's loop is two calls in the compiled code, and it is inlined twice
 *      threads     holder runs on four threads
 *      oom         holder asks for more than there is, after the others got theirs
 *      drip        holder keeps a block after pauses of any length, so there are no steps
 *      leak        holder keeps a block in each of 40 steps
 */
#include <cuda.h>

#include "finish.h"
#include <pthread.h>

#define OUTLINE __attribute__((noinline, noclone, no_icf, optimize("no-optimize-sibling-calls")))
#ifdef __clang__
#undef OUTLINE
#define OUTLINE __attribute__((noinline))
#endif

static volatile int sink;
static CUcontext context;

OUTLINE static CUdeviceptr get(size_t bytes, int pinned)
{
    CUdeviceptr pointer = 0;
    void *host = NULL;
    if (pinned)
        CHECK(cuMemAllocHost(&host, bytes));
    else
        CHECK(cuMemAlloc(&pointer, bytes));
    sink++;
    return pointer;
}

OUTLINE static CUdeviceptr get_checked(size_t bytes)
{
    CUdeviceptr pointer = get(bytes, 0);
    sink++;
    return pointer;
}

OUTLINE static CUdeviceptr get_tensor(size_t bytes)
{
    CUdeviceptr pointer = get_checked(bytes);
    sink++;
    return pointer;
}

/* ---- a wrapper --------------------------------------------------------------------------------------------------- */

typedef CUdeviceptr allocate(size_t bytes);

OUTLINE static CUdeviceptr get_device(size_t bytes)
{
    CUdeviceptr pointer = get(bytes, 0);
    sink++;
    return pointer;
}

OUTLINE static void weights(allocate *from)
{
    from(8 * MIB);
    sink++;
}

OUTLINE static void batches(allocate *from)
{
    from(4 * MIB);
    sink++;
}

OUTLINE static void optimizer(allocate *from)
{
    from(2 * MIB);
    sink++;
}

OUTLINE static void holder(allocate *from)
{
    for (int i = 0; i < 8; i++)
        from(16 * MIB);
    sink++;
}

static void wrapped(allocate *from)
{
    weights(from);
    batches(from);
    optimizer(from);
    holder(from);
}

/* ---- one line, compiled several times ---------------------------------------------------------------------------- */

static inline __attribute__((always_inline)) void unrolled_get(size_t bytes)
{
    CUdeviceptr pointer = 0;
    CHECK(cuMemAlloc(&pointer, bytes));
}

OUTLINE static void unrolled(void)
{
    /* clang-format off */
    unrolled_get(32 * MIB), unrolled_get(32 * MIB), unrolled_get(32 * MIB); /* one line, three calls */
    /* clang-format on */
    sink++;
}

/* ---- threads and steps ------------------------------------------------------------------------------------------- */

static void *worker(void *argument)
{
    CHECK(cuCtxSetCurrent(context));
    holder(get_device);
    return argument;
}

static void threads(void)
{
    pthread_t thread[4];
    weights(get_device);
    batches(get_device);
    optimizer(get_device);
    for (int i = 0; i < 4; i++)
        pthread_create(&thread[i], NULL, worker, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
}

OUTLINE static void keep(void)
{
    get_device(MIB);
    sink++;
}

static void leak(void)
{
    weights(get_device);
    for (int i = 0; i < 40; i++) {
        CUdeviceptr batch = get_device(4 * MIB), more = get_tensor(2 * MIB);
        keep();
        CHECK(cuMemFree(batch));
        CHECK(cuMemFree(more));
        usleep(5000);
    }
}

static void drip(void)
{
    unsigned random = 1;
    for (int i = 0; i < 120; i++) {
        random = random * 1103515245 + 12345;
        get_device((1 + i % 7) * MIB);
        usleep(200 + (random >> 16) % 12000);
    }
}

OUTLINE static void greedy(void)
{
    get_device(1ul << 40);
    sink++;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "wrapper";
    program_start();
    CHECK(cuCtxGetCurrent(&context));
    if (strcmp(what, "wrapper") == 0) {
        wrapped(get_device);
    } else if (strcmp(what, "chain") == 0) {
        wrapped(get_tensor);
    } else if (strcmp(what, "kinds") == 0) {
        wrapped(get_device);
        get(MIB, 1);
    } else if (strcmp(what, "unrolled") == 0) {
        unrolled();
    } else if (strcmp(what, "threads") == 0) {
        threads();
    } else if (strcmp(what, "drip") == 0) {
        drip();
    } else if (strcmp(what, "leak") == 0) {
        leak();
    } else {
        wrapped(get_device);
        usleep(300000); /* `gpuprof run` must find the process while it is alive */
        greedy();
    }
    return finish();
}
