/* SPDX-License-Identifier: MIT
 *
 * The device memory that NCCL takes for itself, at the same moments as NCCL and by the same calls of the driver, but in
 * one piece where NCCL takes many; and the memory that it gives to programs.
 *
 * How much it is depends on the shape of the communicator (size.h): its ranks, and which of them share a node. */
#define _GNU_SOURCE
#include "nccl.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NCCL_MIB ((size_t)1 << 20)

/* Of a peer of send and receive: connected, and by MEMORY_WANTS bits higher, to be connected. */
enum { MEMORY_SENDS = 1, MEMORY_RECEIVES = 2, MEMORY_WANTS = 2 };
/* Of a pool: there, to be taken, and asked for by a send of this group. */
enum { MEMORY_THERE = 1, MEMORY_WANTED = 2, MEMORY_ASKED = 4 };

struct memory_piece {
    CUdeviceptr base;
    size_t size; /* 0: not mapped by us */
};

struct nccl_memory {
    struct nccl_shape shape;
    struct nccl_counts counts;
    struct memory_piece *pieces;
    int count, room;
    unsigned connected; /* a bit for each algorithm */
    struct memory_peer {
        uint32_t node;
        int place;                     /* among the ranks of its node */
        bool near;                     /* its node is this rank's */
        unsigned char connected, pool; /* pool: for the sender of this place */
    } * peers;
    bool windows;        /* what windows need is there */
    bool received;       /* the pool for receiving is there */
    bool wants;          /* something is to be connected */
    bool group_receives; /* from another node, in this group */
};

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static int memory_world_rank(void)
{
    static const char *const variables[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *text = secure_getenv(variables[i]);
        char *end;
        long rank = text ? strtol(text, &end, 10) : -1;
        if (text && end != text && !*end && rank >= 0 && rank <= INT_MAX)
            return (int)rank;
    }
    return -1;
}

/* What NCCL_HOSTID says, as for NCCL; else, with node=M, M ranks of the job share one, or, where the process does not know
 * its rank, M devices. */
uint32_t nccl_memory_node_of(int rank)
{
    const char *host = secure_getenv("NCCL_HOSTID");
    int share = nccl_driver()->sim_machine_node();
    uint32_t hash = 2166136261u;
    if (host && *host) {
        for (; *host; host++)
            hash = (hash ^ (unsigned char)*host) * 16777619u;
        return hash;
    }
    return share <= 0 || rank < 0 ? 0 : (uint32_t)(rank / share);
}

uint32_t nccl_memory_node(CUdevice device)
{
    struct sim_machine_device is;
    int rank = memory_world_rank();
    return nccl_memory_node_of(rank < 0 ? nccl_device(device, &is) : rank);
}

static uint32_t memory_node(const struct nccl_comm *comm, int rank)
{
    return nccl_is_absent(comm, rank) ? nccl_memory_node_of(comm->world[rank])
                                      : nccl_room_node(comm->room, nccl_seat(comm, rank));
}

static void memory_shape(struct nccl_comm *comm, struct nccl_memory *memory)
{
    struct nccl_shape *shape = &memory->shape;
    struct sim_machine_device is = {.size = sizeof is};
    int multicast = 0;
    nccl_device(comm->device, &is);
    nccl_driver()->cuDeviceGetAttribute(&multicast, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, comm->device);
    *shape = (struct nccl_shape){.version = nccl_version(),
                                 .capability = is.capability,
                                 .linked = is.links > 0,
                                 .multicast = multicast,
                                 .ranks = comm->ranks,
                                 .set = comm->set};
    for (int i = 0; i < comm->ranks; i++) {
        struct memory_peer *peer = &memory->peers[i];
        peer->node = memory_node(comm, i);
        int before = i - 1;
        while (before >= 0 && memory->peers[before].node != peer->node)
            before--;
        peer->place = before < 0 ? 0 : memory->peers[before].place + 1;
        peer->near = peer->node == comm->node;
        shape->nodes += peer->place == 0;
        shape->local += peer->near;
    }
}

/* ---- taking ------------------------------------------------------------------------------------------------------ */

/* As NCCL does: virtual memory that can be exported, open to this device, or to all. */
static CUresult memory_map(const struct nccl_driver *driver, struct memory_piece *piece, size_t size, CUdevice device,
                           bool all)
{
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemAccessDesc access = {.location = kind.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base = 0;
    size_t step = 0;
    int first = device, last = device;
    CUresult result = driver->cuMemGetAllocationGranularity(&step, &kind, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (result != CUDA_SUCCESS)
        return result;
    size = (size + step - 1) / step * step;
    result = driver->cuMemCreate(&handle, size, &kind, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->cuMemAddressReserve(&base, size, step, 0, 0);
    if (result == CUDA_SUCCESS) {
        result = driver->cuMemMap(base, size, 0, handle, 0);
        if (all && driver->cuDeviceGetCount(&last) == CUDA_SUCCESS)
            first = 0, last--;
        for (access.location.id = first; result == CUDA_SUCCESS && access.location.id <= last; access.location.id++)
            result = driver->cuMemSetAccess(base, size, &access, 1);
        if (result != CUDA_SUCCESS) {
            driver->cuMemUnmap(base, size);
            driver->cuMemAddressFree(base, size);
        }
    }
    driver->cuMemRelease(handle); /* the mapping keeps it */
    *piece = (struct memory_piece){base, size};
    return result;
}

/* With the communicator's lock. */
static enum nccl_result memory_take(struct nccl_comm *comm, uint64_t bytes, const char *what)
{
    const struct nccl_driver *driver = nccl_driver();
    struct nccl_memory *memory = comm->memory;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* this memory belongs to no graph */
    struct memory_piece piece = {0};
    if (!bytes)
        return NCCL_SUCCESS;
    if (memory->count == memory->room) {
        int room = memory->room ? 2 * memory->room : 8;
        struct memory_piece *pieces = realloc(memory->pieces, (size_t)room * sizeof *pieces);
        if (!pieces)
            return nccl_error(NCCL_SYSTEM_ERROR, "out of host memory");
        memory->pieces = pieces;
        memory->room = room;
    }
    driver->cuCtxPushCurrent(comm->context);
    driver->cuThreadExchangeStreamCaptureMode(&mode);
    bool mapped = nccl_mapped(&memory->shape);
    CUresult result =
        mapped ? memory_map(driver, &piece, bytes, comm->device, false) : driver->cuMemAlloc(&piece.base, bytes);
    driver->cuThreadExchangeStreamCaptureMode(&mode);
    driver->cuCtxPopCurrent(NULL);
    if (result != CUDA_SUCCESS)
        return nccl_error(NCCL_CUDA_ERROR, "no memory for %s: %s of %zu MiB failed with error %d", what,
                          mapped ? "cuMemCreate" : "cuMemAlloc", (size_t)bytes / NCCL_MIB, (int)result);
    memory->pieces[memory->count++] = piece;
    return NCCL_SUCCESS;
}

/* Which is in the context until its end. */
static enum nccl_result memory_code(const struct nccl_comm *comm)
{
    const struct nccl_driver *driver = nccl_driver();
    const uint64_t bytes = nccl_size_code(&comm->memory->shape);
    driver->cuCtxPushCurrent(comm->context);
    int error = driver->sim_library_code(NCCL_LIBRARY, bytes);
    driver->cuCtxPopCurrent(NULL);
    if (error)
        return nccl_error(NCCL_CUDA_ERROR, "no memory for the code of the kernels, %zu MiB", (size_t)bytes / NCCL_MIB);
    sim_report(NCCL_LIBRARY, "assumed", "code of NCCL's kernels, all of which it asks for: %zu MiB",
               (size_t)bytes / NCCL_MIB);
    return NCCL_SUCCESS;
}

static void memory_say(const struct nccl_memory *memory, uint64_t start)
{
    const struct nccl_shape *shape = &memory->shape;
    const struct nccl_counts *counts = &memory->counts;
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", shape->version / 10000, shape->version / 100 % 100,
             shape->version % 100);
    if (shape->ranks == 1)
        sim_report(NCCL_LIBRARY, "assumed", "memory of a communicator of one rank of NCCL %s: %zu MiB", version,
                   (size_t)start / NCCL_MIB);
    else
        sim_report(NCCL_LIBRARY, "assumed",
                   "memory of NCCL %s %s, %d ranks on %d node%s%s: %zu MiB a communicator, %zu its first ring, %zu "
                   "a peer of the node",
                   version, shape->linked ? "with NVSwitch" : "without NVLink", shape->ranks, shape->nodes,
                   shape->nodes == 1 ? "" : "s", counts->nvls ? ", with NVLink SHARP" : "", (size_t)start / NCCL_MIB,
                   (size_t)nccl_size_algorithm(shape, counts, NCCL_RING, 0) / NCCL_MIB,
                   (size_t)(nccl_size_peer(shape, counts, true) + nccl_size_peer(shape, counts, false)) / NCCL_MIB);
}

enum nccl_result nccl_memory_init(struct nccl_comm *comm, struct nccl_comm *parent)
{
    struct nccl_memory *memory = calloc(1, sizeof *memory);
    const struct nccl_memory *shared = parent && parent->set.split_share ? parent->memory : NULL;
    if (memory)
        memory->peers = calloc((size_t)comm->ranks, sizeof *memory->peers);
    if (!memory || !memory->peers) {
        free(memory);
        return nccl_error(NCCL_SYSTEM_ERROR, "out of host memory");
    }
    comm->memory = memory;
    memory_shape(comm, memory);
    memory->counts = nccl_counts(&memory->shape, shared ? &shared->counts : NULL);
    /* NVLink SHARP of a parent serves a child that has as many ranks on the node. */
    const struct nccl_counts *lent = shared ? &shared->counts : NULL;
    struct nccl_counts plain = lent ? *lent : (struct nccl_counts){0};
    if (shared && shared->shape.local == memory->shape.local)
        memory->connected = shared->connected & (1u << NCCL_NVLS | 1u << NCCL_NVLS_TREE);
    else
        plain.nvls = 0;
    uint64_t start = nccl_size_start(&memory->shape, &memory->counts, lent ? &plain : NULL);
    memory_say(memory, start);
    enum nccl_result result = memory_code(comm);
    pthread_mutex_lock(&comm->lock);
    if (result == NCCL_SUCCESS)
        result = memory_take(comm, start, "a communicator");
    pthread_mutex_unlock(&comm->lock);
    if (!nccl_late(&memory->shape)) { /* the pools for sending too */
        bool all = memory->shape.nodes > 1 && nccl_proxied(&memory->shape);
        int own = memory->peers[comm->rank].place;
        for (int i = 0; i < memory->shape.local; i++)
            memory->peers[all ? i : own].pool = MEMORY_THERE;
        memory->connected = ~0u;
    }
    return result;
}

enum nccl_result nccl_memory_collective(struct nccl_comm *comm, enum nccl_function function, uint64_t bytes, bool sums)
{
    struct nccl_memory *memory = comm->memory;
    enum nccl_result result = NCCL_SUCCESS;
    char what[64];
    if (comm->ranks == 1)
        return NCCL_SUCCESS;
    enum nccl_algorithm algorithm = nccl_choice(&memory->shape, &memory->counts, function, bytes, sums);
    pthread_mutex_lock(&comm->lock);
    if (!(memory->connected & 1u << algorithm)) {
        snprintf(what, sizeof what, "the first use of %s", nccl_algorithm_names[algorithm]);
        result =
            memory_take(comm, nccl_size_algorithm(&memory->shape, &memory->counts, algorithm, memory->connected), what);
        if (result == NCCL_SUCCESS)
            memory->connected |= 1u << algorithm;
    }
    pthread_mutex_unlock(&comm->lock);
    return result;
}

enum nccl_result nccl_memory_window(struct nccl_comm *comm)
{
    struct nccl_memory *memory = comm->memory;
    enum nccl_result result = NCCL_SUCCESS;
    pthread_mutex_lock(&comm->lock);
    if (!memory->windows)
        result = memory_take(comm, nccl_size_window(&memory->shape), "the first window of symmetric memory");
    memory->windows = memory->windows || result == NCCL_SUCCESS;
    pthread_mutex_unlock(&comm->lock);
    return result;
}

/* ---- send and receive -------------------------------------------------------------------------------------------- */

void nccl_memory_want(struct nccl_comm *comm, int rank, bool send)
{
    struct nccl_memory *memory = comm->memory;
    struct memory_peer *peer = &memory->peers[rank];
    int bit = send ? MEMORY_SENDS : MEMORY_RECEIVES;
    if (rank == comm->rank)
        return;
    pthread_mutex_lock(&comm->lock);
    if (!(peer->connected & bit)) {
        peer->connected |= (unsigned char)(bit << MEMORY_WANTS);
        memory->wants = true;
    }
    if (!peer->near && !send)
        memory->group_receives = true;
    if (!peer->near && send && !(memory->peers[peer->place].pool & MEMORY_THERE)) {
        memory->peers[peer->place].pool |= MEMORY_ASKED;
        memory->wants = true;
    }
    pthread_mutex_unlock(&comm->lock);
}

/* A message leaves a node through the GPU whose place is the receiver's, which has a pool for each sender.  From the
 * root, each of its node sends on to those of its place; to the root, those of its place send for their whole node. */
void nccl_memory_want_proxy(struct nccl_comm *comm, int root, bool from_root)
{
    struct nccl_memory *memory = comm->memory;
    struct memory_peer *peers = memory->peers;
    int own = peers[comm->rank].place;
    bool far = false;
    if (!nccl_proxied(&memory->shape) || comm->rank == root || peers[root].near != from_root ||
        (!from_root && own != peers[root].place))
        return;
    for (int i = 0; i < comm->ranks && from_root; i++)
        far = far || (!peers[i].near && peers[i].place == own);
    if (from_root && !far)
        return;
    pthread_mutex_lock(&comm->lock);
    for (int i = 0; i < comm->ranks; i++)
        if (peers[i].near && (!from_root || i == root) && !(peers[peers[i].place].pool & MEMORY_THERE)) {
            peers[peers[i].place].pool |= MEMORY_WANTED;
            memory->wants = true;
        }
    pthread_mutex_unlock(&comm->lock);
}

/* With the lock: the pools that this group needs besides those that are there.  A rank that sends to other nodes and
 * receives from them in one group does as all others do: what it sends through their GPUs, they send through its.  One
 * that only sends is alone with it. */
static uint64_t memory_pools(struct nccl_comm *comm)
{
    struct nccl_memory *memory = comm->memory;
    const struct nccl_settings *set = &memory->shape.set;
    bool all = memory->group_receives && nccl_proxied(&memory->shape);
    struct memory_peer *own = &memory->peers[memory->peers[comm->rank].place];
    uint64_t count = memory->group_receives && !memory->received;
    for (int i = 0; i < comm->ranks; i++)
        if (memory->peers[i].pool & MEMORY_ASKED)
            (all ? &memory->peers[i] : own)->pool |= MEMORY_WANTED;
    for (int i = 0; i < comm->ranks; i++)
        count += memory->peers[i].pool & MEMORY_WANTED && !(memory->peers[i].pool & MEMORY_THERE);
    return set->net_host || set->net_shared == 0 ? 0 : count * nccl_size_pool(&memory->shape, &memory->counts);
}

/* With the lock: all that was wanted is there. */
static void memory_connected(struct nccl_comm *comm)
{
    struct nccl_memory *memory = comm->memory;
    for (int i = 0; i < comm->ranks; i++) {
        struct memory_peer *peer = &memory->peers[i];
        peer->connected |= peer->connected >> MEMORY_WANTS;
        peer->connected &= MEMORY_SENDS | MEMORY_RECEIVES;
        peer->pool = peer->pool & (MEMORY_THERE | MEMORY_WANTED) ? MEMORY_THERE : 0;
    }
    memory->received = memory->received || memory->group_receives;
    memory->wants = false;
}

enum nccl_result nccl_memory_connect(struct nccl_comm *comm)
{
    struct nccl_memory *memory = comm->memory;
    enum nccl_result result = NCCL_SUCCESS;
    uint64_t bytes = 0;
    pthread_mutex_lock(&comm->lock);
    for (int i = 0; memory->wants && i < comm->ranks; i++) {
        const struct memory_peer *peer = &memory->peers[i];
        int wanted = peer->connected >> MEMORY_WANTS & ~peer->connected;
        for (int send = 0; send < 2; send++)
            if (wanted & (send ? MEMORY_SENDS : MEMORY_RECEIVES))
                bytes += (peer->near ? nccl_size_peer : nccl_size_remote)(&memory->shape, &memory->counts, send);
    }
    if (memory->wants)
        result = memory_take(comm, bytes + memory_pools(comm), "the peers of send and receive");
    if (memory->wants && result == NCCL_SUCCESS)
        memory_connected(comm);
    memory->group_receives = false;
    pthread_mutex_unlock(&comm->lock);
    return result;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

void nccl_memory_end(struct nccl_comm *comm)
{
    const struct nccl_driver *driver = nccl_driver();
    struct nccl_memory *memory = comm->memory;
    if (!memory)
        return;
    pthread_mutex_lock(&comm->lock);
    int count = memory->count;
    memory->count = 0;
    pthread_mutex_unlock(&comm->lock);
    if (!count || driver->cuCtxPushCurrent(comm->context) != CUDA_SUCCESS)
        return;
    for (int i = 0; i < count; i++) {
        struct memory_piece piece = memory->pieces[i];
        if (!piece.size) {
            driver->cuMemFree(piece.base);
        } else if (driver->cuMemUnmap(piece.base, piece.size) == CUDA_SUCCESS) {
            driver->cuMemAddressFree(piece.base, piece.size);
        }
    }
    driver->cuCtxPopCurrent(NULL);
}

void nccl_memory_free(struct nccl_comm *comm)
{
    if (comm->memory) {
        free(comm->memory->pieces);
        free(comm->memory->peers);
    }
    free(comm->memory);
}

/* ---- for programs ------------------------------------------------------------------------------------------------ */

NCCL_API(enum nccl_result, ncclMemAlloc, void **memory, size_t size)
{
    const struct nccl_driver *driver = nccl_driver();
    struct memory_piece piece = {0};
    CUdevice device;
    if (!memory || !size)
        return nccl_error(NCCL_INVALID_ARGUMENT, "ncclMemAlloc: no pointer, or no size");
    if (!driver)
        return NCCL_SYSTEM_ERROR;
    CUresult result = driver->cuCtxGetDevice(&device);
    if (result == CUDA_SUCCESS)
        result = memory_map(driver, &piece, size, device, true);
    if (result != CUDA_SUCCESS)
        return nccl_error(NCCL_CUDA_ERROR, "ncclMemAlloc of %zu bytes: CUDA error %d", size, (int)result);
    *memory = (void *)piece.base;
    return NCCL_SUCCESS;
}

NCCL_API(enum nccl_result, ncclMemFree, void *memory)
{
    const struct nccl_driver *driver = nccl_driver();
    CUdeviceptr base;
    size_t size;
    if (!memory)
        return NCCL_SUCCESS;
    if (!driver)
        return NCCL_SYSTEM_ERROR;
    CUresult result = driver->cuMemGetAddressRange(&base, &size, (CUdeviceptr)memory);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemUnmap(base, size);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemAddressFree(base, size);
    return result == CUDA_SUCCESS ? NCCL_SUCCESS
                                  : nccl_error(NCCL_CUDA_ERROR, "ncclMemFree: CUDA error %d", (int)result);
}
