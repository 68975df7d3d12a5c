/* SPDX-License-Identifier: MIT
 *
 * `gpuprof snapshot` of running programs: the file keeps every rule of PyTorch's tools
 * (tests/python/check_snapshot.py), its numbers are the program's, and the program is left as it
 * was: no descriptor stays, none is inherited.
 * Run: first
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "integration/command.h"
#include "lib/ledger.h"

static char folder[64], file[96];

static void work_begin(void)
{
    snprintf(folder, sizeof(folder), "/tmp/gpuprof-test-snapshot-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(file, sizeof(file), "%s/s.pickle", folder);
}

static int work_files(void)
{
    struct dirent *entry;
    DIR *dir = opendir(folder);
    int count = 0;
    while (dir != NULL && (entry = readdir(dir)) != NULL)
        count += entry->d_name[0] != '.';
    if (dir != NULL)
        closedir(dir);
    return count;
}

static void work_end(void)
{
    unlink(file);
    cr_expect_eq(rmdir(folder), 0, "something was left in %s", folder);
}

TestSuite(snapshot, .init = work_begin, .fini = work_end, .timeout = 120);

static void program_start(struct spawn *spawn)
{
    const char *argv[] = {path_program("snapshot"), NULL};
    const char *const env[] = {"GPUPROF_RING=always", NULL}; /* a trace is to hold what was before it */
    program_hold(spawn, &(struct spawn_options){
                            .argv = argv, .env = env, .sim = "devices=2,memory=16GiB", .want_library = true});
}

static bool is_whole; /* the last trace has all events */

/* Of the process, with a trace or without; `what` must be on stderr. */
static void snapshot(int code, pid_t pid, bool trace, const char *path, const char *what)
{
    command(code, "snapshot", "-p", pid_text(pid), "-o", path, trace ? "--trace=0" : NULL, NULL);
    if (what)
        WARNS(what);
    is_whole = !strstr(said.err, "are missing in the trace");
}

/* The checker's answer about the file; NULL without Python. */
static json_t *checked(const char *path)
{
    const char *argv[] = {"/usr/bin/env", "python3", path_source("tests/python/check_snapshot.py"),
                          "--json",       path,      NULL};
    spawn_result_free(&said);
    cr_assert_eq(spawn_run(&(struct spawn_options){.argv = argv}, &said), 0);
    if (WIFEXITED(said.status) && WEXITSTATUS(said.status) == 127)
        return NULL;
    said_check("check_snapshot.py; last: ", 0);
    return said_json();
}

/* Descriptors of snapshots that the program has. */
static int lent(pid_t pid)
{
    char path[300], target[64];
    struct dirent *entry;
    DIR *dir;
    int count = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)pid, entry->d_name);
        ssize_t length = readlink(path, target, sizeof(target) - 1);
        target[length > 0 ? length : 0] = '\0';
        count += strstr(target, "gpuprof-pieces") != NULL;
    }
    if (dir != NULL)
        closedir(dir);
    return count;
}

/* It is closed a moment after the viewer has it. */
static int lent_at_rest(pid_t pid)
{
    int tries = 0, count;
    while ((count = lent(pid)) > 0 && tries++ < 200)
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    return count;
}

static void program_finish(struct spawn *spawn)
{
    program_end(spawn);
    SAYS("leaked: 0\n");
    SAYS("forked: 1\n");
}

#define DEVICE0 "devices/0/stats/"
#define DEVICE1 "devices/1/stats/"

static void expect_sum(const json_t *summary, const char *key, const json_t *process, const char *stat)
{
    char first[80], second[80];
    snprintf(first, sizeof(first), DEVICE0 "%s.all.current", stat);
    snprintf(second, sizeof(second), DEVICE1 "%s.all.current", stat);
    cr_expect_eq(json_at(summary, key, -1), json_at(process, first, -5) + json_at(process, second, -5),
                 "%s: %lld, the statistics say %lld + %lld", key, json_at(summary, key, -1),
                 json_at(process, first, -5), json_at(process, second, -5));
}

Test(snapshot, of_a_program_at_rest_is_sound_and_complete)
{
    struct ledger_diff diff = {0};
    struct spawn spawn;
    json_t *summary, *process;
    program_start(&spawn);
    snapshot(0, spawn.pid, true, file, NULL);
    process = ledger_stat(&diff, spawn.pid);
    cr_assert_not_null(process, "%s", diff.text);
    summary = checked(file);
    if (summary != NULL) {
        expect_sum(summary, "live_bytes", process, "allocated_bytes");
        expect_sum(summary, "total_bytes", process, "reserved_bytes");
        expect_sum(summary, "requested_bytes", process, "requested_bytes");
        expect_sum(summary, "live", process, "allocation");
        cr_expect_eq(json_at(summary, "devices", -1), 2);
        cr_expect_eq(json_at(summary, "longest_batch", -1), 1000, "long enough to need several batches");
        cr_expect_eq(json_at(summary, "actions/oom", -1), 1);
        cr_expect_eq(json_at(summary, "actions/alloc", -1), 1551);
        cr_expect_eq(json_at(summary, "actions/segment_free", -1), 750);
        cr_expect_str_eq(json_string_value(json_array_get(json_object_get(summary, "annotations"), 0)), "START half");
        cr_expect_str_eq(json_string_value(json_array_get(json_object_get(summary, "annotations"), 1)), "END half");
    }
    cr_expect_eq(lent_at_rest(spawn.pid), 0, "a descriptor stayed in the program");
    json_decref(summary);
    json_decref(process);
    program_finish(&spawn);
}

Test(snapshot, is_read_by_our_own_replay)
{
    struct spawn spawn;
    program_start(&spawn);
    snapshot(0, spawn.pid, true, file, NULL);
    command(0, "replay", file, "--allocator=caching", "--json", NULL);
    json_decref(said_json());
    program_finish(&spawn);
}

/* While the program allocates in two ways and forks, every file is sound, and no child has the
 * descriptor of the memfd. More snapshots give more chances to inherit it.  Only two of the files
 * are checked, because that takes long: one without a trace, and the first trace in which no event is
 * missing. On a loaded machine the program can write the ring over before the command has read it. */
Test(snapshot, of_a_busy_program_are_sound_and_no_child_inherits_any)
{
    bool is_traced = false;
    struct spawn spawn;
    int i;
    program_start(&spawn);
    cr_assert_eq(write(spawn.go_fd, "g", 1), 1);
    for (i = 0; i < 30; i++) {
        bool trace = i >= 10 && !is_traced;
        snapshot(0, spawn.pid, trace, file, trace ? "snapshot" : NULL);
        if (i == 9 || (trace && is_whole)) {
            json_decref(checked(file));
            is_traced |= trace;
        }
    }
    cr_expect(is_traced, "events are missing in each trace");
    cr_expect_eq(lent_at_rest(spawn.pid), 0, "a descriptor stayed in the program");
    program_finish(&spawn);
}

/* There is one memfd at a time; a second viewer waits for it. */
Test(snapshot, several_viewers_at_once_are_all_served)
{
    enum { VIEWERS = 6 };
    struct spawn spawn;
    pid_t viewers[VIEWERS];
    off_t first = 0;
    int i;
    program_start(&spawn);
    for (i = 0; i < VIEWERS; i++) {
        viewers[i] = fork();
        if (viewers[i] == 0) {
            char path[128];
            snprintf(path, sizeof(path), "%s.%d", file, i);
            execl(path_command(), "gpuprof", "snapshot", "-p", pid_text(spawn.pid), "-o", path, (char *)NULL);
            _exit(99);
        }
    }
    for (i = 0; i < VIEWERS; i++) {
        char path[128];
        struct stat this;
        int status = -1;
        cr_assert_eq(waitpid(viewers[i], &status, 0), viewers[i]);
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "viewer %d: %d", i, status);
        snprintf(path, sizeof(path), "%s.%d", file, i);
        cr_assert_eq(stat(path, &this), 0);
        first = i == 0 ? this.st_size : first;
        cr_expect_eq(this.st_size, first, "viewer %d has another snapshot", i);
        unlink(path);
    }
    program_finish(&spawn);
}

Test(snapshot, a_process_that_does_not_answer_is_not_waited_for)
{
    struct spawn spawn;
    program_start(&spawn);
    cr_assert_eq(spawn_stop(spawn.pid), 0);
    snapshot(1, spawn.pid, false, file, "does not answer");
    cr_expect_eq(work_files(), 0, "half a file was left");
    kill(spawn.pid, SIGCONT);
    snapshot(0, spawn.pid, false, file, NULL);
    program_finish(&spawn);
}

static void refused(int status, const char *what, const char *a, const char *b, const char *c, const char *d)
{
    command(status, "snapshot", a, b, c, d, NULL);
    WARNS(what);
}

Test(snapshot, says_what_is_wrong)
{
    char other[128];
    FILE *made;
    snprintf(other, sizeof(other), "%s/no/such/folder", folder);
    refused(2, "missing output file", "-p", "1", NULL, NULL);
    refused(2, "exclude each other", "x.gpr", "-p1", "-o", file);
    refused(2, "one process at a time", "-p", "1,2", "-o", file);
    refused(2, "not a whole number from 0", "-p1", "--trace=soon", "-o", file);
    refused(2, "has its events", "x.gpr", "--trace=1", "-o", file);
    refused(2, "one recording at a time", "x.gpr", "y.gpr", "-o", file);
    refused(3, "no such process", "-p", "2147483000", "-o", file);
    refused(1, "/no/such/folder", other, "-o", file, NULL);
    made = fopen(file, "w");
    cr_assert_not_null(made);
    fputs("no recording at all, but long enough to look like one at the first glance: 0123456789", made);
    fclose(made);
    refused(1, file, file, "-o", "/dev/null", NULL);
    cr_expect_eq(work_files(), 1, "something was written");
}

Test(snapshot, replaces_an_older_file_only_when_whole)
{
    struct spawn spawn;
    struct stat before, after;
    program_start(&spawn);
    snapshot(0, spawn.pid, false, file, NULL);
    cr_assert_eq(stat(file, &before), 0);
    refused(3, "no such process", "-p", "2147483000", "-o", file);
    cr_expect(stat(file, &after) == 0 && after.st_ino == before.st_ino, "the old file is gone");
    snapshot(0, spawn.pid, false, file, NULL);
    cr_expect(stat(file, &after) == 0 && after.st_size > 1000 && after.st_ino != before.st_ino);
    snapshot(1, spawn.pid, false, "/dev/full", "No space left");
    cr_expect_eq(work_files(), 1);
    program_finish(&spawn);
}
