/* SPDX-License-Identifier: MIT
 *
 * probe.h: the text of a USDT note's arguments, for the loader and its tests.
 */
#ifndef GP_KERNEL_PROBE_H
#define GP_KERNEL_PROBE_H

#include <stdint.h>

/* "8@%rdi -4@$12": the first two arguments as the attach cookie of private.h.  0 or -EINVAL. */
int gp_bpf_arguments(const char *text, uint64_t *cookie);

#endif
