/* SPDX-License-Identifier: MIT
 *
 * vmlinux.h: the few kernel types that the program reads. The loader corrects offsets from the
 * running kernel's BTF (CO-RE), so only names and types count here, and one object fits all
 * kernels.
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

/* The loader replaces these values by those of the running kernel. */
enum cgroup_subsys_id { memory_cgrp_id, pids_cgrp_id };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
    int counter;
} atomic_t;

struct signal_struct {
    atomic_t live;
};

struct kernfs_node {
    const char *name;
    __u64 id;
};

struct cgroup_root;

struct cgroup {
    int level; /* 0: the root */
    struct cgroup_root *root;
    struct kernfs_node *kn;
};

struct cgroup_subsys_state {
    struct cgroup *cgroup;
};

struct css_set {
    struct cgroup_subsys_state *subsys[1]; /* one per controller that the kernel was built with */
    struct cgroup *dfl_cgrp;               /* the cgroup of version 2 */
};

struct task_struct {
    int tgid;
    struct task_struct *group_leader;
    struct signal_struct *signal;
    struct css_set *cgroups;
    __u64 start_boottime;
    char comm[16];
};

#pragma clang attribute pop

#endif
