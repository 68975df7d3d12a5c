/* SPDX-License-Identifier: MIT
 *
 * procfs.h: what the kernel says about a process. Identity (pid, start time, owner, container)
 * comes only from here, never from data that the process wrote. An open directory /proc/PID is
 * bound to one process: when that exits, every read through it fails, even if the pid has been
 * reused.
 */
#ifndef GP_COLLECT_PROCFS_H
#define GP_COLLECT_PROCFS_H

#include <read/collect/collect.h>

struct gp_proc {
    int dir; /* O_PATH descriptor of /proc/PID */
    pid_t pid;
    pid_t ns_pid; /* the pid that the process itself sees (innermost pid namespace) */
    pid_t ppid;
    uid_t uid; /* real */
    uint64_t start_time;
    bool zombie;
    char comm[32];
};

/* 0, -ESRCH (no such process), -errno.  Close with gp_proc_close. */
int gp_proc_open(struct gp_proc *proc, pid_t pid);
void gp_proc_close(struct gp_proc *proc);
/* Fills in start_time, ppid and zombie from the open directory; also works for a process whose main
 * thread has ended. 0, -errno. */
int gp_proc_stat(int dir, struct gp_proc *proc);
/* Whether the process that was opened still exists (a zombie does not count). */
bool gp_proc_alive(const struct gp_proc *proc);

/* Fills in pid, start_time, uid, ppid, comm, cmdline, user, container. */
void gp_proc_describe(const struct gp_proc *proc, struct gp_process *process);

/* The user's name, or the number if the name is unknown. */
void gp_proc_user(uid_t uid, char *user, size_t user_bytes);

/* The first 12 digits of the container ID in the text of /proc/PID/cgroup; "" none. */
void gp_proc_container(const char *cgroup, char *container, size_t container_bytes);

/* Reads a file below the open directory; the text is always NUL-terminated. Bytes read or
 * -errno. */
ssize_t gp_proc_read(int dir, const char *name, char *text, size_t text_bytes);

/* Whether the process uses the memory of its parent: a child of vfork that has not executed a program
 * yet, or one of clone with CLONE_VM. Doubt counts as yes. *parent: its pid, else undefined. */
bool gp_proc_is_borrower(pid_t pid, pid_t *parent);

/* Calls each(pid, context) for every pid in /proc until it returns non-zero, and returns that
 * value. 0 or -errno. */
int gp_proc_each(int (*each)(pid_t pid, void *context), void *context);

/* Whether this command runs in the initial pid namespace, whose pids NVML reports. */
bool gp_proc_host_pids(void);

#endif
