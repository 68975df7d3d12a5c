/* SPDX-License-Identifier: MIT
 * Selftest: cuGetProcAddress by name, version and flags; error names; fork; the fault script. */
#include <sys/wait.h>
#include <time.h>

#include "core_check.h"

static void *look(const char *name, int version, int flags, int expected)
{
    void *function = (void *)1;
    CUdriverProcAddressQueryResult status = 9;
    CHECK_OK(cuGetProcAddress(name, &function, version, flags, &status));
    CHECK_EQ(status, expected);
    CHECK((function != NULL) == (expected == CU_GET_PROC_ADDRESS_SUCCESS));
    return function;
}

#define SYMBOL(name) dlsym(RTLD_DEFAULT, name)

static void addresses(void)
{
    void *any;
    CUdriverProcAddressQueryResult status;
    CHECK(look("cuMemAlloc", 12000, 0, 0) == SYMBOL("cuMemAlloc_v2"));
    CHECK(look("cuMemAlloc", 2000, 0, 0) == SYMBOL("cuMemAlloc"));
    CHECK(look("cuCtxCreate", 13000, 0, 0) == SYMBOL("cuCtxCreate_v4"));
    CHECK(look("cuCtxCreate", 12000, 0, 0) == SYMBOL("cuCtxCreate_v3"));
    CHECK(look("cuIpcOpenMemHandle", 4010, 0, 0) == SYMBOL("cuIpcOpenMemHandle"));
    CHECK(look("cuIpcOpenMemHandle", 11000, 0, 0) == SYMBOL("cuIpcOpenMemHandle_v2"));
    CHECK(look("cuCtxGetDevice", 2000, 0, 0) == SYMBOL("cuCtxGetDevice"));
    CHECK(look("cuCtxGetDevice", 13000, 0, 0) == SYMBOL("cuCtxGetDevice_v2"));
    CHECK(look("cuMemcpyHtoD", 7000, 2, 0) == SYMBOL("cuMemcpyHtoD_v2_ptds"));
    CHECK(look("cuMemcpyHtoD", 7000, 0, 0) == SYMBOL("cuMemcpyHtoD_v2"));
    CHECK(look("cuMemsetD8Async", 7000, 2, 0) == SYMBOL("cuMemsetD8Async_ptsz"));
    CHECK(look("cuMemFree", 12000, 2, 0) == SYMBOL("cuMemFree_v2")); /* it has no twin */
    CHECK(look("cuMemAlloc", 12000, 3, 0) == SYMBOL("cuMemAlloc_v2"));
    CHECK(look("cuGetProcAddress", 12000, 0, 0) == SYMBOL("cuGetProcAddress_v2"));
    look("cuMemAdvise", 7000, 0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    look("cuNothing", 12000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    look("", 0, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    CHECK_EQ(cuGetProcAddress("cuInit", &any, 13050, 0, &status), CUDA_ERROR_INVALID_VALUE);
}

static void names(void)
{
    const char *text = NULL;
    int version = 0;
    CHECK_OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    CHECK(text && !strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY"));
    CHECK_OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    CHECK(text && !strcmp(text, "out of memory"));
    CHECK_EQ(cuGetErrorName((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
    CHECK(text == NULL);
    CHECK_OK(cuDriverGetVersion(&version));
    CHECK_EQ(version, 13040);
}

static void faults(void)
{
    CUdeviceptr p[4] = {0};
    struct timespec start, end;
    CHECK_OK(cuMemAlloc(&p[0], 512));
    CHECK_OK(cuMemAlloc(&p[1], 512));
    CHECK_EQ(cuMemAlloc(&p[2], 512), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_OK(cuMemAlloc(&p[3], 512));
    CHECK_EQ(check_kind(0, "linear", "calls"), 3);
    CHECK_EQ(check_number(0, "\"driver_calls\"", "\"cuMemAlloc_v2\":"), 4);
    CHECK_EQ(cuMemsetD8(p[0], 1, 1), CUDA_SUCCESS);
    CHECK_EQ(cuMemsetD8(p[0], 1, 1), CUDA_ERROR_UNKNOWN);
    CHECK_EQ(cuMemsetD8(p[0], 1, 1), CUDA_ERROR_UNKNOWN);
    clock_gettime(CLOCK_MONOTONIC, &start);
    CHECK_OK(cuMemFree(p[0]));
    clock_gettime(CLOCK_MONOTONIC, &end);
    CHECK((end.tv_sec - start.tv_sec) * 1000000000ll + end.tv_nsec - start.tv_nsec >= 30000000);
    CHECK_OK(cuMemFree(p[1]));
    CHECK_OK(cuMemFree(p[3]));
}

/* CUDA does not survive a fork: every call of the child says so, and it writes no ledger. */
static void forked(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr p;
        _exit(cuMemAlloc(&p, 512) == CUDA_ERROR_NOT_INITIALIZED && cuInit(0) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static int refused(const char *spec, const char *script)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        setenv("GPUPROF_SIM", spec, 1);
        setenv("GPUPROF_SIM_FAULTS", script, 1);
        if (!freopen("/dev/null", "w", stderr))
            _exit(2);
        _exit(cuInit(0) == CUDA_ERROR_SYSTEM_NOT_READY ? 0 : 1);
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(void)
{
    CHECK_EQ(cuInit(1), CUDA_ERROR_INVALID_VALUE);
    addresses();
    CHECK(refused("devices=0", ""));
    CHECK(refused("memory=12", ""));
    CHECK(refused("latency=slow", ""));
    CHECK(refused("faults=/nonexistent/file", ""));
    CHECK(refused("", "cuMemAlloc_v2 0 fail 2"));
    CHECK(refused("", "cuMemAlloc_v2 1 break"));
    setenv("GPUPROF_SIM", "latency=typical", 1);
    setenv("GPUPROF_SIM_FAULTS",
           "cuMemAlloc_v2 3 fail 2; cuMemsetD8_v2 2+ fail 999 ;# a comment;cuMemFree_v2 1 delay 30ms", 1);
    check_begin(0);
    names();
    faults();
    forked();
    CHECK(strstr(check_ledger(), "\"simulated_ns\":0,") == NULL);
    return check_done();
}
