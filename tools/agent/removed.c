/* SPDX-License-Identifier: MIT
 *
 * removed.c: see removed.h. A cgroup's number is never reused, so one that cannot be opened by its
 * number is gone for good. Its rows are freed when two scans in a row find it removed: a BPF
 * program that started while the cgroup existed may still use one of its rows, and the kernel
 * reuses a deleted row's memory at once.
 */
#include <agent/removed.h>
#include <base/compiler.h>
#include <read/common/agentlog.h>
#include <read/common/hash.h>

#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GP_REMOVED_FORGET 512 /* per turn: a walk through the sums and two system calls each, about 1 ms */
/* Sums whose container has no row (the table of containers was full) are rare: two scans of eight
 * look for them. */
#define GP_REMOVED_SUMS_OF  8
#define GP_REMOVED_SUMS_FOR 2

/* The file handle type by which a cgroup is opened by number; the kernel's public headers lack it. */
#define GP_FILEID_KERNFS 0xfe

enum gp_removed_phase { GP_REMOVED_IDLE, GP_REMOVED_CONTAINERS, GP_REMOVED_SUMS, GP_REMOVED_FORGETTING };

struct gp_ids { /* the first `sorted` ids are in order */
    uint32_t count, sorted;
    uint64_t *id;
};

enum { GP_HIERARCHY_V2, GP_HIERARCHY_MEMORY, GP_HIERARCHY_PIDS, GP_HIERARCHIES };

struct gp_hierarchy {
    char path[256]; /* "": not found */
    int fd;         /* open during a scan; -1 not opened yet, -2 failed */
};

struct gp_removed {
    struct gp_bpf *bpf;
    enum gp_removed_phase phase;
    uint32_t scan, capacity, at;
    struct gp_bpf_walk walk;
    struct gp_ids found, before; /* by this scan, by the previous hierarchy */
    uint64_t *due;               /* in both */
    uint32_t due_count;
    struct gp_hierarchy hierarchies[GP_HIERARCHIES];
    bool has_logged;
};

static bool ids_has(const struct gp_ids *ids, uint64_t id)
{
    return ids->sorted && bsearch(&id, ids->id, ids->sorted, sizeof(id), gp_order_u64);
}

static void ids_sort(struct gp_ids *ids)
{
    qsort(ids->id, ids->count, sizeof(*ids->id), gp_order_u64);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < ids->count; i++) {
        if (kept == 0 || ids->id[kept - 1] != ids->id[i])
            ids->id[kept++] = ids->id[i];
    }
    ids->count = ids->sorted = kept;
}

/* ---- does the cgroup exist? -------------------------------------------------------------------------------------- */

static int hierarchy_of(const struct mntent *entry)
{
    if (!strcmp(entry->mnt_type, "cgroup2"))
        return GP_HIERARCHY_V2;
    if (strcmp(entry->mnt_type, "cgroup") != 0)
        return -1;
    return hasmntopt(entry, "memory") ? GP_HIERARCHY_MEMORY : hasmntopt(entry, "pids") ? GP_HIERARCHY_PIDS : -1;
}

static void hierarchies_find(struct gp_removed *removed)
{
    char line[4096];
    struct mntent entry;
    FILE *mounts = setmntent("/proc/self/mounts", "re");
    for (int i = 0; i < GP_HIERARCHIES; i++)
        removed->hierarchies[i].path[0] = '\0';
    while (mounts && getmntent_r(mounts, &entry, line, sizeof(line))) {
        int which = hierarchy_of(&entry);
        if (which >= 0 && !removed->hierarchies[which].path[0] &&
            strlen(entry.mnt_dir) < sizeof(removed->hierarchies->path))
            strcpy(removed->hierarchies[which].path, entry.mnt_dir);
    }
    if (mounts)
        endmntent(mounts);
}

static void removed_log(struct gp_removed *removed, int error)
{
    if (removed->has_logged)
        return;
    removed->has_logged = true;
    gp_agent_log(
        GP_AGENTLOG_WARNING,
        "cannot tell whether a container was removed (%s), so removed containers keep their rows in the tables: the "
        "agent needs CAP_DAC_READ_SEARCH and a mounted cgroup file system",
        strerror(-error));
}

/* Open only during a scan: a descriptor held all the time would keep the file system from being
 * unmounted. */
static int hierarchy_fd(struct gp_removed *removed, struct gp_hierarchy *hierarchy)
{
    if (hierarchy->fd != -1)
        return hierarchy->fd;
    if (!hierarchy->path[0] || (hierarchy->fd = open(hierarchy->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        hierarchies_find(removed);
        hierarchy->fd = hierarchy->path[0] ? open(hierarchy->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    }
    if (hierarchy->fd < 0) {
        removed_log(removed, hierarchy->path[0] ? -errno : -ENOENT);
        hierarchy->fd = -2;
    }
    return hierarchy->fd;
}

static void hierarchies_close(struct gp_removed *removed)
{
    for (int i = 0; i < GP_HIERARCHIES; i++) {
        if (removed->hierarchies[i].fd >= 0)
            close(removed->hierarchies[i].fd);
        removed->hierarchies[i].fd = -1;
    }
}

static struct gp_hierarchy *hierarchy_with(struct gp_removed *removed, uint64_t id)
{
    switch (id & GP_MAP_CGROUP_V1_PIDS) {
    case 0:
        return &removed->hierarchies[GP_HIERARCHY_V2];
    case GP_MAP_CGROUP_V1:
        return &removed->hierarchies[GP_HIERARCHY_MEMORY];
    default:
        return &removed->hierarchies[GP_HIERARCHY_PIDS];
    }
}

static bool cgroup_is_removed(struct gp_removed *removed, uint64_t id)
{
    if (ids_has(&removed->before, id))
        return true;
    int mount = hierarchy_fd(removed, hierarchy_with(removed, id));
    if (mount < 0)
        return false;
    union {
        struct file_handle head;
        char bytes[sizeof(struct file_handle) + sizeof(id)];
    } handle = {.head = {.handle_bytes = sizeof(id), .handle_type = GP_FILEID_KERNFS}};
    id &= GP_MAP_CGROUP_V1 - 1;
    memcpy(handle.head.f_handle, &id, sizeof(id));
    int fd = open_by_handle_at(mount, &handle.head, O_PATH | O_CLOEXEC);
    if (fd < 0) {
        if (errno != ESTALE)
            removed_log(removed, -errno);
        return errno == ESTALE;
    }
    /* Some kernels open a removed cgroup that memory is still charged to; it has no files any more. */
    struct stat about;
    bool is_removed = fstatat(fd, "cgroup.procs", &about, 0) && errno == ENOENT;
    close(fd);
    return is_removed;
}

/* ---- the scan ---------------------------------------------------------------------------------------------------- */

void gp_removed_begin(struct gp_removed *removed)
{
    removed->phase = GP_REMOVED_CONTAINERS;
    removed->walk = (struct gp_bpf_walk){.at = 0};
    removed->found.count = removed->found.sorted = 0;
    removed->scan++;
}

bool gp_removed_is_busy(const struct gp_removed *removed)
{
    return removed->phase != GP_REMOVED_IDLE;
}

static void removed_end(struct gp_removed *removed)
{
    struct gp_ids was = removed->before;
    removed->before = removed->found;
    removed->found = was;
    removed->phase = GP_REMOVED_IDLE;
    hierarchies_close(removed);
}

static void removed_choose(struct gp_removed *removed)
{
    ids_sort(&removed->found);
    removed->due_count = removed->at = 0;
    for (uint32_t i = 0; i < removed->found.count; i++) {
        if (ids_has(&removed->before, removed->found.id[i]))
            removed->due[removed->due_count++] = removed->found.id[i];
    }
    removed->phase = GP_REMOVED_FORGETTING;
}

static void removed_scan(struct gp_removed *removed)
{
    uint64_t ids[GP_BPF_PART], last = 0;
    uint32_t count;
    bool is_sums = removed->phase == GP_REMOVED_SUMS;
    int more = is_sums ? gp_bpf_idle_sums(removed->bpf, &removed->walk, ids, &count)
                       : gp_bpf_idle_containers(removed->bpf, &removed->walk, ids, &count);
    if (more < 0) {
        removed_log(removed, more);
        removed_end(removed);
        return;
    }
    for (uint32_t i = 0; i < count && removed->found.count < removed->capacity; i++) {
        if (ids[i] == last || ids_has(&removed->found, ids[i]))
            continue;
        last = ids[i];
        if (cgroup_is_removed(removed, ids[i]))
            removed->found.id[removed->found.count++] = ids[i];
    }
    if (more)
        return;
    if (is_sums || removed->scan % GP_REMOVED_SUMS_OF >= GP_REMOVED_SUMS_FOR) {
        removed_choose(removed);
        return;
    }
    ids_sort(&removed->found);
    removed->phase = GP_REMOVED_SUMS;
    removed->walk = (struct gp_bpf_walk){.at = 0};
}

static unsigned removed_forget(struct gp_removed *removed)
{
    uint32_t some = removed->due_count - removed->at, forgotten = 0;
    if (some > GP_REMOVED_FORGET)
        some = GP_REMOVED_FORGET;
    if (some) {
        int rows = gp_bpf_forget_containers(removed->bpf, removed->due + removed->at, some, &forgotten);
        if (rows < 0)
            removed_log(removed, rows);
    }
    removed->at += some;
    if (removed->at == removed->due_count)
        removed_end(removed);
    return forgotten;
}

unsigned gp_removed_turn(struct gp_removed *removed)
{
    if (removed->phase == GP_REMOVED_FORGETTING)
        return removed_forget(removed);
    if (removed->phase != GP_REMOVED_IDLE)
        removed_scan(removed);
    return 0;
}

/* ---- open, close ------------------------------------------------------------------------------------------------- */

static int removed_room(const struct gp_bpf *bpf, const char *name, uint32_t *room)
{
    struct bpf_map_info info = {0};
    uint32_t bytes = sizeof(info);
    int fd = gp_bpf_map(bpf, name);
    if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &bytes))
        return fd < 0 ? fd : -errno;
    *room += info.max_entries;
    return 0;
}

int gp_removed_open(struct gp_removed **out, struct gp_bpf *bpf)
{
    struct gp_removed *removed = calloc(1, sizeof(*removed));
    *out = NULL;
    if (!removed)
        return -ENOMEM;
    removed->bpf = bpf;
    for (int i = 0; i < GP_HIERARCHIES; i++)
        removed->hierarchies[i].fd = -1;
    int error = removed_room(bpf, "container", &removed->capacity);
    if (!error)
        error = removed_room(bpf, "container_device", &removed->capacity);
    removed->found.id = calloc(removed->capacity, sizeof(uint64_t));
    removed->before.id = calloc(removed->capacity, sizeof(uint64_t));
    removed->due = calloc(removed->capacity, sizeof(uint64_t));
    if (!error && (!removed->found.id || !removed->before.id || !removed->due))
        error = -ENOMEM;
    if (error)
        gp_removed_close(removed);
    else
        *out = removed;
    return error;
}

void gp_removed_close(struct gp_removed *removed)
{
    if (!removed)
        return;
    hierarchies_close(removed);
    free(removed->found.id);
    free(removed->before.id);
    free(removed->due);
    free(removed);
}
