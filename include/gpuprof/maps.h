/* SPDX-License-Identifier: MIT
 *
 * maps.h: layouts of the BPF maps that the agent pins under /sys/fs/bpf/gpuprof. `gpuprof top
 * --system`, the metrics and any BPF or observability tool may read them. bpf/README.md describes
 * what each map means to a reader.
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
 * A process moves a sum by (new absolute - old absolute) with one atomic add, whose result raises
 * the peak. Only the BPF program writes sums: a viewer that resets peaks writes into `reset` (see
 * gp_map_peak_of). The kernel supplies everything about identity; every number of bytes is the
 * process's claim, clamped to the device's size (asleep: to GP_MAPS_BYTES_LIMIT).
 */
#ifndef GPUPROF_MAPS_H
#define GPUPROF_MAPS_H

#include <gpuprof/batch.h>

#define GP_MAPS_PINS "/sys/fs/bpf/gpuprof"
#define GP_MAPS_ABI  2u

/* The maps take at most 32 MiB: the largest has 16384 entries of about 300 B. */
#define GP_MAPS_PROCESSES  16384u /* process x device */
#define GP_MAPS_CONTAINERS 4096u  /* container x device */
#define GP_MAPS_DEVICES    1024u
#define GP_MAPS_RING_BYTES (4u << 20)
/* The share of a table that one process or one container may use, so that neither can fill it. */
#define GP_MAPS_DEVICES_OF_PROCESS   64u
#define GP_MAPS_SHARES               8u  /* one container's part of processes x devices: an eighth, */
#define GP_MAPS_ENTRIES_LEAST        64u /* but at least this many */
#define GP_MAPS_ENTRIES_OF_CONTAINER (GP_MAPS_PROCESSES / GP_MAPS_SHARES)
#define GP_MAPS_DEVICES_OF_CONTAINER 64u
/* Events that a container may always write, even while others fill the ring. Beyond them it shares
 * the ring's first half. */
#define GP_MAPS_QUIET_EVENTS 65536u /* per second */
#define GP_MAPS_QUIET_BURST  4096u
/* Larger than any device: claims above it are cut. 16384 x 16 TiB still fit int64_t. */
#define GP_MAPS_BYTES_LIMIT (1ll << 44)

/* Every `cgroup_id` below is the number (inode) of a cgroup of version 2. With this mark it is a
 * cgroup of version 1, for processes that version 2 does not tell apart: in the memory controller's
 * hierarchy, or with both bits in that of pids. Kernels count numbers from boot, so no number has
 * these bits, and JSON represents every value exactly. */
#define GP_MAP_CGROUP_V1      (1ull << 48)
#define GP_MAP_CGROUP_V1_PIDS (3ull << 48)

struct gp_map_meta {
    uint32_t abi;
    uint32_t process_bytes, sum_bytes, container_bytes; /* sizes of the values */
    uint32_t agent_pid;
    uint32_t pad_;
    uint64_t heartbeat_ns; /* CLOCK_MONOTONIC of the host; if older than 5 s, no agent is running */
    uint64_t start_ns;
    uint64_t batches, events; /* received */
    uint64_t refused_batches; /* malformed: wrong magic, version, sizes, unreadable */
    uint64_t clamped;         /* numbers that were out of range */
    uint64_t map_full;        /* updates that found no room */
    uint64_t ring_dropped;    /* events that found no room */
    uint64_t gap_batches;     /* sequence numbers that were never received */
    uint64_t lost;            /* events that no batch carried; sum over all processes, including ended ones */
    uint64_t old_batches;     /* received twice (two probes in one inode) and not counted again */
    uint64_t raced_batches;   /* fired by two threads of one process at once and refused; the next batch makes up for
                               * it */
    uint64_t gone;            /* processes removed: by exit, exec or the agent's sweep */
};

struct gp_map_process_key {
    uint32_t tgid;   /* in the initial pid namespace */
    uint32_t device; /* index in the process's session */
};

struct gp_map_process {
    uint64_t start_ns; /* start_boottime; with tgid it identifies the process */
    uint64_t cgroup_id;
    uint32_t uid;
    uint32_t flags; /* GP_MAP_IN_*: the sums that include this row */
    char comm[16];
    uint8_t session_id[16];
    uint8_t uuid[16];
    int64_t total_bytes;
    int64_t allocated_bytes, allocated_peak_bytes;
    int64_t reserved_bytes, reserved_peak_bytes;
    int64_t calls, frees, failures;
    uint64_t allocated_peak_ns, reserved_peak_ns; /* as in gp_map_sum */
    uint64_t lost, seq, last_ns;
    int64_t asleep_bytes, asleep_peak_bytes; /* as in gp_map_sum */
    uint64_t asleep_peak_ns;
};

/* A flag is missing if the table was full (map_full) or the device is not known yet. */
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
    int64_t total_bytes; /* of the device, as claimed by the first process that reported it */
    int64_t allocated_bytes, allocated_peak_bytes;
    int64_t reserved_bytes, reserved_peak_bytes;
    uint64_t allocated_peak_ns, reserved_peak_ns; /* CLOCK_MONOTONIC: when the peak was raised, or the entry created */
    int64_t calls, frees, failures;               /* includes ended processes */
    /* Blocks without memory under them: in neither of the two above. Its peak is reset with that of allocated. */
    int64_t asleep_bytes, asleep_peak_bytes;
    uint64_t asleep_peak_ns;
};

struct gp_map_reset { /* CLOCK_MONOTONIC of the last `gpuprof reset`; the key of all zeros means every device */
    uint64_t allocated_ns, reserved_ns;
};

/* The peak since the last reset. The BPF program calls this before it adds a batch, readers when
 * they read. reset_ns: the later of the device's reset and that of every device. An entry unchanged
 * since the reset still has the value it had at the reset, which is its peak. */
static inline int64_t gp_map_peak_of(int64_t now, int64_t peak, uint64_t peak_ns, uint64_t reset_ns)
{
    return peak_ns < reset_ns || peak < now ? now : peak;
}

struct gp_map_container {
    uint64_t entries; /* rows in process_device now, and processes that claimed rows but have none */
    uint64_t batches, events;
    uint64_t ring_dropped; /* its events that found neither a token nor room in the ring */
    uint64_t refused;      /* its refused batches and clamped numbers */
    uint64_t map_full;
    uint64_t bucket_ns; /* when its token bucket is full again */
    uint64_t devices;   /* rows of container_device that it created */
};

/* A record in the ring: the events of one batch and the identity of their process. A record's length
 * gives its room: 8, 64 or 256 events, of which `count` are filled. The events are unchecked bytes
 * of the process: check them before use. */
struct gp_map_record {
    uint64_t cgroup_id, start_ns;
    uint32_t tgid, uid;
    char comm[16];
    uint8_t session_id[16];
    uint64_t seq, time_ns;
    uint32_t count, pad_;
    struct gp_wire_event events[];
};

_Static_assert(sizeof(struct gp_map_sum) == 112, "maps");
_Static_assert(sizeof(struct gp_map_process) % 8 == 0, "maps");

#endif
