/* SPDX-License-Identifier: MIT
 *
 * Collectives, and send and receive.
 *
 * Each is two steps.  The first one sends this rank's part to those that need it; it never waits.
 * The second one, a host function, waits for the parts of the others, reduces them and stores the
 * result.  What a group holds together sends first and waits then, so that one thread can do the
 * work of several ranks.  If nothing of the stream is on its way, the first step is done by the
 * call itself: host functions run one after the other, and a step that waits for another rank must
 * not hold up what that one waits for.
 *
 * In a graph both steps are host functions; a message has its place in the channel from when it is
 * sent, so each launch of the graph takes the next one.
 *
 * Large ones move nothing: kernels compute nothing on the simulated GPU, so there is nothing to be
 * moved.  Broadcasts of bytes are moved at any size, since programs broadcast what they made
 * themselves: pickled objects. */
#define _GNU_SOURCE
#include "nccl.h"
#include "report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORK_SMALL ((size_t)64 << 10) /* bytes of a rank's part */
#define WORK_PIECE ((size_t)1 << 20)  /* larger parts go in pieces */

enum work_kind {
    WORK_ALL_REDUCE,
    WORK_REDUCE,
    WORK_BROADCAST,
    WORK_ALL_GATHER,
    WORK_REDUCE_SCATTER,
    WORK_ALL_TO_ALL,
    WORK_GATHER,
    WORK_SCATTER,
    WORK_SEND,
    WORK_RECEIVE
};
static const char *const work_names[] = {"ncclAllReduce",     "ncclReduce",   "ncclBroadcast", "ncclAllGather",
                                         "ncclReduceScatter", "ncclAlltoAll", "ncclGather",    "ncclScatter",
                                         "ncclSend",          "ncclRecv"};

struct nccl_work {
    struct nccl_task task;
    struct nccl_comm *comm;
    enum work_kind kind;
    int type, op, root; /* root: or the peer */
    CUstream stream;
    uint64_t from, to;
    size_t count, bytes;       /* of a part */
    struct nccl_scaler scaler; /* a copy: the program may end the operation as soon as its call returns */
    unsigned char *own;        /* what this rank sends, between the steps */
    bool moves, captured;
    int steps;       /* that are still to run */
    uint64_t order;  /* among the calls that were not captured */
    uint64_t ticket; /* among the second steps */
    struct nccl_alike alike;
};

/* ---- who sends what to whom -------------------------------------------------------------------------------------- */

static bool work_reduces(const struct nccl_work *work)
{
    return work->kind == WORK_ALL_REDUCE || work->kind == WORK_REDUCE || work->kind == WORK_REDUCE_SCATTER;
}

/* True: this rank sends its part at *part (a number of parts) to the other one. */
static bool work_sends(const struct nccl_work *work, int to, size_t *part)
{
    bool root = work->comm->rank == work->root;
    *part = 0;
    switch (work->kind) {
    case WORK_ALL_REDUCE:
    case WORK_ALL_GATHER:
        return true;
    case WORK_REDUCE:
    case WORK_GATHER:
    case WORK_SEND:
        return to == work->root;
    case WORK_BROADCAST:
        return root;
    case WORK_SCATTER:
        *part = (size_t)to;
        return root;
    case WORK_REDUCE_SCATTER:
    case WORK_ALL_TO_ALL:
        *part = (size_t)to;
        return true;
    default:
        return false;
    }
}

/* True: the other one's part goes to *part of the result, or is reduced. */
static bool work_receives(const struct nccl_work *work, int from, size_t *part)
{
    bool root = work->comm->rank == work->root;
    *part = 0;
    switch (work->kind) {
    case WORK_ALL_REDUCE:
    case WORK_REDUCE_SCATTER:
        return true;
    case WORK_REDUCE:
        return root;
    case WORK_ALL_GATHER:
    case WORK_ALL_TO_ALL:
        *part = (size_t)from;
        return true;
    case WORK_GATHER:
        *part = (size_t)from;
        return root;
    case WORK_BROADCAST:
    case WORK_SCATTER:
    case WORK_RECEIVE:
        return from == work->root;
    default:
        return false;
    }
}

static size_t work_parts(const struct nccl_work *work, bool (*side)(const struct nccl_work *, int, size_t *))
{
    size_t most = 0, part;
    for (int i = 0; i < work->comm->ranks; i++)
        if (side(work, i, &part) && part + 1 > most)
            most = part + 1;
    return most;
}

/* A message to oneself goes past the channels, except of send and receive, which are two works. */
static bool work_inside(const struct nccl_work *work, int other)
{
    return other == work->comm->rank && work->kind != WORK_SEND && work->kind != WORK_RECEIVE;
}

/* ---- the steps --------------------------------------------------------------------------------------------------- */

static void work_free(struct nccl_work *work)
{
    nccl_comm_drop(work->comm);
    free(work->own);
    free(work);
}

/* A graph keeps its works: it may be launched again. */
static void work_over(struct nccl_work *work)
{
    if (!work->captured && __atomic_sub_fetch(&work->steps, 1, __ATOMIC_SEQ_CST) == 0)
        work_free(work);
}

static void work_fault(struct nccl_work *work, uint64_t at, size_t size)
{
    nccl_comm_fail(work->comm, NCCL_CUDA_ERROR, "%s: %zu bytes at 0x%llx are not all memory that the driver knows",
                   work_names[work->kind], size, (unsigned long long)at);
}

struct work_try {
    struct nccl_work *work;
    struct nccl_message head;
    const unsigned char *bytes;
    int error;
};

static bool work_try_send(struct nccl_comm *comm, int to, void *data)
{
    struct work_try *try = data;
    try->error =
        nccl_room_send(comm->room, NCCL_DATA, nccl_seat(comm, comm->rank), nccl_seat(comm, to), &try->head, try->bytes);
    return try->error != -ENOBUFS;
}

static bool work_send(struct nccl_work *work, int to, const unsigned char *bytes, size_t size)
{
    struct work_try try = {.work = work,
                           .head = {.kind = (uint16_t)(work->kind == WORK_RECEIVE ? WORK_SEND : work->kind),
                                    .type = (uint8_t)work->type,
                                    .op = (uint8_t)(work->op < NCCL_OPS ? work->op : NCCL_SUM),
                                    .count = work->count,
                                    .bytes = size},
                           .bytes = bytes};
    if (!nccl_comm_wait(work->comm, to, work_names[work->kind], work_try_send, &try))
        return false;
    if (try.error)
        nccl_comm_fail(work->comm, NCCL_SYSTEM_ERROR, "%s: no room for a message in /dev/shm: %s",
                       work_names[work->kind], strerror(-try.error));
    return !try.error;
}

/* A broadcast of any size, read and sent in pieces. */
static void work_send_pieces(struct nccl_work *work)
{
    const struct nccl_driver *driver = nccl_driver();
    unsigned char *piece = malloc(WORK_PIECE);
    for (size_t at = 0; piece && at < work->bytes; at += WORK_PIECE) {
        size_t size = work->bytes - at < WORK_PIECE ? work->bytes - at : WORK_PIECE;
        if (driver->sim_memory_fetch(piece, work->from + at, size) != 0) {
            work_fault(work, work->from + at, size);
            break;
        }
        if (work->to != work->from)
            driver->sim_memory_store(work->to + at, piece, size);
        for (int i = 0; i < work->comm->ranks; i++)
            if (i != work->comm->rank && !nccl_is_absent(work->comm, i) && !work_send(work, i, piece, size))
                at = work->bytes; /* the communicator has failed */
    }
    free(piece);
}

static void work_give(struct nccl_work *work)
{
    size_t parts = work_parts(work, work_sends), part;
    if (parts && work->bytes > WORK_SMALL) {
        work_send_pieces(work);
    } else if (parts && work->bytes) {
        free(work->own);
        work->own = malloc(parts * work->bytes);
        if (!work->own) {
            nccl_comm_fail(work->comm, NCCL_SYSTEM_ERROR, "out of host memory");
        } else if (nccl_driver()->sim_memory_fetch(work->own, work->from, parts * work->bytes) != 0) {
            work_fault(work, work->from, parts * work->bytes);
        } else {
            unsigned char factor[8];
            const struct nccl_scaler *scaler = &work->scaler;
            if (scaler->used) {
                memcpy(factor, scaler->value, sizeof factor);
                if (scaler->device &&
                    nccl_driver()->sim_memory_fetch(factor, scaler->where, nccl_type_size(work->type)))
                    work_fault(work, scaler->where, nccl_type_size(work->type));
                nccl_scale(work->own, parts * work->count, work->type, factor);
            }
            for (int i = 0; i < work->comm->ranks; i++)
                if (work_sends(work, i, &part) && !work_inside(work, i) && !nccl_is_absent(work->comm, i) &&
                    !work_send(work, i, work->own + part * work->bytes, work->bytes))
                    break;
        }
    }
}

static bool work_waits(const struct nccl_work *work)
{
    return work->moves && work->bytes && work_parts(work, work_receives);
}

static void work_first(void *data)
{
    struct nccl_work *work = data;
    struct nccl_comm *comm = work->comm;
    pthread_mutex_lock(&comm->lock);
    if (!work->captured)
        nccl_comm_turn(comm, &comm->started, work->order);
    if (work_waits(work))
        work->ticket = comm->tickets++;
    pthread_mutex_unlock(&comm->lock);
    work_give(work);
    pthread_mutex_lock(&comm->lock);
    if (!work->captured)
        comm->started++;
    pthread_cond_broadcast(&comm->moved);
    pthread_mutex_unlock(&comm->lock);
    work_over(work);
}

static bool work_is_there(struct nccl_comm *comm, int from, void *head)
{
    return nccl_room_peek(comm->room, NCCL_DATA, nccl_seat(comm, from), nccl_seat(comm, comm->rank), head);
}

/* The next piece of a part; false: the communicator has failed. */
static bool work_receive(struct nccl_work *work, int from, unsigned char *bytes, size_t size)
{
    struct nccl_comm *comm = work->comm;
    struct nccl_message head;
    unsigned kind = work->kind == WORK_RECEIVE ? WORK_SEND : work->kind;
    if (!nccl_comm_wait(comm, from, work_names[work->kind], work_is_there, &head))
        return false;
    if (head.kind != kind || head.bytes != size || head.count != work->count) {
        nccl_comm_fail(
            comm, NCCL_INVALID_USAGE,
            "the ranks do not do the same: rank %d has called %s with %llu x %s, and rank %d %s with %zu x %s", from,
            head.kind < WORK_RECEIVE ? work_names[head.kind] : "something", (unsigned long long)head.count,
            nccl_type_name(head.type), comm->rank, work_names[work->kind], work->count, nccl_type_name(work->type));
        return false;
    }
    int error = nccl_room_take(comm->room, NCCL_DATA, nccl_seat(comm, from), nccl_seat(comm, comm->rank), &head, bytes);
    if (error)
        nccl_comm_fail(comm, NCCL_SYSTEM_ERROR, "%s: a message of rank %d cannot be read: %s", work_names[work->kind],
                       from, strerror(-error));
    return !error;
}

static void work_receive_pieces(struct nccl_work *work)
{
    unsigned char *piece = malloc(WORK_PIECE);
    for (size_t at = 0; piece && at < work->bytes; at += WORK_PIECE) {
        size_t size = work->bytes - at < WORK_PIECE ? work->bytes - at : WORK_PIECE;
        if (!work_receive(work, work->root, piece, size))
            break;
        if (nccl_driver()->sim_memory_store(work->to + at, piece, size) != 0) {
            work_fault(work, work->to + at, size);
            break;
        }
    }
    free(piece);
}

static bool work_from_absent(const struct nccl_work *work)
{
    return (work->kind == WORK_BROADCAST || work->kind == WORK_RECEIVE) && nccl_is_absent(work->comm, work->root);
}

/* From an absent rank: a broadcast leaves what is there, unless this rank broadcasts in the same group: then each does
 * so with a part of its own, and all are alike.  A message is what this rank sends to itself in the same group, as all
 * do to all; else zeros. */
static void work_get_absent(struct nccl_work *work)
{
    const struct nccl_driver *driver = nccl_driver();
    size_t same = work->alike.bytes < work->bytes ? work->alike.bytes : work->bytes;
    unsigned char *bytes = work->bytes <= WORK_SMALL ? calloc(1, work->bytes) : NULL;
    if (!bytes || (work->kind == WORK_BROADCAST && !same)) {
        free(bytes);
        return;
    }
    if (same && driver->sim_memory_fetch(bytes, work->alike.from, same) != 0)
        work_fault(work, work->alike.from, same);
    else if (driver->sim_memory_store(work->to, bytes, work->bytes) != 0)
        work_fault(work, work->to, work->bytes);
    free(bytes);
}

/* Parts in the order of the ranks. */
static bool work_collect(struct nccl_work *work, unsigned char *result, unsigned char *part, union nccl_number *numbers)
{
    bool first = true;
    size_t place, own;
    int same = 0;
    for (int i = 0; i < work->comm->ranks; i++) {
        const unsigned char *bytes = part;
        bool absent = nccl_is_absent(work->comm, i);
        if (!work_receives(work, i, &place))
            continue;
        if (absent && numbers) {
            same++;
            continue;
        }
        if (absent && work->kind == WORK_SCATTER) {
            memset(part, 0, work->bytes);
        } else if (absent || work_inside(work, i)) {
            work_sends(work, work->comm->rank, &own);
            bytes = work->own + own * work->bytes;
        } else if (!work_receive(work, i, part, work->bytes)) {
            return false;
        }
        if (!numbers)
            memcpy(result + place * work->bytes, bytes, work->bytes);
        else if (first)
            nccl_reduce_first(numbers, bytes, work->count, work->type);
        else
            nccl_reduce_next(numbers, bytes, work->count, work->type, work->op);
        first = false;
    }
    if (same) {
        work_sends(work, work->comm->rank, &own);
        nccl_reduce_same(numbers, work->own + own * work->bytes, work->count, work->type, work->op, same);
    }
    if (numbers)
        nccl_reduce_last(result, numbers, work->count, work->type, work->op, work->comm->ranks);
    return true;
}

static void work_get(struct nccl_work *work)
{
    size_t parts = work_parts(work, work_receives);
    if (work_from_absent(work)) {
        work_get_absent(work);
    } else if (parts && work->bytes > WORK_SMALL) {
        if (work->comm->rank != work->root)
            work_receive_pieces(work);
    } else if (parts && work->bytes && !work->comm->failed) {
        unsigned char *result = malloc(parts * work->bytes), *part = malloc(work->bytes);
        union nccl_number *numbers = work_reduces(work) ? malloc(work->count * sizeof *numbers) : NULL;
        if (!result || !part || (work_reduces(work) && !numbers))
            nccl_comm_fail(work->comm, NCCL_SYSTEM_ERROR, "out of host memory");
        else if (work_collect(work, result, part, numbers) &&
                 nccl_driver()->sim_memory_store(work->to, result, parts * work->bytes) != 0)
            work_fault(work, work->to, parts * work->bytes);
        free(result);
        free(part);
        free(numbers);
    }
}

static void work_second(void *data)
{
    struct nccl_work *work = data;
    struct nccl_comm *comm = work->comm;
    pthread_mutex_lock(&comm->lock);
    nccl_comm_turn(comm, &comm->turn, work->ticket);
    pthread_mutex_unlock(&comm->lock);
    work_get(work);
    pthread_mutex_lock(&comm->lock);
    comm->turn++;
    pthread_cond_broadcast(&comm->moved);
    pthread_mutex_unlock(&comm->lock);
    work_over(work);
}

/* Of a large one. */
static void work_computed(void *data)
{
    struct nccl_work *work = data;
    nccl_driver()->sim_memory_computed(work->to, work_parts(work, work_receives) * work->bytes);
    work_over(work);
}

/* ---- the memory that NCCL takes for it --------------------------------------------------------------------------- */

/* NVLink SHARP adds and compares some types. */
static bool work_sums(const struct nccl_work *work)
{
    bool compares = work->op == NCCL_MAX || work->op == NCCL_MIN;
    switch (work->type) {
    case NCCL_INT32:
    case NCCL_UINT32:
    case NCCL_INT64:
    case NCCL_UINT64:
    case NCCL_FLOAT16:
    case NCCL_BFLOAT16:
        return work->op == NCCL_SUM || compares;
    case NCCL_FLOAT32:
    case NCCL_FLOAT64:
        return work->op == NCCL_SUM;
    default:
        return false;
    }
}

/* Before any work of a group begins.  NCCL makes messages of what is not done by rings or trees. */
static enum nccl_result work_want(struct nccl_task *task)
{
    struct nccl_work *work = (struct nccl_work *)task;
    struct nccl_comm *comm = work->comm;
    size_t part;
    bool messages = work->kind == WORK_ALL_TO_ALL || work->kind == WORK_GATHER || work->kind == WORK_SCATTER ||
                    work->kind == WORK_SEND || work->kind == WORK_RECEIVE;
    if (comm->failed)
        return nccl_error(comm->failed, "%s: the communicator has failed", work_names[work->kind]);
    if (!comm->ready)
        return nccl_error(NCCL_INVALID_USAGE, "%s: the communicator is not ready", work_names[work->kind]);
    if ((work->kind == WORK_BROADCAST || work->kind == WORK_SEND) && work->root == comm->rank)
        comm->alike[work->kind == WORK_SEND] = (struct nccl_alike){nccl_group_number(), work->from, work->bytes};
    for (int i = 0; messages && i < comm->ranks; i++) {
        if (work_sends(work, i, &part))
            nccl_memory_want(comm, i, true);
        if (work_receives(work, i, &part))
            nccl_memory_want(comm, i, false);
    }
    if (work->kind == WORK_GATHER || work->kind == WORK_SCATTER)
        nccl_memory_want_proxy(comm, work->root, work->kind == WORK_SCATTER);
    return NCCL_SUCCESS;
}

static enum nccl_result work_take(struct nccl_work *work)
{
    static const enum nccl_function functions[] = {[WORK_ALL_REDUCE] = NCCL_ALL_REDUCE,
                                                   [WORK_REDUCE] = NCCL_FROM_ROOT,
                                                   [WORK_BROADCAST] = NCCL_FROM_ROOT,
                                                   [WORK_ALL_GATHER] = NCCL_ALL_GATHER,
                                                   [WORK_REDUCE_SCATTER] = NCCL_REDUCE_SCATTER};
    uint64_t bytes = work->bytes;
    if (work->kind >= WORK_ALL_TO_ALL)
        return nccl_memory_connect(work->comm);
    if (work->kind == WORK_ALL_GATHER || work->kind == WORK_REDUCE_SCATTER)
        bytes *= (uint64_t)work->comm->ranks;
    return nccl_memory_collective(work->comm, functions[work->kind], bytes, work_sums(work));
}

/* ---- from the call to the steps ---------------------------------------------------------------------------------- */

/* Now, if everything before it in the stream is done; else in stream order. */
static enum nccl_result work_run(struct nccl_work *work, void (*step)(void *), bool now)
{
    const struct nccl_driver *driver = nccl_driver();
    CUresult result = CUDA_SUCCESS;
    if (now && driver->cuStreamQuery(work->stream) == CUDA_SUCCESS)
        step(work);
    else
        result = driver->cuLaunchHostFunc(work->stream, step, work);
    if (result == CUDA_SUCCESS)
        return NCCL_SUCCESS;
    return nccl_error(NCCL_CUDA_ERROR, "%s: the stream takes no work: CUDA error %d", work_names[work->kind],
                      (int)result);
}

/* With an absent rank: whether all do the same in this group. */
static void work_with_absent(struct nccl_work *work)
{
    struct nccl_comm *comm = work->comm;
    bool message = work->kind == WORK_SEND || work->kind == WORK_RECEIVE;
    const struct nccl_alike *alike = &comm->alike[message];
    bool all = alike->group == nccl_group_number();
    if (!nccl_is_absent(comm, work->root) || (!message && work->kind != WORK_BROADCAST))
        return;
    work->alike = all ? *alike : (struct nccl_alike){0};
    if (message && !all)
        nccl_present_peer(comm, work->root);
}

static enum nccl_result work_start(struct nccl_task *task)
{
    struct nccl_work *work = (struct nccl_work *)task;
    struct nccl_comm *comm = work->comm;
    const struct nccl_driver *driver = nccl_driver();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    enum nccl_result result = work_take(work);
    if (result != NCCL_SUCCESS)
        return result;
    work_with_absent(work);
    driver->cuCtxPushCurrent(comm->context);
    driver->cuStreamIsCapturing(work->stream, &status);
    work->captured = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (!work->moves && comm->ranks == 1 && work->kind != WORK_SEND && work->kind != WORK_RECEIVE) {
        CUresult copied = work->from == work->to || !work->bytes
                              ? CUDA_SUCCESS
                              : driver->cuMemcpyAsync(work->to, work->from, work->bytes, work->stream);
        if (copied != CUDA_SUCCESS)
            result = nccl_error(NCCL_CUDA_ERROR, "%s: CUDA error %d", work_names[work->kind], (int)copied);
    } else if (!work->moves) {
        work->steps++;
        result = work_run(work, work_computed, !work->captured);
    } else {
        work->steps++;
        pthread_mutex_lock(&comm->lock);
        bool now = !work->captured && comm->started == comm->submitted;
        work->order = work->captured ? 0 : comm->submitted++;
        pthread_mutex_unlock(&comm->lock);
        result = work_run(work, work_first, now);
        if (result != NCCL_SUCCESS && !work->captured) {
            pthread_mutex_lock(&comm->lock);
            if (comm->submitted == work->order + 1) /* it has no turn */
                comm->submitted--;
            pthread_mutex_unlock(&comm->lock);
        }
    }
    driver->cuCtxPopCurrent(NULL);
    return result;
}

static enum nccl_result work_finish(struct nccl_task *task)
{
    struct nccl_work *work = (struct nccl_work *)task;
    enum nccl_result result = NCCL_SUCCESS;
    if (work_waits(work)) {
        nccl_driver()->cuCtxPushCurrent(work->comm->context);
        work->steps++;
        result = work_run(work, work_second, false);
        if (result != NCCL_SUCCESS) /* its turn would never come, and the others have sent already */
            nccl_comm_fail(work->comm, result, "%s: the stream is gone", work_names[work->kind]);
        nccl_driver()->cuCtxPopCurrent(NULL);
    }
    return result;
}

/* The call's own step is over. */
static void work_end(struct nccl_task *task)
{
    work_over((struct nccl_work *)task);
}

static enum nccl_result work_check(const struct nccl_work *work)
{
    const struct nccl_comm *comm = work->comm;
    const char *name = work_names[work->kind];
    if (!nccl_comm_valid(comm) || comm->left)
        return nccl_error(NCCL_INVALID_ARGUMENT, "%s: no such communicator", name);
    if (!nccl_type_size(work->type))
        return nccl_error(NCCL_INVALID_ARGUMENT, "%s: type %d: no such type", name, work->type);
    if (work->count > SIZE_MAX / 8 / NCCL_MOST)
        return nccl_error(NCCL_INVALID_ARGUMENT, "%s: %zu elements: too many", name, work->count);
    if (work->root < 0 || work->root >= comm->ranks)
        return nccl_error(NCCL_INVALID_ARGUMENT, "%s: rank %d of %d: no such rank", name, work->root, comm->ranks);
    if (work->op < 0 || (work->op >= NCCL_OPS &&
                         (work->op - NCCL_OPS >= comm->scaler_count || !comm->scalers[work->op - NCCL_OPS].used)))
        return nccl_error(NCCL_INVALID_ARGUMENT, "%s: operation %d: no such operation", name, work->op);
    return NCCL_SUCCESS;
}

static enum nccl_result work_add(struct nccl_work wanted)
{
    enum nccl_result result = work_check(&wanted);
    if (result != NCCL_SUCCESS)
        return result;
    struct nccl_work *work = malloc(sizeof *work);
    if (!work)
        return nccl_error(NCCL_SYSTEM_ERROR, "out of host memory");
    *work = wanted;
    work->bytes = work->count * nccl_type_size(work->type);
    bool all = work->kind == WORK_BROADCAST && (work->type == NCCL_INT8 || work->type == NCCL_UINT8);
    work->moves = work->bytes <= WORK_SMALL || (all && work->comm->ranks > 1);
    if (work->op >= NCCL_OPS)
        work->scaler = work->comm->scalers[work->op - NCCL_OPS];
    if (!work->moves && work->comm->ranks > 1)
        sim_report(NCCL_LIBRARY, "assumed", "collectives above 64 KiB a rank move no data: results are zeros");
    work->task = (struct nccl_task){.stage = {work_want, work_start, work_finish}, .end = work_end};
    work->steps = 1;
    nccl_comm_hold(work->comm);
    return nccl_task_add(&work->task);
}

#define WORK(_kind, _from, _to, _root, _op)                                                                            \
    work_add((struct nccl_work){.comm = comm,                                                                          \
                                .kind = _kind,                                                                         \
                                .type = type,                                                                          \
                                .op = _op,                                                                             \
                                .root = _root,                                                                         \
                                .stream = stream,                                                                      \
                                .from = (uint64_t)(_from),                                                             \
                                .to = (uint64_t)(_to),                                                                 \
                                .count = count})

NCCL_API(enum nccl_result, ncclAllReduce, const void *from, void *to, size_t count, int type, int op,
         struct nccl_comm *comm, CUstream stream)
{
    return WORK(WORK_ALL_REDUCE, from, to, 0, op);
}

NCCL_API(enum nccl_result, ncclReduce, const void *from, void *to, size_t count, int type, int op, int root,
         struct nccl_comm *comm, CUstream stream)
{
    return WORK(WORK_REDUCE, from, to, root, op);
}

NCCL_API(enum nccl_result, ncclBroadcast, const void *from, void *to, size_t count, int type, int root,
         struct nccl_comm *comm, CUstream stream)
{
    return WORK(WORK_BROADCAST, from, to, root, 0);
}

NCCL_API(enum nccl_result, ncclBcast, void *buffer, size_t count, int type, int root, struct nccl_comm *comm,
         CUstream stream)
{
    return WORK(WORK_BROADCAST, buffer, buffer, root, 0);
}

NCCL_API(enum nccl_result, ncclAllGather, const void *from, void *to, size_t count, int type, struct nccl_comm *comm,
         CUstream stream)
{
    return WORK(WORK_ALL_GATHER, from, to, 0, 0);
}

NCCL_API(enum nccl_result, ncclReduceScatter, const void *from, void *to, size_t count, int type, int op,
         struct nccl_comm *comm, CUstream stream)
{
    return WORK(WORK_REDUCE_SCATTER, from, to, 0, op);
}

NCCL_API(enum nccl_result, ncclAlltoAll, const void *from, void *to, size_t count, int type, struct nccl_comm *comm,
         CUstream stream)
{
    return WORK(WORK_ALL_TO_ALL, from, to, 0, 0);
}

NCCL_API(enum nccl_result, ncclGather, const void *from, void *to, size_t count, int type, int root,
         struct nccl_comm *comm, CUstream stream)
{
    return WORK(WORK_GATHER, from, to, root, 0);
}

NCCL_API(enum nccl_result, ncclScatter, const void *from, void *to, size_t count, int type, int root,
         struct nccl_comm *comm, CUstream stream)
{
    return WORK(WORK_SCATTER, from, to, root, 0);
}

NCCL_API(enum nccl_result, ncclSend, const void *from, size_t count, int type, int peer, struct nccl_comm *comm,
         CUstream stream)
{
    return WORK(WORK_SEND, from, 0, peer, 0);
}

NCCL_API(enum nccl_result, ncclRecv, void *to, size_t count, int type, int peer, struct nccl_comm *comm,
         CUstream stream)
{
    return WORK(WORK_RECEIVE, 0, to, peer, 0);
}

/* ---- operations of programs -------------------------------------------------------------------------------------- */

#define WORK_SCALERS 256 /* operations of a communicator that are in use at a time */

NCCL_API(enum nccl_result, ncclRedOpCreatePreMulSum, int *op, void *scalar, int type, int residence,
         struct nccl_comm *comm)
{
    enum nccl_result result = NCCL_SUCCESS;
    int i = 0;
    if (!op || !scalar || !nccl_comm_valid(comm) || !nccl_type_size(type) || residence < 0 || residence > 1)
        return nccl_error(NCCL_INVALID_ARGUMENT, "ncclRedOpCreatePreMulSum: an argument is missing or out of range");
    pthread_mutex_lock(&comm->lock);
    if (!comm->scalers)
        comm->scalers = calloc(WORK_SCALERS, sizeof *comm->scalers);
    while (comm->scalers && i < comm->scaler_count && comm->scalers[i].used)
        i++;
    if (!comm->scalers || i == WORK_SCALERS) {
        result = nccl_error(NCCL_SYSTEM_ERROR, "ncclRedOpCreatePreMulSum: more than %d operations", WORK_SCALERS);
    } else {
        comm->scalers[i] =
            (struct nccl_scaler){.used = true, .device = !residence, .type = type, .where = (uint64_t)scalar};
        if (residence)
            memcpy(comm->scalers[i].value, scalar, nccl_type_size(type));
        if (i == comm->scaler_count)
            comm->scaler_count++;
        *op = NCCL_OPS + i;
    }
    pthread_mutex_unlock(&comm->lock);
    return result;
}

NCCL_API(enum nccl_result, ncclRedOpDestroy, int op, struct nccl_comm *comm)
{
    if (!nccl_comm_valid(comm) || op < NCCL_OPS || op - NCCL_OPS >= comm->scaler_count)
        return nccl_error(NCCL_INVALID_ARGUMENT, "ncclRedOpDestroy: no such operation");
    comm->scalers[op - NCCL_OPS].used = false;
    return NCCL_SUCCESS;
}
