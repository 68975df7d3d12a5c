/* SPDX-License-Identifier: MIT
 * Selftest: the stand-in for NVSHMEM.  PEs are processes of this test: their symmetric heaps grow together, in the pieces and at
 * the moments that the real one's would, blocks of other PEs are really theirs, teams have the right members, and a PE that
 * ends lets nobody wait. */
#define _GNU_SOURCE
#include "core_check.h"

#include <stdbool.h>
#include <sys/wait.h>

#define MIB (1ll << 20)
#define PES 3

static struct {
    int (*get_uniqueid)(void *);
    int (*set_attr_uniqueid_args)(int, int, void *, void *);
    int (*hostlib_init_attr)(unsigned, void *);
    void (*hostlib_finalize)(void);
    int (*init_status)(void);
    void *(*malloc)(size_t);
    void *(*align)(size_t, size_t);
    void *(*calloc)(size_t, size_t);
    void (*free)(void *);
    void *(*ptr)(const void *, int);
    int (*my_pe)(void);
    int (*n_pes)(void);
    int (*split)(int, int, int, int, void *, long, int *);
    int (*team_n_pes)(int);
    int (*team_my_pe)(int);
    int (*translate)(int, int, int);
    int (*float_get)(void *, const void *, size_t, int);
    int (*float_sum)(int, void *, const void *, size_t);
    int (*split_2d)(void);
} shmem;

static void shmem_open(void)
{
    static const char *const names[] = {"nvshmemx_get_uniqueid",
                                        "nvshmemx_set_attr_uniqueid_args",
                                        "nvshmemx_hostlib_init_attr",
                                        "nvshmemx_hostlib_finalize",
                                        "nvshmemx_init_status",
                                        "nvshmem_malloc",
                                        "nvshmem_align",
                                        "nvshmem_calloc",
                                        "nvshmem_free",
                                        "nvshmem_ptr",
                                        "nvshmem_my_pe",
                                        "nvshmem_n_pes",
                                        "nvshmem_team_split_strided",
                                        "nvshmem_team_n_pes",
                                        "nvshmem_team_my_pe",
                                        "nvshmem_team_translate_pe",
                                        "nvshmem_float_get",
                                        "nvshmem_float_sum_reduce",
                                        "nvshmem_team_split_2d"};
    char path[4096];
    Dl_info driver;
    CHECK(dladdr((void *)cuInit, &driver) != 0);
    snprintf(path, sizeof path, "%.*s/standin/libnvshmem_host.so.3",
             (int)(strrchr(driver.dli_fname, '/') - driver.dli_fname), driver.dli_fname);
    void *library = dlopen(path, RTLD_NOW);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *symbol = library ? dlvsym(library, names[i], "NVSHMEM") : NULL;
        CHECK(symbol != NULL);
        if (!symbol)
            exit(check_done());
        memcpy((char *)&shmem + i * sizeof symbol, &symbol, sizeof symbol);
    }
}

/* What this process has taken of its device. */
static long long taken(void)
{
    static size_t before;
    size_t now = 0, total = 0;
    CHECK_OK(cuMemGetInfo(&now, &total));
    if (!before)
        before = now;
    return (long long)(before - now);
}

static char id[128];
static _Alignas(16) char attributes[144];

static int shmem_start(int pe, int pes)
{
    check_begin(pe);
    taken();
    CHECK_EQ(shmem.init_status(), 0);
    CHECK_EQ(shmem.set_attr_uniqueid_args(pe, pes, id, attributes), 0);
    return shmem.hostlib_init_attr(8, attributes);
}

static void heaps(int pe)
{
    int word = 0;
    CHECK_EQ(taken(), 512 * MIB); /* of which the library has 499 */
    void *one = shmem.malloc(4 * MIB), *other = shmem.malloc(4 * MIB);
    CHECK(one && other && (char *)other - (char *)one == 4 * MIB);
    CHECK_EQ(taken(), 512 * MIB);
    /* It begins in the hole at the end of the first piece, as the pieces are side by side. */
    char *large = shmem.malloc(600 * MIB);
    CHECK(large == (char *)other + 4 * MIB);
    CHECK_EQ(taken(), (512 + 1024) * MIB);
    CHECK(shmem.malloc(400 * MIB) != NULL);
    CHECK_EQ(taken(), (512 + 1024) * MIB);
    shmem.free(one);
    CHECK(shmem.malloc(MIB) == one);
    CHECK_EQ((uintptr_t)shmem.align(4096, 4096) % 4096, 0);
    CHECK(shmem.malloc(0) == NULL && shmem.malloc((size_t)1 << 60) == NULL);
    CHECK_EQ(taken(), (512 + 1024) * MIB);

    /* A block of another PE is the one that it wrote to. */
    word = 100 + pe;
    CHECK_OK(cuMemcpyHtoD((CUdeviceptr)(uintptr_t)large, &word, sizeof word));
    CHECK(shmem.ptr(large, pe) == large && shmem.ptr(large, PES) == NULL && shmem.ptr(&word, 0) == NULL);
    void *after = shmem.malloc(600 * MIB); /* the PEs meet, so that all have written */
    CHECK(after != NULL);
    CHECK_OK(cuMemcpyDtoH(&word, (CUdeviceptr)(uintptr_t)shmem.ptr(large, (pe + 1) % PES), sizeof word));
    CHECK_EQ(word, 100 + (pe + 1) % PES);
    int *zeros = shmem.calloc(16, 4);
    CHECK_OK(cuMemcpyDtoH(&word, (CUdeviceptr)(uintptr_t)zeros, sizeof word));
    CHECK_EQ(word, 0);
    CHECK_EQ(shmem.float_get(one, large, 4, (pe + 1) % PES), 0);
    CHECK_EQ(shmem.float_sum(0, one, large, 4), 0);
    CHECK(shmem.split_2d() != 0);
    CHECK(shmem.malloc(1200 * MIB) != NULL); /* nobody ends while another reads */
}

static void teams(int pe)
{
    int team;
    CHECK_EQ(shmem.my_pe(), pe);
    CHECK_EQ(shmem.n_pes(), PES);
    CHECK_EQ(shmem.team_n_pes(0), PES);
    CHECK_EQ(shmem.split(0, 0, 2, 2, NULL, 0, &team), 0); /* PEs 0 and 2 */
    CHECK_EQ(team >= 0, pe != 1);
    CHECK_EQ(shmem.team_my_pe(team), pe == 1 ? -1 : pe / 2);
    CHECK_EQ(shmem.translate(team, 1, 0), pe == 1 ? -1 : 2);
    CHECK_EQ(shmem.translate(0, 1, team), -1);
    CHECK(shmem.split(0, 1, 2, 2, NULL, 0, &team) != 0);
    CHECK_EQ(team, -1);
}

static int pe_run(int pe)
{
    CHECK_EQ(shmem_start(pe, PES), 0);
    CHECK_EQ(shmem.init_status(), 2);
    teams(pe);
    heaps(pe);
    shmem.hostlib_finalize();
    CHECK_EQ(taken(), 0);
    CHECK_EQ(shmem.init_status(), 0);
    return check_failed != 0;
}

/* A PE that ends between the start and an allocation. */
static int pe_alone(int pe)
{
    CHECK_EQ(shmem_start(pe, 2), 0);
    if (pe)
        return check_failed != 0;
    CHECK(shmem.malloc(600 * MIB) == NULL);
    return check_failed != 0;
}

/* All PEs do without what one has no memory for, and go on. */
static int pe_full(int pe)
{
    CUdeviceptr rest;
    CHECK_EQ(shmem_start(pe, 2), 0);
    if (pe)
        CHECK_OK(cuMemAlloc(&rest, 78ull << 30));
    CHECK(shmem.malloc(600 * MIB) == NULL);
    CHECK(shmem.malloc(4 * MIB) != NULL);
    CHECK_EQ(taken(), pe ? 512 * MIB + (78ll << 30) : 512 * MIB);
    if (pe)
        CHECK_OK(cuMemFree(rest));
    CHECK(shmem.malloc(600 * MIB) != NULL);
    CHECK(shmem.malloc(2000 * MIB) != NULL); /* nobody ends before the other has it */
    return check_failed != 0;
}

/* The heap has its size from the start. */
static int pe_fixed(int pe)
{
    setenv("NVSHMEM_DISABLE_CUDA_VMM", "1", 1);
    setenv("NVSHMEM_SYMMETRIC_SIZE", "0.5g", 1);
    CHECK_EQ(shmem_start(pe, 1), 0);
    CHECK_EQ(taken(), 1024 * MIB);
    CHECK(shmem.malloc(500 * MIB) != NULL && shmem.malloc(500 * MIB) == NULL);
    CHECK_EQ(taken(), 1024 * MIB);
    return check_failed != 0;
}

static void job(int count, int (*run)(int))
{
    int status, ended = 0;
    CHECK_EQ(shmem.get_uniqueid(id), 0);
    for (int pe = 0; pe < count; pe++)
        if (fork() == 0)
            _exit(run(pe));
    while (wait(&status) > 0) {
        CHECK_EQ(status, 0);
        ended++;
    }
    CHECK_EQ(ended, count);
}

int main(void)
{
    setenv("GPUPROF_SIM", "devices=3,gpu=h100-80g,contents=none", 1);
    shmem_open();
    job(PES, pe_run);
    job(2, pe_alone);
    job(2, pe_full);
    job(1, pe_fixed);
    return check_done();
}
