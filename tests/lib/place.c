/* SPDX-License-Identifier: MIT
 *
 * place.c: see place.h.  It kills only processes in cgroups that it made.
 */
#include "lib/place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <gpuprof/maps.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/find/library.h"
#include "lib/keeper.h"
#include "lib/mounts.h"
#include "lib/paths.h"

#define PLACE_BPFFS   "/sys/fs/bpf"
#define PLACE_V1      "/sys/fs/cgroup/memory"
#define PLACE_EXEC_FD 210

/* ---- the keeper -------------------------------------------------------------------------------------------------- */

static void place_kill_group(const char *path)
{
    char name[320], line[32];
    snprintf(name, sizeof(name), "%s/cgroup.procs", path);
    FILE *procs = fopen(name, "re");
    while (procs && fgets(line, sizeof(line), procs)) {
        pid_t pid = atoi(line);
        int pidfd = pid > 1 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
        if (pidfd >= 0) {
            syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
            close(pidfd);
        }
    }
    if (procs)
        fclose(procs);
}

/* Removes a folder of files and of folders of files: a killed agent leaves its pins so. */
static void place_clear_folder(const char *path, bool want_below)
{
    char name[512];
    DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        if (unlink(name) != 0 && errno != ENOENT && want_below)
            place_clear_folder(name, false);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

/* Removes the cgroups of this place, which it finds by their names. */
static bool place_clear_groups(const char *at, pid_t pid)
{
    char pattern[192];
    glob_t found;
    bool is_clear = true;
    if (!at[0])
        return true;
    snprintf(pattern, sizeof(pattern), "%s/gpuprof-test-%d-*", at, (int)pid);
    if (glob(pattern, GLOB_ONLYDIR, NULL, &found) != 0)
        return true;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        /* A killed process stays in its cgroup for a moment. */
        for (int tries = 0; rmdir(found.gl_pathv[i]) != 0 && errno == EBUSY && tries < 500; tries++) {
            place_kill_group(found.gl_pathv[i]);
            usleep(10000);
        }
        is_clear = is_clear && access(found.gl_pathv[i], F_OK) != 0;
    }
    globfree(&found);
    return is_clear;
}

static void place_keep(const struct place *place, pid_t pid, int fd)
{
    signal(SIGPIPE, SIG_IGN);
    keeper_outlive(fd);
    bool is_clear = place_clear_groups(place->group_at[0], pid) & place_clear_groups(place->group_at[1], pid);
    place_clear_folder(place->pins, true);
    place_clear_folder(place->dir, true);
    _exit(!is_clear ? 1 : access(place->pins, F_OK) == 0 ? 2 : access(place->dir, F_OK) == 0 ? 3 : 0);
}

/* ---- the place --------------------------------------------------------------------------------------------------- */

/* Changes the build id: an agent on this machine that has armed the original would recognise the copy by it. */
static bool place_make_unknown(const char *path)
{
    struct gp_library_id id;
    struct stat about;
    pid_t pid = getpid();
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char *at = MAP_FAILED, *note = NULL;
    if (fd >= 0 && fstat(fd, &about) == 0 && gp_candidate_id_read(fd, &id) == 0)
        at = mmap(NULL, (size_t)about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED)
        note = memmem(at, (size_t)about.st_size, id.id, id.bytes);
    if (note)
        memcpy(note, &pid, sizeof(pid));
    if (at != MAP_FAILED)
        munmap(at, (size_t)about.st_size);
    if (fd >= 0)
        close(fd);
    return note != NULL;
}

const char *place_copy(const struct place *place, const char *file, const char *name)
{
    static char path[160];
    struct stat about;
    snprintf(path, sizeof(path), "%s/%s", place->dir, name);
    int from = open(file, O_RDONLY | O_CLOEXEC), to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    off_t done = 0;
    bool is_whole = from >= 0 && to >= 0 && fstat(from, &about) == 0;
    while (is_whole && done < about.st_size)
        is_whole = sendfile(to, from, &done, (size_t)(about.st_size - done)) > 0;
    if (from >= 0)
        close(from);
    if (to >= 0) {
        fchmod(to, 0755);
        close(to);
    }
    return is_whole && place_make_unknown(path) ? path : NULL;
}

static bool place_has_bpffs(void)
{
    struct statfs about;
    return statfs(PLACE_BPFFS, &about) == 0 && about.f_type == (typeof(about.f_type))BPF_FS_MAGIC;
}

/* A bpffs that only the test and its children see.  In a chroot no mount can be made private; then the machine's is
 * used, where there is one. */
static int place_mount(char *why, size_t why_bytes)
{
    bool is_private = unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    if (is_private ? mount("bpf", PLACE_BPFFS, "bpf", 0, "mode=0755") == 0 : place_has_bpffs())
        return 0;
    snprintf(why, why_bytes, "no bpffs at " PLACE_BPFFS ", and none can be mounted: %s", strerror(errno));
    return -ENOTSUP;
}

int place_unmount(void)
{
    while (place_has_bpffs())
        if (umount2(PLACE_BPFFS, MNT_DETACH) != 0)
            return -errno;
    return 0;
}

int place_make(struct place *place, char *why, size_t why_bytes)
{
    struct statfs about;
    int ends[2], error;
    *place = (struct place){.keeper_fd = -1, .agent_group = -1};
    if (geteuid() != 0) {
        snprintf(why, why_bytes, "not root");
        return -EPERM;
    }
    error = place_mount(why, why_bytes);
    if (error)
        return error;
    if (!mounts_find("cgroup2", NULL, place->group_at[0], sizeof(place->group_at[0]))) {
        snprintf(why, why_bytes, "no cgroup v2 hierarchy is mounted");
        return -ENOTSUP;
    }
    if (statfs(PLACE_V1, &about) == 0 && about.f_type == CGROUP_SUPER_MAGIC)
        snprintf(place->group_at[1], sizeof(place->group_at[1]), PLACE_V1);
    pid_t pid = getpid();
    snprintf(place->dir, sizeof(place->dir), "/tmp/gpuprof-test-agent-%d", (int)pid);
    snprintf(place->pins, sizeof(place->pins), PLACE_BPFFS "/gpuprof-test-%d", (int)pid);
    if (mkdir(place->dir, 0755) != 0 || chmod(place->dir, 0755) != 0 || pipe2(ends, O_CLOEXEC) != 0) {
        snprintf(why, why_bytes, "%s: %s", place->dir, strerror(errno));
        return -EIO;
    }
    place->keeper = fork();
    if (place->keeper == 0)
        place_keep(place, pid, ends[0]);
    close(ends[0]);
    place->keeper_fd = ends[1];
    const char *copy = place_copy(place, path_library(), "library.so");
    if (!copy) {
        snprintf(why, why_bytes, "cannot copy %s: %s", path_library(), strerror(errno));
        return -EIO;
    }
    snprintf(place->library, sizeof(place->library), "%s", copy);
    return place->keeper > 0 ? 0 : -EIO;
}

int place_free(struct place *place, char *why, size_t why_bytes)
{
    static const char *const left[] = {"the keeper was killed", "a cgroup", "pins", "the folder"};
    int status = 0;
    if (place->keeper <= 0)
        return 0;
    close(place->keeper_fd);
    while (waitpid(place->keeper, &status, 0) < 0 && errno == EINTR) {
    }
    place->keeper = 0;
    if (status == 0)
        return 0;
    unsigned which = WIFEXITED(status) ? (unsigned)WEXITSTATUS(status) : 0;
    snprintf(why, why_bytes, "left behind: %s", left[which < 4 ? which : 0]);
    return -EBUSY;
}

int place_group(struct place *place, bool want_v1)
{
    struct place_group group = {.is_v1 = want_v1};
    struct stat about;
    if (place->group_count == PLACE_GROUPS)
        return -ENOSPC;
    if (!place->group_at[want_v1][0])
        return -ENOENT;
    snprintf(group.path, sizeof(group.path), "%s/gpuprof-test-%d-%d", place->group_at[want_v1], (int)getpid(),
             place->group_count);
    if (mkdir(group.path, 0755) != 0 || stat(group.path, &about) != 0)
        return -errno;
    group.id = about.st_ino;
#ifdef GP_MAP_CGROUP_V1
    group.id |= want_v1 ? GP_MAP_CGROUP_V1 : 0;
#endif
    place->groups[place->group_count] = group;
    return place->group_count++;
}

int place_group_remove(struct place *place, int group)
{
    /* The last process in it may still be exiting. */
    for (int tries = 0; rmdir(place->groups[group].path) != 0; tries++) {
        if (errno != EBUSY || tries == 500)
            return -errno;
        usleep(10000);
    }
    if (group == place->group_count - 1)
        place->group_count--;
    return 0;
}

int place_enter(const struct place_group *group)
{
    char path[192];
    snprintf(path, sizeof(path), "%s/cgroup.procs", group->path);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int error = fd >= 0 && write(fd, "0", 1) == 1 ? 0 : -errno;
    if (fd >= 0)
        close(fd);
    return error;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

struct place_program {
    const struct place *place;
    const struct kid_options *options;
};

static void place_exec(void *arg, int exec_fd)
{
    static const char *const ours[] = {"GPUPROF_SIM",       "GPUPROF_SOURCE", "GPUPROF_RECORD",       "GPUPROF_STACKS",
                                       "GPUPROF_ALLOCATOR", "LD_PRELOAD",     "CUDA_INJECTION64_PATH"};
    const struct place_program *program = arg;
    const struct kid_options *options = program->options;
    const char *library = options->library ? options->library : program->place->library;
    char number[16];
    if (place_enter(&program->place->groups[options->group]) != 0)
        _exit(125);
    dup2(exec_fd, PLACE_EXEC_FD);
    syscall(SYS_close_range, 3u, PLACE_EXEC_FD - 1u, 0);
    syscall(SYS_close_range, PLACE_EXEC_FD + 1u, ~0u, 0);
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        unsetenv(ours[i]);
    setenv("LD_LIBRARY_PATH", path_sim(), 1);
    if (library[0])
        setenv("CUDA_INJECTION64_PATH", library, 1);
    if (options->sim)
        setenv("GPUPROF_SIM", options->sim, 1);
    snprintf(number, sizeof(number), "%d", PLACE_EXEC_FD);
    setenv("GPUPROF_TEST_EXEC", number, 1);
    execl(options->file, strrchr(options->file, '/') + 1, (char *)NULL);
}

int kid_start(struct kid *kid, const struct place *place, const struct kid_options *options)
{
    int error = kid_begin(kid, place_exec, &(struct place_program){place, options});
    kid->group = options->group;
    return error;
}
