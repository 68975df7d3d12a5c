/* SPDX-License-Identifier: MIT
 *
 * build.c: see build.h.  Called by the harmlessness tests; runs the compiler by fork and exec, never through a shell.
 */
#include "lib/build.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/paths.h"

char *build_folder(void)
{
    char form[] = "/tmp/gpuprof-test-XXXXXX";
    return mkdtemp(form) != NULL ? strdup(form) : NULL;
}

int build_shared(const char *folder, const char *source, const char *name, const char *extra)
{
    char relative[128], out[256];
    int status = 0;
    pid_t pid;
    snprintf(relative, sizeof(relative), "tests/lib/preload/%s", source);
    snprintf(out, sizeof(out), "%s/%s", folder, name);
    pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0) {
        const char *path = path_source(relative);
        execlp("cc", "cc", "-std=gnu11", "-O1", "-shared", "-fPIC", "-o", out, path, "-ldl", "-lpthread",
               extra != NULL ? extra : (char *)NULL, (char *)NULL);
        _exit(127);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ENOEXEC;
}

int build_copy(const char *from, const char *to)
{
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0700), error = 0;
    struct stat info;
    if (in < 0 || out < 0 || fstat(in, &info) != 0 || sendfile(out, in, NULL, (size_t)info.st_size) != info.st_size)
        error = -(errno != 0 ? errno : EIO);
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return error;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    remove(path);
    return 0;
}

void build_remove(char *folder)
{
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    free(folder);
}
