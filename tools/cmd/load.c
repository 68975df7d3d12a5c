/* SPDX-License-Identifier: MIT
 * load.c: loads a recording for the commands that analyse one; see load.h. */
#include <cmd/cmd.h>
#include <cmd/load.h>
#include <read/collect/peer.h>
#include <show/gate/gate.h>
#include <show/text/write.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <langinfo.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Several steps of most programs: a step rarely takes longer than two seconds. */
#define GP_LOAD_SECONDS 10

const struct gp_command_option gp_load_operand[] = {
    GP_OPERAND(struct gp_load_options, files[0], "FILE", GP_ARG_RECORDING, GP_LOAD_READS), {0}};

int gp_load_check(void *options)
{
    const struct gp_load_options *o = options;
    const char *command = o->target.command;
    bool live = o->target.pid_count > 0;
    if (live && o->files[0])
        return gp_usage_error(command, "%s: a recording or -p, not both", o->files[0]);
    if (o->seconds && !live)
        return gp_usage_error(command, "--duration: only a running process (-p PID) is recorded for a time");
    if (live || o->files[o->file_count - 1])
        return GP_EXIT_OK;
    if (o->file_count == 2)
        return gp_usage_error(command, "two recordings are needed: the one before, the one after");
    return gp_usage_error(command,
                          "no recording given: name a file ('gpuprof record' and 'gpuprof run --record' make one)%s",
                          o->live ? ", or a running process with -p PID" : "");
}

int gp_load_memory(const char *command)
{
    gp_error(command, "out of memory");
    return GP_EXIT_FAILED;
}

int gp_load_json(const char *command, json_t *object)
{
    int rc = gp_json_print(stdout, object, false);
    if (rc == -ENOMEM)
        return gp_load_memory(command);
    return rc ? gp_write_error(command, NULL, -rc) : GP_EXIT_OK;
}

/* ---- a running process ------------------------------------------------------------------------------------------- */

static int64_t load_seconds(const struct gp_load_options *o)
{
    return o->seconds ? o->seconds : GP_LOAD_SECONDS;
}

/* Runs `gpuprof record` with the memory file as its stdout.  ^C ends that process and not this
 * one. */
static int load_record(const struct gp_load_options *o, int fd)
{
    char pid[24], seconds[24];
    char *argv[] = {"gpuprof", "record", "-p", pid, "-q", "-o", "-", "--duration", seconds, NULL};
    snprintf(pid, sizeof(pid), "%d", (int)o->target.pids[0]);
    snprintf(seconds, sizeof(seconds), "%lld", (long long)load_seconds(o));
    fflush(stdout);
    struct sigaction ignore = {.sa_handler = SIG_IGN}, interrupt, quit;
    sigaction(SIGINT, &ignore, &interrupt);
    sigaction(SIGQUIT, &ignore, &quit);
    pid_t child = fork();
    if (child == 0) {
        sigaction(SIGINT, &interrupt, NULL);
        sigaction(SIGQUIT, &quit, NULL);
        dup2(fd, STDOUT_FILENO);
        execv("/proc/self/exe", argv);
        _exit(GP_EXIT_NOT_FOUND);
    }
    int status = 0;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    sigaction(SIGINT, &interrupt, NULL);
    sigaction(SIGQUIT, &quit, NULL);
    if (child > 0 && WIFEXITED(status))
        return WEXITSTATUS(status);
    gp_error(o->target.command, "cannot record pid %s: %s", pid,
             child < 0 ? strerror(errno) : "the recorder was killed");
    return GP_EXIT_FAILED;
}

static int load_live(struct gp_recording **recording, const struct gp_load_options *o)
{
    char path[64], why[256] = "";
    if (gp_collect_explain_pid(o->target.pids[0], why, sizeof(why)) != GP_PID_OK) {
        gp_error(o->target.command, "pid %d: %s", (int)o->target.pids[0], why);
        return GP_EXIT_NO_PROCESS;
    }
    if (o->sites)
        gp_unwind_stacks_offer(o->target.command, o->target.pids[0]);
    why[0] = '\0';
    int fd = memfd_create("gpuprof-recording", MFD_CLOEXEC);
    if (fd < 0) {
        gp_error(o->target.command, "cannot create a memory file for the recording: %s", strerror(errno));
        return GP_EXIT_FAILED;
    }
    fprintf(stderr, "gpuprof: %s: recording pid %d for %lld s, or until it ends or ^C\n", o->target.command,
            (int)o->target.pids[0], (long long)load_seconds(o));
    int rc = load_record(o, fd);
    if (!rc) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        int error = gp_recording_open(recording, path, why, sizeof(why), NULL, NULL);
        if (error) {
            gp_error(o->target.command, "pid %d: %s", (int)o->target.pids[0], why[0] ? why : strerror(-error));
            rc = GP_EXIT_FAILED;
        }
    }
    close(fd);
    return rc;
}

int gp_load_refused(const char *command, const char *path, int rc, const char *why)
{
    gp_error(command, "%s: %s", path, why[0] ? why : strerror(-rc));
    return GP_EXIT_FAILED;
}

void gp_load_warn(const char *command, const char *path, const struct gp_recording *recording)
{
    if (!recording->complete)
        gp_error(command, "%s: the recording is incomplete: it ends where its writer was killed", path);
    if (recording->ended_early)
        gp_error(command, "%s: the recording ends early, with %" PRIu64 " events missing: it could not be written: %s",
                 path, recording->unwritten, strerror(recording->write_error));
    if (gp_rec_missing(recording) || recording->damaged_blocks)
        gp_error(command,
                 "%s: %" PRIu64 " of %" PRIu64 " events were lost while it was recorded, and %" PRIu64
                 " of its blocks are damaged: sums of events are lower bounds, and blocks may be missing or appear to "
                 "live too long",
                 path, gp_rec_missing(recording), recording->tried, recording->damaged_blocks);
    if (recording->unseen_blocks || recording->unfreed_blocks)
        gp_error(command,
                 "%s: the trace lacks the allocation of %" PRIu64 " blocks and the free of %" PRIu64
                 ": each counts only where it is certain, so sums over time are lower bounds",
                 path, recording->unseen_blocks, recording->unfreed_blocks);
}

/* ---- a file ------------------------------------------------------------------------------------------------------ */

static int load_file(struct gp_recording **recording, const struct gp_load_options *o, const char *path)
{
    char why[256] = "";
    gp_progress_begin("reading the recording");
    int rc = gp_recording_open(recording, path, why, sizeof(why), gp_progress_listener, NULL);
    gp_progress_end();
    return rc ? gp_load_refused(o->target.command, path, rc, why) : GP_EXIT_OK;
}

/* The paths that a process in a container reports are valid in its own mount namespace.  A
 * process in ours needs no prefix, and /proc/PID/root would be gone when it ends. */
void gp_load_root(char *root, size_t bytes, pid_t pid)
{
    char path[64], folder[GP_PROC_FOLDER];
    struct stat theirs, ours;
    snprintf(path, sizeof(path), "%s/ns/mnt", gp_proc_folder(pid, folder));
    if (stat(path, &theirs) == 0 && stat("/proc/self/ns/mnt", &ours) == 0 && theirs.st_ino != ours.st_ino)
        snprintf(root, bytes, "%s/root", folder);
}

bool gp_load_join(struct gp_loaded *loaded)
{
    uint32_t count = loaded->recording->site_count, *to = calloc(count + 1ul, sizeof(*to));
    for (uint32_t i = 0; to && i < count; i++)
        to[i] = gp_symbols_twin(loaded->symbols, i);
    if (!to)
        return false;
    gp_recording_join(loaded->recording, to);
    free(to);
    return true;
}

static int load_moment(const char *command, const struct gp_recording *recording, const char *option, const char *text,
                       uint64_t *time_ns)
{
    char size[GP_SIZE_TEXT];
    int rc = text ? gp_recording_moment(recording, text, time_ns) : 0;
    if (rc == -ERANGE)
        gp_error(command, "--%s=%s: the recording is %s long", option, text,
                 gp_seconds_text(size, (double)(recording->end_ns - recording->begin_ns) / 1e9));
    else if (rc)
        gp_error(command, "--%s=%s: neither a time such as 2.5s or 350ms nor the name of a mark", option, text);
    return rc ? GP_EXIT_USAGE : GP_EXIT_OK;
}

int gp_load_cut(const char *command, struct gp_recording *recording, const struct gp_load_part *part)
{
    uint64_t from_ns = recording->begin_ns, to_ns = recording->end_ns;
    if (!part->from && !part->to)
        return GP_EXIT_OK;
    int rc = load_moment(command, recording, "from", part->from, &from_ns);
    if (!rc)
        rc = load_moment(command, recording, "to", part->to, &to_ns);
    if (rc)
        return rc;
    if (from_ns >= to_ns) {
        gp_error(command, "--from=%s is not before --to=%s", part->from ? part->from : "0s",
                 part->to ? part->to : "the end");
        return GP_EXIT_USAGE;
    }
    return gp_recording_cut(recording, from_ns, to_ns) ? gp_load_memory(command) : GP_EXIT_OK;
}

/* Lists the names that --step can take: those that repeat. */
static void load_names(const struct gp_recording *recording, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; used < bytes; i++) {
        struct gp_step_name name;
        if (!gp_steps_name(recording, i, &name))
            break;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s '%s' (%u times)", i ? ", " : "",
                                 name.nvtx ? "NVTX range" : "mark", name.name, name.count);
    }
}

int gp_load_steps(const char *command, const struct gp_recording *recording, const char *step, struct gp_steps **steps)
{
    char names[512];
    int rc = gp_steps_choose(recording, step, steps);
    if (rc == 0)
        return GP_EXIT_OK;
    if (rc == -ENOMEM)
        return gp_load_memory(command);
    load_names(recording, names, sizeof(names));
    if (rc == -ERANGE)
        gp_error(command, "--step=%s: this would be more than a million steps", step);
    else
        gp_error(command,
                 "--step=%s: no mark and no NVTX range of that name occurs twice, and it is no duration such as 350ms; "
                 "the recording has %s",
                 step, names[0] ? names : "no mark or range that repeats");
    return GP_EXIT_USAGE;
}

static int load_step(struct gp_loaded *loaded, const char *step)
{
    struct gp_steps *steps = NULL;
    int rc = gp_load_steps(loaded->command, loaded->recording, step, &steps);
    if (rc)
        return rc;
    free(loaded->report.steps);
    loaded->report.steps = steps;
    return GP_EXIT_OK;
}

int gp_load(struct gp_loaded *loaded, const struct gp_load_options *o, int i)
{
    *loaded = (struct gp_loaded){.command = o->target.command};
    bool live = o->target.pid_count > 0;
    if (live)
        gp_load_root(loaded->root, sizeof(loaded->root), o->target.pids[0]); /* first: the process may end meanwhile */
    int rc = live ? load_live(&loaded->recording, o) : load_file(&loaded->recording, o, o->files[i]);
    if (!rc)
        rc = gp_load_cut(o->target.command, loaded->recording, &o->part);
    if (rc) {
        gp_recording_free(loaded->recording);
        return rc;
    }
    const struct gp_recording *r = loaded->recording;
    const struct gp_symbol_source source = gp_symbol_source_of(r, loaded->root);
    int made = gp_symbols_new(&loaded->symbols, &source);
    if (!made)
        gp_symbols_look_below(loaded->symbols, o->symfs);
    if (made == 0 &&
        (o->plain ? gp_report_init_plain : gp_report_init)(&loaded->report, r, loaded->symbols,
                                                           live ? "" : o->files[i]) == 0 &&
        (o->nameless || o->plain || gp_load_join(loaded))) {
        rc = o->step ? load_step(loaded, o->step) : GP_EXIT_OK;
        if (rc)
            gp_load_free(loaded);
        return rc;
    }
    gp_load_free(loaded);
    return gp_load_memory(o->target.command);
}

bool gp_load_uses(struct gp_loaded *loaded)
{
    loaded->hints = gp_gate_hints(&loaded->report);
    loaded->report.hints = loaded->hints;
    return loaded->hints;
}

void gp_load_free(struct gp_loaded *loaded)
{
    gp_load_unload(loaded, true);
}

void gp_load_unload(struct gp_loaded *loaded, bool notes)
{
    const char *note;
    for (uint32_t i = 0; notes && loaded->symbols && (note = gp_symbols_note(loaded->symbols, i)); i++)
        gp_error(loaded->command, "%s", note);
    gp_report_fini(&loaded->report);
    free(loaded->hints);
    gp_symbols_free(loaded->symbols);
    gp_recording_free(loaded->recording);
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

struct gp_text_page gp_load_page(void)
{
    struct winsize size;
    bool tty = isatty(STDOUT_FILENO);
    struct gp_text_page page = {
        .out = stdout, .width = 100, .utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0, .whole = !tty};
    if (tty && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col)
        page.width = size.ws_col;
    page.colour = gp_tone(stdout, GP_BOLD)[0];
    return page;
}

int gp_load_run(const struct gp_load_options *o, unsigned parts, json_t *json(const struct gp_report *report),
                void text(const struct gp_text_page *page, const struct gp_report *report))
{
    struct gp_loaded loaded;
    int rc = gp_load(&loaded, o, 0);
    if (rc)
        return rc;
    struct gp_text_page page = gp_load_page();
    if ((parts & GP_REPORT_PEAK && !gp_load_uses(&loaded)) ||
        gp_report_run(&loaded.report, parts, o->json ? GP_DETAIL_PLOT : GP_DETAIL_TABLE) != 0)
        rc = gp_load_memory(loaded.command);
    else if (o->json)
        rc = gp_load_json(loaded.command, json(&loaded.report));
    else
        text(&page, &loaded.report);
    gp_load_free(&loaded);
    return rc;
}
