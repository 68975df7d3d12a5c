/* SPDX-License-Identifier: MIT
 * unseen.c: see unseen.h. */
#include <cmd/unseen.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <read/common/hash.h>
#include <record/recorder.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static bool unseen_watched(const struct gp_watch *watch, const struct gp_format_head *head)
{
    for (int i = 0; i < watch->count; i++)
        if (memcmp(watch->watched[i]->session.id, head->session_id, sizeof(head->session_id)) == 0)
            return true;
    return false;
}

/* The recorder holds a lock (gp_file_open), where the file system has locks. */
static bool unseen_busy(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
    bool busy = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    return busy;
}

static void unseen_add(struct gp_unseen *out, const char *path, const struct gp_format_head *head, int64_t bytes)
{
    char *copy = out->count < GP_UNSEEN_MOST ? strdup(path) : NULL;
    struct gp_unseen_file *files = copy ? reallocarray(out->files, (size_t)out->count + 1, sizeof(*files)) : NULL;
    if (!files) {
        free(copy);
        out->left_out++;
        return;
    }
    out->files = files;
    out->files[out->count++] = (struct gp_unseen_file){copy, head->pid, head->begin_unix_ns, bytes, unseen_busy(path)};
}

static int unseen_earlier(const void *a, const void *b)
{
    const struct gp_unseen_file *one = a, *other = b;
    return GP_ORDER(one->begin_unix_ns, other->begin_unix_ns);
}

/* Ranks, pids and numbers of a name stand between its beginning and its end (record/recorder.h). The pattern of a `run` is
 * absolute. */
void gp_unseen_find(struct gp_unseen *out, const struct gp_watch *watch, const char *pattern, uint64_t run_unix_ns)
{
    const char *slash = strrchr(pattern, '/'), *base = slash ? slash + 1 : pattern;
    const struct gp_rank none = {-1, -1, -1};
    char folder[PATH_MAX], path[PATH_MAX];
    size_t stem = gp_record_stem(base), begin = strcspn(base, "%"), end = strlen(base) - stem;
    if (!run_unix_ns || snprintf(path, sizeof(path), "%.*s.", (int)(base - pattern), pattern) >= PATH_MAX ||
        gp_record_name(folder, sizeof(folder), path, 0, &none, false) != 0)
        return;
    folder[strlen(folder) - 1] = '\0';
    begin = begin < stem ? begin : stem;
    DIR *entries = opendir(folder);
    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        struct gp_format_head head;
        size_t length = strlen(entry->d_name);
        if (length < begin + end || strncmp(entry->d_name, base, begin) != 0 ||
            strcmp(entry->d_name + length - end, base + stem) != 0 ||
            snprintf(path, sizeof(path), "%s%s", folder, entry->d_name) >= PATH_MAX)
            continue;
        int64_t bytes = gp_recorded_head(path, &head);
        if (bytes >= 0 && head.run_unix_ns == run_unix_ns && !unseen_watched(watch, &head))
            unseen_add(out, path, &head, bytes);
    }
    if (entries)
        closedir(entries);
    if (out->count)
        qsort(out->files, (size_t)out->count, sizeof(out->files[0]), unseen_earlier);
}

void gp_unseen_free(struct gp_unseen *unseen)
{
    for (int i = 0; i < unseen->count; i++)
        free(unseen->files[i].path);
    free(unseen->files);
    *unseen = (struct gp_unseen){0};
}
