/* SPDX-License-Identifier: MIT
 * For the tests of the stand-in for NCCL: its interface, and ranks that are processes of the test. */
#ifndef NCCL_CHECK_H
#define NCCL_CHECK_H

#include "core_check.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MIB  (1ull << 20)
#define MOST 4

typedef struct {
    char bytes[128];
} unique_id;
typedef void *comm_t;
enum { INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16, TYPES };
enum { SUM, PROD, MAX, MIN, AVG, OPS };

/* NCCL's interface, as NVIDIA documents it. */
static struct {
    int (*GetVersion)(int *);
    int (*GetUniqueId)(unique_id *);
    int (*CommInitRank)(comm_t *, int, unique_id, int);
    int (*CommInitRankConfig)(comm_t *, int, unique_id, int, void *);
    int (*CommInitAll)(comm_t *, int, const int *);
    int (*CommSplit)(comm_t, int, int, comm_t *, void *);
    int (*CommShrink)(comm_t, int *, int, comm_t *, void *, int);
    int (*CommDestroy)(comm_t);
    int (*CommAbort)(comm_t);
    int (*CommCount)(comm_t, int *);
    int (*CommUserRank)(comm_t, int *);
    int (*CommGetAsyncError)(comm_t, int *);
    const char *(*GetLastError)(comm_t);
    int (*GroupStart)(void);
    int (*GroupEnd)(void);
    int (*CommWindowRegister)(comm_t, void *, size_t, void **, int);
    int (*CommWindowDeregister)(comm_t, void *);
    int (*MemAlloc)(void **, size_t);
    int (*MemFree)(void *);
    int (*RedOpCreatePreMulSum)(int *, void *, int, int, comm_t);
    int (*RedOpDestroy)(int, comm_t);
    int (*AllReduce)(CUdeviceptr, CUdeviceptr, size_t, int, int, comm_t, CUstream);
    int (*Reduce)(CUdeviceptr, CUdeviceptr, size_t, int, int, int, comm_t, CUstream);
    int (*Broadcast)(CUdeviceptr, CUdeviceptr, size_t, int, int, comm_t, CUstream);
    int (*AllGather)(CUdeviceptr, CUdeviceptr, size_t, int, comm_t, CUstream);
    int (*ReduceScatter)(CUdeviceptr, CUdeviceptr, size_t, int, int, comm_t, CUstream);
    int (*AlltoAll)(CUdeviceptr, CUdeviceptr, size_t, int, comm_t, CUstream);
    int (*Gather)(CUdeviceptr, CUdeviceptr, size_t, int, int, comm_t, CUstream);
    int (*Scatter)(CUdeviceptr, CUdeviceptr, size_t, int, int, comm_t, CUstream);
    int (*Send)(CUdeviceptr, size_t, int, int, comm_t, CUstream);
    int (*Recv)(CUdeviceptr, size_t, int, int, comm_t, CUstream);
} nccl;

static inline void nccl_open(void)
{
    static const char *const names[] = {"GetVersion",
                                        "GetUniqueId",
                                        "CommInitRank",
                                        "CommInitRankConfig",
                                        "CommInitAll",
                                        "CommSplit",
                                        "CommShrink",
                                        "CommDestroy",
                                        "CommAbort",
                                        "CommCount",
                                        "CommUserRank",
                                        "CommGetAsyncError",
                                        "GetLastError",
                                        "GroupStart",
                                        "GroupEnd",
                                        "CommWindowRegister",
                                        "CommWindowDeregister",
                                        "MemAlloc",
                                        "MemFree",
                                        "RedOpCreatePreMulSum",
                                        "RedOpDestroy",
                                        "AllReduce",
                                        "Reduce",
                                        "Broadcast",
                                        "AllGather",
                                        "ReduceScatter",
                                        "AlltoAll",
                                        "Gather",
                                        "Scatter",
                                        "Send",
                                        "Recv"};
    char path[4096], name[64];
    Dl_info driver;
    CHECK(dladdr((void *)cuInit, &driver) != 0);
    snprintf(path, sizeof path, "%.*s/standin/libnccl.so.2", (int)(strrchr(driver.dli_fname, '/') - driver.dli_fname),
             driver.dli_fname);
    void *library = dlopen(path, RTLD_NOW);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "nccl%s", names[i]);
        void *symbol = library ? dlsym(library, name) : NULL;
        CHECK(symbol != NULL);
        if (!symbol)
            exit(check_done());
        memcpy((char *)&nccl + i * sizeof symbol, &symbol, sizeof symbol);
    }
}

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

struct rank {
    int ranks, rank;
    comm_t comm;
    CUstream stream;
    CUdeviceptr from, to;
    char *host;
};
#define BUFFER (MOST * 65536 * 2)

static inline void buffers_make(struct rank *r)
{
    CHECK_OK(cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuMemAlloc(&r->from, BUFFER));
    CHECK_OK(cuMemAlloc(&r->to, BUFFER));
    r->host = malloc(BUFFER);
}

/* Runs body in as many processes, each with its own device; the results come back by status. */
static inline void launch(int ranks, const char *spec, void (*body)(struct rank *r))
{
    unique_id *id = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[MOST];
    CHECK_EQ(nccl.GetUniqueId(id), 0);
    fflush(NULL);
    for (int i = 0; i < ranks; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            struct rank r = {.ranks = ranks, .rank = i};
            check_passed = check_failed = 0;
            setenv("GPUPROF_SIM", spec, 1);
            check_begin(i);
            buffers_make(&r);
            CHECK_EQ(nccl.CommInitRank(&r.comm, ranks, *id, i), 0);
            if (r.comm)
                body(&r);
            exit(check_failed || !check_passed);
        }
    }
    for (int i = 0; i < ranks; i++) {
        int status = -1;
        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        CHECK(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)); /* `dies` kills itself */
    }
    munmap(id, 4096);
}

#endif
