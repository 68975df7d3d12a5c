/* SPDX-License-Identifier: MIT
 *
 * procopen.h: opens files of /proc/PID in a process of its own, because there the kernel may block for
 * as long as the examined process likes. A call that takes too long is given up: the process that
 * makes it is killed, which the kernel allows in these waits, and the next call starts another one.
 * One thread uses it at a time.
 */
#ifndef GP_FIND_PROCOPEN_H
#define GP_FIND_PROCOPEN_H

#include <stdint.h>

#define GP_PROCOPEN_PATIENCE_NS 500000000ull /* an open takes microseconds; the rest is for a machine short of CPUs */

struct gp_procopen;

struct gp_procopen *gp_procopen_new(void); /* NULL: out of memory; the process starts with the first call */
void gp_procopen_free(struct gp_procopen *procopen);

/* openat() of a short name (at most 63 bytes). A descriptor, which is closed at exec, or -errno;
 * -ETIMEDOUT: given up. */
int gp_procopen_open(struct gp_procopen *procopen, int folder, const char *name, int flags);

#endif
