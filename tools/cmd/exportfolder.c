/* SPDX-License-Identifier: MIT
 *
 * exportfolder.c: writes the tables of many recordings (exportfolder.h): OUT/TABLE/job=JOB/rank=RANK/NAME.arrows.
 *
 * A file is written beside, with a name that no engine reads, and renamed.  Of a recording the table `job` comes last:
 * where it is, the others are complete, and as it has the time of the recording, another run leaves the recording alone
 * unless it is another one by now; of a part (--from, --to) it has another time.  So a run that was killed goes on where it
 * was.  Several processes take one recording after the other (workers.h).
 */
#include <cmd/cmd.h>
#include <cmd/exportfolder.h>
#include <cmd/rankread.h>
#include <common/messages.h>
#include <common/workers.h>
#include <convert/export/arrow.h>
#include <convert/export/out.h>

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER_NAME ".gpuprof-export" /* in a folder that is ours; a run holds its lock */
#define FOLDER_PART ".part"           /* of a file that is not complete, after a dot and its name */
#define FOLDER_PATH 4096
#define FOLDER_WORD 1024 /* of a path: the name of a job or a recording, each byte as %XX at most */

enum folder_state { FOLDER_WAITS, FOLDER_WRITTEN, FOLDER_KEPT, FOLDER_REFUSED, FOLDER_LOST, FOLDER_FAILED };

struct folder_file { /* what a worker tells of a recording */
    enum folder_state state;
    bool replaces; /* tables of an older recording with this name */
    char why[GP_RANK_WHY];
};

struct folder_found { /* a recording that was written before */
    char *name, *rank;
    bool whole;           /* else that run was killed */
    struct timespec time; /* of the recording */
};

struct folder {
    const struct gp_export_folder *o;
    int fd; /* of OUT */
    char job[FOLDER_WORD];
    struct folder_found *found; /* by name */
    size_t found_count;
    struct folder_file *files; /* of each recording */
};

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* A part of a path as Hive writes and reads it: other characters as %XX.  A name that begins with '.' or '_' is hidden
 * from engines. */
static void folder_word(char word[FOLDER_WORD], const char *text)
{
    size_t at = 0;
    for (const char *from = text; *from && at + 4 < FOLDER_WORD; from++) {
        bool plain = isalnum((unsigned char)*from) || (at && strchr("._", *from)) || strchr("-+", *from);
        at += (size_t)snprintf(word + at, FOLDER_WORD - at, plain ? "%c" : "%%%02X", (unsigned char)*from);
    }
    word[at] = '\0';
}

/* The name of a recording's file without what it ends with. */
static void folder_base(char *name, size_t bytes, const char *path)
{
    static const char *const ends[] = {".gz", ".gpuprof"};
    const char *base = strrchr(path, '/');
    snprintf(name, bytes, "%s", base && base[1] ? base + 1 : path);
    for (size_t i = 0; i < GP_COUNT(ends); i++) {
        size_t length = strlen(name), end = strlen(ends[i]);
        if (length > end && strcmp(name + length - end, ends[i]) == 0)
            name[length - end] = '\0';
    }
}

void gp_export_job_name(char *name, size_t bytes, const char *path)
{
    struct stat is;
    if (strcmp(path, "-") == 0) {
        snprintf(name, bytes, "job");
        return;
    }
    char *real = realpath(path, NULL);
    folder_base(name, bytes, real ? real : path);
    bool is_folder = stat(path, &is) == 0 && S_ISDIR(is.st_mode);
    for (char *rank = name; !is_folder && *rank && (rank = strcasestr(rank + 1, ".rank"));)
        if (isdigit((unsigned char)rank[5]))
            *rank = '\0';
    free(real);
}

struct gp_arrow_job gp_export_job(const char *job, const char *path, const struct gp_recording *recording)
{
    const char *base = strrchr(path, '/');
    struct gp_arrow_job is = {.name = job, .has_rank = recording->has_rank, .rank = recording->rank};
    is.file = base ? base + 1 : path;
    if (!is.has_rank)
        is.has_rank = gp_rank_of_name(path, &is.rank);
    return is;
}

static void folder_rank(char rank[FOLDER_WORD], const struct gp_arrow_job *job)
{
    if (job->has_rank)
        snprintf(rank, FOLDER_WORD, "rank=%d", job->rank);
    else
        snprintf(rank, FOLDER_WORD, "rank=__HIVE_DEFAULT_PARTITION__");
}

/* ---- what is there ----------------------------------------------------------------------------------------------- */

static int folder_found_order(const void *one, const void *other)
{
    const struct folder_found *a = one, *b = other;
    return strcmp(a->name, b->name);
}

static int folder_find_add(struct folder *f, int fd, const char *rank, const char *name)
{
    char path[FOLDER_PATH];
    struct stat is;
    if (name[0] == '.' || fstatat(fd, name, &is, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(is.st_mode))
        return 0;
    struct folder_found *grown = realloc(f->found, (f->found_count + 1) * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    f->found = grown;
    struct folder_found *found = &f->found[f->found_count];
    snprintf(path, sizeof(path), "job/job=%s/%s/%s", f->job, rank, name);
    bool whole = fstatat(f->fd, path, &is, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(is.st_mode);
    *found = (struct folder_found){strdup(name), strdup(rank), whole, is.st_mtim};
    f->found_count++;
    return found->name && found->rank ? 0 : -ENOMEM;
}

static DIR *folder_opendir(int fd, const char *path)
{
    int opened = openat(fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = opened >= 0 ? fdopendir(opened) : NULL;
    if (opened >= 0 && !dir)
        close(opened);
    return dir;
}

/* The files of this job, by the table that is written first. */
static int folder_find(struct folder *f)
{
    char path[FOLDER_PATH];
    int rc = 0;
    snprintf(path, sizeof(path), "%s/job=%s", gp_arrow_table_name(0), f->job);
    DIR *ranks = folder_opendir(f->fd, path);
    for (struct dirent *rank; ranks && !rc && (rank = readdir(ranks));) {
        DIR *names = strncmp(rank->d_name, "rank=", 5) == 0 ? folder_opendir(dirfd(ranks), rank->d_name) : NULL;
        for (struct dirent *name; names && !rc && (name = readdir(names));)
            rc = folder_find_add(f, dirfd(names), rank->d_name, name->d_name);
        if (names)
            closedir(names);
    }
    if (ranks)
        closedir(ranks);
    if (!rc && f->found_count)
        qsort(f->found, f->found_count, sizeof(*f->found), folder_found_order);
    return rc;
}

/* Removes what was written of a recording: the table `job`, which says that it is complete, first, and that by which it
 * is found last. */
static void folder_remove(const struct folder *f, const struct folder_found *found)
{
    char path[FOLDER_PATH];
    unsigned count = 0;
    while (gp_arrow_table_name(count))
        count++;
    for (unsigned table = count; table-- > 0;) {
        snprintf(path, sizeof(path), "%s/job=%s/%s/%s", gp_arrow_table_name(table), f->job, found->rank, found->name);
        unlinkat(f->fd, path, 0);
    }
}

/* What is there of a recording with this name; NULL: nothing. */
static const struct folder_found *folder_there(const struct folder *f, const char *name)
{
    const struct folder_found key = {.name = (char *)name};
    return f->found_count ? bsearch(&key, f->found, f->found_count, sizeof(key), folder_found_order) : NULL;
}

static bool folder_is_same(const struct folder_found *found, const struct timespec *time)
{
    return found->whole && found->time.tv_sec == time->tv_sec && found->time.tv_nsec == time->tv_nsec;
}

/* ---- one recording ----------------------------------------------------------------------------------------------- */

/* Makes the folders of a path, and leaves it ending with a slash. */
static int folder_make(int fd, char path[FOLDER_PATH], const char *table, const char *job, const char *rank)
{
    const char *const parts[] = {table, job, rank};
    size_t at = 0;
    for (size_t i = 0; i < GP_COUNT(parts); i++) {
        at += (size_t)snprintf(path + at, FOLDER_PATH - at, "%s%s", i == 1 ? "job=" : "", parts[i]);
        if (mkdirat(fd, path, 0777) != 0 && errno != EEXIST)
            return -errno;
        path[at++] = '/';
        path[at] = '\0';
    }
    return 0;
}

/* time: for the file; NULL: now. */
static int folder_table(const struct folder *f, struct gp_arrow *arrow, unsigned table, const char *rank,
                        const char *name, const struct timespec *time)
{
    static struct gp_out out;
    char path[FOLDER_PATH], part[FOLDER_PATH + FOLDER_WORD];
    int rc = folder_make(f->fd, path, gp_arrow_table_name(table), f->job, rank);
    if (rc)
        return rc;
    snprintf(part, sizeof(part), "%s.%s" FOLDER_PART, path, name);
    size_t at = strlen(path);
    snprintf(path + at, sizeof(path) - at, "%s", name);
    int fd = openat(f->fd, part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return -errno;
    gp_out_begin(&out, fd);
    rc = gp_arrow_write(arrow, table, &out);
    int end = gp_out_end(&out);
    rc = rc ? rc : end;
    if (!rc && time && futimens(fd, (struct timespec[]){*time, *time}) != 0)
        rc = -errno;
    if (close(fd) != 0 && !rc)
        rc = -errno;
    if (!rc && renameat(f->fd, part, f->fd, path) != 0)
        rc = -errno;
    if (rc)
        unlinkat(f->fd, part, 0);
    return rc;
}

static int folder_tables(const struct folder *f, const struct gp_recording *recording, const char *path,
                         const char *name, const struct timespec *time)
{
    struct gp_arrow_job job = gp_export_job(f->o->job, path, recording);
    struct gp_export export = {.recording = recording, .job = &job};
    struct gp_symbol_source source = gp_symbol_source_of(recording, "");
    struct gp_arrow *arrow = NULL;
    char rank[FOLDER_WORD];
    folder_rank(rank, &job);
    int rc = gp_symbols_new(&export.symbols, &source);
    if (!rc) {
        gp_symbols_look_below(export.symbols, f->o->symfs);
        rc = gp_arrow_new(&arrow, &export, &job);
    }
    for (unsigned table = 0; !rc && gp_arrow_table_name(table); table++)
        rc = folder_table(f, arrow, table, rank, name, gp_arrow_table_name(table + 1) ? NULL : time);
    gp_arrow_free(arrow);
    gp_symbols_free(export.symbols);
    return rc;
}

static void folder_file(const struct folder *f, uint32_t order)
{
    const char *path = f->o->files[order];
    struct folder_file *file = &f->files[order];
    struct gp_recording *recording = NULL;
    struct stat is;
    char base[FOLDER_WORD], name[FOLDER_WORD + 8];
    folder_base(base, sizeof(base), strcmp(path, "-") == 0 ? "stdin" : path);
    folder_word(name, base);
    strcat(name, ".arrows");
    long most = fpathconf(f->fd, _PC_NAME_MAX);
    if (most > 0 && strlen(name) + strlen("." FOLDER_PART) > (size_t)most) { /* the next ones may have shorter names */
        snprintf(file->why, sizeof(file->why), "its name is too long for those of its tables, where it has %zu bytes",
                 strlen(name));
        file->state = FOLDER_REFUSED;
        return;
    }
    /* Before it is read: what is added to it meanwhile makes it another one. */
    bool known = stat(path, &is) == 0 && S_ISREG(is.st_mode);
    bool whole = !f->o->part.from && !f->o->part.to; /* else the time does not tell which part is there */
    const struct folder_found *there = known ? folder_there(f, name) : NULL;
    if (there && whole && folder_is_same(there, &is.st_mtim) && !f->o->force) {
        file->state = FOLDER_KEPT;
        return;
    }
    if (there)
        folder_remove(f, there);
    file->replaces = there && there->whole;
    int rc = gp_recording_open_as(&recording, path, f->o->listed, file->why, sizeof(file->why), NULL, NULL);
    if (rc) {
        if (!file->why[0])
            snprintf(file->why, sizeof(file->why), "%s", strerror(-rc));
        file->state = FOLDER_REFUSED;
        return;
    }
    if (gp_load_cut("export", recording, &f->o->part) != GP_EXIT_OK) {
        snprintf(file->why, sizeof(file->why), "it has no such part");
        file->state = FOLDER_REFUSED;
    } else {
        gp_load_warn("export", path, recording);
        rc = folder_tables(f, recording, path, name, known && whole ? &is.st_mtim : NULL);
        if (rc)
            snprintf(file->why, sizeof(file->why), "%s", strerror(-rc));
        file->state = rc ? FOLDER_FAILED : FOLDER_WRITTEN;
    }
    gp_recording_free(recording);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* After one that cannot be written, the next ones could not be either. */
static bool folder_work(void *arg, uint32_t order)
{
    const struct folder *f = arg;
    folder_file(f, order);
    return f->files[order].state != FOLDER_FAILED;
}

static bool folder_send(void *arg, uint32_t order, int fd)
{
    const struct folder *f = arg;
    return gp_workers_write(fd, &f->files[order], sizeof(f->files[order]));
}

static bool folder_take(void *arg, uint32_t order, int fd)
{
    const struct folder *f = arg;
    return gp_workers_read(fd, &f->files[order], sizeof(f->files[order]));
}

static void folder_lost(void *arg, uint32_t order, const char *why)
{
    const struct folder *f = arg;
    f->files[order] = (struct folder_file){.state = FOLDER_LOST};
    snprintf(f->files[order].why, sizeof(f->files[order].why), "%s", why);
}

static int folder_say(const struct folder *f)
{
    uint32_t written = 0, replaced = 0, kept = 0, left = 0, failed = 0;
    for (uint32_t i = 0; i < f->o->count; i++) {
        const struct folder_file *file = &f->files[i];
        written += file->state == FOLDER_WRITTEN;
        replaced += file->state == FOLDER_WRITTEN && file->replaces;
        kept += file->state == FOLDER_KEPT;
        left += file->state == FOLDER_REFUSED || file->state == FOLDER_LOST;
        failed += file->state == FOLDER_LOST || file->state == FOLDER_FAILED;
        if (file->state == FOLDER_REFUSED)
            gp_error("export", "%s: %s; it is left out", f->o->files[i], file->why);
        if (file->state == FOLDER_LOST)
            gp_error("export", "%s: %s; it is left out: the next 'gpuprof export' writes it", f->o->files[i],
                     file->why);
        if (file->state == FOLDER_FAILED)
            gp_error("export", "%s: %s: cannot be written: %s", f->o->folder, f->o->files[i], file->why);
    }
    fprintf(stderr, "gpuprof: export: %s: of %u recordings %u written", f->o->folder, f->o->count, written);
    if (replaced)
        fprintf(stderr, ", %u of them in place of others with these names", replaced);
    if (kept)
        fprintf(stderr, ", %u there already", kept);
    if (left)
        fprintf(stderr, ", %u left out", left);
    fprintf(stderr, "\n");
    return failed || !(written + kept) ? GP_EXIT_FAILED : GP_EXIT_OK;
}

/* Whether the folder has nothing, or was written by this command before. */
static bool folder_is_ours(int fd)
{
    struct stat is;
    bool empty = true;
    DIR *dir = fstatat(fd, FOLDER_NAME, &is, AT_SYMLINK_NOFOLLOW) != 0 ? folder_opendir(fd, ".") : NULL;
    for (struct dirent *entry; dir && empty && (entry = readdir(dir));)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    if (dir)
        closedir(dir);
    return empty;
}

/* Opens OUT, which may have to be made, and takes its lock.  GP_EXIT_OK, or an exit status after a message. */
static int folder_open(struct folder *f)
{
    const char *path = f->o->folder;
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        gp_error("export", "%s: the folder cannot be made: %s", path, strerror(errno));
        return GP_EXIT_FAILED;
    }
    f->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->fd < 0) {
        gp_error("export", "-o %s: %s: the tables of a recording are files in a folder", path, strerror(errno));
        return GP_EXIT_FAILED;
    }
    if (!f->o->force && !folder_is_ours(f->fd)) {
        gp_error("export",
                 "-o %s: this folder has files that were not written by 'gpuprof export': choose another name, or "
                 "write into it with --force",
                 path);
        return GP_EXIT_FAILED;
    }
    int lock = openat(f->fd, FOLDER_NAME, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (lock < 0) {
        gp_error("export", "%s: cannot be written into: %s", path, strerror(errno));
        return GP_EXIT_FAILED;
    }
    if (flock(lock, LOCK_EX | LOCK_NB) != 0) { /* held until the command ends */
        gp_error("export", "%s: another 'gpuprof export' writes into this folder", path);
        return GP_EXIT_FAILED;
    }
    return GP_EXIT_OK;
}

int gp_export_folder(const struct gp_export_folder *o)
{
    struct folder f = {.o = o, .fd = -1};
    folder_word(f.job, o->job);
    int rc = folder_open(&f);
    if (rc)
        return rc;
    f.files = calloc(o->count + 1ul, sizeof(*f.files));
    if (!f.files || folder_find(&f) != 0)
        rc = gp_memory_error("export");
    if (!rc) {
        gp_workers_run(&(struct gp_workers){.count = o->count,
                                            .doing = "writing",
                                            .arg = &f,
                                            .work = folder_work,
                                            .send = folder_send,
                                            .take = folder_take,
                                            .lost = folder_lost});
        rc = folder_say(&f);
    }
    for (size_t i = 0; i < f.found_count; i++) {
        free(f.found[i].name);
        free(f.found[i].rank);
    }
    free(f.found);
    free(f.files);
    return rc;
}
