/* SPDX-License-Identifier: MIT
 *
 * vmlinux.h: the few kernel types that the program looks into.  Offsets are put right at load from the running kernel's
 * BTF (CO-RE), so only names and types count here, and one object fits all kernels.
 */
#ifndef GP_BPF_VMLINUX_H
#define GP_BPF_VMLINUX_H

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

enum { BPF_ANY, BPF_NOEXIST, BPF_EXIST };
enum { BPF_F_MMAPABLE = 1 << 10 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };
enum { BPF_RB_AVAIL_DATA };
enum bpf_map_type { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_RINGBUF = 27 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
    int counter;
} atomic_t;

struct signal_struct {
    atomic_t live;
};

struct task_struct {
    int tgid;
    struct task_struct *group_leader;
    struct signal_struct *signal;
    __u64 start_boottime;
    char comm[16];
};

#pragma clang attribute pop

#endif
