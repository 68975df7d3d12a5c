/* SPDX-License-Identifier: MIT
 *
 * folder.c: the folder of a dry run, with a folder for each run of the program; see dryrun.h and
 * job.h.
 */
#include <common/messages.h>
#include <dirent.h>
#include <dryrun/dryrun.h>
#include <dryrun/job.h>
#include <errno.h>
#include <fcntl.h>
#include <record/recorder.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int gp_dryrun_begin(struct gp_dryrun_job *job, const char *beside)
{
    const char *temporary = getenv("TMPDIR"), *slash = beside ? strrchr(beside, '/') : NULL;
    char where[3800], spec[256];
    if (beside)
        snprintf(where, sizeof(where), "%.*s", slash ? (int)(slash - beside + 1) : 2, slash ? beside : "./");
    else
        snprintf(where, sizeof(where), "%s/", temporary && temporary[0] ? temporary : "/tmp");
    char *whole = realpath(where, NULL); /* the program may change its directory */
    int n = snprintf(job->folder, sizeof(job->folder), "%s/.gpuprof-dryrun-XXXXXX", whole ? whole : where);
    free(whole);
    snprintf(spec, sizeof(spec), "contents=none");
    job->launch.sim = spec;
    int rc = gp_launch_prepare(&job->launch);
    job->launch.sim = "";
    if (rc || (n > 0 && (size_t)n < sizeof(job->folder) && mkdtemp(job->folder))) {
        if (rc)
            job->folder[0] = '\0';
        return rc;
    }
    gp_error("dryrun", "%s: cannot make a folder for the recordings: %s", where, strerror(errno));
    job->folder[0] = '\0';
    return GP_EXIT_FAILED;
}

void gp_dryrun_folder_remove(const char *folder)
{
    char path[8192];
    DIR *entries = opendir(folder);
    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        unlink(path);
    }
    if (entries)
        closedir(entries);
    rmdir(folder);
}

void gp_dryrun_folder(const struct gp_dryrun_job *job, unsigned number, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/%u", job->folder, number);
}

void gp_dryrun_end(struct gp_dryrun_job *job)
{
    char path[4200];
    for (unsigned i = 0; job->folder[0] && i < job->runs; i++) {
        gp_dryrun_folder(job, i, path, sizeof(path));
        gp_dryrun_folder_remove(path);
    }
    if (job->folder[0])
        gp_dryrun_folder_remove(job->folder);
    gp_launch_sim_end(&job->launch);
}

static int folder_compare(const void *one, const void *other)
{
    return strcmp(*(char *const *)one, *(char *const *)other);
}

char **gp_dryrun_files(const struct gp_dryrun_job *job, unsigned number)
{
    char folder[4200], path[8192];
    size_t count = 0, room = 16;
    char **files = calloc(room + 1, sizeof(*files));
    gp_dryrun_folder(job, number, folder, sizeof(folder));
    DIR *entries = files ? opendir(folder) : NULL;
    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        if (gp_record_stem(entry->d_name) == strlen(entry->d_name))
            continue;
        if (count == room) {
            char **grown = realloc(files, (room * 2 + 1) * sizeof(*files));
            if (!grown)
                break;
            files = grown;
            memset(files + room, 0, (room + 1) * sizeof(*files));
            room *= 2;
        }
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        files[count] = strdup(path);
        count += files[count] != NULL;
    }
    if (entries)
        closedir(entries);
    if (files)
        qsort(files, count, sizeof(*files), folder_compare);
    return files;
}

bool gp_dryrun_text(const char *path, size_t most, char **text)
{
    size_t got = 0;
    ssize_t n = 0;
    *text = malloc(most + 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    while (*text && fd >= 0 && got < most && (n = read(fd, *text + got, most - got)) > 0)
        got += (size_t)n;
    if (fd >= 0)
        close(fd);
    if (*text)
        (*text)[got] = '\0';
    return *text;
}
