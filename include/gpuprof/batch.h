/* SPDX-License-Identifier: MIT
 *
 * batch.h: the data that a profiled process passes to the kernel: the first argument of the USDT
 * probe gpuprof:batch(batch, bytes).  The drain thread fires the probe while the probe's semaphore
 * is not 0.  The file uses only fixed-width integers and includes nothing else, so that BPF programs
 * can use it.
 *
 * Every value is the process's claim.  Counters are absolute, so a lost batch loses no bytes: the
 * next batch has the current values.  Events are for viewers; sums are not computed from them.
 */
#ifndef GPUPROF_BATCH_H
#define GPUPROF_BATCH_H

#include <gpuprof/wire.h>

#define GP_BATCH_MAGIC   0x4842505047u /* "GPPBH" */
#define GP_BATCH_ABI     2u
#define GP_BATCH_EVENTS  256u /* limit per batch: 16 KiB, which the probe's program copies at once */
#define GP_BATCH_DEVICES 8u   /* limit per batch; a process with more sends several batches */

struct gp_batch_device {
    uint8_t uuid[16];    /* of the GPU or MIG instance; all 0: not known yet */
    int32_t device;      /* index in the session; GP_WIRE_HOST never comes here */
    uint32_t flags;      /* GP_DEVICE_* */
    int64_t total_bytes; /* -1 unknown */
    int64_t allocated_bytes, reserved_bytes;
    /* The highest values since the session's last batch with this device, so that a peak between
     * two batches counts. */
    int64_t allocated_high_bytes, reserved_high_bytes;
    int64_t calls, frees, failures; /* since the start */
    /* Blocks without memory under them, in neither of the above: together they may exceed the device. */
    int64_t asleep_bytes, asleep_high_bytes;
};

struct gp_batch {
    uint64_t magic;
    uint32_t abi;
    uint32_t bytes; /* of the whole batch */
    uint8_t session_id[16];
    uint64_t seq;     /* number of the batch in its session: 1, 2, ... */
    uint64_t time_ns; /* CLOCK_MONOTONIC of the process */
    uint64_t lost;    /* events since the start that no batch carried */
    uint16_t device_count, event_count;
    uint32_t flags; /* GP_BATCH_* */
    struct gp_batch_device devices[GP_BATCH_DEVICES];
    struct gp_wire_event events[GP_BATCH_EVENTS];
};

#define GP_BATCH_LAST 1u /* the process is exiting: its numbers are final */

_Static_assert(sizeof(struct gp_batch_device) == 104, "wire");
_Static_assert(sizeof(struct gp_batch) == 64 + 8 * 104 + 256 * 64, "wire");

#endif
