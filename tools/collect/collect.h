/* SPDX-License-Identifier: MIT
 *
 * collect.h: what the rest of the command knows about processes.  Everything here was copied out of another process,
 * checked and bounded by tools/collect; strings are NUL-terminated, printable UTF-8 or replaced, counts are in range.
 * Nothing else in tools/ touches a session.  Unknown differs from zero: see the `known` flags and -1 values.
 */
#ifndef GP_COLLECT_COLLECT_H
#define GP_COLLECT_COLLECT_H

#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define GP_CONTAINER_BYTES 128

struct gp_device_view { /* one device of one process, as published */
    int index;          /* in the session; GP_WIRE_HOST is the host */
    int ordinal;
    bool identified;
    bool estimated;
    bool polled;
    bool
        totals_only; /* from the agent's maps: allocated, reserved, their peaks, calls and frees; the rest is unknown */
    char uuid[48];   /* "GPU-..." or "" */
    char name[64];
    int64_t total_bytes;        /* -1 unknown */
    int64_t untracked_bytes;    /* NVML minus itemised; -1 unknown (INT64_MIN never occurs) */
    struct gp_wire_device wire; /* validated copy: the statistics */
};

/* The number that people know a device by: the driver's ordinal in that process; GP_WIRE_HOST for the host. */
static inline int gp_device_number(const struct gp_device_view *device)
{
    return device->index == (int)GP_WIRE_HOST ? (int)GP_WIRE_HOST : device->ordinal;
}

struct gp_scope_view {
    int slot;
    char name[40];
    uint64_t begin_ns;
};

struct gp_failure_view {
    char api[48];
    uint32_t error;
    uint64_t count;
};

enum gp_process_state {
    GP_PROCESS_LIVE,    /* exact: answered the snapshot request just now */
    GP_PROCESS_STALE,   /* did not answer in time (stopped?): last published numbers */
    GP_PROCESS_UNKNOWN, /* never published anything */
    GP_PROCESS_DAMAGED, /* the session failed validation: `problem` says where */
    GP_PROCESS_FOREIGN, /* not injected; known from NVML alone */
};

struct gp_process {
    pid_t pid;
    uint64_t start_time; /* /proc/PID/stat field 22: with pid, the identity */
    uid_t uid;
    pid_t ppid;
    char comm[32];
    char cmdline[256];
    char user[64];
    char container[GP_CONTAINER_BYTES]; /* container id's first 12 digits, from the agent's maps its name, or "" */
    uint64_t cgroup_id;                 /* 0 unknown */
    enum gp_process_state state;
    char problem[160];
    uint32_t source; /* enum gp_wire_source */
    char source_detail[128];
    char trouble[128];
    char options[128];
    char stacks[112]; /* why Python frames are missing */
    char allocator[32];
    bool closed, disabled, yielded;
    bool simulated;  /* the device's name says so */
    bool from_agent; /* known from the agent's maps, not from a session */
    uint64_t publish_ns, age_ns;
    uint64_t lost[GP_LOSTS];
    struct {
        uint32_t state; /* enum gp_wire_record */
        int error;      /* errno; 0 none */
        uint64_t events, lost;
    } recording; /* what the process writes about itself */
    uint64_t events, enabled_callbacks;
    uint32_t driver_version, cupti_version;
    int device_count; /* devices[] in use, the host last if present */
    struct gp_device_view *devices;
    int scope_count;
    struct gp_scope_view scopes[GP_WIRE_SCOPES];
    int failure_count;
    struct gp_failure_view failures[GP_WIRE_FAILURES];
    uint64_t session_ns;                /* CLOCK_MONOTONIC of the session's start */
    struct gp_wire_oom oom;             /* validated copy of the last failed request; oom.count 0: none */
    char oom_where[GP_OOM_HOLDERS][40]; /* places of its holders, by cmd/holders.c; "" unknown */
};

struct gp_gpu { /* a GPU of this machine, as NVML or the processes know it */
    int index;
    char uuid[48];
    char name[64];
    int64_t total_bytes; /* -1 unknown */
    int64_t used_bytes;  /* NVML; -1 unknown */
};

/* A sum over processes, those that may not be looked at and those that have ended too, as the agent's maps have it: its
 * peaks are exact. */
struct gp_sum {
    uint64_t cgroup_id;                 /* 0: of the whole device */
    char container[GP_CONTAINER_BYTES]; /* its name */
    char uuid[48];
    int64_t total_bytes; /* -1 unknown */
    int64_t allocated, allocated_peak, reserved, reserved_peak;
    int64_t calls, frees;
    int processes; /* now */
};

/* With gp_collect_options.pins: what the agent says. */
struct gp_agent {
    bool present;          /* sums are valid */
    bool alive;            /* else they have stood still for silent_ns */
    bool processes_hidden; /* its processes may not be read: those in the list are ours, from their sessions */
    int pid;
    uint64_t silent_ns;
    uint64_t refused, map_full, dropped, gaps; /* what it could not count */
    int sum_count;
    struct gp_sum *sums;
};

struct gp_system {
    uint64_t time_ns;
    bool nvml;
    char nvml_problem[96];
    int process_count;
    struct gp_process *processes;
    int gpu_count;
    struct gp_gpu *gpus;
    int denied_count; /* processes of other users whose descriptors we may not look at */
    struct gp_agent agent;
};

/* Why and whom to look at. */
struct gp_collect_options {
    const pid_t *pids; /* NULL: every profiled process that we may read */
    int pid_count;
    bool exact;           /* ask each process for a snapshot (mailbox) before reading */
    bool with_nvml;       /* add NVML totals and processes that are not injected */
    uint64_t deadline_ns; /* for the answer of one process; 0: the default of one second */
    const char *pins;     /* for gp_system_sample (maps/sample.h), which then asks the agent's maps */
};

/* 0 (possibly no process), or -errno.  The result is one allocation tree: free with gp_system_free.
 * A pid that was asked for but is not profiled, is foreign or dead is left out; gp_explain_pid says why. */
int gp_collect(const struct gp_collect_options *options, struct gp_system **out);
void gp_system_free(struct gp_system *system);

/* For messages: why `pid` has no readable session ("no such process", "not profiled: ...", "belongs to another user:
 * ..."). */
enum gp_pid_problem { GP_PID_OK, GP_PID_DEAD, GP_PID_NOT_PROFILED, GP_PID_DENIED };
enum gp_pid_problem gp_explain_pid(pid_t pid, char *why, size_t why_bytes);

/* Sends one request to a process and waits for the answer.  Fill command, what, device and name of *slot; on return 0
 * the reply fields hold a checked copy of the answer.  0, -ESRCH (not profiled), -EACCES, -ETIMEDOUT (no answer within
 * deadline_ns), -EPROTO (damaged session), or the process's own -errno. */
int gp_request(pid_t pid, struct gp_wire_slot *slot, uint64_t deadline_ns);

#endif
