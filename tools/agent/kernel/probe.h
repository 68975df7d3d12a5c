/* SPDX-License-Identifier: MIT
 *
 * probe.h: parses the arguments of a USDT note, for the loader and its tests.
 */
#ifndef GP_KERNEL_PROBE_H
#define GP_KERNEL_PROBE_H

#include <elf.h>
#include <stdint.h>

/* Libraries of another processor have no probe that this kernel could attach. */
#if defined(__aarch64__)
#define GP_BPF_MACHINE EM_AARCH64
#else
#define GP_BPF_MACHINE EM_X86_64
#endif

/* "8@%rdi -4@$12": encodes the first two arguments as the attach cookie of loaderabi.h. 0 or
 * -EINVAL. */
int gp_bpf_arguments(const char *text, uint64_t *cookie);

/* The same in the notes of EM_X86_64 or EM_AARCH64. */
int gp_bpf_arguments_of(unsigned machine, const char *text, uint64_t *cookie);

#endif
