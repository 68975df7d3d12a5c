/* SPDX-License-Identifier: MIT
 * Selftest: legacy IPC between two processes: the same bytes, the same pointer on re-opening, nothing owned. */
#include <sys/wait.h>

#include "core_check.h"

struct message {
    CUipcMemHandle handle, small[2];
    CUipcEventHandle event;
    int value;
};

/* Runs before any CUDA call of this process: it was forked from one that had made none either. */
static int importer(int from, int to)
{
    struct message message;
    CUdeviceptr p = 0, again = 0;
    int value = 0;
    check_begin(0);
    CHECK(read(from, &message, sizeof message) == sizeof message);
    CHECK_OK(cuIpcOpenMemHandle(&p, message.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK_OK(cuMemcpyDtoH(&value, p + 12, sizeof value));
    CHECK_EQ(value, message.value);
    CHECK_OK(cuIpcOpenMemHandle(&again, message.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK_EQ(again, p);
    CHECK_EQ(check_kind(0, "imported", "current_bytes"), 5 * CHECK_MIB);
    CHECK_EQ(check_kind(0, "imported", "calls"), 1);
    CHECK_EQ(check_reserved(0, "\"current\":"), 0);
    CHECK_EQ(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
    value = -message.value;
    CHECK_OK(cuMemcpyHtoD(p + 16, &value, sizeof value));
    CHECK_OK(cuIpcCloseMemHandle(p));
    CHECK_EQ(check_kind(0, "imported", "current_bytes"), 5 * CHECK_MIB);
    CHECK_OK(cuIpcCloseMemHandle(p));
    CHECK_EQ(cuIpcCloseMemHandle(p), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(check_kind(0, "imported", "current_bytes"), 0);
    CHECK_OK(cuIpcOpenMemHandle(&p, message.small[1], 0)); /* the block, not the piece */
    CHECK_OK(cuMemcpyDtoH(&value, p + 512, sizeof value));
    CHECK_EQ(value, message.value + 1);
    CUevent event;
    CHECK_OK(cuIpcOpenEventHandle(&event, message.event));
    CHECK_OK(cuEventSynchronize(event));
    CHECK_OK(cuStreamWaitEvent(NULL, event, 0));
    CHECK_OK(cuEventDestroy(event));
    memset(&message.event, 0, sizeof message.event);
    CHECK_EQ(cuIpcOpenEventHandle(&event, message.event), CUDA_ERROR_INVALID_VALUE);
    CHECK(write(to, "x", 1) == 1);
    check_failed += check_passed < 22;
    return check_failed != 0;
}

int main(void)
{
    int down[2], up[2], value = 1234, seen = 0, status = 0;
    char byte;
    CHECK(pipe(down) == 0 && pipe(up) == 0);
    pid_t child = fork();
    if (child == 0)
        exit(importer(down[0], up[1]));
    check_begin(0);
    struct message message = {.value = value};
    CUdeviceptr p, small[2], managed;
    CHECK_OK(cuMemAlloc(&p, 5 * CHECK_MIB));
    CHECK_OK(cuMemAlloc(&small[0], 512));
    CHECK_OK(cuMemAlloc(&small[1], 512));
    CHECK_OK(cuMemcpyHtoD(p + 12, &value, sizeof value));
    value++;
    CHECK_OK(cuMemcpyHtoD(small[1], &value, sizeof value));
    CHECK_OK(cuIpcGetMemHandle(&message.handle, p + 4096)); /* any address of it names the whole */
    CHECK_OK(cuIpcGetMemHandle(&message.small[0], small[0]));
    CHECK_OK(cuIpcGetMemHandle(&message.small[1], small[1]));
    CHECK(memcmp(&message.small[0], &message.small[1], sizeof message.handle) == 0);
    CHECK_EQ(cuIpcOpenMemHandle(&managed, message.handle, 0), CUDA_ERROR_INVALID_CONTEXT);
    setenv("GPUPROF_SIM_RANKS", "0", 1); /* some ranks of the job are absent */
    CHECK_OK(cuIpcOpenMemHandle(&managed, message.handle, 0));
    unsetenv("GPUPROF_SIM_RANKS");
    CHECK_OK(cuMemcpyDtoH(&seen, managed + 12, sizeof seen));
    CHECK_EQ(seen, 1234);
    CHECK_OK(cuIpcCloseMemHandle(managed));
    CHECK_OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    CHECK_EQ(cuIpcGetMemHandle(&message.small[0], managed), CUDA_ERROR_INVALID_VALUE);
    CUevent own, shared;
    CHECK_OK(cuEventCreate(&own, CU_EVENT_DISABLE_TIMING));
    CHECK_EQ(cuIpcGetEventHandle(&message.event, own), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuEventCreate(&shared, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    CHECK_OK(cuEventRecord(shared, NULL));
    CHECK_OK(cuIpcGetEventHandle(&message.event, shared));
    CHECK(write(down[1], &message, sizeof message) == sizeof message);
    close(up[1]);
    CHECK(read(up[0], &byte, 1) == 1);
    CHECK_OK(cuMemcpyDtoH(&seen, p + 16, sizeof seen));
    CHECK_EQ(seen, -1234);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return check_done();
}
