/* SPDX-License-Identifier: MIT
 *
 * rig.h: helpers shared by the tests of the BPF program: private maps and cgroups, a copy of a
 * program that only this test arms, children that fire batches on request
 * (tests/programs/probe_fire.c), and readers of the maps. Include it in one source file per test
 * program: everything is static, and each test runs in its own process.
 */
#ifndef GP_TEST_BPF_RIG_H
#define GP_TEST_BPF_RIG_H

#include "agent/kernel/bpf.h"
#include "lib/keeper.h"
#include "lib/kid.h"
#include "lib/mounts.h"
#include "lib/paths.h"
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIDS 8
#define MIB  (1ll << 20)
#define GIB  (1ll << 30)

static struct gp_bpf *bpf;
static char why[512], copy[PATH_MAX], groups[3][PATH_MAX], more[4][PATH_MAX];
static uint64_t group_id[3];
static struct kid kids[KIDS];
static int kid_count, more_count, link_fd = -1, copy_fd = -1;

static void groups_make(void)
{
    char at[512];
    if (!mounts_find("cgroup2", NULL, at, sizeof at))
        cr_skip_test("no cgroup v2 hierarchy is mounted");
    for (int i = 0; i < 3; i++) {
        snprintf(groups[i], sizeof groups[i], "%s/gpuprof-test-%d-%d", at, getpid(), i);
        struct stat about;
        if (mkdir(groups[i], 0755) || stat(groups[i], &about))
            cr_skip_test("cannot make a cgroup: %s", strerror(errno));
        group_id[i] = about.st_ino;
    }
}

/* A copy of a file has another inode, so only this test's probes are in it. */
static void copy_of(const char *from)
{
    char command[3 * PATH_MAX];
    snprintf(copy, sizeof copy, "/tmp/gpuprof-test-fire-%d", getpid());
    snprintf(command, sizeof command, "rm -f '%s'; cp '%s' '%s'", copy, from, copy);
    cr_assert(system(command) == 0);
    copy_fd = open(copy, O_RDONLY | O_CLOEXEC);
    cr_assert(copy_fd >= 0);
}

static void link_copy(void)
{
    struct gp_bpf_probe probe;
    cr_assert(gp_bpf_probe_find(copy_fd, &probe) == 0);
    cr_assert(probe.semaphore_offset != 0);
    link_fd = gp_bpf_attach(bpf, copy_fd, &probe, why, sizeof why);
    cr_assert(link_fd >= 0, "%s", why);
}

static void begin_with(const struct gp_bpf_options *options)
{
    if (geteuid() != 0)
        cr_skip_test("not root");
    struct gp_bpf_options asked = options ? *options : (struct gp_bpf_options){0};
    asked.verbose = getenv("GPUPROF_TEST_VERBOSE") != NULL;
    int error = gp_bpf_open(&bpf, &asked, why, sizeof why);
    if (error == -EPERM || error == -ENOTSUP)
        cr_skip_test("%s", why);
    cr_assert(error == 0, "%s", why);
    keeper_start(NULL);
    groups_make();
    copy_of(path_program("probe_fire"));
    link_copy();
}

static void begin(void)
{
    begin_with(NULL);
}

static bool enter(const char *group, pid_t pid)
{
    char procs[PATH_MAX + 16], text[16];
    snprintf(procs, sizeof procs, "%s/cgroup.procs", group);
    int fd = open(procs, O_WRONLY | O_CLOEXEC), bytes = snprintf(text, sizeof text, "%d", pid);
    bool is_done = fd >= 0 && write(fd, text, (size_t)bytes) == bytes;
    if (fd >= 0)
        close(fd);
    return is_done;
}

static void fire_exec(void *arg, int exec_fd)
{
    if (enter(arg, 0))
        kid_exec_file(copy, exec_fd);
}

static struct kid *kid_start(int cgroup)
{
    struct kid *kid = &kids[kid_count++];
    cr_assert(kid_begin(kid, fire_exec, groups[cgroup]) == 0, "the program did not start");
    kid->group = cgroup;
    return kid;
}

/* A process leaves its cgroup a little later than waitpid returns. */
static void group_remove(const char *group)
{
    for (int times = 0; *group && times < 500 && rmdir(group) && errno == EBUSY; times++)
        usleep(10000);
}

static void end(void)
{
    for (int i = 0; i < kid_count; i++)
        kid_end(&kids[i], SIGKILL);
    if (link_fd >= 0)
        close(link_fd);
    gp_bpf_close(bpf);
    if (*copy)
        unlink(copy);
    for (int i = 0; i < 3; i++)
        group_remove(groups[i]);
    for (int i = 0; i < more_count; i++)
        group_remove(more[i]);
}

/* ---- readers of the maps --------------------------------------------------------------------------------------- */

static struct gp_map_sum device_sum(int uuid)
{
    struct gp_map_device_key key;
    struct gp_map_sum sum = {.total_bytes = -99};
    memset(key.uuid, uuid, 16);
    bpf_map_lookup_elem(gp_bpf_map(bpf, "device"), &key, &sum);
    return sum;
}

static struct gp_map_sum sum_of_cgroup(uint64_t id, int uuid)
{
    struct gp_map_container_key key = {.cgroup_id = id};
    struct gp_map_sum sum = {.total_bytes = -99};
    memset(key.uuid, uuid, 16);
    bpf_map_lookup_elem(gp_bpf_map(bpf, "container_device"), &key, &sum);
    return sum;
}

static struct gp_map_sum container_sum(int group, int uuid)
{
    return sum_of_cgroup(group_id[group], uuid);
}

static struct gp_map_container row_of_cgroup(uint64_t id)
{
    struct gp_map_container row = {0};
    bpf_map_lookup_elem(gp_bpf_map(bpf, "container"), &id, &row);
    return row;
}

static struct gp_map_container container(int group)
{
    return row_of_cgroup(group_id[group]);
}

static int process_row(pid_t pid, uint32_t device, struct gp_map_process *row)
{
    struct gp_map_process_key key = {.tgid = (uint32_t)pid, .device = device};
    return bpf_map_lookup_elem(gp_bpf_map(bpf, "process_device"), &key, row);
}

#endif
