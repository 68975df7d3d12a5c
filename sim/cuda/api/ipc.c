/* SPDX-License-Identifier: MIT
 * Legacy IPC: a handle names process, file and range; the importer maps the same bytes. The handle
 * means the whole underlying block, as on a device: handles of two small allocations of one block
 * differ at most in the size that the ledger counts, open to the same address, and that is the
 * block's base (openucx/ucx discussion 11724, pytorch/tensorpipe issue 248). */
#include "cuda/ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIM_IPC_MAGIC 0x63706973u

SIM_API2(328, 4010, cuIpcGetMemHandle, CUipcMemHandle *, pHandle, CUdeviceptr, dptr)
{
    struct sim_context *context;
    CUresult result = sim_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    const struct sim_memory *memory = sim_memory_find(dptr);
    /* Not for managed, pool, VMM or imported memory: pointer attribute 10 says so beforehand. */
    if (!pHandle || !memory || memory->type != SIM_MEMORY_LINEAR)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_space_is_shared())
        return CUDA_ERROR_NOT_SUPPORTED;
    struct sim_ipc_handle handle = {.magic = SIM_IPC_MAGIC,
                                    .pid = getpid(),
                                    .fd = sim_space_fd(),
                                    .device = sim_devices[memory->device].physical,
                                    .offset = memory->offset,
                                    .mapped = sim_round_up(memory->size, SIM_PAGE),
                                    .size = memory->size,
                                    .id = memory->id};
    if (memory->block) {
        sim_block_base(memory->block, &handle.offset);
        handle.mapped = SIM_PAGE;
        handle.id = 0; /* the block's offset tells it apart while any of its pieces lives */
    }
    memset(pHandle, 0, sizeof *pHandle);
    memcpy(pHandle, &handle, sizeof handle);
    return CUDA_SUCCESS;
}

static bool sim_ipc_same(const struct sim_ipc_handle *a, const struct sim_ipc_handle *b)
{
    return a->pid == b->pid && a->offset == b->offset && a->mapped == b->mapped && a->id == b->id;
}

static struct sim_memory *sim_import_find(const struct sim_context *context, const struct sim_ipc_handle *handle)
{
    for (struct sim_memory *memory = context->memory; memory; memory = memory->next)
        if (memory->type == SIM_MEMORY_IPC && sim_ipc_same(&((struct sim_ipc_import *)memory->owner)->handle, handle))
            return memory;
    return NULL;
}

/* Maps the exporter's file through /proc: it works as long as that process lives and is one's own. */
static CUresult sim_import_map(struct sim_memory *memory, const struct sim_ipc_handle *handle)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->pid, handle->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ESRCH ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_MAP_FAILED;
    memory->base = sim_space_reserve(handle->mapped, SIM_PAGE, 0);
    int error = memory->base ? sim_space_map(memory->base, handle->mapped, fd, handle->offset, PROT_READ | PROT_WRITE)
                             : -ENOMEM;
    close(fd);
    if (error && memory->base)
        sim_space_release(memory->base, handle->mapped);
    return error ? CUDA_ERROR_MAP_FAILED : CUDA_SUCCESS;
}

static CUresult sim_import_new(struct sim_context *context, const struct sim_ipc_handle *handle, CUdeviceptr *out)
{
    struct sim_ipc_import *import = calloc(1, sizeof *import);
    struct sim_memory *memory = calloc(1, sizeof *memory);
    CUresult result = import && memory ? sim_import_map(memory, handle) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(import);
        free(memory);
        return result;
    }
    *import = (struct sim_ipc_import){*handle, 1};
    memory->size = handle->mapped;
    memory->type = SIM_MEMORY_IPC;
    memory->kind = SIM_IMPORTED;
    memory->device = context->device;
    memory->owner = import;
    sim_memory_insert(memory, context);
    sim_ledger_kind(memory->device, SIM_IMPORTED, (int64_t)handle->size);
    *out = memory->base;
    return CUDA_SUCCESS;
}

static CUresult sim_ipc_open(CUdeviceptr *out, const CUipcMemHandle *opaque, unsigned flags)
{
    struct sim_ipc_handle handle;
    struct sim_context *context;
    CUresult result = sim_allocation_check(&context);
    if (result != CUDA_SUCCESS)
        return result;
    memcpy(&handle, opaque, sizeof handle);
    if (!out || handle.magic != SIM_IPC_MAGIC || flags & ~(unsigned)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    /* The exporter itself may not open it.  Where ranks of the job are absent, it has their handles from itself. */
    if (handle.pid == getpid() && !secure_getenv("GPUPROF_SIM_RANKS"))
        return CUDA_ERROR_INVALID_CONTEXT;
    struct sim_memory *memory = sim_import_find(context, &handle);
    if (!memory)
        return sim_import_new(context, &handle, out);
    ((struct sim_ipc_import *)memory->owner)->opens++;
    *out = memory->base;
    return CUDA_SUCCESS;
}

SIM_API3(329, 4010, cuIpcOpenMemHandle, CUdeviceptr *, pdptr, CUipcMemHandle, handle, unsigned int, Flags)
{
    return sim_ipc_open(pdptr, &handle, Flags);
}

SIM_API3(567, 11000, cuIpcOpenMemHandle_v2, CUdeviceptr *, pdptr, CUipcMemHandle, handle, unsigned int, Flags)
{
    return sim_ipc_open(pdptr, &handle, Flags);
}

SIM_API1(330, 4010, cuIpcCloseMemHandle, CUdeviceptr, dptr)
{
    struct sim_context *context;
    CUresult result = sim_allocation_check(&context);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_memory *memory = sim_memory_find(dptr);
    if (!memory || memory->base != dptr || memory->type != SIM_MEMORY_IPC)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_ipc_import *import = memory->owner;
    if (--import->opens == 0)
        sim_memory_dispose(memory);
    return CUDA_SUCCESS;
}
