/* SPDX-License-Identifier: MIT
 * test_cgrouplimit.c: limits of device memory, from files as the kernel writes them. */
#include <lib/standin.h>
#include <read/collect/collect.h>
#include <show/text/write.h>

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
    cr_assert_eq(gp_proc_cgroup_limits(root, 7, limits), 2);
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
    cr_assert_eq(gp_proc_cgroup_limits(root, 7, limits), 1);
    cr_expect_str_eq(limits[0].controller, "misc");
    cr_expect_eq(limits[0].limit_bytes, 2147483648);
    cr_expect_eq(limits[0].used_bytes, 5);
}

Test(cgrouplimit, nothing_where_nothing_is)
{
    cr_expect_eq(gp_proc_cgroup_limits(root, 7, limits), 0, "no process");
    put("/proc/7/cgroup", "0::/a\n");
    cr_expect_eq(gp_proc_cgroup_limits(root, 7, limits), 0, "no cgroups");
    put("/sys/fs/cgroup/cgroup.controllers", "cpu\n");
    cr_expect_eq(gp_proc_cgroup_limits(root, 7, limits), 0, "no controller");
    put("/sys/fs/cgroup/a/dmem.max", "\nx\n y\nbad\tname 5\n" REGION " 12junk\n" REGION " -4\n");
    cr_expect_eq(gp_proc_cgroup_limits(root, 7, limits), 2);
    for (int i = 0; i < 2; i++)
        cr_expect_eq(limits[i].limit_bytes, -1);
    put("/sys/fs/cgroup/a/dmem.max", "1 1\n2 1\n3 1\n4 1\n5 1\n6 1\n7 1\n8 1\n9 1\n10 1\n");
    cr_expect_eq(gp_proc_cgroup_limits(root, 7, limits), GP_CGROUP_LIMITS);
    put("/proc/7/cgroup", "0::/../a\n");
    cr_expect_eq(gp_proc_cgroup_limits(root, 7, limits), 0, "outside of our namespace");
}

/* ---- to the byte ------------------------------------------------------------------------------------------------- */

static size_t piece; /* bytes that a read gives at most; 0: any */

STANDIN(ssize_t, read, int fd, void *into, size_t bytes)
{
    return __real_read(fd, into, piece && piece < bytes ? piece : bytes);
}

/* "controller region limit used guaranteed" of each row. */
static const char *shown(void)
{
    static char text[2000];
    memset(limits, 0x55, sizeof(limits));
    int fd = dup(2), count = gp_proc_cgroup_limits(root, 7, limits), again = dup(2);
    cr_expect_eq(again, fd + 1, "a descriptor is left open");
    close(again);
    close(fd);
    text[0] = '\0';
    for (int i = 0; i < count; i++)
        sprintf(text + strlen(text), "%s %s %lld %lld %lld\n", limits[i].controller, limits[i].region,
                (long long)limits[i].limit_bytes, (long long)limits[i].used_bytes,
                (long long)limits[i].guaranteed_bytes);
    return text;
}

static void controllers(void)
{
    put("/sys/fs/cgroup/cgroup.controllers", "dmem misc\n");
}

Test(cgrouplimit, files_that_come_in_pieces)
{
    controllers();
    put("/sys/fs/cgroup/pods/a/dmem.max", "r1 100\nr2 max\n");
    put("/sys/fs/cgroup/pods/a/dmem.current", "r2 7\nr1 8\n");
    put("/sys/fs/cgroup/pods/a/dmem.min", "r1 9\n");
    put("/sys/fs/cgroup/pods/a/misc.max", "nvidia0 50\n");
    put("/proc/7/cgroup", "12:memory:/x\n0::/pods/a\n");
    for (piece = 0; piece < 20; piece++)
        cr_expect_str_eq(shown(), "dmem r1 100 8 9\ndmem r2 -1 7 -1\nmisc nvidia0 50 -1 -1\n", "%zu", piece);
    piece = 0;
}

/* 4095 bytes of a file are read. */
Test(cgrouplimit, files_that_are_too_long)
{
    char text[5000] = "";
    controllers();
    put("/proc/7/cgroup", "0::/a\n");
    for (int i = 0; i < 511; i++)
        strcat(text, "r0000 5\n");
    strcat(text, "z1234 7777\n");
    put("/sys/fs/cgroup/a/dmem.max", text);
    cr_expect_str_eq(shown(), "dmem r0000 5 -1 -1\ndmem z1234 7 -1 -1\n");
    piece = 1000;
    cr_expect_str_eq(shown(), "dmem r0000 5 -1 -1\ndmem z1234 7 -1 -1\n");
    piece = 0;
}

Test(cgrouplimit, which_cgroup_counts)
{
    static const struct {
        const char *cgroup, *wanted;
    } rows[] = {{"0::/a/b", "dmem r 50 3 4\n"},
                {"0::/a", "dmem r 60 1 2\n"},
                {"0::/", "dmem r 70 5 6\n"},
                {"0::/a/none", "dmem r 60 -1 -1\n"},
                {"1::/a", ""},
                {"0:x:/a", ""},
                {"10::/a", ""},
                {"0::a", ""},
                {"0::/a/../a", ""},
                {"0::/a/..b", ""},
                {"0::/a..b", "dmem r 70 -1 -1\n"},
                {"1:cpu:/b\n0::/a\n0::/a/b", "dmem r 60 1 2\n"},
                {"", ""}};
    controllers();
    put("/sys/fs/cgroup/a/b/dmem.max", "r 50\n"); /* the least of the path */
    put("/sys/fs/cgroup/a/b/dmem.current", "r 3\n");
    put("/sys/fs/cgroup/a/b/dmem.min", "r 4\n");
    put("/sys/fs/cgroup/a/dmem.max", "r 60\n");
    put("/sys/fs/cgroup/a/dmem.current", "r 1\n");
    put("/sys/fs/cgroup/a/dmem.min", "r 2\n");
    put("/sys/fs/cgroup/dmem.max", "r 70\n");
    put("/sys/fs/cgroup/dmem.current", "r 5\n");
    put("/sys/fs/cgroup/dmem.min", "r 6\n");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        put("/proc/7/cgroup", rows[i].cgroup);
        cr_expect_str_eq(shown(), rows[i].wanted, "%s: %s", rows[i].cgroup, shown());
    }
    put("/proc/7/cgroup", "0::/a/b");
    put("/sys/fs/cgroup/a/dmem.max", "r 40\n");
    cr_expect_str_eq(shown(), "dmem r 40 3 4\n");
    put("/sys/fs/cgroup/dmem.max", "r 0\n");
    cr_expect_str_eq(shown(), "dmem r 0 3 4\n");
}

Test(cgrouplimit, which_lines_count)
{
    static const struct {
        const char *controller, *line, *wanted;
    } rows[] = {
        {"dmem", "r 5\n", "dmem r 5 -1 -1\n"},
        {"dmem", "r 0\n", "dmem r 0 -1 -1\n"},
        {"dmem", "r -1\n", "dmem r -1 -1 -1\n"},
        {"dmem", "r \n", "dmem r -1 -1 -1\n"},
        {"dmem", "r 5x\n", "dmem r -1 -1 -1\n"},
        {"dmem", "r5\n", ""},
        {"dmem", "a b 5\n", ""},
        {"dmem", "!~ 5\n", "dmem !~ 5 -1 -1\n"},
        {"dmem", "a\x7f 5\n", ""},
        {"dmem", "a\x1f 5\n", ""},
        {"dmem", "a 9223372036854775807\n", "dmem a 9223372036854775807 -1 -1\n"},
        {"dmem", "\n\nr 5\n\nr 4\nr 6\n", "dmem r 4 -1 -1\n"},
        {"dmem", "0123456789012345678901234567890123456789012345678901234567890123456789 5\n",
         "dmem 012345678901234567890123456789012345678901234567890123456789012 5 -1 -1\n"},
        {"misc", "nvidia 5\n", "misc nvidia 5 -1 -1\n"},
        {"misc", "nvidi 5\nNvidia 5\nsev 5\n", ""},
        {"cpu", "r 5\n", ""},
    };
    char path[100];
    controllers();
    put("/proc/7/cgroup", "0::/a");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        snprintf(path, sizeof(path), "/sys/fs/cgroup/a/%s.max", rows[i].controller);
        put(path, rows[i].line);
        cr_expect_str_eq(shown(), rows[i].wanted, "%s: %s", rows[i].line, shown());
        put(path, "");
    }
}

/* Nine regions, of which eight find room; what is said of the ninth is lost, and of the others kept. */
Test(cgrouplimit, there_are_eight_rows)
{
    controllers();
    put("/proc/7/cgroup", "0::/a");
    put("/sys/fs/cgroup/a/dmem.max", "1 1\n2 2\n3 3\n4 4\n5 5\n6 6\n7 7\n");
    put("/sys/fs/cgroup/a/misc.max", "nvidia8 8\nnvidia9 9\n");
    put("/sys/fs/cgroup/a/misc.current", "nvidia9 9\nnvidia8 88\n");
    cr_expect_str_eq(shown(), "dmem 1 1 -1 -1\ndmem 2 2 -1 -1\ndmem 3 3 -1 -1\ndmem 4 4 -1 -1\ndmem 5 5 -1 -1\n"
                              "dmem 6 6 -1 -1\ndmem 7 7 -1 -1\nmisc nvidia8 8 88 -1\n");
    put("/sys/fs/cgroup/a/dmem.max", "nvidia8 3\n"); /* of two controllers it is two rows */
    cr_expect_str_eq(shown(), "dmem nvidia8 3 -1 -1\nmisc nvidia8 8 88 -1\nmisc nvidia9 9 9 -1\n");
}

/* Beside version 1 version 2 is mounted elsewhere; the usual place comes first. */
Test(cgrouplimit, where_version_2_is_mounted)
{
    put("/proc/7/cgroup", "0::/a");
    put("/sys/fs/cgroup/unified/cgroup.controllers", "misc\n");
    put("/sys/fs/cgroup/unified/a/dmem.max", "u 5\n");
    put("/sys/fs/cgroup/a/dmem.max", "r 6\n");
    cr_expect_str_eq(shown(), "dmem u 5 -1 -1\n");
    controllers();
    cr_expect_str_eq(shown(), "dmem r 6 -1 -1\n");
    static char longest[PATH_MAX + 10];
    memset(longest, 'x', PATH_MAX + 5);
    cr_expect_eq(gp_proc_cgroup_limits(longest, 7, limits), 0);
}

/* ---- what is made of them ---------------------------------------------------------------------------------------- */

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
