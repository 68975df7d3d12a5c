/* SPDX-License-Identifier: MIT
 *
 * notify.h: the service manager's protocol (sd_notify(3), NOTIFY_SOCKET), which is stable and small: systemd itself
 * advises against linking its library for that alone.
 */
#ifndef GP_AGENT_NOTIFY_H
#define GP_AGENT_NOTIFY_H

#include <base/compiler.h>
#include <stdint.h>

/* "READY=1\nSTATUS=..." and the like.  Nothing without NOTIFY_SOCKET.  Never waits.  0 or -errno. */
int gp_notify(const char *format, ...) GP_PRINTF(1, 2);
/* How often the manager wants WATCHDOG=1, halved; 0: not at all (WATCHDOG_USEC, WATCHDOG_PID). */
uint64_t gp_notify_watchdog_ns(void);

#endif
