/* SPDX-License-Identifier: MIT
 *
 * procfs.h: what /proc tells about processes.
 */
#ifndef GP_READ_COLLECT_PROCFS_H
#define GP_READ_COLLECT_PROCFS_H

#include <base/vma.h>
#include <read/collect/collect.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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

/* What another process maps, and the files of it. */

/* A gp_modules_open: the file itself; without the right to that the file with its path in the
 * process's root or in ours, if it is the same one. A descriptor or -errno. */
int gp_proc_mapped_open(const char *proc, const struct gp_vma *file);

/* Calls `each` for every mapping of the process; -errno when its maps do not open, else as
 * gp_vma_walk. */
int gp_proc_mapped_each(pid_t pid, gp_vma_each *each, void *context);

#endif
