/* SPDX-License-Identifier: MIT
 *
 * mounts.c: see mounts.h.
 */
#include "lib/mounts.h"

#include <stdio.h>
#include <string.h>

bool mounts_find(const char *type, const char *option, char *path, size_t bytes)
{
    FILE *mounts = fopen("/proc/self/mounts", "re");
    char line[1024], at[512], kind[64], options[256];
    bool is_found = false;
    while (mounts && !is_found && fgets(line, sizeof(line), mounts))
        is_found = sscanf(line, "%*s %511s %63s %255s", at, kind, options) == 3 && !strcmp(kind, type) &&
                   (!option || strstr(options, option)) && strlen(at) < bytes;
    if (mounts)
        fclose(mounts);
    if (is_found)
        snprintf(path, bytes, "%s", at);
    return is_found;
}
