/* SPDX-License-Identifier: MIT
 *
 * scripts.c: tells scripts of Python from programs; see launch.h.
 */
#include <fcntl.h>
#include <limits.h>
#include <run/launch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool gp_launch_is_program(const char *name)
{
    char path[PATH_MAX];
    const char *list = strchr(name, '/') ? "" : getenv("PATH");
    while (list) {
        size_t length = strcspn(list, ":");
        int used = snprintf(path, sizeof(path), "%.*s%s%s", (int)length, list, length ? "/" : "", name);
        struct stat status;
        if (used > 0 && (size_t)used < sizeof(path) && stat(path, &status) == 0 && S_ISREG(status.st_mode) &&
            access(path, X_OK) == 0)
            return true;
        list = list[length] ? list + length + 1 : NULL;
    }
    return false;
}

bool gp_launch_is_script(const char *name)
{
    char first[2] = "";
    size_t length = strlen(name);
    if (length < 4 || strcmp(name + length - 3, ".py") != 0 || (!strchr(name, '/') && gp_launch_is_program(name)))
        return false;
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    if (fd < 0)
        return false;
    bool is_file = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    bool runs =
        read(fd, first, sizeof(first)) == sizeof(first) && memcmp(first, "#!", 2) == 0 && access(name, X_OK) == 0;
    close(fd);
    return is_file && !runs;
}

char **gp_launch_argv(char **argv)
{
    size_t count = 0;
    if (!argv[0] || !gp_launch_is_script(argv[0]))
        return argv;
    while (argv[count])
        count++;
    char **with = calloc(count + 2, sizeof(*with));
    if (!with)
        return argv;
    with[0] = (char *)"python3";
    memcpy(with + 1, argv, count * sizeof(*argv));
    return with;
}
