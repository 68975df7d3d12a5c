/* SPDX-License-Identifier: MIT
 *
 * removed.c: see removed.h.  A cgroup's number is never given again, so one that cannot be opened by its number is gone for
 * good.  It is forgotten when two looks in a row find it so: a program at the probe that began while the cgroup was
 * there may still hold one of its rows, and the kernel gives a deleted row's memory to the next one at once.
 */
#include <agent/removed.h>
#include <base/compiler.h>
#include <common/agentlog.h>

#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GP_REMOVED_FORGET 512 /* in one turn: a walk through the sums and two system calls each, about 1 ms */
/* Sums whose container has no row of its own are rare (the table of containers was full): two looks of eight. */
#define GP_REMOVED_SUMS_OF  8
#define GP_REMOVED_SUMS_FOR 2

#define GP_FILEID_KERNFS 0xfe /* how cgroups are named by number; the kernel's headers keep it to themselves */

enum gp_removed_phase { GP_REMOVED_IDLE, GP_REMOVED_CONTAINERS, GP_REMOVED_SUMS, GP_REMOVED_FORGETTING };

struct gp_ids { /* in order from the first to the sorted-th */
    uint32_t count, sorted;
    uint64_t *id;
};

enum { GP_HIERARCHY_V2, GP_HIERARCHY_MEMORY, GP_HIERARCHY_PIDS, GP_HIERARCHIES };

struct gp_hierarchy {
    char path[256]; /* "": not found */
    int fd;         /* during a look; -1 not opened yet, -2 cannot be */
};

struct gp_removed {
    struct gp_bpf *bpf;
    enum gp_removed_phase phase;
    uint32_t look, capacity, at;
    struct gp_bpf_walk walk;
    struct gp_ids found, before; /* by this look, by the one before */
    uint64_t *due;               /* in both */
    uint32_t due_count;
    struct gp_hierarchy hierarchies[GP_HIERARCHIES];
    bool has_said;
};

static int id_compare(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

static bool ids_has(const struct gp_ids *ids, uint64_t id)
{
    return ids->sorted && bsearch(&id, ids->id, ids->sorted, sizeof(id), id_compare);
}

static void ids_sort(struct gp_ids *ids)
{
    qsort(ids->id, ids->count, sizeof(*ids->id), id_compare);
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

static void hierarchies_find(struct gp_removed *gone)
{
    char line[4096];
    struct mntent entry;
    FILE *mounts = setmntent("/proc/self/mounts", "re");
    for (int i = 0; i < GP_HIERARCHIES; i++)
        gone->hierarchies[i].path[0] = '\0';
    while (mounts && getmntent_r(mounts, &entry, line, sizeof(line))) {
        int which = hierarchy_of(&entry);
        if (which >= 0 && !gone->hierarchies[which].path[0] && strlen(entry.mnt_dir) < sizeof(gone->hierarchies->path))
            strcpy(gone->hierarchies[which].path, entry.mnt_dir);
    }
    if (mounts)
        endmntent(mounts);
}

static void removed_say(struct gp_removed *gone, int error)
{
    if (gone->has_said)
        return;
    gone->has_said = true;
    gp_agent_log(
        GP_AGENTLOG_WARNING,
        "cannot tell whether a container is gone (%s), so removed ones keep their rows in the tables: the agent needs "
        "CAP_DAC_READ_SEARCH and a mounted cgroup file system",
        strerror(-error));
}

/* Open only during a look: a descriptor held all the time would keep others from unmounting it. */
static int hierarchy_fd(struct gp_removed *gone, struct gp_hierarchy *one)
{
    if (one->fd != -1)
        return one->fd;
    if (!one->path[0] || (one->fd = open(one->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        hierarchies_find(gone);
        one->fd = one->path[0] ? open(one->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    }
    if (one->fd < 0) {
        removed_say(gone, one->path[0] ? -errno : -ENOENT);
        one->fd = -2;
    }
    return one->fd;
}

static void hierarchies_close(struct gp_removed *gone)
{
    for (int i = 0; i < GP_HIERARCHIES; i++) {
        if (gone->hierarchies[i].fd >= 0)
            close(gone->hierarchies[i].fd);
        gone->hierarchies[i].fd = -1;
    }
}

static struct gp_hierarchy *hierarchy_with(struct gp_removed *gone, uint64_t id)
{
    switch (id & GP_MAP_CGROUP_V1_PIDS) {
    case 0:
        return &gone->hierarchies[GP_HIERARCHY_V2];
    case GP_MAP_CGROUP_V1:
        return &gone->hierarchies[GP_HIERARCHY_MEMORY];
    default:
        return &gone->hierarchies[GP_HIERARCHY_PIDS];
    }
}

static bool cgroup_is_gone(struct gp_removed *gone, uint64_t id)
{
    if (ids_has(&gone->before, id))
        return true;
    int mount = hierarchy_fd(gone, hierarchy_with(gone, id));
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
            removed_say(gone, -errno);
        return errno == ESTALE;
    }
    /* Some kernels open a removed one that memory is still charged to; it has no files any more. */
    struct stat about;
    bool is_gone = fstatat(fd, "cgroup.procs", &about, 0) && errno == ENOENT;
    close(fd);
    return is_gone;
}

/* ---- the look ---------------------------------------------------------------------------------------------------- */

void gp_removed_begin(struct gp_removed *gone)
{
    gone->phase = GP_REMOVED_CONTAINERS;
    gone->walk = (struct gp_bpf_walk){.at = 0};
    gone->found.count = gone->found.sorted = 0;
    gone->look++;
}

bool gp_removed_is_busy(const struct gp_removed *gone)
{
    return gone->phase != GP_REMOVED_IDLE;
}

static void removed_end(struct gp_removed *gone)
{
    struct gp_ids was = gone->before;
    gone->before = gone->found;
    gone->found = was;
    gone->phase = GP_REMOVED_IDLE;
    hierarchies_close(gone);
}

static void removed_found(struct gp_removed *gone)
{
    ids_sort(&gone->found);
    gone->due_count = gone->at = 0;
    for (uint32_t i = 0; i < gone->found.count; i++) {
        if (ids_has(&gone->before, gone->found.id[i]))
            gone->due[gone->due_count++] = gone->found.id[i];
    }
    gone->phase = GP_REMOVED_FORGETTING;
}

static void removed_look(struct gp_removed *gone)
{
    uint64_t ids[GP_BPF_PART], last = 0;
    uint32_t count;
    bool is_sums = gone->phase == GP_REMOVED_SUMS;
    int more = is_sums ? gp_bpf_idle_sums(gone->bpf, &gone->walk, ids, &count)
                       : gp_bpf_idle_containers(gone->bpf, &gone->walk, ids, &count);
    if (more < 0) {
        removed_say(gone, more);
        removed_end(gone);
        return;
    }
    for (uint32_t i = 0; i < count && gone->found.count < gone->capacity; i++) {
        if (ids[i] == last || ids_has(&gone->found, ids[i]))
            continue;
        last = ids[i];
        if (cgroup_is_gone(gone, ids[i]))
            gone->found.id[gone->found.count++] = ids[i];
    }
    if (more)
        return;
    if (is_sums || gone->look % GP_REMOVED_SUMS_OF >= GP_REMOVED_SUMS_FOR) {
        removed_found(gone);
        return;
    }
    ids_sort(&gone->found);
    gone->phase = GP_REMOVED_SUMS;
    gone->walk = (struct gp_bpf_walk){.at = 0};
}

static unsigned removed_forget(struct gp_removed *gone)
{
    uint32_t some = gone->due_count - gone->at, forgotten = 0;
    if (some > GP_REMOVED_FORGET)
        some = GP_REMOVED_FORGET;
    if (some) {
        int rows = gp_bpf_forget_containers(gone->bpf, gone->due + gone->at, some, &forgotten);
        if (rows < 0)
            removed_say(gone, rows);
    }
    gone->at += some;
    if (gone->at == gone->due_count)
        removed_end(gone);
    return forgotten;
}

unsigned gp_removed_turn(struct gp_removed *gone)
{
    if (gone->phase == GP_REMOVED_FORGETTING)
        return removed_forget(gone);
    if (gone->phase != GP_REMOVED_IDLE)
        removed_look(gone);
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
    struct gp_removed *gone = calloc(1, sizeof(*gone));
    *out = NULL;
    if (!gone)
        return -ENOMEM;
    gone->bpf = bpf;
    for (int i = 0; i < GP_HIERARCHIES; i++)
        gone->hierarchies[i].fd = -1;
    int error = removed_room(bpf, "container", &gone->capacity);
    if (!error)
        error = removed_room(bpf, "container_device", &gone->capacity);
    gone->found.id = calloc(gone->capacity, sizeof(uint64_t));
    gone->before.id = calloc(gone->capacity, sizeof(uint64_t));
    gone->due = calloc(gone->capacity, sizeof(uint64_t));
    if (!error && (!gone->found.id || !gone->before.id || !gone->due))
        error = -ENOMEM;
    if (error)
        gp_removed_close(gone);
    else
        *out = gone;
    return error;
}

void gp_removed_close(struct gp_removed *gone)
{
    if (!gone)
        return;
    hierarchies_close(gone);
    free(gone->found.id);
    free(gone->before.id);
    free(gone->due);
    free(gone);
}
