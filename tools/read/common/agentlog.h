/* SPDX-License-Identifier: MIT
 *
 * agentlog.h: the agent's log. Each event is one line on stderr: "gpuprof: agent: ...", or "<N>..."
 * with the journal's priorities if stderr is the journal (JOURNAL_STREAM). What is not printable, as in
 * names that come from processes, becomes '?'.
 */
#ifndef GP_COMMON_AGENTLOG_H
#define GP_COMMON_AGENTLOG_H

#include <base/compiler.h>

enum gp_agentlog_level {
    GP_AGENTLOG_ERROR = 3,
    GP_AGENTLOG_WARNING = 4,
    GP_AGENTLOG_NOTICE = 5,
    GP_AGENTLOG_INFO = 6,
    GP_AGENTLOG_DEBUG = 7
};

/* Lines above `level` are not written. Call it once, before any thread starts. */
void gp_agent_log_open(enum gp_agentlog_level level);
/* Any thread. One write(2) per line, so lines of threads do not mix. If the pipe is full, the line
 * is dropped and counted; the call never waits. */
void gp_agent_log(enum gp_agentlog_level level, const char *format, ...) GP_PRINTF(2, 3);

#endif
