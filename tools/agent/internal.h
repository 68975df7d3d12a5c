/* SPDX-License-Identifier: MIT
 *
 * internal.h: the parts of the agent, for its loop (agent.c). No other folder includes it.
 */
#ifndef GP_AGENT_INTERNAL_H
#define GP_AGENT_INTERNAL_H

#include <base/compiler.h>
#include <stdint.h>

/* The service manager's protocol (sd_notify(3), NOTIFY_SOCKET). The protocol is stable and small;
 * systemd advises against linking its library for that alone. */

/* Sends "READY=1\nSTATUS=..." and the like; does nothing without NOTIFY_SOCKET. Never waits. 0 or
 * -errno. */
int gp_agent_notify(const char *format, ...) GP_PRINTF(1, 2);
/* Half the interval at which the manager expects WATCHDOG=1; 0: it does not (WATCHDOG_USEC,
 * WATCHDOG_PID). */
uint64_t gp_agent_watchdog_ns(void);

#endif
