/* SPDX-License-Identifier: MIT
 * Checkpoints and notifications: cuCheckpointProcess* of this very process,
 * cuDevice(Un)RegisterAsyncNotification. While checkpointed the devices' physical bytes are free
 * and come back at the restore; no record changes. */
#include "cuda/sim.h"

#include <stdlib.h>
#include <unistd.h>

static CUprocessState sim_state = CU_PROCESS_STATE_RUNNING;
static uint64_t sim_stashed[SIM_MAX_DEVICES]; /* bytes that were taken when the checkpoint was made */

/* From one state to the next; other processes cannot be reached from here. */
static CUresult sim_checkpoint_step(int pid, CUprocessState from, CUprocessState to)
{
    if (pid != getpid())
        return CUDA_ERROR_NOT_SUPPORTED;
    if (sim_state != from)
        return CUDA_ERROR_ILLEGAL_STATE;
    sim_state = to;
    return CUDA_SUCCESS;
}

SIM_API2(770, 12080, cuCheckpointProcessLock, int, pid, CUcheckpointLockArgs *, args)
{
    (void)args; /* the timeout: nothing has to be waited for */
    return sim_checkpoint_step(pid, CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED);
}

SIM_API2(771, 12080, cuCheckpointProcessCheckpoint, int, pid, CUcheckpointCheckpointArgs *, args)
{
    (void)args;
    CUresult result = sim_checkpoint_step(pid, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_CHECKPOINTED);
    for (int device = 0; result == CUDA_SUCCESS && device < sim_device_count; device++) {
        sim_stashed[device] = sim_devices[device].used;
        sim_device_give(device, sim_stashed[device]);
    }
    return result;
}

SIM_API2(772, 12080, cuCheckpointProcessRestore, int, pid, CUcheckpointRestoreArgs *, args)
{
    if (args && args->gpuPairsCount)
        return CUDA_ERROR_NOT_SUPPORTED; /* to other devices than it came from */
    CUresult result = sim_checkpoint_step(pid, CU_PROCESS_STATE_CHECKPOINTED, CU_PROCESS_STATE_LOCKED);
    for (int device = 0; result == CUDA_SUCCESS && device < sim_device_count; device++) {
        result = sim_device_take(device, sim_stashed[device]);
        if (result == CUDA_SUCCESS)
            continue;
        while (--device >= 0) /* another process has taken the memory */
            sim_device_give(device, sim_stashed[device]);
        sim_state = CU_PROCESS_STATE_CHECKPOINTED;
        return result;
    }
    return result;
}

SIM_API2(773, 12080, cuCheckpointProcessUnlock, int, pid, CUcheckpointUnlockArgs *, args)
{
    (void)args;
    return sim_checkpoint_step(pid, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING);
}

/* Ends the step that copies memory to storage of the program's own, which this process never begins. */
SIM_API1(826, 13040, cuCheckpointOperationComplete, void *, handle)
{
    return handle ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
}

SIM_API2(769, 12080, cuCheckpointProcessGetState, int, pid, CUprocessState *, state)
{
    if (pid != getpid())
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!state)
        return CUDA_ERROR_INVALID_VALUE;
    *state = sim_state;
    return CUDA_SUCCESS;
}

/* ---- notifications ----------------------------------------------------------------------------------------------- */

struct CUasyncCallbackEntry_st {
    struct CUasyncCallbackEntry_st *next;
    CUdevice device;
    CUasyncCallback callback;
    void *data;
};
static CUasyncCallbackHandle sim_watchers;

/* The one event is "over budget", which is a matter of desktop memory managers: the simulated
 * device refuses what it cannot hold, so there is never a reason for a callback. */
SIM_API4(735, 12040, cuDeviceRegisterAsyncNotification, CUdevice, device, CUasyncCallback, callbackFunc, void *,
         userData, CUasyncCallbackHandle *, callback)
{
    if (!sim_device_get(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!callbackFunc || !callback)
        return CUDA_ERROR_INVALID_VALUE;
    CUasyncCallbackHandle entry = calloc(1, sizeof *entry);
    if (!entry)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *entry = (struct CUasyncCallbackEntry_st){sim_watchers, device, callbackFunc, userData};
    *callback = sim_watchers = entry;
    return CUDA_SUCCESS;
}

SIM_API2(736, 12040, cuDeviceUnregisterAsyncNotification, CUdevice, device, CUasyncCallbackHandle, callback)
{
    if (!sim_device_get(device))
        return CUDA_ERROR_INVALID_DEVICE;
    for (CUasyncCallbackHandle *at = &sim_watchers; *at; at = &(*at)->next)
        if (*at == callback && callback->device == device) {
            *at = callback->next;
            free(callback);
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}
