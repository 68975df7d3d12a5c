/* SPDX-License-Identifier: MIT
 * fakeview.c: see fakeview.h. */
#include <lib/fakeview.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gp_fake_uuid(uint8_t uuid[16], uint32_t device)
{
    memset(uuid, 0x11, 16);
    uuid[0] = (uint8_t)(device >> 8);
    uuid[15] = (uint8_t)device;
}

struct gp_fake_process *gp_fake_add(struct gp_fake_machine *machine, uint32_t tgid, uint64_t cgroup_id, uint32_t device,
                                    int64_t allocated, int64_t reserved, const char *comm)
{
    if (!machine->processes)
        machine->processes = calloc(GP_FAKE_PROCESSES, sizeof(*machine->processes));
    if (!machine->processes || machine->count == GP_FAKE_PROCESSES)
        abort();
    struct gp_fake_process *process = &machine->processes[machine->count++];
    *process = (struct gp_fake_process){.tgid = tgid,
                                        .cgroup_id = cgroup_id,
                                        .device = device,
                                        .allocated = allocated,
                                        .reserved = reserved,
                                        .calls = 10,
                                        .frees = 4,
                                        .failures = 1};
    snprintf(process->comm, sizeof(process->comm), "%s", comm);
    return process;
}

/* The sum of (cgroup, device); cgroup 0: of the device. Makes it if it is new. */
static struct gp_map_sum *sum_of(struct gp_system_sum *sums, uint32_t *count, uint64_t cgroup_id, uint32_t device)
{
    uint8_t uuid[16];
    gp_fake_uuid(uuid, device);
    for (uint32_t i = 0; i < *count; i++)
        if (sums[i].cgroup_id == cgroup_id && memcmp(sums[i].uuid, uuid, 16) == 0)
            return &sums[i].value;
    sums[*count].cgroup_id = cgroup_id;
    memcpy(sums[*count].uuid, uuid, 16);
    sums[*count].value.total_bytes = 80ll << 30;
    return &sums[(*count)++].value;
}

/* The real tables may wrap or clamp, so readers must accept any number. */
static int64_t plus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static void add(struct gp_map_sum *sum, const struct gp_fake_process *p, bool alive)
{
    sum->processes += alive;
    sum->allocated_bytes = plus(sum->allocated_bytes, alive ? p->allocated : 0);
    sum->reserved_bytes = plus(sum->reserved_bytes, alive ? p->reserved : 0);
    sum->asleep_bytes = plus(sum->asleep_bytes, alive ? p->asleep : 0);
    sum->allocated_peak_bytes = plus(sum->allocated_peak_bytes, plus(p->allocated, p->allocated));
    sum->reserved_peak_bytes = plus(sum->reserved_peak_bytes, plus(p->reserved, p->reserved));
    sum->calls += p->calls;
    sum->frees += p->frees;
    sum->failures += p->failures;
}

int gp_fake_read(void *arg, struct gp_system_view **out, char *why, size_t why_bytes)
{
    struct gp_fake_machine *machine = arg;
    machine->reads++;
    if (machine->error) {
        snprintf(why, why_bytes, "no agent has run here");
        return machine->error;
    }
    uint32_t all = machine->count + machine->past_count;
    struct gp_system_view *view = calloc(1, sizeof(*view));
    view->meta = machine->meta;
    view->alive = !machine->dead;
    view->processes_seen = true;
    view->processes = calloc(all + 1, sizeof(*view->processes));
    view->containers = calloc(all + 1, sizeof(*view->containers));
    view->devices = calloc(all + 1, sizeof(*view->devices));
    for (uint32_t i = 0; i < all; i++) {
        bool alive = i < machine->count;
        const struct gp_fake_process *p = alive ? &machine->processes[i] : &machine->past[i - machine->count];
        add(sum_of(view->containers, &view->container_count, p->cgroup_id, p->device), p, alive);
        add(sum_of(view->devices, &view->device_count, 0, p->device), p, alive);
        if (!alive)
            continue;
        struct gp_system_process *to = &view->processes[view->process_count++];
        to->key.tgid = p->tgid;
        to->key.device = p->index;
        to->value.start_ns = p->tgid * 1000ull;
        to->value.cgroup_id = p->cgroup_id;
        gp_fake_uuid(to->value.uuid, p->device);
        to->value.allocated_bytes = p->allocated;
        to->value.allocated_peak_bytes = plus(p->allocated, p->allocated);
        to->value.reserved_bytes = p->reserved;
        to->value.reserved_peak_bytes = plus(p->reserved, p->reserved);
        to->value.asleep_bytes = p->asleep;
        to->value.lost = p->lost;
        memcpy(to->comm, p->comm, sizeof(to->comm));
    }
    *out = view;
    return 0;
}

void gp_fake_free(struct gp_system_view *view)
{
    free(view->processes);
    free(view->containers);
    free(view->devices);
    free(view);
}
