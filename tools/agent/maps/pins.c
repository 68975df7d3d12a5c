/* SPDX-License-Identifier: MIT
 *
 * pins.c: opens the agent's pinned maps and explains why one cannot be opened. Called by copy.c and
 * resetpeaks.c.
 */
#include <agent/maps/maps.h>

#include <bpf/bpf.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int pins_check(int fd, uint32_t key_bytes, uint32_t value_bytes, uint32_t *max_entries)
{
    struct bpf_map_info info = {0};
    uint32_t info_bytes = sizeof(info);
    if (bpf_obj_get_info_by_fd(fd, &info, &info_bytes) != 0)
        return errno == EINVAL ? -EPROTO : -errno; /* the pin is a program or a link, not a map */
    if (info.key_size != key_bytes || info.value_size != value_bytes)
        return -EPROTO;
    if (max_entries)
        *max_entries = info.max_entries;
    return 0;
}

int gp_pins_open(const char *pins, const char *name, bool write, uint32_t key_bytes, uint32_t value_bytes,
                 uint32_t *max_entries)
{
    char path[PATH_MAX];
    /* Without this flag the kernel also requires write permission. */
    LIBBPF_OPTS(bpf_obj_get_opts, options, .file_flags = write ? 0 : BPF_F_RDONLY);
    if (snprintf(path, sizeof(path), "%s/%s", pins, name) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    int fd = bpf_obj_get_opts(path, &options);
    if (fd < 0)
        return errno == EPERM ? -EACCES : errno == ENOTDIR ? -ENOENT : -errno;
    int err = pins_check(fd, key_bytes, value_bytes, max_entries);
    if (!err)
        return fd;
    close(fd);
    return err;
}

/* If this is set, kernels before 5.19 refuse bpf(2) to callers without CAP_BPF, whatever the modes
 * are. */
static bool pins_forbidden(void)
{
    int value = 0;
    FILE *file = fopen("/proc/sys/kernel/unprivileged_bpf_disabled", "re");
    if (!file)
        return false;
    bool read = fscanf(file, "%d", &value) == 1;
    fclose(file);
    return read && value != 0;
}

static void pins_denied(const char *pins, const char *name, char *why, size_t why_bytes)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", pins, name);
    if (access(path, F_OK) != 0)
        snprintf(why, why_bytes,
                 "no permission to search %s: run as root, or open it to other users (chmod o+x on its parents)", pins);
    else if (access(path, strcmp(name, "reset") == 0 ? R_OK | W_OK : R_OK) == 0 && pins_forbidden())
        snprintf(why, why_bytes,
                 "this kernel forbids bpf(2) without CAP_BPF (kernel.unprivileged_bpf_disabled): run as root");
    else
        snprintf(why, why_bytes, "%s/%s: permission denied: run as root", pins, name);
}

void gp_pins_explain(int error, const char *pins, const char *name, char *why, size_t why_bytes)
{
    switch (error) {
    case -ENOENT:
        snprintf(why, why_bytes,
                 "no agent has pinned its maps in %s: start one as root with 'gpuprof agent' or 'systemctl start "
                 "gpuprof-agent'",
                 pins);
        break;
    case -EACCES:
        pins_denied(pins, name, why, why_bytes);
        break;
    case -EPROTO:
        snprintf(why, why_bytes, "%s/%s is from another version of gpuprof: restart the agent with this version", pins,
                 name);
        break;
    default:
        snprintf(why, why_bytes, "%s/%s: %s", pins, name, strerror(-error));
    }
}
