/* SPDX-License-Identifier: MIT
 *
 * memfd.h: the memfds of the session and of the extents.
 */
#ifndef GP_SESSION_MEMFD_H
#define GP_SESSION_MEMFD_H

/* Creates an empty memfd that can be sealed, close-on-exec, with a number above those that programs
 * rely on.  Returns it or -errno.  Any thread. */
int gp_session_memfd(const char *name);

#endif
