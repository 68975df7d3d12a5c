/* SPDX-License-Identifier: MIT
 *
 * A job for `gpuprof dryrun`, as its arguments say, in this order:
 *   mib=N       weights of N MiB, then five steps of a quarter as much
 *   local=N     the same on the device that mpirun's number of the process on this machine names; each larger one has 64 MiB more
 *   ranks=N     N children with RANK and LOCAL_RANK set, each on the device of its number, of which each larger one has 64 MiB more
 *   copies=N    copies N results to the host, and as often what the host has written
 *   status=N    ends with that status
 *   write=N     writes N MiB to a file without a name
 *   steps=N     N more such steps, a hundredth of a second each
 *   marked=N    the same, and each begins with a mark
 *   stack=N     starts a kernel whose threads have N bytes of stack each
 *   signal=N    ends by that signal
 * A request that fails ends it with status 9.
 */
#include <cuda.h>
#include <signal.h>
#include <sys/wait.h>

#include "api.h"
#include "finish.h"

static void job_check(CUresult result)
{
    if (result != CUDA_SUCCESS) {
        printf("no memory\n");
        exit(9);
    }
}

static __attribute__((noinline)) void job_weights(size_t mib)
{
    CUdeviceptr pointer;
    job_check(cuMemAlloc(&pointer, mib * MIB));
}

static __attribute__((noinline)) void job_steps(size_t mib, int count, unsigned pause_us, int marked)
{
    for (int i = 0; i < count; i++) {
        if (marked)
            api_gpuprof_mark("step");
        CUdeviceptr one, two;
        job_check(cuMemAlloc(&one, mib / 8 * MIB));
        job_check(cuMemAlloc(&two, mib / 8 * MIB));
        CHECK(cuMemFree(two));
        CHECK(cuMemFree(one));
        usleep(pause_us);
    }
}

static void job_stack(int bytes)
{
    char ptx[256];
    CUmodule module;
    CUfunction kernel;
    snprintf(ptx, sizeof(ptx),
             ".version 8.0\n.target sm_50\n.visible .entry deep()\n{\n.local .b8 __local_depot0[%d];\nret;\n}\n",
             bytes);
    job_check(cuModuleLoadData(&module, ptx));
    job_check(cuModuleGetFunction(&kernel, module, "deep"));
    job_check(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

/* The number of this process on its machine, from Open MPI, MPICH or torchrun. */
static int job_local(void)
{
    const char *text = getenv("OMPI_COMM_WORLD_LOCAL_RANK");
    if (!text)
        text = getenv("MPI_LOCALRANKID");
    if (!text)
        text = getenv("LOCAL_RANK");
    CHECK(text ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
    return text ? atoi(text) : 0;
}

static void job_work(int device, size_t mib)
{
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    job_weights(mib);
    job_steps(mib, 5, 0, 0);
}

/* Nothing computes on the simulated GPU: a result is memory that the host has not written. */
static void job_copies(int count)
{
    CUdeviceptr result, input;
    int number = 1;
    job_check(cuMemAlloc(&result, MIB));
    job_check(cuMemAlloc(&input, MIB));
    CHECK(cuMemcpyHtoD(input, &number, sizeof(number)));
    while (count-- > 0) {
        CHECK(cuMemcpyDtoH(&number, result, sizeof(number)));
        CHECK(cuMemcpyDtoH(&number, input, sizeof(number)));
    }
}

static void job_write(int mib)
{
    FILE *file = tmpfile();
    char *bytes = calloc(1, MIB);
    while (file && bytes && mib-- > 0)
        CHECK(fwrite(bytes, MIB, 1, file) == 1 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
    free(bytes);
}

static int job_ranks(int count, size_t mib)
{
    char text[16];
    int bad = 0, status;
    snprintf(text, sizeof(text), "%d", count);
    setenv("WORLD_SIZE", text, 1);
    for (int rank = 0; rank < count; rank++) {
        if (fork() != 0)
            continue;
        snprintf(text, sizeof(text), "%d", rank);
        setenv("RANK", text, 1);
        setenv("LOCAL_RANK", text, 1);
        job_work(rank, mib + 64u * (unsigned)rank);
        exit(0);
    }
    while (wait(&status) > 0)
        bad |= status;
    return bad ? 9 : 0;
}

int main(int argc, char **argv)
{
    size_t mib = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("job\n");
    for (int i = 1; i < argc; i++) {
        int number = 0;
        if (sscanf(argv[i], "mib=%zu", &mib) == 1 && !(argv[i + 1] && strncmp(argv[i + 1], "ranks=", 6) == 0))
            job_work(0, mib);
        else if (sscanf(argv[i], "local=%d", &number) == 1)
            job_work(job_local(), (size_t)(number + 64 * job_local()));
        else if (sscanf(argv[i], "ranks=%d", &number) == 1 && job_ranks(number, mib) != 0)
            return 9;
        else if (sscanf(argv[i], "steps=%d", &number) == 1)
            job_steps(mib, number, 10000, 0);
        else if (sscanf(argv[i], "marked=%d", &number) == 1 && api_load())
            job_steps(mib, number, 10000, 1);
        else if (sscanf(argv[i], "write=%d", &number) == 1)
            job_write(number);
        else if (sscanf(argv[i], "copies=%d", &number) == 1)
            job_copies(number);
        else if (sscanf(argv[i], "status=%d", &number) == 1)
            return number;
        else if (sscanf(argv[i], "stack=%d", &number) == 1)
            job_stack(number);
        else if (sscanf(argv[i], "signal=%d", &number) == 1)
            raise(number);
    }
    return 0;
}
