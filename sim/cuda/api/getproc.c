/* SPDX-License-Identifier: MIT
 * cuGetProcAddress and cuGetExportTable: the answers come from the registry of entry points
 * (api.h). Called by programs and by the simulated runtime before cuInit too. */
#include "cuda/sim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Length of the base name: without _ptsz/_ptds and without _vN. */
static size_t sim_base_length(const char *name)
{
    size_t length = strlen(name);
    if (length > 5 && (!strcmp(name + length - 5, "_ptsz") || !strcmp(name + length - 5, "_ptds")))
        length -= 5;
    if (length > 3 && name[length - 3] == '_' && name[length - 2] == 'v' && name[length - 1] >= '2' &&
        name[length - 1] <= '9')
        length -= 3;
    return length;
}

struct sim_search {
    const struct sim_entry *normal, *twin; /* newest ABI <= the version asked for */
    bool known;                            /* the name exists, in whatever version */
};

static struct sim_search sim_entry_search(const char *symbol, int version)
{
    struct sim_search search = {0};
    size_t length = strlen(symbol);
    for (struct sim_entry *const *at = __start_sim_entries; at < __stop_sim_entries; at++) {
        const struct sim_entry *entry = *at;
        if (sim_base_length(entry->name) != length || memcmp(entry->name, symbol, length) != 0)
            continue;
        search.known = true;
        if (entry->since > version)
            continue;
        const struct sim_entry **best = entry->flags & SIM_ENTRY_TWIN ? &search.twin : &search.normal;
        if (!*best || entry->since > (*best)->since)
            *best = entry;
    }
    return search;
}

/* version > driver: INVALID_VALUE.  Unknown: CUDA_SUCCESS, NULL and a status. */
static CUresult sim_proc_address(const char *symbol, void **pfn, int version, cuuint64_t flags,
                                 CUdriverProcAddressQueryResult *status)
{
    const cuuint64_t both = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (!symbol || !pfn || version > SIM_VERSION ||
        flags & ~both) /* both at once: an H200 with driver 580.159 answers */
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_search search = sim_entry_search(symbol, version);
    const struct sim_entry *entry = search.normal;
    if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM && search.twin)
        entry = search.twin;
    *pfn = entry ? entry->function : NULL;
    *status = entry          ? CU_GET_PROC_ADDRESS_SUCCESS
              : search.known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                             : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}

SIM_EARLY4(626, 11030, cuGetProcAddress, const char *, symbol, void **, pfn, int, cudaVersion, cuuint64_t, flags)
{
    CUdriverProcAddressQueryResult status;
    CUresult result = sim_proc_address(symbol, pfn, cudaVersion, flags, &status);
    /* The first ABI had no status to say it with. */
    if (result == CUDA_SUCCESS && status != CU_GET_PROC_ADDRESS_SUCCESS && *symbol)
        return CUDA_ERROR_NOT_FOUND;
    return result;
}

SIM_EARLY5(677, 12000, cuGetProcAddress_v2, const char *, symbol, void **, pfn, int, cudaVersion, cuuint64_t, flags,
           CUdriverProcAddressQueryResult *, symbolStatus)
{
    CUdriverProcAddressQueryResult status;
    CUresult result = sim_proc_address(symbol, pfn, cudaVersion, flags, &status);
    if (result == CUDA_SUCCESS && symbolStatus)
        *symbolStatus = status;
    return result;
}

/* NVIDIA's runtime asks for this table and gives up without it, with error 500 and no reason. */
static const CUuuid sim_runtime_uuid = {{0x6b, (char)0xd5, (char)0xfb, 0x6c, 0x5b, (char)0xf4, (char)0xe7, 0x4a,
                                         (char)0x89, (char)0x87, (char)0xd9, 0x39, 0x12, (char)0xfd, (char)0x9d,
                                         (char)0xf9}};

/* Called with the lock held, which the loader's functions must not be called with. */
static void sim_runtime_refused(const void *caller)
{
    static bool reported;
    Dl_info object, own;
    if (reported)
        return;
    reported = true;
    sim_unlock();
    const char *path = dladdr(caller, &object) && object.dli_fname && *object.dli_fname ? object.dli_fname : NULL;
    const char *name = path && strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    bool is_shared = name && !strncmp(name, "libcudart.so.", strlen("libcudart.so."));
    fprintf(stderr,
            "gpuprof: sim: %s contains NVIDIA's CUDA runtime, which needs private interfaces of NVIDIA's driver that "
            "the simulated GPU does not have, so its calls fail with error 500: ",
            path ? path : "the program");
    if (is_shared && dladdr(&reported, &own) && own.dli_fname && strrchr(own.dli_fname, '/'))
        fprintf(stderr, "preload the simulator's: LD_PRELOAD=%.*s/%.*s\n",
                (int)(strrchr(own.dli_fname, '/') - own.dli_fname), own.dli_fname, (int)strlen("libcudart.so.NN"),
                name);
    else
        fprintf(stderr, "link it with the shared runtime (nvcc -cudart shared), and let it load the simulator's "
                        "libcudart.so.12 or libcudart.so.13\n");
    sim_lock();
}

SIM_EARLY2(135, 3000, cuGetExportTable, const void **, ppExportTable, const CUuuid *, pExportTableId)
{
    if (!ppExportTable || !pExportTableId)
        return CUDA_ERROR_INVALID_VALUE;
    *ppExportTable = sim_tool_table(pExportTableId);
    if (!memcmp(pExportTableId, &sim_runtime_uuid, sizeof sim_runtime_uuid))
        sim_runtime_refused(sim_self.call->caller);
    return *ppExportTable ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
