/* SPDX-License-Identifier: MIT
 * Virtual memory management from inside: shared by physical.c (handles and their lives, sharing),
 * vmm.c (address ranges, mappings, access) and multicast.c.  Everything under the simulator's lock. */
#ifndef SIM_VMM_H
#define SIM_VMM_H

#include "cuda/stream.h"

/* A memory allocation behind a handle.  It lives while references + mappings + binds > 0; the
 * handle can be named only while references > 0, and its value is given out again once the
 * allocation is gone. */
struct sim_physical {
    CUmemGenericAllocationHandle handle;
    size_t size;
    CUmemAllocationProp prop;
    int device;      /* SIM_HOST: host memory */
    int fd;          /* its own memfd when it can be shared, else the common one */
    uint64_t offset; /* in that file */
    uint64_t references, mappings, binds;
    uint64_t mapped_bytes; /* sum of the sizes of its mappings */
    uint64_t counted;      /* the part of it that the ledger counts as allocated: at most size */
    int import_device;     /* imported: whose ledger counts it while mapped */
    bool imported, own_fd;
    struct sim_multicast *multicast;     /* not memory but a multicast object */
    void (*end)(struct sim_physical *p); /* of such an object, once nothing holds it */
};

/* Last page of a shared allocation's memfd: the facts that an importer needs. */
#define SIM_PHYSICAL_MAGIC UINT64_C(0x737968702d6d6973)
struct sim_physical_header {
    uint64_t magic, size;
    int physical; /* device, or SIM_HOST */
    CUmemAllocationProp prop;
    CUmulticastObjectProp team; /* of a multicast object; numDevices is 0 for memory */
    unsigned int joined;        /* devices of that team so far, by all processes */
};

struct sim_multicast {
    struct sim_physical_header *shared; /* in the object's memfd; private memory if the object cannot be exported */
    uint64_t devices;                   /* bit per device that joined through this process */
    struct sim_bind *binds;
};

struct sim_physical *sim_physical_find(CUmemGenericAllocationHandle h); /* NULL: no such handle with references */
struct sim_physical *sim_physical_new(size_t size);                     /* with a handle and one reference */
/* Frees the allocation when nothing holds it any more. */
void sim_physical_settle(struct sim_physical *p);
/* A mapping of `size` bytes comes (+) or goes (-): the ledger's allocated or imported bytes follow. */
void sim_physical_mapped(struct sim_physical *p, int64_t size);
/* The reserved range around an address, mapped or not.  False: there is none. */
bool sim_reservation_at(CUdeviceptr address, CUdeviceptr *base, size_t *size);
/* The allocation mapped at an address, or NULL; *offset = place inside it. */
struct sim_physical *sim_physical_at(CUdeviceptr address, size_t *offset);
/* Memory bound to an object (a multicast object, a logical endpoint) at an offset, for one device. */
struct sim_bind;
CUresult sim_bind_add(struct sim_bind **list, int device, size_t offset, struct sim_physical *memory, size_t at,
                      size_t size);
/* The binds of the device from offset on, which must cover exactly `size` bytes. */
CUresult sim_bind_remove(struct sim_bind **list, int device, size_t offset, size_t size);
void sim_bind_remove_all(struct sim_bind **list);
/* p becomes a multicast object, a new one or the one in p->fd.  False: out of memory. */
bool sim_multicast_start(struct sim_physical *p, const CUmulticastObjectProp *prop);
bool sim_multicast_open(struct sim_physical *p);
CUresult sim_multicast_join(struct sim_physical *p, int device);
/* Waits until all devices have joined, as a real driver does, without the lock.  False: they cannot, or the object has
 * ended. */
bool sim_multicast_complete(struct sim_physical *p);

struct sim_bind {
    struct sim_bind *next;
    struct sim_physical *memory;
    int device;
    size_t offset, size;
};

struct sim_reservation {
    struct sim_reservation *next;
    CUdeviceptr base;
    size_t size;
    int device; /* whose ledger has it as virtual */
};

struct sim_mapping {
    struct sim_physical *physical;
    size_t offset;
    unsigned char access[SIM_MAX_DEVICES + 1]; /* CUmemAccess_flags; slot 0 is the host */
};

/* physical.c */
void sim_physical_drop(struct sim_physical *p);

/* vmm.c */
extern struct sim_reservation *sim_reservations;
struct sim_reservation *sim_reservation_of(CUdeviceptr p, size_t size);

#endif
