/* SPDX-License-Identifier: MIT
 *
 * test_pins.c: tests the pins of the agent's tables: modes, one owner, replacement without a gap,
 * and foreign entries that stay. Uses a private bpffs; skips without BPF.
 */
#include "agent/kernel/bpf.h"
#include <bpf/bpf.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct gp_bpf *bpf;
static char why[512];

/* Mounts a private bpffs that ends with the test's process. */
static void pins_begin(char at[80])
{
    if (geteuid() != 0)
        cr_skip_test("not root");
    bool is_alone = unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    if (!is_alone || mount("bpf", "/sys/fs/bpf", "bpf", 0, NULL))
        cr_skip_test("cannot mount a bpffs: %s", strerror(errno));
    snprintf(at, 80, "/sys/fs/bpf/gpuprof-test-%d", getpid());
    int error = gp_bpf_open(&bpf, NULL, why, sizeof why);
    if (error == -EPERM || error == -ENOTSUP)
        cr_skip_test("%s", why);
    cr_assert(error == 0, "%s", why);
}

Test(pins, are_created_and_removed, .timeout = 60)
{
    char at[80], path[128];
    pins_begin(at);
    cr_assert(eq(int, gp_bpf_pin(bpf, at, 1, why, sizeof why), 0), "%s", why);
    struct gp_map_meta meta;
    struct stat events, table;
    cr_assert(eq(int, gp_bpf_pinned_meta(at, &meta), 0));
    cr_assert(eq(u32, meta.agent_pid, (uint32_t)getpid()));
    snprintf(path, sizeof path, "%s/events", at);
    cr_assert(stat(path, &events) == 0 && (events.st_mode & 0777) == 0600);
    snprintf(path, sizeof path, "%s/process_device", at);
    cr_assert(stat(path, &table) == 0 && (table.st_mode & 0777) == 0640);
    cr_assert(table.st_gid == 1 && events.st_gid == 0, "the group owns another table than that of processes");
    char name[64];
    snprintf(path, sizeof path, "%s/mine", at);
    cr_assert(bpf_obj_pin(gp_bpf_map(bpf, "reset"), path) == 0);
    cr_assert(eq(int, gp_bpf_pins_foreign(at, name, sizeof name), 1));
    cr_assert_str_eq(name, "mine");
    gp_bpf_close(bpf);
    cr_assert(eq(int, gp_bpf_pinned_meta(at, &meta), 0), "pins do not outlive their agent");
    cr_assert(eq(int, gp_bpf_unpin(at), 0));
    cr_assert(eq(int, gp_bpf_pinned_meta(at, &meta), -ENOENT));
    cr_assert(stat(path, &table) == 0, "a foreign entry was removed");
    cr_assert(unlink(path) == 0 && gp_bpf_unpin(at) == 0 && stat(at, &table) < 0);
}

/* A reader in its own process sees each set of pins, and at no moment none. */
Test(pins, are_replaced_without_a_gap, .timeout = 60)
{
    char at[80];
    pins_begin(at);
    cr_assert(gp_bpf_pin(bpf, at, (gid_t)-1, why, sizeof why) == 0, "%s", why);
    int go[2];
    cr_assert(pipe2(go, O_NONBLOCK) == 0);
    pid_t reader = fork();
    if (reader == 0) {
        struct gp_map_meta meta;
        char end;
        bool ok = true;
        long looks = 0;
        close(go[1]);
        for (; ok && (read(go[0], &end, 1) != 0 || looks < 100); looks++)
            ok = gp_bpf_pinned_meta(at, &meta) == 0 && meta.agent_pid == (uint32_t)getppid();
        _exit(ok ? 0 : 1);
    }
    close(go[0]);
    int error = 0;
    for (int i = 0; i < 10 && !error; i++) {
        struct gp_bpf *next;
        error = gp_bpf_open(&next, NULL, why, sizeof why);
        for (int j = 0; j < 20 && !error; j++)
            error = gp_bpf_pin(next, at, (gid_t)-1, why, sizeof why);
        gp_bpf_close(bpf);
        bpf = next;
    }
    close(go[1]);
    int status;
    waitpid(reader, &status, 0);
    cr_assert(error == 0, "%s", why);
    cr_assert(status == 0, "the reader found no pins or foreign ones");
    cr_assert(gp_bpf_unpin(at) == 0);
}

Test(pins, have_one_owner, .timeout = 60)
{
    char at[80], path[128], pid[32];
    struct stat about;
    pins_begin(at);
    int lock = gp_bpf_pins_lock(at, why, sizeof why);
    cr_assert(lock >= 0, "%s", why);
    cr_assert(gp_bpf_pin(bpf, at, (gid_t)-1, why, sizeof why) == 0, "%s", why);
    cr_assert(eq(int, gp_bpf_pins_lock(at, why, sizeof why), -EEXIST));
    snprintf(pid, sizeof pid, "pid %d", getpid());
    cr_assert(strstr(why, pid) != NULL, "%s", why);
    close(lock); /* as a kill -9 does */
    lock = gp_bpf_pins_lock(at, why, sizeof why);
    cr_assert(lock >= 0, "%s", why);
    cr_assert(gp_bpf_unpin(at) == 0);
    cr_assert(eq(int, gp_bpf_pins_held(at, lock), false));
    int next = gp_bpf_pins_lock(at, why, sizeof why);
    cr_assert(gp_bpf_pins_held(at, next) && !gp_bpf_pins_held(at, lock));
    cr_assert(next >= 0, "the lock of a removed directory blocks the next one: %s", why);
    close(next);
    close(lock);
    /* A foreign map under one of the names. */
    snprintf(path, sizeof path, "%s/device", at);
    cr_assert(bpf_obj_pin(gp_bpf_map(bpf, "container"), path) == 0);
    cr_assert(eq(int, gp_bpf_pin(bpf, at, (gid_t)-1, why, sizeof why), -EEXIST));
    cr_assert(strstr(why, path) != NULL, "%s", why);
    cr_assert(gp_bpf_unpin(at) == 0 && stat(path, &about) == 0, "it was removed at the end");
    unlink(path);
    cr_assert(gp_bpf_unpin(at) == 0 && stat(at, &about) < 0);
    cr_assert(eq(int, gp_bpf_pins_lock("/tmp", why, sizeof why), -ENOENT));
    cr_assert(strstr(why, "bpffs") != NULL, "%s", why);
}

/* Another user tries everything: locks what it can open, creates the directory first, and puts a
 * symbolic link there. */
Test(pins, another_user_cannot_block_an_agent, .timeout = 60)
{
    char at[80], lock_at[96];
    int ready[2];
    pins_begin(at);
    int lock = gp_bpf_pins_lock(at, why, sizeof why);
    cr_assert(lock >= 0 && gp_bpf_pin(bpf, at, (gid_t)-1, why, sizeof why) == 0, "%s", why);
    close(lock);
    snprintf(lock_at, sizeof lock_at, "%s/lock", at);
    cr_assert(pipe(ready) == 0);
    pid_t user = fork();
    if (user == 0) {
        char result = 0;
        if (setgid(65534) || setuid(65534))
            _exit(1);
        int fd = open(at, O_RDONLY | O_DIRECTORY);
        result |= fd < 0 || flock(fd, LOCK_EX | LOCK_NB) ? 1 : 0; /* it may lock the directory; that must not matter */
        result |= open(lock_at, O_RDONLY | O_DIRECTORY) >= 0 ? 2 : 0;
        if (write(ready[1], &result, 1) != 1)
            _exit(1);
        pause();
    }
    char result = 4;
    cr_assert(read(ready[0], &result, 1) == 1);
    lock = gp_bpf_pins_lock(at, why, sizeof why);
    kill(user, SIGKILL);
    waitpid(user, NULL, 0);
    cr_assert(eq(int, result, 0), "1: the user could not lock the directory; 2: the user opened the lock");
    cr_assert(lock >= 0, "%s", why);
    cr_assert(gp_bpf_unpin(at) == 0);
    close(lock);
    cr_assert(mkdir(at, 0755) == 0 && chown(at, 65534, 65534) == 0);
    cr_assert(eq(int, gp_bpf_pins_lock(at, why, sizeof why), -EEXIST));
    cr_assert(strstr(why, "another user") != NULL, "%s", why);
    cr_assert(eq(int, gp_bpf_pin(bpf, at, (gid_t)-1, why, sizeof why), -EEXIST));
    cr_assert(chown(at, 0, 0) == 0 && chmod(at, 0777) == 0);
    cr_assert(eq(int, gp_bpf_pins_lock(at, why, sizeof why), -EEXIST));
    cr_assert(rmdir(at) == 0 && symlink("/sys/fs/bpf", at) == 0);
    cr_assert(lt(int, gp_bpf_pins_lock(at, why, sizeof why), 0));
    cr_assert(strstr(why, "link") != NULL, "%s", why);
    unlink(at);
}
