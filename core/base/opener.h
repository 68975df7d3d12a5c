/* SPDX-License-Identifier: MIT
 *
 * opener.h: dlopen and dlsym while the library starts, by a thread of ours and with a deadline.
 * inject/ starts and stops it, source/ and stack/ load through it.
 *
 * The start runs inside the driver's cuInit, which holds the driver's own lock. A second thread may
 * be inside dlopen, and so hold the loader's lock, while a constructor of that library calls cuInit
 * and waits for the driver's. If the start then waited for the loader's lock too, neither thread
 * would ever continue. So the calling thread never takes that lock itself: it waits for the thread that
 * does. After a deadline the start gives up, cuInit returns, and the other thread continues.
 *
 * Not covered: dlopen and dlsym inside cuptiSubscribe, which CUPTI has to run on the thread that is
 * in cuInit. The driver itself calls dlopen(NULL) in cuInit under its lock (seen in 525 to 555), so
 * a program with such a constructor can hang without gpuprof too.
 */
#ifndef GP_BASE_OPENER_H
#define GP_BASE_OPENER_H

#include <stdbool.h>

/* inside: the calling thread is in a constructor that the loader runs. It then holds the lock, which is
 * recursive, and makes the calls itself: another thread could not. False: another thread holds the
 * loader's lock for too long. Then nothing that needs the lock may be called on this thread before cuInit
 * has returned. */
bool gp_opener_start(bool inside);
void gp_opener_stop(void);

/* The loader's message about the last gp_opener_open that failed; "": unknown. */
const char *gp_opener_error(void);
/* Like dlopen and dlsym. Once the loader's lock could not be taken in time, they always return NULL.
 * Outside of start and stop they are plain calls. */
void *gp_opener_open(const char *path, int flags);
void *gp_opener_symbol(void *handle, const char *name);

/* Returns whether the loader's lock is free now. Check this before a call that takes the lock and has
 * to run on this thread. */
bool gp_opener_is_free(void);
/* Returns whether a call since the last start could not get the lock. */
bool gp_opener_is_stuck(void);

#endif
