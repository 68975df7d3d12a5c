/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * container.h: the number by which the tables name the current task's container, on hosts where
 * memory is under cgroup version 1 too. For gpuprof.bpf.c alone; include it after vmlinux.h and
 * libbpf's headers.
 */
#ifndef GP_BPF_CONTAINER_H
#define GP_BPF_CONTAINER_H

#include <gpuprof/maps.h>
#include <stdbool.h>

#define ROOT_ID 1 /* the root of each hierarchy */

/* The pointer is typed (BTF), so its fields are read without a helper call; a field that cannot be
 * read is 0. */
static __always_inline struct task_struct *current(void)
{
    return bpf_get_current_task_btf();
}

/* The task's cgroup for one controller. A controller's number depends on the kernel's build, so
 * callers look it up by name. The kernel's array is longer than vmlinux.h says, so the index is
 * added by hand. */
static __always_inline const struct cgroup *group_for(const struct css_set *set, uint64_t controller)
{
    const char *at = (const char *)&set->subsys[0];
    const struct cgroup_subsys_state *state = *(struct cgroup_subsys_state *const *)(at + controller * sizeof state);
    return state->cgroup;
}

#define controller_of(_name)                                                                                           \
    (bpf_core_enum_value_exists(enum cgroup_subsys_id, _name) ? bpf_core_enum_value(enum cgroup_subsys_id, _name)      \
                                                              : UINT64_MAX)

/* The cgroup's number with the mark; 0 if it does not identify a container: a root, or a cgroup of
 * version 2. */
static __always_inline uint64_t group_id(const struct cgroup *group, const struct cgroup *unified, uint64_t mark)
{
    if (group->root == unified->root)
        return 0;
    uint64_t id = group->kn->id;
    return id == ROOT_ID ? 0 : (id & (GP_MAP_CGROUP_V1 - 1)) | mark;
}

/* A container runtime that knows only version 1 creates its cgroups there. In version 2 its
 * containers then stay in the runtime's own cgroup: the systemd service that started it. */
static __always_inline bool is_service(const struct cgroup *unified)
{
    char name[64 + 8];
    long bytes = bpf_probe_read_kernel_str(name, 64, unified->kn->name);
    if (bytes < (long)sizeof ".service")
        return false;
    uint64_t end = (uint64_t)bytes - sizeof ".service";
    asm volatile("%0 &= 63" : "+r"(end)); /* changes nothing, but is the only bound that Linux 6.1's verifier follows */
    uint64_t last;
    __builtin_memcpy(&last, name + end, sizeof last);
    return last == 0x656369767265732eull; /* ".service" */
}

/* The number that names the current task's container: its version 2 cgroup, or a marked version 1
 * cgroup where version 2 does not tell containers apart. Not inlined, to save stack. */
__noinline uint64_t container_id(void)
{
    const struct css_set *set = current()->cgroups;
    const struct cgroup *unified = set->dfl_cgrp, *memory = NULL;
    uint64_t id = unified->kn->id, old = 0;
    if (controller_of(memory_cgrp_id) != UINT64_MAX) {
        memory = group_for(set, controller_of(memory_cgrp_id));
        old = group_id(memory, unified, GP_MAP_CGROUP_V1);
    }
    if (id != ROOT_ID)
        return old && memory->level >= unified->level && is_service(unified) ? old : id;
    if (!old && controller_of(pids_cgrp_id) != UINT64_MAX)
        old = group_id(group_for(set, controller_of(pids_cgrp_id)), unified, GP_MAP_CGROUP_V1_PIDS);
    return old ? old : id;
}

#endif
