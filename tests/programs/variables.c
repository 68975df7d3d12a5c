/* SPDX-License-Identifier: MIT
 *
 * Opens a library that has variables with the names of driver calls (tests/lib/preload/variables.c),
 * for itself, with "global" for all, with "needed" as one that another library needs. Leaves 24 MiB
 * linear; with "earlier" and "later" 24 more, of a library that is linked to the driver and opened
 * before or afterwards.
 */
#include "finish.h"

static void *variables_open(const char *name, int flags)
{
    char path[4096 + 64];
    ssize_t length = readlink("/proc/self/exe", path, 4096);
    path[length > 0 ? length : 0] = '\0';
    if (strrchr(path, '/') != NULL)
        sprintf(strrchr(path, '/'), "/../preload/%s", name);
    return dlopen(path, RTLD_LAZY | flags);
}

static void variables_call(void *library, const char *function)
{
    int (*take)(size_t bytes) = NULL;
    if (library != NULL)
        *(void **)&take = dlsym(library, function);
    REPORT(function, take == NULL ? -1 : take(24 * MIB));
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "";
    void *linked = strcmp(way, "earlier") == 0 ? variables_open("plugged.so", 0) : NULL;
    if (strcmp(way, "needed") == 0)
        variables_call(variables_open("variables_needed.so", 0), "variables_needed");
    else
        variables_call(variables_open("variables.so", strcmp(way, "global") == 0 ? RTLD_GLOBAL : 0), "variables_take");
    if (strcmp(way, "later") == 0)
        linked = variables_open("plugged.so", 0);
    if (linked != NULL)
        variables_call(linked, "plugged_take");
    return finish();
}
