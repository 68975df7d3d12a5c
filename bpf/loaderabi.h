/* SPDX-License-Identifier: MIT
 *
 * loaderabi.h: the private interface between the BPF program and its loader. No other program reads
 * it.
 */
#ifndef GP_BPF_LOADERABI_H
#define GP_BPF_LOADERABI_H

#include <stdint.h>

/* The attach cookie says where the probe's two arguments are, 32 bits each (the second is the upper
 * half): word of pt_regs | how << 5 | 32 bits wide << 7 | signed displacement or constant << 8. */
enum { GP_ARG_NONE, GP_ARG_REGISTER, GP_ARG_MEMORY, GP_ARG_CONSTANT };
#define GP_ARG_WORD(_spec)  ((uint32_t)(_spec)&31u)
#define GP_ARG_HOW(_spec)   (((uint32_t)(_spec) >> 5) & 3u)
#define GP_ARG_SHORT(_spec) (((uint32_t)(_spec) >> 7) & 1u)
#define GP_ARG_VALUE(_spec) ((int64_t)((int32_t)(_spec) >> 8))
#define GP_ARG(_word, _how, _short, _value)                                                                            \
    ((uint32_t)(_word) | (uint32_t)(_how) << 5 | (uint32_t)(_short) << 7 | (uint32_t)(_value) << 8)
#if defined(__TARGET_ARCH_arm64) || defined(__aarch64__) /* words of pt_regs that a program may read */
#define GP_ARG_WORDS 32u
#else
#define GP_ARG_WORDS 21u
#endif

struct gp_bpf_gone { /* the input of the program gpuprof_gone */
    uint64_t start_ns;
    uint32_t tgid, pad_;
};

struct gp_bpf_process { /* a process that has fired the probe; the key is its tgid */
    uint64_t start_ns;
    uint64_t cgroup_id;
    uint64_t seq, lost;
    uint64_t devices; /* one bit per row of process_device */
    uint8_t session_id[16];
    /* Rows that are made before this moment of CLOCK_MONOTONIC begin with the counters as they are: they counted
     * before this agent.  0: none does. */
    uint64_t adopted_until_ns;
    uint64_t reserved_in; /* the container in whose share it takes an entry while it has no row; 0 none */
    uint32_t busy;        /* the program that changes it from 0 to 1 may change the process's numbers */
    uint32_t pad_;
};

#endif
