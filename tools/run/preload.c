/* SPDX-License-Identifier: MIT
 * preload.c: preloads libgpuprof-shim.so into a program, for the caching allocator and the driver
 * hooks, and the simulated GPU's libraries; see launch.h.  It changes only the environment of this
 * process.  Called by launch.c.
 */
#define _GNU_SOURCE /* asprintf */
#include <base/text.h>
#include <cache/policy.h>
#include <common/messages.h>
#include <inttypes.h>
#include <limits.h>
#include <run/launch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GP_SHIM           "libgpuprof-shim.so"
#define GP_SIM_NAMES      "libgpuprof-sim.so"
#define GP_ENV_PRELOAD    "LD_PRELOAD"
#define GP_ENV_ALLOCATOR  "GPUPROF_ALLOCATOR"
#define GP_ENV_LIMIT      "GPUPROF_MEMORY_LIMIT"
#define GP_ENV_CONF       "GPUPROF_ALLOC_CONF"
#define GP_CONF_KEYS      64u /* more than there are */
#define GP_ALLOCATOR_LIST "caching, pytorch, auto_growth, prealloc, passthrough or off"

static const char *const allocators[] = {"caching", "pytorch", "auto_growth", "prealloc", "passthrough", "off"};

const char *gp_allocator_name(unsigned index)
{
    return index < GP_COUNT(allocators) ? allocators[index] : NULL;
}

/* The parser has checked --allocator; this checks the variable. */
static int allocator_check(const char *command, const char *name)
{
    for (size_t i = 0; i < GP_COUNT(allocators); i++)
        if (strcmp(name, allocators[i]) == 0)
            return GP_EXIT_OK;
    const char *nearest = gp_nearest(name, allocators, GP_COUNT(allocators));
    return gp_usage_error(command, GP_ENV_ALLOCATOR "=%s: must be " GP_ALLOCATOR_LIST "%s%s%s", name,
                          nearest ? ": did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

/* The shim links to the libgpuprof.so in its own folder, so it must lie beside the library that
 * the driver loads. */
static bool shim_path(const struct gp_launch *launch, char *path, size_t path_bytes)
{
    const char *slash = strrchr(launch->library, '/');
    int length = slash ? (int)(slash - launch->library) + 1 : 0;
    int n = snprintf(path, path_bytes, "%.*s" GP_SHIM, length, launch->library);
    return n >= 0 && (size_t)n < path_bytes && access(path, R_OK) == 0;
}

/* The loader takes these for the end of a name. */
static bool is_named_well(const char *path)
{
    return !strpbrk(path, " \t\n:;");
}

static int shim_check(const struct gp_launch *launch)
{
    char path[PATH_MAX];
    if (!shim_path(launch, path, sizeof(path))) {
        gp_error(launch->command, "%s: the library to preload is missing: build or install it (make lib)", path);
        return GP_EXIT_USAGE;
    }
    if (!is_named_well(path)) {
        gp_error(launch->command,
                 "%s: the dynamic loader cannot preload a file with a space or a colon in its path: install gpuprof "
                 "somewhere else (make install PREFIX=...)",
                 path);
        return GP_EXIT_USAGE;
    }
    return GP_EXIT_OK;
}

/* The user did not ask for the shim: whatever speaks against it, the program starts without it. */
static bool shim_is_welcome(const struct gp_launch *launch, const char *source)
{
    char path[PATH_MAX];
    return (!source || !source[0] || strcmp(source, "auto") == 0) && shim_path(launch, path, sizeof(path)) &&
           is_named_well(path) && gp_preload_fits(launch->argv[0]);
}

/* Whether the file is in the list, whose entries are separated by colons or spaces (ld.so(8)). */
static bool preload_has(const char *list, const char *path)
{
    size_t length = strlen(path);
    for (const char *at = list; *at; at += strcspn(at, ": "), at += strspn(at, ": "))
        if (strncmp(at, path, length) == 0 && (at[length] == '\0' || at[length] == ':' || at[length] == ' '))
            return true;
    return false;
}

static int preload_add(const char *path)
{
    char *joined = NULL;
    const char *before = getenv(GP_ENV_PRELOAD);
    if (before && preload_has(before, path))
        return GP_EXIT_OK;
    /* Ours is first.  Behind a preloaded library that wraps the driver, it would not see the
     * calls of that library. */
    if (asprintf(&joined, "%s%s%s", path, before && before[0] ? ":" : "", before ? before : "") < 0)
        return GP_EXIT_FAILED;
    int rc = setenv(GP_ENV_PRELOAD, joined, 1) ? GP_EXIT_FAILED : GP_EXIT_OK;
    free(joined);
    return rc;
}

int gp_preload_sim(const struct gp_launch *launch, const char *folder)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof(path), "%s/" GP_SIM_NAMES, folder);
    bool is_there = n >= 0 && (size_t)n < sizeof(path) && access(path, R_OK) == 0;
    return is_there && is_named_well(path) && gp_preload_fits(launch->argv[0]) ? preload_add(path) : GP_EXIT_OK;
}

/* The program gets the limit in bytes, so that the library need not parse units.  -1: take it
 * from the variable, if it is set. */
static int limit_set(const char *command, int64_t bytes)
{
    const char *text = getenv(GP_ENV_LIMIT);
    char number[24], why[GP_TEXT_WHY];
    if (bytes < 0 && !(text && text[0]))
        return GP_EXIT_OK;
    if (bytes < 0 && gp_text_size_parse(text, &bytes) != 0)
        return gp_usage_error(command, GP_ENV_LIMIT "=%s: %s", text, gp_text_size_why(why, text));
    snprintf(number, sizeof(number), "%" PRId64 "B", bytes);
    return setenv(GP_ENV_LIMIT, number, 1) ? GP_EXIT_FAILED : GP_EXIT_OK;
}

/* The allocator that the option or the environment names; "off" if none.  NULL after a message. */
static const char *allocator_asked(const struct gp_launch *launch)
{
    const char *name = getenv(GP_ENV_ALLOCATOR);
    if (launch->allocator)
        return launch->allocator;
    if (!name || !name[0])
        return "off";
    return allocator_check(launch->command, name) ? NULL : name;
}

int gp_conf_check(const char *command, const char *option, const char *text, const char *allocator)
{
    const struct gp_policy *policy = gp_policy_find(allocator);
    const char *keys[GP_CONF_KEYS], *nearest = NULL;
    char why[512], word[64];
    size_t count = 0;
    if (!text || !policy)
        return GP_EXIT_OK;
    struct gp_policy copy = *policy;
    if (gp_policy_configure(&copy, text, why, sizeof(why)) == 0)
        return GP_EXIT_OK;
    for (; count < GP_CONF_KEYS && gp_policy_key((unsigned)count); count++)
        keys[count] = gp_policy_key((unsigned)count);
    if (sscanf(why, "unknown key '%63[^']'", word) == 1)
        nearest = gp_nearest(word, keys, count);
    return gp_usage_error(command, "%s=%s: %s%s%s%s", option, text, why, nearest ? " (did you mean '" : "",
                          nearest ? nearest : "", nearest ? "'?)" : "");
}

static int allocator_set(const struct gp_launch *launch, const char *name)
{
    int rc = limit_set(launch->command, launch->limit);
    if (!rc && strcmp(name, "off") == 0 && (launch->limit >= 0 || launch->conf))
        return gp_usage_error(
            launch->command,
            "%s: needs an allocator: add --allocator=caching, or passthrough to keep the allocations of "
            "the driver",
            launch->limit >= 0 ? "--limit" : "--alloc-conf");
    if (!rc)
        rc = gp_conf_check(launch->command, launch->conf ? "--alloc-conf" : GP_ENV_CONF,
                           launch->conf ? launch->conf : getenv(GP_ENV_CONF), name);
    if (!rc && launch->conf && setenv(GP_ENV_CONF, launch->conf, 1) != 0)
        rc = GP_EXIT_FAILED;
    /* "off" is not an allocator: remove the variable, which a surrounding shell may have set. */
    if (!rc && (strcmp(name, "off") == 0 ? unsetenv(GP_ENV_ALLOCATOR) : setenv(GP_ENV_ALLOCATOR, name, 1)) != 0)
        rc = GP_EXIT_FAILED;
    return rc;
}

int gp_preload_shim(const struct gp_launch *launch)
{
    const char *source = getenv("GPUPROF_SOURCE"), *name = allocator_asked(launch);
    char path[PATH_MAX];
    if (!name)
        return GP_EXIT_USAGE;
    bool wanted = strcmp(name, "off") != 0 || (source && strcmp(source, "hooks") == 0);
    int rc = allocator_set(launch, name);
    if (!rc && wanted)
        rc = shim_check(launch);
    if (!rc && (wanted || shim_is_welcome(launch, source))) {
        shim_path(launch, path, sizeof(path));
        rc = preload_add(path);
    }
    return rc;
}
