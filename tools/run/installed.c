/* SPDX-License-Identifier: MIT
 *
 * installed.c: finds the files that are installed with this program; see launch.h.
 */
#include <common/messages.h>
#include <errno.h>
#include <limits.h>
#include <run/launch.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The prefix of the installation: "/usr/local" of "/usr/local/bin/gpuprof".  0 or -errno. */
static int launch_prefix(char prefix[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", prefix, PATH_MAX - 1);
    if (n < 0)
        return -errno;
    prefix[n] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(prefix, '/');
        if (!slash)
            return -ENOENT;
        *slash = '\0';
    }
    return 0;
}

static const char *const launch_folders[] = {"lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"};

int gp_launch_find(char *path, size_t path_bytes, const char *below)
{
    char prefix[PATH_MAX];
    int rc = launch_prefix(prefix);
    for (size_t i = 0; !rc && i < GP_COUNT(launch_folders); i++) {
        int n = snprintf(path, path_bytes, "%s/%s/%s", prefix, launch_folders[i], below);
        if (n > 0 && (size_t)n < path_bytes && access(path, R_OK) == 0)
            return 0;
    }
    snprintf(path, path_bytes, "%s/lib/%s", rc ? "" : prefix, below);
    return rc ? rc : -ENOENT;
}

void gp_launch_missing(const char *command, const char *below, const char *what)
{
    char prefix[PATH_MAX], places[GP_COUNT(launch_folders) * (PATH_MAX + 32)];
    size_t at = 0;
    if (launch_prefix(prefix) != 0)
        prefix[0] = '\0';
    for (size_t i = 0; i < GP_COUNT(launch_folders); i++)
        at += (size_t)snprintf(places + at, sizeof(places) - at, "%s%s/%s", i ? ", " : "", prefix, launch_folders[i]);
    gp_error(command, "%s is missing: it is in none of %s: %s", below, places, what);
}
