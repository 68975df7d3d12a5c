/* SPDX-License-Identifier: MIT
 *
 * bpf.c: opens, loads, pins and attaches bpf/gpuprof.bpf.c. The BPF object is part of this program
 * (a skeleton made by bpftool), so the programs loaded are those it was built with.
 */
#include "agent/kernel/bpf.h"
#include "gpuprof.skel.h"
#include "loaderabi.h"
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* ==== its file system ============================================================================================= */
/* Mounts the BPF file system that pins need, where the machine has none.  Called by the agent when
 * it starts. */

#define BPFFS "/sys/fs/bpf"

static bool is_below(const char *pins)
{
    const size_t length = sizeof BPFFS - 1;
    return !strncmp(pins, BPFFS, length) && (pins[length] == '/' || pins[length] == '\0');
}

/* The type of the file system at BPFFS, 0 where there is no such directory. */
static unsigned long type_there(void)
{
    struct statfs about;
    return statfs(BPFFS, &about) ? 0 : (unsigned long)about.f_type;
}

/* Two agents that start together must not mount twice: the second mount would hide the pins of the first.  Any user can
 * hold this lock, so an agent waits one second at most.  A descriptor to close, or -1 without the lock. */
static int lock_mount_point(void)
{
    int fd = open(BPFFS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int tries = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && tries < 50; tries++)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    return fd;
}

static int mount_error(int error, char *why, size_t why_bytes)
{
    if (error == EPERM || error == EACCES)
        snprintf(why, why_bytes,
                 "no BPF file system is mounted at " BPFFS ", and mounting one needs CAP_SYS_ADMIN: run 'mount -t bpf "
                 "bpf " BPFFS "' as root first");
    else
        snprintf(why, why_bytes, "no BPF file system is mounted at " BPFFS ", and mounting one failed: %s%s",
                 strerror(error),
                 error == ENODEV   ? " (the kernel has none)"
                 : error == ENOENT ? " (is sysfs mounted at /sys?)"
                                   : "");
    return -ENOENT;
}

int gp_bpf_mount(const char *pins, char *why, size_t why_bytes)
{
    if (!is_below(pins))
        return 0;
    /* Another file system there was mounted on purpose: it stays, and pinning reports that it is no bpffs. */
    unsigned long type = type_there();
    if (type != SYSFS_MAGIC)
        return type ? 0 : mount_error(ENOENT, why, why_bytes);
    int lock = lock_mount_point(), error = 0;
    bool is_missing = type_there() == SYSFS_MAGIC;
    if (is_missing && mount("bpf", BPFFS, "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=" GP_BPF_MOUNT_MODE))
        error = errno;
    if (lock >= 0)
        close(lock);
    return error ? mount_error(error, why, why_bytes) : is_missing;
}

/* ==== the object ================================================================================================== */

/* From Linux 6.6; the headers of Debian 12 lack it. */
#define ATTACH_UPROBE_MULTI 48
struct multi_link { /* the part of union bpf_attr that BPF_LINK_CREATE uses for uprobe_multi */
    uint32_t prog_fd, target_fd, attach_type, flags;
    uint64_t path, offsets, semaphore_offsets, cookies;
    uint32_t count, multi_flags, pid, pad_;
};

#define BPFFS_MAGIC 0xcafe4a11

struct gp_bpf {
    struct gpuprof_bpf *skeleton;
    struct gp_map_meta *meta;
    size_t meta_bytes;
    bool is_multi;
};

static const struct {
    const char *name;
    mode_t mode;
} pinned[] = {
    {"meta", 0644},   {"process_device", 0640}, {"container_device", 0644}, {"device", 0644}, {"container", 0644},
    {"events", 0600}, {"reset", 0644},
};
#define PINNED (sizeof pinned / sizeof pinned[0])

static int explain(char *why, size_t why_bytes, int error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static int explain(char *why, size_t why_bytes, int error, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (why_bytes)
        vsnprintf(why, why_bytes, format, list);
    va_end(list);
    return error;
}

static bool is_verbose;

static int libbpf_log(enum libbpf_print_level level, const char *format, va_list list)
{
    /* Lower levels log each relocation. */
    return is_verbose && level == LIBBPF_WARN ? vfprintf(stderr, format, list) : 0;
}

/* ---- loading --------------------------------------------------------------------------------------------------- */

static uint32_t or_default(uint32_t asked, uint32_t otherwise)
{
    return asked ? asked : otherwise;
}

/* The kernel accepts only a power of two of pages as a ring's size. */
static uint32_t ring_round(uint32_t bytes)
{
    uint32_t page = (uint32_t)sysconf(_SC_PAGESIZE), size = page;
    while (size < bytes && size < (1u << 30))
        size <<= 1;
    return size;
}

/* What one container may use of the tables of processes: an eighth, but of a small table as much as
 * a machine with eight devices may need. */
static uint32_t share_of(uint32_t processes)
{
    uint32_t least = processes < GP_MAPS_ENTRIES_LEAST ? processes : GP_MAPS_ENTRIES_LEAST;
    return processes / GP_MAPS_SHARES > least ? processes / GP_MAPS_SHARES : least;
}

static void sizes_set(struct gpuprof_bpf *skeleton, const struct gp_bpf_options *options)
{
    uint32_t processes = or_default(options->processes, GP_MAPS_PROCESSES);
    uint32_t containers = or_default(options->containers, GP_MAPS_CONTAINERS);
    uint32_t devices = or_default(options->devices, GP_MAPS_DEVICES);
    uint32_t ring = ring_round(or_default(options->ring_bytes, GP_MAPS_RING_BYTES));
    bpf_map__set_max_entries(skeleton->maps.process, processes);
    bpf_map__set_max_entries(skeleton->maps.process_device, processes);
    bpf_map__set_max_entries(skeleton->maps.container_device, containers);
    bpf_map__set_max_entries(skeleton->maps.container, containers);
    bpf_map__set_max_entries(skeleton->maps.device, devices);
    bpf_map__set_max_entries(skeleton->maps.reset, devices + 1);
    bpf_map__set_max_entries(skeleton->maps.events, ring);
    uint64_t cost = 1000000000ull / or_default(options->quiet_events_per_s, GP_MAPS_QUIET_EVENTS);
    skeleton->rodata->event_cost_ns = cost ? cost : 1;
    skeleton->rodata->bucket_ns =
        skeleton->rodata->event_cost_ns * or_default(options->quiet_burst, GP_MAPS_QUIET_BURST);
    skeleton->rodata->ring_shared_bytes = ring / 2;
    skeleton->rodata->ring_wake_bytes = ring / 16;
    skeleton->rodata->entries_of_container = share_of(processes);
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    skeleton->rodata->agent_start_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int link_multi(int program, const char *path, const struct gp_bpf_probe *probe)
{
    struct multi_link link = {
        .prog_fd = (uint32_t)program,
        .attach_type = ATTACH_UPROBE_MULTI,
        .path = (uintptr_t)path,
        .offsets = (uintptr_t)&probe->offset,
        .semaphore_offsets = probe->semaphore_offset ? (uintptr_t)&probe->semaphore_offset : 0,
        .cookies = (uintptr_t)&probe->cookie,
        .count = 1,
    };
    int fd = (int)syscall(SYS_bpf, BPF_LINK_CREATE, &link, sizeof link);
    return fd < 0 ? -errno : fd;
}

/* A kernel that has uprobe_multi opens the path and fails because it is not a regular file; others
 * fail earlier. */
static bool multi_works(int program)
{
    struct gp_bpf_probe none = {.offset = 0};
    return link_multi(program, "/", &none) == -EBADF;
}

static int load_once(struct gp_bpf *bpf, const struct gp_bpf_options *options, bool want_multi)
{
    bpf->skeleton = gpuprof_bpf__open();
    if (!bpf->skeleton)
        return -errno;
    sizes_set(bpf->skeleton, options);
    if (want_multi)
        bpf_program__set_expected_attach_type(bpf->skeleton->progs.gpuprof_batch, ATTACH_UPROBE_MULTI);
    int error = gpuprof_bpf__load(bpf->skeleton);
    if (!error && want_multi && !multi_works(bpf_program__fd(bpf->skeleton->progs.gpuprof_batch)))
        error = -EOPNOTSUPP;
    if (error) {
        gpuprof_bpf__destroy(bpf->skeleton);
        bpf->skeleton = NULL;
    }
    bpf->is_multi = want_multi;
    return error;
}

static int load(struct gp_bpf *bpf, const struct gp_bpf_options *options, char *why, size_t why_bytes)
{
    if (access("/sys/kernel/btf/vmlinux", R_OK))
        return explain(
            why, why_bytes, -ENOTSUP,
            "the kernel has no BTF (/sys/kernel/btf/vmlinux): use a kernel built with CONFIG_DEBUG_INFO_BTF");
    int error = options->by_perf ? -EOPNOTSUPP : load_once(bpf, options, true);
    if (error)
        error = load_once(bpf, options, false);
    if (error == -EPERM) /* the verifier returns -EACCES instead */
        return explain(why, why_bytes, -EPERM,
                       "no permission to load BPF programs: run as root or with CAP_BPF and CAP_PERFMON");
    if (error)
        return explain(why, why_bytes, error == -EINVAL ? -ENOTSUP : error,
                       "the kernel refuses the BPF programs (%s): Linux 5.15 or newer is needed", strerror(-error));
    return 0;
}

static int attach_tracepoints(struct gp_bpf *bpf, char *why, size_t why_bytes)
{
    bpf->skeleton->links.gpuprof_exit = bpf_program__attach_trace(bpf->skeleton->progs.gpuprof_exit);
    bpf->skeleton->links.gpuprof_exec = bpf_program__attach_trace(bpf->skeleton->progs.gpuprof_exec);
    if (bpf->skeleton->links.gpuprof_exit && bpf->skeleton->links.gpuprof_exec)
        return 0;
    return explain(why, why_bytes, -errno, "cannot attach to the tracepoints of exit and exec: %s", strerror(errno));
}

static int meta_map(struct gp_bpf *bpf, char *why, size_t why_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    bpf->meta_bytes = (sizeof(struct gp_map_meta) + page - 1) / page * page;
    int fd = bpf_map__fd(bpf->skeleton->maps.meta);
    void *at = mmap(NULL, bpf->meta_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return explain(why, why_bytes, -errno, "cannot map the table meta: %s", strerror(errno));
    bpf->meta = at;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    bpf->meta->abi = GP_MAPS_ABI;
    bpf->meta->process_bytes = sizeof(struct gp_map_process);
    bpf->meta->sum_bytes = sizeof(struct gp_map_sum);
    bpf->meta->container_bytes = sizeof(struct gp_map_container);
    bpf->meta->agent_pid = (uint32_t)getpid();
    bpf->meta->start_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    bpf->meta->heartbeat_ns = bpf->meta->start_ns;
    return 0;
}

/* ---- pins ------------------------------------------------------------------------------------------------------ */

/* A map is pinned under this suffix first and then renamed over the old pin, so a reader always
 * finds one. */
#define NEXT "-new"
#define LOCK "lock"

static int pin_path(char *path, size_t bytes, const char *pins, const char *name, const char *end)
{
    int length = snprintf(path, bytes, "%s/%s%s", pins, name, end);
    return length < 0 || (size_t)length >= bytes ? -ENAMETOOLONG : 0;
}

/* Whether the pin is a map with this name of any version of ours; any other object must not be
 * replaced. */
static bool pin_is_ours(const char *path, const char *name)
{
    char link[32], kind[32] = "";
    struct bpf_map_info info = {0};
    uint32_t bytes = sizeof info;
    LIBBPF_OPTS(bpf_obj_get_opts, readonly, .file_flags = BPF_F_RDONLY);
    int fd = bpf_obj_get_opts(path, &readonly);
    if (fd < 0)
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    bool is_map = readlink(link, kind, sizeof kind - 1) > 0 && !strcmp(kind, "anon_inode:bpf-map");
    bool is_ours =
        is_map && !bpf_obj_get_info_by_fd(fd, &info, &bytes) && !strncmp(info.name, name, sizeof info.name - 1);
    close(fd);
    return is_ours;
}

/* /sys/fs/bpf may be writable for all users (with the sticky bit): the owner of a directory there
 * could change it while we use it. */
static int pins_judge(int fd, const char *pins, char *why, size_t why_bytes)
{
    struct statfs where;
    struct stat about;
    if (fstatfs(fd, &where) || (unsigned long)where.f_type != BPFFS_MAGIC)
        return explain(why, why_bytes, -ENOENT, "%s is not on a bpffs: mount -t bpf bpf /sys/fs/bpf", pins);
    if (fstat(fd, &about) || about.st_uid != geteuid() || (about.st_mode & 022))
        return explain(why, why_bytes, -EEXIST, "%s is another user's, or others may write there: take it away", pins);
    return 0;
}

/* Creates the directory if needed. Returns an open descriptor of it or -errno. */
static int pins_open(const char *pins, char *why, size_t why_bytes)
{
    bool is_made = mkdir(pins, 0755) == 0;
    if (!is_made && errno != EEXIST)
        return explain(why, why_bytes, -errno, "cannot make %s: %s (is a bpffs mounted at /sys/fs/bpf?)", pins,
                       strerror(errno));
    if (is_made)
        chmod(pins, 0755); /* independent of the umask */
    int fd = open(pins, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return explain(why, why_bytes, -errno, "cannot open %s: %s", pins,
                       errno == ENOTDIR || errno == ELOOP ? "not a directory, or a symbolic link" : strerror(errno));
    int error = pins_judge(fd, pins, why, why_bytes);
    if (!error)
        return fd;
    close(fd);
    if (is_made)
        rmdir(pins);
    return error;
}

static int pin_one(const struct gp_bpf *bpf, const char *pins, size_t index)
{
    char path[4096];
    if (pin_path(path, sizeof path, pins, pinned[index].name, NEXT))
        return -ENAMETOOLONG;
    struct bpf_map *map = bpf_object__find_map_by_name(bpf->skeleton->obj, pinned[index].name);
    if (!map)
        return -ENOENT;
    if (unlink(path) && errno != ENOENT) /* left by an agent that was killed here */
        return -errno;
    return bpf_obj_pin(bpf_map__fd(map), path) || chmod(path, pinned[index].mode) ? -errno : 0;
}

static int pin_group(const char *pins, gid_t group, char *why, size_t why_bytes)
{
    char path[4096];
    if (group == (gid_t)-1)
        return 0;
    if (pin_path(path, sizeof path, pins, "process_device", NEXT) || chown(path, (uid_t)-1, group))
        return explain(why, why_bytes, -errno, "cannot give process_device to group %u: %s%s", (unsigned)group,
                       strerror(errno), errno == EPERM ? " (needs CAP_CHOWN or membership in that group)" : "");
    return 0;
}

static void pins_drop(const char *pins, const char *end)
{
    char path[4096];
    for (size_t i = 0; i < PINNED; i++)
        if (!pin_path(path, sizeof path, pins, pinned[i].name, end))
            unlink(path);
}

/* Tables first, meta last: a reader in between sees an old heartbeat beside new tables, never a new
 * heartbeat beside old tables. */
static int pins_place(const char *pins, char *why, size_t why_bytes)
{
    char from[4096], to[4096];
    for (size_t i = PINNED; i-- > 0;) {
        if (pin_path(from, sizeof from, pins, pinned[i].name, NEXT) ||
            pin_path(to, sizeof to, pins, pinned[i].name, ""))
            return -ENAMETOOLONG;
        if (rename(from, to))
            return explain(why, why_bytes, -errno, "cannot pin %s: %s", to, strerror(errno));
    }
    return 0;
}

/* Any user that can open a file can lock it for any time, so the lock is on a directory that no
 * other user may open. */
static int lock_open(const char *pins, char *why, size_t why_bytes)
{
    int fd = pins_open(pins, why, why_bytes);
    if (fd < 0)
        return fd;
    int lock = mkdirat(fd, LOCK, 0700) && errno != EEXIST
                   ? -1
                   : openat(fd, LOCK, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int error = lock < 0 ? -errno : 0;
    close(fd);
    if (!error)
        error = pins_judge(lock, pins, why, why_bytes);
    else if (error != -ENOENT) /* the directory was removed meanwhile */
        explain(why, why_bytes, error, "cannot open %s/" LOCK ": %s", pins, strerror(-error));
    else
        error = -EAGAIN;
    if (error && lock >= 0)
        close(lock);
    return error ? error : lock;
}

bool gp_bpf_pins_held(const char *pins, int lock)
{
    char path[4096];
    struct stat held, there;
    return !pin_path(path, sizeof path, pins, LOCK, "") && !fstat(lock, &held) && !stat(path, &there) &&
           held.st_ino == there.st_ino && held.st_dev == there.st_dev;
}

/* The kernel releases the lock however the holder ends. If the directory was removed between open
 * and flock, it is created and locked again. */
int gp_bpf_pins_lock(const char *pins, char *why, size_t why_bytes)
{
    for (unsigned tries = 0; tries < 100; tries++) {
        int fd = lock_open(pins, why, why_bytes);
        if (fd == -EAGAIN)
            continue;
        if (fd < 0)
            return fd;
        int error = flock(fd, LOCK_EX | LOCK_NB) ? -errno : 0;
        if (!error && gp_bpf_pins_held(pins, fd))
            return fd;
        close(fd);
        if (!error)
            continue;
        struct gp_map_meta meta;
        char who[32] = "";
        if (gp_bpf_pinned_meta(pins, &meta) == 0)
            snprintf(who, sizeof who, " (pid %u)", meta.agent_pid);
        if (error == -EWOULDBLOCK)
            return explain(why, why_bytes, -EEXIST, "another agent%s uses the pins %s", who, pins);
        return explain(why, why_bytes, error, "cannot lock %s: %s", pins, strerror(-error));
    }
    return explain(why, why_bytes, -EAGAIN, "%s is removed again and again: is another agent restarting in a loop?",
                   pins);
}

int gp_bpf_pin(struct gp_bpf *bpf, const char *pins, gid_t group, char *why, size_t why_bytes)
{
    char path[4096];
    int error = 0, fd = pins_open(pins, why, why_bytes);
    if (fd < 0)
        return fd;
    close(fd);
    for (size_t i = 0; i < PINNED; i++) {
        if (pin_path(path, sizeof path, pins, pinned[i].name, ""))
            return explain(why, why_bytes, -ENAMETOOLONG, "%s: name too long", pins);
        if (access(path, F_OK) == 0 && !pin_is_ours(path, pinned[i].name))
            return explain(why, why_bytes, -EEXIST, "%s exists and is not gpuprof's: remove it", path);
    }
    for (size_t i = 0; !error && i < PINNED; i++) {
        error = pin_one(bpf, pins, i);
        if (error)
            explain(why, why_bytes, error, "cannot pin %s/%s: %s", pins, pinned[i].name, strerror(-error));
    }
    if (!error)
        error = pin_group(pins, group, why, why_bytes);
    if (!error)
        error = pins_place(pins, why, why_bytes);
    if (error)
        pins_drop(pins, NEXT);
    return error;
}

int gp_bpf_unpin(const char *pins)
{
    char path[4096];
    int error = 0;
    for (size_t i = 0; i < PINNED; i++) {
        if (pin_path(path, sizeof path, pins, pinned[i].name, ""))
            return -ENAMETOOLONG;
        if (access(path, F_OK) == 0 && pin_is_ours(path, pinned[i].name) && unlink(path))
            error = -errno;
    }
    pins_drop(pins, NEXT);
    if (!pin_path(path, sizeof path, pins, LOCK, ""))
        rmdir(path);
    if (rmdir(pins) && errno != ENOENT && errno != ENOTEMPTY && errno != EBUSY) /* busy: it is the mount point */
        error = -errno;
    return error;
}

int gp_bpf_pins_foreign(const char *pins, char *name, size_t name_bytes)
{
    DIR *directory = opendir(pins);
    struct dirent *entry;
    int count = 0;
    if (!directory)
        return -errno;
    while ((entry = readdir(directory))) {
        bool is_ours = entry->d_name[0] == '.' || !strcmp(entry->d_name, LOCK); /* bpffs allows no names with dots */
        for (size_t i = 0; !is_ours && i < PINNED; i++)
            is_ours = !strcmp(entry->d_name, pinned[i].name);
        if (!is_ours && count++ == 0)
            snprintf(name, name_bytes, "%s", entry->d_name);
    }
    closedir(directory);
    return count;
}

int gp_bpf_pinned_meta(const char *pins, struct gp_map_meta *out)
{
    char path[4096];
    if (pin_path(path, sizeof path, pins, "meta", ""))
        return -ENAMETOOLONG;
    LIBBPF_OPTS(bpf_obj_get_opts, readonly, .file_flags = BPF_F_RDONLY);
    int fd = bpf_obj_get_opts(path, &readonly);
    if (fd < 0)
        return -errno;
    struct bpf_map_info info = {0};
    uint32_t bytes = sizeof info, zero = 0;
    int error = bpf_obj_get_info_by_fd(fd, &info, &bytes) ? -errno : 0;
    if (!error && (info.type != BPF_MAP_TYPE_ARRAY || info.value_size != sizeof *out || info.key_size != sizeof zero))
        error = -EPROTO;
    if (!error && bpf_map_lookup_elem(fd, &zero, out))
        error = -errno;
    if (!error && out->abi != GP_MAPS_ABI)
        error = -EPROTO;
    close(fd);
    return error;
}

/* ---- open, close ----------------------------------------------------------------------------------------------- */

int gp_bpf_open(struct gp_bpf **out, const struct gp_bpf_options *options, char *why, size_t why_bytes)
{
    static const struct gp_bpf_options none;
    options = options ? options : &none;
    *out = NULL;
    struct gp_bpf *bpf = calloc(1, sizeof *bpf);
    if (!bpf)
        return explain(why, why_bytes, -ENOMEM, "out of memory");
    is_verbose = options->verbose;
    libbpf_set_print(libbpf_log);
    int error = load(bpf, options, why, why_bytes);
    if (!error)
        error = meta_map(bpf, why, why_bytes);
    if (!error)
        error = attach_tracepoints(bpf, why, why_bytes);
    if (error)
        gp_bpf_close(bpf);
    else
        *out = bpf;
    return error;
}

void gp_bpf_close(struct gp_bpf *bpf)
{
    if (!bpf)
        return;
    if (bpf->meta)
        munmap(bpf->meta, bpf->meta_bytes);
    if (bpf->skeleton)
        gpuprof_bpf__destroy(bpf->skeleton);
    free(bpf);
}

/* ---- probes ---------------------------------------------------------------------------------------------------- */

static int uprobe_type(void)
{
    char text[16] = "";
    int fd = open("/sys/bus/event_source/devices/uprobe/type", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    return got > 0 ? atoi(text) : -EIO;
}

static int link_perf(int program, const char *path, const struct gp_bpf_probe *probe)
{
    int type = uprobe_type();
    if (type < 0)
        return type;
    if (probe->semaphore_offset >> 32)
        return -EFBIG; /* perf has only 32 bits for the offset */
    struct perf_event_attr attr = {
        .type = (uint32_t)type,
        .size = sizeof attr,
        .config = probe->semaphore_offset << 32,
        .config1 = (uintptr_t)path,
        .config2 = probe->offset,
    };
    int event = (int)syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
    if (event < 0)
        return -errno;
    LIBBPF_OPTS(bpf_link_create_opts, with, .perf_event.bpf_cookie = probe->cookie);
    int link = bpf_link_create(program, event, BPF_PERF_EVENT, &with);
    int error = link < 0 ? -errno : 0;
    close(event); /* the link keeps the event */
    return error ? error : link;
}

int gp_bpf_attach(struct gp_bpf *bpf, int fd, const struct gp_bpf_probe *probe, char *why, size_t why_bytes)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int program = bpf_program__fd(bpf->skeleton->progs.gpuprof_batch);
    int link = bpf->is_multi ? link_multi(program, path, probe) : link_perf(program, path, probe);
    if (link == -EPERM || link == -EACCES)
        return explain(why, why_bytes, link, "no permission to place the probe: %s",
                       bpf->is_multi ? "CAP_PERFMON is needed" : "CAP_SYS_ADMIN is needed below Linux 6.6");
    if (link == -EINVAL) /* the instruction was checked before, so this is what the kernel says of a second semaphore */
        return explain(
            why, why_bytes, -EUSERS,
            "another tracer (perf, tracefs, bpftrace) has a probe there without the semaphore, and the kernel "
            "places no second one: end that tracer");
    if (link < 0)
        return explain(why, why_bytes, link, "cannot place the probe: %s", strerror(-link));
    return link;
}

bool gp_bpf_is_multi(const struct gp_bpf *bpf)
{
    return bpf->is_multi;
}

/* ---- maps ------------------------------------------------------------------------------------------------------ */

int gp_bpf_map(const struct gp_bpf *bpf, const char *name)
{
    struct bpf_map *map = bpf_object__find_map_by_name(bpf->skeleton->obj, name);
    return map ? bpf_map__fd(map) : -ENOENT;
}

struct gp_map_meta *gp_bpf_meta(struct gp_bpf *bpf)
{
    return bpf->meta;
}

int gp_bpf_gone(struct gp_bpf *bpf, uint32_t tgid, uint64_t start_ns)
{
    struct gp_bpf_gone asked = {.start_ns = start_ns, .tgid = tgid};
    LIBBPF_OPTS(bpf_test_run_opts, run, .ctx_in = &asked, .ctx_size_in = sizeof asked);
    if (bpf_prog_test_run_opts(bpf_program__fd(bpf->skeleton->progs.gpuprof_gone), &run))
        return -errno;
    return (int)run.retval;
}

int gp_bpf_costs(const struct gp_bpf *bpf, struct gp_bpf_costs *out)
{
    *out = (struct gp_bpf_costs){.verified_limit = 1000000};
    struct bpf_program *program;
    bpf_object__for_each_program(program, bpf->skeleton->obj)
    {
        struct bpf_prog_info info = {0};
        uint32_t bytes = sizeof info;
        if (bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &bytes))
            return -errno;
        out->missed += info.recursion_misses;
        if (info.verified_insns > out->verified)
            out->verified = info.verified_insns;
    }
    return 0;
}
