/* SPDX-License-Identifier: MIT
 * asuser.c: see foreign.h. The system calls are made directly, because those of the C library change
 * all threads. */
#include <read/common/foreign.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ASUSER_GROUPS 65536u               /* NGROUPS_MAX of the kernel */
#define ASUSER_STATUS (ASUSER_GROUPS * 12) /* bytes of /proc/PID/status that are read */

static int effective_get(uint32_t effective[2])
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    if (syscall(SYS_capget, &header, data) != 0)
        return -errno;
    effective[0] = data[0].effective;
    effective[1] = data[1].effective;
    return 0;
}

static int effective_set(const uint32_t effective[2])
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    if (syscall(SYS_capget, &header, data) != 0)
        return -errno;
    data[0].effective = effective[0];
    data[1].effective = effective[1];
    return syscall(SYS_capset, &header, data) == 0 ? 0 : -errno;
}

/* ---- the process's user ------------------------------------------------------------------------------------------ */

static char *status_read(int proc)
{
    int fd = openat(proc, "status", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    char *text = fd < 0 ? NULL : malloc(ASUSER_STATUS + 1);
    size_t have = 0;
    ssize_t got = 1;
    while (text && have < ASUSER_STATUS && (got = read(fd, text + have, ASUSER_STATUS - have)) > 0)
        have += (size_t)got;
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (text)
        text[have] = '\0';
    if (got < 0) {
        free(text);
        text = NULL;
    }
    errno = error;
    return text;
}

/* The last one of the four numbers is the one for files. */
static int status_ids(const char *text, struct gp_asuser *as)
{
    const char *uids = strstr(text, "\nUid:\t"), *gids = strstr(text, "\nGid:\t");
    if (!uids || !gids || sscanf(uids, "\nUid: %*u %*u %*u %u", &as->uid) != 1 ||
        sscanf(gids, "\nGid: %*u %*u %*u %u", &as->gid) != 1)
        return -EPROTO;
    return 0;
}

static size_t status_groups(const char *text, gid_t *groups)
{
    const char *line = strstr(text, "\nGroups:"), *at = line ? line + strlen("\nGroups:") : "\n";
    size_t count = 0;
    while (count < ASUSER_GROUPS) {
        char *end;
        at += strspn(at, "\t ");
        if (*at == '\n' || *at == '\0')
            break;
        groups[count] = (gid_t)strtoul(at, &end, 10);
        if (end == at)
            break;
        count++;
        at = end;
    }
    return count;
}

/* ---- begin, end -------------------------------------------------------------------------------------------------- */

/* The calls return the number before, and no error. */
static uid_t files_uid(uid_t uid)
{
    syscall(SYS_setfsuid, uid);
    return (uid_t)syscall(SYS_setfsuid, (uid_t)-1);
}

static gid_t files_gid(gid_t gid)
{
    syscall(SYS_setfsgid, gid);
    return (gid_t)syscall(SYS_setfsgid, (gid_t)-1);
}

/* The user comes last, and the capabilities after it: both take the right to the others away. In
 * some user namespaces no process may change its groups, so groups that are the same already are
 * left alone. */
static int asuser_become(struct gp_asuser *as, const gid_t *groups, size_t count)
{
    static const uint32_t none[2] = {0, 0};
    bool same = count == (size_t)as->old_count && memcmp(groups, as->old_groups, count * sizeof(*groups)) == 0;
    if (!same && syscall(SYS_setgroups, count, groups) != 0)
        return -errno;
    as->has_groups = !same;
    if (files_gid(as->gid) != as->gid || files_uid(as->uid) != as->uid)
        return -EPERM;
    return effective_set(none);
}

/* A change of the user for files changes the effective capabilities, so they are set twice. */
static int asuser_return(const struct gp_asuser *as)
{
    if (effective_set(as->old_effective) != 0 || files_uid(as->old_uid) != as->old_uid ||
        files_gid(as->old_gid) != as->old_gid)
        return -EPERM;
    if (as->has_groups && syscall(SYS_setgroups, as->old_count, as->old_groups) != 0)
        return -errno;
    return effective_set(as->old_effective);
}

static int groups_save(struct gp_asuser *as)
{
    as->old_count = (int)syscall(SYS_getgroups, 0, NULL);
    as->old_groups = as->old_count < 0 ? NULL : calloc((size_t)as->old_count + 1, sizeof(*as->old_groups));
    if (!as->old_groups)
        return -ENOMEM;
    return syscall(SYS_getgroups, as->old_count, as->old_groups) == as->old_count ? 0 : -EAGAIN;
}

int gp_asuser_begin(struct gp_asuser *as, int proc)
{
    *as = (struct gp_asuser){0};
    char *text = status_read(proc);
    gid_t *groups = text ? calloc(ASUSER_GROUPS, sizeof(*groups)) : NULL;
    int rc = !text ? -errno : !groups ? -ENOMEM : status_ids(text, as);
    if (!rc)
        rc = effective_get(as->old_effective);
    if (!rc && (as->old_effective[0] || as->old_effective[1])) {
        as->old_uid = (uid_t)syscall(SYS_setfsuid, (uid_t)-1);
        as->old_gid = (gid_t)syscall(SYS_setfsgid, (gid_t)-1);
        rc = groups_save(as);
        if (!rc && (rc = asuser_become(as, groups, status_groups(text, groups))))
            asuser_return(as);
        if (rc) {
            free(as->old_groups);
            as->old_groups = NULL;
        }
    }
    free(groups);
    free(text);
    return rc;
}

void gp_asuser_end(struct gp_asuser *as)
{
    int saved = errno;
    if (as->old_groups && asuser_return(as) != 0)
        abort();
    free(as->old_groups);
    as->old_groups = NULL;
    errno = saved;
}
