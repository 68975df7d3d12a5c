/* SPDX-License-Identifier: MIT
 *
 * maps.h: the BPF maps that the agent pins under /sys/fs/bpf/gpuprof, for whoever wants to read them: any BPF or
 * observability tool, `gpuprof top --system`, the metrics.  What each means to an outside reader: bpf/README.md.
 *
 *      map               type        key                           value                         mode
 *      meta              array       0                             gp_map_meta                   0644
 *      process_device    hash        gp_map_process_key            gp_map_process                0640
 *      container_device  hash        gp_map_container_key          gp_map_sum                    0644
 *      device            hash        gp_map_device_key             gp_map_sum                    0644
 *      container         hash        cgroup id (u64)               gp_map_container              0644
 *      events            ringbuf     -                             gp_map_record                 0600
 *      reset             hash        gp_map_device_key             gp_map_reset                  0644
 *
 * Sums move by (new absolute - old absolute) of a process with one atomic add, whose result raises the peak.
 * Nobody but the program writes sums: a viewer that wants peaks to begin anew writes into reset (see gp_map_peak_of).
 * Everything about identity is the kernel's; every number of bytes is the process's claim, clamped to the device.
 */
#ifndef GPUPROF_MAPS_H
#define GPUPROF_MAPS_H

#include <gpuprof/batch.h>

#define GP_MAPS_PINS "/sys/fs/bpf/gpuprof"
#define GP_MAPS_ABI  1u

/* 32 MiB of maps at most: the largest is 16384 x about 300 B. */
#define GP_MAPS_PROCESSES  16384u /* process x device */
#define GP_MAPS_CONTAINERS 4096u  /* container x device */
#define GP_MAPS_DEVICES    1024u
#define GP_MAPS_RING_BYTES (4u << 20)
/* One process, and one container, cannot fill a table: what they may use of it. */
#define GP_MAPS_DEVICES_OF_PROCESS   64u
#define GP_MAPS_ENTRIES_OF_CONTAINER 2048u
#define GP_MAPS_DEVICES_OF_CONTAINER 64u
/* Events that a container may always have, even while others fill the ring; beyond them it shares its first half. */
#define GP_MAPS_QUIET_EVENTS 65536u /* a second */
#define GP_MAPS_QUIET_BURST  4096u
/* No device has more: claims beyond are cut.  16384 x 16 TiB still fit int64_t. */
#define GP_MAPS_BYTES_LIMIT (1ll << 44)

/* Every `cgroup_id` below is the number (inode) of a cgroup of version 2; or, with this mark, of one of version 1, for
 * processes that version 2 does not tell apart: in the memory controller's hierarchy, or with both bits in that of
 * pids. Kernels count numbers from boot, so no number has these bits; and JSON keeps all of it exactly. */
#define GP_MAP_CGROUP_V1      (1ull << 48)
#define GP_MAP_CGROUP_V1_PIDS (3ull << 48)

struct gp_map_meta {
    uint32_t abi;
    uint32_t process_bytes, sum_bytes, container_bytes; /* sizes of the values */
    uint32_t agent_pid;
    uint32_t pad_;
    uint64_t heartbeat_ns; /* CLOCK_MONOTONIC of the host; older than 5 s: no agent */
    uint64_t start_ns;
    uint64_t batches, events; /* that came */
    uint64_t refused_batches; /* malformed: wrong magic, version, sizes, unreadable */
    uint64_t clamped;         /* numbers that were out of range */
    uint64_t map_full;        /* updates that found no room */
    uint64_t ring_dropped;    /* events that found no room */
    uint64_t gap_batches;     /* sequence numbers that never came */
    uint64_t lost;            /* events that no batch carried: the sum over processes, the dead too */
    uint64_t old_batches;     /* that came twice: two probes in one inode; not counted again */
    uint64_t raced_batches;   /* fired by two threads of one process at once: the next one says it all */
    uint64_t gone;            /* processes taken out: by exit, exec or the sweeper */
};

struct gp_map_process_key {
    uint32_t tgid;   /* in the initial pid namespace */
    uint32_t device; /* index in the process's session */
};

struct gp_map_process {
    uint64_t start_ns; /* start_boottime: with tgid the process's identity */
    uint64_t cgroup_id;
    uint32_t uid;
    uint32_t flags; /* GP_MAP_IN_*: the sums that hold it */
    char comm[16];
    uint8_t session_id[16];
    uint8_t uuid[16];
    int64_t total_bytes;
    int64_t allocated_bytes, allocated_peak_bytes;
    int64_t reserved_bytes, reserved_peak_bytes;
    int64_t calls, frees, failures;
    uint64_t allocated_peak_ns, reserved_peak_ns; /* as in gp_map_sum */
    uint64_t lost, seq, last_ns;
};

/* Missing: the table was full (map_full), or the device is not known yet. */
#define GP_MAP_IN_CONTAINER 1u
#define GP_MAP_IN_DEVICE    2u
#define GP_MAP_IN_ENTRIES   4u /* gp_map_container.entries counts it */

struct gp_map_container_key {
    uint64_t cgroup_id;
    uint8_t uuid[16];
};

struct gp_map_device_key {
    uint8_t uuid[16];
};

struct gp_map_sum {
    uint32_t processes, pad_;
    int64_t total_bytes; /* of the device, as claimed by the first process that knew */
    int64_t allocated_bytes, allocated_peak_bytes;
    int64_t reserved_bytes, reserved_peak_bytes;
    uint64_t allocated_peak_ns, reserved_peak_ns; /* CLOCK_MONOTONIC: when the peak was raised, or the entry made */
    int64_t calls, frees, failures;               /* of the dead too */
    uint64_t pad2_;
};

struct gp_map_reset { /* CLOCK_MONOTONIC of the last `gpuprof reset`; key all 0: of every device */
    uint64_t allocated_ns, reserved_ns;
};

/* The peak since the last reset, for the program before it adds a batch and for whoever reads.  reset_ns: the later one
 * of the device's and of every device's.  An entry that nothing moved since the reset stands where it stood then. */
static inline int64_t gp_map_peak_of(int64_t now, int64_t peak, uint64_t peak_ns, uint64_t reset_ns)
{
    return peak_ns < reset_ns || peak < now ? now : peak;
}

struct gp_map_container {
    uint64_t entries; /* in process_device now */
    uint64_t batches, events;
    uint64_t ring_dropped; /* its events for which it had no token, or the ring no room */
    uint64_t refused;      /* its batches that were refused, and numbers that were clamped */
    uint64_t map_full;
    uint64_t bucket_ns; /* when its bucket is full again */
    uint64_t devices;   /* rows of container_device that it made */
};

/* In the ring: the events of one batch, and whose they are.  A record has room for 8, 64 or 256 events (its length says
 * which); `count` of them are filled.  The events are the process's bytes as they stood: check them. */
struct gp_map_record {
    uint64_t cgroup_id, start_ns;
    uint32_t tgid, uid;
    char comm[16];
    uint8_t session_id[16];
    uint64_t seq, time_ns;
    uint32_t count, pad_;
    struct gp_wire_event events[];
};

_Static_assert(sizeof(struct gp_map_sum) == 96, "maps");
_Static_assert(sizeof(struct gp_map_process) % 8 == 0, "maps");

#endif
