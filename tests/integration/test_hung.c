/* SPDX-License-Identifier: MIT
 *
 * test_hung.c: files on a file system whose server does not answer. The kernel then waits for ever, in a wait
 * that no signal ends; a viewer gives up and goes on.
 */
#include "lib/inside.h"
#include "lib/paths.h"
#include "read/common/foreign.h"
#include <base/clock.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#define top inside_top()

/* Answers that it is there, and nothing else. */
static void serve(int fd)
{
    static _Alignas(8) char in[1 << 17];
    for (;;) {
        struct {
            struct fuse_out_header head;
            struct fuse_init_out init;
        } out = {.init = {.major = 7, .minor = 31, .max_write = 4096, .max_readahead = 4096}};
        const struct fuse_in_header *head = (const void *)in;
        if (read(fd, in, sizeof(in)) < 0 && errno == ENODEV)
            _exit(0);
        out.head.unique = head->unique;
        out.head.len = sizeof(out);
        if (head->opcode == FUSE_INIT && write(fd, &out, sizeof(out)) < 0)
            _exit(1);
    }
}

static void mount_hung(void)
{
    char options[96], path[PATH_MAX];
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
    snprintf(path, sizeof(path), "%s/hung", top);
    inside_shell("mkdir hung");
    if (fd < 0 || mount("none", path, "fuse", MS_NODEV | MS_NOSUID, options)) {
        inside_say("cannot mount a FUSE file system: %s", strerror(errno));
        _exit(INSIDE_SKIP);
    }
    if (fork() == 0)
        serve(fd);
    close(fd);
}

static void files_body(void)
{
    char path[PATH_MAX], plain[PATH_MAX];
    mount_hung();
    inside_shell("head -c 100 /dev/zero >plain");
    snprintf(path, sizeof(path), "%s/hung/libx.so", top);
    /* What the kernel cannot find without a look at the process is opened by a child. */
    snprintf(plain, sizeof(plain), "/proc/%d/root%s/plain", (int)getpid(), top);
    int fd = gp_foreign_open("", plain);
    NEED(fd >= 0 && lseek(fd, 0, SEEK_END) == 100, "%d", fd);
    close(fd);
    for (int i = 0; i < 12; i++) {
        uint64_t begin = gp_clock_ns();
        NEED(gp_foreign_open("", path) == -ETIMEDOUT);
        NEED(gp_clock_ns() - begin < (i < 10 ? 20000000000ull : 500000000ull), "try %d", i);
    }
    snprintf(plain, sizeof(plain), "%s/plain", top);
    fd = gp_foreign_open("", plain);
    NEED(fd >= 0, "%d", fd);
    close(fd);
}

Test(hung, a_file_that_is_not_answered_for_is_given_up, .timeout = 300)
{
    INSIDE(files_body, NULL);
}

/* Nothing that reads the output waits for what is stuck either. */
static void report_body(void)
{
    mount_hung();
    inside_shell("%s run --sim --stacks=native --record=x.gpuprof -- %s >/dev/null 2>&1", path_command(),
                 path_program("linear"));
    inside_shell("%s report --symfs=hung x.gpuprof 2>&1 | cat >out; grep -q 'held at the peak' out", path_command());
}

Test(hung, a_report_ends, .timeout = 300)
{
    INSIDE(report_body, NULL);
}
