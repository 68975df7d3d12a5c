/* SPDX-License-Identifier: MIT
 *
 * build.c: see build.h.  Called by the harmlessness tests; runs the compiler by fork and exec, never through a shell.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "lib/build.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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
    if (pid < 0) {
        return -errno;
    }
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

    if (in < 0 || out < 0 || fstat(in, &info) != 0 || sendfile(out, in, NULL, (size_t)info.st_size) != info.st_size) {
        error = -(errno != 0 ? errno : EIO);
    }
    if (in >= 0) {
        close(in);
    }
    if (out >= 0) {
        close(out);
    }
    return error;
}

void build_remove(char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    char path[512];

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
            unlink(path);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    rmdir(folder);
    free(folder);
}
