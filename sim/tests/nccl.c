/* SPDX-License-Identifier: MIT
 * Selftest: the stand-in for NCCL.  Ranks are processes of this test, which know each other's inputs, so each computes what
 * must come out: random collectives of all types and operations, groups, splits, graphs, a rank that dies, ranks
 * that do not agree, and several ranks in one process. */
#define _GNU_SOURCE
#include "nccl_check.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static const size_t size_of[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

/* A float whose value is exact in 16 bits, there and back. */
static uint16_t half_of(double value)
{
    union {
        float f;
        uint32_t u;
    } x = {(float)value};
    uint32_t exponent = x.u >> 23 & 255;
    if (exponent < 113)
        return (uint16_t)(x.u >> 16 & 0x8000);
    return (uint16_t)((x.u >> 16 & 0x8000) | (exponent - 112) << 10 | (x.u >> 13 & 0x3ff));
}

static double half_value(uint16_t h)
{
    int exponent = h >> 10 & 31;
    double value = exponent ? ldexp(1024 + (h & 0x3ff), exponent - 25) : ldexp(h & 0x3ff, -24);
    return h & 0x8000 ? -value : value;
}

static void put(void *to, size_t i, int type, double value)
{
    union {
        float f;
        uint32_t u;
    } x = {(float)value};
    switch (type) {
    case INT8:
    case UINT8:
        ((uint8_t *)to)[i] = (uint8_t)(int)value;
        break;
    case INT32:
    case UINT32:
        ((uint32_t *)to)[i] = (uint32_t)(int)value;
        break;
    case INT64:
    case UINT64:
        ((uint64_t *)to)[i] = (uint64_t)(int64_t)value;
        break;
    case FLOAT16:
        ((uint16_t *)to)[i] = half_of(value);
        break;
    case FLOAT32:
        ((float *)to)[i] = (float)value;
        break;
    case FLOAT64:
        ((double *)to)[i] = value;
        break;
    default:
        ((uint16_t *)to)[i] = (uint16_t)(x.u >> 16);
        break;
    }
}

static double get(const void *from, size_t i, int type)
{
    union {
        uint32_t u;
        float f;
    } x;
    switch (type) {
    case INT8:
        return ((const int8_t *)from)[i];
    case UINT8:
        return ((const uint8_t *)from)[i];
    case INT32:
        return ((const int32_t *)from)[i];
    case UINT32:
        return ((const uint32_t *)from)[i];
    case INT64:
        return (double)((const int64_t *)from)[i];
    case UINT64:
        return (double)((const uint64_t *)from)[i];
    case FLOAT16:
        return half_value(((const uint16_t *)from)[i]);
    case FLOAT32:
        return (double)((const float *)from)[i];
    case FLOAT64:
        return ((const double *)from)[i];
    default:
        x.u = (uint32_t)((const uint16_t *)from)[i] << 16;
        return (double)x.f;
    }
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    a = (a ^ b) * UINT64_C(0x9e3779b97f4a7c15);
    a ^= a >> 29;
    return a * UINT64_C(0xbf58476d1ce4e5b9) ^ a >> 32;
}

/* Small whole numbers, so that each sum and each product of four is exact in every type. */
static double input(uint64_t seed, int rank, size_t i, int type, int op)
{
    uint64_t r = mix(mix(seed, (uint64_t)rank + 1), i + 1);
    bool natural = type == UINT8 || type == UINT32 || type == UINT64;
    if (op == PROD)
        return (double)(1 << r % 2) * (natural || r & 4 ? 1 : -1);
    return natural ? (double)(r % 16) : (double)(r % 16) - 8;
}

static double expected(uint64_t seed, int ranks, size_t i, int type, int op)
{
    double result = input(seed, 0, i, type, op);
    for (int rank = 1; rank < ranks; rank++) {
        double value = input(seed, rank, i, type, op);
        result = op == PROD  ? result * value
                 : op == MAX ? fmax(result, value)
                 : op == MIN ? fmin(result, value)
                             : result + value;
    }
    if (op == AVG)
        result = type < FLOAT16 ? trunc(result / ranks) : result / ranks;
    return result;
}

static bool near(double a, double b, int type)
{
    double step = type == BFLOAT16 ? 1.0 / 256 : type == FLOAT16 ? 1.0 / 2048 : type == FLOAT32 ? 1e-7 : 0;
    return fabs(a - b) <= step * fabs(b);
}

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

static void fill(struct rank *r, uint64_t seed, size_t count, int type, int op)
{
    for (size_t i = 0; i < count; i++)
        put(r->host, i, type, input(seed, r->rank, i, type, op));
    CHECK_OK(cuMemcpyHtoDAsync(r->from, r->host, count * size_of[type], r->stream));
    CHECK_OK(cuMemsetD8Async(r->to, 0xa5, BUFFER, r->stream));
}

static void fetch(struct rank *r, CUdeviceptr from, size_t bytes)
{
    CHECK_OK(cuStreamSynchronize(r->stream));
    CHECK_OK(cuMemcpyDtoH(r->host, from, bytes));
}

/* Element i of the result must be what `model` says. */
static void compare(struct rank *r, size_t count, int type, const char *what, double (*model)(size_t i, void *),
                    void *data)
{
    size_t wrong = 0, at = 0;
    fetch(r, r->to, count * size_of[type]);
    for (size_t i = 0; i < count; i++)
        if (!near(get(r->host, i, type), model(i, data), type) && !wrong++)
            at = i;
    if (wrong)
        fprintf(stderr, "%s, type %d, rank %d of %d: %zu of %zu wrong, the first is [%zu] = %g, not %g\n", what, type,
                r->rank, r->ranks, wrong, count, at, get(r->host, at, type), model(at, data));
    CHECK(wrong == 0);
}

struct model {
    struct rank *rank;
    uint64_t seed;
    int type, op, root;
    size_t count, offset;
};
static double model_reduced(size_t i, void *data)
{
    struct model *m = data;
    return expected(m->seed, m->rank->ranks, m->offset + i, m->type, m->op);
}
static double model_root(size_t i, void *data)
{
    struct model *m = data;
    return input(m->seed, m->root, m->offset + i, m->type, m->op);
}
static double model_gathered(size_t i, void *data)
{
    struct model *m = data;
    return input(m->seed, (int)(i / m->count), m->offset + i % m->count, m->type, m->op);
}

static void collective(struct rank *r, uint64_t seed)
{
    static const char *const names[] = {"all-reduce", "reduce", "broadcast", "all-gather", "reduce-scatter",
                                        "all-to-all", "gather", "scatter",   "ring"};
    int kind = (int)(mix(seed, 11) % 9), type = (int)(mix(seed, 12) % TYPES), op = (int)(mix(seed, 13) % OPS);
    int root = (int)(mix(seed, 14) % (unsigned)r->ranks), next = (r->rank + 1) % r->ranks;
    int before = (r->rank + r->ranks - 1) % r->ranks;
    size_t most = mix(seed, 15) % 4 ? 1000 : 65536 / size_of[type], count = 1 + mix(seed, 16) % most;
    struct model m = {r, seed, type, op, root, count, 0};
    bool parts = kind == 4 || kind == 5 || kind == 7;
    CUdeviceptr to = kind == 0 && mix(seed, 17) % 2 ? r->from : r->to; /* in place, or not */
    fill(r, seed, parts ? count * (size_t)r->ranks : count, type, op);
    switch (kind) {
    case 0:
        CHECK_EQ(nccl.AllReduce(r->from, to, count, type, op, r->comm, r->stream), 0);
        if (to == r->from)
            CHECK_OK(cuMemcpyDtoDAsync(r->to, r->from, count * size_of[type], r->stream));
        compare(r, count, type, names[kind], model_reduced, &m);
        break;
    case 1:
        CHECK_EQ(nccl.Reduce(r->from, r->to, count, type, op, root, r->comm, r->stream), 0);
        if (r->rank == root)
            compare(r, count, type, names[kind], model_reduced, &m);
        break;
    case 2:
        CHECK_EQ(nccl.Broadcast(r->from, r->to, count, type, root, r->comm, r->stream), 0);
        compare(r, count, type, names[kind], model_root, &m);
        break;
    case 3:
        CHECK_EQ(nccl.AllGather(r->from, r->to, count, type, r->comm, r->stream), 0);
        compare(r, count * (size_t)r->ranks, type, names[kind], model_gathered, &m);
        break;
    case 4:
        CHECK_EQ(nccl.ReduceScatter(r->from, r->to, count, type, op, r->comm, r->stream), 0);
        m.offset = (size_t)r->rank * count;
        compare(r, count, type, names[kind], model_reduced, &m);
        break;
    case 5:
        CHECK_EQ(nccl.AlltoAll(r->from, r->to, count, type, r->comm, r->stream), 0);
        m.offset = (size_t)r->rank * count;
        compare(r, count * (size_t)r->ranks, type, names[kind], model_gathered, &m);
        break;
    case 6:
        CHECK_EQ(nccl.Gather(r->from, r->to, count, type, root, r->comm, r->stream), 0);
        if (r->rank == root)
            compare(r, count * (size_t)r->ranks, type, names[kind], model_gathered, &m);
        break;
    case 7:
        CHECK_EQ(nccl.Scatter(r->from, r->to, count, type, root, r->comm, r->stream), 0);
        m.offset = (size_t)r->rank * count;
        compare(r, count, type, names[kind], model_root, &m);
        break;
    default:
        CHECK_EQ(nccl.GroupStart(), 0);
        CHECK_EQ(nccl.Recv(r->to, count, type, before, r->comm, r->stream), 0);
        CHECK_EQ(nccl.Send(r->from, count, type, next, r->comm, r->stream), 0);
        CHECK_EQ(nccl.GroupEnd(), 0);
        m.root = before;
        compare(r, count, type, names[kind], model_root, &m);
        break;
    }
    CHECK_OK(cuStreamSynchronize(r->stream));
}

static void random_ones(struct rank *r)
{
    int count = 0, rank = -1, version = 0;
    CHECK_EQ(nccl.GetVersion(&version), 0);
    CHECK(version > 22000);
    CHECK_EQ(nccl.CommCount(r->comm, &count), 0);
    CHECK_EQ(nccl.CommUserRank(r->comm, &rank), 0);
    CHECK_EQ(count, r->ranks);
    CHECK_EQ(rank, r->rank);
    for (uint64_t seed = 1; seed <= 150; seed++)
        collective(r, mix(seed, (uint64_t)r->ranks));
    CHECK_EQ(nccl.CommDestroy(r->comm), 0);
}

/* Even and odd ranks, in the opposite order; the last rank is in none. */
static void split(struct rank *r)
{
    struct rank child = *r;
    int last = r->rank == r->ranks - 1;
    CHECK_EQ(nccl.CommSplit(r->comm, last ? -1 : r->rank % 2, -r->rank, &child.comm, NULL), 0);
    CHECK((child.comm == NULL) == last);
    if (!last) {
        CHECK_EQ(nccl.CommCount(child.comm, &child.ranks), 0);
        CHECK_EQ(nccl.CommUserRank(child.comm, &child.rank), 0);
        CHECK_EQ(child.ranks, (r->ranks - 1 + (r->rank % 2 == 0)) / 2);
        CHECK_EQ(child.rank, child.ranks - 1 - r->rank / 2);
        for (uint64_t seed = 1; seed < 20; seed++)
            collective(&child, seed);
        CHECK_EQ(nccl.CommDestroy(child.comm), 0);
    }
    int excluded = r->ranks - 1;
    if (!last) {
        child = *r;
        CHECK_EQ(nccl.CommShrink(r->comm, &excluded, 1, &child.comm, NULL, 0), 0);
        CHECK_EQ(nccl.CommCount(child.comm, &child.ranks), 0);
        CHECK_EQ(child.ranks, r->ranks - 1);
        for (uint64_t seed = 30; seed < 40; seed++)
            collective(&child, seed);
    }
    collective(r, 99);
}

/* A graph takes what is there when it is launched. */
static void graph(struct rank *r)
{
    CUgraph graph;
    CUgraphExec exec;
    struct model m = {r, 0, FLOAT32, SUM, 0, 100, 0};
    CHECK_OK(cuStreamBeginCapture(r->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK_EQ(nccl.AllReduce(r->from, r->to, 100, FLOAT32, SUM, r->comm, r->stream), 0);
    CHECK_EQ(nccl.AllReduce(r->to, r->from, 100, FLOAT32, MAX, r->comm, r->stream), 0);
    CHECK_OK(cuStreamEndCapture(r->stream, &graph));
    CHECK_OK(cuGraphInstantiate(&exec, graph, 0));
    for (uint64_t seed = 1; seed < 5; seed++) {
        m.seed = seed;
        fill(r, seed, 100, FLOAT32, SUM);
        CHECK_OK(cuGraphLaunch(exec, r->stream));
        compare(r, 100, FLOAT32, "graph", model_reduced, &m);
        collective(r, seed);
    }
    CHECK_OK(cuGraphExecDestroy(exec));
}

/* What is large moves no data and waits for nobody; bytes that are broadcast move all the same. */
static void large(struct rank *r)
{
    CUdeviceptr big;
    size_t size = 9 * MIB + 5, wrong = 0;
    unsigned char *host = malloc(size);
    CHECK_OK(cuMemAlloc(&big, size));
    if (r->rank == 0)
        CHECK_EQ(nccl.AllReduce(big, big, MIB, FLOAT32, SUM, r->comm, r->stream), 0);
    CHECK_OK(cuStreamSynchronize(r->stream));
    for (size_t i = 0; i < size; i++)
        host[i] = r->rank == 1 ? (unsigned char)(i * 7 + i / 977) : 0;
    CHECK_OK(cuMemcpyHtoDAsync(big, host, size, r->stream));
    CHECK_EQ(nccl.Broadcast(big, big, size, UINT8, 1, r->comm, r->stream), 0);
    CHECK_OK(cuStreamSynchronize(r->stream));
    CHECK_OK(cuMemcpyDtoH(host, big, size));
    for (size_t i = 0; i < size; i++)
        wrong += host[i] != (unsigned char)(i * 7 + i / 977);
    CHECK_EQ(wrong, 0);
    /* Messages of both directions at once. */
    CHECK_EQ(nccl.GroupStart(), 0);
    for (int i = 0; i < 40; i++) {
        CHECK_EQ(nccl.Send(r->from, 65536, UINT8, (r->rank + 1) % r->ranks, r->comm, r->stream), 0);
        CHECK_EQ(nccl.Recv(r->to, 65536, UINT8, (r->rank + r->ranks - 1) % r->ranks, r->comm, r->stream), 0);
    }
    CHECK_EQ(nccl.GroupEnd(), 0);
    CHECK_OK(cuStreamSynchronize(r->stream));
}

/* Each waits for the other on a stream before it sends on another one. */
static void crossed(struct rank *r)
{
    CUstream other;
    int peer = 1 - r->rank;
    CHECK_OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    fill(r, 5, 10, INT32, SUM);
    CHECK_OK(cuStreamSynchronize(r->stream));
    CHECK_EQ(nccl.Recv(r->to, 10, INT32, peer, r->comm, r->stream), 0);
    CHECK_EQ(nccl.Send(r->from, 10, INT32, peer, r->comm, other), 0);
    struct model m = {r, 5, INT32, SUM, peer, 10, 0};
    compare(r, 10, INT32, "crossed", model_root, &m);
}

static void dies(struct rank *r)
{
    int error = 0;
    collective(r, 3);
    if (r->rank == 1)
        kill(getpid(), SIGKILL);
    CHECK_EQ(nccl.AllReduce(r->from, r->to, 1, FLOAT32, SUM, r->comm, r->stream), 0);
    CHECK_OK(cuStreamSynchronize(r->stream));
    CHECK_EQ(nccl.CommGetAsyncError(r->comm, &error), 0);
    CHECK_EQ(error, 6);
    CHECK(strstr(nccl.GetLastError(r->comm), "rank 1 (PID ") != NULL);
    CHECK(nccl.AllReduce(r->from, r->to, 1, FLOAT32, SUM, r->comm, r->stream) != 0);
    CHECK_EQ(nccl.CommAbort(r->comm), 0);
}

static volatile int *late_over; /* shared by the ranks */

static void late(struct rank *r)
{
    int error = 0;
    if (r->rank == 1) {
        while (!*late_over)
            usleep(10000);
        return;
    }
    setenv("GPUPROF_SIM_NCCL_WAIT", "1", 1); /* after the start, for which a loaded machine needs longer */
    CHECK_EQ(nccl.AllReduce(r->from, r->to, 1, FLOAT32, SUM, r->comm, r->stream), 0);
    CHECK_OK(cuStreamSynchronize(r->stream));
    CHECK_EQ(nccl.CommGetAsyncError(r->comm, &error), 0);
    CHECK_EQ(error, 2);
    CHECK(strstr(nccl.GetLastError(r->comm), "has not come within 1 s") != NULL);
    *late_over = 1;
}

static void disagree(struct rank *r)
{
    int error = 0;
    if (r->rank)
        CHECK_EQ(nccl.AllReduce(r->from, r->to, 3, FLOAT32, SUM, r->comm, r->stream), 0);
    else
        CHECK_EQ(nccl.AllGather(r->from, r->to, 3, FLOAT32, r->comm, r->stream), 0);
    CHECK_OK(cuStreamSynchronize(r->stream));
    CHECK_EQ(nccl.CommGetAsyncError(r->comm, &error), 0);
    CHECK_EQ(error, 5);
    CHECK(strstr(nccl.GetLastError(r->comm), "ncclAllGather with 3 x float32") != NULL);
    check_passed++;
}

static void scaled(struct rank *r)
{
    float factor = r->rank ? 10 : 0.5f, value;
    int op;
    put(r->host, 0, FLOAT32, 4);
    CHECK_OK(cuMemcpyHtoDAsync(r->from, r->host, 4, r->stream));
    CHECK_EQ(nccl.RedOpCreatePreMulSum(&op, &factor, FLOAT32, 1, r->comm), 0);
    CHECK_EQ(nccl.AllReduce(r->from, r->to, 1, FLOAT32, op, r->comm, r->stream), 0);
    CHECK_EQ(nccl.AllReduce(r->from, r->to, 1, FLOAT32, op, r->comm, (CUstream)&op),
             1); /* no stream: nothing is held up */
    CHECK_EQ(nccl.RedOpDestroy(op, r->comm), 0);
    CHECK_EQ(nccl.AllReduce(r->from, r->to, 1, FLOAT32, op, r->comm, r->stream), 4);
    fetch(r, r->to, 4);
    memcpy(&value, r->host, 4);
    CHECK(value == 42);
}

/* One thread is all ranks. */
static void alone(void)
{
    struct rank r[MOST];
    comm_t comms[MOST];
    CUcontext contexts[MOST];
    setenv("GPUPROF_SIM", "devices=4,memory=4GiB", 1);
    for (int i = 0; i < MOST; i++) {
        r[i] = (struct rank){.ranks = MOST, .rank = i};
        contexts[i] = check_begin(i);
        buffers_make(&r[i]);
    }
    CHECK_EQ(nccl.CommInitAll(comms, MOST, NULL), 0);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MOST; i++) {
            r[i].comm = comms[i];
            CHECK_OK(cuCtxSetCurrent(contexts[i]));
            fill(&r[i], 7, 50, INT32, SUM);
        }
        CHECK_EQ(nccl.GroupStart(), 0);
        for (int i = 0; i < MOST; i++)
            CHECK_EQ(nccl.AllReduce(r[i].from, r[i].to, 50, INT32, SUM, comms[i], r[i].stream), 0);
        CHECK_EQ(nccl.GroupEnd(), 0);
        for (int i = 0; i < MOST; i++) {
            struct model m = {&r[i], 7, INT32, SUM, 0, 50, 0};
            CHECK_OK(cuCtxSetCurrent(contexts[i]));
            compare(&r[i], 50, INT32, "alone", model_reduced, &m);
        }
    }
    comm_t children[MOST];
    CHECK_EQ(nccl.GroupStart(), 0);
    for (int i = 0; i < MOST; i++)
        CHECK_EQ(nccl.CommSplit(comms[i], i / 2, i, &children[i], NULL), 0);
    CHECK_EQ(nccl.GroupEnd(), 0);
    for (int i = 0; i < MOST; i++) {
        int count = 0;
        CHECK_EQ(nccl.CommCount(children[i], &count), 0);
        CHECK_EQ(count, 2);
        CHECK_EQ(nccl.CommDestroy(children[i]), 0);
        CHECK_EQ(nccl.CommDestroy(comms[i]), 0);
    }
}

static void *thread_rank(void *data)
{
    struct rank *r = data;
    check_begin(r->rank);
    buffers_make(r);
    unique_id id;
    memset(&id, 7, sizeof id);
    snprintf(id.bytes, sizeof id.bytes, "threads %d", getpid());
    CHECK_EQ(nccl.CommInitRank(&r->comm, r->ranks, id, r->rank), 0);
    for (uint64_t seed = 1; seed < 30; seed++)
        collective(r, seed);
    return NULL;
}

/* Each rank is a thread. */
static void threads(void)
{
    struct rank r[MOST];
    pthread_t thread[MOST];
    setenv("GPUPROF_SIM", "devices=4,memory=4GiB", 1);
    for (int i = 0; i < MOST; i++) {
        r[i] = (struct rank){.ranks = MOST, .rank = i};
        CHECK(pthread_create(&thread[i], NULL, thread_rank, &r[i]) == 0);
    }
    for (int i = 0; i < MOST; i++)
        pthread_join(thread[i], NULL);
}

static void process(void (*body)(void))
{
    int status = -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        check_passed = check_failed = 0;
        body();
        exit(check_failed || !check_passed);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0);
}

/* The file in /dev/shm that a process has mapped for its room; 0: none yet. */
static long room_bytes(pid_t pid)
{
    char maps[64], line[512];
    struct stat status;
    long bytes = 0;
    snprintf(maps, sizeof maps, "/proc/%d/maps", (int)pid);
    FILE *file = fopen(maps, "r");
    while (file && fgets(line, sizeof line, file)) {
        char *path = strstr(line, "/dev/shm/gpuprof-nccl-");
        line[strcspn(line, "\n")] = 0;
        if (path && stat(path, &status) == 0)
            bytes = (long)status.st_blocks * 512;
    }
    if (file)
        fclose(file);
    return bytes;
}

/* Two ranks of a communicator of 4096: its room takes what two need, until they give up. */
static void many(void)
{
    unique_id id;
    pid_t pids[2];
    long most = 0;
    int status, ended = 0;
    CHECK_EQ(nccl.GetUniqueId(&id), 0);
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            comm_t comm = NULL;
            setenv("GPUPROF_SIM_NCCL_WAIT", "2", 1);
            check_begin(i);
            int result = nccl.CommInitRank(&comm, 4096, id, i ? 4095 : 0);
            _exit(result == 2 && strstr(nccl.GetLastError(comm), "has not come within 2 s") ? 0 : 1);
        }
    }
    for (int i = 0; i < 1000 && most < 2 * 4096 * 32; i++) {
        long bytes = room_bytes(pids[0]);
        most = bytes > most ? bytes : most;
        usleep(10000);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        ended += status == 0;
    }
    CHECK_EQ(ended, 2);
    CHECK(most >= 2 * 4096 * 32 && most < 512 << 10);
}

/* The file of ranks that were killed before they met goes, that of others stays. */
static void sweep(void)
{
    char dead[64], fresh[64];
    struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    unique_id id;
    snprintf(dead, sizeof dead, "/dev/shm/gpuprof-nccl-%u-test-dead", geteuid());
    snprintf(fresh, sizeof fresh, "/dev/shm/gpuprof-nccl-%u-test-fresh", geteuid());
    int one = open(dead, O_CREAT | O_RDWR, 0600), two = open(fresh, O_CREAT | O_RDWR, 0600);
    CHECK(one >= 0 && two >= 0 && futimens(one, old) == 0);
    CHECK_EQ(nccl.GetUniqueId(&id), 0);
    CHECK(access(dead, F_OK) != 0);
    CHECK(access(fresh, F_OK) == 0);
    unlink(fresh);
    close(one);
    close(two);
}

int main(void)
{
    static const char spec[] = "devices=4,memory=4GiB";
    nccl_open();
    process(sweep);
    for (int ranks = 1; ranks <= MOST; ranks++)
        launch(ranks, spec, random_ones);
    launch(3, "devices=4,memory=4GiB,contents=none", random_ones);
    launch(4, spec, split);
    launch(3, spec, graph);
    launch(3, spec, large);
    launch(2, spec, crossed);
    launch(2, spec, scaled);
    process(alone);
    process(threads);
    late_over = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    launch(3, spec, dies);
    launch(2, spec, late);
    launch(2, spec, disagree);
    setenv("GPUPROF_SIM", spec, 1);
    process(many);
    return check_done();
}
