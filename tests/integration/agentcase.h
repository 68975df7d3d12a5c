/* SPDX-License-Identifier: MIT
 *
 * agentcase.h: fixtures shared by the tests of the agent: a place, an agent in it, programs that
 * hold memory, and readers of the maps and of the commands' output. Each test program has one copy.
 */
#ifndef GP_TEST_INTEGRATION_AGENTCASE_H
#define GP_TEST_INTEGRATION_AGENTCASE_H

#include "lib/agent.h"
#include "lib/ledger.h"
#include "lib/paths.h"
#include <bpf/bpf.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CASE __attribute__((unused))

#define MIB    (1ll << 20)
#define GIB    (1ll << 30)
#define KIDS   8
#define OTHERS 65534
#define SIM    "devices=2,memory=64GiB"

static struct place place;
static struct agent agent;
static struct kid kids[KIDS];
static int kid_count, groups[4];
static int process_fd = -1, container_fd = -1, device_fd = -1, share_fd = -1;
static uint8_t uuids[2][16]; /* of the simulated GPUs, as reported by the first process */
static char why[1024];

CASE static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

CASE static bool ended_with(int status, int code)
{
    return WIFEXITED(status) && WEXITSTATUS(status) == code;
}

/* ---- setup and teardown ------------------------------------------------------------------------------------------ */

CASE static void open_maps(void)
{
    process_fd = agent_map(&place, "process_device");
    container_fd = agent_map(&place, "container_device");
    device_fd = agent_map(&place, "device");
    share_fd = agent_map(&place, "container");
    cr_assert(process_fd >= 0 && container_fd >= 0 && device_fd >= 0 && share_fd >= 0, "the pins are missing");
}

CASE static void close_maps(void)
{
    int fds[] = {process_fd, container_fd, device_fd, share_fd};
    for (int i = 0; i < 4; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    process_fd = container_fd = device_fd = share_fd = -1;
}

CASE static void start_agent(const struct agent_options *options)
{
    int status;
    int error = agent_start(&agent, &place, options, &status, why, sizeof why);
    if (error == -ECHILD && ended_with(status, 77))
        cr_skip_test("%s", why);
    cr_assert(error == 0, "%s", why);
    open_maps();
}

CASE static void make_place(void)
{
    int error = place_make(&place, why, sizeof why);
    if (error == -EPERM || error == -ENOTSUP)
        cr_skip_test("%s", why);
    cr_assert(error == 0, "%s", why);
    for (int i = 0; i < 3; i++)
        groups[i] = place_group(&place, false);
    cr_assert(groups[0] >= 0 && groups[1] >= 0 && groups[2] >= 0);
}

CASE static void begin_with(const char *const *more)
{
    make_place();
    start_agent(&(struct agent_options){.more = more});
}

CASE static void begin(void)
{
    begin_with(NULL);
}

CASE static void end(void)
{
    for (int i = 0; i < kid_count; i++)
        kid_end(&kids[i], SIGKILL);
    close_maps();
    if (agent.pid > 0)
        agent_stop(&agent, SIGTERM);
    if (place_free(&place, why, sizeof why) != 0)
        cr_log_error("%s", why);
}

CASE static struct kid *walk(int group)
{
    static char program[4096];
    if (!program[0])
        snprintf(program, sizeof program, "%s", path_program("agent_walk"));
    struct kid *kid = &kids[kid_count++];
    cr_assert(kid_start(kid, &place, &(struct kid_options){.file = program, .group = group, .sim = SIM}) == 0,
              "the program did not start");
    return kid;
}

/* ---- readers of the maps ----------------------------------------------------------------------------------------- */

CASE static bool row_of(pid_t pid, uint32_t device, struct gp_map_process *row)
{
    struct gp_map_process_key key = {.tgid = (uint32_t)pid, .device = device};
    return bpf_map_lookup_elem(process_fd, &key, row) == 0;
}

CASE static struct gp_map_sum device_sum(int device)
{
    struct gp_map_device_key key;
    struct gp_map_sum sum = {0};
    memcpy(key.uuid, uuids[device], 16);
    bpf_map_lookup_elem(device_fd, &key, &sum);
    return sum;
}

CASE static bool container_row(int group, int device, struct gp_map_sum *sum)
{
    struct gp_map_container_key key = {.cgroup_id = place.groups[group].id};
    memcpy(key.uuid, uuids[device], 16);
    *sum = (struct gp_map_sum){0};
    return bpf_map_lookup_elem(container_fd, &key, sum) == 0;
}

CASE static struct gp_map_sum container_sum(int group, int device)
{
    struct gp_map_sum sum;
    container_row(group, device, &sum);
    return sum;
}

CASE static struct gp_map_container share(int group)
{
    struct gp_map_container row = {0};
    bpf_map_lookup_elem(share_fd, &place.groups[group].id, &row);
    return row;
}

/* Waits until the kernel has counted this many calls of the process and knows its GPU. */
CASE static void settle(const struct kid *kid, int device, long long calls, long long frees)
{
    static const uint8_t unknown[16];
    struct gp_map_process row = {0};
    for (uint64_t until = now_ns() + 20000000000ull; now_ns() < until; usleep(200)) {
        if (row_of(kid->pid, (uint32_t)device, &row) && row.calls == calls && row.frees == frees &&
            memcmp(row.uuid, unknown, 16) != 0) {
            memcpy(uuids[device], row.uuid, 16);
            return;
        }
    }
    cr_assert(false, "pid %d, GPU %d: %lld calls and %lld frees were made, the kernel knows of %lld and %lld",
              (int)kid->pid, device, calls, frees, (long long)row.calls, (long long)row.frees);
}

/* Makes one allocation on the first device that the kernel has counted. */
CASE static struct kid *walk_with(int group, long long bytes)
{
    struct kid *kid = walk(group);
    cr_assert(ge(i64, kid_tell(kid, "a 0 %lld", bytes), 0));
    settle(kid, 0, 1, 0);
    return kid;
}

/* ---- output of the commands -------------------------------------------------------------------------------------- */

CASE static json_t *command_json(struct spawn_result *result, const char *schema)
{
    json_error_t error;
    cr_assert(result->status == 0, "%s: %s", spawn_status_text(result), result->err);
    json_t *top = json_loads(result->out, JSON_REJECT_DUPLICATES, &error);
    cr_assert(top != NULL, "line %d: %s\n%s", error.line, error.text, result->out);
    cr_assert_str_eq(json_string_value(json_object_get(top, "schema")), schema);
    spawn_result_free(result);
    return top;
}

CASE static json_t *top_json(void)
{
    struct spawn_result result;
    cr_assert(spawn_command(&result, "top", "--system", "--once", "--json", "--pins", place.pins, NULL) == 0);
    return command_json(&result, "gpuprof.top/1");
}

CASE static json_t *stat_json(void)
{
    struct spawn_result result;
    cr_assert(spawn_command(&result, "stat", "--all", "--json", "--pins", place.pins, NULL) == 0);
    return command_json(&result, "gpuprof.stat/1");
}

CASE static void uuid_text(char out[48], int device)
{
    const uint8_t *u = uuids[device];
    snprintf(out, 48, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2],
             u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

CASE static int64_t number(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    cr_assert(eq(int, json_is_integer(value), 1), "%s is not a number", key);
    return json_integer_value(value);
}

CASE static const json_t *top_device(const json_t *top, int device)
{
    char uuid[48];
    size_t i;
    json_t *one;
    uuid_text(uuid, device);
    json_array_foreach(json_object_get(top, "devices"), i, one)
    {
        const char *text = json_string_value(json_object_get(one, "uuid"));
        if (text && !strcmp(text, uuid))
            return one;
    }
    cr_assert(false, "top --system does not list %s", uuid);
    return NULL;
}

CASE static const json_t *top_container(const json_t *top, int group, int device)
{
    int64_t index = number(top_device(top, device), "device");
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(top, "containers"), i, one)
    {
        if (json_integer_value(json_object_get(one, "cgroup_id")) == (json_int_t)place.groups[group].id &&
            json_integer_value(json_object_get(one, "device")) == index)
            return one;
    }
    return NULL;
}

CASE static const json_t *stat_process(const json_t *stat, pid_t pid)
{
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(stat, "processes"), i, one)
    {
        if (json_integer_value(json_object_get(one, "pid")) == pid)
            return one;
    }
    return NULL;
}

CASE static int64_t stat_number(const json_t *stat, pid_t pid, int device, const char *key)
{
    const json_t *process = stat_process(stat, pid);
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(process, "devices"), i, one)
    {
        if (json_integer_value(json_object_get(one, "device")) == device)
            return number(json_object_get(one, "stats"), key);
    }
    return 0;
}

CASE static void ledger_add(const struct kid *kid, int64_t allocated[2], int64_t reserved[2])
{
    char path[128];
    snprintf(path, sizeof path, "%s/ledger.%d", place.dir, (int)kid->pid);
    cr_assert(eq(i64, kid_tell((struct kid *)kid, "l %s", path), 0));
    json_t *ledger = json_load_file(path, 0, NULL);
    cr_assert(ledger != NULL);
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(ledger, "devices"), i, one)
    {
        allocated[i] += json_at(one, "allocated_bytes/current", 0);
        reserved[i] += json_at(one, "reserved_bytes/current", 0);
    }
    json_decref(ledger);
    unlink(path);
}

/* The sum of one family's samples whose labels contain the text. */
CASE static double page_sum(const char *page, const char *family, const char *text)
{
    double sum = 0;
    size_t length = strlen(family);
    for (const char *line = page; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        const char *end = strchr(line, '\n'), *space;
        size_t bytes = end ? (size_t)(end - line) : strlen(line);
        if (strncmp(line, family, length) != 0 || line[length] != '{' || !memmem(line, bytes, text, strlen(text)))
            continue;
        space = memrchr(line, ' ', bytes);
        sum += space ? atof(space) : 0;
    }
    return sum;
}

CASE static char *command_words(const char *first, ...)
{
    const char *argv[16] = {path_command(), first};
    int count = 2;
    va_list more;
    va_start(more, first);
    while (count < 15 && (argv[count] = va_arg(more, const char *)) != NULL)
        count++;
    va_end(more);
    argv[count] = NULL;
    struct spawn_result result;
    char *text = NULL;
    cr_assert(spawn_run(&(struct spawn_options){.argv = argv}, &result) == 0);
    cr_assert(asprintf(&text, "%s%s", result.out, result.err) >= 0);
    spawn_result_free(&result);
    return text;
}

CASE static void begin_listening(void)
{
    begin_with((const char *[]){"--listen", "127.0.0.1:0", NULL});
}

CASE static bool has_setpriv(void)
{
    return system("setpriv --version >/dev/null 2>&1") == 0;
}

#define FOUR "-all,+bpf,+perfmon,+sys_ptrace,+dac_read_search"

CASE static const char *const four[] = {"setpriv", "--bounding-set=" FOUR, "--inh-caps=" FOUR, NULL};

/* uprobe_multi needs no CAP_SYS_ADMIN to place a probe; older kernels do. */
CASE static void begin_four(void)
{
    char release[64] = "";
    int major = 0, minor = 0;
    FILE *file = fopen("/proc/sys/kernel/osrelease", "re");
    if (file && fgets(release, sizeof release, file))
        sscanf(release, "%d.%d", &major, &minor);
    if (file)
        fclose(file);
    if (!has_setpriv())
        cr_skip_test("no setpriv");
    if (major < 6 || (major == 6 && minor < 6))
        cr_skip_test("Linux %d.%d: probes take CAP_SYS_ADMIN there", major, minor);
    make_place();
}

CASE static void expect_four(void)
{
    char path[64], line[128];
    unsigned long long effective = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)agent.pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "CapEff: %llx", &effective);
    if (file)
        fclose(file);
    cr_assert(eq(u64, effective,
                 1ull << CAP_BPF | 1ull << CAP_PERFMON | 1ull << CAP_SYS_PTRACE | 1ull << CAP_DAC_READ_SEARCH));
}

#endif
