/* SPDX-License-Identifier: MIT
 * Selftest: communicators of a job of which two ranks run.  The others are absent: what they would send is answered, the memory
 * is that of the whole job, and no call waits for them. */
#define _GNU_SOURCE
#include "nccl_check.h"

#define WORLD 512
#define OTHER 9 /* the second rank that runs: on another node */

static void (*tell_group)(const int *, int);
static void (*tell_id)(const unique_id *, const int *, int);
static int (*waits)(char *, size_t);
static char peers[4096];
static int gate[2]; /* a pipe from rank 0 to the other one */

static long used(void)
{
    size_t bytes = 0, total = 0;
    CHECK_OK(cuMemGetInfo(&bytes, &total));
    return (long)((total - bytes) / MIB);
}

static void put(struct rank *r, float first, float second)
{
    float values[2] = {first, second};
    CHECK_OK(cuMemcpyHtoD(r->from, values, sizeof values));
    CHECK_OK(cuMemcpyHtoD(r->to, values, sizeof values));
}

static float got(struct rank *r, size_t at)
{
    float value = -1;
    CHECK_OK(cuStreamSynchronize(r->stream));
    CHECK_OK(cuMemcpyDtoH(&value, r->to + at * sizeof value, sizeof value));
    return value;
}

/* An absent rank has what the caller has; the two that run meet. */
static void collectives(struct rank *r)
{
    float own = r->rank ? 3 : 2;
    put(r, own, own);
    CHECK_EQ(nccl.AllReduce(r->from, r->to, 1, FLOAT32, SUM, r->comm, r->stream), 0);
    CHECK(got(r, 0) == 5 + (WORLD - 2) * own);
    CHECK_EQ(nccl.AllReduce(r->from, r->to, 1, FLOAT32, MAX, r->comm, r->stream), 0);
    CHECK(got(r, 0) == 3);
    CHECK_EQ(nccl.AllGather(r->from, r->to, 1, FLOAT32, r->comm, r->stream), 0);
    CHECK(got(r, 0) == 2 && got(r, OTHER) == 3 && got(r, 1) == own && got(r, WORLD - 1) == own);
    put(r, own, 7);
    CHECK_EQ(nccl.Broadcast(r->from, r->to, 1, FLOAT32, OTHER, r->comm, r->stream), 0);
    CHECK(got(r, 0) == 3);
    put(r, own, 7);
    CHECK_EQ(nccl.Broadcast(r->from, r->to, 1, FLOAT32, 100, r->comm, r->stream), 0); /* an absent root */
    CHECK(got(r, 0) == own);
    /* Each broadcasts its part: an absent one's is the caller's own. */
    put(r, own, 7);
    CHECK_EQ(nccl.GroupStart(), 0);
    for (int i = 0; i < WORLD; i++)
        CHECK_EQ(nccl.Broadcast(r->from, r->to + (size_t)i * 4, 1, FLOAT32, i, r->comm, r->stream), 0);
    CHECK_EQ(nccl.GroupEnd(), 0);
    CHECK(got(r, 0) == 2 && got(r, OTHER) == 3 && got(r, 1) == own && got(r, WORLD - 1) == own);
}

/* A message of an absent rank is zeros, and is noted once; in an exchange of all with all it is what this rank keeps. */
static void messages(struct rank *r)
{
    put(r, 4, 4);
    CHECK_EQ(nccl.Recv(r->to, 1, FLOAT32, 100, r->comm, r->stream), 0);
    CHECK_EQ(nccl.Send(r->from, 1, FLOAT32, 100, r->comm, r->stream), 0);
    CHECK(got(r, 0) == 0);
    put(r, 4, 4);
    CHECK_EQ(nccl.GroupStart(), 0);
    for (int i = 0; i < WORLD; i++) {
        CHECK_EQ(nccl.Send(r->from, 1, FLOAT32, i, r->comm, r->stream), 0);
        CHECK_EQ(nccl.Recv(r->to + (size_t)i * 4, 1, FLOAT32, i, r->comm, r->stream), 0);
    }
    CHECK_EQ(nccl.GroupEnd(), 0);
    CHECK(got(r, 200) == 4 && got(r, OTHER) == 4);
}

/* Rank 0 says what it waits for, by the other's rank in the job, until that one has sent. */
static void waiting(struct rank *r)
{
    char text[64] = "", go = 0;
    if (r->rank) {
        CHECK_EQ(read(gate[0], &go, 1), 1);
        CHECK_EQ(nccl.Send(r->from, 1, FLOAT32, 0, r->comm, r->stream), 0);
        return;
    }
    CHECK_EQ(waits(text, sizeof text), 0);
    CHECK_EQ(nccl.Recv(r->to, 1, FLOAT32, OTHER, r->comm, r->stream), 0);
    for (int i = 0; i < 5000 && !waits(text, sizeof text); i++)
        usleep(2000);
    CHECK(strcmp(text, "rank 9 in ncclRecv") == 0);
    CHECK_EQ(write(gate[1], &go, 1), 1);
    CHECK_OK(cuStreamSynchronize(r->stream));
    CHECK_EQ(waits(text, sizeof text), 0);
}

/* Groups that Python announces: by an id, and by what is split next. */
static void groups(struct rank *r)
{
    int stride[64], own = r->rank ? OTHER : 0, count = 0;
    comm_t child = NULL;
    for (int i = own % 8; i < WORLD; i += 8) /* one rank of each node */
        stride[count++] = i;
    CHECK_EQ(nccl.CommSplit(r->comm, 0, 0, &child, NULL), 5); /* whose colours? */
    tell_group(stride, count);
    long before = used();
    CHECK_EQ(nccl.CommSplit(r->comm, own % 8, own, &child, NULL), 0);
    tell_group(NULL, 0);
    CHECK_EQ(used() - before, 28);
    CHECK_EQ(nccl.CommDestroy(child), 0);
    CHECK_EQ(nccl.CommSplit(r->comm, -1, 0, &child, NULL), 0);
    unique_id id;
    memset(&id, 17 + own, sizeof id);
    tell_id(&id, stride, count);
    int rank = own / 8, seen = -1;
    CHECK_EQ(nccl.CommInitRank(&child, 64, id, rank), 0);
    CHECK_EQ(nccl.CommUserRank(child, &seen), 0);
    CHECK_EQ(seen, rank);
    CHECK_EQ(nccl.CommDestroy(child), 0);
    memset(&id, 99, sizeof id);
    CHECK(nccl.CommInitRank(&child, 63, id, rank) != 0); /* of whom? */
}

static void noted(void)
{
    char line[8192];
    int lines = 0, own, peer;
    FILE *file = fopen(peers, "r");
    CHECK(file != NULL);
    while (file && fgets(line, sizeof line, file)) {
        CHECK_EQ(sscanf(line, "%d\t%d\t0,1,2,", &own, &peer), 2);
        CHECK_EQ(peer, 100);
        lines++;
    }
    CHECK_EQ(lines, 2);
    if (file)
        fclose(file);
}

static void rank(int own, const unique_id *id)
{
    struct rank r = {.ranks = WORLD, .rank = own};
    char text[16];
    check_passed = check_failed = 0;
    snprintf(text, sizeof text, "%d", own);
    setenv("RANK", text, 1);
    check_begin(own % 8);
    buffers_make(&r);
    long before = used();
    CHECK_EQ(nccl.CommInitRank(&r.comm, WORLD, *id, own), 0);
    CHECK_EQ(used() - before, 134 + 97); /* of 512 ranks on 64 nodes, and the code of kernels */
    collectives(&r);
    messages(&r);
    waiting(&r);
    groups(&r);
    exit(check_failed || !check_passed);
}

int main(void)
{
    static const int present[] = {0, OTHER};
    unique_id id;
    pid_t pids[2];
    nccl_open();
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    if (library)
        *(void **)&tell_group = dlsym(library, "sim_nccl_group");
    if (library)
        *(void **)&tell_id = dlsym(library, "sim_nccl_id");
    if (library)
        *(void **)&waits = dlsym(library, "sim_nccl_waits");
    CHECK(tell_group && tell_id && waits && pipe(gate) == 0);
    if (!tell_group || !tell_id || !waits)
        return check_done();
    snprintf(peers, sizeof peers, "%s/nccl-peers", getenv("SIM_SELFTEST_DIR") ? getenv("SIM_SELFTEST_DIR") : "/tmp");
    unlink(peers);
    setenv("GPUPROF_SIM_PEERS", peers, 1);
    setenv("GPUPROF_SIM_RANKS", "0,9-9", 1);
    setenv("WORLD_SIZE", "512", 1);
    setenv("GPUPROF_SIM", "gpu=h100-80g,devices=8,node=8", 1);
    CHECK_EQ(nccl.GetUniqueId(&id), 0);
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            rank(present[i], &id);
    }
    for (int i = 0; i < 2; i++) {
        int status = -1;
        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        CHECK_EQ(status, 0);
    }
    noted();
    return check_done();
}
