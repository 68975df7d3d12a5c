/* SPDX-License-Identifier: MIT
 *
 * notify.h: the service manager's protocol (sd_notify(3), NOTIFY_SOCKET). The protocol is stable
 * and small; systemd advises against linking its library for that alone.
 */
#ifndef GP_AGENT_NOTIFY_H
#define GP_AGENT_NOTIFY_H

#include <base/compiler.h>
#include <stdint.h>

/* Sends "READY=1\nSTATUS=..." and the like; does nothing without NOTIFY_SOCKET. Never waits. 0 or
 * -errno. */
int gp_notify(const char *format, ...) GP_PRINTF(1, 2);
/* Half the interval at which the manager expects WATCHDOG=1; 0: it does not (WATCHDOG_USEC,
 * WATCHDOG_PID). */
uint64_t gp_notify_watchdog_ns(void);

#endif
