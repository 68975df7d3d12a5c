/* SPDX-License-Identifier: MIT
 * cuptifind.h: where a CUPTI library lies that a program could use.  Called by doctor. */
#ifndef GP_CMD_CUPTIFIND_H
#define GP_CMD_CUPTIFIND_H

#include <stddef.h>

/* The first libcupti.so.13, .12 or .11* in the order in which programs find one: LD_LIBRARY_PATH, the loader's own
 * folders, CUDA_HOME, /usr/local/cuda, pip's nvidia packages.  0 or -ENOENT. */
int gp_cupti_find(char *path, size_t path_bytes);

#endif
