/* SPDX-License-Identifier: MIT
 *
 * reserve.h: reservations of GPU memory among the waiting commands (`gpuprof wait`) that share a
 * folder. A file has a record for each; the waiting command locks a byte of the file while its
 * record counts, so the kernel ends the reservation of a command that is killed. A record of a
 * killed command whose program has already started counts until that program ends. In a folder
 * that users share each of them has a file of its own, which the others can only read.
 * docs/forecast.md has the rules. Caller: cmd/wait.c, on one thread.
 */
#ifndef GP_COLLECT_RESERVE_H
#define GP_COLLECT_RESERVE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

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
