/* SPDX-License-Identifier: MIT
 *
 * test_collect_nvml.c: what the reader of sessions adds from NVML (tools/read/collect/machine.c), whose answers this file makes up.
 */
#include <base/compiler.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <lib/lackmemory.h>
#include <lib/standin.h>
#include <pwd.h>
#include <read/collect/collect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct gp_nvml_gpu nvml[3];
static int nvml_count, nvml_error;
static long nvml_held;

STANDIN(int, gp_nvml_read, struct gp_nvml_gpu **gpus, int *count, char problem[GP_NVML_PROBLEM_BYTES])
{
    snprintf(problem, GP_NVML_PROBLEM_BYTES, "%s", nvml_error ? "made up" : "");
    if (nvml_error)
        return nvml_error;
    *gpus = nvml;
    *count = nvml_count;
    nvml_held++;
    return 0;
}

STANDIN(void, gp_nvml_free, struct gp_nvml_gpu *gpus, int count)
{
    nvml_held -= gpus == nvml && count == nvml_count;
}

static ino_t namespace_inode = 0xEFFFFFFCu;

STANDIN(int, stat, const char *restrict path, struct stat *restrict status)
{
    if (strcmp(path, "/proc/self/ns/pid") != 0)
        return __real_stat(path, status);
    memset(status, 0, sizeof(*status));
    status->st_ino = namespace_inode;
    return namespace_inode ? 0 : -1;
}

/* The C library's keeps memory from call to call. */
int getpwuid_r(uid_t uid, struct passwd *entry, char *buffer, size_t bytes, struct passwd **found)
{
    (void)uid, (void)entry, (void)buffer, (void)bytes;
    *found = NULL;
    return 0;
}

static struct gp_nvml_process seen[2][4];

/* Two GPUs; on each this process, its parent, process 1 as a profiled one, and pids that cannot be. */
static struct gp_system *machine(void)
{
    struct gp_system *system = calloc(1, sizeof(*system));
    struct gp_process *one = gp_system_add(system);
    const uint32_t pids[] = {1, (uint32_t)getpid(), 0, 1u << 31};
    one->pid = 1;
    one->state = GP_PROCESS_LIVE;
    one->devices = calloc(3, sizeof(*one->devices));
    one->device_count = 3;
    for (int i = 0; i < 3; i++) {
        one->devices[i].index = i < 2 ? i : (int)GP_WIRE_HOST;
        one->devices[i].identified = i < 2;
        one->devices[i].untracked_bytes = -1;
        one->devices[i].total_bytes = 1000;
        snprintf(one->devices[i].uuid, 48, "GPU-%d", i < 2 ? i : 0);
        one->devices[i].wire.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current = 100;
    }
    for (int gpu = 0; gpu < 2; gpu++) {
        nvml[gpu] = (struct gp_nvml_gpu){
            .total_bytes = 900 + gpu, .used_bytes = 500 + gpu, .process_count = 4, .processes = seen[gpu]};
        snprintf(nvml[gpu].uuid, 48, "GPU-%d", gpu);
        snprintf(nvml[gpu].name, 64, "Name %d", gpu);
        for (int i = 0; i < 4; i++)
            seen[gpu][i] = (struct gp_nvml_process){pids[i], 300 + 10 * gpu + i};
    }
    nvml_count = 2, nvml_error = 0, namespace_inode = 0xEFFFFFFCu;
    return system;
}

Test(collect_nvml, what_nvml_knows_of_processes)
{
    struct gp_system *s = machine();
    cr_assert_eq(gp_machine_add_nvml(s, false), 0);
    cr_expect(s->nvml && !s->nvml_problem[0] && nvml_held == 0);
    cr_assert_eq(s->gpu_count, 2);
    for (int i = 0; i < 2; i++) {
        const struct gp_gpu *g = &s->gpus[i];
        cr_expect(g->index == i && g->total_bytes == 900 + i && g->used_bytes == 500 + i && g->limit_bytes == 0);
        cr_expect_str_eq(g->uuid, i ? "GPU-1" : "GPU-0");
        cr_expect_str_eq(g->name, i ? "Name 1" : "Name 0");
        cr_expect_eq(s->processes[0].devices[i].untracked_bytes, 200 + 10 * i);
    }
    cr_expect_eq(s->processes[0].devices[2].untracked_bytes, -1, "the host is no GPU, whatever it is called");
    cr_assert_eq(s->process_count, 2);
    const struct gp_process *p = &s->processes[1];
    char number[16];
    snprintf(number, sizeof(number), "%u", (unsigned)getuid());
    cr_expect_str_eq(p->user, number);
    cr_expect(p->pid == getpid() && p->state == GP_PROCESS_FOREIGN && p->ppid == getppid() && p->device_count == 2);
    for (int i = 0; i < 2; i++) {
        const struct gp_device_view *d = &p->devices[i];
        cr_expect(d->index == i && d->ordinal == i && d->identified && d->total_bytes == 900 + i &&
                  d->untracked_bytes == 301 + 10 * i);
        cr_expect_str_eq(d->uuid, i ? "GPU-1" : "GPU-0");
        cr_expect_str_eq(d->name, i ? "Name 1" : "Name 0");
    }
    gp_system_free(s);
}

Test(collect_nvml, bytes_that_the_process_does_not_know)
{
    static const struct {
        int64_t seen, before;
        bool attached;
        int64_t untracked;
    } rows[] = {{-1, 0, false, -1},  {0, 0, false, 0},     {99, 0, false, 0},     {100, 0, false, 0},
                {101, 0, false, 1},  {300, 50, true, 150}, {300, 50, false, 200}, {300, -1, true, 200},
                {300, 0, true, 200}, {300, 1, true, 199},  {150, 50, true, 0},    {151, 50, true, 1}};
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        struct gp_system *s = machine();
        seen[0][0].bytes = rows[i].seen;
        s->processes[0].attached = rows[i].attached;
        s->processes[0].devices[0].before.bytes = rows[i].before;
        cr_assert_eq(gp_machine_add_nvml(s, true), 0);
        cr_expect_eq(s->processes[0].devices[0].untracked_bytes, rows[i].untracked, "%zu", i);
        cr_expect_eq(s->process_count, 1, "only profiled ones");
        gp_system_free(s);
    }
}

Test(collect_nvml, nvml_in_a_container_and_without_nvml)
{
    struct gp_system *s = machine();
    namespace_inode = 4026532000u;
    cr_assert_eq(gp_machine_add_nvml(s, false), 0);
    cr_expect(s->nvml && s->gpu_count == 2 && s->process_count == 1 &&
              s->processes[0].devices[0].untracked_bytes == -1);
    cr_expect_str_eq(s->nvml_problem, "in a container: NVML reports pids of the host, which cannot be matched here");
    gp_system_free(s);
    s = machine();
    nvml_error = -ENOENT;
    cr_expect_eq(gp_machine_add_nvml(s, false), 0);
    cr_expect(!s->nvml && s->gpu_count == 0);
    cr_expect_str_eq(s->nvml_problem, "made up");
    nvml_error = -ENOMEM;
    cr_expect_eq(gp_machine_add_nvml(s, false), -ENOMEM);
    gp_system_free(s);
    s = machine();
    seen[0][1].pid = 0x3fffffff; /* it has ended meanwhile */
    nvml[1].process_count = -1;
    cr_assert_eq(gp_machine_add_nvml(s, false), 0);
    cr_expect_eq(s->process_count, 1);
    gp_system_free(s);
}

/* GPUs that only processes know; and the sizes of those of which a cgroup may use a part. */
Test(collect_nvml, gpus_that_nvml_does_not_know)
{
    static const struct {
        int64_t total, used, device, is_total, is_limit;
    } rows[] = {{900, 5, 1000, 1000, 900}, {985, 5, 1000, 985, 0}, {984, 5, 1000, 1000, 984}, {900, -1, 1000, 900, 0},
                {900, 0, 1000, 1000, 900}, {900, 5, -1, 900, 0},   {1000, 5, 1000, 1000, 0},  {0, 5, 1000, 1000, 0},
                {-1, 5, 0, 0, -1},         {0, 0, 0, 0, 0}};
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        struct gp_system *s = machine();
        s->processes[0].device_count = 1;
        s->processes[0].devices[0].total_bytes = rows[i].device;
        nvml[0].total_bytes = rows[i].total, nvml[0].used_bytes = rows[i].used;
        cr_assert_eq(gp_machine_add_nvml(s, true), 0);
        cr_assert_eq(gp_machine_add_gpus(s), 0);
        cr_assert_eq(s->gpu_count, 2);
        cr_expect_eq(s->gpus[0].total_bytes, rows[i].is_total, "%zu: %lld", i, (long long)s->gpus[0].total_bytes);
        cr_expect_eq(s->gpus[0].limit_bytes, rows[i].is_limit, "%zu: %lld", i, (long long)s->gpus[0].limit_bytes);
        cr_expect_eq(s->gpus[1].total_bytes, 901);
        gp_system_free(s);
    }
    struct gp_system *s = machine();
    struct gp_process *more = gp_system_add(s);
    more->devices = calloc(4, sizeof(*more->devices));
    more->device_count = 4;
    for (int i = 0; i < 4; i++) {
        more->devices[i] = (struct gp_device_view){.index = 7 + i, .identified = i != 2, .total_bytes = 50 + i};
        snprintf(more->devices[i].uuid, 48, "%s", i == 1 ? "" : i == 3 ? "GPU-1" : "GPU-9");
        snprintf(more->devices[i].name, 64, "Nine");
    }
    cr_assert_eq(gp_machine_add_gpus(s), 0); /* 0 and 1 of the first process, and 9 */
    cr_assert_eq(s->gpu_count, 3);
    static const char *const uuids[] = {"GPU-0", "GPU-1", "GPU-9"};
    for (int i = 0; i < 3; i++) {
        cr_expect_str_eq(s->gpus[i].uuid, uuids[i]);
        cr_expect(s->gpus[i].index == i && s->gpus[i].used_bytes == -1 && s->gpus[i].limit_bytes == 0);
        cr_expect_eq(s->gpus[i].total_bytes, i == 2 ? 50 : 1000);
    }
    cr_expect_str_eq(s->gpus[2].name, "Nine");
    gp_system_free(s);
}

static int machine_once(void *arg)
{
    struct gp_system *s = arg;
    unsigned until = memory_fails;
    memory_fails = MEMORY_NEVER;
    s = machine();
    memory_fails = until;
    int rc = gp_machine_add_nvml(s, false);
    if (!rc)
        rc = gp_machine_add_gpus(s);
    if (!rc && (s->process_count != 2 || s->gpu_count != 2))
        rc = -1;
    gp_system_free(s);
    return nvml_held ? -2 : rc;
}

Test(collect_nvml, each_allocation_fails)
{
    if (!MEMORY_IS_COUNTED)
        cr_skip("a sanitizer's allocator");
    struct memory_tried tried = memory_each(machine_once, NULL);
    cr_expect_gt(tried.calls, 4, "%u", tried.calls);
    cr_expect_eq(tried.wrong, 0, "%u", tried.wrong);
    cr_expect_eq(tried.kept, 0, "%u", tried.kept);
}
