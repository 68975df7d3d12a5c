/* SPDX-License-Identifier: MIT
 *
 * collect.h: the state of all profiled processes, for the rest of the command. tools/read/collect
 * copied everything here from other processes and checked it: strings are NUL-terminated, printable
 * UTF-8 (or replaced), counts are in range. Nothing else in tools/ reads a session. Unknown differs
 * from zero: see the flags and the -1 values.
 */
#ifndef GP_READ_COLLECT_COLLECT_H
#define GP_READ_COLLECT_COLLECT_H

#include <gpuprof/wire.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

/* ==== the processes =============================================================================================== */

#define GP_CONTAINER_BYTES 128

struct gp_forecast_result; /* analyze/forecast.h */

struct gp_device_view { /* one device of one process, as published */
    int index;          /* in the session; GP_WIRE_HOST is the host */
    int ordinal;
    bool identified;
    bool estimated;
    bool polled;
    bool totals_only; /* from the agent: only allocated, reserved, asleep, their peaks, calls and frees are known */
    char uuid[48];    /* "GPU-..." or "" */
    char name[64];
    int64_t total_bytes;                               /* -1 unknown */
    int64_t untracked_bytes;                           /* NVML's bytes minus the itemised ones; -1 unknown */
    struct gp_wire_device wire;                        /* validated copy: the statistics */
    struct gp_wire_owner_value owners[GP_WIRE_OWNERS]; /* by row of the process's table; validated copy */
    struct gp_wire_framework framework;                /* name "": none reports its blocks here; validated copy */
    struct gp_wire_framework heaps;                    /* the same of sub-allocators with NVTX */
    const struct gp_forecast_result *forecast; /* set by a viewer that watches the process, which owns it; else NULL */
    const int64_t *library_bytes; /* held by each of analyze/libraries.h; set by `stat`, which owns them; else NULL */
    struct gp_wire_before_device before; /* only if the process was attached late; validated copy */
    struct gp_wire_blocks_device blocks; /* a framework's from before the attach, -1 unknown; validated copy */
};

/* The number by which users know a device: the driver's ordinal in that process; GP_WIRE_HOST for
 * the host. */
static inline int gp_device_number(const struct gp_device_view *device)
{
    return device->index == (int)GP_WIRE_HOST ? (int)GP_WIRE_HOST : device->ordinal;
}

/* One owner's memory on one device, for display. */
struct gp_owner_view {
    char owner[40];   /* pytorch, nccl, program ..., "unknown", "other", "shared" */
    char library[40]; /* "" none */
    struct gp_wire_owner_value value;
};
#define GP_OWNER_VIEWS (GP_WIRE_OWNERS + 1)

/* What of the device's blocks is asleep is of the framework that reports them. */
static inline int64_t gp_owner_asleep(const struct gp_device_view *device, const char *owner)
{
    const char *name = device->framework.name;
    return name[0] && strcmp(name, owner) == 0 ? device->wire.asleep_bytes.current : 0;
}

/* Where the number of the memory from before an attach comes from; NULL: it is not known. */
const char *gp_before_source(const struct gp_wire_before_device *before);

/* The framework's totals were ours at every event. */
static inline bool gp_framework_agrees(const struct gp_wire_framework *framework)
{
    return framework->allocated_differs == 0 && framework->reserved_differs == 0;
}

struct gp_scope_view {
    int slot;
    char name[40];
    uint64_t begin_ns;
};

#define GP_CGROUP_LIMITS 8    /* more GPUs than that in one container are shown in part */
struct gp_cgroup_limit {      /* of the memory of one GPU, for the cgroup of a process */
    char controller[8];       /* "dmem", "misc" */
    char region[64];          /* as the driver names it, with the GPU's PCI address */
    int64_t limit_bytes;      /* the least of the cgroup and those above; -1 none */
    int64_t used_bytes;       /* by the whole cgroup; -1 unknown */
    int64_t guaranteed_bytes; /* below it no process is evicted; -1 unknown */
};

struct gp_failure_view {
    char api[48];
    uint32_t error;
    uint64_t count;
};

/* The copies of CUPTI that the process tried, and what it has of the one in use. */
struct gp_cupti_view {
    uint32_t tried, strange; /* as in struct gp_wire_cupti; those beyond the rows below are only counted */
    bool shared;
    uint32_t copy_count, name_count;
    struct gp_wire_copy copies[GP_WIRE_COPIES];
    char names[GP_WIRE_STRANGE][48];
};

enum gp_process_state {
    GP_PROCESS_LIVE,    /* exact: the process has just answered the snapshot request */
    GP_PROCESS_STALE,   /* no answer in time (stopped?): the last published numbers */
    GP_PROCESS_UNKNOWN, /* never published anything */
    GP_PROCESS_DAMAGED, /* the session failed validation: `problem` says where */
    GP_PROCESS_FOREIGN, /* not profiled; known only from NVML */
};

#define GP_COMM_BYTES 96

struct gp_process {
    pid_t pid;
    uint64_t start_time; /* /proc/PID/stat field 22: with pid, the identity */
    uid_t uid;
    pid_t ppid;
    char comm[GP_COMM_BYTES]; /* the kernel's 15 bytes; of a worker of Ray its whole title, "ray::Trainer.step" */
    char ray_job[12];         /* hex digits; "" unknown: its variable names none in a worker that no job started */
    char cmdline[256];
    char user[64];
    char container[GP_CONTAINER_BYTES]; /* first 12 digits of its ID, or its name from the agent's maps, or "" */
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
    bool attached;         /* to a program that ran already: the numbers count from then on */
    uint32_t blocks_state; /* enum gp_wire_blocks_state: the framework's blocks from before */
    uint64_t blocks_took_ns;
    char blocks_text[160]; /* printable ASCII */
    bool gone;             /* no events come any more, as the program ended CUPTI */
    bool simulated;        /* the device's name says so */
    bool from_agent;       /* known from the agent's maps, not from a session */
    uint64_t publish_ns, age_ns;
    uint64_t lost[GP_LOSTS];
    struct {
        uint32_t state; /* enum gp_wire_record */
        int error;      /* errno; 0 none */
        uint64_t events, lost;
        bool ended; /* by gp_recorded_finish: the process was killed */
    } recording;    /* the recording that the process itself writes */
    uint64_t events, enabled_callbacks;
    uint32_t driver_version, cupti_version;
    struct gp_cupti_view cupti;
    int device_count; /* devices[] in use, the host last if present */
    struct gp_device_view *devices;
    int scope_count;
    struct gp_scope_view scopes[GP_WIRE_SCOPES];
    int failure_count;
    struct gp_failure_view failures[GP_WIRE_FAILURES];
    int owner_count; /* rows of the table of owners; 0: the library knows none */
    struct gp_wire_owner owners[GP_WIRE_OWNERS];
    struct gp_wire_doors doors; /* libraries whose own pools are watched; validated copy */
    int cgroup_limit_count;
    struct gp_cgroup_limit cgroup_limits[GP_CGROUP_LIMITS];
    uint64_t session_ns;                        /* CLOCK_MONOTONIC of the session's start */
    struct gp_wire_oom oom;                     /* validated copy of the last failed request; oom.count 0: none */
    struct gp_wire_oom_framework oom_framework; /* its part about a framework's allocator, likewise */
    char oom_place[88];                         /* call site of the failed request, likewise */
    char oom_where[GP_OOM_HOLDERS][40];         /* call sites of its holders, filled in by cmd/holders.c; "" unknown */
};

/* How long ago a library that says itself what its pools have was asked. */
static inline uint64_t gp_door_age(const struct gp_process *process, const struct gp_wire_door_row *row)
{
    uint64_t before = process->publish_ns > row->time_ns ? process->publish_ns - row->time_ns : 0;
    return (before + process->age_ns) & INT64_MAX;
}

struct gp_gpu { /* a GPU of this machine, as NVML or the processes know it */
    int index;
    char uuid[48];
    char name[64];
    int64_t total_bytes; /* -1 unknown */
    int64_t limit_bytes; /* what NVML lets this command's cgroup use, if that is less than the total; 0: all */
    int64_t used_bytes;  /* NVML; -1 unknown */
};

/* A sum over processes, from the agent's maps. It includes processes that the caller may not
 * inspect and those that have ended, and its peaks are exact. */
struct gp_sum {
    uint64_t cgroup_id;                 /* 0: the sum of the whole device */
    char container[GP_CONTAINER_BYTES]; /* its name */
    char uuid[48];
    int64_t total_bytes; /* -1 unknown */
    int64_t allocated, allocated_peak, reserved, reserved_peak, asleep;
    int64_t calls, frees;
    int processes; /* now */
};

/* The agent's state, with gp_collect_options.pins. */
struct gp_agent {
    bool present;          /* sums are valid */
    bool alive;            /* otherwise the sums have not changed for silent_ns */
    bool processes_hidden; /* its process table may not be read; the listed processes come from their sessions */
    int pid;
    uint64_t silent_ns;
    uint64_t refused, map_full, dropped, gaps; /* events that it could not count */
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
    int denied_count;     /* processes of other users whose descriptors may not be read */
    int unsearched_count; /* processes of users with so many open files that not all of them were looked at */
    struct gp_agent agent;
};

/* Which processes to collect, and how. */
struct gp_collect_options {
    const pid_t *pids; /* NULL: every profiled process that may be read */
    int pid_count;
    bool exact;           /* ask each process for a snapshot (mailbox) before reading */
    bool with_nvml;       /* add NVML totals and processes that are not profiled */
    uint64_t deadline_ns; /* for one process's answer; 0: the default of one second */
    const char *pins;     /* for gp_system_sample (agent/maps/maps.h), which then reads the agent's maps */
};

/* 0 (there may be no process), or -errno. Free the result with gp_system_free. A pid that was
 * requested but is not profiled, foreign or dead is left out; gp_collect_explain_pid says why. */
int gp_collect(const struct gp_collect_options *options, struct gp_system **out);
void gp_system_free(struct gp_system *system);

/* Lists the owners that have, or had, memory on a device of the process; returns their number. The
 * last may be "shared": memory of no single library, which is gpuprof's own cache and what pools
 * and graphs hold of the driver; its peaks are -1, unknown. The bytes add up to the device's
 * totals. 0: the owners are not known. */
int gp_peer_owners_of(const struct gp_process *process, const struct gp_device_view *device,
                      struct gp_owner_view views[GP_OWNER_VIEWS]);

/* For messages: the reason why `pid` has no readable session ("no such process", "not profiled:
 * ...", "belongs to another user: ..."). */
enum gp_pid_problem { GP_PID_OK, GP_PID_DEAD, GP_PID_NOT_PROFILED, GP_PID_DENIED };
enum gp_pid_problem gp_collect_explain_pid(pid_t pid, char *why, size_t why_bytes);

/* Sends one request to a process and waits for the answer. Fill in command, what, device and name
 * of *slot; on return 0 the reply fields hold a checked copy of the answer. 0, -ESRCH (not
 * profiled), -EACCES, -ETIMEDOUT (no answer within deadline_ns), -EPROTO (damaged session), or the
 * -errno that the process returned. */
int gp_request(pid_t pid, struct gp_wire_slot *slot, uint64_t deadline_ns);

/* ==== NVML ======================================================================================================== */
/* Reads the GPUs of this machine from NVIDIA's management library. The library is opened at run
 * time; without it everything here is unknown. Called by machine.c, the agent, doctor and record.
 * Not thread-safe: one caller at a time. */

#define GP_NVML_PROBLEM_BYTES 96

struct gp_nvml_process {
    uint32_t pid;  /* in the machine's own pid namespace */
    int64_t bytes; /* -1: unknown */
};

struct gp_nvml_gpu {
    char uuid[48];
    char name[64];
    int64_t total_bytes; /* -1 unknown */
    int64_t used_bytes;  /* -1 unknown */
    int process_count;   /* -1 unknown */
    struct gp_nvml_process *processes;
};

/* 0 with *gpus from malloc (free with gp_nvml_free), or -errno with the reason in `problem`. */
int gp_nvml_read(struct gp_nvml_gpu **gpus, int *count, char problem[GP_NVML_PROBLEM_BYTES]);
void gp_nvml_free(struct gp_nvml_gpu *gpus, int count);

/* ==== the GPUs ==================================================================================================== */
/* Adds the GPUs of the machine and the processes that only NVML knows. Called by collect.c and
 * agent/maps/sample.c, after the profiled processes are read. */

/* Adds a zeroed process to the system. NULL: out of memory. */
struct gp_process *gp_system_add(struct gp_system *system);

/* Fills in gpus, nvml, nvml_problem and untracked_bytes; adds processes that are not profiled
 * unless only_profiled. 0 or -ENOMEM. */
int gp_machine_add_nvml(struct gp_system *system, bool only_profiled);

/* Adds the GPUs that the processes identified and that are not in gpus yet. 0 or -ENOMEM. */
int gp_machine_add_gpus(struct gp_system *system);

/* ==== limits of cgroups =========================================================================================== */
/* The limits of device memory that the kernel keeps for the cgroup of a process: the dmem controller
 * (Linux 6.14), or the misc controller where a driver of CUDA 13.4 counts in it. */

/* Reads the files below root ("" in production) and returns how many limits it wrote; 0 too if there
 * is no such controller.  All text comes from the kernel, bounded and cleaned nevertheless. */
int gp_proc_cgroup_limits(const char *root, pid_t pid, struct gp_cgroup_limit out[GP_CGROUP_LIMITS]);

/* ==== extents ===================================================================================================== */
/* Reads the extents of a live process: its device memory now, segment by segment and block by block
 * (wire.h: struct gp_wire_extents). Called by `snapshot -p`, and by callers that need the memory
 * that was live before they attached. The process may be hostile: everything is copied, then
 * checked. */

/* `pieces` has, after the checks:
 *
 *   GP_EXTENT_SEGMENT  followed by its blocks, which cover it without gap, in order of address;
 *   GP_EXTENT_BLOCK    state GPUPROF_LIVE, _WAITING, _IDLE or _UNMAPPED; device and kind are the segment's;
 *   GP_EXTENT_WHOLE    allocated by the program directly: a segment that is one live block.
 *
 * bytes > 0, requested_bytes <= bytes, address + bytes < 2^63, device < GP_WIRE_DEVICES, kind <
 * GP_KINDS, time_ns <= end_ns (0 unknown). site can be any number: check it before using it as an
 * index. Live memory is every extent that is not a segment and has state GPUPROF_LIVE. */
struct gp_extents {
    uint64_t begin_ns, end_ns; /* when the process walked its memory, CLOCK_MONOTONIC */
    uint64_t missed;           /* extents left out because the process had no room for them */
    uint64_t count;
    struct gp_wire_extent *pieces;
};

/* Sends the request, waits, copies and checks. deadline_ns: for all of this; 0: five seconds. 0;
 * -ESRCH (not profiled), -EACCES, -ETIMEDOUT, -EBUSY (other viewers keep the process busy),
 * -ENOMEM, -EPROTO (the answer failed the checks: `why`), or the -errno that the process returned
 * (-EINVAL: its library has no extents). why may be NULL. */
int gp_extents_take(pid_t pid, struct gp_extents *out, uint64_t deadline_ns, char *why, size_t why_bytes);
void gp_extents_free(struct gp_extents *extents);

/* Only reads and checks a file of extents; the descriptor stays the caller's. */
int gp_extents_read(struct gp_extents *out, int fd, char *why, size_t why_bytes);

/* ==== reservations ================================================================================================ */
/* Reservations of GPU memory among the waiting commands (`gpuprof wait`) that share a folder. A file
 * has a record for each; the waiting command locks a byte of the file while its record counts, so
 * the kernel ends the reservation of a command that is killed. A record of a killed command whose
 * program has already started counts until that program ends. In a folder that users share each of
 * them has a file of its own, which the others can only read. docs/forecast.md has the rules.
 * Caller: cmd/wait.c, on one thread. */

#define GP_RESERVE_PATH 256
#define GP_RESERVE_FILE (GP_RESERVE_PATH + 32)

struct gp_reserve {
    int fd;   /* the file of the own records */
    int lock; /* the file with the lock of decisions: the same one, or that of all users of the folder */
    int slot; /* of the own record; -1 none */
    bool held;
    bool is_shared; /* the folder is named by the caller */
    uint64_t opened_ns;
    sigset_t before;                                     /* the signal mask, while the lock is held */
    char folder[GP_RESERVE_PATH], path[GP_RESERVE_FILE]; /* path: of `lock` */
};

/* Opens the files in `folder`, or in the caller's own folder (NULL), and creates them. 0, or -errno
 * with a file or folder in path: -EPERM if it belongs to another user. */
int gp_reserve_open(struct gp_reserve *reserve, const char *folder);
/* Ends the own reservation. */
void gp_reserve_close(struct gp_reserve *reserve);

/* Takes the lock that decisions need, if it is free. Release it soon: meanwhile a terminal cannot
 * stop this command. Files that were removed meanwhile are made again, with the own record. */
bool gp_reserve_lock(struct gp_reserve *reserve);
void gp_reserve_unlock(struct gp_reserve *reserve);

/* Whether the file is so new that other commands may not have brought their reservations from the
 * one that was removed. True for at most a second after it was opened. */
bool gp_reserve_is_new(const struct gp_reserve *reserve);

/* The functions below need the lock. */

/* Bytes that the reservations of others keep on the device, and have not allocated yet. */
int64_t gp_reserve_outstanding(struct gp_reserve *reserve, const char *uuid);
/* Reserves `bytes` for hold_ns.  0, -ENOSPC (too many reservations), -errno. */
int gp_reserve_take(struct gp_reserve *reserve, const char *uuid, int64_t bytes, uint64_t hold_ns);
/* The program runs and has `bytes` on the device; the most that it had counts.  False: the
 * reservation has ended, because it has all bytes or its time has passed. */
bool gp_reserve_update(struct gp_reserve *reserve, pid_t pid, int64_t bytes);
void gp_reserve_end(struct gp_reserve *reserve);

/* Whether pid is `ancestor` or one of its descendants. */
bool gp_reserve_descends(pid_t pid, pid_t ancestor);

#endif
