/* SPDX-License-Identifier: MIT
 *
 * cuptifind.c: finds the CUPTI libraries that a program could use, for `gpuprof doctor`; see
 * checks.h.
 */
#define _GNU_SOURCE /* strsep */
#include <base/compiler.h>
#include <cmd/checks.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Newest first: a current program is linked with the highest version in a folder. */
static const char *const cupti_names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.[0-9]", "libcupti.so"};

static void cupti_keep(struct gp_cupti_found *found, const char *path)
{
    char mine[PATH_MAX], other[PATH_MAX];
    if (found->count == GP_CUPTI_FOUND || strlen(path) >= sizeof(found->paths[0]) || !realpath(path, mine))
        return;
    for (int i = 0; i < found->count; i++)
        if (realpath(found->paths[i], other) && strcmp(mine, other) == 0)
            return;
    memcpy(found->paths[found->count++], path, strlen(path) + 1);
}

static void cupti_folder(struct gp_cupti_found *found, const char *folder)
{
    for (size_t i = 0; i < GP_COUNT(cupti_names); i++) {
        char pattern[PATH_MAX];
        glob_t files;
        if (snprintf(pattern, sizeof(pattern), "%s/%s", folder, cupti_names[i]) >= (int)sizeof(pattern))
            continue;
        if (glob(pattern, 0, NULL, &files) == 0)
            for (size_t k = 0; k < files.gl_pathc; k++)
                cupti_keep(found, files.gl_pathv[k]);
        globfree(&files);
    }
}

/* Searches the folders of a colon-separated list. */
static void cupti_list(struct gp_cupti_found *found, const char *list)
{
    char *copy = list ? strdup(list) : NULL, *state = copy, *folder;
    while (copy && (folder = strsep(&state, ":")))
        if (folder[0])
            cupti_folder(found, folder);
    free(copy);
}

static void cupti_below(struct gp_cupti_found *found, const char *root, const char *below)
{
    char folder[PATH_MAX];
    if (root && root[0] && snprintf(folder, sizeof(folder), "%s/%s", root, below) < (int)sizeof(folder))
        cupti_folder(found, folder);
}

static void cupti_toolkit(struct gp_cupti_found *found, const char *root)
{
    static const char *const folders[] = {"lib64", "extras/CUPTI/lib64", "targets/x86_64-linux/lib",
                                          "targets/sbsa-linux/lib"};
    for (size_t i = 0; i < GP_COUNT(folders); i++)
        cupti_below(found, root, folders[i]);
}

/* Searches for pip's nvidia-cuda-cupti wheels, first in the active virtual environment. */
static void cupti_pip(struct gp_cupti_found *found)
{
    const char *home = getenv("HOME");
    char user[PATH_MAX] = "";
    if (home && snprintf(user, sizeof(user), "%s/.local", home) >= (int)sizeof(user))
        user[0] = '\0';
    const char *const roots[] = {getenv("VIRTUAL_ENV"), getenv("CONDA_PREFIX"), user, "/usr/local", "/usr"};
    for (size_t i = 0; i < GP_COUNT(roots); i++) {
        cupti_below(found, roots[i], "lib/python3*/site-packages/nvidia/cu*/lib");
        cupti_below(found, roots[i], "lib/python3*/dist-packages/nvidia/cu*/lib");
    }
}

void gp_cupti_find(struct gp_cupti_found *found)
{
    found->count = 0;
    cupti_list(found, getenv("LD_LIBRARY_PATH"));
    cupti_list(found, "/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:/usr/lib64:/usr/lib");
    cupti_toolkit(found, getenv("CUDA_HOME"));
    cupti_toolkit(found, "/usr/local/cuda");
    cupti_pip(found);
}
