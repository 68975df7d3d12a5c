/* SPDX-License-Identifier: MIT
 * Communicators: how they are made, divided, asked and ended, and how a rank waits for another one. */
#define _GNU_SOURCE
#include "nccl.h"
#include "report.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A rank that does not come: below the ten minutes after which PyTorch ends a job without a reason. */
#define COMM_WAIT_SECONDS 540
#define COMM_SAY_SECONDS  30

void nccl_comm_fail(struct nccl_comm *comm, enum nccl_result result, const char *format, ...)
{
    char text[400];
    va_list list;
    enum nccl_result none = NCCL_SUCCESS;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (!__atomic_compare_exchange_n(&comm->failed, &none, result, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return;
    nccl_error_failure("rank %d of %d: %s", comm->rank, comm->ranks, text);
    fprintf(stderr, "gpuprof: sim: NCCL: rank %d of %d: %s\n", comm->rank, comm->ranks, text);
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

static double comm_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double comm_limit(void)
{
    const char *text = secure_getenv("GPUPROF_SIM_NCCL_WAIT");
    double limit = text ? strtod(text, NULL) : 0;
    return limit > 0 ? limit : COMM_WAIT_SECONDS;
}

static int comm_pid(const struct nccl_comm *comm, int rank)
{
    return nccl_room_pid(comm->room, nccl_seat(comm, rank));
}

/* What threads of this process wait for now, the last that began first. */
struct comm_wait {
    struct comm_wait *next;
    const struct nccl_comm *comm;
    int peer;
    const char *what;
};
static struct comm_wait *comm_waits;
static pthread_mutex_t comm_waits_lock = PTHREAD_MUTEX_INITIALIZER;

static void comm_wait_begin(struct comm_wait *wait)
{
    pthread_mutex_lock(&comm_waits_lock);
    wait->next = comm_waits;
    comm_waits = wait;
    pthread_mutex_unlock(&comm_waits_lock);
}

static void comm_wait_end(struct comm_wait *wait)
{
    struct comm_wait **at = &comm_waits;
    pthread_mutex_lock(&comm_waits_lock);
    while (*at && *at != wait)
        at = &(*at)->next;
    if (*at)
        *at = wait->next;
    pthread_mutex_unlock(&comm_waits_lock);
}

/* For sim/python: in words, what this process has waited for longest, by ranks of the job where these are known.  0: nothing. */
NCCL_EXPORT int sim_nccl_waits(char *text, size_t bytes);
NCCL_EXPORT int sim_nccl_waits(char *text, size_t bytes)
{
    pthread_mutex_lock(&comm_waits_lock);
    const struct comm_wait *wait = comm_waits;
    while (wait && wait->next)
        wait = wait->next;
    if (wait)
        snprintf(text, bytes, "rank %d in %s", wait->comm->world ? wait->comm->world[wait->peer] : wait->peer,
                 wait->what);
    pthread_mutex_unlock(&comm_waits_lock);
    return wait != NULL;
}

bool nccl_comm_wait(struct nccl_comm *comm, int peer, const char *what, bool (*ready)(struct nccl_comm *, int, void *),
                    void *data)
{
    struct comm_wait wait = {.comm = comm, .peer = peer, .what = what};
    double start = comm_clock(), limit = comm_limit();
    bool said = limit <= COMM_SAY_SECONDS, slept = false, done = false;
    while (!done) {
        bool left;
        uint32_t bell = nccl_room_bell(comm->room, nccl_seat(comm, comm->rank));
        bool gone = nccl_room_gone(comm->room, nccl_seat(comm, peer), &left); /* first: what it sent before counts */
        double waited = comm_clock() - start;
        if (__atomic_load_n(&comm->aborted, __ATOMIC_SEQ_CST) || __atomic_load_n(&comm->failed, __ATOMIC_SEQ_CST))
            break;
        done = ready(comm, peer, data);
        if (done)
            break;
        if (gone || waited > limit) {
            if (gone)
                nccl_comm_fail(comm, NCCL_REMOTE_ERROR, "%s: rank %d (PID %d) %s", what, peer, comm_pid(comm, peer),
                               left ? "has left the communicator" : "has ended");
            else
                nccl_comm_fail(comm, NCCL_SYSTEM_ERROR, "%s: rank %d (PID %d) has not come within %.0f s", what, peer,
                               comm_pid(comm, peer), limit);
            break;
        }
        if (!said && waited > COMM_SAY_SECONDS) {
            said = true;
            fprintf(stderr, "gpuprof: sim: NCCL: rank %d of %d has waited %d s for rank %d (PID %d) in %s\n",
                    comm->rank, comm->ranks, COMM_SAY_SECONDS, peer, comm_pid(comm, peer), what);
        }
        if (!slept) {
            comm_wait_begin(&wait);
            nccl_driver()->sim_host_waits(1);
        }
        slept = true;
        nccl_room_sleep(comm->room, nccl_seat(comm, comm->rank), bell);
    }
    if (slept) {
        nccl_driver()->sim_host_waits(0);
        comm_wait_end(&wait);
    }
    return done;
}

void nccl_comm_turn(struct nccl_comm *comm, const uint64_t *counter, uint64_t number)
{
    if (*counter >= number)
        return;
    pthread_mutex_unlock(&comm->lock); /* never held over a wait for the simulator's worker */
    nccl_driver()->sim_host_waits(1);
    pthread_mutex_lock(&comm->lock);
    while (*counter < number && !comm->failed && !comm->aborted) {
        struct timespec soon;
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_sec += 1; /* nobody rings when a communicator fails */
        pthread_cond_timedwait(&comm->moved, &comm->lock, &soon);
    }
    pthread_mutex_unlock(&comm->lock);
    nccl_driver()->sim_host_waits(0);
    pthread_mutex_lock(&comm->lock);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

bool nccl_comm_valid(const struct nccl_comm *comm)
{
    return comm && comm->magic == NCCL_COMM_MAGIC;
}

void nccl_comm_hold(struct nccl_comm *comm)
{
    __atomic_add_fetch(&comm->references, 1, __ATOMIC_SEQ_CST);
}

void nccl_comm_drop(struct nccl_comm *comm)
{
    if (__atomic_sub_fetch(&comm->references, 1, __ATOMIC_SEQ_CST))
        return;
    if (comm->room)
        nccl_room_leave(comm->room, nccl_seat(comm, comm->rank));
    comm->magic = 0;
    pthread_mutex_destroy(&comm->lock);
    pthread_cond_destroy(&comm->moved);
    nccl_memory_free(comm);
    nccl_present_free(comm);
    free(comm->scalers);
    free(comm);
}

/* The device that is current: the driver's context, or what the runtime says, which makes contexts late. */
static enum nccl_result comm_device(struct nccl_comm *comm, int wanted)
{
    const struct nccl_driver *driver = nccl_driver();
    if (!driver)
        return nccl_error(NCCL_SYSTEM_ERROR, "no simulated driver");
    CUresult result = driver->cuInit(0);
    if (wanted >= 0) {
        comm->device = wanted;
    } else if (result == CUDA_SUCCESS && (driver->cuCtxGetCurrent(&comm->context) != CUDA_SUCCESS || !comm->context ||
                                          driver->cuCtxGetDevice(&comm->device) != CUDA_SUCCESS)) {
        int (*runtime)(int *) = (int (*)(int *))dlsym(RTLD_DEFAULT, "cudaGetDevice");
        comm->context = NULL;
        comm->device = 0;
        if (runtime && runtime(&comm->device) != 0)
            comm->device = 0;
    }
    if (result == CUDA_SUCCESS && !comm->context)
        result = driver->cuDevicePrimaryCtxRetain(&comm->context, comm->device);
    if (result != CUDA_SUCCESS)
        return nccl_error(NCCL_CUDA_ERROR, "no context on device %d: CUDA error %d", comm->device, (int)result);
    comm->node = nccl_memory_node(comm->device);
    return NCCL_SUCCESS;
}

/* Key NULL: to be set. */
static enum nccl_result comm_new(struct nccl_comm **made, int ranks, int rank, const char *key, int device)
{
    if (!made || ranks < 1 || rank < 0 || rank >= ranks)
        return nccl_error(NCCL_INVALID_ARGUMENT, "rank %d of %d: no such rank", rank, ranks);
    if (ranks > NCCL_MOST)
        return nccl_error(NCCL_SYSTEM_ERROR, "%d ranks: the stand-in for NCCL takes at most %d", ranks, NCCL_MOST);
    struct nccl_comm *comm = calloc(1, sizeof *comm);
    if (!comm)
        return nccl_error(NCCL_SYSTEM_ERROR, "out of host memory");
    *comm = (struct nccl_comm){.magic = NCCL_COMM_MAGIC, .references = 1, .ranks = ranks, .rank = rank};
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->moved, NULL);
    snprintf(comm->key, sizeof comm->key, "%s", key);
    enum nccl_result result = comm_device(comm, device);
    if (result != NCCL_SUCCESS) {
        free(comm);
        return result;
    }
    sim_report(NCCL_LIBRARY, "loaded", "moves data of small collectives alone, between processes of one machine");
    *made = comm;
    return NCCL_SUCCESS;
}

struct comm_task {
    struct nccl_task task;
    struct nccl_comm *comm, *parent;
    struct nccl_comm **out;
    int color, key;
};

static void comm_task_end(struct nccl_task *task)
{
    struct comm_task *own = (struct comm_task *)task;
    if (own->parent)
        nccl_comm_drop(own->parent);
    free(own);
}

static enum nccl_result comm_join(struct nccl_comm *comm)
{
    int error = nccl_room_join(comm->key, comm->seat ? comm->seats : comm->ranks, nccl_seat(comm, comm->rank),
                               comm->node, &comm->room);
    if (error == -EEXIST)
        return nccl_error(NCCL_INVALID_USAGE, "rank %d of %d is there already: two processes have the same rank",
                          comm->rank, comm->ranks);
    if (error == -EINVAL)
        return nccl_error(NCCL_INVALID_USAGE, "rank %d: the ranks do not agree on their number, %d here", comm->rank,
                          comm->ranks);
    return error ? nccl_error(NCCL_SYSTEM_ERROR, "rank %d of %d cannot meet the others in /dev/shm: %s", comm->rank,
                              comm->ranks, strerror(-error))
                 : NCCL_SUCCESS;
}

static bool comm_is_there(struct nccl_comm *comm, int peer, void *unused)
{
    (void)unused;
    return comm_pid(comm, peer) != 0;
}

static enum nccl_result comm_ready(struct nccl_comm *comm, struct nccl_comm *parent)
{
    int missing;
    while (!nccl_room_full(comm->room, &missing))
        if (!nccl_comm_wait(comm, nccl_present_rank(comm, missing), "the start of a communicator", comm_is_there, NULL))
            return comm->failed ? comm->failed : NCCL_INTERNAL_ERROR;
    enum nccl_result result = nccl_memory_init(comm, parent);
    __atomic_store_n(&comm->ready, result == NCCL_SUCCESS, __ATOMIC_SEQ_CST);
    return result;
}

static enum nccl_result comm_task_join(struct nccl_task *task)
{
    return comm_join(((struct comm_task *)task)->comm);
}

static enum nccl_result comm_task_ready(struct nccl_task *task)
{
    struct comm_task *own = (struct comm_task *)task;
    return own->comm ? comm_ready(own->comm, own->parent) : NCCL_SUCCESS;
}

/* The program has the handle at once; it works after the group. */
static enum nccl_result comm_start(struct nccl_comm **out, int ranks, int rank, const char *key, int device,
                                   struct nccl_settings set, enum nccl_result (*who)(struct nccl_comm *, const void *),
                                   const void *data)
{
    struct comm_task *task = calloc(1, sizeof *task);
    struct nccl_comm *comm = NULL;
    if (!task)
        return nccl_error(NCCL_SYSTEM_ERROR, "out of host memory");
    enum nccl_result result = comm_new(&comm, ranks, rank, key, device);
    if (result == NCCL_SUCCESS && who)
        result = who(comm, data);
    if (result != NCCL_SUCCESS) {
        if (comm)
            nccl_comm_drop(comm);
        free(task);
        return result;
    }
    comm->set = set;
    *out = comm;
    *task =
        (struct comm_task){.task = {.stage = {comm_task_join, comm_task_ready}, .end = comm_task_end}, .comm = comm};
    result = nccl_task_add(&task->task);
    if (result != NCCL_SUCCESS) {
        *out = NULL;
        nccl_comm_drop(comm);
    }
    return result;
}

static uint64_t comm_hash(uint64_t hash, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(1099511628211);
    return hash;
}

/* A child's room, by its parent's and what its ranks agree on. */
static void comm_key(char key[80], const char *parent, const char *what, unsigned sequence, int color)
{
    uint64_t one = comm_hash(UINT64_C(14695981039346656037), parent, strlen(parent));
    snprintf(key, 80, "%016llx-%.32s-%s-%u-%d", (unsigned long long)one, parent, what, sequence, color);
}

static enum nccl_result comm_config(const struct nccl_config *config)
{
    if (config && (config->magic != NCCL_CONFIG_MAGIC || config->size < offsetof(struct nccl_config, blocking)))
        return nccl_error(NCCL_INVALID_ARGUMENT, "the configuration was not initialized with NCCL_CONFIG_INITIALIZER");
    return NCCL_SUCCESS;
}

NCCL_API(enum nccl_result, ncclGetUniqueId, struct nccl_id *id)
{
    if (!id)
        return nccl_error(NCCL_INVALID_ARGUMENT, "ncclGetUniqueId: no pointer");
    nccl_room_sweep();
    memset(id, 0, sizeof *id);
    if (syscall(SYS_getrandom, id->bytes, 16, 0) != 16)
        return nccl_error(NCCL_SYSTEM_ERROR, "ncclGetUniqueId: no random bytes: %s", strerror(errno));
    return NCCL_SUCCESS;
}

static void comm_id_key(char key[80], const struct nccl_id *ids, int count)
{
    uint64_t one = UINT64_C(14695981039346656037), two = UINT64_C(0x9e3779b97f4a7c15);
    for (int i = 0; i < count; i++) {
        one = comm_hash(one, ids[i].bytes, sizeof ids[i].bytes);
        two = comm_hash(two, ids[i].bytes, sizeof ids[i].bytes);
    }
    snprintf(key, 80, "%016llx%016llx", (unsigned long long)one, (unsigned long long)two);
}

struct comm_ids {
    const struct nccl_id *ids;
    int count;
};

static enum nccl_result comm_who(struct nccl_comm *comm, const void *data)
{
    const struct comm_ids *ids = data;
    return nccl_present_of_ids(comm, ids->ids, ids->count);
}

NCCL_API(enum nccl_result, ncclCommInitRankScalable, struct nccl_comm **comm, int ranks, int rank, int count,
         struct nccl_id *ids, struct nccl_config *config)
{
    char key[80];
    if (!comm || !ids || count < 1)
        return nccl_error(NCCL_INVALID_ARGUMENT, "ncclCommInitRank: no pointer, or no id");
    enum nccl_result result = comm_config(config);
    if (result != NCCL_SUCCESS)
        return result;
    comm_id_key(key, ids, count);
    struct comm_ids who = {ids, count};
    return comm_start(comm, ranks, rank, key, -1, nccl_settings_read(config), comm_who, &who);
}

NCCL_API(enum nccl_result, ncclCommInitRankConfig, struct nccl_comm **comm, int ranks, struct nccl_id id, int rank,
         struct nccl_config *config)
{
    return pncclCommInitRankScalable(comm, ranks, rank, 1, &id, config);
}

NCCL_API(enum nccl_result, ncclCommInitRank, struct nccl_comm **comm, int ranks, struct nccl_id id, int rank)
{
    return pncclCommInitRankScalable(comm, ranks, rank, 1, &id, NULL);
}

NCCL_API(enum nccl_result, ncclCommInitAll, struct nccl_comm **comms, int ranks, const int *devices)
{
    struct nccl_id id;
    char key[80];
    if (!comms || ranks < 1)
        return nccl_error(NCCL_INVALID_ARGUMENT, "ncclCommInitAll: no pointer, or no rank");
    enum nccl_result result = pncclGetUniqueId(&id), end;
    comm_id_key(key, &id, 1);
    pncclGroupStart();
    for (int i = 0; i < ranks && result == NCCL_SUCCESS; i++)
        result = comm_start(&comms[i], ranks, i, key, devices ? devices[i] : i, nccl_settings_read(NULL), NULL, NULL);
    end = pncclGroupEnd();
    return result == NCCL_SUCCESS ? end : result;
}

/* ---- children ---------------------------------------------------------------------------------------------------- */

struct comm_choice {
    int color, key;
};

/* Some of its ranks are absent: nothing tells their colours, and what is said of the members holds for all. */
static bool comm_some(const struct nccl_comm *comm)
{
    return comm->seat && comm->seats < comm->ranks;
}

static enum nccl_result split_announce(struct nccl_task *task)
{
    struct comm_task *own = (struct comm_task *)task;
    struct comm_choice choice = {own->color, own->key};
    struct nccl_message head = {.bytes = sizeof choice};
    if (comm_some(own->parent))
        return NCCL_SUCCESS;
    for (int i = 0; i < own->parent->ranks; i++) {
        int error = i == own->parent->rank
                        ? 0
                        : nccl_room_send(own->parent->room, NCCL_CALL, nccl_seat(own->parent, own->parent->rank),
                                         nccl_seat(own->parent, i), &head, &choice);
        if (error)
            return nccl_error(NCCL_SYSTEM_ERROR, "ncclCommSplit: rank %d cannot be told: %s", i, strerror(-error));
    }
    return NCCL_SUCCESS;
}

static bool split_is_there(struct nccl_comm *comm, int peer, void *head)
{
    return nccl_room_peek(comm->room, NCCL_CALL, nccl_seat(comm, peer), nccl_seat(comm, comm->rank), head);
}

/* The order in the child is that of the keys, then of the ranks. */
static enum nccl_result split_hear(struct nccl_task *task)
{
    struct comm_task *own = (struct comm_task *)task;
    struct nccl_comm *parent = own->parent;
    int ranks = 0, rank = 0;
    if (comm_some(parent)) {
        enum nccl_result result = own->comm ? nccl_present_of_split(own->comm) : NCCL_SUCCESS;
        return !own->comm || result != NCCL_SUCCESS ? result : comm_join(own->comm);
    }
    for (int i = 0; i < parent->ranks; i++) {
        struct nccl_message head = {.bytes = 0};
        struct comm_choice choice = {own->color, own->key};
        if (i != parent->rank) {
            if (!nccl_comm_wait(parent, i, "ncclCommSplit", split_is_there, &head))
                return parent->failed ? parent->failed : NCCL_INTERNAL_ERROR;
            if (head.bytes != sizeof choice || nccl_room_take(parent->room, NCCL_CALL, nccl_seat(parent, i),
                                                              nccl_seat(parent, parent->rank), &head, &choice) != 0)
                return nccl_error(NCCL_INTERNAL_ERROR, "ncclCommSplit: rank %d says something else", i);
        }
        if (choice.color != own->color)
            continue;
        ranks++;
        rank += choice.key < own->key || (choice.key == own->key && i < parent->rank);
    }
    if (!own->comm)
        return NCCL_SUCCESS;
    own->comm->ranks = ranks;
    own->comm->rank = rank;
    return comm_join(own->comm);
}

NCCL_API(enum nccl_result, ncclCommSplit, struct nccl_comm *parent, int color, int key, struct nccl_comm **out,
         struct nccl_config *config)
{
    char name[80];
    if (!nccl_comm_valid(parent) || !parent->room || !out || color < -1)
        return nccl_error(NCCL_INVALID_ARGUMENT,
                          "ncclCommSplit: no such communicator, no pointer, or a negative color");
    enum nccl_result result = comm_config(config);
    if (result != NCCL_SUCCESS)
        return result;
    struct comm_task *task = calloc(1, sizeof *task);
    struct nccl_comm *comm = NULL;
    unsigned sequence = __atomic_fetch_add(&parent->children, 1, __ATOMIC_SEQ_CST);
    if (!task)
        return nccl_error(NCCL_SYSTEM_ERROR, "out of host memory");
    comm_key(name, parent->key, "split", sequence, color);
    if (color >= 0)
        result = comm_new(&comm, parent->ranks, parent->rank, name, parent->device);
    if (result != NCCL_SUCCESS) {
        free(task);
        return result;
    }
    if (comm)
        comm->set = config ? nccl_settings_read(config) : parent->set;
    *out = comm;
    nccl_comm_hold(parent);
    *task = (struct comm_task){.task = {.stage = {split_announce, split_hear, comm_task_ready}, .end = comm_task_end},
                               .comm = comm,
                               .parent = parent,
                               .color = color,
                               .key = key};
    result = nccl_task_add(&task->task);
    if (result != NCCL_SUCCESS && comm) {
        *out = NULL;
        nccl_comm_drop(comm);
    }
    return result;
}

struct comm_rest {
    const struct nccl_comm *parent;
    const int *excluded;
    int count;
};

static bool rest_stays(const struct comm_rest *rest, int rank)
{
    bool stays = true;
    for (int j = 0; j < rest->count; j++)
        stays = stays && rest->excluded[j] != rank;
    return stays;
}

static enum nccl_result rest_who(struct nccl_comm *comm, const void *data)
{
    const struct comm_rest *rest = data;
    if (!rest->parent->seat)
        return NCCL_SUCCESS;
    int *world = malloc((size_t)comm->ranks * sizeof *world), count = 0;
    for (int i = 0; world && i < rest->parent->ranks; i++)
        if (rest_stays(rest, i))
            world[count++] = rest->parent->world[i];
    enum nccl_result result =
        world ? nccl_present_set(comm, world, count) : nccl_error(NCCL_SYSTEM_ERROR, "out of host memory");
    free(world);
    return result;
}

/* The ranks that stay know who goes, so nobody has to be asked. */
NCCL_API(enum nccl_result, ncclCommShrink, struct nccl_comm *parent, int *excluded, int count, struct nccl_comm **out,
         struct nccl_config *config, int flags)
{
    char name[80];
    int rank = 0, ranks = 0;
    (void)flags;
    if (!nccl_comm_valid(parent) || !out || count < 0 || (count && !excluded))
        return nccl_error(NCCL_INVALID_ARGUMENT, "ncclCommShrink: no such communicator, or no pointer");
    enum nccl_result result = comm_config(config);
    if (result != NCCL_SUCCESS)
        return result;
    struct comm_rest rest = {parent, excluded, count};
    for (int i = 0; i < parent->ranks; i++) {
        bool stays = rest_stays(&rest, i);
        if (!stays && i == parent->rank)
            return nccl_error(NCCL_INVALID_USAGE, "ncclCommShrink: rank %d is excluded itself", i);
        ranks += stays;
        rank += stays && i < parent->rank;
    }
    comm_key(name, parent->key, "shrink", __atomic_fetch_add(&parent->children, 1, __ATOMIC_SEQ_CST), ranks);
    return comm_start(out, ranks, rank, name, parent->device, config ? nccl_settings_read(config) : parent->set,
                      rest_who, &rest);
}

/* ---- questions and the end --------------------------------------------------------------------------------------- */

#define COMM_ASK(_comm, _out)                                                                                          \
    do {                                                                                                               \
        if (!nccl_comm_valid(_comm) || !(_out))                                                                        \
            return nccl_error(NCCL_INVALID_ARGUMENT, "%s: no such communicator, or no pointer", __func__ + 1);         \
    } while (0)

NCCL_API(enum nccl_result, ncclCommCount, const struct nccl_comm *comm, int *count)
{
    COMM_ASK(comm, count);
    *count = comm->ranks;
    return NCCL_SUCCESS;
}

NCCL_API(enum nccl_result, ncclCommCuDevice, const struct nccl_comm *comm, int *device)
{
    COMM_ASK(comm, device);
    *device = comm->device;
    return NCCL_SUCCESS;
}

NCCL_API(enum nccl_result, ncclCommUserRank, const struct nccl_comm *comm, int *rank)
{
    COMM_ASK(comm, rank);
    *rank = comm->rank;
    return NCCL_SUCCESS;
}

NCCL_API(enum nccl_result, ncclCommGetAsyncError, struct nccl_comm *comm, enum nccl_result *error)
{
    COMM_ASK(comm, error);
    *error = __atomic_load_n(&comm->failed, __ATOMIC_SEQ_CST);
    return NCCL_SUCCESS;
}

/* Operations go on in their streams, so there is nothing to be flushed. */
NCCL_API(enum nccl_result, ncclCommFinalize, struct nccl_comm *comm)
{
    COMM_ASK(comm, comm);
    return NCCL_SUCCESS;
}

static enum nccl_result comm_end(struct nccl_comm *comm, bool abort)
{
    if (!comm)
        return NCCL_SUCCESS;
    if (!nccl_comm_valid(comm) || __atomic_exchange_n(&comm->left, true, __ATOMIC_SEQ_CST))
        return nccl_error(NCCL_INVALID_ARGUMENT, "ncclCommDestroy: no such communicator");
    if (abort)
        __atomic_store_n(&comm->aborted, true, __ATOMIC_SEQ_CST);
    nccl_memory_end(comm);
    nccl_comm_drop(comm);
    return NCCL_SUCCESS;
}

NCCL_API(enum nccl_result, ncclCommDestroy, struct nccl_comm *comm)
{
    return comm_end(comm, false);
}

NCCL_API(enum nccl_result, ncclCommAbort, struct nccl_comm *comm)
{
    return comm_end(comm, true);
}

NCCL_API(enum nccl_result, ncclCommRevoke, struct nccl_comm *comm, int flags)
{
    (void)flags;
    COMM_ASK(comm, comm);
    __atomic_store_n(&comm->aborted, true, __ATOMIC_SEQ_CST);
    return NCCL_SUCCESS;
}

/* Registration makes real transfers faster; here the handle is all there is of it. */
NCCL_API(enum nccl_result, ncclCommRegister, const struct nccl_comm *comm, void *buffer, size_t size, void **handle)
{
    COMM_ASK(comm, buffer && size && handle);
    *handle = malloc(1);
    return *handle ? NCCL_SUCCESS : nccl_error(NCCL_SYSTEM_ERROR, "out of host memory");
}

NCCL_API(enum nccl_result, ncclCommDeregister, const struct nccl_comm *comm, void *handle)
{
    COMM_ASK(comm, comm);
    free(handle);
    return NCCL_SUCCESS;
}

NCCL_API(enum nccl_result, ncclCommWindowRegister, struct nccl_comm *comm, void *buffer, size_t size, void **window,
         int flags)
{
    COMM_ASK(comm, buffer && size && window);
    if (!comm->ready)
        return nccl_error(NCCL_INVALID_USAGE, "ncclCommWindowRegister: the communicator is not ready");
    enum nccl_result result = flags & NCCL_WINDOW_SYMMETRIC ? nccl_memory_window(comm) : NCCL_SUCCESS;
    return result == NCCL_SUCCESS ? pncclCommRegister(comm, buffer, size, window) : result;
}

NCCL_API(enum nccl_result, ncclCommWindowDeregister, struct nccl_comm *comm, void *window)
{
    return pncclCommDeregister(comm, window);
}
