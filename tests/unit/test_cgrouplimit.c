/* SPDX-License-Identifier: MIT
 * test_cgrouplimit.c: limits of device memory, from files as the kernel writes them. */
#include <collect/cgrouplimit.h>
#include <collect/machine.h>
#include <write/write.h>

#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REGION "nvidia/0000:41:00.0/vidmem"

static char root[64];
static struct gp_cgroup_limit limits[GP_CGROUP_LIMITS];

static void begin(void)
{
    snprintf(root, sizeof(root), "/tmp/gpuprof-test-limit-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
}

static void end(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    cr_assert_eq(system(command), 0);
}

static void put(const char *path, const char *text)
{
    char full[PATH_MAX];
    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(full, 0755);
        *at = '/';
    }
    FILE *file = fopen(full, "w");
    cr_assert_not_null(file, "%s", full);
    fputs(text, file);
    fclose(file);
}

TestSuite(cgrouplimit, .init = begin, .fini = end);

Test(cgrouplimit, the_least_limit_of_the_path_counts)
{
    put("/sys/fs/cgroup/cgroup.controllers", "cpu memory dmem\n");
    put("/sys/fs/cgroup/dmem.capacity", REGION " 85899345920\n");
    put("/sys/fs/cgroup/pods/dmem.max", REGION " 4294967296\n");
    put("/sys/fs/cgroup/pods/dmem.current", REGION " 3000000000\n");
    put("/sys/fs/cgroup/pods/a/dmem.max", REGION " 8589934592\ndrm/0000:00:02.0/vram max\n");
    put("/sys/fs/cgroup/pods/a/dmem.current", REGION " 1073741824\ndrm/0000:00:02.0/vram 4096\n");
    put("/sys/fs/cgroup/pods/a/dmem.min", REGION " 536870912\n");
    put("/proc/7/cgroup", "12:memory:/x\n0::/pods/a\n");
    cr_assert_eq(gp_cgroup_limits(root, 7, limits), 2);
    cr_expect_str_eq(limits[0].controller, "dmem");
    cr_expect_str_eq(limits[0].region, REGION);
    cr_expect_eq(limits[0].limit_bytes, 4294967296);
    cr_expect_eq(limits[0].used_bytes, 1073741824);
    cr_expect_eq(limits[0].guaranteed_bytes, 536870912);
    cr_expect_eq(limits[1].limit_bytes, -1, "max is no limit");
    cr_expect_eq(limits[1].used_bytes, 4096);
}

Test(cgrouplimit, misc_counts_other_things_too)
{
    put("/sys/fs/cgroup/unified/cgroup.controllers", "misc\n");
    put("/sys/fs/cgroup/unified/a/misc.max", "sev 3\n" REGION " 2147483648\n");
    put("/sys/fs/cgroup/unified/a/misc.current", "sev 1\n" REGION " 5\n");
    put("/proc/7/cgroup", "0::/a\n");
    cr_assert_eq(gp_cgroup_limits(root, 7, limits), 1);
    cr_expect_str_eq(limits[0].controller, "misc");
    cr_expect_eq(limits[0].limit_bytes, 2147483648);
    cr_expect_eq(limits[0].used_bytes, 5);
}

Test(cgrouplimit, nothing_where_nothing_is)
{
    cr_expect_eq(gp_cgroup_limits(root, 7, limits), 0, "no process");
    put("/proc/7/cgroup", "0::/a\n");
    cr_expect_eq(gp_cgroup_limits(root, 7, limits), 0, "no cgroups");
    put("/sys/fs/cgroup/cgroup.controllers", "cpu\n");
    cr_expect_eq(gp_cgroup_limits(root, 7, limits), 0, "no controller");
    put("/sys/fs/cgroup/a/dmem.max", "\nx\n y\nbad\tname 5\n" REGION " 12junk\n" REGION " -4\n");
    cr_expect_eq(gp_cgroup_limits(root, 7, limits), 2);
    for (int i = 0; i < 2; i++)
        cr_expect_eq(limits[i].limit_bytes, -1);
    put("/sys/fs/cgroup/a/dmem.max", "1 1\n2 1\n3 1\n4 1\n5 1\n6 1\n7 1\n8 1\n9 1\n10 1\n");
    cr_expect_eq(gp_cgroup_limits(root, 7, limits), GP_CGROUP_LIMITS);
    put("/proc/7/cgroup", "0::/../a\n");
    cr_expect_eq(gp_cgroup_limits(root, 7, limits), 0, "outside of our namespace");
}

/* NVML answers a command inside of a limited cgroup with the limit. */
Test(cgrouplimit, the_total_of_nvml_is_not_the_device)
{
    struct gp_gpu gpu = {.uuid = "GPU-1", .total_bytes = 10ll << 30, .used_bytes = 1 << 30};
    struct gp_device_view device = {.uuid = "GPU-1", .identified = true, .total_bytes = 80ll << 30};
    struct gp_process process = {.device_count = 1, .devices = &device};
    struct gp_system system = {.process_count = 1, .processes = &process, .gpu_count = 1, .gpus = &gpu};
    cr_assert_eq(gp_machine_add_gpus(&system), 0);
    cr_expect_eq(gpu.total_bytes, 80ll << 30);
    cr_expect_eq(gpu.limit_bytes, 10ll << 30);
    device.total_bytes = 80ll << 30 | 1;
    cr_assert_eq(gp_machine_add_gpus(&system), 0);
    cr_expect_eq(gpu.limit_bytes, 10ll << 30, "the same device again");
    gpu = (struct gp_gpu){.uuid = "GPU-1", .total_bytes = (80ll << 30) - (512 << 20), .used_bytes = 0};
    cr_assert_eq(gp_machine_add_gpus(&system), 0);
    cr_expect_eq(gpu.limit_bytes, 0, "what the driver keeps is no limit");
}

Test(cgrouplimit, stat_and_top_have_them)
{
    struct gp_process process = {.cgroup_limit_count = 1, .cgroup_limits = {{"dmem", REGION, 4096, 5, -1}}};
    json_t *list = gp_cgroup_json(&process);
    char *text = json_dumps(list, JSON_COMPACT | JSON_SORT_KEYS);
    cr_expect_str_eq(text, "[{\"controller\":\"dmem\",\"guaranteed_bytes\":null,\"limit_bytes\":4096,"
                           "\"region\":\"" REGION "\",\"used_bytes\":5}]");
    free(text);
    json_decref(list);
}
