/* SPDX-License-Identifier: MIT
 *
 * finish.h: shared by all CUDA test programs: CHECK, REPORT, a first context, and the documented
 * end. Included by one .c file each; needs only libc, so it compiles with NVIDIA's toolkit
 * unchanged.
 *
 * A program prints neither addresses nor times, leaves some memory live on purpose, and ends by
 * finish(): that asks the simulated GPU (when it is one) for its ledger, then waits so that a
 * harness can look at the live process.
 *
 *   GPUPROF_TEST_LEDGER=FILE   `%p` is the pid; written by the simulator in mid-run
 *   GPUPROF_TEST_HOLD=FD       a line with the pid is written here ...
 *   GPUPROF_TEST_GO=FD         ... and end-of-file awaited here
 *
 * A program must not stop at the first failed call: a harness makes any call fail and checks the
 * calls that follow.
 */
#ifndef GP_TEST_PROGRAMS_FINISH_H
#define GP_TEST_PROGRAMS_FINISH_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KIB (1024ul)
#define MIB (1024ul * 1024ul)

#define PROGRAM_UNUSED __attribute__((unused))

static int program_failures;

/* A call that should succeed: a failure is printed, counted, and the program goes on. */
#define CHECK(...) program_check((int)(__VA_ARGS__), #__VA_ARGS__)
/* A call whose result is the point. */
#define REPORT(_what, _call) printf("%s: %d\n", _what, (int)(_call))

static PROGRAM_UNUSED int program_check(int result, const char *text)
{
    if (result != 0) {
        /* Only the name: arguments are long and may differ by platform. */
        printf("failed: %.*s: %d\n", (int)strcspn(text, "("), text, result);
        __atomic_add_fetch(&program_failures, 1, __ATOMIC_RELAXED);
    }
    return result;
}

static PROGRAM_UNUSED void program_ledger(void)
{
    const char *form = getenv("GPUPROF_TEST_LEDGER");
    int (*write_ledger)(const char *) = NULL;
    char path[512];
    const char *mark = form != NULL ? strstr(form, "%p") : NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD); /* the runtime may have loaded it for itself */

    if (driver != NULL) {
        *(void **)&write_ledger = dlsym(driver, "sim_ledger_write");
        dlclose(driver);
    }
    if (form == NULL || write_ledger == NULL)
        return;
    if (mark != NULL)
        snprintf(path, sizeof(path), "%.*s%d%s", (int)(mark - form), form, (int)getpid(), mark + 2);
    else
        snprintf(path, sizeof(path), "%s", form);
    write_ledger(path);
}

static PROGRAM_UNUSED void program_hold(void)
{
    const char *hold = getenv("GPUPROF_TEST_HOLD");
    const char *go = getenv("GPUPROF_TEST_GO");
    char line[16];
    char byte;
    int len = snprintf(line, sizeof(line), "%d\n", (int)getpid());
    if (hold == NULL || go == NULL || write(atoi(hold), line, (size_t)len) != len)
        return;
    while (read(atoi(go), &byte, 1) < 0 && errno == EINTR) {
    }
}

/* The documented end: no CUDA call may be running or follow but the driver's own at exit.  Returns
 * the exit code. */
static PROGRAM_UNUSED int finish(void)
{
    fflush(stdout);
    program_ledger();
    program_hold();
    return program_failures != 0;
}

#ifdef cuMemAlloc /* cuda.h was included: both headers make this name a macro */
/* Device 0's primary context, current. */
static PROGRAM_UNUSED CUdevice program_start(void)
{
    CUdevice device = 0;
    CUcontext context = NULL;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    return device;
}

static PROGRAM_UNUSED CUdeviceptr program_alloc(size_t bytes)
{
    CUdeviceptr pointer = 0;
    CHECK(cuMemAlloc(&pointer, bytes));
    return pointer;
}
#endif

#endif
