/* SPDX-License-Identifier: MIT
 *
 * A session from outside: sealed, gone with its process however that ends, reset and scoped exactly, traced by several
 * viewers at once, wide enough for many devices.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "integration/command.h"
#include "lib/ledger.h"

#define MIB       (1024ll * 1024)
#define ALLOCATED "devices/0/stats/allocated_bytes.all."
#define RESERVED  "devices/0/stats/reserved_bytes.all."

TestSuite(session, .timeout = 90);

static void session_start(struct spawn *spawn, const char *program, const char *sim)
{
    const char *argv[] = {path_program(program), NULL};
    program_hold(spawn, &(struct spawn_options){.argv = argv, .sim = sim, .want_library = true});
}

static long long session_value(pid_t pid, const char *path)
{
    struct ledger_diff diff = {0};
    json_t *process = ledger_stat(&diff, pid);
    long long value = json_at(process, path, -1);
    cr_expect_not_null(process, "%s", diff.text);
    json_decref(process);
    return value;
}

/* ---- the memory file ----------------------------------------------------------------------------------------- */

static int session_open(pid_t pid)
{
    char path[300], target[256];
    struct dirent *entry;
    int fd = -1;
    DIR *dir;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    while (dir != NULL && fd < 0 && (entry = readdir(dir)) != NULL) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)pid, entry->d_name);
        ssize_t len = readlink(path, target, sizeof(target) - 1);
        target[len > 0 ? len : 0] = '\0';
        if (strstr(target, "memfd:gpuprof-session") != NULL)
            fd = open(path, O_RDWR | O_CLOEXEC);
    }
    if (dir != NULL)
        closedir(dir);
    return fd;
}

Test(session, is_sealed_against_every_change_of_size)
{
    struct spawn spawn;
    int fd, seals, wanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    session_start(&spawn, "steps", NULL);
    fd = session_open(spawn.held[0]);
    cr_assert_geq(fd, 0, "no memfd named gpuprof-session");
    seals = fcntl(fd, F_GET_SEALS);
    cr_expect_eq(seals & wanted, wanted, "seals %d", seals);
    cr_expect(ftruncate(fd, 0) != 0 && errno == EPERM);
    cr_expect(ftruncate(fd, 1l << 30) != 0 && errno == EPERM);
    close(fd);
    program_end(&spawn);
}

/* ---- kill -9 ------------------------------------------------------------------------------------------------- */

/* The files of all temporary folders with gpuprof in their names, without those of a test.  Others may work on this machine
 * meanwhile: the library makes no folders, and the devices of this test's programs are not shared. */
static json_t *session_files(void)
{
    static const char *const folders[] = {"/dev/shm", "/tmp", "/run", "/var/tmp"};
    json_t *files = json_object();
    char path[300];
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        DIR *dir = opendir(folders[i]);
        struct dirent *entry;
        while (dir != NULL && (entry = readdir(dir)) != NULL) {
            bool others = entry->d_type == DT_DIR || strncmp(entry->d_name, "gpuprof-sim-", 12) == 0;
            if (!others && strstr(entry->d_name, "gpuprof") != NULL && strstr(entry->d_name, "gpuprof-test") == NULL) {
                snprintf(path, sizeof(path), "%s/%s", folders[i], entry->d_name);
                json_object_set_new(files, path, json_true());
            }
        }
        if (dir != NULL)
            closedir(dir);
    }
    return files;
}

/* Other tests have such files too, and remove them: one that a killed process left behind stays. */
static void session_expect_none_left(json_t *before)
{
    json_t *after = session_files(), *value;
    const char *path;
    json_object_foreach(after, path, value)
    {
        bool is_new = json_object_get(before, path) == NULL;
        for (int tries = 0; is_new && access(path, F_OK) == 0 && tries < 600; tries++)
            usleep(100000);
        cr_expect(!is_new || access(path, F_OK) != 0, "%s was left behind", path);
    }
    json_decref(after);
}

Test(session, killed_in_mid_update_leaves_nothing)
{
    json_t *before = session_files();
    int round;
    for (round = 0; round < 10; round++) {
        struct timespec wait = {0, 3000000 + round * 7654321};
        long long current, peak;
        struct spawn spawn;
        pid_t pid;
        session_start(&spawn, "killed", NULL);
        pid = spawn.held[0];
        spawn_release(&spawn);
        nanosleep(&wait, NULL);
        /* Read while it changes: 1 MiB stays, at most 64 + 128 + 192 + 256 KiB come and go. */
        current = session_value(pid, ALLOCATED "current");
        cr_expect(current >= MIB && current <= MIB + 640 * 1024, "current %lld", current);
        peak = session_value(pid, ALLOCATED "peak");
        cr_expect(peak >= MIB && peak <= MIB + 640 * 1024, "peak %lld", peak);
        program_kill(&spawn);
        cr_expect(WIFSIGNALED(said.status) && WTERMSIG(said.status) == SIGKILL, "%s", spawn_status_text(&said));
        command(3, "stat", "--json", "-p", pid_text(pid), NULL);
    }
    session_expect_none_left(before);
    json_decref(before);
}

Test(session, unknown_processes_and_wrong_usage_have_their_exit_codes)
{
    command(3, "stat", "--json", "-p", pid_text(getpid()), NULL);
    command(2, "stat", "-p", "no-number", NULL);
    command(2, "reset", "-p", pid_text(getpid()), NULL);
    command(2, "no-such-command", NULL);
}

/* ---- resets -------------------------------------------------------------------------------------------------- */

static void session_reset(pid_t pid, const char *what, const char *key, long long before, long long after)
{
    json_t *root = NULL;
    char path[128];
    command(0, "reset", what, "--json", "-p", pid_text(pid), NULL);
    root = said_json();
    snprintf(path, sizeof(path), "processes/0/devices/0/before/%s", key);
    cr_expect_eq(json_at(root, path, -1), before, "reset %s: before %lld, not %lld", what, json_at(root, path, -1),
                 before);
    snprintf(path, sizeof(path), "processes/0/devices/0/after/%s", key);
    cr_expect_eq(json_at(root, path, -1), after, "reset %s: after %lld, not %lld", what, json_at(root, path, -1),
                 after);
    json_decref(root);
}

Test(session, resets_are_exact_and_touch_only_what_they_name)
{
    struct spawn spawn;
    pid_t pid;
    session_start(&spawn, "steps", NULL);
    pid = spawn.held[0];
    cr_expect_eq(session_value(pid, ALLOCATED "peak"), MIB);
    cr_assert_eq(spawn_step(&spawn), 0); /* 4 MiB came and went */
    cr_expect_eq(session_value(pid, ALLOCATED "peak"), 5 * MIB);
    session_reset(pid, "--allocated", "allocated_bytes.all.peak", 5 * MIB, MIB);
    cr_expect_eq(session_value(pid, ALLOCATED "peak"), MIB);
    cr_expect_eq(session_value(pid, "devices/0/stats/allocation.all.peak"), 1);
    cr_expect_eq(session_value(pid, RESERVED "peak"), 5 * MIB);
    cr_assert_eq(spawn_step(&spawn), 0); /* 2 MiB came and went */
    cr_expect_eq(session_value(pid, ALLOCATED "peak"), 3 * MIB);
    cr_expect_eq(session_value(pid, RESERVED "peak"), 5 * MIB);
    session_reset(pid, "--reserved", "reserved_bytes.all.peak", 5 * MIB, MIB);
    cr_expect_eq(session_value(pid, ALLOCATED "peak"), 3 * MIB);
    session_reset(pid, "--peaks", "allocated_bytes.all.peak", 3 * MIB, MIB);
    cr_expect_eq(session_value(pid, ALLOCATED "allocated"), 7 * MIB);
    command(0, "reset", "--accumulated", "-p", pid_text(pid), NULL);
    cr_expect_eq(session_value(pid, ALLOCATED "allocated"), 0);
    cr_expect_eq(session_value(pid, ALLOCATED "freed"), 0);
    cr_expect_eq(session_value(pid, ALLOCATED "current"), MIB);
    cr_assert_eq(spawn_step(&spawn), 0); /* 8 MiB came and went */
    cr_expect_eq(session_value(pid, ALLOCATED "peak"), 9 * MIB);
    cr_expect_eq(session_value(pid, ALLOCATED "allocated"), 8 * MIB);
    program_end(&spawn);
}

/* ---- scopes -------------------------------------------------------------------------------------------------- */

static long long session_scope_peak(pid_t pid, const char *name)
{
    struct ledger_diff diff = {0};
    json_t *process = ledger_stat(&diff, pid), *scope;
    long long peak = -1;
    size_t i;
    json_array_foreach(json_object_get(process, "scopes"), i, scope)
    {
        const char *found = json_string_value(json_object_get(scope, "name"));
        if (found != NULL && strcmp(found, name) == 0 && json_at(scope, "device", -1) == 0)
            peak = json_at(scope, "allocated_peak_bytes", -1);
    }
    json_decref(process);
    return peak;
}

Test(session, scopes_keep_their_own_peaks_through_resets)
{
    struct spawn spawn;
    pid_t pid;
    session_start(&spawn, "steps", NULL);
    pid = spawn.held[0];
    command(0, "scope", "begin", "outer", "-p", pid_text(pid), NULL);
    cr_expect_eq(session_scope_peak(pid, "outer"), MIB);
    cr_assert_eq(spawn_step(&spawn), 0);
    command(0, "scope", "begin", "inner", "-p", pid_text(pid), NULL);
    command(0, "reset", "--peaks", "-p", pid_text(pid), NULL);
    cr_assert_eq(spawn_step(&spawn), 0);
    cr_expect_eq(session_scope_peak(pid, "outer"), 5 * MIB);
    cr_expect_eq(session_scope_peak(pid, "inner"), 3 * MIB);
    cr_expect_eq(session_value(pid, ALLOCATED "peak"), 3 * MIB);
    command(0, "scope", "end", "inner", "-p", pid_text(pid), NULL);
    cr_assert_eq(spawn_step(&spawn), 0);
    cr_expect_eq(session_scope_peak(pid, "outer"), 9 * MIB);
    cr_expect_eq(session_scope_peak(pid, "inner"), -1, "an ended scope is still listed");
    command(1, "scope", "end", "never-begun", "-p", pid_text(pid), NULL);
    program_end(&spawn);
}

/* ---- traces -------------------------------------------------------------------------------------------------- */

static void session_trace_start(struct spawn *trace, pid_t pid)
{
    const char *argv[] = {path_command(), "trace", "--json", "-p", pid_text(pid), NULL};
    cr_assert_eq(spawn_start(trace, &(struct spawn_options){.argv = argv}), 0);
}

/* One line for each alloc or free: "alloc 4194304". */
static void session_trace_end(struct spawn *trace, char *summary, size_t size)
{
    char *line, *rest;
    size_t len = 0;
    spawn_result_free(&said);
    spawn_finish(trace, &said);
    cr_expect(WIFEXITED(said.status), "trace: %s\n%s", spawn_status_text(&said), said.err);
    rest = said.out;
    while ((line = strsep(&rest, "\n")) != NULL) {
        json_t *event = json_loads(line, 0, NULL);
        const char *type = json_string_value(json_object_get(event, "event"));
        if (type != NULL && (strcmp(type, "alloc") == 0 || strcmp(type, "free") == 0)) {
            long long bytes = json_at(event, "size_bytes", -1);
            len += (size_t)snprintf(summary + len, size - len, "%s %lld\n", type, bytes);
        }
        json_decref(event);
    }
}

Test(session, two_traces_at_once_see_the_same_events)
{
    static const char expected[] =
        "alloc 4194304\nfree 4194304\nalloc 2097152\nfree 2097152\nalloc 8388608\nfree 8388608\n";
    struct timespec settle = {1, 0}; /* a trace says nothing when it is attached; starting it takes some 10 ms */
    struct spawn spawn, first, second;
    char seen_first[4096] = "", seen_second[4096] = "";
    session_start(&spawn, "steps", NULL);
    session_trace_start(&first, spawn.held[0]);
    session_trace_start(&second, spawn.held[0]);
    nanosleep(&settle, NULL);
    cr_assert_eq(spawn_step(&spawn), 0);
    cr_assert_eq(spawn_step(&spawn), 0);
    cr_assert_eq(spawn_step(&spawn), 0);
    program_end(&spawn);
    session_trace_end(&first, seen_first, sizeof(seen_first));
    session_trace_end(&second, seen_second, sizeof(seen_second));
    /* What came before the trace may be shown first (the ring remembers), but the end must be this. */
    cr_expect(strlen(seen_first) >= strlen(expected) &&
                  strcmp(seen_first + strlen(seen_first) - strlen(expected), expected) == 0,
              "first trace:\n%s", seen_first);
    cr_expect_str_eq(seen_first, seen_second);
}

/* ---- many devices -------------------------------------------------------------------------------------------- */

Test(session, twenty_devices_are_told_apart)
{
    struct ledger_diff diff = {0};
    struct spawn spawn;
    json_t *process, *devices;
    size_t i, other;
    session_start(&spawn, "devices", "devices=20,memory=1GiB");
    process = ledger_stat(&diff, spawn.held[0]);
    devices = json_object_get(process, "devices");
    cr_assert_eq(json_array_size(devices), 20, "%zu devices\n%s", json_array_size(devices), diff.text);
    for (i = 0; i < 20; i++) {
        json_t *device = json_array_get(devices, i);
        const char *uuid = json_string_value(json_object_get(device, "uuid"));
        cr_expect_eq(json_at(device, "kinds/linear/current_bytes", -1), (long long)(i + 1) * MIB);
        cr_expect_eq(json_at(device, "kinds/vmm/current_bytes", -1), 2 * MIB);
        cr_expect_eq(json_at(device, "total_bytes", -1), 1024 * MIB);
        for (other = 0; other < i; other++) {
            const char *before = json_string_value(json_object_get(json_array_get(devices, other), "uuid"));
            cr_expect(uuid != NULL && before != NULL && strcmp(uuid, before) != 0, "devices %zu and %zu", i, other);
        }
    }
    json_decref(process);
    program_end(&spawn);
}

/* All names of torch.cuda.memory_stats are there, none null. */
Test(session, stat_has_every_statistic_of_pytorch)
{
    static const char *const sets[] = {"allocation",      "segment",        "active",       "inactive_split",
                                       "allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes",
                                       "requested_bytes"};
    static const char *const pools[] = {"all", "small_pool", "large_pool"};
    static const char *const values[] = {"current", "peak", "allocated", "freed"};
    struct ledger_diff diff = {0};
    struct spawn spawn;
    json_t *process, *stats;
    size_t set, pool, value;
    char key[96];
    session_start(&spawn, "linear", NULL);
    process = ledger_stat(&diff, spawn.held[0]);
    stats = json_object_get(json_array_get(json_object_get(process, "devices"), 0), "stats");
    cr_expect_eq(json_object_size(stats), 126, "%zu statistics", json_object_size(stats));
    for (set = 0; set < 9; set++) {
        for (pool = 0; pool < 3; pool++) {
            for (value = 0; value < 4; value++) {
                snprintf(key, sizeof(key), "%s.%s.%s", sets[set], pools[pool], values[value]);
                cr_expect(json_is_integer(json_object_get(stats, key)), "%s", key);
            }
        }
    }
    json_decref(process);
    program_end(&spawn);
}

/* Two viewers share the first slot for longer than a slot may be stale: each of their requests is a new one. */
Test(session, viewers_may_come_again_and_again)
{
    struct spawn spawn = {0};
    struct timespec begin, now, pause = {0, 150 * 1000 * 1000};
    int asked = 0;
    session_start(&spawn, "linear", NULL);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        cr_assert_geq(session_value(spawn.held[0], ALLOCATED "current"), 0, "request %d", asked);
        asked++;
        nanosleep(&pause, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (asked <= 20 || now.tv_sec - begin.tv_sec < 7);
    program_end(&spawn);
}

/* ---- run --record and --summary ------------------------------------------------------------------------------------------------- */

static unsigned lines_with(const char *text, const char *one, const char *other)
{
    unsigned count = 0;
    for (const char *at = text; (at = strstr(at, one)); at++) {
        const char *end = strchr(at, '\n'), *found = strstr(at, other);
        count += found && (!end || found < end);
    }
    return count;
}

/* Exit handlers publish the last numbers. A program that ends without them was asked before. */
Test(summary, of_programs_that_end_without_exit_handlers, .timeout = 60)
{
    static const struct {
        const char *how;
        const char *status;
        unsigned tables;
    } ends[] = {{"_exit", "exit 0", 1},
                {"abort", "exit 134", 1},
                {"term", "exit 143", 1},
                {"exec", "exit 0", 2},
                {"fork", "exit 0", 1}};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        spawn_result_free(&said);
        spawn_command(&said, "run", "--sim", "--summary", "--", path_program("ends"), ends[i].how, NULL);
        cr_expect_str_eq(spawn_status_text(&said), ends[i].status, "%s: %s", ends[i].how, spawn_status_text(&said));
        cr_expect_eq(lines_with(said.out, "| Allocated memory ", "1000 MiB |   1000 MiB"), ends[i].tables, "%s:\n%s",
                     ends[i].how, said.out);
        cr_expect(!strstr(said.out, "normally"), "%s:\n%s", ends[i].how, said.out);
    }
}

/* A pool's reserve is polled; what was handed out of it between two polls was reserved. */
Test(summary, of_a_pool_that_lives_between_two_polls, .timeout = 60)
{
    static const char *const sources[] = {"GPUPROF_SOURCE=cupti", "GPUPROF_SOURCE=hooks"};
    for (unsigned i = 0; i < 2; i++) {
        spawn_result_free(&said);
        spawn_command(&said, "run", "--sim", "--summary", "--", "/usr/bin/env", sources[i], path_program("pool_short"),
                      NULL);
        cr_expect_str_eq(spawn_status_text(&said), "exit 0");
        cr_expect_eq(lines_with(said.out, "| Allocated memory ", "1024 KiB | 103424 KiB"), 1, "%s", said.out);
        cr_expect_eq(lines_with(said.out, "| GPU reserved memory ", "1024 KiB | 103424 KiB"), 1, "%s", said.out);
    }
}

/* Each image of a process that calls exec twice has a file. */
Test(images, of_one_process_are_all_recorded, .timeout = 60)
{
    char folder[] = "/tmp/gpuprof-images-XXXXXX", option[64];
    unsigned files = 0;
    cr_assert(mkdtemp(folder));
    snprintf(option, sizeof(option), "--record=%s/x.gpuprof", folder);
    command(0, "run", "--sim", option, "--", path_program("ends"), "exec", "exec", NULL);
    DIR *entries = opendir(folder);
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (entry->d_name[0] == '.')
            continue;
        files++;
        cr_expect_eq(unlinkat(dirfd(entries), entry->d_name, 0), 0);
    }
    closedir(entries);
    rmdir(folder);
    cr_assert_eq(files, 3, "%u files", files);
}
