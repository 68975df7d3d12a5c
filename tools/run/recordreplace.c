/* SPDX-License-Identifier: MIT
 * recordreplace.c: recordings whose names older recordings have; see recorded.h.  Called by run.c, record.c,
 * attach.c and dryrun.c.
 *
 * An older recording is lost only when a complete new one takes its place.  Until then the new one is
 * x.gpuprof.PID.part, PID being this command's.  A command that is killed leaves both.
 */
#include <common/messages.h>
#include <run/recorded.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <record/format.h>
#include <record/recorder.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The path relative to the current directory, if it lies there. */
const char *gp_recorded_short(const char *path)
{
    char here[PATH_MAX];
    size_t length = getcwd(here, sizeof(here)) ? strlen(here) : 0;
    return length > 1 && strncmp(path, here, length) == 0 && path[length] == '/' ? path + length + 1 : path;
}

/* ---- what has the name ------------------------------------------------------------------------------------------- */

enum gp_there { GP_THERE_NOTHING, GP_THERE_RECORDING, GP_THERE_BUSY, GP_THERE_OTHER, GP_THERE_DENIED };

/* A recording that a process is writing, or has just made, is busy. *when: of the last change of a recording. */
static enum gp_there there_is(const char *path, time_t *when)
{
    char magic[sizeof(GP_RECORD_MAGIC) - 1];
    struct stat status;
    enum gp_there there = GP_THERE_OTHER;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return GP_THERE_NOTHING;
    if (fd < 0) /* EACCES: the folder's or the file's: this does not tell */
        return errno == EACCES ? GP_THERE_DENIED : GP_THERE_OTHER;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        bool ours = read(fd, magic, sizeof(magic)) == (ssize_t)sizeof(magic) &&
                    memcmp(magic, GP_RECORD_MAGIC, sizeof(magic)) == 0;
        bool busy = ours && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        if (busy || status.st_size == 0)
            there = GP_THERE_BUSY;
        else if (ours)
            there = GP_THERE_RECORDING;
        *when = status.st_mtime;
    }
    close(fd);
    return there;
}

static int old_refuse(const char *command, const char *option, const char *path, time_t when)
{
    char date[32] = "";
    struct tm local;
    if (localtime_r(&when, &local))
        strftime(date, sizeof(date), " of %F %R", &local);
    gp_error(command, "%s%s: a recording%s has this name and stays: replace it with --force, or choose another name",
             option, gp_recorded_short(path), date);
    return GP_EXIT_USAGE;
}

int gp_recorded_old(const char *command, const char *option, const char *path, bool force, bool *old)
{
    time_t when = 0;
    *old = there_is(path, &when) == GP_THERE_RECORDING;
    return *old && !force ? old_refuse(command, option, path, when) : GP_EXIT_OK;
}

/* ---- what a program may write ------------------------------------------------------------------------------------ */

/* The name between `begin` bytes and the bytes of `end`: ".rank3", or with any the number of a process. */
static bool name_fits(const char *name, const char *base, size_t begin, const char *end, bool any)
{
    static const char rank[] = ".rank";
    size_t length = strlen(name), tail = strlen(end);
    if (length < begin + tail || strncmp(name, base, begin) != 0 || strcmp(name + length - tail, end) != 0)
        return false;
    size_t middle = length - begin - tail, mark = any ? 0 : sizeof(rank) - 1;
    return middle > mark && (any || strncmp(name + begin, rank, mark) == 0) &&
           strspn(name + begin + mark, "0123456789") >= middle - mark;
}

/* Whether there is an older recording of a rank, or, with %p in the pattern, of a process. */
static bool names_find(const char *pattern, char *path, time_t *when)
{
    const char *slash = strrchr(pattern, '/'), *base = slash ? slash + 1 : pattern, *process = strstr(base, "%p");
    size_t begin = process ? (size_t)(process - base) : gp_record_stem(base);
    const char *end = base + begin + (process ? 2 : 0);
    bool found = false;
    snprintf(path, PATH_MAX, "%.*s", (int)(base - pattern), pattern);
    DIR *entries = opendir(slash ? path : ".");
    for (const struct dirent *entry; !found && entries && (entry = readdir(entries));)
        found = name_fits(entry->d_name, base, begin, end, process) &&
                snprintf(path, PATH_MAX, "%.*s%s", (int)(base - pattern), pattern, entry->d_name) < PATH_MAX &&
                there_is(path, when) == GP_THERE_RECORDING;
    if (entries)
        closedir(entries);
    return found;
}

int gp_recorded_names_free(const char *command, const char *pattern, const char *first, const struct gp_rank *rank,
                           bool force, bool *old)
{
    char path[PATH_MAX];
    time_t when = 0;
    bool process = strstr(pattern, "%p");
    enum gp_there there = process ? GP_THERE_NOTHING : there_is(first, &when);
    *old = there == GP_THERE_RECORDING;
    if (there == GP_THERE_DENIED || there == GP_THERE_OTHER) {
        gp_error(command,
                 there == GP_THERE_DENIED ? "--record=%s: permission denied"
                                          : "--record=%s: exists and is not a recording: choose another name",
                 first);
        return GP_EXIT_FAILED;
    }
    if (*old && !force)
        return old_refuse(command, "--record=", first, when);
    /* The program may start ranks. A process of its own number is another file in any case. */
    if (!*old && rank->rank < 0 && (!process || force))
        *old = names_find(pattern, path, &when);
    if (!*old || force)
        return GP_EXIT_OK;
    gp_error(command,
             "--record=%s: %s is there, of a rank of an earlier run, and stays: replace it with --force, or choose "
             "another name",
             gp_recorded_short(pattern), gp_recorded_short(path));
    return GP_EXIT_USAGE;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static int part_mark(char mark[32])
{
    return snprintf(mark, 32, ".%d.part", (int)getpid());
}

int gp_recorded_part(char *out, size_t bytes, const char *path)
{
    char mark[32];
    part_mark(mark);
    return snprintf(out, bytes, "%s%s", path, mark) < (int)bytes ? 0 : -ENAMETOOLONG;
}

/* x.gpuprof.77.part.rank3 is x.rank3.gpuprof: gp_record_name added to the name with the mark. */
static bool part_name(char to[PATH_MAX], const char *from)
{
    char mark[32];
    int length = part_mark(mark);
    const char *slash = strrchr(from, '/'), *base = slash ? slash + 1 : from, *at = NULL;
    for (const char *next = base; (next = strstr(next, mark)); next++)
        at = next;
    if (!at || at - from >= PATH_MAX)
        return false;
    char name[PATH_MAX];
    snprintf(name, sizeof(name), "%.*s", (int)(at - from), from);
    size_t stem = gp_record_stem(name);
    return snprintf(to, PATH_MAX, "%.*s%s%s", (int)stem, name, at + length, name + stem) < PATH_MAX;
}

int gp_recorded_rename(const char *from, const char *to, bool replace)
{
    time_t when;
    switch (there_is(to, &when)) {
    case GP_THERE_NOTHING:
        break;
    case GP_THERE_BUSY:
        return -EBUSY;
    case GP_THERE_RECORDING:
        if (replace)
            break;
        return -EEXIST;
    default:
        return -EEXIST;
    }
    return rename(from, to) == 0 ? 0 : -errno;
}

static const char *part_why(int error, bool complete)
{
    if (error == -EBUSY)
        return "another process is writing to it";
    if (error == -EEXIST)
        return complete ? "what has this name is not a recording"
                        : "the new one is not complete, so the older one is not replaced";
    return strerror(-error);
}

void gp_recorded_part_end(const char *command, char **path, bool complete)
{
    char to[PATH_MAX];
    if (!*path || !part_name(to, *path))
        return;
    char *name = strdup(to);
    int rc = name ? gp_recorded_rename(*path, to, complete) : -ENOMEM;
    if (rc) {
        free(name);
        gp_error(command, "%s: the new recording stays beside it, as %s: %s", gp_recorded_short(to),
                 gp_recorded_short(*path), part_why(rc, complete));
        return;
    }
    free(*path);
    *path = name;
}
