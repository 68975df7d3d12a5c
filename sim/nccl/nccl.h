/* SPDX-License-Identifier: MIT
 * NCCL's interface, as NVIDIA documents it, and what the files of the stand-in share.
 *
 * A communicator is a room (room.c): a file in shared memory where its ranks meet, with a channel from each rank
 * to each other one.  A small collective sends each rank's part through the channels when its stream gets there, and a
 * host function of the simulated driver waits for the others' parts (collective.c). */
#ifndef SIM_NCCL_H
#define SIM_NCCL_H

#include "machine.h"
#include "size.h"

#include <cuda.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NCCL_LIBRARY "libnccl.so.2"
#define NCCL_MOST    16384 /* ranks */

enum nccl_result {
    NCCL_SUCCESS = 0,
    NCCL_CUDA_ERROR = 1,
    NCCL_SYSTEM_ERROR = 2,
    NCCL_INTERNAL_ERROR = 3,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_REMOTE_ERROR = 6,
    NCCL_IN_PROGRESS = 7
};
enum nccl_op { NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG, NCCL_OPS };
enum nccl_type {
    NCCL_INT8,
    NCCL_UINT8,
    NCCL_INT32,
    NCCL_UINT32,
    NCCL_INT64,
    NCCL_UINT64,
    NCCL_FLOAT16,
    NCCL_FLOAT32,
    NCCL_FLOAT64,
    NCCL_BFLOAT16,
    NCCL_FLOAT8E4M3,
    NCCL_FLOAT8E5M2,
    NCCL_TYPES
};
#define NCCL_CONFIG_MAGIC     0xcafebeefu
#define NCCL_CONFIG_UNDEFINED INT_MIN
struct nccl_config { /* earlier versions have less, later ones more */
    size_t size;
    unsigned magic, version;
    int blocking, cluster, ctas_least, ctas_most;
    const char *network;
    int split_share, traffic;
    const char *name;
    int collnet, policy, shrink_share, nvls_channels, net_each;
};
#define NCCL_WINDOW_SYMMETRIC 1
struct nccl_id {
    char bytes[128];
};

/* Each function has two names, of which a profiler may define the first itself. */
#define NCCL_EXPORT __attribute__((visibility("default")))
#define NCCL_API(_type, _name, ...)                                                                                    \
    NCCL_EXPORT _type p##_name(__VA_ARGS__);                                                                           \
    NCCL_EXPORT _type _name(__VA_ARGS__) __attribute__((weak, alias("p" #_name)));                                     \
    _type p##_name(__VA_ARGS__)

int nccl_version(void); /* version.c: 22809 is 2.28.9 */

/* ---- driver.c: the simulated driver ------------------------------------------------------------------------------ */
struct nccl_driver {
    CUresult (*cuInit)(unsigned);
    CUresult (*cuCtxGetDevice)(CUdevice *);
    CUresult (*cuCtxGetCurrent)(CUcontext *);
    CUresult (*cuCtxPushCurrent)(CUcontext);
    CUresult (*cuCtxPopCurrent)(CUcontext *);
    CUresult (*cuDeviceGetAttribute)(int *, CUdevice_attribute, CUdevice);
    CUresult (*cuDeviceGetCount)(int *);
    CUresult (*cuDevicePrimaryCtxRetain)(CUcontext *, CUdevice);
    CUresult (*cuDeviceGetPCIBusId)(char *, int, CUdevice);
    CUresult (*cuLaunchHostFunc)(CUstream, CUhostFn, void *);
    CUresult (*cuStreamQuery)(CUstream);
    CUresult (*cuStreamIsCapturing)(CUstream, CUstreamCaptureStatus *);
    CUresult (*cuThreadExchangeStreamCaptureMode)(CUstreamCaptureMode *);
    CUresult (*cuMemcpyAsync)(CUdeviceptr, CUdeviceptr, size_t, CUstream);
    CUresult (*cuMemAlloc)(CUdeviceptr *, size_t);
    CUresult (*cuMemFree)(CUdeviceptr);
    CUresult (*cuMemCreate)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
    CUresult (*cuMemRelease)(CUmemGenericAllocationHandle);
    CUresult (*cuMemGetAllocationGranularity)(size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags);
    CUresult (*cuMemAddressReserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*cuMemAddressFree)(CUdeviceptr, size_t);
    CUresult (*cuMemMap)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*cuMemUnmap)(CUdeviceptr, size_t);
    CUresult (*cuMemSetAccess)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    CUresult (*cuMemGetAddressRange)(CUdeviceptr *, size_t *, CUdeviceptr);
    int (*sim_machine_devices)(void);
    int (*sim_machine_device)(int, struct sim_machine_device *);
    int (*sim_machine_node)(void);
    int (*sim_memory_fetch)(void *, uint64_t, size_t);
    int (*sim_memory_store)(uint64_t, const void *, size_t);
    void (*sim_memory_computed)(uint64_t, size_t);
    void (*sim_host_waits)(int);
    int (*sim_library_code)(const char *, size_t);
};
/* NULL after a message: the process does not have the simulated driver. */
const struct nccl_driver *nccl_driver(void);
/* What the machine says of a device of the program, and its number there; -1: nothing. */
int nccl_device(CUdevice device, struct sim_machine_device *is);

/* ---- rooms (room.c) ---------------------------------------------------------------------------------------------- */
struct nccl_room;
struct nccl_comm;
/* What a channel is for: the work of streams, and the calls that make communicators. */
enum nccl_line { NCCL_DATA, NCCL_CALL };
struct nccl_message {
    uint32_t magic;
    uint16_t kind; /* of the collective */
    uint8_t type, op;
    uint64_t count;
    uint64_t bytes; /* of this piece */
};
/* Key: what the ranks have in common.  node: any number that the ranks of a node share.  0 or -errno: -EEXIST if the
 * rank is there already, -EINVAL if the room has another size. */
int nccl_room_join(const char *key, int ranks, int rank, uint32_t node, struct nccl_room **room);
void nccl_room_leave(struct nccl_room *room, int rank);
/* Removes the files of ranks that were all killed before they had met. */
void nccl_room_sweep(void);
/* All ranks are there; the first that is not is *missing. */
bool nccl_room_full(struct nccl_room *room, int *missing);
/* Sends without waiting.  0 or -errno: no space in shared memory. */
int nccl_room_send(struct nccl_room *room, enum nccl_line line, int from, int to, const struct nccl_message *message,
                   const void *bytes);
/* A message is there; its head is *message. */
bool nccl_room_peek(struct nccl_room *room, enum nccl_line line, int from, int to, struct nccl_message *message);
/* The message that nccl_room_peek showed goes; bytes (as many as it says) may be NULL. */
int nccl_room_take(struct nccl_room *room, enum nccl_line line, int from, int to, const struct nccl_message *message,
                   void *bytes);
/* Sleeps until something reaches the rank, at most for 100 ms.  *bell is from before the caller looked. */
uint32_t nccl_room_bell(struct nccl_room *room, int rank);
void nccl_room_sleep(struct nccl_room *room, int rank, uint32_t bell);
/* The rank was there and has ended, or has left the room (*left). */
bool nccl_room_gone(struct nccl_room *room, int rank, bool *left);
int nccl_room_pid(struct nccl_room *room, int rank); /* 0: not there yet */
uint32_t nccl_room_node(struct nccl_room *room, int rank);

/* ---- communicators (comm.c) -------------------------------------------------------------------------------------- */
#define NCCL_COMM_MAGIC 0x6d6d6f63u
struct nccl_scaler { /* of ncclRedOpCreatePreMulSum */
    bool used, device;
    int type;
    uint64_t where;
    unsigned char value[8];
};
struct nccl_comm {
    uint32_t magic;
    int references; /* the program's, and one per operation that is not over */
    int ranks, rank;
    CUdevice device;
    CUcontext context;
    char key[80]; /* of the room */
    unsigned children;
    /* Where only some ranks of the job run: each member's rank in the job, and its place in the room, -1: absent.  NULL:
     * all are there. */
    int *world, *seat;
    int seats;
    struct nccl_room *room;
    bool aborted, left;
    enum nccl_result failed;
    bool ready; /* all ranks were there */
    struct nccl_settings set;
    uint32_t node;
    pthread_mutex_t lock; /* of what follows */
    /* The order of the work: first steps run in the order of the calls, except those in graphs, and second steps in the
     * order of the first ones, whatever their streams are. */
    pthread_cond_t moved;
    uint64_t submitted, started;
    uint64_t tickets, turn;
    struct nccl_memory *memory; /* memory.c */
    struct nccl_scaler *scalers;
    int scaler_count;
    struct nccl_alike { /* what this rank itself broadcasts, or sends to itself, in the group that runs */
        uint64_t group, from;
        size_t bytes;
    } alike[2];
};
bool nccl_comm_valid(const struct nccl_comm *comm);
void nccl_comm_hold(struct nccl_comm *comm);
void nccl_comm_drop(struct nccl_comm *comm);
/* The communicator is broken from now on; says so once. */
void nccl_comm_fail(struct nccl_comm *comm, enum nccl_result result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Waits for `ready`; what and peer are for messages.  False: the communicator has failed or is aborted. */
bool nccl_comm_wait(struct nccl_comm *comm, int peer, const char *what, bool (*ready)(struct nccl_comm *, int, void *),
                    void *data);
/* Waits, with the lock held, until *counter has reached the number, or the communicator has failed. */
void nccl_comm_turn(struct nccl_comm *comm, const uint64_t *counter, uint64_t number);

/* ---- errors (error.c) -------------------------------------------------------------------------------------------- */
/* Remembers and returns the result. */
enum nccl_result nccl_error(enum nccl_result result, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Work that fails on the simulator's thread: what ncclGetLastError tells all threads from now on. */
void nccl_error_failure(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- who is there (present.c) ------------------------------------------------------------------------------------ */
/* All ranks of the job run. */
bool nccl_present_all(void);
/* Finds the members of a communicator; an error if some may be absent and they are not known. */
enum nccl_result nccl_present_of_ids(struct nccl_comm *comm, const struct nccl_id *ids, int count);
/* ... of a child, with its ranks and its rank. */
enum nccl_result nccl_present_of_split(struct nccl_comm *child);
enum nccl_result nccl_present_set(struct nccl_comm *comm, const int *world, int count);
void nccl_present_free(struct nccl_comm *comm);
/* The rank that has this place in the room. */
int nccl_present_rank(const struct nccl_comm *comm, int seat);
/* Notes that this rank sends to an absent one, or receives from it. */
void nccl_present_peer(struct nccl_comm *comm, int peer);
static inline int nccl_seat(const struct nccl_comm *comm, int rank)
{
    return comm->seat ? comm->seat[rank] : rank;
}
static inline bool nccl_is_absent(const struct nccl_comm *comm, int rank)
{
    return comm->seat && comm->seat[rank] < 0;
}

/* ---- groups (group.c) -------------------------------------------------------------------------------------------- */
NCCL_EXPORT enum nccl_result pncclGroupStart(void);
NCCL_EXPORT enum nccl_result pncclGroupEnd(void);
/* Something to be done by the outermost ncclGroupEnd, or now.  Each stage is done for all before the next one. */
#define NCCL_STAGES 4
struct nccl_task {
    struct nccl_task *next;
    enum nccl_result (*stage[NCCL_STAGES])(struct nccl_task *); /* NULL: none */
    void (*end)(struct nccl_task *);
};
enum nccl_result nccl_task_add(struct nccl_task *task);
/* The number of the group that runs. */
uint64_t nccl_group_number(void);

/* ---- memory (memory.c) ------------------------------------------------------------------------------------------- */
struct nccl_settings nccl_settings_read(const struct nccl_config *config); /* setting.c; NULL: none */
/* The node of a process's rank on this device, or of a rank of the job: a number that only its ranks have. */
uint32_t nccl_memory_node(CUdevice device);
uint32_t nccl_memory_node_of(int world_rank);
/* All ranks are there.  Parent: its resources are shared; may be NULL. */
enum nccl_result nccl_memory_init(struct nccl_comm *comm, struct nccl_comm *parent);
/* Before a collective of so many bytes as NCCL counts; sums as nccl_choice has it. */
enum nccl_result nccl_memory_collective(struct nccl_comm *comm, enum nccl_function function, uint64_t bytes, bool sums);
/* The rank will send to the peer, or receive from it; nccl_memory_connect takes what all of a group need. */
void nccl_memory_want(struct nccl_comm *comm, int peer, bool send);
/* Others send to the root, or the root to others, through this rank's GPU. */
void nccl_memory_want_proxy(struct nccl_comm *comm, int root, bool from_root);
enum nccl_result nccl_memory_connect(struct nccl_comm *comm);
/* Before a window of symmetric memory. */
enum nccl_result nccl_memory_window(struct nccl_comm *comm);
void nccl_memory_end(struct nccl_comm *comm);
void nccl_memory_free(struct nccl_comm *comm);

/* ---- numbers (reduce.c) ------------------------------------------------------------------------------------------ */
size_t nccl_type_size(int type); /* 0: no such type */
const char *nccl_type_name(int type);
/* Sums and so on are made in a row of accumulators, a rank after the other. */
union nccl_number {
    double real;
    int64_t whole;
    uint64_t natural;
};
void nccl_reduce_first(union nccl_number *to, const void *from, size_t count, int type);
void nccl_reduce_next(union nccl_number *to, const void *from, size_t count, int type, int op);
/* The same numbers, from so many ranks. */
void nccl_reduce_same(union nccl_number *to, const void *from, size_t count, int type, int op, int ranks);
void nccl_reduce_last(void *to, union nccl_number *from, size_t count, int type, int op, int ranks);
void nccl_scale(void *values, size_t count, int type, const void *factor);

#endif
