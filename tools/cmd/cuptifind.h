/* SPDX-License-Identifier: MIT
 * cuptifind.h: finds a CUPTI library that a program could use.  Called by doctor.c. */
#ifndef GP_CMD_CUPTIFIND_H
#define GP_CMD_CUPTIFIND_H

#include <stddef.h>

/* Finds the first libcupti.so.13, .12 or .11* in the order in which programs search:
 * LD_LIBRARY_PATH, the folders of the loader, CUDA_HOME, /usr/local/cuda, pip's nvidia packages.
 * 0 or -ENOENT. */
int gp_cupti_find(char *path, size_t path_bytes);

#endif
