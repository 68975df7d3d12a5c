/* SPDX-License-Identifier: MIT
 * What the simulated driver says about the machine to the libraries that stand in for NVIDIA's (sim/nvml,
 * sim/nccl), which find these functions with dlsym.  They need no cuInit and start nothing: devices
 * are numbered as they are before CUDA_VISIBLE_DEVICES.  Any thread. */
#ifndef SIM_MACHINE_H
#define SIM_MACHINE_H

#include <stddef.h>
#include <stdint.h>

struct sim_machine_device {
    size_t size; /* of this struct, set by the caller */
    char name[96];
    unsigned char uuid[16];
    int bus;        /* PCI bus; domain, device and function are 0 */
    int capability; /* 10 x major + minor */
    int multiprocessors;
    int clock, memory_clock; /* kHz */
    int bus_width;           /* bits */
    int ecc;
    int links, link_version;  /* NVLinks of a board with NVSwitch, 0: none; NVML's number of the version */
    uint64_t total, reserved; /* bytes that the driver keeps beside the total; with another size of memory: 0 */
};

/* The number of devices, or -EINVAL: GPUPROF_SIM cannot be read. */
int sim_machine_devices(void);
/* How many ranks of the job share a node: rank r of the job is on node r / that.  0: all, as nothing else was
 * said; -EINVAL as above. */
int sim_machine_node(void);
/* 0 or -EINVAL: no such device, or another size of the struct. */
int sim_machine_device(int physical, struct sim_machine_device *device);
/* The processes that have memory of a device: of private devices at most this one, since others are not
 * seen.  Returns their number, of which at most `most` are written. */
int sim_share_processes(int physical, int *pids, unsigned long long *bytes, int most);

/* The bytes of a range of device memory, and other bytes for it: 0, or -EFAULT and nothing is
 * moved, if it is not all memory that the driver knows.  The caller has seen to the order of the
 * work on it; a host function may call these. */
int sim_memory_fetch(void *to, uint64_t from, size_t size);
int sim_memory_store(uint64_t to, const void *from, size_t size);
/* With fill=random: what the bytes are that this thread copies to the host from now on.  Returns what they were. */
enum sim_fill {
    SIM_FILL_ANY,   /* not known */
    SIM_FILL_ZEROS, /* they stay */
    SIM_FILL_BOOL,
    SIM_FILL_INT8,
    SIM_FILL_INT16,
    SIM_FILL_INT32,
    SIM_FILL_INT64,
    SIM_FILL_HALF,
    SIM_FILL_BFLOAT,
    SIM_FILL_FLOAT,
    SIM_FILL_DOUBLE
};
int sim_fill_as(int type);
/* With contents=none: results that this thread copies to the host, of at most 8 bytes each, are this number from now on.
 * NULL: they are what they were again. */
void sim_read_as(const uint64_t *number);
/* A host function begins (1), or ends (0), to wait for another process or thread: others may run meanwhile. */
void sim_host_waits(int begin);
/* A stand-in says how much code of kernels the library that it stands for loads into the current context, where it counts once
 * for each name, a constant.  0, or -ENOMEM: no room, and nothing is loaded. */
int sim_library_code(const char *name, size_t bytes);
/* A kernel would have computed the range: with contents=none it reads as zeros from now on. */
void sim_memory_computed(uint64_t base, size_t size);

#endif
