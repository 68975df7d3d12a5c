/* SPDX-License-Identifier: MIT
 *
 * procfs.c: what the kernel says about a process; see procfs.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_PATH */
#endif
#include <base/text.h>
#include <base/vma.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/kcmp.h>
#include <pwd.h>
#include <read/collect/collect.h>
#include <read/collect/procfs.h>
#include <read/common/foreign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ==== identity ==================================================================================================== */

ssize_t gp_proc_read(int dir, const char *name, char *text, size_t text_bytes)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    size_t have = 0;
    ssize_t n = 0;
    while (have < text_bytes - 1) {
        n = read(fd, text + have, text_bytes - 1 - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    int rc = n < 0 ? -errno : 0;
    close(fd);
    text[have] = '\0';
    return rc ? rc : (ssize_t)have;
}

char *gp_proc_whole(int dir, const char *name, size_t most, size_t *bytes)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    size_t room = 65536, used = 0;
    char *text = fd < 0 ? NULL : malloc(room);
    for (ssize_t got = 1; text && got > 0 && used<most; used += got> 0 ? (size_t)got : 0) {
        if (room - used < 4096) {
            char *more = realloc(text, room * 2);
            if (!more)
                break;
            text = more;
            room *= 2;
        }
        got = read(fd, text + used, room - used - 1);
    }
    if (fd >= 0)
        close(fd);
    if (text)
        text[used] = '\0';
    *bytes = used;
    return text;
}

const char *gp_proc_variable(const char *text, size_t bytes, const char *name)
{
    size_t length = strlen(name);
    for (size_t at = 0; text && at < bytes; at += strlen(text + at) + 1)
        if (strncmp(text + at, name, length) == 0 && text[at + length] == '=')
            return text + at + length + 1;
    return NULL;
}

/* Reads fields 22 (starttime), 4 (ppid) and 3 (state) of stat. The name in field 2 may contain
 * spaces and brackets, so fields are counted from the last ')'. */
int gp_proc_stat(int dir, struct gp_proc *proc)
{
    char text[1024];
    ssize_t n = gp_proc_read(dir, "stat", text, sizeof(text));
    if (n < 0)
        return (int)n;
    char *at = strrchr(text, ')');
    char state;
    int ppid;
    unsigned long long start;
    if (!at || sscanf(at + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &state,
                      &ppid, &start) != 3)
        return -EIO;
    proc->zombie = state == 'Z' || state == 'X';
    proc->ppid = (pid_t)ppid;
    proc->start_time = start;
    return 0;
}

/* The recorder's thread (inject/recordthread.c) has a table of descriptors of its own, without the session. */
static bool proc_has_own_files(int dir, pid_t thread)
{
    char path[48], comm[64];
    snprintf(path, sizeof(path), "task/%d/comm", (int)thread);
    return gp_proc_read(dir, path, comm, sizeof(comm)) > 0 && strcmp(comm, "gpuprof-record\n") == 0;
}

/* A thread that lives, of a process whose main thread has ended; one with the process's files if there
 * is one. 0: none lives. */
static pid_t proc_other(int process)
{
    char path[300], text[1024];
    pid_t found = 0;
    bool is_best = false;
    int fd = openat(process, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *tasks = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *entry; tasks && !is_best && (entry = readdir(tasks));) {
        snprintf(path, sizeof(path), "task/%s/stat", entry->d_name);
        const char *at =
            entry->d_name[0] != '.' && gp_proc_read(process, path, text, sizeof(text)) > 0 ? strrchr(text, ')') : NULL;
        if (!at || at[1] != ' ' || at[2] == 'Z' || at[2] == 'X')
            continue;
        found = (pid_t)atoi(entry->d_name);
        is_best = !proc_has_own_files(process, found);
    }
    if (tasks)
        closedir(tasks);
    else if (fd >= 0)
        close(fd);
    return found;
}

pid_t gp_proc_thread(pid_t pid)
{
    char path[32];
    struct gp_proc proc = {0};
    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    pid_t other = dir >= 0 && gp_proc_stat(dir, &proc) == 0 && proc.zombie ? proc_other(dir) : 0;
    if (dir >= 0)
        close(dir);
    return other ? other : pid;
}

const char *gp_proc_folder(pid_t pid, char folder[GP_PROC_FOLDER])
{
    snprintf(folder, GP_PROC_FOLDER, "/proc/%d", (int)gp_proc_thread(pid));
    return folder;
}

/* Whether a thread of the process cannot be interrupted, as in vfork. */
static bool proc_is_waiting(int dir)
{
    char text[1024], path[300];
    bool is_waiting = false;
    int fd = openat(dir, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *tasks = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *entry; tasks && !is_waiting && (entry = readdir(tasks));) {
        snprintf(path, sizeof(path), "task/%s/stat", entry->d_name);
        const char *at =
            entry->d_name[0] != '.' && gp_proc_read(dir, path, text, sizeof(text)) > 0 ? strrchr(text, ')') : NULL;
        is_waiting = at && at[1] == ' ' && at[2] == 'D';
    }
    if (tasks)
        closedir(tasks);
    else if (fd >= 0)
        close(fd);
    return is_waiting;
}

bool gp_proc_is_borrower(pid_t pid, pid_t *parent)
{
    struct gp_proc proc, above;
    if (gp_proc_open(&proc, pid) != 0)
        return false;
    *parent = proc.ppid;
    gp_proc_close(&proc);
    if (*parent <= 0)
        return false;
    long order = syscall(SYS_kcmp, pid, *parent, KCMP_VM, 0, 0);
    if (order >= 0 || errno == ESRCH || gp_proc_open(&above, *parent) != 0)
        return order == 0;
    /* A kernel without kcmp, or no right to ask. */
    bool is_waiting = proc_is_waiting(above.process);
    gp_proc_close(&above);
    return is_waiting;
}

static int proc_status(int dir, struct gp_proc *proc)
{
    char text[4096];
    ssize_t n = gp_proc_read(dir, "status", text, sizeof(text));
    if (n < 0)
        return (int)n;
    char *at = strstr(text, "\nUid:");
    unsigned long uid;
    if (!at || sscanf(at, "\nUid: %lu", &uid) != 1)
        return -EIO;
    proc->uid = (uid_t)uid;
    proc->ns_pid = proc->pid;
    at = strstr(text, "\nNSpid:");
    if (at) { /* the last number of the line belongs to the innermost namespace */
        for (at += 7; *at && *at != '\n';) {
            char *end;
            long pid = strtol(at, &end, 10);
            if (end == at)
                break;
            proc->ns_pid = (pid_t)pid;
            at = end;
        }
    }
    return 0;
}

/* The directory to read from. 0 or -errno. */
static int proc_choose(struct gp_proc *proc)
{
    char name[32] = ".";
    pid_t other = proc->zombie ? proc_other(proc->process) : 0;
    if (proc->zombie && !other)
        return -ESRCH;
    if (other)
        snprintf(name, sizeof(name), "task/%d", (int)other);
    proc->dir = openat(proc->process, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return proc->dir < 0 ? -errno : 0;
}

int gp_proc_open(struct gp_proc *proc, pid_t pid)
{
    char path[32];
    memset(proc, 0, sizeof(*proc));
    proc->pid = pid;
    proc->dir = -1;
    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    proc->process = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (proc->process < 0)
        return errno == ENOENT || errno == ENOTDIR ? -ESRCH : -errno;
    int rc = gp_proc_stat(proc->process, proc);
    if (!rc)
        rc = proc_status(proc->process, proc);
    if (!rc)
        rc = proc_choose(proc);
    if (rc) {
        gp_proc_close(proc);
        return rc == -ENOENT ? -ESRCH : rc;
    }
    char comm[64];
    if (gp_proc_read(proc->process, "comm", comm, sizeof(comm)) < 0)
        comm[0] = '\0';
    comm[strcspn(comm, "\n")] = '\0';
    gp_text_clean(proc->comm, sizeof(proc->comm), comm, sizeof(comm));
    return 0;
}

void gp_proc_close(struct gp_proc *proc)
{
    if (proc->dir >= 0)
        close(proc->dir);
    if (proc->process >= 0)
        close(proc->process);
    proc->dir = proc->process = -1;
}

bool gp_proc_alive(const struct gp_proc *proc)
{
    struct gp_proc now = {.pid = proc->pid};
    int rc = gp_proc_stat(proc->process, &now);
    if (rc == -EMFILE || rc == -ENFILE) /* that says nothing about the process */
        return true;
    return rc == 0 && now.start_time == proc->start_time && (!now.zombie || proc_other(proc->process));
}

void gp_proc_container(const char *cgroup, char *container, size_t container_bytes)
{
    static const char digits[] = "0123456789abcdef";
    container[0] = '\0';
    /* Docker, containerd, CRI-O and podman all put the ID's 64 hex digits into the path, as a
     * directory name, or between a prefix "docker-", "cri-containerd-", "crio-", "libpod-" and
     * ".scope". */
    for (const char *at = cgroup; *at;) {
        size_t n = strspn(at, digits);
        bool begins = at == cgroup || strchr("/-:", at[-1]) != NULL;
        if (n == 64 && begins && (at[n] == '\0' || strchr("/.\n", at[n]))) {
            snprintf(container, container_bytes, "%.12s", at);
            return;
        }
        at += n ? n : 1;
    }
}

void gp_proc_user(uid_t uid, char *user, size_t user_bytes)
{
    char buffer[4096];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(uid, &entry, buffer, sizeof(buffer), &found) == 0 && found)
        gp_text_clean(user, user_bytes, entry.pw_name, strlen(entry.pw_name));
    else
        snprintf(user, user_bytes, "%u", (unsigned)uid);
}

/* Ray writes into the title of a worker what it runs: "ray::CLASS.METHOD" of an actor, "ray::FUNCTION" of a task, "ray::IDLE". */
static void proc_ray(const struct gp_proc *proc, struct gp_process *process)
{
    char *end = process->cmdline + strlen(process->cmdline);
    size_t bytes;
    while (end > process->cmdline && end[-1] == ' ') /* it blanks the rest of the old command line */
        *--end = '\0';
    if (strncmp(process->cmdline, "ray::", 5) != 0)
        return;
    gp_text_clean(process->comm, sizeof(process->comm), process->cmdline, sizeof(process->cmdline));
    char *text = gp_proc_whole(proc->dir, "environ", GP_ENVIRON_BYTES, &bytes);
    const char *job = gp_proc_variable(text, bytes, "RAY_JOB_ID");
    size_t digits = job ? strspn(job, "0123456789abcdef") : 0;
    if (digits == 8 && !job[digits] && strcmp(job, "ffffffff") != 0) /* Ray's word for no job */
        snprintf(process->ray_job, sizeof(process->ray_job), "%s", job);
    free(text);
}

void gp_proc_describe(const struct gp_proc *proc, struct gp_process *process)
{
    char text[4096];
    process->pid = proc->pid;
    process->start_time = proc->start_time;
    process->uid = proc->uid;
    process->ppid = proc->ppid;
    snprintf(process->comm, sizeof(process->comm), "%s", proc->comm);
    gp_proc_user(proc->uid, process->user, sizeof(process->user));
    ssize_t n = gp_proc_read(proc->dir, "cmdline", text, sizeof(text));
    if (n > 0) {
        for (ssize_t i = 0; i + 1 < n; i++) {
            if (text[i] == '\0')
                text[i] = ' ';
        }
        gp_text_clean(process->cmdline, sizeof(process->cmdline), text, sizeof(text));
        proc_ray(proc, process);
    }
    if (gp_proc_read(proc->dir, "cgroup", text, sizeof(text)) > 0)
        gp_proc_container(text, process->container, sizeof(process->container));
    process->cgroup_limit_count = gp_proc_cgroup_limits("", process->pid, process->cgroup_limits);
}

int gp_proc_each(int (*each)(pid_t pid, void *context), void *context)
{
    DIR *proc = opendir("/proc");
    if (!proc)
        return -errno;
    struct dirent *entry;
    int rc = 0;
    while (!rc && (entry = readdir(proc))) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && *end == '\0' && pid <= INT_MAX)
            rc = each((pid_t)pid, context);
    }
    closedir(proc);
    return rc;
}

bool gp_proc_host_pids(void)
{
    /* The initial pid namespace has this inode number in every kernel since 3.8
     * (PROC_PID_INIT_INO). */
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == 0xEFFFFFFCu;
}

/* ==== what a process maps ========================================================================================= */

/* Below the process's root only the inode is compared: on layered file systems (overlay, btrfs)
 * maps and stat disagree about the device. */
static int mapped_same(int fd, const struct gp_vma *file, bool is_device_sure)
{
    struct stat status;
    if (fd < 0)
        return fd;
    if (fstat(fd, &status) == 0 && (uint64_t)status.st_ino == file->inode &&
        (!is_device_sure || (uint64_t)status.st_dev == file->device))
        return fd;
    close(fd);
    return -ENOENT;
}

int gp_proc_mapped_open(const char *proc, const struct gp_vma *file)
{
    char root[64];
    int fd = gp_foreign_mapped(proc, file->start, file->end, file->path);
    if (fd >= 0)
        return fd;
    snprintf(root, sizeof(root), "%.50s/root", proc);
    fd = mapped_same(gp_foreign_open(root, file->path), file, false);
    /* A process in a chroot of ours: maps shows paths as seen from our root. */
    return fd >= 0 ? fd : mapped_same(gp_foreign_open("", file->path), file, true);
}

int gp_proc_mapped_each(pid_t pid, gp_vma_each *each, void *context)
{
    char path[64], folder[GP_PROC_FOLDER], lines[GP_VMA_LINE];
    snprintf(path, sizeof(path), "%s/maps", gp_proc_folder(pid, folder));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int rc = gp_vma_walk(fd, lines, sizeof(lines), SIZE_MAX, each, context);
    close(fd);
    return rc;
}

/* ==== limits of its cgroup ======================================================================================== */
/* A limit of any cgroup above holds too, so the least one of the path counts; what is used and
 * guaranteed is that of the process's own cgroup. */

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

int gp_proc_cgroup_limits(const char *root, pid_t pid, struct gp_cgroup_limit out[GP_CGROUP_LIMITS])
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
