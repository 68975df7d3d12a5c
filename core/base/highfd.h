/* SPDX-License-Identifier: MIT
 * highfd.h: descriptors of ours in the program's table. */
#ifndef GP_BASE_HIGHFD_H
#define GP_BASE_HIGHFD_H

/* Moves a descriptor to a high number, with close-on-exec: low numbers belong to the program, which
 * may print them or rely on the next one. Returns it, or a negative value with errno, and the given
 * one is closed; a negative one is returned as it is. */
int gp_high_fd(int fd);

#endif
