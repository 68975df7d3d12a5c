/* SPDX-License-Identifier: MIT
 *
 * test_wait.c: `gpuprof wait`: programs start when their memory is free, and two never take the same
 * bytes.  NVML is a stand-in (lib/preload/nvml.c), and the programs are scripts that write into its
 * folder what they allocate.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/build.h"
#include "lib/paths.h"
#include "lib/spawn.h"

#define GIB (1ull << 30)

static char *folder;
static const char *more; /* of the environment */

static void machine(const char *totals)
{
    char path[300];
    folder = build_folder();
    cr_assert(folder);
    cr_assert_eq(build_shared(folder, "nvml.c", "libnvidia-ml.so.1", "-Wl,-soname,libnvidia-ml.so.1"), 0);
    snprintf(path, sizeof(path), "%s/used", folder);
    cr_assert_eq(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/total", folder);
    FILE *file = fopen(path, "w");
    fputs(totals, file);
    fclose(file);
}

static void done(void)
{
    build_remove(folder);
    folder = NULL;
}

/* Starts `gpuprof wait --reservations=FOLDER ARGUMENTS...`. */
static struct spawn start(const char *first, ...)
{
    static char paths[3][320], command[512];
    const char *argv[24] = {command, "wait", paths[2], first}, *env[] = {paths[0], paths[1], more, NULL};
    struct spawn spawn;
    va_list list;
    snprintf(command, sizeof(command), "%s", path_command());
    snprintf(paths[0], sizeof(paths[0]), "LD_LIBRARY_PATH=%s", folder);
    snprintf(paths[1], sizeof(paths[1]), "GP_FAKE_NVML=%s", folder);
    snprintf(paths[2], sizeof(paths[2]), "--reservations=%s", folder);
    va_start(list, first);
    for (int i = 4; (argv[i] = va_arg(list, const char *)) && i < 22; i++)
        ;
    va_end(list);
    struct spawn_options options = {.argv = argv, .env = env};
    cr_assert_eq(spawn_start(&spawn, &options), 0);
    return spawn;
}

/* The exit status as a shell has it. */
static int end(struct spawn *spawn, char **err)
{
    struct spawn_result result;
    spawn_finish(spawn, &result);
    cr_assert(!result.is_timed_out, "%s", result.err);
    int status = WIFSIGNALED(result.status) ? 128 + WTERMSIG(result.status) : WEXITSTATUS(result.status);
    if (err)
        *err = strdup(result.err);
    spawn_result_free(&result);
    return status;
}

static void nap(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

static bool there(const char *name)
{
    char path[300];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void until_there(const char *name)
{
    for (int i = 0; i < 3000 && !there(name); i++)
        nap(0.01);
    cr_assert(there(name), "%s", name);
}

/* A program that holds all its memory for some time, and fails if more than `most` run at once. */
static const char program[] = "cd $GP_FAKE_NVML; mkdir -p run; touch run/$$; n=$(ls run | wc -l); "
                              "[ $n -le $most ] || { echo $n run; touch over; }; "
                              "sleep 0.2; echo 0 $bytes >used/$$; sleep 0.3; rm run/$$; rm used/$$";

static void race(int count, const char *need, unsigned long long bytes, int most)
{
    struct spawn spawns[20];
    char text[sizeof(program) + 100];
    machine("17179869184");
    snprintf(text, sizeof(text), "bytes=%llu most=%d; %s", bytes, most, program);
    for (int i = 0; i < count; i++)
        spawns[i] = start("--need", need, "--device", "0", "--", "sh", "-c", text, NULL);
    for (int i = 0; i < count; i++)
        cr_expect_eq(end(&spawns[i], NULL), 0);
    cr_expect(!there("over"));
    done();
}

Test(wait, two_do_not_take_the_same_bytes)
{
    race(2, "10GiB", 10 * GIB, 1);
}

Test(wait, twenty_do_not_take_the_same_bytes)
{
    race(20, "3GiB", 3 * GIB, 5);
}

Test(wait, the_time_passes)
{
    char *err;
    machine("17179869184");
    struct spawn first = start("--need=10GiB", "--", "sh", "-c", "touch $GP_FAKE_NVML/started; sleep 2", NULL);
    until_there("started");
    struct spawn late = start("--need=10GiB", "--timeout=0.6", "--", "touch", "/nonexistent/x", NULL);
    struct spawn once = start("--need=10GiB", "--timeout=0", "--", "touch", "/nonexistent/x", NULL);
    cr_expect_eq(end(&once, NULL), 75);
    cr_expect_eq(end(&late, &err), 75);
    cr_expect(strstr(err, "waiting for 10.00 GiB") && strstr(err, "10.00 GiB of it reserved"), "%s", err);
    free(err);
    cr_expect_eq(end(&first, NULL), 0);
    done();
}

Test(wait, statuses_and_refusals)
{
    machine("17179869184");
    static const struct {
        int status;
        const char *arguments[7];
    } rows[] = {
        {0, {"--need=1GiB", "--", "true"}},
        {7, {"--need=1GiB", "--", "sh", "-c", "exit 7"}},
        {137, {"--need=1GiB", "--", "sh", "-c", "kill -9 $$"}},
        {127, {"--need=1GiB", "--", "no-such-program-here"}},
        {126, {"--need=1GiB", "--", "/etc/passwd"}},
        {127, {"--need=1GiB", "--", "/no/such/program"}},
        {2, {"--need=12elephants", "--", "true"}},
        {2, {"--need=0", "--", "true"}},
        {2, {"--need=-1GiB", "--", "true"}},
        {2, {"--", "true", NULL}},
        {2, {"--need=1GiB", NULL}},
        {2, {"--need=1GiB", "--timeout=soon", "--", "true"}},
        {2, {"--need=1GiB", "--device=first", "--", "true"}},
        {77, {"--need=1GiB", "--device=3", "--", "true"}},
        {77, {"--need=17GiB", "--", "true"}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *const *a = rows[i].arguments;
        char *err;
        struct spawn spawn = start(a[0], a[1], a[2], a[3], a[4], a[5], NULL);
        cr_expect_eq(end(&spawn, &err), rows[i].status, "%s %s: %s", a[0], a[1] ? a[1] : "", err);
        free(err);
    }
    done();
}

/* `any`: the fullest device that has enough, and the program learns which. */
Test(wait, any_device)
{
    static const char check[] = "[ $CUDA_VISIBLE_DEVICES = GPU-00000000-0000-0000-0000-00000000000$0 ]";
    machine("17179869184 8589934592 34359738368");
    static const char *const rows[][2] = {{"4GiB", "2"}, {"9GiB", "1"}, {"20GiB", "3"}};
    for (int i = 0; i < 3; i++) {
        struct spawn spawn = start("--need", rows[i][0], "--", "sh", "-c", check, rows[i][1], NULL);
        cr_expect_eq(end(&spawn, NULL), 0, "%s", rows[i][0]);
    }
    more = "CUDA_VISIBLE_DEVICES=2"; /* only that one */
    struct spawn spawn = start("--need=4GiB", "--", "sh", "-c", check, "3", NULL);
    cr_expect_eq(end(&spawn, NULL), 0);
    more = NULL;
    done();
}

Test(wait, signals)
{
    machine("17179869184");
    struct spawn holder = start("--need=10GiB", "--", "sh", "-c",
                                "trap 'exit 9' TERM; touch $GP_FAKE_NVML/started; while :; do sleep 0.05; done", NULL);
    until_there("started");
    struct spawn waiter = start("--need=10GiB", "--", "true", NULL);
    nap(0.3);
    kill(waiter.pid, SIGINT);
    cr_expect_eq(end(&waiter, NULL), 130);
    kill(holder.pid, SIGTERM);
    cr_expect_eq(end(&holder, NULL), 9);
    done();
}

/* The program of a killed command keeps its reservation until it ends. */
Test(wait, the_command_is_killed)
{
    machine("17179869184");
    struct spawn killed =
        start("--need=10GiB", "--", "sh", "-c",
              "echo $$ >$GP_FAKE_NVML/pid; sleep 0.2; touch $GP_FAKE_NVML/started; exec sleep 30", NULL);
    until_there("started");
    kill(killed.pid, SIGKILL);
    struct spawn waiter = start("--need=10GiB", "--timeout=0.7", "--", "true", NULL);
    cr_expect_eq(end(&waiter, NULL), 75);
    char path[300];
    int pid = 0;
    snprintf(path, sizeof(path), "%s/pid", folder);
    FILE *file = fopen(path, "r");
    cr_assert_eq(fscanf(file, "%d", &pid), 1);
    fclose(file);
    cr_assert_gt(pid, 1);
    kill(pid, SIGKILL);
    cr_expect_eq(end(&killed, NULL), 137);
    waiter = start("--need=10GiB", "--timeout=5", "--", "true", NULL);
    cr_expect_eq(end(&waiter, NULL), 0);
    done();
}

/* The command whose program runs brings its reservation into the new file. */
Test(wait, the_file_is_removed)
{
    char line[400];
    machine("17179869184");
    struct spawn first = start("--need=10GiB", "--", "sh", "-c", "touch $GP_FAKE_NVML/started; sleep 3", NULL);
    until_there("started");
    snprintf(line, sizeof(line), "rm %s/wait*", folder);
    cr_assert_eq(system(line), 0);
    struct spawn second = start("--need=10GiB", "--timeout=0", "--", "true", NULL);
    cr_expect_eq(end(&second, NULL), 75);
    cr_expect_eq(end(&first, NULL), 0);
    done();
}

/* A command that was stopped with SIGSTOP during a decision. */
Test(wait, the_lock_is_not_free)
{
    char path[300], *err;
    machine("17179869184");
    snprintf(path, sizeof(path), "%s/wait", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    cr_assert_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
    struct spawn once = start("--need=1GiB", "--timeout=0", "--", "true", NULL);
    struct spawn late = start("--need=1GiB", "--timeout=30", "--", "true", NULL);
    cr_expect_eq(end(&once, NULL), 75);
    nap(9);
    close(fd);
    cr_expect_eq(end(&late, &err), 0);
    cr_expect(strstr(err, "has had the lock for 10 s"), "%s", err);
    free(err);
    done();
}

/* A reservation ends when the program has the memory: also if it gives it back. */
Test(wait, allocated_or_held_for_too_long)
{
    machine("17179869184");
    struct spawn first =
        start("--need=10GiB", "--", "sh", "-c",
              "cd $GP_FAKE_NVML; echo 0 10737418240 >used/$$; sleep 1; rm used/$$; touch freed; sleep 2", NULL);
    until_there("freed");
    struct spawn second = start("--need=10GiB", "--timeout=0.5", "--hold=0.4", "--", "sleep", "2", NULL);
    nap(0.2);
    struct spawn third = start("--need=10GiB", "--timeout=1.5", "--", "true", NULL);
    cr_expect_eq(end(&third, NULL), 0);
    cr_expect_eq(end(&second, NULL), 0);
    cr_expect_eq(end(&first, NULL), 0);
    done();
}

/* A file of another version, or with other contents, reserves nothing. */
Test(wait, a_damaged_file_is_no_reservation)
{
    machine("17179869184");
    char path[300];
    snprintf(path, sizeof(path), "%s/wait", folder);
    FILE *file = fopen(path, "w");
    for (int i = 0; i < 100000; i++)
        fputc(i * 7919 % 251, file);
    fclose(file);
    struct spawn spawn = start("--need=10GiB", "--timeout=5", "--", "true", NULL);
    cr_expect_eq(end(&spawn, NULL), 0);
    done();
}
