/* SPDX-License-Identifier: MIT
 *
 * passfd.h: a message with a descriptor, between two processes of one command. Both functions make
 * system calls only, as a child of fork must.
 */
#ifndef GP_COMMON_PASSFD_H
#define GP_COMMON_PASSFD_H

#include <stddef.h>

/* file: -1: none.  0 or -errno. */
int gp_passfd_send(int socket, void *body, size_t bytes, int file);
/* *file: -1: the message has none.  0 or -EIO. */
int gp_passfd_receive(int socket, void *body, size_t bytes, int *file);
/* Keeps the socket, as number 0, the other descriptor, if it is not -1, as number 1, and no more. */
void gp_passfd_keep(int socket, int other);

#endif
