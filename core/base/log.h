/* SPDX-License-Identifier: MIT
 *
 * log.h: the library's own log: empty unless GPUPROF_LOG=LEVEL[:FILE] is set. Do not call it
 * from callbacks.
 */
#ifndef GP_BASE_LOG_H
#define GP_BASE_LOG_H

#include "base/compiler.h"

enum gp_log_level { GP_LOG_OFF, GP_LOG_ERROR, GP_LOG_WARN, GP_LOG_INFO, GP_LOG_DEBUG };

/* file NULL: the current standard error.  Returns 0, or -errno of opening the file (then nothing is
 * logged).  A line is dropped if the descriptor is no longer this file, if writing would block, or
 * if the pipe has no reader.  The program gets no SIGPIPE. */
int gp_log_open(enum gp_log_level level, const char *file);
/* Nothing is logged from here on. */
void gp_log_close(void);
void gp_log(enum gp_log_level level, const char *format, ...) GP_PRINTF(2, 3);

#endif
