/* SPDX-License-Identifier: MIT
 *
 * probe.h: parses the arguments of a USDT note, for the loader and its tests.
 */
#ifndef GP_KERNEL_PROBE_H
#define GP_KERNEL_PROBE_H

#include <stdint.h>

/* "8@%rdi -4@$12": encodes the first two arguments as the attach cookie of loaderabi.h. 0 or
 * -EINVAL. */
int gp_bpf_arguments(const char *text, uint64_t *cookie);

#endif
