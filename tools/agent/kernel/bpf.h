/* SPDX-License-Identifier: MIT
 *
 * bpf.h: the kernel side of gpuprof as an object that the agent opens, attaches to copies of the
 * library, and closes. See bpf/gpuprof.bpf.c for the programs and bpf/README.md for the maps.
 *
 * Only pins outlive the process that opened it: the kernel removes probes and resets semaphores when
 * the file descriptors close, so a kill -9 leaves no file armed.
 */
#ifndef GP_AGENT_KERNEL_BPF_H
#define GP_AGENT_KERNEL_BPF_H

#include <elf.h>
#include <gpuprof/maps.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ==== the kernel side ============================================================================================= */

struct gp_bpf;

struct gp_bpf_options {
    uint32_t processes, containers, devices, ring_bytes; /* 0: those of maps.h (tests use tiny ones) */
    uint32_t quiet_events_per_s, quiet_burst;            /* 0: GP_MAPS_QUIET_*; see bpf/README.md "Fairness" */
    bool by_perf;                                        /* perf_event_open even where uprobe_multi works */
    bool verbose;                                        /* log libbpf's and the verifier's messages on stderr */
};

/* Loads the programs and attaches those of exit and exec. 0 or -errno, with a sentence in `why`
 * that says what is missing: -EPERM capabilities, -ENOTSUP no BTF or a kernel that is too old. */
int gp_bpf_open(struct gp_bpf **out, const struct gp_bpf_options *options, char *why, size_t why_bytes);
/* Detaches all probes that were attached through it and frees it. Pins stay and show the last
 * state, with a heartbeat that gets old; gp_bpf_unpin removes them. */
void gp_bpf_close(struct gp_bpf *bpf);

/* Mounts a BPF file system at /sys/fs/bpf if the pins lie below it and only sysfs is there.  The mount
 * stays, since it may hold the pins of other programs when the caller ends.  Its mode lets other users
 * pass to tables that they may read, but not list it.  1 mounted, 0 nothing to do; -ENOENT with a
 * sentence that says what to do. */
#define GP_BPF_MOUNT_MODE "0711"
int gp_bpf_mount(const char *pins, char *why, size_t why_bytes);
/* Creates the directory of pins and locks it until the descriptor is closed, also by a kill -9: one
 * agent per directory. >= 0, or -errno with a sentence: -EEXIST another agent has it (the sentence
 * names its pid), or another user owns it; -ENOENT no bpffs. */
int gp_bpf_pins_lock(const char *pins, char *why, size_t why_bytes);
/* Whether the lock belongs to the directory that has this name now: another process may have
 * removed the locked one, and another agent created it again. */
bool gp_bpf_pins_held(const char *pins, int lock);
/* Pins the maps in a directory on a bpffs, which it creates. Existing pins of ours are replaced,
 * each in one step; the caller must know that their agent is dead. group: may read the process
 * table; (gid_t)-1: root's group. 0, or -errno with a sentence: -ENOENT no bpffs, -EEXIST another
 * object has one of the names, -EPERM the group. */
int gp_bpf_pin(struct gp_bpf *bpf, const char *pins, gid_t group, char *why, size_t why_bytes);
/* Removes our pins from a directory, then the directory; foreign entries stay. 0 or -errno. */
int gp_bpf_unpin(const char *pins);
/* Counts the directory's entries that are not ours and copies the name of one (hostile text).
 * -errno. */
int gp_bpf_pins_foreign(const char *pins, char *name, size_t name_bytes);
/* Reads the pinned meta into *out: 0; -ENOENT: no pins; -EACCES; -EPROTO: another version. */
int gp_bpf_pinned_meta(const char *pins, struct gp_map_meta *out);

/* ---- probes ---------------------------------------------------------------------------------------------------- */

struct gp_bpf_probe {          /* gpuprof:batch in one file */
    uint64_t offset;           /* in the file */
    uint64_t semaphore_offset; /* in the file; 0: none */
    uint64_t cookie;           /* where its two arguments are, in the loader's own code */
};

/* Reads the probe's note from an ELF file. Bounded, trusts no number in it. 0; -ENOENT: no such
 * probe; -ENOEXEC: not an ELF file of this machine, or damaged; -EFBIG; -errno. */
int gp_bpf_probe_find(int fd, struct gp_bpf_probe *out);
/* Arms the probe in this file (the inode, under any path) for all processes that map it now or
 * later. Returns a file descriptor that holds the probe: close() disarms. -errno with a sentence in
 * `why`. */
int gp_bpf_attach(struct gp_bpf *bpf, int fd, const struct gp_bpf_probe *probe, char *why, size_t why_bytes);
bool gp_bpf_is_multi(const struct gp_bpf *bpf); /* uses uprobe_multi (CAP_BPF + CAP_PERFMON suffice) */

/* ---- maps ------------------------------------------------------------------------------------------------------ */

/* File descriptor of a map by its name in maps.h ("events", "process_device", ...); the loader
 * keeps it. -ENOENT. */
int gp_bpf_map(const struct gp_bpf *bpf, const char *name);
/* meta, mapped for writing: the agent stores agent_pid and heartbeat_ns with relaxed atomics; the
 * programs write all other fields. */
struct gp_map_meta *gp_bpf_meta(struct gp_bpf *bpf);

/* The fallback for an exit that the tracepoint missed: removes the process that had this tgid and
 * start_boottime from every sum. start_ns 0: any process with that tgid. 0; -ENOENT: it is in no
 * sum; -EAGAIN: a batch of it is being processed. */
int gp_bpf_gone(struct gp_bpf *bpf, uint32_t tgid, uint64_t start_ns);

/* ---- walks (mapwalk.c) ------------------------------------------------------------------------------------------- */

#define GP_BPF_PART 256u /* entries per call: 30 KB of the stack */

struct gp_bpf_walk { /* starts as {0} */
    uint32_t at;
    bool is_begun;
};
struct gp_bpf_one {
    uint64_t start_ns;
    uint32_t tgid;
};

/* Each fills out[GP_BPF_PART] from the next part of a table: 1: there is more; 0: these were the
 * last; -errno. Entries that were in the table before the walk and stay in it are returned. */
int gp_bpf_processes(const struct gp_bpf *bpf, struct gp_bpf_walk *walk, struct gp_bpf_one *out, uint32_t *count);
/* The first lists containers without an entry in process_device. The second lists, once per row,
 * the cgroups of sums that count no process: a sum may exist without a row in "container" if that
 * table was full. */
int gp_bpf_idle_containers(const struct gp_bpf *bpf, struct gp_bpf_walk *walk, uint64_t *ids, uint32_t *count);
int gp_bpf_idle_sums(const struct gp_bpf *bpf, struct gp_bpf_walk *walk, uint64_t *ids, uint32_t *count);

/* Frees the rows, of these distinct cgroups, that count no process, by one walk for all; sorts ids.
 * The cgroups must have been removed for at least as long as a batch may take. Returns the number
 * of rows freed or -errno; forgotten (or NULL): cgroups that have no row left. */
int gp_bpf_forget_containers(struct gp_bpf *bpf, uint64_t *ids, uint32_t count, uint32_t *forgotten);

/* ---- costs ----------------------------------------------------------------------------------------------------- */

/* Batches that the kernel did not pass to the program (recursion; reported since 5.12), and the
 * instructions that the verifier processed for the largest program (0: not reported). For
 * tests. */
struct gp_bpf_costs {
    uint64_t missed;
    uint32_t verified, verified_limit;
};
int gp_bpf_costs(const struct gp_bpf *bpf, struct gp_bpf_costs *out);

/* ==== arguments of a probe ======================================================================================== */
/* Parses the arguments of a USDT note, for the loader and its tests. */

/* Libraries of another processor have no probe that this kernel could attach. */
#if defined(__aarch64__)
#define GP_BPF_MACHINE EM_AARCH64
#else
#define GP_BPF_MACHINE EM_X86_64
#endif

/* The same in the notes of EM_X86_64 or EM_AARCH64. */
int gp_bpf_arguments_of(unsigned machine, const char *text, uint64_t *cookie);

#endif
