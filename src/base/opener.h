/* SPDX-License-Identifier: MIT
 *
 * opener.h: dlopen and dlsym while the library starts, by a thread of ours and with a deadline.
 * inject/ starts and stops it, source/ and site/ load through it.
 *
 * The start runs inside the driver's cuInit, which holds the driver's own lock. A second thread may
 * be inside dlopen, and so hold the loader's lock, while a constructor of that library calls cuInit
 * and waits for the driver's. If the start then waited for the loader's lock too, neither thread
 * would ever go on. So the calling thread never takes that lock itself: it waits for the thread that
 * does, and after a deadline the start gives up, cuInit returns, and the other thread goes on.
 *
 * Not covered: dlopen and dlsym inside cuptiSubscribe, which CUPTI has to run on the thread that is
 * in cuInit. The driver itself calls dlopen(NULL) in cuInit under its lock (seen in 525 to 555), so
 * a program with such a constructor can hang without gpuprof too.
 */
#ifndef GP_BASE_OPENER_H
#define GP_BASE_OPENER_H

#include <stdbool.h>

/* False: another thread holds the loader's lock for too long. Then nothing that needs the lock may
 * be called on this thread before cuInit has returned. */
bool gp_opener_start(void);
void gp_opener_stop(void);

/* The loader's message about the last gp_opener_open that failed; "" unknown. */
const char *gp_opener_error(void);
/* As dlopen and dlsym. NULL too if the loader's lock cannot be had; from then on
 * always. Outside start and stop they are plain calls. */
void *gp_opener_open(const char *path, int flags);
void *gp_opener_symbol(void *handle, const char *name);

/* Can the loader's lock be had now? To be asked before a call that takes it and cannot be moved. */
bool gp_opener_is_free(void);
/* Since the last start some call could not have it. */
bool gp_opener_is_stuck(void);

#endif
