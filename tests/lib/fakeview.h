/* SPDX-License-Identifier: MIT
 * fakeview.h: a machine's processes and GPUs as the agent's tables would show them, for tests. */
#ifndef GP_TEST_LIB_FAKEVIEW_H
#define GP_TEST_LIB_FAKEVIEW_H

#include <agent/metrics/metrics.h>

struct gp_fake_process {
    uint32_t tgid, index; /* index: of the device in the process's session */
    uint64_t cgroup_id, lost;
    uint32_t device; /* which GPU of the fake machine */
    int64_t allocated, reserved, asleep;
    int64_t calls, frees, failures;
    char comm[16];
};

#define GP_FAKE_PROCESSES 20000

struct gp_fake_machine {
    struct gp_map_meta meta;
    bool dead;
    int error; /* if set, read returns this error */
    uint32_t count;
    struct gp_fake_process *processes;
    struct gp_fake_process past[64]; /* of processes that have ended: counters only */
    uint32_t past_count;
    unsigned reads;
};

void gp_fake_uuid(uint8_t uuid[16], uint32_t device);
/* Fills the view with the tables' sums over all processes, by container and device. As gp_system_view_read. */
int gp_fake_read(void *machine, struct gp_system_view **out, char *why, size_t why_bytes);
void gp_fake_free(struct gp_system_view *view);
struct gp_fake_process *gp_fake_add(struct gp_fake_machine *machine, uint32_t tgid, uint64_t cgroup_id, uint32_t device,
                                    int64_t allocated, int64_t reserved, const char *comm);

#endif
