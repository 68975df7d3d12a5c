/* SPDX-License-Identifier: MIT
 * preload.c: puts libgpuprof-shim.so in front of the driver for a program that is to use the caching allocator or the
 * driver hooks; part of launch.c, see cmd.h.  It changes this process's environment and nothing else. */
#define _GNU_SOURCE /* asprintf */
#include <cmd/cmd.h>

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GP_SHIM           "libgpuprof-shim.so"
#define GP_ENV_PRELOAD    "LD_PRELOAD"
#define GP_ENV_ALLOCATOR  "GPUPROF_ALLOCATOR"
#define GP_ENV_LIMIT      "GPUPROF_MEMORY_LIMIT"
#define GP_ENV_CONF       "GPUPROF_ALLOC_CONF"
#define GP_ALLOCATOR_LIST "caching, pytorch, auto_growth, prealloc, passthrough or off"

static const char *const allocators[] = {"caching", "pytorch", "auto_growth", "prealloc", "passthrough", "off"};

const char *gp_allocator_name(unsigned index)
{
    return index < GP_COUNT(allocators) ? allocators[index] : NULL;
}

static int allocator_check(const char *command, const char *option, const char *name)
{
    for (size_t i = 0; i < GP_COUNT(allocators); i++)
        if (strcmp(name, allocators[i]) == 0)
            return GP_EXIT_OK;
    const char *nearest = gp_nearest(name, allocators, GP_COUNT(allocators));
    return gp_usage_error(command, "%s=%s: no such allocator%s%s%s: one of " GP_ALLOCATOR_LIST, option, name,
                          nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "");
}

/* The shim's SONAME'd neighbour is the library: it must be the one that lies beside the library that the driver
 * loads. */
static int shim_path(const struct gp_launch *launch, char *path, size_t path_bytes)
{
    const char *slash = strrchr(launch->library, '/');
    int length = slash ? (int)(slash - launch->library) + 1 : 0;
    int n = snprintf(path, path_bytes, "%.*s" GP_SHIM, length, launch->library);
    if (n < 0 || (size_t)n >= path_bytes || access(path, R_OK) != 0) {
        gp_error(launch->command,
                 "%s: the library that goes in front of the driver is missing: build or install it (make lib)", path);
        return GP_EXIT_USAGE;
    }
    if (strpbrk(path, " \t\n:;")) {
        gp_error(launch->command,
                 "%s: the dynamic loader cannot preload a file with a space or a colon in its path: install gpuprof "
                 "somewhere else (make install PREFIX=...)",
                 path);
        return GP_EXIT_USAGE;
    }
    return GP_EXIT_OK;
}

/* Is the file in the list already?  Entries are separated by colons or spaces (ld.so(8)). */
static bool preload_has(const char *list, const char *path)
{
    size_t length = strlen(path);
    for (const char *at = list; *at; at += strcspn(at, ": "), at += strspn(at, ": "))
        if (strncmp(at, path, length) == 0 && (at[length] == '\0' || at[length] == ':' || at[length] == ' '))
            return true;
    return false;
}

static int preload_add(const struct gp_launch *launch)
{
    char path[PATH_MAX], *joined = NULL;
    int rc = shim_path(launch, path, sizeof(path));
    if (rc)
        return rc;
    const char *before = getenv(GP_ENV_PRELOAD);
    if (before && preload_has(before, path))
        return GP_EXIT_OK;
    /* First: another preloaded library that wraps the driver must be behind us, or we would not see what it does. */
    if (asprintf(&joined, "%s%s%s", path, before && before[0] ? ":" : "", before ? before : "") < 0)
        return GP_EXIT_FAILED;
    rc = setenv(GP_ENV_PRELOAD, joined, 1) ? GP_EXIT_FAILED : GP_EXIT_OK;
    free(joined);
    return rc;
}

/* The limit is handed on in bytes: one spelling for whoever reads it. */
static int limit_set(const char *command, const char *option, const char *text)
{
    char number[24];
    int64_t bytes;
    if (gp_parse_size(text, &bytes) != 0)
        return gp_usage_error(command, "%s=%s: not a size (like 512MiB or 16GiB), or out of range", option, text);
    snprintf(number, sizeof(number), "%" PRId64, bytes);
    return setenv(GP_ENV_LIMIT, number, 1) ? GP_EXIT_FAILED : GP_EXIT_OK;
}

/* What the environment and the options together ask for; "off" if nothing.  NULL: a message was printed. */
static const char *allocator_asked(const struct gp_launch *launch)
{
    const char *env = getenv(GP_ENV_ALLOCATOR), *name = launch->allocator ? launch->allocator : env;
    if (!name || !name[0])
        return "off";
    return allocator_check(launch->command, launch->allocator ? "--allocator" : GP_ENV_ALLOCATOR, name) ? NULL : name;
}

static int allocator_set(const struct gp_launch *launch, const char *name)
{
    const char *env_limit = getenv(GP_ENV_LIMIT);
    int rc = GP_EXIT_OK;
    if (launch->limit)
        rc = limit_set(launch->command, "--limit", launch->limit);
    else if (env_limit && env_limit[0])
        rc = limit_set(launch->command, GP_ENV_LIMIT, env_limit);
    if (!rc && strcmp(name, "off") == 0 && (launch->limit || launch->conf))
        return gp_usage_error(launch->command,
                              "%s: needs an allocator to obey it: add --allocator=caching (or passthrough, which keeps "
                              "the driver's own)",
                              launch->limit ? "--limit" : "--alloc-conf");
    if (!rc && launch->conf && setenv(GP_ENV_CONF, launch->conf, 1) != 0)
        rc = GP_EXIT_FAILED;
    /* "off" is nobody's policy: the variable goes, and with it what a shell around us may have set. */
    if (!rc && (strcmp(name, "off") == 0 ? unsetenv(GP_ENV_ALLOCATOR) : setenv(GP_ENV_ALLOCATOR, name, 1)) != 0)
        rc = GP_EXIT_FAILED;
    return rc;
}

int gp_launch_shim(const struct gp_launch *launch)
{
    const char *source = getenv("GPUPROF_SOURCE"), *name = allocator_asked(launch);
    if (!name)
        return GP_EXIT_USAGE;
    bool wanted = strcmp(name, "off") != 0 || (source && strcmp(source, "hooks") == 0);
    int rc = allocator_set(launch, name);
    if (!rc && wanted)
        rc = preload_add(launch);
    return rc;
}
