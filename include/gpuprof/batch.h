/* SPDX-License-Identifier: MIT
 *
 * batch.h: what a profiled process hands to the kernel: the argument of the USDT probe
 * gpuprof:batch(batch, bytes), which its drain thread fires while the probe's semaphore is not 0.
 * Fixed-width integers and no includes beyond them, so that BPF programs can use the file.
 *
 * All of it is the process's claim.  Counters are absolute, so a lost batch loses no bytes: the
 * next one says where the process stands.  Events are for viewers; no sum is made of them.
 */
#ifndef GPUPROF_BATCH_H
#define GPUPROF_BATCH_H

#include <gpuprof/wire.h>

#define GP_BATCH_MAGIC   0x4842505047u /* "GPPBH" */
#define GP_BATCH_ABI     1u
#define GP_BATCH_EVENTS  256u /* most in one batch: 16 KiB that the probe's program copies at once */
#define GP_BATCH_DEVICES 8u   /* most in one batch; a process with more sends several */

struct gp_batch_device {
    uint8_t uuid[16];    /* of the GPU or MIG instance; all 0: not known yet */
    int32_t device;      /* index in the session; GP_WIRE_HOST never comes here */
    uint32_t flags;      /* GP_DEVICE_* */
    int64_t total_bytes; /* -1 unknown */
    int64_t allocated_bytes, reserved_bytes;
    /* The most since the batch before (of this session, for this device): so a peak between two
     * batches counts. */
    int64_t allocated_high_bytes, reserved_high_bytes;
    int64_t calls, frees, failures; /* since the start */
};

struct gp_batch {
    uint64_t magic;
    uint32_t abi;
    uint32_t bytes; /* of all of it */
    uint8_t session_id[16];
    uint64_t seq;     /* of the session's batches: 1, 2, ... */
    uint64_t time_ns; /* CLOCK_MONOTONIC of the process */
    uint64_t lost;    /* events that no batch carried, ever */
    uint16_t device_count, event_count;
    uint32_t flags; /* GP_BATCH_* */
    struct gp_batch_device devices[GP_BATCH_DEVICES];
    struct gp_wire_event events[GP_BATCH_EVENTS];
};

#define GP_BATCH_LAST 1u /* the process ends: its numbers are final */

_Static_assert(sizeof(struct gp_batch_device) == 88, "wire");
_Static_assert(sizeof(struct gp_batch) == 64 + 8 * 88 + 256 * 64, "wire");

#endif
