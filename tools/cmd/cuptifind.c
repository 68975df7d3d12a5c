/* SPDX-License-Identifier: MIT
 * cuptifind.c: searches for a CUPTI library; see cuptifind.h. */
#include <cmd/cuptifind.h>

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Newest first: a current program is linked with the highest version in a folder. */
static const char *const cupti_names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.[0-9]", "libcupti.so"};

static int cupti_folder(const char *folder, char *path, size_t path_bytes)
{
    for (size_t i = 0; i < sizeof(cupti_names) / sizeof(cupti_names[0]); i++) {
        char pattern[PATH_MAX];
        glob_t found;
        if (snprintf(pattern, sizeof(pattern), "%s/%s", folder, cupti_names[i]) >= (int)sizeof(pattern))
            continue;
        int rc = glob(pattern, 0, NULL, &found);
        if (rc == 0)
            snprintf(path, path_bytes, "%s", found.gl_pathv[0]);
        globfree(&found);
        if (rc == 0)
            return 0;
    }
    return -ENOENT;
}

/* Searches the folders of a colon-separated list. */
static int cupti_list(const char *list, char *path, size_t path_bytes)
{
    char *copy = list ? strdup(list) : NULL, *state = copy, *folder;
    int rc = -ENOENT;
    while (copy && rc && (folder = strsep(&state, ":")))
        rc = folder[0] ? cupti_folder(folder, path, path_bytes) : rc;
    free(copy);
    return rc;
}

static int cupti_toolkit(const char *root, char *path, size_t path_bytes)
{
    static const char *const folders[] = {"lib64", "extras/CUPTI/lib64", "targets/x86_64-linux/lib",
                                          "targets/sbsa-linux/lib"};
    int rc = -ENOENT;
    for (size_t i = 0; root && root[0] && rc && i < sizeof(folders) / sizeof(folders[0]); i++) {
        char folder[PATH_MAX];
        if (snprintf(folder, sizeof(folder), "%s/%s", root, folders[i]) < (int)sizeof(folder))
            rc = cupti_folder(folder, path, path_bytes);
    }
    return rc;
}

/* Searches for pip's nvidia-cuda-cupti wheels, first in the active virtual environment. */
static int cupti_pip(char *path, size_t path_bytes)
{
    static const char below[] = "lib/python3*/site-packages/nvidia/cu*/lib";
    const char *home = getenv("HOME");
    char user[PATH_MAX] = "";
    if (home && snprintf(user, sizeof(user), "%s/.local", home) >= (int)sizeof(user))
        user[0] = '\0';
    const char *const roots[] = {getenv("VIRTUAL_ENV"), getenv("CONDA_PREFIX"), user, "/usr/local", "/usr"};
    int rc = -ENOENT;
    for (size_t i = 0; rc && i < sizeof(roots) / sizeof(roots[0]); i++) {
        char folder[PATH_MAX];
        if (!roots[i] || snprintf(folder, sizeof(folder), "%s/%s", roots[i], below) >= (int)sizeof(folder))
            continue;
        rc = cupti_folder(folder, path, path_bytes);
        if (rc && snprintf(folder, sizeof(folder), "%s/lib/python3*/dist-packages/nvidia/cu*/lib", roots[i]) <
                      (int)sizeof(folder))
            rc = cupti_folder(folder, path, path_bytes);
    }
    return rc;
}

int gp_cupti_find(char *path, size_t path_bytes)
{
    int rc = cupti_list(getenv("LD_LIBRARY_PATH"), path, path_bytes);
    if (rc)
        rc = cupti_list("/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:/usr/lib64:/usr/lib", path, path_bytes);
    if (rc)
        rc = cupti_toolkit(getenv("CUDA_HOME"), path, path_bytes);
    if (rc)
        rc = cupti_toolkit("/usr/local/cuda", path, path_bytes);
    if (rc)
        rc = cupti_pip(path, path_bytes);
    return rc;
}
