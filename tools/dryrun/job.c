/* SPDX-License-Identifier: MIT
 * job.c: Runs a program once on the simulated GPU, recorded: see dryrun.h.  Each run has a
 * folder of its own in that of the job: a recording for each process, and the notes of the libraries
 * that stand in for NVIDIA's.  What they write is checked like any other input.  Its parts: the
 * folder, progress, what the program reads, the run. */
#include <base/clock.h>
#include <base/text.h>
#include <common/messages.h>
#include <common/values.h>
#include <dirent.h>
#include <dryrun/dryrun.h>
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/wire.h>
#include <read/collect/collect.h>
#include <read/collect/watch.h>
#include <read/common/hash.h>
#include <record/recorder.h>
#include <run/recorded.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symbol/symbol.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- the folder -------------------------------------------------------------------------------------------------- */
/* The folder of a dry run, with a folder for each run of the program; see dryrun.h. */

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

/* Removes the files of a folder, and the folder. */
static void folder_remove(const char *folder)
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

/* The folder of the run `number` (from 0). */
static void dryrun_folder(const struct gp_dryrun_job *job, unsigned number, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/%u", job->folder, number);
}

void gp_dryrun_end(struct gp_dryrun_job *job)
{
    char path[4200];
    for (unsigned i = 0; job->folder[0] && i < job->runs; i++) {
        dryrun_folder(job, i, path, sizeof(path));
        folder_remove(path);
    }
    if (job->folder[0])
        folder_remove(job->folder);
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
    dryrun_folder(job, number, folder, sizeof(folder));
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

/* The first `most` bytes of a file; "" if it cannot be read; free it.  False: out of memory. */
static bool dryrun_text(const char *path, size_t most, char **text)
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

/* ---- progress ---------------------------------------------------------------------------------------------------- */
/* How far a program is that runs dry: its steps so far, from the recordings that are being written.
 * A look reads all of a recording, so the looks keep to a part of the time. */

#define GP_FOLLOW_NS     500000000ull
#define GP_FOLLOW_SAY_NS 10000000000ull
#define GP_FOLLOW_PART   10u /* the looks take that part of the time at most */
#define GP_FOLLOW_POINTS 4000u
#define GP_FOLLOW_ABOUT  256 /* peaks that differ by that part are equal */

struct job_follow { /* looks at the recordings of a run while they are written */
    const struct gp_dryrun_job *job;
    unsigned number; /* of the run */
    const char *gpu;
    uint64_t begin_ns, next_ns, say_ns;
    uint32_t steps; /* that have ended, of the process that has most */
    bool repeats;   /* the last of them need no more memory than the others */
};

/* The peaks of the later half of the steps are no higher than those of the first.  Calls of a net must also leave no
 * more behind: those of a first forward pass do, because its backward pass is to come. */
static bool follow_repeats(const struct gp_recording *r, const struct gp_steps *steps, uint32_t d)
{
    struct gp_series *series = gp_series_allocated(r, d, GP_KIND_NONE, GP_FOLLOW_POINTS);
    const uint32_t half = steps->ended - steps->ended / 2;
    if (!series)
        return false;
    int64_t first = gp_series_range(series, steps->bounds_ns[0], steps->bounds_ns[half]).high;
    struct gp_series_point later = gp_series_range(series, steps->bounds_ns[half], steps->bounds_ns[steps->ended]);
    bool repeats = later.high - first <= first / GP_FOLLOW_ABOUT;
    if (steps->call == GP_STEP_NET) /* the first call may leave what stays */
        repeats &= half > 1 && later.low <= gp_series_range(series, steps->bounds_ns[1], steps->bounds_ns[half]).low;
    free(series);
    return repeats;
}

static void follow_file(struct job_follow *follow, const char *file, int64_t *peak)
{
    struct gp_recording *r = NULL;
    char why[256];
    if (gp_recording_open(&r, file, why, sizeof(why), NULL, NULL) != 0)
        return; /* it has just begun */
    struct gp_steps *steps = gp_steps_find(r);
    /* What only repeats may be a part of the first step: the layers of a pass, or what is computed again in it. */
    bool found = steps && gp_steps_are_steps(steps) && steps->ended >= 2, repeats = found;
    for (uint32_t d = 0; d < r->device_count; d++) {
        struct gp_series *series = gp_series_reserved(r, d, 1);
        if (r->devices[d].index != GP_WIRE_HOST && series && series->count && series->points[0].high > *peak)
            *peak = series->points[0].high;
        free(series);
        repeats = repeats && follow_repeats(r, steps, d);
    }
    if (found && steps->ended > follow->steps) {
        follow->steps = steps->ended;
        follow->repeats = repeats;
    }
    free(steps);
    gp_recording_free(r);
}

static void follow_say(struct job_follow *follow, uint64_t now, int64_t peak)
{
    char size[GP_SIZE_TEXT], time[GP_SIZE_TEXT];
    follow->say_ns = now + GP_FOLLOW_SAY_NS;
    fprintf(stderr, "gpuprof: dryrun: %s on %s: ", gp_seconds_text(time, (double)(now - follow->begin_ns) / 1e9),
            follow->gpu);
    if (follow->steps)
        fprintf(stderr, "%u steps, ", follow->steps);
    fprintf(stderr, "at most %s until now\n", gp_size_text(size, peak));
}

/* Looks, if it is time to, and on a terminal says how far the program is.  True: it has taken job->steps steps, and
 * the peak repeats. */
static bool follow_look(struct job_follow *follow)
{
    uint64_t now = gp_clock_ns();
    int64_t peak = 0;
    if (!follow->begin_ns) {
        follow->begin_ns = now;
        follow->next_ns = now + GP_FOLLOW_NS;
        follow->say_ns = now + GP_FOLLOW_SAY_NS;
    }
    bool say = now >= follow->say_ns && isatty(STDERR_FILENO);
    if (now < follow->next_ns || (!follow->job->steps && !say))
        return false;
    char **files = gp_dryrun_files(follow->job, follow->number);
    follow->steps = 0;
    follow->repeats = false;
    for (size_t i = 0; files && files[i]; i++) {
        follow_file(follow, files[i], &peak);
        free(files[i]);
    }
    free(files);
    uint64_t cost_ns = gp_clock_ns() - now;
    follow->next_ns = now + cost_ns + GP_FOLLOW_NS + cost_ns * GP_FOLLOW_PART;
    if (say)
        follow_say(follow, now, peak);
    return follow->job->steps && follow->steps >= follow->job->steps && follow->repeats;
}

/* ---- what the program reads -------------------------------------------------------------------------------------- */
/* The results that a program read back in a dry run, by the line of the user's that asked for them;
 * see dryrun.h.  The simulated driver writes them to a file while it runs, which a program may have
 * changed. */

#define GP_READS_BYTES  (8u << 20) /* of the file */
#define GP_READS_PLACES 4096u      /* of all processes */
#define GP_READS_MOST   (1ull << 60)

struct reads_work {
    struct gp_dryrun_run *run;
    struct gp_hash known; /* of a process and its frames: index in rows */
    struct gp_dryrun_read rows[GP_READS_PLACES];
    uint32_t count;
};

/* "FILE:LINE:FUNCTION" */
static bool reads_frame(char *text, struct gp_need_place *place)
{
    char *function = strrchr(text, ':'), *line = NULL;
    if (!function)
        return false;
    *function++ = '\0';
    line = strrchr(text, ':');
    if (!line || line[1 + strspn(line + 1, "0123456789")] || strlen(line + 1) > 9)
        return false;
    *line++ = '\0';
    gp_text_clean(place->file, sizeof(place->file), text, strlen(text));
    gp_text_clean(place->function, sizeof(place->function), function, strlen(function));
    place->line = (uint32_t)strtoul(line, NULL, 10);
    return true;
}

/* The innermost frame of the user's own, or of the package that it only started; without both the
 * outermost. */
static void reads_place(char *frames, struct gp_need_place *place)
{
    struct gp_need_place command = {0}; /* the innermost of the frames so far that may be of `python -c` */
    char *text;
    bool found = false, package = false;
    while (!found && (text = strsep(&frames, "\t"))) {
        struct gp_need_place frame = {0};
        if (!reads_frame(text, &frame))
            continue;
        enum gp_frame_role role = gp_role_of_python(frame.function, frame.file);
        found = (role == GP_ROLE_USER || role == GP_ROLE_WRAPPER) &&
                !(package && gp_role_is_launcher(frame.function, frame.file));
        if (found || !package)
            *place = frame;
        package |= gp_role_is_package(frame.file);
        if (strcmp(frame.file, "<string>") != 0)
            command.function[0] = '\0';
        else if (!command.function[0])
            command = frame;
    }
    if (!found && command.function[0] && !(package && gp_role_is_launcher(command.function, command.file)))
        *place = command;
    const char *base = strrchr(place->file, '/');
    if (!place->function[0])
        return;
    char label[sizeof(place->text)]; /* the compiler sees one object in `place`, and would warn of an overlap */
    snprintf(label, sizeof(label), "%s (%.100s:%u)", place->function, base ? base + 1 : place->file, place->line);
    memcpy(place->text, label, strlen(label) + 1);
}

/* A line "PID<TAB>COUNT<TAB>BYTES<TAB>FRAME..": the counts of a place only rise. */
static bool reads_line(struct reads_work *w, char *line)
{
    uint64_t numbers[3];
    char *end = line;
    for (unsigned i = 0; i < 3; i++) {
        line = end;
        numbers[i] = strtoull(line, &end, 10);
        if (*line < '0' || *line > '9' || (*end != '\t' && !(i == 2 && !*end)) || numbers[i] > GP_READS_MOST)
            return true;
        end += *end == '\t';
    }
    uint64_t hash = gp_hash_of_number(numbers[0]) ^ gp_hash_of_text(end);
    bool added = false;
    const uint32_t *at = gp_hash_add(&w->known, hash, NULL, NULL, w->count, &added);
    if (!at)
        return false;
    uint32_t index = *at;
    if (added && w->count == GP_READS_PLACES)
        return true; /* more than a person reads */
    if (added) {
        w->rows[w->count] = (struct gp_dryrun_read){0};
        reads_place(end, &w->rows[w->count++].place);
    }
    if (index < w->count) {
        GP_RAISE(w->rows[index].count, (int64_t)numbers[1]);
        GP_RAISE(w->rows[index].bytes, (int64_t)numbers[2]);
    }
    return true;
}

static int reads_by_place(const void *one, const void *other)
{
    const struct gp_dryrun_read *a = one, *b = other;
    int order = strcmp(a->place.file, b->place.file);
    order = order ? order : GP_ORDER(a->place.line, b->place.line);
    return order ? order : strcmp(a->place.function, b->place.function);
}

static int reads_by_count(const void *one, const void *other)
{
    const struct gp_dryrun_read *a = one, *b = other;
    return a->count != b->count ? GP_ORDER(b->count, a->count) : reads_by_place(one, other);
}

/* One row for each place. */
static void reads_join(struct reads_work *w)
{
    uint32_t joined = 0;
    qsort(w->rows, w->count, sizeof(w->rows[0]), reads_by_place);
    for (uint32_t i = 0; i < w->count; i++) {
        if (joined && reads_by_place(&w->rows[joined - 1], &w->rows[i]) == 0) {
            w->rows[joined - 1].count += w->rows[i].count;
            w->rows[joined - 1].bytes += w->rows[i].bytes;
        } else {
            w->rows[joined++] = w->rows[i];
        }
    }
    w->count = joined;
    qsort(w->rows, w->count, sizeof(w->rows[0]), reads_by_count);
}

/* Fills in run->reads from the file that the simulated driver wrote.  GP_EXIT_OK, or an exit status after a message. */
static int dryrun_reads(struct gp_dryrun_run *run, const char *path)
{
    char *text = NULL;
    struct reads_work *w = calloc(1, sizeof(*w));
    bool ok = w && dryrun_text(path, GP_READS_BYTES, &text);
    char *rest = text, *line;
    while (ok && (line = strsep(&rest, "\n")))
        ok = reads_line(w, line);
    if (ok) {
        reads_join(w);
        run->reads = calloc(w->count + 1ul, sizeof(*run->reads));
        ok = run->reads;
    }
    if (ok) {
        memcpy(run->reads, w->rows, w->count * sizeof(*run->reads));
        run->read_count = w->count;
    }
    if (w)
        gp_hash_free(&w->known);
    free(w);
    free(text);
    return ok ? GP_EXIT_OK : gp_memory_error("dryrun");
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

#define GP_JOB_LOOK_NS 20000000ull
/* In the first seconds as often as `run` does: a short program that is killed leaves only its session. */
#define GP_JOB_FIRST_NS  3000000000ull
#define GP_JOB_SOON_NS   2000000ull
#define GP_JOB_STOP_NS   10000000000ull /* a program that was told to end has that long */
#define GP_JOB_LEFT_NS   1000000000ull  /* and what it leaves has that long */
#define GP_JOB_NOTES     256u           /* different ones */
#define GP_JOB_NOTE_MAX  (1u << 20)     /* bytes of the file that are read */
#define GP_JOB_WRITES_NS 200000000ull   /* between looks at what the processes have written */
#define GP_JOB_WRITTEN   (1ll << 30)    /* that much is said at once */
#define GP_JOB_STANDIN   "GPUPROF_STANDIN_REPORT"
#define GP_JOB_READS     "GPUPROF_SIM_READS"

/* ---- notes of the stand-ins -------------------------------------------------------------------------------------- */

/* A line "PID<TAB>LIBRARY<TAB>KIND<TAB>TEXT". */
static void note_line(struct gp_dryrun_run *run, char *line)
{
    static const char *const kinds[] = {"loaded", "assumed", "unsupported"};
    struct gp_dryrun_note note = {.count = 1};
    char *fields[4];
    bool known = false;
    for (unsigned i = 0; i < 4; i++)
        if (!(fields[i] = strsep(&line, "\t")) || !fields[i][0])
            return;
    for (size_t i = 0; i < GP_COUNT(kinds); i++)
        known |= strcmp(fields[2], kinds[i]) == 0;
    if (!known || line || fields[0][strspn(fields[0], "0123456789")])
        return;
    gp_text_clean(note.library, sizeof(note.library), fields[1], strlen(fields[1]));
    gp_text_clean(note.kind, sizeof(note.kind), fields[2], strlen(fields[2]));
    gp_text_clean(note.text, sizeof(note.text), fields[3], strlen(fields[3]));
    for (uint32_t i = 0; i < run->note_count; i++) {
        struct gp_dryrun_note *other = &run->notes[i];
        if (strcmp(note.library, other->library) == 0 && strcmp(note.kind, other->kind) == 0 &&
            strcmp(note.text, other->text) == 0) {
            other->count++;
            return;
        }
    }
    if (run->note_count < GP_JOB_NOTES)
        run->notes[run->note_count++] = note;
}

static int job_notes(struct gp_dryrun_run *run, const char *path)
{
    char *text, *line;
    run->notes = calloc(GP_JOB_NOTES, sizeof(*run->notes));
    if (!run->notes || !dryrun_text(path, GP_JOB_NOTE_MAX, &text))
        return gp_memory_error("dryrun");
    char *rest = text;
    while ((line = strsep(&rest, "\n")))
        note_line(run, line);
    free(text);
    return GP_EXIT_OK;
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static int job_environment(const struct gp_dryrun_job *job, const char *folder, const char *gpu, const char *memory)
{
    char spec[512], record[8400], notes[4300], reads[4300], peers[4300], waits[4300], since[32];
    struct timespec now;
    size_t used = 0;
    memory = memory ? memory : job->memory;
    snprintf(spec, sizeof(spec), "gpu=%s,devices=%lld,contents=none,fill=%s,shared=dryrun-%u-%u%s%s", gpu,
             (long long)job->devices, job->fill ? job->fill : "zeros", (unsigned)getpid(), job->runs,
             memory ? ",memory=" : "", memory ? memory : "");
    for (const char *at = folder; *at && used + 32 < sizeof(record); at++) {
        if (*at == '%')
            record[used++] = '%';
        record[used++] = *at;
    }
    snprintf(record + used, sizeof(record) - used, "/%%p" GP_NAME_SUFFIX);
    snprintf(notes, sizeof(notes), "%s/notes", folder);
    snprintf(reads, sizeof(reads), "%s/reads", folder);
    snprintf(peers, sizeof(peers), "%s/peers", folder);
    snprintf(waits, sizeof(waits), "%s/waits", folder);
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(since, sizeof(since), "%lld%09ld", (long long)now.tv_sec, now.tv_nsec);
    if (setenv("GPUPROF_SIM", spec, 1) == 0 && setenv("GPUPROF_RECORD", record, 1) == 0 &&
        setenv("GPUPROF_RECORD_SINCE", since, 1) == 0 && setenv(GP_JOB_STANDIN, notes, 1) == 0 &&
        setenv(GP_JOB_READS, reads, 1) == 0 &&
        (!job->world || (setenv("GPUPROF_SIM_PEERS", peers, 1) == 0 && setenv("GPUPROF_SIM_WAITS", waits, 1) == 0)))
        return GP_EXIT_OK;
    return gp_memory_error("dryrun");
}

/* Starts the program; with --json its standard output is our standard error. */
static int job_start(const struct gp_dryrun_job *job, struct gp_child *child)
{
    int out = job->json ? dup(STDOUT_FILENO) : -1;
    fflush(stdout);
    if (job->json)
        dup2(STDERR_FILENO, STDOUT_FILENO);
    int rc = gp_launch_child_start(child, &job->launch);
    if (out >= 0) {
        dup2(out, STDOUT_FILENO);
        close(out);
    }
    if (rc)
        gp_error("dryrun", "cannot start a process: %s", strerror(-rc));
    return rc ? GP_EXIT_FAILED : GP_EXIT_OK;
}

/* By rank; processes without one stay in the order in which they started. */
static int job_by_rank(const void *one, const void *other)
{
    const struct gp_need *a = one, *b = other;
    int order = GP_ORDER(a->rank, b->rank);
    order = order ? order : GP_ORDER(a->pid, b->pid);
    return order ? order : GP_ORDER(a->device, b->device);
}

static int job_read(struct gp_dryrun_job *job, struct gp_dryrun_run *run, unsigned number)
{
    char **files = gp_dryrun_files(job, number);
    int rc = files ? GP_EXIT_OK : gp_memory_error("dryrun");
    for (size_t i = 0; files && files[i]; i++) {
        if (!rc)
            rc = gp_dryrun_read(run, files[i], job->budget_bytes, number == 0 && i == 0);
        free(files[i]);
    }
    free(files);
    if (run->need_count)
        qsort(run->needs, run->need_count, sizeof(*run->needs), job_by_rank);
    return rc;
}

struct job_ends { /* the processes that were seen: a pid may have another owner by now */
    int fds[GP_WATCH_MOST];
    struct gp_dryrun_life lives[GP_WATCH_MOST];
    int count;
};

/* The kernel says when a process started in ticks since the boot, so it was at the end of that tick at the latest. */
static uint64_t ends_start(uint64_t ticks)
{
    struct timespec now, boot;
    const int64_t second = 1000000000, tick = second / sysconf(_SC_CLK_TCK);
    clock_gettime(CLOCK_MONOTONIC, &now); /* stands still while the machine sleeps */
    clock_gettime(CLOCK_BOOTTIME, &boot);
    const int64_t asleep = (boot.tv_sec - now.tv_sec) * second + boot.tv_nsec - now.tv_nsec;
    const int64_t start = ((int64_t)ticks + 1) * tick - asleep;
    return start > 0 ? (uint64_t)start : 0;
}

static void ends_add(struct job_ends *ends, const struct gp_watch *watch)
{
    for (; ends->count < watch->count; ends->count++) {
        const struct gp_process *process = &watch->watched[ends->count]->process;
        ends->fds[ends->count] = (int)syscall(SYS_pidfd_open, process->pid, 0);
        const uint64_t exec_ns = watch->watched[ends->count]->exec_ns;
        ends->lives[ends->count] = (struct gp_dryrun_life){
            .pid = (uint32_t)process->pid, .start_ns = exec_ns ? exec_ns : ends_start(process->start_time)};
    }
    const uint64_t now = gp_clock_ns();
    for (int i = 0; i < ends->count; i++)
        if (ends->fds[i] >= 0 && syscall(SYS_pidfd_send_signal, ends->fds[i], 0, NULL, 0) == 0)
            ends->lives[i].alive_ns = now;
}

/* Sends the signal to those that are still there; 0 only asks.  How many there were. */
static int ends_signal(const struct job_ends *ends, int number)
{
    int count = 0;
    for (int i = 0; i < ends->count; i++)
        count += ends->fds[i] >= 0 && syscall(SYS_pidfd_send_signal, ends->fds[i], number, NULL, 0) == 0;
    return count;
}

/* Ends the program.  A launcher of ranks ends them; a shell leaves its child, which is killed. */
static void job_stop(struct gp_child *child, const struct job_ends *ends)
{
    uint64_t until_ns = gp_clock_ns() + GP_JOB_STOP_NS;
    kill(child->pid, SIGTERM);
    while (!child->ended && gp_clock_ns() < until_ns)
        gp_launch_child_wait(child, GP_JOB_LOOK_NS);
    until_ns = gp_clock_ns() + GP_JOB_LEFT_NS;
    while (ends_signal(ends, 0) && gp_clock_ns() < until_ns)
        gp_launch_child_wait(child, GP_JOB_LOOK_NS);
    ends_signal(ends, SIGKILL);
    if (!child->ended)
        kill(child->pid, SIGKILL);
    /* The sessions are read when their processes are gone. */
    while (!child->ended || ends_signal(ends, 0))
        gp_launch_child_wait(child, GP_JOB_LOOK_NS);
}

struct job_writes { /* what each process has written to files */
    int64_t bytes[GP_WATCH_MOST];
    uint64_t next_ns;
    bool said;
};

/* A checkpoint takes as much of the disk as on a GPU, and what it holds are zeros. */
static void job_written(struct job_writes *writes, const struct gp_watch *watch, struct gp_dryrun_run *run)
{
    char path[64], size[GP_SIZE_TEXT], *text;
    uint64_t now = gp_clock_ns();
    if (now < writes->next_ns)
        return;
    writes->next_ns = now + GP_JOB_WRITES_NS;
    run->written_bytes = 0;
    for (int i = 0; i < watch->count; i++) {
        snprintf(path, sizeof(path), "/proc/%d/io", (int)watch->watched[i]->process.pid);
        const char *line = dryrun_text(path, 4096, &text) ? strstr(text, "\nwrite_bytes: ") : NULL;
        if (line)
            GP_RAISE(writes->bytes[i], strtoll(line + strlen("\nwrite_bytes: "), NULL, 10));
        free(text);
        run->written_bytes += writes->bytes[i];
    }
    if (run->written_bytes < GP_JOB_WRITTEN || writes->said)
        return;
    writes->said = true;
    fprintf(stderr, "gpuprof: dryrun: CMD has written %s to files: a checkpoint of a dry run holds zeros\n",
            gp_size_text(size, run->written_bytes));
}

/* Until the program has ended. */
static void job_watch(struct gp_dryrun_job *job, struct gp_dryrun_run *run, struct gp_child *child,
                      struct gp_watch *watch, struct job_ends *ends)
{
    struct job_follow follow = {.job = job, .number = job->runs - 1, .gpu = run->gpu};
    struct job_writes writes = {0};
    const uint64_t begin_ns = gp_clock_ns();
    while (!child->ended) {
        gp_watch_look(watch, child->pid, true);
        ends_add(ends, watch);
        job_written(&writes, watch, run);
        gp_launch_child_wait(child, gp_clock_ns() - begin_ns < GP_JOB_FIRST_NS ? GP_JOB_SOON_NS : GP_JOB_LOOK_NS);
        if (!child->ended && follow_look(&follow)) {
            run->ended = true;
            job_stop(child, ends);
        }
    }
    run->unended = job->steps && !run->ended;
    run->status = child->status;
    for (int i = 0; i < ends->count; i++)
        if (ends->fds[i] >= 0)
            close(ends->fds[i]);
}

/* Whether a run has shown that more ranks are needed: then nothing of it is read. */
static bool job_grown(struct gp_dryrun_job *job, const char *folder)
{
    char peers[4300];
    snprintf(peers, sizeof(peers), "%s/peers", folder);
    if (!job->world || !gp_world_grow(job->world, peers))
        return false;
    fprintf(stderr, "gpuprof: dryrun: a rank that runs sends to one that is absent: %u ranks run now\n",
            job->world->count);
    folder_remove(folder);
    job->runs--;
    return true;
}

/* *again: it is to be made once more, with more ranks. */
static int job_once(struct gp_dryrun_job *job, const struct gp_dryrun_gpu *gpu, const char *memory,
                    struct gp_dryrun_run *run, bool *again)
{
    char folder[4200], notes[4300];
    struct gp_watch watch = {0};
    struct job_ends ends = {0};
    struct gp_child child;
    unsigned number = job->runs;
    *again = false;
    *run = (struct gp_dryrun_run){.plenty = memory, .threads = gpu->threads};
    snprintf(run->gpu, sizeof(run->gpu), "%s", gpu->key);
    dryrun_folder(job, number, folder, sizeof(folder));
    int rc = job_environment(job, folder, gpu->key, memory);
    if (!rc && mkdir(folder, 0700) != 0) {
        gp_error("dryrun", "%s: cannot be made: %s", folder, strerror(errno));
        rc = GP_EXIT_FAILED;
    }
    job->runs++;
    if (!rc)
        rc = job_start(job, &child);
    if (rc)
        return rc;
    job_watch(job, run, &child, &watch, &ends);
    *again = job_grown(job, folder);
    if (*again) {
        gp_watch_free(&watch);
        return GP_EXIT_OK;
    }
    for (int i = 0; !rc && i < watch.count; i++)
        if (gp_watch_read(watch.watched[i]) != 0)
            rc = gp_memory_error("dryrun");
    if (!rc)
        gp_recorded_finish(&watch, getenv("GPUPROF_RECORD"));
    gp_watch_free(&watch);
    snprintf(notes, sizeof(notes), "%s/notes", folder);
    if (!rc)
        rc = job_notes(run, notes);
    snprintf(notes, sizeof(notes), "%s/reads", folder);
    if (!rc)
        rc = dryrun_reads(run, notes);
    if (!rc)
        rc = job_read(job, run, number);
    gp_dryrun_lives(run, ends.lives, (uint32_t)ends.count);
    if (!rc && job->world && !gp_world_kinds(job->world, run))
        rc = gp_memory_error("dryrun");
    return rc;
}

int gp_dryrun_run(struct gp_dryrun_job *job, const struct gp_dryrun_gpu *gpu, const char *memory,
                  struct gp_dryrun_run *run)
{
    bool again = false;
    int rc;
    do
        rc = job_once(job, gpu, memory, run, &again);
    while (!rc && again);
    return rc;
}

void gp_dryrun_run_free(struct gp_dryrun_run *run)
{
    for (uint32_t i = 0; i < run->need_count; i++) {
        free(run->needs[i].lines);
        free(run->needs[i].levels);
        free(run->needs[i].refused);
        free(run->needs[i].stands_for);
    }
    free(run->needs);
    free(run->notes);
    free(run->reads);
}
