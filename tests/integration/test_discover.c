/* SPDX-License-Identifier: MIT
 *
 * test_discover.c: tests that copies of the library in all kinds of mounts are found, armed once
 * and disarmed, and that files which must not be armed are refused at a bounded cost. Each test
 * runs in private pid and mount namespaces, so it finds only copies of its own processes, and its
 * mounts and processes end with it.
 * Run: first
 */
#include "agent/find/discover.h"
#include "agent/find/library.h"
#include "base/clock.h"
#include "lib/elsewhere.h"
#include "lib/inside.h"
#include "lib/kid.h"
#include "lib/ledger.h"
#include "lib/paths.h"
#include "lib/spawn.h"
#include "read/common/agentlog.h"
#include <agent/kernel/bpf.h>
#include <bpf/bpf.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/maps.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1ll << 20)

static struct gp_bpf *bpf;
static struct gp_libraries *libraries;
static struct gp_discover *discover;
static char why[512];
#define top inside_top()
static pid_t mapped_last;

/* ---- the loop -------------------------------------------------------------------------------------------------- */

static void mapped(void *arg, pid_t pid)
{
    (void)arg;
    mapped_last = pid;
}

static bool is_text;

static void discover_start(void)
{
    struct gp_discover_options options = {.libraries = libraries, .mapped = mapped, .no_query = is_text};
    NEED(gp_discover_open(&discover, &options, why, sizeof(why)) == 0, "%s", why);
}

static void finish(void)
{
    gp_discover_close(discover);
    gp_libraries_close(libraries);
    gp_bpf_close(bpf);
}

static void bpf_start(const struct gp_bpf_options *options)
{
    gp_agent_log_open(getenv("GPUPROF_TEST_VERBOSE") ? GP_AGENTLOG_DEBUG : GP_AGENTLOG_ERROR);
    int error = gp_bpf_open(&bpf, options, why, sizeof(why));
    if (error == -EPERM || error == -ENOTSUP) {
        inside_say("%s", why);
        _exit(INSIDE_SKIP);
    }
    NEED(error == 0, "%s", why);
    NEED(gp_libraries_open(&libraries, bpf) == 0);
}

static void start(void)
{
    bpf_start(NULL);
    discover_start();
}

static int64_t now_ms(void)
{
    return (int64_t)(gp_clock_ns() / 1000000);
}

/* One round of the agent's loop, of at most ms. */
static void loop_once(int ms)
{
    struct pollfd wait[2] = {{.fd = gp_discover_fd(discover), .events = POLLIN},
                             {.fd = gp_libraries_fd(libraries), .events = POLLIN}};
    poll(wait, 2, ms);
    if (wait[0].revents)
        gp_discover_turn(discover);
    if (wait[1].revents)
        gp_libraries_turn(libraries);
    if (gp_libraries_idle(libraries) && gp_discover_sweep(discover) >= 0)
        gp_libraries_disarm_idle(libraries);
}

static void loop(int ms)
{
    for (int64_t until = now_ms() + ms; now_ms() < until;)
        loop_once(20);
}

#define armed() (gp_libraries_count(libraries).armed)

/* Milliseconds until this many are armed, or -1 after 30 s, which is a second on a machine with a load of thirty. */
static int loop_until_armed(unsigned count)
{
    int64_t since = now_ms();
    while (armed() != count && now_ms() - since < 30000)
        loop_once(20);
    return armed() == count ? (int)(now_ms() - since) : -1;
}

/* ---- files and processes --------------------------------------------------------------------------------------- */

/* A copy of probe_fire: it has the probe, and its exec maps its own file. */
static void fire_copy(const char *to)
{
    inside_shell("mkdir -p $(dirname %s); cp %s %s; chmod 755 %s", to, path_program("probe_fire"), to, to);
}

static struct kid kid_start(const char *program)
{
    struct kid kid;
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", top, program);
    NEED(kid_begin(&kid, kid_exec_file, path) == 0, "%s did not start", path);
    return kid;
}

/* Fires `times` batches with one byte each. */
static void fire(struct kid *kid, int times)
{
    for (int i = 0; i < times; i++)
        kid_tell(kid, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, 1ll << 30);
}

static int64_t allocated(void)
{
    int64_t sum = 0;
    struct gp_map_device_key key, *last = NULL;
    struct gp_map_sum row;
    int map = gp_bpf_map(bpf, "device");
    while (bpf_map_get_next_key(map, last, &key) == 0) {
        if (bpf_map_lookup_elem(map, &key, &row) == 0)
            sum += row.allocated_bytes;
        last = &key;
    }
    return sum;
}

/* An agent on this machine arms these copies too, in any namespace, and holds their mounts. */
static void alone_or_skip(void)
{
    ELSEWHERE_SKIP();
}

TestSuite(discover, .init = alone_or_skip);

/* ---- found ----------------------------------------------------------------------------------------------------- */

/* The real library, copied into a private mount namespace. */
INSIDE_TEST(discover, a_copy_in_a_container_is_counted, finish)
{
    char script[3 * PATH_MAX], ledger[PATH_MAX], injection[PATH_MAX];
    start();
    loop(50);
    snprintf(script, sizeof(script), "mkdir %s/own; mount -t tmpfs tmpfs %s/own; cp %s %s/own/; exec %s", top, top,
             path_library(), top, path_program("linear"));
    snprintf(injection, sizeof(injection), "CUDA_INJECTION64_PATH=%s/own/libgpuprof.so", top);
    snprintf(ledger, sizeof(ledger), "GPUPROF_TEST_LEDGER=%s/ledger.%%p", top);
    struct spawn_options options = {.argv = (const char *[]){"/usr/bin/unshare", "-m", "/bin/sh", "-c", script, NULL},
                                    .env = (const char *[]){injection, ledger, NULL},
                                    .want_hold = true};
    struct spawn spawn;
    struct spawn_result result;
    NEED(spawn_start(&spawn, &options) == 0);
    NEED(spawn_wait_held(&spawn, 1) == 0, "the program does not run");
    int took = loop_until_armed(1);
    NEED(took >= 0, "not found");
    NEED(mapped_last == spawn.held[0], "%d, not %d", (int)mapped_last, (int)spawn.held[0]);
    int64_t since = now_ms();
    struct ledger_diff diff = {0};
    json_t *told = ledger_stat(&diff, spawn.held[0]); /* what the agent's query does: the process fires a batch */
    NEED(told, "%s", diff.text);
    while (allocated() == 0 && now_ms() - since < 30000)
        loop_once(20);
    json_t *truth = ledger_load(&diff, ledger + strlen("GPUPROF_TEST_LEDGER="), spawn.held[0]);
    NEED(truth, "%s", diff.text);
    inside_say("armed %d ms after the program was there, counted %d ms later\n", took, (int)(now_ms() - since));
    NEED(allocated() == json_at(told, "devices/0/allocated/bytes", allocated()), "%lld", (long long)allocated());
    NEED(allocated() == 3 * MIB + 5 + MIB + 1 + 4097 + 512 + 1, "%lld", (long long)allocated());
    spawn_finish(&spawn, &result);
    NEED(WIFEXITED(result.status) && WEXITSTATUS(result.status) == 0, "%s", result.err);
    NEED(allocated() == 0, "its bytes remain after its end");
    NEED(loop_until_armed(0) >= 0, "the copy of an ended container stays armed");
}

INSIDE_TEST(discover, an_existing_mapping_is_found, finish)
{
    fire_copy("libgpuprof.so");
    bpf_start(NULL);
    struct kid kid = kid_start("libgpuprof.so");
    NEED(kid_tell(&kid, "s") == 0);
    discover_start();
    NEED(loop_until_armed(1) >= 0);
    NEED(kid_tell(&kid, "s") == 1, "its semaphore");
    fire(&kid, 3);
    NEED(gp_bpf_meta(bpf)->batches == 3 && allocated() == MIB);
    kid_end(&kid, SIGKILL);
}

INSIDE_TEST(discover, a_deleted_file_that_is_mapped_is_found, finish)
{
    start();
    loop(50);
    fire_copy("libgpuprof.so");
    struct kid kid = kid_start("libgpuprof.so");
    inside_shell("rm libgpuprof.so; mkfifo libgpuprof.so"); /* another file has its name: only the mapping is right */
    NEED(loop_until_armed(1) >= 0);
    fire(&kid, 3);
    NEED(gp_bpf_meta(bpf)->batches == 3);
    NEED(gp_discover_sweep(discover) == 1);
    NEED(armed() == 1 && gp_libraries_count(libraries).mappers == 1);
    kid_end(&kid, SIGKILL);
}

INSIDE_TEST(discover, another_name_is_found_by_its_build_id, finish)
{
    start();
    fire_copy("libgpuprof.so");
    inside_shell("cp libgpuprof.so other; cp /bin/true foreign");
    struct kid first = kid_start("libgpuprof.so");
    NEED(loop_until_armed(1) >= 0);
    if (!gp_discover_count(discover).has_build_ids) {
        inside_say("the kernel's records have no build ids");
        _exit(INSIDE_SKIP);
    }
    struct kid second = kid_start("other");
    NEED(loop_until_armed(2) >= 0, "a copy with another name and the same build id was not found");
    fire(&second, 2);
    NEED(gp_bpf_meta(bpf)->batches == 2);
    kid_end(&first, SIGKILL);
    NEED(loop_until_armed(1) >= 0);
    loop(500);
    NEED(armed() == 1, "the sweep does not know the other name");
    kid_end(&second, SIGKILL);
    NEED(loop_until_armed(0) >= 0);
}

/* ---- the same file --------------------------------------------------------------------------------------------- */

static const char overlays[] =
    "mkdir -p u1 w1 m1 u2 w2 m2 u3 w3 m3 bind; "
    "mount -t overlay o1 -o lowerdir=lower,upperdir=u1,workdir=w1 m1; "
    "mount -t overlay o2 -o lowerdir=lower,upperdir=u2,workdir=w2 m2; "
    "mount -t overlay o3 -o lowerdir=lower,upperdir=u3,workdir=w3,metacopy=on m3; touch -h -d @5 m3/libgpuprof.so; "
    "mount --bind lower bind; ln lower/libgpuprof.so lower/libgpuprof-link.so; "
    "cp -p lower/libgpuprof.so lower/libgpuprof-copy.so; touch m2/libgpuprof.so";

static void same(const struct gp_bpf_options *options)
{
    static const struct {
        const char *path;
        unsigned armed;
    } steps[] = {
        {"m1/libgpuprof.so", 1},
        {"lower/libgpuprof.so", 1},
        {"m3/libgpuprof.so", 1},
        {"bind/libgpuprof.so", 1},
        {"lower/libgpuprof-link.so", 1},
        {"lower/libgpuprof-copy.so", 2},
        {"m2/libgpuprof.so", 3 /* a copy-up: the same numbers, but another file */},
    };
    enum { STEPS = sizeof(steps) / sizeof(steps[0]) };
    struct kid kids[STEPS];
    bpf_start(options);
    discover_start();
    fire_copy("lower/libgpuprof.so");
    inside_shell("%s", overlays);
    for (int i = 0; i < STEPS; i++) {
        kids[i] = kid_start(steps[i].path);
        mapped_last = 0;
        for (int64_t since = now_ms(); mapped_last != kids[i].pid && now_ms() - since < 5000;)
            loop_once(20);
        NEED(mapped_last == kids[i].pid, "%s was not seen", steps[i].path);
        NEED(armed() == steps[i].armed, "%s: %u are armed", steps[i].path, armed());
        NEED(kid_tell(&kids[i], "s") == 1, "%s", steps[i].path);
    }
    for (int i = 0; i < STEPS; i++)
        fire(&kids[i], 5);
    NEED(gp_bpf_meta(bpf)->batches == 5 * STEPS, "%llu", (unsigned long long)gp_bpf_meta(bpf)->batches);
    NEED(gp_bpf_meta(bpf)->old_batches == 0);
    /* The control: the same inode, armed a second time. */
    char path[PATH_MAX];
    struct gp_bpf_probe probe;
    snprintf(path, sizeof(path), "%s/m3/libgpuprof.so", top);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    NEED(gp_bpf_probe_find(fd, &probe) == 0);
    int again = gp_bpf_attach(bpf, fd, &probe, why, sizeof(why));
    NEED(again >= 0, "%s", why);
    fire(&kids[0], 5);
    NEED(gp_bpf_meta(bpf)->old_batches == 5, "%llu", (unsigned long long)gp_bpf_meta(bpf)->old_batches);
    close(again);
    for (int i = 0; i < STEPS; i++)
        kid_end(&kids[i], SIGKILL);
    NEED(loop_until_armed(0) >= 0);
}

INSIDE_TEST(discover, one_inode_is_armed_once, finish)
{
    same(NULL);
}

INSIDE_TEST(discover, one_inode_is_armed_once_through_perf, finish)
{
    same(&(struct gp_bpf_options){.by_perf = true});
}

/* As `gpuprof attach` makes one of the file. */
static int memory_copy(const char *path)
{
    int from = open(path, O_RDONLY | O_CLOEXEC), to = memfd_create("gpuprof/libgpuprof.so", MFD_ALLOW_SEALING);
    struct stat about;
    NEED(from >= 0 && to >= 0 && fstat(from, &about) == 0);
    NEED(sendfile(to, from, NULL, (size_t)about.st_size) == about.st_size);
    NEED(fcntl(to, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK) == 0);
    close(from);
    return to;
}

/* Another agent's breakpoint in the copy of one attached program, which equals that of another. */
INSIDE_TEST(discover, attached_programs_are_told_apart_beside_another_agent, finish)
{
    char path[PATH_MAX], self[32];
    struct gp_bpf_probe probe;
    struct gp_library_offer offer = {.pid = getpid(), .name = "/memfd:gpuprof/libgpuprof.so (deleted)"};
    bpf_start(NULL);
    fire_copy("lower/libgpuprof.so");
    snprintf(path, sizeof(path), "%s/lower/libgpuprof.so", top);
    NEED(gp_libraries_keep(libraries, path, why, sizeof(why)) == 0, "%s", why);
    int first = memory_copy(path), second = memory_copy(path);
    NEED(gp_bpf_probe_find(second, &probe) == 0);
    int other = gp_bpf_attach(bpf, second, &probe, why, sizeof(why));
    NEED(other >= 0, "%s", why);
    snprintf(self, sizeof(self), "/proc/%d", (int)getpid());
    offer.proc = open(self, O_PATH | O_DIRECTORY | O_CLOEXEC);
    offer.fd = first;
    NEED(gp_libraries_offer(libraries, &offer) == 1);
    offer.fd = second;
    NEED(gp_libraries_offer(libraries, &offer) == 1, "the other agent's breakpoint was taken for ours");
    NEED(gp_libraries_offer(libraries, &offer) == 0);
    NEED(armed() == 3, "%u", armed());
    close(other);
}

/* ---- refused --------------------------------------------------------------------------------------------------- */

#define refused() (gp_libraries_count(libraries).refused)

/* Starts a process that maps the file with this name from now on; no exec, so any file can be
 * mapped. */
static pid_t mapper_start(const char *name, int times)
{
    char path[PATH_MAX], byte;
    int ready[2];
    snprintf(path, sizeof(path), "%s/%s", top, name);
    NEED(pipe(ready) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(path, O_RDONLY);
        for (int i = 0; i < times; i++)
            if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 4096 * (i & 1)) == MAP_FAILED)
                _exit(98);
        close(fd);
        if (write(ready[1], "r", 1) == 1)
            pause();
        _exit(0);
    }
    close(ready[1]);
    NEED(read(ready[0], &byte, 1) == 1, "%s cannot be mapped", path);
    close(ready[0]);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

INSIDE_TEST(discover, files_of_others_are_refused_once, finish)
{
    static const char *const how[] = {"chown 1 $F", "chmod 664 $F; chgrp 1 $F", "chmod 757 $F", "truncate -s 300M $F"};
    start();
    loop(50);
    for (unsigned i = 0; i < sizeof(how) / sizeof(how[0]); i++) {
        char name[64];
        snprintf(name, sizeof(name), "libgpuprof-%u.so", i);
        fire_copy(name);
        inside_shell("F=%s; %s", name, how[i]);
        pid_t first = mapper_start(name, 1), second = mapper_start(name, 1);
        loop(500);
        NEED(armed() == 0, "%s", how[i]);
        NEED(refused() == i + 1, "%s: once a file: %llu", how[i], (unsigned long long)refused());
        end(first);
        end(second);
    }
    /* With corrected owner and mode it is armed. */
    inside_shell("chown 0 libgpuprof-0.so");
    pid_t pid = mapper_start("libgpuprof-0.so", 1);
    NEED(loop_until_armed(1) >= 0);
    end(pid);
}

static void exec_as_user(void *arg, int exec_fd)
{
    if (chdir(top) == 0 && setgroups(0, NULL) == 0 && setgid(64002) == 0 && setuid(64001) == 0)
        kid_exec_file(arg, exec_fd);
}

/* Whether the program's file is armed, which became another one while the program ran.  The search may have seen it before
 * that: then it is armed with reason, and another one tells. */
static bool swap_is_armed(unsigned number, const char *how)
{
    struct kid kid;
    char name[32];
    snprintf(name, sizeof(name), "d%u/libgpuprof", number);
    fire_copy(name);
    inside_shell("chmod 755 . d%u", number);
    NEED(kid_begin(&kid, exec_as_user, name) == 0);
    inside_shell("F=%s; %s", name, how);
    inside_admin(false);
    int64_t since = now_ms();
    while (gp_discover_count(discover).has_map_files && now_ms() - since < 30000)
        loop_once(20); /* until it has looked without the right to */
    NEED(!gp_discover_count(discover).has_map_files);
    loop(600); /* one that holds it up would do so for ever */
    bool is_armed = armed() != 0;
    inside_admin(true);
    kid_end(&kid, SIGKILL);
    NEED(loop_until_armed(0) >= 0);
    return is_armed;
}

INSIDE_TEST(discover, a_name_that_is_another_file_by_now, finish)
{
    struct kid kid;
    static const char *const how[] = {
        "rm $F; mkfifo $F",
        "rm $F; mknod $F c 1 5",
        "rm $F; ln -s /bin/true $F",
        "rm $F; cp /bin/true $F",
        "rm $F; mkdir $F",
        /* The process itself could not open it. Only a link that was followed before is cached. */
        "mkdir -p -m 700 p; cp $F p; ln -sf ../p/libgpuprof $F; sleep 0.05; cat $F >/dev/null",
    };
    start();
    if (!gp_bpf_is_multi(bpf)) {
        inside_say("probes need CAP_SYS_ADMIN here");
        _exit(INSIDE_SKIP);
    }
    loop(50);
    for (unsigned i = 0; i < sizeof(how) / sizeof(how[0]); i++) {
        bool armed_it = true;
        for (unsigned again = 0; armed_it && again < 5; again++)
            armed_it = swap_is_armed(5 * i + again, how[i]);
        NEED(!armed_it, "%s", how[i]);
    }
    /* The control: a file that was not swapped is found by its path. */
    fire_copy("libgpuprof.so");
    NEED(kid_begin(&kid, exec_as_user, "libgpuprof.so") == 0);
    inside_admin(false);
    NEED(loop_until_armed(1) >= 0);
    fire(&kid, 2);
    NEED(gp_bpf_meta(bpf)->batches == 2);
    kid_end(&kid, SIGKILL);
}

static long rss_kib(void)
{
    char line[128];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof(line), status))
        if (sscanf(line, "VmRSS: %ld", &kib) == 1)
            break;
    if (status)
        fclose(status);
    return kib;
}

static uint64_t found_or_lost(void)
{
    struct gp_discover_count seen = gp_discover_count(discover);
    return seen.candidates + seen.lost;
}

/* One tenant creates thousands of files; another tenant's copy, on its own file system, is still
 * armed. */
INSIDE_TEST(discover, a_tenant_with_thousands_of_files, finish)
{
    enum { FILES = 5000 };
    start();
    loop(300);
    long before = rss_kib();
    int64_t since = now_ms();
    pid_t tenant = fork();
    if (tenant == 0) {
        for (int i = 0;; i++) {
            char path[PATH_MAX];
            snprintf(path, sizeof(path), "%s/libgpuprof-%d.so", top, i % FILES);
            int fd = open(path, O_RDWR | O_CREAT, 0644);
            if (fd < 0 || ftruncate(fd, 4096) ||
                munmap(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0), 4096))
                _exit(1);
            close(fd);
            if (i >= FILES)
                usleep(100);
        }
    }
    while (found_or_lost() < FILES && now_ms() - since < 20000)
        loop_once(20);
    inside_shell("mkdir other; mount -t tmpfs tmpfs other");
    fire_copy("other/libgpuprof.so");
    struct kid kid = kid_start("other/libgpuprof.so");
    int took = loop_until_armed(1);
    struct gp_libraries_count count = gp_libraries_count(libraries);
    struct gp_discover_count seen = gp_discover_count(discover);
    inside_say("%llu candidates, %llu refused, %llu postponed, %llu records lost; the quiet one was armed after %d ms; "
               "%ld KiB more memory\n",
               (unsigned long long)seen.candidates, (unsigned long long)count.refused,
               (unsigned long long)count.postponed, (unsigned long long)seen.lost, took, rss_kib() - before);
    NEED(took >= 0, "starved");
    NEED(found_or_lost() >= FILES);
    NEED(count.refused <= 32 + 4 * ((uint64_t)(now_ms() - since) / 1000 + 1) && count.postponed > 0,
         "too many were examined");
#ifndef __SANITIZE_ADDRESS__ /* it keeps freed memory */
    NEED(rss_kib() - before < 1024);
#endif
    end(tenant);
    kid_end(&kid, SIGKILL);
}

INSIDE_TEST(discover, a_file_system_has_a_limited_share, finish)
{
    enum { COPIES = 24 };
    pid_t mappers[COPIES];
    start();
    for (int i = 0; i < COPIES; i++) {
        char name[32];
        snprintf(name, sizeof(name), "libgpuprof-%d.so", i);
        fire_copy(name);
        mappers[i] = mapper_start(name, 1);
    }
    for (int64_t since = now_ms(); refused() < COPIES - GP_LIBRARY_OF_ONE && now_ms() - since < 10000;)
        loop_once(20);
    NEED(armed() == GP_LIBRARY_OF_ONE, "%u of one file system", armed());
    NEED(refused() == COPIES - GP_LIBRARY_OF_ONE, "not refused once per file: %llu", (unsigned long long)refused());
    gp_discover_sweep(discover);
    NEED(refused() == COPIES - GP_LIBRARY_OF_ONE, "again");
    for (int i = 0; i < COPIES; i++)
        end(mappers[i]);
    NEED(loop_until_armed(0) >= 0);
}

/* ---- disarmed -------------------------------------------------------------------------------------------------- */

static bool can_unmount(const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", top, name);
    return umount(path) == 0;
}

static void unmount_body(void)
{
    start();
    fire_copy("lower/libgpuprof.so");
    inside_shell("mkdir u w m; mount -t overlay o -o lowerdir=lower,upperdir=u,workdir=w m");
    struct kid kid = kid_start("m/libgpuprof.so");
    NEED(loop_until_armed(1) >= 0);
    /* Its only mapper ends, but a forked child still maps the file without any record. */
    pid_t first = kid.pid;
    NEED(kid_tell(&kid, "k") == 0);
    NEED(waitpid(first, NULL, 0) == first);
    kid.pid = (pid_t)kid_tell(&kid, "p");
    loop(700);
    NEED(armed() == 1 && gp_libraries_count(libraries).mappers == 1, "the child was not found");
    fire(&kid, 1);
    NEED(gp_bpf_meta(bpf)->batches == 1);
    kid_end(&kid, SIGKILL);
    NEED(!can_unmount("m") && errno == EBUSY, "the control: while it is armed its mount is held");
    NEED(loop_until_armed(0) >= 0);
    /* An agent of a test beside this one sees the file too, and holds it until its own next sweep. */
    bool is_free = can_unmount("m");
    for (int64_t since = now_ms(); !is_free && now_ms() - since < 10000; is_free = can_unmount("m"))
        usleep(20000);
    NEED(is_free, "%s", strerror(errno));
}

Test(discover, a_container_can_be_unmounted, .timeout = 120)
{
    INSIDE(unmount_body, finish);
}

INSIDE_TEST(discover, a_process_that_unmapped_the_copy_is_dropped, finish)
{
    start();
    fire_copy("libgpuprof.so");
    int go[2];
    NEED(pipe(go) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        char path[PATH_MAX], byte;
        snprintf(path, sizeof(path), "%s/libgpuprof.so", top);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED || read(go[0], &byte, 1) != 1)
            _exit(1);
        execl("/bin/sleep", "sleep", "60", (char *)NULL);
        _exit(1);
    }
    NEED(loop_until_armed(1) >= 0);
    NEED(write(go[1], "x", 1) == 1);
    usleep(300000);
    NEED(gp_libraries_idle(libraries) == 0, "it lives");
    NEED(gp_discover_sweep(discover) == 0);
    NEED(gp_libraries_idle(libraries) == 1, "the sweep did not see that it maps another program");
    NEED(loop_until_armed(0) >= 0);
    end(pid);
}

INSIDE_TEST(discover, a_named_file_stays, finish)
{
    char path[PATH_MAX];
    start();
    fire_copy("libgpuprof.so");
    snprintf(path, sizeof(path), "%s/libgpuprof.so", top);
    NEED(gp_libraries_keep(libraries, path, why, sizeof(why)) == 0, "%s", why);
    struct kid kid = kid_start("libgpuprof.so");
    NEED(kid_tell(&kid, "s") == 1, "not armed before it is mapped");
    loop(300);
    NEED(mapped_last == kid.pid && armed() == 1);
    kid_end(&kid, SIGKILL);
    loop(500);
    NEED(armed() == 1, "not armed until the end");
    inside_shell("mkfifo fifo; cp libgpuprof.so theirs; chown 1 theirs; cp /bin/true none");
    snprintf(path, sizeof(path), "%s/fifo", top);
    NEED(gp_libraries_keep(libraries, path, why, sizeof(why)) == -EPERM && strstr(why, "not a regular file"), "%s",
         why);
    snprintf(path, sizeof(path), "%s/theirs", top);
    NEED(gp_libraries_keep(libraries, path, why, sizeof(why)) == -EPERM && strstr(why, "root"), "%s", why);
    snprintf(path, sizeof(path), "%s/none", top);
    NEED(gp_libraries_keep(libraries, path, why, sizeof(why)) == -ENOENT && strstr(why, "no probe"), "%s", why);
    snprintf(path, sizeof(path), "%s/absent", top);
    NEED(gp_libraries_keep(libraries, path, why, sizeof(why)) == -ENOENT && strstr(why, "absent"), "%s", why);
}

/* ---- losses, sweeps -------------------------------------------------------------------------------------------- */

INSIDE_TEST(discover, a_sweep_makes_up_for_lost_records, finish)
{
    start();
    loop(1100); /* the first sweep, and the pause after it */
    uint64_t sweeps = gp_discover_count(discover).sweeps;
    fire_copy("libgpuprof.so");
    inside_shell("cp /bin/sh noise");
    pid_t noise = mapper_start("noise", 20000); /* many times the capacity of all rings, which have no reader */
    pid_t quiet = fork(), status = 0;
    if (quiet == 0) { /* on each CPU, since each has its own ring: the last record there is lost */
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "%s/noise", top);
        int fd = open(path, O_RDONLY);
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            for (int i = 0; sched_setaffinity(0, sizeof(one), &one) == 0 && i < 2000; i++)
                mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 4096 * (i & 1));
        }
        snprintf(path, sizeof(path), "%s/libgpuprof.so", top);
        int copy = open(path, O_RDONLY);
        mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, copy, 0);
        raise(SIGSTOP);
        _exit(0);
    }
    NEED(waitpid(quiet, &status, WUNTRACED) == quiet && WIFSTOPPED(status));
    NEED(loop_until_armed(1) >= 0, "no sweep followed the losses");
    struct gp_discover_count count = gp_discover_count(discover);
    inside_say("%llu records lost, %llu sweeps\n", (unsigned long long)count.lost,
               (unsigned long long)(count.sweeps - sweeps));
    NEED(count.lost > 0 && count.sweeps > sweeps);
    end(noise);
    end(quiet);
}

static pid_t idle_start(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    return pid;
}

enum { PROCESSES = 1000, MAPPERS = 100 };

static int sweep_whole(const char *which)
{
    int got, calls = 1;
    clock_t before = clock();
    for (int64_t since = now_ms(); (got = gp_discover_sweep(discover)) == -ETIME && now_ms() - since < 60000;)
        calls++;
    inside_say("%s sweep over %d processes%s: %ld us of CPU each, in %d pieces\n", which, PROCESSES,
               is_text ? ", by text" : "", (long)(clock() - before) * 1000000 / CLOCKS_PER_SEC / PROCESSES, calls);
    return got;
}

static void thousand_body(void)
{
    pid_t pids[PROCESSES];
    fire_copy("libgpuprof.so");
    bpf_start(NULL);
    for (int i = 0; i < PROCESSES; i++)
        pids[i] = i < MAPPERS ? mapper_start("libgpuprof.so", 1) : idle_start();
    discover_start();
    sweep_whole("the first");
    int got = sweep_whole("another");
    NEED(got > 0 && armed() == 1);
    NEED(gp_libraries_count(libraries).mappers == MAPPERS, "%u", gp_libraries_count(libraries).mappers);
    NEED(gp_libraries_idle(libraries) == 0);
    for (int i = 0; i < PROCESSES; i++)
        end(pids[i]);
    NEED(loop_until_armed(0) >= 0);
    NEED(gp_libraries_count(libraries).mappers == 0);
}

Test(discover, a_sweep_over_a_thousand_processes, .timeout = 120)
{
    INSIDE(thousand_body, finish);
}

INSIDE_TEST(discover, a_sweep_over_a_thousand_processes_by_text, finish)
{
    is_text = true;
    thousand_body();
}

INSIDE_TEST(discover, a_container_can_be_unmounted_by_text, finish)
{
    is_text = true;
    unmount_body();
}
