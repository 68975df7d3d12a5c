/* SPDX-License-Identifier: MIT
 *
 * Which ranks of a communicator run.  GPUPROF_SIM_RANKS names the ranks of the job that do; the others are absent, and
 * collective.c answers for them.  Without it, all are there.
 *
 * NCCL does not tell who the members of a communicator are.  PyTorch knows it, and sim/python tells it here: before it
 * makes a group (sim_nccl_group), and for each id that goes through its store (sim_nccl_id), since communicators may be
 * made late. */
#include "nccl.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRESENT_PEERS "GPUPROF_SIM_PEERS" /* a file: who sends to an absent rank, or receives from it */
#define PRESENT_NAMED 1024                /* members that such a line names */
#define PRESENT_IDS   65536               /* that are remembered */
#define PRESENT_SAID  (-2)                /* as a seat: absent, and named in that file */

struct present_group {
    struct present_group *next;
    uint64_t id; /* its hash */
    int count;
    int ranks[];
};

static unsigned char present_map[NCCL_MOST];
static bool present_some; /* not all are there */
static int present_world, present_own;
static struct present_group *present_ids, *present_next; /* next: of the communicators that this process makes now */
static int present_id_count;
static pthread_mutex_t present_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t present_once = PTHREAD_ONCE_INIT;

static int present_number(const char *variable)
{
    const char *text = secure_getenv(variable);
    char *end = NULL;
    long number = text ? strtol(text, &end, 10) : -1;
    return text && end != text && !*end && number >= 0 && number <= NCCL_MOST ? (int)number : -1;
}

/* On standard error, and in a file for the command. */
static void __attribute__((format(printf, 1, 2))) present_say(const char *format, ...)
{
    const char *path = secure_getenv("GPUPROF_SIM_SAYS");
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(stderr, "gpuprof: sim: NCCL: %s\n", text);
    FILE *file = path ? fopen(path, "ae") : NULL;
    if (!file)
        return;
    fprintf(file, "%s\n", text);
    fclose(file);
}

/* "0,8-15": numbers and ranges. */
static void present_read(void)
{
    const char *text = secure_getenv("GPUPROF_SIM_RANKS");
    present_world = present_number("WORLD_SIZE");
    present_own = present_number("RANK");
    if (!text || !*text || present_world < 1 || present_own < 0)
        return;
    while (*text) {
        char *end;
        long first = strtol(text, &end, 10), last = first;
        if (end != text && *end == '-')
            last = strtol(end + 1, &end, 10);
        if (end == text || (*end && *end != ',') || first < 0 || last < first || last >= NCCL_MOST) {
            fprintf(stderr, "gpuprof: sim: NCCL: GPUPROF_SIM_RANKS=%s: not a list of ranks: all ranks are waited for\n",
                    secure_getenv("GPUPROF_SIM_RANKS"));
            return;
        }
        for (long i = first; i <= last; i++)
            present_map[i] = 1;
        text = end + (*end == ',');
    }
    for (int i = 0; i < present_world; i++)
        present_some = present_some || !present_map[i];
}

bool nccl_present_all(void)
{
    pthread_once(&present_once, present_read);
    return !present_some;
}

/* ---- what Python tells ------------------------------------------------------------------------------------------- */

static struct present_group *present_copy(uint64_t id, const int *ranks, int count)
{
    struct present_group *group =
        count > 0 && count <= NCCL_MOST ? malloc(sizeof *group + (size_t)count * sizeof *ranks) : NULL;
    if (!group)
        return NULL;
    group->next = NULL;
    group->id = id;
    group->count = count;
    memcpy(group->ranks, ranks, (size_t)count * sizeof *ranks);
    return group;
}

/* For sim/python. */
NCCL_EXPORT void sim_nccl_group(const int *ranks, int count);
NCCL_EXPORT void sim_nccl_id(const struct nccl_id *id, const int *ranks, int count);

/* The members, by their ranks in the job, of the communicators that this process makes from now on; 0: not known.  Which
 * ranks run is read now at the latest. */
NCCL_EXPORT void sim_nccl_group(const int *ranks, int count)
{
    pthread_once(&present_once, present_read);
    struct present_group *group = present_copy(0, ranks, count);
    pthread_mutex_lock(&present_lock);
    free(present_next);
    present_next = group;
    pthread_mutex_unlock(&present_lock);
}

static uint64_t present_hash(const struct nccl_id *id)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < sizeof id->bytes; i++)
        hash = (hash ^ (unsigned char)id->bytes[i]) * UINT64_C(1099511628211);
    return hash;
}

static struct present_group *present_of_id(uint64_t id)
{
    struct present_group *group = present_ids;
    while (group && group->id != id)
        group = group->next;
    return group;
}

/* The members of the communicator that is made with this id. */
NCCL_EXPORT void sim_nccl_id(const struct nccl_id *id, const int *ranks, int count)
{
    uint64_t hash = present_hash(id);
    struct present_group *group = present_copy(hash, ranks, count);
    pthread_mutex_lock(&present_lock);
    if (group && !present_of_id(hash) && present_id_count < PRESENT_IDS) {
        group->next = present_ids;
        present_ids = group;
        present_id_count++;
        group = NULL;
    }
    pthread_mutex_unlock(&present_lock);
    free(group);
}

/* ---- the members of a communicator ------------------------------------------------------------------------------- */

enum nccl_result nccl_present_set(struct nccl_comm *comm, const int *world, int count)
{
    size_t bytes = (size_t)count * sizeof(int);
    comm->world = malloc(bytes);
    comm->seat = malloc(bytes);
    if (!comm->world || !comm->seat)
        return nccl_error(NCCL_SYSTEM_ERROR, "out of host memory");
    comm->seats = 0;
    for (int i = 0; i < count; i++) {
        bool there = world[i] >= 0 && world[i] < NCCL_MOST && present_map[world[i]];
        comm->world[i] = world[i];
        comm->seat[i] = there ? comm->seats++ : -1;
    }
    if (comm->rank >= count || comm->seat[comm->rank] < 0)
        return nccl_error(NCCL_INVALID_USAGE, "rank %d of %d is not among the ranks that run (GPUPROF_SIM_RANKS)",
                          comm->rank, count);
    return NCCL_SUCCESS;
}

static enum nccl_result present_identity(struct nccl_comm *comm)
{
    int *world = malloc((size_t)comm->ranks * sizeof *world);
    for (int i = 0; world && i < comm->ranks; i++)
        world[i] = comm->ranks == 1 ? present_own : i;
    enum nccl_result result =
        world ? nccl_present_set(comm, world, comm->ranks) : nccl_error(NCCL_SYSTEM_ERROR, "out of host memory");
    free(world);
    return result;
}

/* With the lock; NULL: not said. */
static const struct present_group *present_find(const struct nccl_comm *comm, const struct nccl_id *ids, int count)
{
    for (int i = 0; i < count; i++) {
        const struct present_group *group = present_of_id(present_hash(&ids[i]));
        if (group && group->count == comm->ranks)
            return group;
    }
    const struct present_group *next = present_next;
    return next && next->count == comm->ranks && comm->rank < next->count && next->ranks[comm->rank] == present_own
               ? next
               : NULL;
}

enum nccl_result nccl_present_of_ids(struct nccl_comm *comm, const struct nccl_id *ids, int count)
{
    if (nccl_present_all())
        return NCCL_SUCCESS;
    pthread_mutex_lock(&present_lock);
    const struct present_group *group = present_find(comm, ids, count);
    enum nccl_result result = group ? nccl_present_set(comm, group->ranks, group->count) : NCCL_SUCCESS;
    pthread_mutex_unlock(&present_lock);
    if (group)
        return result;
    if (comm->ranks == 1 || (comm->ranks == present_world && comm->rank == present_own))
        return present_identity(comm);
    present_say("rank %d of %d: which ranks of the job are its members is not known, and only some of "
                "the job's %d run: the program makes it without torch.distributed; run all ranks",
                comm->rank, comm->ranks, present_world);
    return nccl_error(NCCL_INVALID_USAGE,
                      "rank %d of %d: only some of the job's %d ranks run, and the members of this "
                      "communicator are not known",
                      comm->rank, comm->ranks, present_world);
}

enum nccl_result nccl_present_of_split(struct nccl_comm *child)
{
    enum nccl_result result = NCCL_INVALID_USAGE;
    pthread_mutex_lock(&present_lock);
    const struct present_group *group = present_next;
    for (int i = 0; group && i < group->count; i++)
        if (group->ranks[i] == present_own) {
            child->ranks = group->count;
            child->rank = i;
            result = nccl_present_set(child, group->ranks, group->count);
        }
    pthread_mutex_unlock(&present_lock);
    if (child->seat)
        return result;
    present_say("ncclCommSplit: only some of the job's %d ranks run, and nothing says which "
                "colour the others have: the program splits without torch.distributed; run all ranks",
                present_world);
    return nccl_error(result, "ncclCommSplit: the colours of absent ranks are not known");
}

void nccl_present_free(struct nccl_comm *comm)
{
    free(comm->world);
    free(comm->seat);
}

int nccl_present_rank(const struct nccl_comm *comm, int seat)
{
    int rank = seat;
    for (int i = 0; comm->seat && i < comm->ranks; i++)
        if (comm->seat[i] == seat)
            rank = i;
    return rank;
}

/* ---- messages to absent ranks ------------------------------------------------------------------------------------ */

/* A line "RANK<TAB>PEER<TAB>MEMBER,..", once for each communicator and peer, by their ranks in the job. */
void nccl_present_peer(struct nccl_comm *comm, int peer)
{
    const char *path = secure_getenv(PRESENT_PEERS);
    pthread_mutex_lock(&comm->lock);
    bool first = comm->seat[peer] != PRESENT_SAID;
    comm->seat[peer] = PRESENT_SAID;
    pthread_mutex_unlock(&comm->lock);
    FILE *file = first && path ? fopen(path, "ae") : NULL;
    char *line = file ? malloc(32 + (size_t)comm->ranks * 8) : NULL;
    if (line) {
        int at = snprintf(line, 32, "%d\t%d\t", present_own, comm->world[peer]);
        for (int i = 0; i < comm->ranks && comm->ranks <= PRESENT_NAMED; i++)
            at += snprintf(line + at, 8, "%s%d", i ? "," : "", comm->world[i]);
        line[at++] = '\n';
        fwrite(line, 1, (size_t)at, file); /* one write: processes share the file */
    }
    free(line);
    if (file)
        fclose(file);
}
