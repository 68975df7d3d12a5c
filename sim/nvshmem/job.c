/* SPDX-License-Identifier: MIT
 *
 * The start and the end of a job of NVSHMEM, its teams, and its version.  PEs are processes of one
 * machine that meet as the ranks of NCCL's stand-in do (room.c): by a unique id, or as the children
 * of one launcher. */
#define _GNU_SOURCE
#include "nvshmem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "report.h"
#include "standin/standin.h"

enum { NVSHMEM_STATUS_NONE = 0, NVSHMEM_STATUS_STARTED = 2, NVSHMEM_INVALID = 1 };
enum { NVSHMEM_BY_MPI = 2, NVSHMEM_BY_SHMEM = 4, NVSHMEM_BY_ID = 8 };
enum { TEAM_INVALID = -1, TEAM_WORLD = 0, TEAM_SHARED = 1, TEAM_NODE = 2, TEAM_SAME = 3, TEAM_FIRST = 7 };

struct nvshmem_id {
    int version;
    char bytes[124];
};
struct nvshmem_attributes { /* as NVSHMEM's header has it, 144 bytes */
    int version;
    void *mpi;
    int arguments_version, pad;
    int id_version, pad2;
    struct nvshmem_id *id;
    int pe, pes;
    char more[96];
};
struct nvshmem_version {
    int major, minor, patch;
};

/* ---- meeting ----------------------------------------------------------------------------------------------------- */

static int job_number(const char *const *names)
{
    for (; *names; names++) {
        const char *text = getenv(*names);
        if (text && *text >= '0' && *text <= '9')
            return atoi(text);
    }
    return -1;
}

/* Who starts without an id is one of a launcher's children, or alone. */
static void job_launched(char key[80], int *pe, int *pes)
{
    static const char *const own[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", NULL};
    static const char *const all[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", NULL};
    *pe = job_number(own);
    *pes = job_number(all);
    if (*pe < 0 || *pes < 1) {
        *pe = 0;
        *pes = 1;
    }
    snprintf(key, 80, "shmem-launcher-%d-%d", *pes == 1 ? (int)getpid() : (int)getppid(), *pes);
}

static void job_end(void)
{
    if (!nvshmem_job.room)
        return;
    nvshmem_heap_end();
    nccl_room_leave(nvshmem_job.room, nvshmem_job.pe);
    nvshmem_job = (struct nvshmem_job){0};
}

static int job_start(const char *key, int pe, int pes)
{
    int missing = 0;
    const time_t begun = time(NULL);
    if (pes > NVSHMEM_MOST) {
        fprintf(stderr, "gpuprof: sim: NVSHMEM: %d PEs: the stand-in takes at most %d\n", pes, NVSHMEM_MOST);
        return NVSHMEM_INVALID;
    }
    int error = nccl_room_join(key, pes, pe, 0, &nvshmem_job.room);
    if (error) {
        fprintf(stderr, "gpuprof: sim: NVSHMEM: PE %d of %d cannot meet the others: %s\n", pe, pes, strerror(-error));
        return NVSHMEM_INVALID;
    }
    nvshmem_job.pe = pe;
    nvshmem_job.pes = pes;
    while (!nccl_room_full(nvshmem_job.room, &missing)) {
        uint32_t bell = nccl_room_bell(nvshmem_job.room, pe);
        if (nccl_room_full(nvshmem_job.room, &missing))
            break;
        if (!nvshmem_job_waits(missing, begun)) {
            job_end();
            return NVSHMEM_INVALID;
        }
        nccl_room_sleep(nvshmem_job.room, pe, bell);
    }
    sim_report(NVSHMEM_LIBRARY, "loaded", "moves no data: what is put, got or reduced is zeros");
    if (nvshmem_heap_begin() == 0)
        return 0;
    job_end();
    return NVSHMEM_INVALID;
}

static int job_init(unsigned flags, const struct nvshmem_attributes *with)
{
    char key[80];
    int pe, pes;
    if (nvshmem_job.room)
        return 0;
    if (flags & (NVSHMEM_BY_MPI | NVSHMEM_BY_SHMEM)) {
        standin_unsupported(flags & NVSHMEM_BY_MPI ? "a start by MPI's communicator" : "a start by OpenSHMEM");
        fprintf(stderr,
                "gpuprof: sim: NVSHMEM: the stand-in starts by a unique id or by a launcher's variables alone\n");
        return NVSHMEM_INVALID;
    }
    job_launched(key, &pe, &pes);
    if (flags & NVSHMEM_BY_ID) {
        if (!with || !with->id || with->pes < 1 || with->pe < 0 || with->pe >= with->pes)
            return NVSHMEM_INVALID;
        pe = with->pe;
        pes = with->pes;
        snprintf(key, sizeof key, "shmem-%.60s", with->id->bytes);
        for (char *at = key; *at; at++)
            if (*at == '/')
                *at = '_';
    }
    return job_start(key, pe, pes);
}

EXPORT int nvshmemx_get_uniqueid(struct nvshmem_id *id);
EXPORT int nvshmemx_get_uniqueid(struct nvshmem_id *id)
{
    unsigned long long numbers[2];
    if (!id || syscall(SYS_getrandom, numbers, sizeof numbers, 0) != (long)sizeof numbers)
        return NVSHMEM_INVALID;
    memset(id->bytes, 0, sizeof id->bytes);
    id->version = (1 << 16) + (int)sizeof *id;
    snprintf(id->bytes, sizeof id->bytes, "%016llx%016llx", numbers[0], numbers[1]);
    return 0;
}

EXPORT int nvshmemx_set_attr_uniqueid_args(int pe, int pes, struct nvshmem_id *id, struct nvshmem_attributes *with);
EXPORT int nvshmemx_set_attr_uniqueid_args(int pe, int pes, struct nvshmem_id *id, struct nvshmem_attributes *with)
{
    if (!id || !with || pe < 0 || pe >= pes)
        return NVSHMEM_INVALID;
    with->id = id;
    with->pe = pe;
    with->pes = pes;
    return 0;
}

EXPORT int nvshmemx_hostlib_init_attr(unsigned flags, const struct nvshmem_attributes *with);
EXPORT int nvshmemx_hostlib_init_attr(unsigned flags, const struct nvshmem_attributes *with)
{
    return job_init(flags, with);
}

/* The program's own part, linked into it, has variables of the device, which no kernel reads here. */
EXPORT int nvshmemid_hostlib_init_attr(int wanted, int *provided, unsigned flags, const struct nvshmem_attributes *with,
                                       struct nvshmem_version theirs, void *state);
EXPORT int nvshmemid_hostlib_init_attr(int wanted, int *provided, unsigned flags, const struct nvshmem_attributes *with,
                                       struct nvshmem_version theirs, void *state)
{
    (void)theirs;
    (void)state;
    if (provided)
        *provided = wanted;
    return job_init(flags, with);
}

EXPORT void nvshmemx_hostlib_finalize(void) __attribute__((alias("job_end")));
EXPORT void nvshmemid_hostlib_finalize(void) __attribute__((alias("job_end")));

static int job_status(void)
{
    return nvshmem_job.room ? NVSHMEM_STATUS_STARTED : NVSHMEM_STATUS_NONE;
}
EXPORT int nvshmemid_init_status(void) __attribute__((alias("job_status")));
EXPORT int nvshmemx_init_status(void) __attribute__((alias("job_status")));

EXPORT int nvshmem_my_pe(void);
EXPORT int nvshmem_my_pe(void)
{
    return nvshmem_job.room ? nvshmem_job.pe : -1;
}

EXPORT int nvshmem_n_pes(void);
EXPORT int nvshmem_n_pes(void)
{
    return nvshmem_job.room ? nvshmem_job.pes : -1;
}

EXPORT void nvshmem_global_exit(int status);
EXPORT void nvshmem_global_exit(int status)
{
    exit(status);
}

/* ---- teams ------------------------------------------------------------------------------------------------------- */

static struct team {
    bool used;
    int start, stride, size; /* PEs of the job */
} teams[NVSHMEM_TEAMS];

static bool team_find(int team, struct team *found)
{
    if (!nvshmem_job.room)
        return false;
    if (team == TEAM_WORLD || team == TEAM_SHARED || team == TEAM_NODE)
        *found = (struct team){true, 0, 1, nvshmem_job.pes};
    else if (team == TEAM_SAME)
        *found = (struct team){true, nvshmem_job.pe, 1, 1};
    else if (team >= TEAM_FIRST && team < NVSHMEM_TEAMS && teams[team].used)
        *found = teams[team];
    else
        return false;
    return true;
}

/* The number of a PE in a team; -1 if it is none of it. */
static int team_place(const struct team *team, int pe)
{
    int away = pe - team->start;
    int place = team->stride ? away / team->stride : 0;
    return place >= 0 && place < team->size && place * team->stride == away ? place : -1;
}

EXPORT int nvshmem_team_n_pes(int number);
EXPORT int nvshmem_team_n_pes(int number)
{
    struct team team;
    return team_find(number, &team) ? team.size : -1;
}

EXPORT int nvshmem_team_my_pe(int number);
EXPORT int nvshmem_team_my_pe(int number)
{
    struct team team;
    return team_find(number, &team) ? team_place(&team, nvshmem_job.pe) : -1;
}

EXPORT int nvshmem_team_translate_pe(int from, int pe, int to);
EXPORT int nvshmem_team_translate_pe(int from, int pe, int to)
{
    struct team one, other;
    if (!team_find(from, &one) || !team_find(to, &other) || pe < 0 || pe >= one.size)
        return -1;
    return team_place(&other, one.start + pe * one.stride);
}

EXPORT int nvshmem_team_split_strided(int parent, int start, int stride, int size, const void *with, long mask,
                                      int *made);
EXPORT int nvshmem_team_split_strided(int parent, int start, int stride, int size, const void *with, long mask,
                                      int *made)
{
    struct team of, team;
    int number = TEAM_FIRST;
    (void)with;
    (void)mask;
    if (!made)
        return NVSHMEM_INVALID;
    *made = TEAM_INVALID;
    if (!team_find(parent, &of) || start < 0 || size < 1 || start >= of.size ||
        (int64_t)start + (int64_t)stride * (size - 1) < 0 || (int64_t)start + (int64_t)stride * (size - 1) >= of.size)
        return NVSHMEM_INVALID;
    team = (struct team){true, of.start + start * of.stride, size == 1 ? 1 : stride * of.stride, size};
    if (team_place(&team, nvshmem_job.pe) < 0)
        return 0;
    while (number < NVSHMEM_TEAMS && teams[number].used)
        number++;
    if (number == NVSHMEM_TEAMS)
        return NVSHMEM_INVALID;
    teams[number] = team;
    *made = number;
    return 0;
}

EXPORT void nvshmem_team_destroy(int number);
EXPORT void nvshmem_team_destroy(int number)
{
    if (number >= TEAM_FIRST && number < NVSHMEM_TEAMS)
        teams[number].used = false;
}

/* ---- variables --------------------------------------------------------------------------------------------------- */

/* Of the library, which the part in the program reads: its log, which is off, and the transport, which is the CPU's. */
#define VARIABLE __attribute__((visibility("default")))
VARIABLE extern int nvshmem_debug_level, nvshmem_nvtx_options, nvshmem_options, nvshmem_selected_device_transport;
VARIABLE extern uint64_t nvshmem_debug_mask;
VARIABLE extern pthread_mutex_t nvshmem_debug_output_lock;
VARIABLE extern void *nvshmem_debug_file, *nvshmem_error;
int nvshmem_debug_level, nvshmem_nvtx_options, nvshmem_options, nvshmem_selected_device_transport;
uint64_t nvshmem_debug_mask;
pthread_mutex_t nvshmem_debug_output_lock = PTHREAD_MUTEX_INITIALIZER;
void *nvshmem_debug_file, *nvshmem_error;

/* ---- version ----------------------------------------------------------------------------------------------------- */

/* Of the standard that it follows. */
EXPORT void nvshmem_info_get_version(int *major, int *minor);
EXPORT void nvshmem_info_get_version(int *major, int *minor)
{
    *major = 1;
    *minor = 3;
}

EXPORT void nvshmem_info_get_name(char *name);
EXPORT void nvshmem_info_get_name(char *name)
{
    strcpy(name, "NVSHMEM");
}

EXPORT void nvshmemx_vendor_get_version_info(int *major, int *minor, int *patch);
EXPORT void nvshmemx_vendor_get_version_info(int *major, int *minor, int *patch)
{
    static const int newest[3] = {3, 8, 0};
    *major = standin_version(0, newest);
    *minor = standin_version(1, newest);
    *patch = standin_version(2, newest);
}
