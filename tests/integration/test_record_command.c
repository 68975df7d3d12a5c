/* SPDX-License-Identifier: MIT
 *
 * test_record_command.c: `gpuprof record -p` of running programs, and the summary of `gpuprof run
 * --record`: however a recording ends, the file is complete and its numbers are the program's.
 */
#include <fcntl.h>
#include <read/recording/recording.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "integration/command.h"
#include "lib/build.h"

static char folder[64], file[96];

static void work_begin(void)
{
    snprintf(folder, sizeof(folder), "/tmp/gpuprof-test-record-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(file, sizeof(file), "%s/r.gpuprof", folder);
}

static void work_end(void)
{
    char line[128];
    snprintf(line, sizeof(line), "rm -rf %s", folder);
    cr_expect_eq(system(line), 0);
}

TestSuite(record_command, .init = work_begin, .fini = work_end, .timeout = 120);

static void program_start(struct spawn *spawn, const char *name)
{
    const char *argv[] = {path_program(name), NULL};
    program_hold(spawn, &(struct spawn_options){.argv = argv, .want_library = true});
}

/* Starts the command; out: its stdout. */
static pid_t record_start(pid_t of, const char *output, int out, const char *duration)
{
    pid_t pid = fork();
    if (pid == 0) {
        dup2(out, STDOUT_FILENO);
        execl(path_command(), "gpuprof", "record", "-p", pid_text(of), "-o", output, duration, (char *)NULL);
        _exit(98);
    }
    return pid;
}

/* Waits until the file has more than `bytes`: then the recorder is running. */
static void file_wait(int fd, const char *path, off_t bytes)
{
    struct stat status = {0};
    for (int i = 0; i < 1000; i++) {
        int rc = path ? stat(path, &status) : fstat(fd, &status);
        if (rc == 0 && status.st_size > bytes)
            return;
        usleep(20000);
    }
    cr_assert_fail("nothing is recorded");
}

static void record_wait(pid_t pid)
{
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0, "gpuprof record: status %x", status);
}

static struct gp_recording *record_open(const char *path)
{
    struct gp_recording *recording = NULL;
    char why[256] = "";
    cr_assert_eq(gp_recording_open(&recording, path, why, sizeof(why), NULL, NULL), 0, "%s: %s", path, why);
    cr_assert(recording->complete && recording->damaged_blocks == 0);
    cr_assert_eq(recording->tried, recording->delivered + recording->dropped);
    cr_assert_eq(recording->delivered, recording->event_count);
    return recording;
}

/* Linear bytes of device 0: those live at the start, plus allocations, minus frees. */
static int64_t linear_bytes(const struct gp_recording *r)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < r->baseline_count; i++)
        if (r->baseline[i].type == GP_EVENT_ALLOC && r->baseline[i].kind == GP_KIND_LINEAR)
            bytes += (int64_t)r->baseline[i].bytes;
    for (size_t i = 0; i < r->event_count; i++)
        if (r->events[i].kind == GP_KIND_LINEAR)
            bytes += r->events[i].type == GP_EVENT_ALLOC  ? (int64_t)r->events[i].bytes
                     : r->events[i].type == GP_EVENT_FREE ? -(int64_t)r->events[i].bytes
                                                          : 0;
    return bytes;
}

/* Waits until the file names the mapped objects: they are read with the first stack. */
static void modules_wait(void)
{
    for (int i = 0; i < 500; i++) {
        struct gp_recording *r = NULL;
        char why[256];
        bool has = gp_recording_open(&r, file, why, sizeof(why), NULL, NULL) == 0 && r->module_count > 0;
        gp_recording_free(r);
        if (has)
            return;
        usleep(20000);
    }
    cr_assert_fail("no objects are recorded");
}

/* Only /proc/PID/map_files still has its file. */
Test(record_command, build_ids_of_a_deleted_program_are_recorded)
{
    char path[96];
    const char *argv[] = {path, NULL}, *env[] = {"GPUPROF_STACKS=native", NULL};
    struct spawn spawn;
    if (geteuid() != 0)
        cr_skip_test("needs CAP_CHECKPOINT_RESTORE");
    snprintf(path, sizeof(path), "%s/stacks", folder);
    cr_assert_eq(build_copy(path_program("stacks"), path), 0);
    cr_assert_eq(chmod(path, 0755), 0);
    program_hold(&spawn, &(struct spawn_options){.argv = argv, .env = env, .want_library = true});
    cr_assert_eq(unlink(path), 0);
    pid_t recorder = record_start(spawn.held[0], file, STDERR_FILENO, NULL);
    modules_wait();
    program_end(&spawn);
    record_wait(recorder);
    struct gp_recording *r = record_open(file);
    bool found = false;
    for (size_t i = 0; i < r->module_count; i++)
        found |= strstr(r->strings + r->modules[i].path, path) && r->strings[r->modules[i].build_id];
    cr_assert(found, "none of %zu modules is the program with its build id", (size_t)r->module_count);
    gp_recording_free(r);
}

/* Weights and activations made the peak; the weights are still there at the end, and what the scratch call took came
 * before and after it. */
Test(record_command, a_recording_has_the_bytes_of_each_site_at_the_peak)
{
    char record[128];
    snprintf(record, sizeof(record), "--record=%s", file);
    const char *argv[] = {path_command(),         "run", "--sim", "--stacks=native", record, "--",
                          path_program("stacks"), NULL};
    run_program(0, &(struct spawn_options){.argv = argv});
    struct gp_recording *r = record_open(file);
    int64_t sum = 0;
    for (uint32_t i = 0; i < r->site_count; i++) {
        const struct gp_rec_site *site = &r->sites[i];
        int64_t want = site->kind != GP_KIND_LINEAR ? 0 : site->calls == 8 ? 8 << 20 : site->calls == 1 ? 4 << 20 : 0;
        cr_expect_eq(site->at_peak_bytes, want, "%d calls, %lld bytes", (int)site->calls,
                     (long long)site->at_peak_bytes);
        sum += site->at_peak_bytes;
    }
    cr_expect_eq(sum, 12 << 20);
    gp_recording_free(r);
}

Test(record_command, ends_with_the_process_and_knows_what_was_live)
{
    struct spawn spawn;
    program_start(&spawn, "linear");
    pid_t recorder = record_start(spawn.held[0], file, STDERR_FILENO, NULL);
    file_wait(-1, file, 200);
    command(0, "mark", "-p", pid_text(spawn.held[0]), "half time", NULL);
    usleep(100000);
    program_end(&spawn);
    record_wait(recorder);
    struct gp_recording *r = record_open(file);
    cr_assert(!r->from_start && r->baseline_count > 0);
    cr_assert_str_eq(r->comm, "linear");
    bool found = false;
    for (size_t i = 0; i < r->event_count; i++)
        found |= r->events[i].type == GP_EVENT_MARK && strcmp(r->strings + r->events[i].bytes, "half time") == 0;
    cr_assert(found, "the mark is not among %zu events", r->event_count);
    cr_assert(r->device_count > 0 && r->devices[0].has_last);
    cr_assert_gt(linear_bytes(r), 0);
    cr_assert_eq(linear_bytes(r), r->devices[0].last.kinds[GP_KIND_LINEAR].current_bytes);
    gp_recording_free(r);
}

Test(record_command, ends_after_its_time_or_by_a_signal)
{
    struct spawn spawn;
    program_start(&spawn, "killed");
    spawn_release(&spawn);
    for (int by_signal = 0; by_signal < 2; by_signal++) {
        int memory = memfd_create("record", MFD_CLOEXEC);
        char path[64];
        pid_t recorder = record_start(spawn.held[0], by_signal ? file : "-", memory, by_signal ? NULL : "--duration=1");
        if (by_signal) {
            file_wait(-1, file, 2000);
            kill(recorder, SIGINT);
        }
        record_wait(recorder);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", memory);
        struct gp_recording *r = record_open(by_signal ? file : path);
        cr_assert_gt(r->event_count, 100);
        if (!by_signal)
            cr_assert_geq(r->end_ns - r->begin_ns, 900000000ull);
        gp_recording_free(r);
        close(memory);
    }
    program_kill(&spawn);
}

/* After exec a process writes a new file; the first one has no end block, but stays. */
Test(record_command, an_exec_begins_anew)
{
    struct spawn spawn;
    char setting[128], second[128], why[256];
    const char *argv[] = {path_program("exec"), NULL}, *env[] = {setting, NULL};
    snprintf(setting, sizeof(setting), "GPUPROF_RECORD=%s", file);
    cr_assert_eq(spawn_start(&spawn, &(struct spawn_options){.argv = argv, .env = env, .want_library = true}), 0);
    snprintf(second, sizeof(second), "%s/r.%d.gpuprof", folder, (int)spawn.pid);
    program_end(&spawn);
    struct gp_recording *r = record_open(second), *first = NULL;
    cr_assert(r->from_start && r->dropped == 0);
    cr_assert_eq(linear_bytes(r), 2 << 20);
    cr_assert_eq(gp_recording_open(&first, file, why, sizeof(why), NULL, NULL), 0, "%s", why);
    cr_assert(!first->complete);
    gp_recording_free(first);
    gp_recording_free(r);
}

Test(record_command, run_says_what_was_recorded)
{
    char option[128], line[256];
    snprintf(option, sizeof(option), "--record=%s", file);
    command(0, "run", "--sim", option, "--", path_program("leak_branch"), "leaking", "marked", "slow", NULL);
    struct gp_recording *r = record_open(file);
    cr_assert(r->from_start && r->dropped == 0);
    cr_assert_str_eq(r->devices[0].name, "Simulated GPU 0", "a program of 200 milliseconds");
    cr_assert_eq(linear_bytes(r), r->devices[0].last.kinds[GP_KIND_LINEAR].current_bytes);
    snprintf(line, sizeof(line), "%zu events recorded in %s (", r->event_count, file);
    WARNS(line);
    snprintf(line, sizeof(line), "none lost: gpuprof report %s\n", file);
    WARNS(line);
    gp_recording_free(r);
    command(0, "run", "--sim", "--force", option, "--", "true", NULL);
    WARNS("nothing was recorded");
    gp_recording_free(record_open(file)); /* the older one is there */
}

/* It ends within a millisecond of its first context, before the poller's thread need have run. */
Test(record_command, the_device_of_a_momentary_program_has_a_name)
{
    char option[128];
    const char *argv[] = {path_command(), "run", "--sim", "--force", option, "--", path_program("momentary"), NULL};
    snprintf(option, sizeof(option), "--record=%s", file);
    for (int i = 0; i < 10; i++) {
        const char *env[] = {i % 2 ? "GPUPROF_SOURCE=hooks" : "GPUPROF_SOURCE=cupti", NULL};
        run_program(0, &(struct spawn_options){.argv = argv, .env = env});
        struct gp_recording *r = record_open(file);
        cr_assert(r->device_count >= 1 && r->devices[0].total_bytes > 0);
        cr_assert_str_eq(r->devices[0].name, "Simulated GPU 0", "run %d", i);
        cr_assert_eq(r->source, i % 2 ? GP_SOURCE_HOOKS : GP_SOURCE_CUPTI);
        gp_recording_free(r);
    }
}

/* `run` is stopped while the program runs, as if a busy machine had given it no time: no session is seen. */
#define UNSEEN "(kill -STOP $PPID; sleep 0.6; kill -CONT $PPID) & sleep 0.2; "

Test(record_command, a_program_that_was_not_seen)
{
    static const struct {
        const char *script;
        int recordings; /* of this run */
    } cases[] = {
        {UNSEEN "exec $0", 1}, /* the program that was started */
        {UNSEEN "$0; $0", 2},  /* others that it started */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char option[128], other[128], line[256];
        snprintf(option, sizeof(option), "--record=%s", file);
        snprintf(other, sizeof(other), "--record=%s/r.other.gpuprof", folder);
        command(0, "run", "--sim", "--force", other, "--", path_program("linear"), NULL);
        command(0, "run", "--sim", "--force", option, "--budget=1GiB", "--", "sh", "-c", cases[i].script,
                path_program("linear"), NULL);
        struct gp_recording *r = record_open(file);
        snprintf(line, sizeof(line), "pid %u: %zu events recorded in %s (", r->pid, r->event_count, file);
        WARNS(line);
        int lines = 0;
        for (const char *at = said.err; (at = strstr(at, ", none lost: gpuprof report ")); at++)
            lines++;
        cr_assert_eq(lines, cases[i].recordings, "%s", said.err);
        gp_recording_free(r);
        command(3, "run", "--sim", "--budget=1KiB", "--", "sh", "-c", cases[i].script, path_program("linear"), NULL);
    }
}

/* ---- names of several processes ---------------------------------------------------------------------------------- */

/* Starts the program as three ranks, the last of them twice. */
static const char ranks_script[] =
    "for r in 0 1 2 2; do RANK=$r LOCAL_RANK=$((r / 2)) WORLD_SIZE=3 $0 & wait; done; cd %s; echo *.gpuprof";

static const char *ranks_run(const char *script)
{
    char option[128], text[256];
    snprintf(option, sizeof(option), "--record=%s", file);
    snprintf(text, sizeof(text), script, folder);
    command(0, "run", "--sim", "--force", option, "--", "sh", "-c", text, path_program("linear_rt"), NULL);
    WARNS("gpuprof report ");
    WARNS_NOT("nothing");
    return said.out;
}

Test(record_command, each_rank_has_a_file_that_names_it)
{
    for (int run = 0; run < 2; run++) { /* files of an earlier run are replaced */
        ranks_run(ranks_script);
        SAYS("r.rank0.gpuprof r.rank1.gpuprof r.rank2.");
        SAYS(" r.rank2.gpuprof");
        SAYS_NOT("r.gpuprof");
    }
    for (int rank = 0; rank < 3; rank++) {
        char path[128], text[64];
        snprintf(path, sizeof(path), "%s/r.rank%d.gpuprof", folder, rank);
        struct gp_recording *r = record_open(path);
        cr_expect(r->has_rank && r->rank == rank && r->local_rank == rank / 2 && r->world_size == 3);
        gp_recording_free(r);
        snprintf(text, sizeof(text), "rank %d of 3 (local rank %d), ", rank, rank / 2);
        command(0, "report", path, NULL);
        SAYS(text);
    }
}

Test(record_command, the_name_of_a_second_process_ends_as_the_first)
{
    const char *names = ranks_run("unset RANK; for i in 1 2; do $0; done; cd %s; echo *.gpuprof"), *other;
    SAYS(" r.gpuprof\n");
    unsigned pid = 0;
    cr_expect((other = strstr(names, "r.")) && sscanf(other, "r.%u.gpuprof", &pid) == 1 && pid > 0, "%s", names);
    unlink(file);
    ranks_run("RANK=0 WORLD_SIZE=1 $0; cd %s; ls -t *.gpuprof | head -n 1");
    SAYS("r.gpuprof\n"); /* one rank is not told from others */
    struct gp_recording *r = record_open(file);
    cr_expect(r->has_rank && r->rank == 0 && r->local_rank == -1 && r->world_size == 1);
    gp_recording_free(r);
}

/* ---- a file that cannot be begun --------------------------------------------------------------------------------- */

static void expect_no_file(const char *why)
{
    cr_expect_str_eq(said.out, "", "the program ran");
    WARNS(file);
    WARNS("cannot begin");
    WARNS(why);
    cr_expect_neq(access(file, F_OK), 0, "an empty file is left");
}

static void expect_no_start(const char *why)
{
    char option[128];
    snprintf(option, sizeof(option), "--record=%s", file);
    command(1, "run", "--sim", option, "--", "echo", "started", NULL);
    expect_no_file(why);
}

static void remount(unsigned long flags)
{
    umount(folder);
    if (mount("gpuprof", folder, "tmpfs", flags, "size=64k") != 0)
        cr_skip_test("cannot mount here (needs CAP_SYS_ADMIN)");
}

Test(record_command, a_file_that_cannot_be_begun_is_said_at_the_start)
{
    char inside[64];
    snprintf(inside, sizeof(inside), "%s", folder);
    snprintf(file, sizeof(file), "%s/none/r.gpuprof", inside);
    expect_no_start("No such file");
    snprintf(file, sizeof(file), "%s/r.gpuprof", inside);
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        cr_skip_test("cannot mount here (needs CAP_SYS_ADMIN)");
    remount(MS_RDONLY);
    expect_no_start("Read-only");
    remount(0);
    expect_no_start("No space left");
    struct spawn spawn;
    program_start(&spawn, "leak_branch");
    command(1, "record", "-p", pid_text(spawn.held[0]), "-o", file, NULL);
    expect_no_file("No space left");
    program_end(&spawn);
    umount(folder);
}

/* A process that ends without its exit handlers within a second: what it did before is in the file, with the names and
 * numbers of its call sites. */
Test(record_command, a_short_process_that_is_killed_leaves_its_call_sites)
{
    char line[512];
    snprintf(line, sizeof(line),
             "(printf 'a 0 1048576\\na 0 4096\\n'; until [ \"$(grep -c '^[0-9]' %s.out)\" = 3 ]; do sleep 0.02; done; "
             "sleep 0.5; echo _) | %s run --sim --stacks=native --record=%s -- %s >%s.out 2>&1",
             file, path_command(), file, path_program("agent_walk"), file);
    cr_assert_eq(system(line), 0);
    struct gp_recording *r = NULL;
    char why[256] = "";
    cr_assert_eq(gp_recording_open(&r, file, why, sizeof(why), NULL, NULL), 0, "%s", why);
    int64_t bytes = 0;
    for (uint32_t i = 1; i < r->site_count; i++)
        bytes += r->sites[i].frame_count ? r->sites[i].allocated_bytes : 0;
    cr_assert_eq(linear_bytes(r), 1048576 + 4096);
    cr_assert_eq(bytes, 1048576 + 4096);
    cr_assert(r->module_count > 0 && r->device_count > 0);
    gp_recording_free(r);
}

/* However the program is ended, `run` adds what its recorder did not get to write. */
static void killed_check(const char *kill)
{
    char line[1024];
    snprintf(
        line, sizeof(line),
        "cd %s && mkfifo in && { %s run --sim --stacks=native --record=%s -- %s <in >out & run=$!; exec 3>in; "
        "printf 'a 0 1048576\\na 0 4096\\nc 1000 512\\np\\n' >&3; "
        "until [ \"$(grep -c '^[0-9]' out)\" = 5 ]; do sleep 0.01; done; program=$(tail -n 1 out); %s; wait $run; }",
        folder, path_command(), file, path_program("agent_walk"), kill);
    cr_assert_neq(system(line), 0);
    struct gp_recording *r = record_open(file);
    cr_expect_eq(r->event_count, 2003); /* with the start of the process */
    cr_expect_eq(r->dropped, 0);
    cr_expect_eq(linear_bytes(r), 1048576 + 4096);
    cr_expect(r->site_count > 1 && r->sites[1].frame_count > 0);
    gp_recording_free(r);
}

Test(record_command, a_signal_to_run_loses_nothing)
{
    killed_check("kill -TERM $run");
}

Test(record_command, a_killed_program_loses_nothing)
{
    killed_check("kill -KILL $program");
}

/* A consumer of CUDA IPC, whose memory belongs to another process: its report shows it, outside of the sums. */
Test(record_command, an_import_has_its_size)
{
    char line[1024];
    snprintf(line, sizeof(line),
             "cd %s && %s run --sim --record=r.gpuprof -- %s >out 2>&1; for x in r.*.gpuprof; do %s report $x; "
             "%s reconcile $x; done >report 2>&1; grep -q 'imported   peak 4.000 MiB' report && "
             "grep -q 'allocated  peak 1.000 MiB' report && grep -q '4.000 MiB  imported: memory of other' report || "
             "{ cat out report >&2; false; }",
             folder, path_command(), path_program("ipc"), path_command(), path_command());
    cr_assert_eq(system(line), 0);
}

/* Readings of pools are events in the file, and mostly none of the report's: it says both numbers. */
Test(record_command, the_report_knows_the_number_that_run_says)
{
    char line[1024];
    snprintf(line, sizeof(line),
             "cd %s && %s run --sim --record=r.gpuprof -- %s >out 2>&1; %s report r.gpuprof >report 2>&1; "
             "n=$(sed -n 's/.*: \\([0-9]*\\) events recorded in .*/\\1/p' out); "
             "grep -q \" events ($n as recorded)\" report || { cat out report >&2; false; }",
             folder, path_command(), path_program("graph_in_use"), path_command());
    cr_assert_eq(system(line), 0);
}
