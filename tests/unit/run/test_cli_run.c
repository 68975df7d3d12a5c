/* SPDX-License-Identifier: MIT
 * test_cli_run.c: the commands that start programs (run, trace) or look at the machine (doctor):
 * environment, status, signals, events.  Run by the unit tests. */
#include "lib/build.h"
#include <cmd/cmd.h>
#include <elf.h>
#include <fcntl.h>
#include <record/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unit/cmd/cli.h>

/* Long enough for a command that shares its processor with ten programs to find the session. */
#define PROFILED_MS "400"

/* `run` and `trace` start this test program itself: with GP_TEST_PROFILED=MS it owns a session
 * for MS milliseconds. */
__attribute__((constructor)) static void be_profiled(void)
{
    const char *ms = getenv("GP_TEST_PROFILED");
    struct gp_test_session s;
    if (!ms)
        return;
    if (gp_test_session_make(&s, 64, true) != 0)
        _exit(99);
    gp_test_session_device(&s, 0, "Simulated GPU 0", 5 << 20);
    for (uint64_t i = 0; i < 100; i++)
        gp_test_session_event(&s, i % 2 ? GP_EVENT_FREE : GP_EVENT_ALLOC, i % 4 < 2 ? GP_KIND_LINEAR : GP_KIND_POOL, 0,
                              0x7f0000000000 + i * 4096, 1000 + i);
    gp_test_session_publish(&s);
    gp_test_drain_start(&s);
    if (getenv("GP_TEST_SAYS"))
        printf("%s\n", getenv(getenv("GP_TEST_SAYS")) ? getenv(getenv("GP_TEST_SAYS")) : "(unset)");
    fflush(stdout);
    usleep((useconds_t)atoi(ms) * 1000);
    gp_test_drain_stop(&s);
    s.header->flags |= GP_SESSION_CLOSED;
    gp_test_session_publish(&s);
    _exit(7);
}

/* ---- run --------------------------------------------------------------------------------------------------------- */

Test(cli, run_sets_the_environment)
{
    find_binary();
    setenv("GP_TEST_PROFILED", "0", 1);
    setenv("GP_TEST_SAYS", "CUDA_INJECTION64_PATH", 1);
    expect(run("run --library=@ -- @"), 7, self, NULL);
    setenv("CUDA_INJECTION64_PATH", self, 1);
    expect(run("run --library=@ -- @"), 7, self, NULL);
    setenv("CUDA_INJECTION64_PATH", "/some/other/tool.so", 1);
    expect(run("run --library=@ -- @"), 2, NULL, "already");
    unsetenv("CUDA_INJECTION64_PATH");
    expect(run("run --library=@ --stacks=off --allocator=off @"), 7, NULL, NULL);
}

/* A recording that another process writes, or has just made, does not keep a program from running:
 * its own gets the second name. */
Test(cli, run_beside_another_recording)
{
    char folder[] = "/tmp/gpuprof-test-XXXXXX", path[64], line[200];
    find_binary();
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/x.gpuprof", folder);
    snprintf(line, sizeof(line), "run --library=@ --record=%s -- @", path);
    setenv("GP_TEST_PROFILED", "0", 1);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    cr_assert(fd >= 0);
    expect(run("%s", line), 7, NULL, NULL);
    cr_assert_eq(access(path, F_OK), 0, "the empty file that another process made is gone");
    cr_assert_eq(write(fd, GP_RECORD_MAGIC, 8), 8);
    cr_assert_eq(flock(fd, LOCK_EX), 0);
    expect(run("%s", line), 7, NULL, NULL);
    cr_assert_eq(access(path, F_OK), 0, "the recording that another process writes is gone");
    close(fd);
    expect(run("%s", line), 2, NULL, "x.gpuprof: a recording of 20"); /* an older one */
    expect(run("run --library=@ --force --record=/dev/zero -- @"), 1, NULL, "is not a recording");
    snprintf(line, sizeof(line), "run --library=@ --force --record=%s -- @", path);
    expect(run("%s", line), 7, NULL, NULL);
    cr_assert_eq(access(path, F_OK), 0, "the older recording is gone, though there is no new one");
    unlink(path);
    cr_assert_eq(rmdir(folder), 0, "a file was left behind");
}

Test(cli, run_on_the_simulated_gpu)
{
    char folder[] = "/tmp/gpuprof-test-XXXXXX", command[9000];
    find_binary();
    cr_assert(mkdtemp(folder));
    chmod(folder, 0755);
    /* The layout of an installation, in another place. */
    snprintf(command, sizeof(command),
             "mkdir -p %s/bin %s/lib/gpuprof/sim/python && cp %s %s/bin/gpuprof && touch %s/lib/libgpuprof.so "
             "%s/lib/gpuprof/sim/libcuda.so.1",
             folder, folder, binary, folder, folder, folder);
    cr_assert_eq(system(command), 0);
    snprintf(binary, sizeof(binary), "%s/bin/gpuprof", folder);
    char sim[200], python[200], library[200];
    snprintf(sim, sizeof(sim), "%s/lib/gpuprof/sim:/elsewhere", folder);
    snprintf(python, sizeof(python), "%s/lib/gpuprof/sim/python:/own", folder);
    snprintf(library, sizeof(library), "%s/lib/libgpuprof.so", folder);
    setenv("LD_LIBRARY_PATH", "/elsewhere", 1);
    setenv("PYTHONPATH", "/own", 1);
    setenv("GPUPROF_STANDINS", "0", 1); /* this installation has none */
    setenv("GP_TEST_PROFILED", "0", 1);
    setenv("GP_TEST_SAYS", "LD_LIBRARY_PATH", 1);
    expect(run("run --sim @"), 7, sim, NULL);
    setenv("GP_TEST_SAYS", "PYTHONPATH", 1);
    expect(run("run --sim @"), 7, python, NULL);
    setenv("GP_TEST_SAYS", "CUDA_INJECTION64_PATH", 1);
    expect(run("run --sim @"), 7, library, NULL);
    setenv("GP_TEST_SAYS", "GPUPROF_SIM", 1);
    expect(run("run --sim=devices=2,memory=1GiB @"), 7, "devices=2,memory=1GiB", NULL);
    unsetenv("GP_TEST_PROFILED");
    snprintf(command, sizeof(command), "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}

static void write_file(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "w");
    cr_assert(file && fwrite(bytes, 1, count, file) == count);
    fclose(file);
    chmod(path, 0755);
}

/* What the loader would complain about, or the program would, gets no preload. */
Test(cli, run_preloads_only_where_it_fits)
{
    char *folder = build_folder(), path[300], extra[600], many[8192];
    Elf64_Ehdr other = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS32}, .e_machine = EM_386};
    static const char musl[] = "/lib/ld-musl-x86_64.so.1";
    struct {
        Elf64_Ehdr head;
        Elf64_Phdr part;
        char name[sizeof(musl)];
    } small = {.part = {.p_type = PT_INTERP, .p_offset = offsetof(__typeof__(small), name)}};

    find_binary();
    cr_assert(gp_preload_fits("sh"));
#ifdef __SANITIZE_ADDRESS__
    cr_assert_not(gp_preload_fits(self), "its runtime must be the first library");
#else
    cr_assert(gp_preload_fits(self));
#endif
    cr_assert_not(gp_preload_fits("no-such-program") || gp_preload_fits("/no/such/program"));
    snprintf(path, sizeof(path), "%s/script", folder);
    write_file(path, "#!/bin/sh\n", 10);
    cr_assert(gp_preload_fits(path));
    write_file(path, &other, sizeof(other));
    cr_assert_not(gp_preload_fits(path));
    FILE *file = fopen(self, "r");
    cr_assert(file && fread(many, 1, sizeof(many), file) == sizeof(many));
    fclose(file);
    memcpy(&small.head, many, sizeof(small.head));
    small.head.e_phoff = offsetof(__typeof__(small), part);
    small.head.e_phnum = 1;
    write_file(path, &small, sizeof(small));
    cr_assert(gp_preload_fits(path));
    memcpy(small.name, musl, sizeof(musl));
    write_file(path, &small, sizeof(small));
    cr_assert_not(gp_preload_fits(path));
    for (unsigned seed = 1; seed < 200; seed++) { /* a damaged file is as good as another */
        srand(seed);
        for (unsigned i = 0; i < 40; i++)
            many[(unsigned)rand() % (i < 20 ? 1024 : sizeof(many))] ^= (char)rand();
        write_file(path, many, sizeof(many));
        gp_preload_fits(path);
    }
    cr_assert_eq(build_shared(folder, "cupti_other.c", "libasan.so.8", "-Wl,-soname,libasan.so.8"), 0);
    snprintf(extra, sizeof(extra), "-Wl,--no-as-needed,%s/libasan.so.8", folder);
    cr_assert_eq(build_shared(folder, "cupti_user.c", "program", extra), 0);
    snprintf(path, sizeof(path), "%s/program", folder);
    cr_assert_not(gp_preload_fits(path));
    build_remove(folder);
}

Test(cli, run_passes_the_status_on)
{
    static const char *const modes[] = {"", "--summary "};
    char folder[] = "/tmp/gpuprof-test-XXXXXX", path[100];
    find_binary();
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/kill.sh", folder);
    FILE *script = fopen(path, "w");
    fputs("#!/bin/sh\nif [ \"$1\" ]; then kill -$1 $$; fi\nexit 42\n", script);
    fclose(script);
    chmod(path, 0755);
    for (int i = 0; i < 2; i++) {
        expect(run("run --library=@ %s-- true", modes[i]), 0, NULL, NULL);
        expect(run("run --library=@ %s-- %s", modes[i], path), 42, NULL, NULL);
        expect(run("run --library=@ %s-- %s KILL", modes[i], path), 128 + SIGKILL, NULL, NULL);
        expect(run("run --library=@ %s-- %s TERM", modes[i], path), 128 + SIGTERM, NULL, NULL);
    }
    expect(run("run --library=@ --summary true"), 0, NULL, "no profiled process was seen");
    unlink(path);
    rmdir(folder);
}

Test(cli, run_with_summary)
{
    setenv("GP_TEST_PROFILED", PROFILED_MS, 1);
    struct result r = run("run --library=@ --summary @");
    cr_assert(strstr(r.out, "PyTorch CUDA memory summary"), "%s%s", r.out, r.err);
    expect(r, 7, "5120 KiB", NULL);
}

/* INT, TERM and the other signals reach the program; the command does not end before the program
 * does. */
Test(cli, run_passes_signals_on, .timeout = 60)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH};
    char folder[] = "/tmp/gpuprof-test-XXXXXX", path[100];
    find_binary();
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/trap.sh", folder);
    FILE *script = fopen(path, "w");
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        fprintf(script, "trap 'echo got %d; exit %zu' %d\n", numbers[i], 50 + i, numbers[i]);
    fputs("echo ready\nfor second in 1 2 3 4 5 6 7 8 9; do sleep 1 >/dev/null 2>&1 & wait; done\n", script);
    fclose(script);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        int ends[2];
        char line[300], text[32] = "", got[32];
        snprintf(line, sizeof(line), "run --library=@ --summary sh %s", path);
        /* A shell does not trap what was ignored when it started, as SIGUSR2 is under `perf record`. */
        signal(numbers[i], SIG_DFL);
        pid_t pid = launch(line, 0, ends);
        cr_assert_gt(read(ends[0], text, sizeof(text) - 1), 0);
        cr_assert(strstr(text, "ready"), "%s", text);
        kill(pid, numbers[i]);
        snprintf(got, sizeof(got), "got %d", numbers[i]);
        expect(finish(pid, ends), 50 + (int)i, got, NULL);
    }
    unlink(path);
    rmdir(folder);
}

/* Uses SIGSTOP, because the kernel drops SIGTSTP for orphaned process groups, as this one is. */
Test(cli, run_follows_stops, .timeout = 30)
{
    char folder[] = "/tmp/gpuprof-test-XXXXXX", path[100], line[300];
    int ends[2], status;
    find_binary();
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/stop.sh", folder);
    FILE *script = fopen(path, "w");
    fputs("kill -STOP $$\nexit 33\n", script);
    fclose(script);
    snprintf(line, sizeof(line), "run --library=@ --summary sh %s", path);
    pid_t pid = launch(line, 0, ends);
    cr_assert_eq(waitpid(pid, &status, WUNTRACED), pid);
    cr_assert(WIFSTOPPED(status), "the command stops when its program does");
    kill(pid, SIGCONT);
    expect(finish(pid, ends), 33, NULL, NULL);
    unlink(path);
    rmdir(folder);
}

/* ---- trace ------------------------------------------------------------------------------------------------------- */

static int count_lines(const char *text, const char *word)
{
    int n = 0;
    for (; (text = strstr(text, word)); text++)
        n++;
    return n;
}

Test(cli, trace_of_a_program)
{
    setenv("GP_TEST_PROFILED", PROFILED_MS, 1);
    struct result r = run("trace --library=@ -- @");
    cr_assert_eq(count_lines(r.out, "alloc("), 50, "%s%s", r.out, r.err);
    cr_assert_eq(count_lines(r.out, "free("), 50);
    expect(r, 7, "= 0x7f0000000000", "100 events shown, 0 missed, 0 lost");
    r = run("trace --library=@ --json --kind pool --min 1051 -- @");
    cr_assert_eq(count_lines(r.out, "gpuprof.trace/1"), 25, "%s", r.out);
    char *end = strchr(r.out, '\n');
    *end = '\0';
    json_t *event = json_loads(r.out, 0, NULL);
    cr_assert_str_eq(json_string_value(json_object_get(event, "kind")), "pool");
    cr_assert_geq(json_integer_value(json_object_get(event, "size_bytes")), 1051);
    json_decref(event);
    expect(r, 7, NULL, "25 events shown");
    expect(run("trace --library=@ -- true"), 0, NULL, "no profiled process");
    expect(run("trace --library=@ -- no-such-program-anywhere"), 127, NULL, "No such file");
}

Test(cli, two_traces_at_once_and_interrupt)
{
    int a[2], b[2];
    find_binary();
    pid_t pid = start((struct gp_test_process_options){0});
    char line[64];
    snprintf(line, sizeof(line), "trace --backlog -p %d", (int)pid);
    pid_t first = launch(line, 0, a), second = launch(line, 0, b);
    usleep(300000);
    expect(run("mark both -p %d", pid), 0, NULL, NULL);
    usleep(200000);
    kill(first, SIGINT);
    struct result r = finish(first, a);
    cr_assert_eq(count_lines(r.out, "linear"), 10, "%s%s", r.out, r.err);
    expect(r, 0, "mark(", "11 events shown, 0 missed, 5 lost");
    gp_test_process_stop(pid); /* ends the other one */
    expect(finish(second, b), 0, "mark(", "11 events shown, 0 missed, 5 lost");
}

/* ---- doctor ------------------------------------------------------------------------------------------------------ */

/* The detail of the line for one pid; "" if it has no line. */
static const char *doctor_says(json_t *top, pid_t pid)
{
    char name[24];
    size_t i;
    json_t *check;
    snprintf(name, sizeof(name), "pid %d", (int)pid);
    json_array_foreach(json_object_get(top, "checks"), i,
                       check) if (strcmp(json_string_value(json_object_get(check, "check")), name) ==
                                  0) return json_string_value(json_object_get(check, "detail"));
    return "";
}

/* doctor searches every process for libraries of other profilers, also processes that are not
 * profiled.  Their names may be forged. */
Test(cli, doctor_names_other_profilers, .timeout = 60)
{
    char folder[] = "/tmp/gpuprof-test-XXXXXX", path[2][64], variable[] = "CUDA_INJECTION64_PATH=/opt/\033[2Jx.so";
    int ready[2];
    pid_t pids[3];
    char byte;
    find_binary();
    cr_assert(mkdtemp(folder));
    snprintf(path[0], sizeof(path[0]), "%s/libcupti.so.13", folder);
    snprintf(path[1], sizeof(path[1]), "%s/libToolsInjection64.so", folder);
    for (int i = 0; i < 3; i++) { /* CUPTI; CUPTI and a profiler; a profiler that the variable names */
        cr_assert_eq(pipe2(ready, O_CLOEXEC), 0);
        pids[i] = fork();
        if (pids[i] == 0) {
            for (int k = 0; k <= i && k < 2; k++) {
                int fd = open(path[k], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
                if (fd < 0 || ftruncate(fd, 4096) != 0 || mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED)
                    _exit(1);
            }
            if (i == 2)
                execle("/bin/sleep", "sleep", "50", NULL, (char *[]){variable, NULL});
            if (write(ready[1], "x", 1) == 1)
                pause();
            _exit(1);
        }
        close(ready[1]);
        cr_expect_eq(read(ready[0], &byte, 1), i < 2); /* exec closes it */
        close(ready[0]);
    }
    json_t *top = expect_json(run("doctor --json"), "gpuprof.doctor/1");
    cr_expect(strstr(doctor_says(top, pids[0]), "cannot be determined from outside"), "%s", doctor_says(top, pids[0]));
    cr_expect(strstr(doctor_says(top, pids[1]), "Nsight Systems"), "%s", doctor_says(top, pids[1]));
    cr_expect(strstr(doctor_says(top, pids[2]), "/opt/?[2Jx.so (CUDA_INJECTION64_PATH)"), "%s",
              doctor_says(top, pids[2]));
    cr_expect_str_empty(doctor_says(top, getpid()));
    json_decref(top);
    for (int i = 0; i < 3; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
    unlink(path[0]);
    unlink(path[1]);
    rmdir(folder);
}

/* The numbers that the libraries give, here the simulated GPU's. */
Test(cli, doctor_says_versions_and_devices, .timeout = 60)
{
    char folder[sizeof(binary) + 32];
    find_binary();
    snprintf(folder, sizeof(folder), "%s", binary);
    *strrchr(folder, '/') = '\0';
    strcpy(strrchr(folder, '/'), "/lib/gpuprof/sim");
    setenv("LD_LIBRARY_PATH", folder, 1);
    struct result r = run("doctor");
    unsetenv("LD_LIBRARY_PATH");
    const char *devices = strstr(r.out, "\ndevices    ok       ");
    cr_expect(strstr(r.out, "libcuda.so.1 for CUDA 13."), "%s", r.out);
    cr_expect(devices && atoi(devices + 21) > 0, "%s", r.out);
    cr_expect(strstr(r.out, ", API version 13"), "%s", r.out);
    free(r.out);
    free(r.err);
}

Test(cli, doctor, .timeout = 60)
{
    pid_t pid = start((struct gp_test_process_options){0});
    json_t *top = expect_json(run("doctor --json"), "gpuprof.doctor/1");
    json_t *checks = json_object_get(top, "checks"), *check;
    size_t i, mine = 0;
    char name[32], all[512] = "";
    snprintf(name, sizeof(name), "pid %d", (int)pid);
    json_array_foreach(checks, i, check)
    {
        const char *result = json_string_value(json_object_get(check, "result"));
        cr_assert(strcmp(result, "ok") == 0 || strcmp(result, "no") == 0 || strcmp(result, "unknown") == 0);
        const char *is = json_string_value(json_object_get(check, "check"));
        mine += strcmp(is, name) == 0;
        if (strncmp(is, "pid ", 4) != 0 && strlen(all) + strlen(is) + 2 < sizeof(all))
            snprintf(all + strlen(all), sizeof(all) - strlen(all), ",%s", is);
    }
    cr_assert_eq(mine, 1);
    json_decref(top);
    /* --need accepts every check that is printed. */
    struct result r = run("doctor --need %s", all + 1);
    cr_assert(r.status == 0 || r.status == 77, "%s: %d: %s", all, r.status, r.err);
    free(r.out);
    free(r.err);
    expect(run("doctor"), 0, "perf_event_paranoid", NULL);
    expect(run("doctor --need library,agent --pins /nonexistent"), 77, "no agent has pinned",
           "1 of these does not work here: agent");
    expect(run("doctor --need library"), 0, "library", NULL);
    /* Unknown names are refused: otherwise a misspelt name in a script would never fail. */
    expect(run("doctor --need libary"), 2, NULL, "--need=libary: must be kernel, library");
    expect(run("doctor --need library,"), 0, "library", NULL);
    expect(run("doctor --need pid"), 2, NULL, "--need=pid: must be kernel");
    gp_test_process_stop(pid);
}
