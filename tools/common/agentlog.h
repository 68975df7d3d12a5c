/* SPDX-License-Identifier: MIT
 *
 * agentlog.h: what the agent tells people: one line an event on stderr, "gpuprof: agent: ...", or "<N>..." with the
 * journal's priorities where stderr is the journal (JOURNAL_STREAM).  Names that come from processes are made printable
 * by who passes them.
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

/* Lines above `level` are not written.  Once, before any thread. */
void gp_agent_log_open(enum gp_agentlog_level level);
/* Any thread; one write(2) a line, so lines of threads do not mix; a full pipe loses the line, nobody waits. */
void gp_agent_log(enum gp_agentlog_level level, const char *format, ...) GP_PRINTF(2, 3);

#endif
