/* SPDX-License-Identifier: MIT
 *
 * cgrouplimit.c: see cgrouplimit.h.  A limit of any cgroup above holds too, so the least one of the
 * path counts; what is used and guaranteed is that of the process's own cgroup.
 */
#include <read/collect/cgrouplimit.h>

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GP_LIMIT_FILE_BYTES 4096u /* a line has some 40 bytes, and there is one per GPU */

static bool limit_read(const char *path, char text[GP_LIMIT_FILE_BYTES])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    size_t used = 0;
    ssize_t got;
    while (used < GP_LIMIT_FILE_BYTES - 1 && (got = read(fd, text + used, GP_LIMIT_FILE_BYTES - 1 - used)) > 0)
        used += (size_t)got;
    close(fd);
    text[used] = '\0';
    return true;
}

/* The path of version 2, "0::/PATH", without a trailing newline; NULL: none, or one outside of the
 * caller's cgroup namespace. */
static char *limit_cgroup(char *text)
{
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (strncmp(line, "0::/", 4) == 0)
            return strstr(line, "/..") ? NULL : line + 3;
    return NULL;
}

/* Where version 2 is mounted: in the usual place, or beside version 1. */
static bool limit_mount(const char *root, char *mount, size_t bytes)
{
    static const char *const places[] = {"", "/unified"};
    char probe[PATH_MAX];
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (snprintf(mount, bytes, "%s/sys/fs/cgroup%s", root, places[i]) < (int)bytes &&
            snprintf(probe, sizeof(probe), "%s/cgroup.controllers", mount) < (int)sizeof(probe) &&
            access(probe, F_OK) == 0)
            return true;
    return false;
}

struct limit_list {
    struct gp_cgroup_limit *out;
    int count;
};

static struct gp_cgroup_limit *limit_row(struct limit_list *list, const char *controller, const char *region)
{
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->out[i].controller, controller) == 0 && strcmp(list->out[i].region, region) == 0)
            return &list->out[i];
    if (list->count == GP_CGROUP_LIMITS)
        return NULL;
    struct gp_cgroup_limit *row = &list->out[list->count++];
    *row = (struct gp_cgroup_limit){.limit_bytes = -1, .used_bytes = -1, .guaranteed_bytes = -1};
    snprintf(row->controller, sizeof(row->controller), "%s", controller);
    snprintf(row->region, sizeof(row->region), "%s", region);
    return row;
}

static bool limit_plain(const char *region)
{
    for (; *region; region++)
        if (*region <= ' ' || *region > '~')
            return false;
    return true;
}

enum limit_what { LIMIT_MAX, LIMIT_CURRENT, LIMIT_MIN };

static void limit_take(struct gp_cgroup_limit *row, enum limit_what what, const char *value)
{
    char *end;
    long long bytes = strtoll(value, &end, 10);
    if (end == value || *end || bytes < 0) /* "max": none */
        return;
    if (what == LIMIT_CURRENT)
        row->used_bytes = bytes;
    else if (what == LIMIT_MIN)
        row->guaranteed_bytes = bytes;
    else if (row->limit_bytes < 0 || bytes < row->limit_bytes)
        row->limit_bytes = bytes;
}

/* Lines "REGION VALUE".  The misc controller also counts what is not memory of a GPU. */
static void limit_file(struct limit_list *list, const char *folder, const char *controller, enum limit_what what)
{
    static const char *const names[] = {"max", "current", "min"};
    char path[PATH_MAX], text[GP_LIMIT_FILE_BYTES], *save = NULL;
    if (snprintf(path, sizeof(path), "%s/%s.%s", folder, controller, names[what]) >= (int)sizeof(path) ||
        !limit_read(path, text))
        return;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *value = strrchr(line, ' ');
        if (!value)
            continue;
        *value++ = '\0';
        bool is_gpu = strcmp(controller, "dmem") == 0 || strncmp(line, "nvidia", 6) == 0;
        struct gp_cgroup_limit *row = is_gpu && limit_plain(line) ? limit_row(list, controller, line) : NULL;
        if (row)
            limit_take(row, what, value);
    }
}

int gp_cgroup_limits(const char *root, pid_t pid, struct gp_cgroup_limit out[GP_CGROUP_LIMITS])
{
    static const char *const controllers[] = {"dmem", "misc"};
    char path[PATH_MAX], folder[PATH_MAX], text[GP_LIMIT_FILE_BYTES];
    struct limit_list list = {.out = out};
    if (snprintf(path, sizeof(path), "%s/proc/%d/cgroup", root, (int)pid) >= (int)sizeof(path) ||
        !limit_read(path, text) || !limit_mount(root, folder, sizeof(folder)))
        return 0;
    const char *cgroup = limit_cgroup(text);
    size_t top = strlen(folder);
    if (!cgroup || snprintf(folder + top, sizeof(folder) - top, "%s", cgroup) >= (int)(sizeof(folder) - top))
        return 0;
    for (bool is_own = true;; is_own = false) {
        for (size_t i = 0; i < sizeof(controllers) / sizeof(controllers[0]); i++) {
            limit_file(&list, folder, controllers[i], LIMIT_MAX);
            if (is_own) {
                limit_file(&list, folder, controllers[i], LIMIT_CURRENT);
                limit_file(&list, folder, controllers[i], LIMIT_MIN);
            }
        }
        char *slash = strrchr(folder + top, '/');
        if (!slash)
            return list.count;
        *slash = '\0';
    }
}
