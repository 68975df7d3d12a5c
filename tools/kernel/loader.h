/* SPDX-License-Identifier: MIT
 *
 * loader.h: the kernel side of gpuprof as a thing that one opens, attaches to copies of the library, and closes.  What
 * the programs do: bpf/gpuprof.bpf.c; what the maps mean: bpf/README.md.
 *
 * Only pins outlive the process that opened it: probes and semaphores are the kernel's to take back when the file
 * descriptors close, so a kill -9 leaves nothing armed.
 */
#ifndef GP_KERNEL_LOADER_H
#define GP_KERNEL_LOADER_H

#include <gpuprof/maps.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct gp_bpf;

struct gp_bpf_options {
    uint32_t processes, containers, devices, ring_bytes; /* 0: those of maps.h (tests take tiny ones) */
    uint32_t quiet_events_per_s, quiet_burst;            /* 0: GP_MAPS_QUIET_*; see bpf/README.md "Fairness" */
    bool by_perf;                                        /* perf_event_open even where uprobe_multi would do */
    bool verbose;                                        /* libbpf's and the verifier's words on stderr */
};

/* Loads and attaches what belongs to no library (exit, exec).  0 or -errno, with a sentence in `why` that says what is
 * missing: -EPERM capabilities, -ENOTSUP no BTF or a kernel that is too old. */
int gp_bpf_open(struct gp_bpf **out, const struct gp_bpf_options *options, char *why, size_t why_bytes);
/* Detaches all that was attached through it and frees it.  Pins stay: they show the last state, with a heartbeat that
 * grows old.  gp_bpf_unpin takes them away. */
void gp_bpf_close(struct gp_bpf *bpf);

/* Mounts a BPF file system at /sys/fs/bpf where pins lie below it and only sysfs is there.  The mount stays: pins of
 * others may lie there by the time the caller ends.  Its mode lets other users through to tables that they may read, and
 * not list it.  1 mounted, 0 nothing to do; -ENOENT with a sentence that says what to do. */
#define GP_BPF_MOUNT_MODE "0711"
int gp_bpf_mount(const char *pins, char *why, size_t why_bytes);
/* One agent a directory of pins: makes it, and locks it until the descriptor is closed, also by a kill -9.  >= 0, or
 * -errno with a sentence: -EEXIST another agent has it (its pid is said), or another user, -ENOENT no bpffs. */
int gp_bpf_pins_lock(const char *pins, char *why, size_t why_bytes);
/* Whether the lock is that of the directory with this name: somebody may have removed the one that was locked, and
 * another agent made it anew. */
bool gp_bpf_pins_held(const char *pins, int lock);
/* Pins the maps in a directory on a bpffs, which is made.  Pins of ours that are there already are replaced, each in
 * one step; whether their maker is dead is the caller's to know.  group: may read the table of processes; (gid_t)-1:
 * root's. 0, or -errno with a sentence: -ENOENT no bpffs, -EEXIST something else has one of the names, -EPERM the
 * group. */
int gp_bpf_pin(struct gp_bpf *bpf, const char *pins, gid_t group, char *why, size_t why_bytes);
/* Takes away the pins of ours in a directory, and the directory; what is not ours stays.  0 or -errno. */
int gp_bpf_unpin(const char *pins);
/* How many names in the directory are not ours, and one of them (hostile text).  -errno. */
int gp_bpf_pins_foreign(const char *pins, char *name, size_t name_bytes);
/* Whose pins they are: 0 with the mapped copy of meta in *out, -ENOENT none, -EACCES, -EPROTO another version. */
int gp_bpf_pinned_meta(const char *pins, struct gp_map_meta *out);

/* ---- probes ---------------------------------------------------------------------------------------------------- */

struct gp_bpf_probe {          /* gpuprof:batch in one file */
    uint64_t offset;           /* in the file */
    uint64_t semaphore_offset; /* in the file; 0: none */
    uint64_t cookie;           /* where its two arguments are; the loader's own code */
};

/* Reads the note of the probe out of an ELF file.  Bounded, trusts no number in it; 0, -ENOENT no such probe, -ENOEXEC
 * no ELF of this machine or broken, -EFBIG, -errno. */
int gp_bpf_probe_find(int fd, struct gp_bpf_probe *out);
/* Arms the probe in this file (the inode, whatever its path), in all processes that map it now or later.  An open file
 * descriptor >= 0 that holds it: close() disarms.  -errno with a sentence in `why`. */
int gp_bpf_attach(struct gp_bpf *bpf, int fd, const struct gp_bpf_probe *probe, char *why, size_t why_bytes);
bool gp_bpf_is_multi(const struct gp_bpf *bpf); /* through uprobe_multi (CAP_BPF + CAP_PERFMON suffice) */

/* ---- what is in there ------------------------------------------------------------------------------------------ */

/* File descriptor of a map by its name in maps.h ("events", "process_device", ...); it stays the loader's.  -ENOENT. */
int gp_bpf_map(const struct gp_bpf *bpf, const char *name);
/* meta, mapped for writing: the agent stores agent_pid and heartbeat_ns with relaxed atomics; all other fields are the
 * programs'. */
struct gp_map_meta *gp_bpf_meta(struct gp_bpf *bpf);

/* The second line behind the exit tracepoint: the process that had this tgid and start_boottime is dead; its bytes
 * leave every sum.  start_ns 0: whoever has that tgid.  0, -ENOENT nothing of it is counted, -EAGAIN at work. */
int gp_bpf_gone(struct gp_bpf *bpf, uint32_t tgid, uint64_t start_ns);

/* ---- walks (mapwalk.c) ------------------------------------------------------------------------------------------- */

#define GP_BPF_PART 256u /* entries that one call looks at: 30 KB of the stack */

struct gp_bpf_walk { /* begins as {0} */
    uint32_t at;
    bool is_begun;
};
struct gp_bpf_one {
    uint64_t start_ns;
    uint32_t tgid;
};

/* Each fills out[GP_BPF_PART] from the next part of a table: 1 there is more, 0 these were the last, -errno.  What was
 * in the table before the walk began, and stays, is seen. */
int gp_bpf_processes(const struct gp_bpf *bpf, struct gp_bpf_walk *walk, struct gp_bpf_one *out, uint32_t *count);
/* Containers without an entry in process_device; and, once for each row, the cgroups of sums that count no process: a
 * sum may stand without a row in "container" if that was full. */
int gp_bpf_idle_containers(const struct gp_bpf *bpf, struct gp_bpf_walk *walk, uint64_t *ids, uint32_t *count);
int gp_bpf_idle_sums(const struct gp_bpf *bpf, struct gp_bpf_walk *walk, uint64_t *ids, uint32_t *count);

/* These cgroups (different ones; they are sorted) have been removed for as long as a batch may take: their rows that
 * count no process make room, by one walk for all.  Number of rows taken away or -errno; forgotten (or NULL): cgroups
 * of which nothing is left. */
int gp_bpf_forget_containers(struct gp_bpf *bpf, uint64_t *ids, uint32_t count, uint32_t *forgotten);
int gp_bpf_forget_container(struct gp_bpf *bpf, uint64_t cgroup_id);

/* ---- costs ----------------------------------------------------------------------------------------------------- */

/* Batches that the kernel did not give to the program (recursion, 5.12 and newer say so), and the instructions that the
 * verifier looked at, of the heaviest program (0: the kernel does not say).  For doctor, tests and metrics. */
struct gp_bpf_costs {
    uint64_t missed;
    uint32_t verified, verified_limit;
};
int gp_bpf_costs(const struct gp_bpf *bpf, struct gp_bpf_costs *out);

#endif
