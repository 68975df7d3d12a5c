/* SPDX-License-Identifier: MIT
 *
 * peer.h: opens, checks and copies the session of another process, the peer. The peer may be
 * hostile, and may change any byte at any time: bytes are fetched once (pread into private memory),
 * checked there, and used from there. Called by collect.c, `run --summary`, `trace`, and the fuzz
 * target.
 */
#ifndef GP_READ_COLLECT_PEER_H
#define GP_READ_COLLECT_PEER_H

#include <base/vma.h>
#include <read/collect/collect.h>

/* ==== what the kernel says ======================================================================================== */
/* What the kernel says about a process. Identity (pid, start time, owner, container) comes only from
 * here, never from data that the process wrote. An open directory /proc/PID is bound to one process:
 * when that exits, every read through it fails, even if the pid has been reused.
 *
 * A process whose main thread has ended, and that has others, looks like a zombie in /proc/PID:
 * descriptors, memory and files are only in the directories of its other threads. */

struct gp_proc {
    int dir; /* O_PATH descriptor of /proc/PID; if its main thread has ended, of another thread's /proc/PID/task/TID */
    int process; /* O_PATH descriptor of /proc/PID: whether it lives, and its threads */
    pid_t pid;
    pid_t ns_pid; /* the pid that the process itself sees (innermost pid namespace) */
    pid_t ppid;
    uid_t uid; /* real */
    uint64_t start_time;
    bool zombie; /* the main thread has ended */
    char comm[32];
};

/* 0, -ESRCH (no such process), -errno.  Close with gp_proc_close. */
int gp_proc_open(struct gp_proc *proc, pid_t pid);
void gp_proc_close(struct gp_proc *proc);
/* Fills in start_time, ppid and zombie from the open directory; also works for a process whose main
 * thread has ended. 0, -errno. */
int gp_proc_stat(int dir, struct gp_proc *proc);
/* Whether the process that was opened still has a thread. */
bool gp_proc_alive(const struct gp_proc *proc);

/* The thread in whose directory the process's memory and files are: the main thread, or another one if
 * that has ended; it has the same things in /proc/TID. */
pid_t gp_proc_thread(pid_t pid);
/* That directory, "/proc/PID". Returns `folder`. */
#define GP_PROC_FOLDER 32
const char *gp_proc_folder(pid_t pid, char folder[GP_PROC_FOLDER]);

/* Fills in pid, start_time, uid, ppid, comm, ray_job, cmdline, user, container. */
void gp_proc_describe(const struct gp_proc *proc, struct gp_process *process);

/* The user's name, or the number if the name is unknown. */
void gp_proc_user(uid_t uid, char *user, size_t user_bytes);

/* The first 12 digits of the container ID in the text of /proc/PID/cgroup; "" none. */
void gp_proc_container(const char *cgroup, char *container, size_t container_bytes);

/* Reads a file below the open directory; the text is always NUL-terminated. Bytes read or
 * -errno. */
ssize_t gp_proc_read(int dir, const char *name, char *text, size_t text_bytes);

/* The same, of a length that the process determines: at most `most` bytes in memory from malloc, and a NUL. NULL: it
 * cannot be read. */
#define GP_ENVIRON_BYTES (2u << 20)
char *gp_proc_whole(int dir, const char *name, size_t most, size_t *bytes);
/* The value of a variable in what gp_proc_whole read of "environ"; NULL: not set, or nothing was read. */
const char *gp_proc_variable(const char *text, size_t bytes, const char *name);

/* Whether the process uses the memory of its parent: a child of vfork that has not executed a program
 * yet, or one of clone with CLONE_VM. Doubt counts as yes. *parent: its pid, else undefined. */
bool gp_proc_is_borrower(pid_t pid, pid_t *parent);

/* Calls each(pid, context) for every pid in /proc until it returns non-zero, and returns that
 * value. 0 or -errno. */
int gp_proc_each(int (*each)(pid_t pid, void *context), void *context);

/* Whether this command runs in the initial pid namespace, whose pids NVML reports. */
bool gp_proc_host_pids(void);

/* ==== what it maps ================================================================================================ */
/* What another process maps, and the files of it. */

/* A gp_modules_open: the file itself; without the right to that the file with its path in the
 * process's root or in ours, if it is the same one. A descriptor or -errno. */
int gp_proc_mapped_open(const char *proc, const struct gp_vma *file);

/* Calls `each` for every mapping of the process; -errno when its maps do not open, else as
 * gp_vma_walk. */
int gp_proc_mapped_each(pid_t pid, gp_vma_each *each, void *context);

/* ==== its session ================================================================================================= */

#define GP_PROBLEM_BYTES 160

struct gp_peer {
    int fd; /* -1 none */
    uint8_t id[16];
    uint32_t pid; /* as the process sees itself */
    uint64_t start_ns;
    uint64_t total_bytes;
    /* Checked against total_bytes and against the sizes of this build. */
    uint64_t devices_offset, scopes_offset, failures_offset, mailbox_offset, ring_offset;
    uint64_t oom_offset;           /* 0: the library writes no such report */
    uint64_t oom_framework_offset; /* 0: nor a part about a framework */
    uint64_t before_offset;        /* 0: the library cannot be attached late */
    uint64_t blocks_offset;        /* 0: the library cannot list blocks from before */
    uint64_t doors_offset;         /* 0: the library knows no pools of libraries */
    uint64_t owners_offset;        /* 0: the library knows no owners */
    uint64_t cupti_offset;         /* 0: the library does not tell which copies it tried */
    uint32_t device_count, scope_count, failure_count, slot_count, chunk_count;
};

/* Finds the session among the descriptors of an open process and checks its seals and layout. 0;
 * -ENOENT: it has none; -EACCES: access denied; -EPROTO: it has one that failed the checks
 * (`problem`); -errno. */
int gp_peer_open(struct gp_peer *session, const struct gp_proc *proc, char problem[GP_PROBLEM_BYTES]);

/* What one look at many processes has spent on the tables of descriptors of each user. Starts as zeros. */
#define GP_PEER_LOOK_USERS 64u
struct gp_peer_look {
    struct {
        uid_t uid;
        uint64_t spent_ns; /* of processor time */
    } users[GP_PEER_LOOK_USERS];
    unsigned user_count;
    uint64_t spent_ns;
    int unsearched; /* processes not all of whose descriptors were looked at, and in which no session was found */
};

/* gp_peer_open for a look at many processes, any of which may be hostile: of a table of descriptors that
 * took its user's time it searches only the numbers that the library uses, and the next look goes
 * on where this one ended. Any thread. */
int gp_peer_find(struct gp_peer *session, const struct gp_proc *proc, struct gp_peer_look *look,
                 char problem[GP_PROBLEM_BYTES]);

/* Opens a memfd that another process has open for reading and writing, for both; proc: its directory
 * in /proc. -ENOENT: the descriptor is no memfd, or the process may not write to it, and it was not
 * opened; -errno. */
int gp_peer_memory(int proc, const char *number);

/* gp_peer_open by pid. -ESRCH: the process is not profiled or does not exist; -EACCES: access
 * denied; else as gp_peer_open. */
int gp_peer_open_pid(struct gp_peer *session, pid_t pid, char problem[GP_PROBLEM_BYTES]);

/* Takes over a descriptor of a memfd (closed by gp_peer_close) and checks seals, size and layout.
 * 0; -ENOENT: its header is not written yet; -EPROTO. The descriptor is closed on failure. */
int gp_peer_adopt(struct gp_peer *session, int fd, char problem[GP_PROBLEM_BYTES]);

/* gp_peer_adopt without the checks of seals and file system: for a caller that owns the file
 * (tests, fuzzing). */
int gp_peer_load(struct gp_peer *session, int fd, char problem[GP_PROBLEM_BYTES]);

/* Only checks the layout: a private copy of the header against the size of the file. 0, -ENOENT,
 * -EPROTO. */
int gp_peer_check(struct gp_peer *session, const struct gp_wire_header *header, uint64_t file_bytes,
                  char problem[GP_PROBLEM_BYTES]);

/* Copies everything except mailbox and ring into *process, whose identity is filled in already.
 * Sets the state to UNKNOWN, STALE (copied; the caller knows whether the numbers are exact) or
 * DAMAGED with `problem`. 0 or -ENOMEM. */
int gp_peer_read(const struct gp_peer *session, struct gp_process *process);

/* Reads [offset, offset + bytes) of the session into *to, without mapping it. 0, -EPROTO,
 * -errno. */
int gp_peer_fetch(const struct gp_peer *session, void *to, size_t bytes, uint64_t offset);

/* Frees what gp_peer_read allocated. */
void gp_peer_drop(struct gp_process *process);

void gp_peer_close(struct gp_peer *session);

/* ==== its mailbox ================================================================================================= */
/* The viewer's side of the mailbox; wire.h has the protocol. The mailbox is the only part of a
 * session that is mapped and written. The peer may be hostile: it can make a request fail or time
 * out, and nothing else. */

struct gp_mailbox {
    void *map; /* whole pages around the mailbox; NULL none */
    size_t map_bytes;
    struct gp_wire_mailbox *shared;
    int slot; /* claimed; -1 none */
    uint64_t request_id;
    uint32_t command;
    bool keeps; /* set by the caller: keep the answer's descriptor valid until gp_mailbox_done */
};

/* Maps the mailbox of a checked session. 0, -ETIMEDOUT (no thread serves it), -EPROTO. */
int gp_mailbox_open(struct gp_mailbox *box, const struct gp_peer *session);
/* Posts command, what, device and name of *request. 0, -EAGAIN (every slot is taken: try again
 * later). */
int gp_mailbox_post(struct gp_mailbox *box, const struct gp_wire_slot *request);
/* Waits for the answer until `deadline` (CLOCK_MONOTONIC ns) and copies it, checked, to *answer.
 * The process's result (0 or -errno), -ETIMEDOUT (the request was withdrawn), -EPROTO. */
int gp_mailbox_wait(struct gp_mailbox *box, struct gp_wire_slot *answer, uint64_t deadline);
/* Releases the descriptor of an answer (struct gp_wire_slot.fd), and wakes the process to close
 * it. */
void gp_mailbox_done(struct gp_mailbox *box);
void gp_mailbox_close(struct gp_mailbox *box);

/* Sends one request and waits for its answer, also waiting for a free slot. */
int gp_mailbox_call(const struct gp_peer *session, struct gp_wire_slot *slot, uint64_t deadline);

/* ==== a reader of its ring ======================================================================================== */
/* Announces a reader of a process's ring. Without one, the process writes no events for the blocks
 * of frameworks. Called by `record`, `trace` and `snapshot --trace`, with the reader of the ring
 * already open or about to be. */

struct gp_listen {
    const struct gp_peer *session;
    uint64_t again_ns; /* CLOCK_MONOTONIC */
    bool heard;        /* the process has answered */
};

/* From its return on, every block is an event, until the session's descriptor is closed or this
 * process ends. Waits for the answer for at most a second. A process that does not answer (stopped) is
 * asked again by gp_listen_again, which callers run in their loop. */
void gp_listen(struct gp_listen *listen, const struct gp_peer *session);
void gp_listen_again(struct gp_listen *listen);

/* ==== sessions that outlive it ==================================================================================== */
/* Holds the sessions of a process and of its descendants, so that they can be read after the process
 * has exited. Called by `run --summary`, `record` and `trace -- CMD`. */

/* The most sessions held: each takes a descriptor and some MiB of the dead process. */
#define GP_WATCH_MOST 64

struct gp_watched {
    struct gp_peer session;
    struct gp_process process; /* its identity; gp_watch_read fills in the numbers */
    uint64_t exec_ns;          /* it was first seen to run this program then, and another one before; 0: it was not */
    unsigned unanswered;       /* requests in a row; gp_watch_ask gives up after some */
    char *recording;           /* its file, where a command has found it; NULL */
};

struct gp_watch_seen { /* a process, with a session or without, and its program */
    pid_t pid;
    uint64_t start_time, device, inode, exec_ns;
};

struct gp_watch {
    struct gp_watch_seen seen[GP_WATCH_MOST * 4]; /* the last ones */
    unsigned seen_count;
    int count;
    int left_out; /* sessions found after GP_WATCH_MOST were held */
    struct gp_watched *watched[GP_WATCH_MOST];
};

/* Searches the process and, if deep, its descendants once; holds every session that is new. Returns
 * the number of new ones. */
int gp_watch_look(struct gp_watch *watch, pid_t root, bool deep);

/* Asks every process that still answers to publish its numbers, and waits for each as long as that. A
 * process that ends without its exit handlers publishes nothing more. */
void gp_watch_ask(struct gp_watch *watch, uint64_t each_ns);

/* Reads the current numbers (the final ones once the process has ended). 0 or -ENOMEM. */
int gp_watch_read(struct gp_watched *watched);

void gp_watch_free(struct gp_watch *watch);

#endif
