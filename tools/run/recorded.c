/* SPDX-License-Identifier: MIT
 *
 * recorded.c: reports what watched processes recorded with GPUPROF_RECORD, one line for each. Called
 * by run.c when they have ended.  The session and the file may be forged, so both are checked like
 * any other input.
 */
#include <common/values.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/wire.h>
#include <inttypes.h>
#include <limits.h>
#include <read/collect/collect.h>
#include <read/collect/peer.h>
#include <read/collect/watch.h>
#include <read/recording/recording.h>
#include <record/format.h>
#include <record/recorder.h>
#include <run/recorded.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ==== the end of a killed recording =============================================================================== */
/* Ends the recording of a process that was killed.  The recorder is a thread of the process and died
 * with it; the ring of events and the call sites are in its session, which `run` holds. */

int gp_record_header(const struct gp_peer *session, struct gp_wire_header *header)
{
    struct gp_peer again;
    char problem[GP_PROBLEM_BYTES];
    int rc = gp_peer_fetch(session, header, sizeof(*header), 0);
    if (!rc)
        rc = gp_peer_check(&again, header, session->total_bytes, problem);
    if (rc)
        return rc;
    bool sites = header->sites_offset % 8 == 0 && header->sites_offset <= session->total_bytes &&
                 header->sites_bytes <= session->total_bytes - header->sites_offset;
    header->sites_offset = sites ? header->sites_offset : 0;
    header->oom_offset = again.oom_offset;
    return 0;
}

static int end_copy(void *arg, void *into, size_t bytes, uint64_t offset)
{
    return gp_peer_fetch(arg, into, bytes, offset);
}

/* Index of the first event of the file at that time or later; they are in order. */
static size_t end_seek(const struct gp_recording *recording, uint64_t time_ns)
{
    size_t low = 0, high = recording->event_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (recording->events[middle].time_ns < time_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool end_same(const struct gp_recording *recording, const struct gp_rec_event *one,
                     const struct gp_wire_event *other)
{
    if (one->type != (other->type & 15) || recording->threads[one->thread].tid != other->tid)
        return false;
    return one->type == GP_EVENT_MARK || one->address == other->address;
}

static bool end_in_file(void *arg, const struct gp_wire_event *event)
{
    const struct gp_recording *recording = arg;
    for (size_t i = end_seek(recording, event->time_ns);
         i < recording->event_count && recording->events[i].time_ns == event->time_ns; i++)
        if (end_same(recording, &recording->events[i], event))
            return true;
    return false;
}

static int end_write(int fd, const struct gp_watched *watched, struct gp_recording *recording,
                     struct gp_recorder_stats *stats)
{
    struct gp_recorder *recorder;
    struct gp_recorder_setup setup = {.copy = end_copy,
                                      .copy_arg = (void *)(uintptr_t)&watched->session,
                                      .proc = "/proc/0", /* the process is gone */
                                      .from_start = true,
                                      .in_file = end_in_file,
                                      .file_events = recording->event_count,
                                      .arg = recording};
    int rc = gp_record_header(&watched->session, &setup.header);
    if (rc) {
        close(fd);
        return rc;
    }
    rc = gp_recorder_new(&recorder, fd, &setup);
    return rc ? rc : gp_recorder_end(recorder, GP_END_PROCESS, stats);
}

bool gp_recorded_end(const char *path, const struct gp_watched *watched, uint64_t *events, uint64_t *lost)
{
    struct gp_recording *recording = NULL;
    struct gp_recorder_stats stats = {0};
    char why[256], opened[32];
    struct stat there;
    /* A process that lives on has its recorder, which holds a lock on the file (gp_file_resume), where
     * the file system has locks. */
    if (kill(watched->process.pid, 0) == 0 || errno != ESRCH)
        return false;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return false;
    /* The file that was opened, whatever has its name by now; from a pipe the reader would wait. */
    snprintf(opened, sizeof(opened), "/proc/self/fd/%d", fd);
    if (fstat(fd, &there) != 0 || !S_ISREG(there.st_mode) ||
        gp_recording_open(&recording, opened, why, sizeof(why), NULL, NULL) != 0 || recording->complete ||
        !recording->from_start || recording->from_torch || recording->from_rmm) {
        gp_recording_free(recording);
        close(fd);
        return false;
    }
    int rc = end_write(fd, watched, recording, &stats);
    gp_recording_free(recording);
    if (rc)
        return false;
    *events = stats.recorded;
    *lost = stats.lost;
    return true;
}

/* ==== what was recorded =========================================================================================== */

int64_t gp_recorded_head(const char *path, struct gp_format_head *head)
{
    struct stat status;
    int64_t bytes = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
    if (fd < 0)
        return -1;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && read(fd, head, sizeof(*head)) == (ssize_t)sizeof(*head) &&
        memcmp(head->magic, GP_RECORD_MAGIC, sizeof(head->magic)) == 0)
        bytes = (int64_t)status.st_size;
    close(fd);
    return bytes;
}

/* Size of the file in bytes if the session with this id wrote it; else -1. */
static int64_t recorded_bytes(const char *path, const uint8_t id[16])
{
    struct gp_format_head head;
    int64_t bytes = gp_recorded_head(path, &head);
    return bytes >= 0 && memcmp(head.session_id, id, sizeof(head.session_id)) == 0 ? bytes : -1;
}

/* Its name depends on the process's environment and on what was there: it begins and ends as the given one
 * does.  The file's size; -1: there is none. */
static int64_t recorded_search(char path[PATH_MAX], const char *pattern, uint32_t pid, const uint8_t id[16])
{
    const struct gp_rank none = {-1, -1, -1};
    char name[PATH_MAX];
    if (gp_record_name(name, sizeof(name), pattern, pid, &none, false) != 0)
        return -1;
    memcpy(path, name, sizeof(name));
    int64_t bytes = recorded_bytes(path, id);
    const char *base = strrchr(name, '/');
    size_t folder = base ? (size_t)(base + 1 - name) : 0, stem = gp_record_stem(name);
    if (bytes >= 0 || stem < folder)
        return bytes;
    char where[PATH_MAX];
    snprintf(where, sizeof(where), "%.*s", (int)folder, name);
    const char *end = name + stem;
    DIR *entries = opendir(folder ? where : ".");
    for (const struct dirent *entry; bytes < 0 && entries && (entry = readdir(entries));) {
        size_t length = strlen(entry->d_name);
        if (length <= stem - folder + strlen(end) || strncmp(entry->d_name, name + folder, stem - folder) != 0 ||
            entry->d_name[stem - folder] != '.' || strcmp(entry->d_name + length - strlen(end), end) != 0 ||
            snprintf(path, PATH_MAX, "%.*s%s", (int)folder, name, entry->d_name) >= PATH_MAX)
            continue;
        bytes = recorded_bytes(path, id);
    }
    if (entries)
        closedir(entries);
    return bytes;
}

/* Finds the file of the session, and keeps its name: it may get another one at the end. */
static int64_t recorded_find(char path[PATH_MAX], struct gp_watched *watched, const char *pattern)
{
    const struct gp_peer *session = &watched->session;
    if (watched->recording) {
        snprintf(path, PATH_MAX, "%s", watched->recording);
        return recorded_bytes(path, session->id);
    }
    int64_t bytes = recorded_search(path, pattern, session->pid, session->id);
    if (bytes >= 0)
        watched->recording = strdup(path);
    return bytes;
}

/* Prints the next command, quoted for a shell. */
static void recorded_next(FILE *out, const char *path)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_";
    bool quote = strspn(path, plain) != strlen(path) || path[0] == '-';
    fputs(": gpuprof report ", out);
    for (const char *at = path; quote && *at; at++) {
        if (at == path)
            fputs(path[0] == '-' ? "./'" : "'", out);
        fputs(*at == '\'' ? "'\\''" : (char[]){*at, '\0'}, out);
    }
    fprintf(out, "%s\n", quote ? "'" : path);
}

static void recorded_numbers(FILE *out, const char *path, int64_t bytes, uint64_t events, uint64_t lost)
{
    char size[GP_SIZE_TEXT];
    fprintf(out, "%" PRIu64 " events recorded in %s (%s), ", events, gp_recorded_short(path),
            gp_size_text(size, bytes));
    if (lost)
        fprintf(out, "%" PRIu64 " lost", lost);
    else
        fputs("none lost", out);
}

static const char recorded_killed[] = ", except in the last second: the process ended without its exit handlers";

static void recorded_process(FILE *out, struct gp_watched *watched, const char *pattern)
{
    const struct gp_process *process = &watched->process;
    const struct gp_peer *session = &watched->session;
    char path[PATH_MAX] = "";
    int64_t bytes = recorded_find(path, watched, pattern);
    fprintf(out, "gpuprof: run: pid %d: ", (int)process->pid);
    if (bytes < 0) { /* the recorder was refused, the file is a pipe, or it was removed */
        fprintf(out, "%s", process->recording.state == GP_RECORD_FAILED ? "nothing was recorded" : "recorded");
        fprintf(out, ": %" PRIu64 " events written, %" PRIu64 " lost%s%s\n", process->recording.events,
                process->recording.lost, process->recording.error ? ": " : "",
                process->recording.error ? strerror(process->recording.error) : "");
        return;
    }
    uint64_t events = process->recording.events, lost = process->recording.lost;
    bool killed = process->recording.state == GP_RECORD_ON;
    bool ended = process->recording.ended || (killed && gp_recorded_end(path, watched, &events, &lost));
    if (ended)
        bytes = recorded_bytes(path, session->id);
    recorded_numbers(out, path, bytes, events, lost);
    if (process->recording.error == ETIMEDOUT)
        fputs(", and the end is missing: the disk was too slow for the second that an exit waits", out);
    else if (process->recording.error)
        fprintf(out, " because the file could not be written: %s", strerror(process->recording.error));
    else if (ended)
        fputs(", although the process ended without its exit handlers", out);
    else if (killed)
        fputs(recorded_killed, out);
    recorded_next(out, gp_recorded_short(path));
}

static void recorded_unseen(FILE *out, const struct gp_unseen_file *file)
{
    struct gp_recording *recording = NULL;
    char why[256] = "";
    fprintf(out, "gpuprof: run: pid %u: ", file->pid);
    int rc = gp_recording_open(&recording, file->path, why, sizeof(why), NULL, NULL);
    if (rc) {
        fprintf(out, "%s: %s\n", gp_recorded_short(file->path), why[0] ? why : strerror(-rc));
        return;
    }
    recorded_numbers(out, file->path, file->bytes, recording->recorded, recording->dropped);
    if (!recording->complete)
        fputs(file->is_busy ? " so far: the process still runs" : recorded_killed, out);
    recorded_next(out, gp_recorded_short(file->path));
    gp_recording_free(recording);
}

void gp_recorded_finish(const struct gp_watch *watch, const char *pattern)
{
    char path[PATH_MAX] = "";
    for (int i = 0; i < watch->count; i++) {
        struct gp_watched *watched = watch->watched[i];
        uint64_t events, lost;
        if (watched->process.recording.state != GP_RECORD_ON || recorded_find(path, watched, pattern) < 0 ||
            !gp_recorded_end(path, watched, &events, &lost))
            continue;
        watched->process.recording.state = GP_RECORD_DONE;
        watched->process.recording.events = events;
        watched->process.recording.lost = lost;
        watched->process.recording.ended = true;
    }
}

void gp_recorded_replace(const char *command, struct gp_watch *watch, const char *pattern, struct gp_unseen *unseen)
{
    char path[PATH_MAX];
    for (int i = 0; i < watch->count; i++) {
        struct gp_watched *watched = watch->watched[i];
        if (gp_recorded_path(watched, pattern, path))
            gp_recorded_part_end(command, &watched->recording, watched->process.recording.state == GP_RECORD_DONE);
    }
    for (int i = 0; i < unseen->count; i++) {
        struct gp_recording *recording = NULL;
        char why[256];
        bool complete = !unseen->files[i].is_busy &&
                        gp_recording_open(&recording, unseen->files[i].path, why, sizeof(why), NULL, NULL) == 0;
        gp_recorded_part_end(command, &unseen->files[i].path, complete && recording->complete);
        gp_recording_free(recording);
    }
}

bool gp_recorded_path(struct gp_watched *watched, const char *pattern, char path[PATH_MAX])
{
    return watched->process.recording.state != GP_RECORD_OFF && recorded_find(path, watched, pattern) >= 0;
}

void gp_recorded_print(FILE *out, const struct gp_watch *watch, const char *pattern, const struct gp_unseen *unseen)
{
    int count = unseen->count;
    for (int i = 0; i < watch->count; i++) {
        if (watch->watched[i]->process.recording.state == GP_RECORD_OFF)
            continue;
        recorded_process(out, watch->watched[i], pattern);
        count++;
    }
    for (int i = 0; i < unseen->count; i++)
        recorded_unseen(out, &unseen->files[i]);
    if (unseen->left_out)
        fprintf(out, "gpuprof: run: %d recordings more, of short processes\n", unseen->left_out);
    if (!count)
        fprintf(out, "gpuprof: run: nothing was recorded: no profiled process was seen: did the program initialise "
                     "CUDA?\n");
}
