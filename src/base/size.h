/* SPDX-License-Identifier: MIT
 *
 * size.h: the SIZE of options and of GPUPROF_LIMIT.
 */
#ifndef GP_BASE_SIZE_H
#define GP_BASE_SIZE_H

#include <stdint.h>

/* SIZE: decimal digits, then B, KiB, MiB, GiB, TiB or K, M, G, T (powers of two, any case).  0,
 * -EINVAL, -ERANGE (does not fit int64_t). */
int gp_size_parse(const char *text, int64_t *bytes);

#endif
