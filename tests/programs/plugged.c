/* SPDX-License-Identifier: MIT
 *
 * A plug-in that is linked to the driver takes 24 MiB linear; with "deep" it is opened with
 * RTLD_DEEPBIND, so that its calls go past every library in front of the driver. With "alone" it is
 * another plug-in, which is opened like that and looks the driver up by itself.
 */
#include "finish.h"

int main(int argc, char **argv)
{
    int (*take)(size_t bytes) = NULL;
    int alone = argc > 1 && strcmp(argv[1], "alone") == 0;
    int deep = alone || (argc > 1 && strcmp(argv[1], "deep") == 0) ? RTLD_DEEPBIND : 0;
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 64);
    void *plug;
    path[length > 0 ? length : 0] = '\0';
    if (strrchr(path, '/') != NULL)
        strcpy(strrchr(path, '/'), alone ? "/../preload/plugged_alone.so" : "/../preload/plugged.so");
    plug = dlopen(path, RTLD_NOW | deep);
    if (plug != NULL)
        *(void **)&take = dlsym(plug, "plugged_take");
    CHECK(take == NULL || take(24 * MIB));
    return finish();
}
