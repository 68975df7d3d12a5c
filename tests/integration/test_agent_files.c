/* SPDX-License-Identifier: MIT
 *
 * test_agent_files.c: tests the agent's files and log: a library replaced by a package, the pins'
 * group, foreign entries, ports in use, and failed allocations.
 */
#include "integration/agentcase.h"
#include <agent/kernel/bpf.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <sys/socket.h>
#include <sys/syscall.h>

TestSuite(agent_files, .fini = end, .timeout = 180);

/* The agent checks twice a second; a loaded machine may take longer. */
#define PATIENCE_MS 30000

static unsigned logged(const char *word)
{
    unsigned count = 0;
    char *words = agent_words(&agent);
    for (const char *at = words ? strstr(words, word) : NULL; at; at = strstr(at + 1, word))
        count++;
    free(words);
    return count;
}

static bool is_logged_in_time(const char *word, unsigned times)
{
    for (int ms = 0; ms < PATIENCE_MS && logged(word) < times; ms += 50)
        usleep(50000);
    return logged(word) >= times;
}

static void expect_end(const char *const *more, int code, const char *word)
{
    int status = -1;
    int error = agent_start(&agent, &place, &(struct agent_options){.more = more}, &status, why, sizeof why);
    cr_assert(eq(int, error, -ECHILD), "it runs");
    if (ended_with(status, 77) && code != 77)
        cr_skip_test("%s", why);
    cr_assert(ended_with(status, code), "%d: %s", status, why);
    cr_assert(strstr(why, word) != NULL, "no '%s' in: %s", word, why);
}

/* ---- the library ------------------------------------------------------------------------------------------------- */

static void replace_library(void)
{
    char next[128];
    const char *copy = place_copy(&place, place.library, "next.so");
    cr_assert(copy != NULL);
    snprintf(next, sizeof next, "%s", copy);
    cr_assert(rename(next, place.library) == 0);
}

static int64_t allocated_by(struct kid *kid)
{
    struct gp_map_process_key key = {.tgid = (uint32_t)kid->pid};
    struct gp_map_process row = {.allocated_bytes = -1};
    return bpf_map_lookup_elem(process_fd, &key, &row) ? -1 : row.allocated_bytes;
}

static bool is_counted_in_time(struct kid *kid, int64_t bytes)
{
    for (int ms = 0; ms < PATIENCE_MS && allocated_by(kid) != bytes; ms += 50)
        usleep(50000);
    return allocated_by(kid) == bytes;
}

/* An upgrade: running programs keep the old file, new ones load the new one, and both are counted. */
Test(agent_files, a_replaced_library_is_armed_beside_the_old_one, .init = begin)
{
    struct kid *old = walk(groups[0]);
    cr_assert(ge(i64, kid_tell(old, "a 0 %lld", 2 * MIB), 0));
    cr_assert(is_counted_in_time(old, 2 * MIB));
    cr_assert(eq(uint, logged("armed /"), 1));
    replace_library();
    cr_assert(is_logged_in_time("armed /", 2));
    struct kid *new = walk(groups[1]);
    cr_assert(ge(i64, kid_tell(new, "a 0 %lld", 4 * MIB), 0));
    cr_assert(is_counted_in_time(new, 4 * MIB));
    cr_assert(ge(i64, kid_tell(old, "a 0 %lld", 2 * MIB), 0));
    cr_assert(is_counted_in_time(old, 4 * MIB), "the old one is no longer counted");
    sleep(2);
    cr_assert(eq(uint, logged("armed /"), 2), "an unchanged file was armed again");
}

/* A probe as perf and tracefs place it, without the semaphore. */
static int foreign_probe(const char *path)
{
    struct gp_bpf_probe probe;
    char text[16] = "";
    int file = open(path, O_RDONLY | O_CLOEXEC);
    FILE *type = fopen("/sys/bus/event_source/devices/uprobe/type", "re");
    if (!type)
        cr_skip_test("no perf uprobes");
    cr_assert(file >= 0 && gp_bpf_probe_find(file, &probe) == 0 && fgets(text, sizeof text, type));
    struct perf_event_attr attr = {
        .type = (uint32_t)atoi(text), .size = sizeof attr, .config1 = (uintptr_t)path, .config2 = probe.offset};
    int fd = (int)syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
    fclose(type);
    close(file);
    cr_assert(fd >= 0, "%s", strerror(errno));
    return fd;
}

/* Another tracer that was there first prevents our probe; programs are counted once it has gone. */
Test(agent_files, a_probe_of_another_tracer_is_waited_for, .init = make_place)
{
    int foreign = foreign_probe(place.library);
    start_agent(&(struct agent_options){0});
    cr_assert(is_logged_in_time("another tracer", 1));
    struct kid *kid = walk(groups[0]);
    cr_assert(ge(i64, kid_tell(kid, "a 0 %lld", 2 * MIB), 0));
    sleep(3);
    cr_assert(eq(uint, logged("armed /"), 0));
    cr_assert(le(i64, allocated_by(kid), 0), "it is counted without the probe");
    cr_assert(le(uint, logged("another tracer"), 2), "a line for each try");
    close(foreign);
    cr_assert(is_logged_in_time("armed /", 1), "not tried again");
    cr_assert(is_counted_in_time(kid, 2 * MIB));
}

Test(agent_files, a_library_that_others_may_write_is_refused, .init = make_place)
{
    cr_assert(chmod(place.library, 0666) == 0);
    expect_end(NULL, 2, "may write it");
    cr_assert(chmod(place.library, 0644) == 0 && chown(place.library, OTHERS, OTHERS) == 0);
    expect_end(NULL, 2, "root");
    cr_assert(access(place.pins, F_OK) != 0, "pins remain");
}

Test(agent_files, a_library_without_the_probe_is_refused, .init = make_place)
{
    expect_end((const char *[]){"--library", "/proc/self/exe", NULL}, 2, "no probe");
    expect_end((const char *[]){"--library", "/nonexistent/libgpuprof.so", NULL}, 2, "No such file");
    cr_assert(access(place.pins, F_OK) != 0, "pins remain");
}

/* ---- pins -------------------------------------------------------------------------------------------------------- */

static void begin_group(void)
{
    begin_with((const char *[]){"--group", "daemon", NULL});
}

Test(agent_files, a_group_may_read_the_table_of_processes, .init = begin_group)
{
    char path[128];
    struct stat table, ring;
    snprintf(path, sizeof path, "%s/process_device", place.pins);
    cr_assert(stat(path, &table) == 0);
    snprintf(path, sizeof path, "%s/events", place.pins);
    cr_assert(stat(path, &ring) == 0);
    cr_assert(table.st_gid != 0 && (table.st_mode & 0777) == 0640);
    cr_assert(ring.st_gid == 0 && (ring.st_mode & 0777) == 0600);
}

Test(agent_files, foreign_entries_stay, .init = begin)
{
    char ours[128], theirs[128];
    struct stat about;
    snprintf(theirs, sizeof theirs, "%s/mine", place.pins);
    cr_assert(bpf_obj_pin(share_fd, theirs) == 0);
    close_maps();
    cr_assert(ended_with(agent_stop(&agent, SIGTERM), 0));
    cr_assert(stat(theirs, &about) == 0, "a foreign pin was removed");
    snprintf(ours, sizeof ours, "%s/meta", place.pins);
    cr_assert(stat(ours, &about) != 0, "a pin of the agent remains");
    /* A foreign map under one of the agent's names is not overwritten either. */
    snprintf(ours, sizeof ours, "%s/device", place.pins);
    cr_assert(rename(theirs, ours) == 0);
    expect_end(NULL, 1, ours);
    cr_assert(stat(ours, &about) == 0);
    cr_assert(unlink(ours) == 0);
}

Test(agent_files, without_its_pins_it_ends, .init = begin)
{
    char path[128];
    int status = 0;
    snprintf(path, sizeof path, "%s/meta", place.pins);
    cr_assert(unlink(path) == 0);
    cr_assert(is_logged_in_time("another process removed", 1));
    cr_assert(waitpid(agent.pid, &status, 0) == agent.pid);
    agent.pid = 0;
    cr_assert(ended_with(status, 1), "%d", status);
    cr_assert(access(place.pins, F_OK) != 0, "the remaining pins were not removed");
}

/* The pins are removed and a second agent starts there: the first one exits and does not touch the
 * second one's. */
Test(agent_files, it_removes_only_its_own_pins, .init = begin)
{
    char command[256];
    struct agent first = agent;
    struct gp_map_meta meta;
    int status = 0;
    close_maps();
    snprintf(command, sizeof command, "rm -f %s/* 2>/dev/null; rmdir %s/lock %s", place.pins, place.pins, place.pins);
    cr_assert(system(command) == 0);
    agent = (struct agent){0};
    start_agent(&(struct agent_options){0});
    cr_assert(waitpid(first.pid, &status, 0) == first.pid);
    cr_assert(ended_with(status, 1), "%d", status);
    close(first.notify_fd);
    sleep(2);
    cr_assert(agent_meta(&place, &meta) == 0 && meta.agent_pid == (uint32_t)agent.pid,
              "the second one's pins were removed");
}

/* ---- the web server ---------------------------------------------------------------------------------------------- */

Test(agent_files, a_port_in_use_is_reported_and_no_pins_stay, .init = make_place)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    char port[16];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 1) == 0);
    cr_assert(getsockname(fd, (struct sockaddr *)&at, &bytes) == 0);
    snprintf(port, sizeof port, "%u", ntohs(at.sin_port));
    expect_end((const char *[]){"--listen", port, NULL}, 1, "in use");
    close(fd);
    cr_assert(access(place.pins, F_OK) != 0, "pins remain");
}

/* ---- failed allocations ------------------------------------------------------------------------------------------ */

Test(agent_files, a_failed_allocation_is_logged_with_its_cgroup, .init = begin)
{
    char word[256];
    struct kid *kid = walk(groups[0]);
    cr_assert(ge(i64, kid_tell(kid, "a 0 %lld", 2 * MIB), 0));
    cr_assert(eq(i64, kid_tell(kid, "a 0 %lld", 1024 * GIB), -2), "the allocation did not fail");
    snprintf(word, sizeof word, "allocation failed: pid %d (agent_walk) in ", (int)kid->pid);
    cr_assert(is_logged_in_time(word, 1));
    snprintf(word, sizeof word, "requested %lld bytes on its GPU 0 (GPU-", 1024 * GIB);
    cr_assert(eq(uint, logged(word), 1));
    cr_assert(eq(uint, logged(strrchr(place.groups[groups[0]].path, '/')), 1), "its cgroup is not named");
}

/* One container floods; another one's failure is logged all the same, and every suppressed line is
 * counted. */
Test(agent_files, a_flood_of_failures_is_counted_and_hides_no_other, .init = begin)
{
    enum { MANY = 2000 };
    char word[256];
    struct kid *flooder = walk(groups[0]), *quiet = walk(groups[1]);
    for (int i = 0; i < MANY; i++)
        cr_assert(eq(i64, kid_tell(flooder, "a 0 %lld", 1024 * GIB), -2));
    cr_assert(eq(i64, kid_tell(quiet, "a 0 %lld", 1024 * GIB), -2));
    snprintf(word, sizeof word, "allocation failed: pid %d ", (int)quiet->pid);
    cr_assert(is_logged_in_time(word, 1));
    sleep(2);
    close_maps();
    cr_assert(ended_with(agent_stop(&agent, SIGTERM), 0));
    unsigned lines = logged("allocation failed: ");
    char *words = agent_words(&agent), *sums = strstr(words, "stats: events ");
    unsigned long long failures = 0, suppressed = 0, told = 0, one;
    cr_assert(sums != NULL);
    cr_assert(sscanf(strstr(sums, "failed allocations "), "failed allocations %llu (suppressed %llu)", &failures,
                     &suppressed) == 2);
    for (char *at = words; (at = strstr(at, "gpuprof: agent: ")); at++)
        if (sscanf(at, "gpuprof: agent: suppressed %llu further", &one) == 1)
            told += one;
    cr_log_info("%llu failures, %u lines, %llu suppressed", failures, lines, suppressed);
    cr_assert(eq(u64, failures, (uint64_t)MANY + 1));
    cr_assert(eq(u64, lines + suppressed, failures));
    cr_assert(eq(u64, told, suppressed), "suppressed lines were not logged as counted");
    cr_assert(suppressed > 0);
    free(words);
}
