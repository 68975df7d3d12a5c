/* SPDX-License-Identifier: MIT
 * Selftest: the device memory that the stand-in for NCCL takes, call by call.  The figures are those of NCCL 2.30.7's own host
 * code on the simulated driver, on one node and on several, and of an H200 for a communicator of one rank. */
#define _GNU_SOURCE
#include "nccl_check.h"

#define SPEC "devices=4,memory=8GiB"

static size_t left(void)
{
    size_t bytes = 0, total;
    CHECK_OK(cuMemGetInfo(&bytes, &total));
    return bytes;
}

static size_t before;

/* What the rank has taken since the last call is so many MiB. */
static void took(struct rank *r, const char *what, long mib)
{
    CHECK_OK(cuStreamSynchronize(r->stream));
    size_t now = left();
    long seen = (long)((long long)(before - now) / (long long)MIB);
    if (seen != mib)
        fprintf(stderr, "%s, rank %d of %d: %ld MiB, not %ld\n", what, r->rank, r->ranks, seen, mib);
    CHECK_EQ(seen, mib);
    before = now;
}

/* A communicator that is there when the rank begins goes, and what it held comes back. */
static void started(struct rank *r, long mib)
{
    before = left();
    CHECK_EQ(nccl.CommDestroy(r->comm), 0);
    took(r, "the end of a communicator", -mib);
}

static void reduce(struct rank *r, size_t count)
{
    CHECK_EQ(nccl.AllReduce(r->from, r->to, count, FLOAT32, SUM, r->comm, r->stream), 0);
}

static void messages(struct rank *r, int to, int from)
{
    CHECK_EQ(nccl.GroupStart(), 0);
    if (to >= 0)
        CHECK_EQ(nccl.Send(r->from, 1, FLOAT32, to, r->comm, r->stream), 0);
    if (from >= 0)
        CHECK_EQ(nccl.Recv(r->to, 1, FLOAT32, from, r->comm, r->stream), 0);
    CHECK_EQ(nccl.GroupEnd(), 0);
}

/* Each communicator of one rank takes as much, and none takes more with a collective. */
static void alone(struct rank *r)
{
    comm_t more[4];
    unique_id id;
    before = left();
    reduce(r, 1);
    took(r, "a collective of one rank", 0);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(nccl.GetUniqueId(&id), 0);
        CHECK_EQ(nccl.CommInitRank(&more[i], 1, id, 0), 0);
        took(r, "one more communicator of one rank", 388);
    }
    CHECK_EQ(nccl.CommSplit(r->comm, 0, 0, &more[0], NULL), 0);
    took(r, "a split of one rank", 388);
    started(r, 388);
}

static void pair(struct rank *r)
{
    int peer = 1 - r->rank;
    comm_t child;
    void *own;
    before = left();
    reduce(r, 1);
    took(r, "the first collective", 288);
    reduce(r, 1000);
    CHECK_EQ(nccl.Broadcast(r->from, r->to, 5, FLOAT32, 0, r->comm, r->stream), 0);
    took(r, "the next ones", 0);
    messages(r, r->rank == 0 ? peer : -1, r->rank == 0 ? -1 : peer);
    took(r, "one direction", r->rank == 0 ? 64 : 320);
    messages(r, peer, peer);
    took(r, "the other one", r->rank == 0 ? 320 : 64);
    CHECK_EQ(nccl.CommSplit(r->comm, 0, 0, &child, NULL), 0);
    took(r, "a split", 230);
    CHECK_EQ(nccl.CommDestroy(child), 0);
    took(r, "its end", -230);
    CHECK_EQ(nccl.CommSplit(r->comm, r->rank, 0, &child, NULL), 0);
    took(r, "a split of one rank", 388);
    CHECK_EQ(nccl.CommDestroy(child), 0);
    took(r, "its end", -388);
    CHECK_EQ(nccl.MemAlloc(&own, 3 * MIB), 0);
    took(r, "ncclMemAlloc", 4);
    CHECK_EQ(nccl.AllReduce((CUdeviceptr)own, (CUdeviceptr)own, 8, INT64, SUM, r->comm, r->stream), 0);
    for (int i = 0; i < 3; i++) {
        void *window = NULL;
        CHECK_EQ(nccl.CommWindowRegister(r->comm, own, 2 * MIB, &window, i > 0), 0);
        took(r, "a window", i == 1 ? 36 : 0); /* the first one that is symmetric */
        CHECK_EQ(nccl.CommWindowDeregister(r->comm, window), 0);
    }
    CHECK_EQ(nccl.MemFree(own), 0);
    took(r, "ncclMemFree", -4);
    started(r, 230 + 288 + 384 + 36);
}

static void one_node(struct rank *r)
{
    before = left();
    CHECK_EQ(nccl.Scatter(r->from, r->to, 1, FLOAT32, 0, r->comm, r->stream), 0);
    took(r, "scatter", r->rank == 0 ? 3 * 64 : 320);
    CHECK_EQ(nccl.Gather(r->from, r->to, 1, FLOAT32, 0, r->comm, r->stream), 0);
    took(r, "gather", r->rank == 0 ? 3 * 320 : 64);
    CHECK_EQ(nccl.AlltoAll(r->from, r->to, 1, FLOAT32, r->comm, r->stream), 0);
    took(r, "all-to-all", r->rank == 0 ? 0 : 2 * 384);
    CHECK_EQ(nccl.AllGather(r->from, r->to, 1, FLOAT32, r->comm, r->stream), 0);
    took(r, "all-gather", 288);
    started(r, 230 + 3 * 384 + 288);
}

/* Two nodes of two ranks: remote ranks cost pools of 16 MiB, for receiving and for each sender through this GPU. */
static void two_nodes(struct rank *r)
{
    before = left();
    reduce(r, 1);
    took(r, "all-reduce", 128);
    reduce(r, 4096);
    took(r, "another one", 0);
    CHECK_EQ(nccl.Scatter(r->from, r->to, 1, FLOAT32, 0, r->comm, r->stream), 0);
    took(r, "scatter", r->rank == 0 ? 8 + 16 : r->rank == 1 ? 40 + 16 : 16);
    CHECK_EQ(nccl.AlltoAll(r->from, r->to, 1, FLOAT32, r->comm, r->stream), 0);
    took(r, "all-to-all", r->rank == 0 ? 96 - 24 : r->rank == 1 ? 96 - 56 : 96 - 16);
    started(r, 134 + 128 + 96);
}

/* Connected from the start, with the pools for sending. */
static void two_nodes_at_once(struct rank *r)
{
    before = left();
    reduce(r, 1);
    took(r, "all-reduce", 0);
    CHECK_EQ(nccl.AlltoAll(r->from, r->to, 1, FLOAT32, r->comm, r->stream), 0);
    took(r, "all-to-all", 48 + 16);
    started(r, 726 + 64);
}

/* The same between ranks that NCCL_HOSTID puts on nodes, of which each has two. */
static void named_nodes(struct rank *r)
{
    unique_id id;
    memset(&id, 3, sizeof id);
    snprintf(id.bytes, sizeof id.bytes, "named %d", getppid());
    setenv("NCCL_HOSTID", r->rank / 2 ? "b" : "a", 1);
    started(r, 230);
    CHECK_EQ(nccl.CommInitRank(&r->comm, r->ranks, id, r->rank), 0);
    took(r, "a communicator over named nodes", 134);
}

/* Four ranks of a larger job, the first ones of their nodes. */
static void ranks_of_the_job(struct rank *r)
{
    char world[16];
    unique_id id;
    memset(&id, 4, sizeof id);
    snprintf(id.bytes, sizeof id.bytes, "ranks %d", getppid());
    snprintf(world, sizeof world, "%d", r->rank * 4);
    setenv("RANK", world, 1);
    started(r, 230); /* their devices are those of one node */
    CHECK_EQ(nccl.CommInitRank(&r->comm, r->ranks, id, r->rank), 0);
    took(r, "a communicator of nodes of one", 28);
}

/* Four nodes: a tree for what is small, then the rest of a ring. */
static void nodes_of_one(struct rank *r)
{
    comm_t child;
    before = left();
    reduce(r, 1);
    took(r, "a small all-reduce", 120);
    CHECK_EQ(nccl.AllGather(r->from, r->to, 16384, FLOAT32, r->comm, r->stream), 0);
    took(r, "an all-gather", 40);
    messages(r, (r->rank + 1) % 4, (r->rank + 3) % 4);
    took(r, "neighbours", 16);
    CHECK_EQ(nccl.AlltoAll(r->from, r->to, 1, FLOAT32, r->comm, r->stream), 0);
    took(r, "all others", 0);
    CHECK_EQ(nccl.CommSplit(r->comm, r->rank / 2, 0, &child, NULL), 0);
    took(r, "a split into pairs of nodes", 28);
    started(r, 28 + 120 + 40 + 16);
}

static void new_with(struct rank *r, const char *variable, const char *value, long mib)
{
    unique_id id;
    comm_t comm;
    setenv(variable, value, 1);
    memset(&id, 9, sizeof id);
    snprintf(id.bytes, sizeof id.bytes, "%s %s %d", variable, value, getppid());
    CHECK_EQ(nccl.CommInitRank(&comm, r->ranks, id, r->rank), 0);
    took(r, variable, mib);
    CHECK_EQ(nccl.CommDestroy(comm), 0);
    took(r, "its end", -mib);
    unsetenv(variable);
}

static void variables(struct rank *r)
{
    before = left();
    new_with(r, "NCCL_NVLS_ENABLE", "0", 196);
    new_with(r, "NCCL_MAX_CTAS", "1", 10 + 4);
    new_with(r, "NCCL_MAX_NCHANNELS", "4", 16 * 6 + 4 + 34);
    new_with(r, "NCCL_RUNTIME_CONNECT", "0", 230 + 288 + 64 + 256);
    new_with(r, "NCCL_CUMEM_ENABLE", "0", 4 + 288 + 64 + 256);
    setenv("NCCL_P2P_DISABLE", "1", 1);
    new_with(r, "NCCL_RUNTIME_CONNECT", "0", 230 + 64 + 256);
}

struct config {
    size_t size;
    unsigned magic, version;
    int blocking, cluster, least, most;
    const char *network;
    int share, traffic;
    const char *name;
    int collnet, policy, shrink, nvls, peer;
};
#define UNDEFINED (-2147483647 - 1)

/* Of a parent that shares: no tables of connections, and its buffers of NVLink SHARP. */
static void configured(struct rank *r)
{
    struct config config = {sizeof config, 0xcafebeefu, 23007,     1,         UNDEFINED, UNDEFINED, 2,        NULL, 1,
                            UNDEFINED,     NULL,        UNDEFINED, UNDEFINED, UNDEFINED, UNDEFINED, UNDEFINED};
    unique_id id;
    comm_t parent, child;
    memset(&id, 5, sizeof id);
    snprintf(id.bytes, sizeof id.bytes, "configured %d", getppid());
    before = left();
    CHECK_EQ(nccl.CommInitRankConfig(&parent, r->ranks, id, r->rank, &config), 0);
    took(r, "two channels", 2 * 6 + 4 + 2 * 2 + 2);
    CHECK_EQ(nccl.CommSplit(parent, 0, 0, &child, NULL), 0);
    took(r, "a split that shares", 2 * 4 + 4);
    CHECK_EQ(nccl.CommDestroy(child), 0);
    took(r, "its end", -(2 * 4 + 4));
    config.size = offsetof(struct config, least); /* an earlier version's */
    memset(&id, 6, sizeof id);
    snprintf(id.bytes, sizeof id.bytes, "earlier %d", getppid());
    CHECK_EQ(nccl.CommInitRankConfig(&child, r->ranks, id, r->rank, &config), 0);
    took(r, "no limit", 230);
}

/* One page is left on the device of rank 1: what a collective needs there is refused, and named. */
static void refused(struct rank *r)
{
    CUdeviceptr rest;
    if (r->rank == 1) {
        CHECK_OK(cuMemAlloc(&rest, (left() - 100 * MIB) / (2 * MIB) * (2 * MIB))); /* whole pages */
        CHECK(nccl.AllReduce(r->from, r->to, 1, FLOAT32, SUM, r->comm, r->stream) == 1);
        CHECK(strstr(nccl.GetLastError(r->comm), "the first use of Ring: cuMemCreate of 288 MiB") != NULL);
        CHECK(left() >= 100 * MIB);
    }
}

/* A line for each process and item, with tabs between pid, library, kind and text. */
static void reported(const char *path)
{
    char line[1024], kind[32], text[1024], seen[64][1024];
    int count = 0, assumed = 0, pid;
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    while (file && fgets(line, sizeof line, file) && count < 64) {
        for (int i = 0; i < count; i++)
            CHECK(strcmp(line, seen[i]) != 0);
        strcpy(seen[count++], line);
        CHECK_EQ(sscanf(line, "%d\tlibnccl.so.2\t%31[a-z]\t%1023[^\t\n]\n", &pid, kind, text), 3);
        CHECK(!strcmp(kind, "loaded") || !strcmp(kind, "assumed"));
        assumed += !strcmp(kind, "assumed") && (strstr(text, "2 ranks on 1 node, with NVLink SHARP: 230 MiB") != NULL ||
                                                strstr(text, "one rank of NCCL 2.30.7: 388 MiB") != NULL ||
                                                strstr(text, "all of which it asks for: 97 MiB") != NULL);
    }
    CHECK_EQ(assumed, 6);
    CHECK_EQ(count, 8); /* of two ranks */
    if (file)
        fclose(file);
}

int main(void)
{
    char report[4096];
    nccl_open();
    unsetenv("RANK");
    launch(1, SPEC, alone);
    snprintf(report, sizeof report, "%s/nccl-report", getenv("SIM_SELFTEST_DIR") ? getenv("SIM_SELFTEST_DIR") : "/tmp");
    unlink(report);
    setenv("GPUPROF_STANDIN_REPORT", report, 1);
    launch(2, SPEC, pair);
    unsetenv("GPUPROF_STANDIN_REPORT");
    reported(report);
    launch(4, SPEC, one_node);
    launch(4, SPEC ",node=2", two_nodes);
    setenv("NCCL_RUNTIME_CONNECT", "0", 1);
    launch(4, SPEC ",node=2", two_nodes_at_once);
    unsetenv("NCCL_RUNTIME_CONNECT");
    launch(4, SPEC, named_nodes);
    launch(4, SPEC ",node=4", ranks_of_the_job);
    launch(4, SPEC ",node=1", nodes_of_one);
    launch(2, SPEC, variables);
    launch(2, SPEC, configured);
    launch(2, SPEC, refused);
    return check_done();
}
