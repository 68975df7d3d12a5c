/* SPDX-License-Identifier: MIT
 * test_metrics_owners.c: owners of memory on a page of metrics. */
#include "metrics_fixture.h"

/* The sessions of the processes of `owned`: all but pid 1 is PyTorch's, and 8 bytes of each are no
 * library's. */
static struct gp_fake_machine owned;

static void fake_session(struct gp_process *process, pid_t pid)
{
    process->pid = pid;
    if (pid >= 20 && pid < 30)
        snprintf(process->comm, sizeof(process->comm), "ray::PolicyTrainer%s", pid % 2 ? ".step" : "");
    if (pid == 22)
        strcpy(process->ray_job, "0200002a");
    process->owner_count = 3;
    strcpy(process->owners[0].owner, "unknown");
    strcpy(process->owners[1].owner, "pytorch");
    strcpy(process->owners[2].owner, "nccl");
    process->devices = calloc(owned.count, sizeof(*process->devices));
    for (uint32_t i = 0; i < owned.count; i++) {
        const struct gp_fake_process *one = &owned.processes[i];
        if (one->tgid != (uint32_t)pid)
            continue;
        struct gp_device_view *device = &process->devices[process->device_count++];
        device->index = (int)one->index;
        device->wire.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current = one->allocated;
        device->wire.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current = one->reserved;
        device->owners[pid % 2 + 1] = (struct gp_wire_owner_value){.reserved_bytes = one->reserved - 8,
                                                                   .reserved_peak_bytes = one->reserved,
                                                                   .allocated_bytes = one->allocated};
    }
}

static int fake_sessions(const pid_t *pids, int count, struct gp_system **out)
{
    struct gp_system *system = calloc(1, sizeof(*system));
    system->processes = calloc((size_t)count, sizeof(*system->processes));
    for (int i = 0; i < count; i++) {
        if (pids[i] != 1)
            fake_session(&system->processes[system->process_count++], pids[i]);
    }
    *out = system;
    return 0;
}

static struct gp_metrics *open_owned(struct gp_metrics_options options)
{
    struct gp_metrics_source source = {
        .read = gp_fake_read, .free = gp_fake_free, .sessions = fake_sessions, .arg = &owned};
    struct gp_metrics *metrics = NULL;
    options.root = "/nonexistent";
    cr_assert_eq(gp_metrics_open(&metrics, &options, &source), 0);
    return metrics;
}

Test(metrics, owners_are_those_of_the_sessions)
{
    gp_fake_add(&owned, 10, 100, 0, 3000, 4000, "train");
    gp_fake_add(&owned, 11, 100, 0, 1000, 1000, "train");
    gp_fake_add(&owned, 13, 100, 0, 500, 600, "train");
    gp_fake_add(&owned, 1, 100, 0, 70, 70, "hidden");
    for (int how = GP_METRICS_PROCESSES_OFF; how <= GP_METRICS_PROCESSES_PID; how++) {
        struct gp_metrics *metrics = open_owned((struct gp_metrics_options){.processes = how});
        char *text = render(metrics, GP_METRICS_OPENMETRICS);
        cr_assert_eq(sum(text, "gpuprof_owner_allocated_bytes", "owner=\"nccl\""), 1500);
        cr_assert_eq(sum(text, "gpuprof_owner_reserved_bytes", "owner=\"pytorch\""), 3992);
        cr_assert_eq(sum(text, "gpuprof_owner_reserved_bytes", "owner=\"shared\""), 24);
        cr_assert_eq(sum(text, "gpuprof_owner_reserved_bytes", ""), 5600, "a process without a session has no owners");
        cr_assert_eq(sum(text, "gpuprof_owner_reserved_bytes", "pid=\"13\""),
                     how == GP_METRICS_PROCESSES_PID ? 600 : -1);
        cr_assert_eq(sum(text, "gpuprof_owner_reserved_bytes", "comm=\"train\""),
                     how == GP_METRICS_PROCESSES_OFF ? -1 : 5600);
        cr_assert(strstr(text, "# UNIT gpuprof_owner_reserved_bytes bytes\n"));
        samples(text);
        free(text);
        gp_metrics_close(metrics);
    }
}

/* One series for all methods of an actor's class in a job, also of a process whose session is not seen. */
Test(metrics, workers_of_ray_are_named_by_class_and_job)
{
    gp_fake_add(&owned, 20, 100, 0, 3000, 4000, "python");
    gp_fake_add(&owned, 21, 100, 0, 1000, 1000, "ray::PolicyTrai");
    gp_fake_add(&owned, 22, 100, 0, 500, 600, "ray::PolicyTrai");
    gp_fake_add(&owned, 1, 100, 0, 70, 80, "ray::Actor.step");
    for (int how = GP_METRICS_PROCESSES_OFF; how <= GP_METRICS_PROCESSES_PID; how++) {
        struct gp_metrics *metrics = open_owned((struct gp_metrics_options){.processes = how});
        char *text = render(metrics, GP_METRICS_TEXT);
        bool named = how != GP_METRICS_PROCESSES_OFF;
        cr_expect_eq(sum(text, "gpuprof_process_memory_reserved_bytes", "comm=\"ray::PolicyTrainer\""),
                     named ? 5600 : -1);
        cr_expect_eq(sum(text, "gpuprof_process_memory_reserved_bytes", "ray_job=\"0200002a\""), named ? 600 : -1);
        cr_expect_eq(sum(text, "gpuprof_process_memory_reserved_bytes", "comm=\"ray::Actor\""), named ? 80 : -1);
        cr_expect_eq(sum(text, "gpuprof_owner_reserved_bytes", "comm=\"ray::PolicyTrainer\",ray_job=\"0200002a\""),
                     named ? 600 : -1);
        cr_expect_eq(sum(text, "gpuprof_owner_reserved_bytes", ""), 5600);
        samples(text);
        free(text);
        gp_metrics_close(metrics);
    }
}

Test(metrics, owners_keep_within_the_cap)
{
    crowd(&owned, 60, 4);
    int64_t reserved = 0;
    for (uint32_t i = 0; i < owned.count; i++)
        reserved += owned.processes[i].reserved;
    for (int how = GP_METRICS_PROCESSES_OFF; how <= GP_METRICS_PROCESSES_PID; how++) {
        for (uint32_t cap = 200; cap < 4000; cap += 777) {
            struct gp_metrics *metrics = open_owned((struct gp_metrics_options){.processes = how, .series = cap});
            char *text = render(metrics, GP_METRICS_TEXT);
            unsigned count = samples(text);
            cr_assert_leq(count, cap, "mode %d, cap %u: %u", how, cap, count);
            cr_assert_eq(sum(text, "gpuprof_owner_reserved_bytes", ""), reserved, "mode %d, cap %u", how, cap);
            free(text);
            gp_metrics_close(metrics);
        }
    }
}
