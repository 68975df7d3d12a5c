/* SPDX-License-Identifier: MIT
 * Selftest: pointer attributes, limits, notifications, checkpoints, the log, and 32 devices at once. */
#include "core_check.h"

static void pointers(void)
{
    CUdeviceptr p, again, start = 0;
    unsigned type = 0, managed = 9, capable = 9, on = 1;
    unsigned long long first = 0, second = 0;
    size_t size = 0;
    int ordinal = -1, stray = 0;
    CUcontext context = NULL, current;
    CHECK_OK(cuCtxGetCurrent(&current));
    CHECK_OK(cuMemAlloc(&p, 5000));
    CHECK_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 10));
    CHECK_EQ(type, CU_MEMORYTYPE_DEVICE);
    CHECK_OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + 4999));
    CHECK_OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p + 4999));
    CHECK(start == p && size == 5000);
    CHECK_OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    CHECK(context == current);
    CHECK_OK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p));
    CHECK_EQ(capable, 1);
    CHECK_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_HOST_POINTER, p), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)&stray),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
    on = 0;
    CHECK_OK(cuPointerGetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
    CHECK_EQ(on, 1);
    CUpointer_attribute asked[3] = {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                    CU_POINTER_ATTRIBUTE_BUFFER_ID};
    void *answers[3] = {&ordinal, &managed, &first};
    CHECK_OK(cuPointerGetAttributes(3, asked, answers, p));
    CHECK(ordinal == 31 && managed == 0 && first != 0);
    CHECK_OK(cuMemFree(p));
    CHECK_OK(cuMemAlloc(&again, 5000));
    CHECK_EQ(again, p);
    CHECK_OK(cuPointerGetAttribute(&second, CU_POINTER_ATTRIBUTE_BUFFER_ID, again));
    CHECK(second != first); /* the address came back, the allocation is another */
    CHECK_OK(cuPointerGetAttributes(3, asked, answers, (CUdeviceptr)&stray));
    CHECK(ordinal == CU_DEVICE_INVALID && first == 0);
    CHECK_OK(cuMemFree(again));
}

static void limits(void)
{
    size_t value = 0;
    CHECK_OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
    CHECK_EQ(value, 1024);
    CHECK_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    CHECK_OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
    CHECK_EQ(value, 4096);
    CHECK_EQ(cuCtxSetLimit(CU_LIMIT_CIG_ENABLED, 1), CUDA_ERROR_UNSUPPORTED_LIMIT);
    CHECK_EQ(cuCtxGetLimit(&value, CU_LIMIT_MAX), CUDA_ERROR_INVALID_VALUE);
}

static void notify(CUasyncNotificationInfo *info, void *data, CUasyncCallbackHandle handle)
{
    (void)info, (void)data, (void)handle;
}

static void notifications(void)
{
    CUasyncCallbackHandle handle;
    CHECK_EQ(cuDeviceRegisterAsyncNotification(0, NULL, NULL, &handle), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuDeviceRegisterAsyncNotification(0, notify, NULL, &handle));
    CHECK_EQ(cuDeviceUnregisterAsyncNotification(1, handle), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuDeviceUnregisterAsyncNotification(0, handle));
}

static void checkpoints(void)
{
    CUprocessState state;
    CUdeviceptr p;
    size_t before, during, after, total;
    int value = 11, pid = getpid();
    CHECK_OK(cuMemAlloc(&p, 4 * CHECK_MIB));
    CHECK_OK(cuMemcpyHtoD(p, &value, sizeof value));
    CHECK_OK(cuMemGetInfo(&before, &total));
    CHECK_EQ(cuCheckpointProcessCheckpoint(pid, NULL), CUDA_ERROR_ILLEGAL_STATE);
    CHECK_OK(cuCheckpointProcessLock(pid, NULL));
    CHECK_OK(cuCheckpointProcessCheckpoint(pid, NULL));
    CHECK_OK(cuCheckpointProcessGetState(pid, &state));
    CHECK_EQ(state, CU_PROCESS_STATE_CHECKPOINTED);
    CHECK_OK(cuMemGetInfo(&during, &total));
    CHECK_EQ(during, total);
    CHECK_OK(cuCheckpointProcessRestore(pid, NULL));
    CHECK_OK(cuCheckpointProcessUnlock(pid, NULL));
    CHECK_OK(cuMemGetInfo(&after, &total));
    CHECK_EQ(after, before);
    value = 0;
    CHECK_OK(cuMemcpyDtoH(&value, p, sizeof value));
    CHECK_EQ(value, 11);
    CHECK_EQ(check_reserved(31, "\"current\":"), 4 * CHECK_MIB);
    CHECK_OK(cuMemFree(p));
    CHECK_EQ(cuCheckpointProcessLock(1, NULL), CUDA_ERROR_NOT_SUPPORTED);
}

static void many(void)
{
    CUdeviceptr p;
    for (int i = 0; i < 32; i++) {
        check_begin(i);
        CHECK_OK(cuMemAlloc(&p, 1000 + (size_t)i));
        CHECK_EQ(check_kind(i, "linear", "current_bytes"), 1000 + i);
        CHECK_OK(cuMemFree(p));
    }
    CHECK_EQ(check_kind(17, "linear", "peak_bytes"), 1017);
    CHECK_EQ(check_number(17, "\"driver_calls\"", "\"cuMemAlloc_v2\":"), 1);
}

static void heard(void *data, CUlogLevel level, char *message, size_t length)
{
    (void)level, (void)message, (void)length;
    ++*(int *)data;
}

static void logs(void)
{
    CUlogsCallbackHandle first = NULL, second = NULL;
    CUlogIterator at = 7;
    char text[8] = "before";
    size_t size = sizeof text;
    int calls = 0;

    CHECK_EQ(cuLogsRegisterCallback(NULL, NULL, &first), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuLogsRegisterCallback(heard, &calls, &first));
    CHECK_OK(cuLogsRegisterCallback(heard, &calls, &second));
    CHECK_OK(cuLogsRegisterCallback(heard, &calls, NULL));
    CHECK(first && second && first != second);
    CHECK_OK(cuLogsCurrent(&at, 0));
    CHECK_EQ(cuLogsCurrent(&at, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuLogsDumpToMemory(&at, text, &size, 0));
    CHECK(size == 0 && text[0] == '\0');
    CHECK_EQ(cuLogsDumpToMemory(NULL, text, &size, 0), CUDA_ERROR_INVALID_VALUE); /* no room */
    CHECK_OK(cuLogsDumpToFile(NULL, "/dev/null", 0));
    CHECK_EQ(cuLogsDumpToFile(NULL, "/dev/null/none", 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuLogsUnregisterCallback(first));
    CHECK_EQ(cuLogsUnregisterCallback(first), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuLogsUnregisterCallback(second));
    CHECK_EQ(calls, 0);
}

int main(void)
{
    setenv("GPUPROF_SIM", "devices=32,memory=80GiB", 1);
    many();
    check_begin(31);
    pointers();
    limits();
    notifications();
    checkpoints();
    logs();
    return check_done();
}
