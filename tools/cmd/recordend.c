/* SPDX-License-Identifier: MIT
 * recordend.c: ends the recording of a process that was killed.  The recorder is a thread of the
 * process and died with it; the ring of events and the call sites are in its session, which `run`
 * holds.  Called by recorded.c.
 */
#include <cmd/cmd.h>
#include <read/collect/peer.h>
#include <read/recording/recording.h>
#include <record/recorder.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
