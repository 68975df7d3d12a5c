/* SPDX-License-Identifier: MIT
 *
 * Groups of calls: what ncclGroupStart and ncclGroupEnd hold together is done at the end, stage by
 * stage, so that one thread can speak for several ranks. */
#include "nccl.h"

#include <stdlib.h>

static __thread int group_depth;
static __thread struct nccl_task *group_first, **group_last;
static __thread uint64_t group_number;
static uint64_t group_numbers;

uint64_t nccl_group_number(void)
{
    return group_number;
}

static enum nccl_result group_run(struct nccl_task *first)
{
    enum nccl_result result = NCCL_SUCCESS;
    group_number = __atomic_add_fetch(&group_numbers, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < NCCL_STAGES; i++)
        for (struct nccl_task *task = first; task; task = task->next) {
            enum nccl_result one = task->stage[i] ? task->stage[i](task) : NCCL_SUCCESS;
            if (one != NCCL_SUCCESS) { /* its later stages have nothing to go on with */
                for (int j = 0; j < NCCL_STAGES; j++)
                    task->stage[j] = NULL;
                result = result == NCCL_SUCCESS ? one : result;
            }
        }
    while (first) {
        struct nccl_task *task = first;
        first = task->next;
        task->end(task);
    }
    return result;
}

enum nccl_result nccl_task_add(struct nccl_task *task)
{
    task->next = NULL;
    if (!group_depth)
        return group_run(task);
    *group_last = task;
    group_last = &task->next;
    return NCCL_SUCCESS;
}

NCCL_API(enum nccl_result, ncclGroupStart, void)
{
    if (!group_depth++) {
        group_first = NULL;
        group_last = &group_first;
    }
    return NCCL_SUCCESS;
}

NCCL_API(enum nccl_result, ncclGroupEnd, void)
{
    if (!group_depth)
        return nccl_error(NCCL_INVALID_USAGE, "ncclGroupEnd: not in a group");
    if (--group_depth)
        return NCCL_SUCCESS;
    struct nccl_task *first = group_first;
    group_first = NULL;
    return group_run(first);
}

struct nccl_sim_info {
    size_t size;
    unsigned magic, version;
    float estimated_time;
};

/* Nothing is run; how long it would take is not known here. */
NCCL_API(enum nccl_result, ncclGroupSimulateEnd, struct nccl_sim_info *info)
{
    if (!group_depth)
        return nccl_error(NCCL_INVALID_USAGE, "ncclGroupSimulateEnd: not in a group");
    (void)info;
    if (--group_depth)
        return NCCL_SUCCESS;
    struct nccl_task *first = group_first;
    group_first = NULL;
    while (first) {
        struct nccl_task *task = first;
        first = task->next;
        task->end(task);
    }
    return nccl_error(NCCL_INVALID_USAGE, "ncclGroupSimulateEnd: the stand-in for NCCL cannot estimate times");
}
