/* SPDX-License-Identifier: MIT
 *
 * Opens a library that has variables with the names of driver calls (tests/lib/preload/variables.c),
 * for itself, with "global" for all, with "needed" as one that another library needs. Leaves 24 MiB
 * linear; with "later" 24 more, of a library that is linked to the driver and opened afterwards.
 */
#include "finish.h"

static void variables_open(const char *name, const char *function, int flags)
{
    int (*take)(size_t bytes) = NULL;
    char path[4096 + 64];
    ssize_t length = readlink("/proc/self/exe", path, 4096);
    path[length > 0 ? length : 0] = '\0';
    if (strrchr(path, '/') != NULL)
        sprintf(strrchr(path, '/'), "/../preload/%s", name);
    void *library = dlopen(path, RTLD_LAZY | flags);
    if (library != NULL)
        *(void **)&take = dlsym(library, function);
    REPORT(function, take == NULL ? -1 : take(24 * MIB));
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "";
    if (strcmp(way, "needed") == 0)
        variables_open("variables_needed.so", "variables_needed", 0);
    else
        variables_open("variables.so", "variables_take", strcmp(way, "global") == 0 ? RTLD_GLOBAL : 0);
    if (strcmp(way, "later") == 0)
        variables_open("plugged.so", "plugged_take", 0);
    return finish();
}
