/* SPDX-License-Identifier: MIT
 * What NCCL takes of a device, step by step, in the mean of the ranks: with its own library, or with the stand-in.
 *
 *   take RANKS LOCAL [STEP...]
 *
 * Each rank is a process, of which LOCAL share a node (NCCL_HOSTID).  A step is NAME or NAME:NUMBER, the number of elements or
 * what is said below.  A line for each: its name, MiB in the mean, and, where they differ, of each rank. */
#define _GNU_SOURCE
#include <cuda_runtime.h>
#include <nccl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST  64
#define BYTES ((size_t)1 << 30)

static struct shared {
    ncclUniqueId id;
    volatile int ready;
    pthread_barrier_t barrier;
    double mib[MOST][MOST];
} * shared;
static int ranks, local, rank, step;
static ncclComm_t comm;
static cudaStream_t stream;
static void *from, *to;
static size_t before;

static size_t left(void)
{
    size_t bytes = 0, total;
    cudaMemGetInfo(&bytes, &total);
    return bytes;
}

/* Other ranks' proxies may still take something of this one's device. */
static void took(void)
{
    cudaDeviceSynchronize();
    pthread_barrier_wait(&shared->barrier);
    usleep(300000);
    size_t now = left();
    shared->mib[rank][step++] = ((double)before - (double)now) / (1 << 20);
    before = now;
    pthread_barrier_wait(&shared->barrier);
}

static void message(int peer, int send)
{
    if (send)
        ncclSend(from, 64, ncclFloat, peer, comm, stream);
    else
        ncclRecv(to, 64, ncclFloat, peer, comm, stream);
}

static ncclResult_t messages(const char *name, int number)
{
    int next = (rank + number) % ranks, last = (rank - number + ranks) % ranks;
    ncclGroupStart();
    for (int i = 0; i < ranks && !strcmp(name, "alltoall"); i++) {
        message(i, 1);
        message(i, 0);
    }
    for (int i = 1; i < ranks && !rank && strcmp(name, "alltoall") && strcmp(name, "neighbours"); i++)
        message(i, !strcmp(name, "scatter"));
    if (rank && (!strcmp(name, "scatter") || !strcmp(name, "gather")))
        message(0, !strcmp(name, "gather"));
    if (!strcmp(name, "neighbours")) { /* NUMBER ranks on */
        message(next, 1);
        message(last, 0);
    }
    return ncclGroupEnd();
}

static ncclResult_t take(const char *text)
{
    const char *colon = strchr(text, ':');
    size_t number = colon ? strtoull(colon + 1, NULL, 0) : 1;
    char name[32];
    ncclComm_t child;
    ncclUniqueId id;
    void *memory;
    snprintf(name, sizeof name, "%.*s", colon ? (int)(colon - text) : (int)strlen(text), text);
    if (!strcmp(name, "allreduce"))
        return ncclAllReduce(from, to, number, ncclFloat, ncclSum, comm, stream);
    if (!strcmp(name, "allgather"))
        return ncclAllGather(from, to, number, ncclFloat, comm, stream);
    if (!strcmp(name, "reducescatter"))
        return ncclReduceScatter(from, to, number, ncclFloat, ncclSum, comm, stream);
    if (!strcmp(name, "broadcast"))
        return ncclBroadcast(from, to, number, ncclFloat, 0, comm, stream);
    if (!strcmp(name, "split")) /* into groups of NUMBER */
        return ncclCommSplit(comm, rank / (int)number, rank, &child, NULL);
    if (!strcmp(name, "across")) /* the ranks of one place each, which is the communicator from now on */
        return ncclCommSplit(comm, rank % (int)number, rank, &comm, NULL);
    if (!strcmp(name, "one")) {
        ncclGetUniqueId(&id);
        return ncclCommInitRank(&child, 1, id, 0);
    }
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
    if (!strcmp(name, "window")) {
        ncclWindow_t window;
        ncclResult_t result = ncclMemAlloc(&memory, number);
        return result ? result : ncclCommWindowRegister(comm, memory, number, &window, NCCL_WIN_COLL_SYMMETRIC);
    }
#endif
    if (!strcmp(name, "register"))
        return ncclCommRegister(comm, from, number, &memory);
    return messages(name, (int)number);
}

static void run(int count, char **steps)
{
    char host[32];
    snprintf(host, sizeof host, "node%d", rank / local);
    setenv("NCCL_HOSTID", host, 1);
    if (cudaSetDevice(rank % local) || cudaStreamCreate(&stream) || cudaMalloc(&from, BYTES) || cudaMalloc(&to, BYTES))
        _exit(9);
    before = left();
    ncclResult_t result = ncclCommInitRank(&comm, ranks, shared->id, rank);
    took();
    for (int i = 0; i < count && !result; i++) {
        result = take(steps[i]);
        took();
    }
    if (result)
        fprintf(stderr, "rank %d: %s\n", rank, ncclGetErrorString(result));
    _exit(result ? 1 : 0); /* proxies wait for transfers that never come */
}

int main(int argc, char **argv)
{
    pthread_barrierattr_t attributes;
    pid_t pids[MOST], root;
    int bad = 0, status;
    if (argc < 3 || (ranks = atoi(argv[1])) < 1 || ranks > MOST || (local = atoi(argv[2])) < 1 || argc - 3 >= MOST)
        return 2;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &attributes, (unsigned)ranks);
    root = fork();
    if (!root) { /* NCCL's thread that answers for the id lives here */
        ncclGetUniqueId(&shared->id);
        shared->ready = 1;
        pause();
    }
    while (!shared->ready && waitpid(root, NULL, WNOHANG) == 0)
        usleep(1000);
    for (rank = 0; rank < ranks; rank++)
        if (!(pids[rank] = fork()))
            run(argc - 3, argv + 3);
    for (int i = 0; i < ranks; i++)
        if (waitpid(-1, &status, 0) > 0 && status && !bad++)
            for (int j = 0; j < ranks; j++)
                kill(pids[j], SIGKILL);
    kill(root, SIGKILL);
    for (int i = 0; !bad && i <= argc - 3; i++) {
        double sum = 0;
        int same = 1;
        for (int j = 0; j < ranks; j++) {
            sum += shared->mib[j][i];
            same = same && shared->mib[j][i] == shared->mib[0][i];
        }
        printf("%s %.0f", i ? argv[i + 2] : "start", sum / ranks);
        for (int j = 0; j < ranks && !same; j++)
            printf("%s%.0f", j ? " " : "\t", shared->mib[j][i]);
        printf("\n");
    }
    return bad != 0;
}
