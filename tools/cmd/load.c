/* SPDX-License-Identifier: MIT
 * load.c: loads a recording for the commands that analyse one; see load.h. */
#include <analyze/analyze.h>
#include <analyze/report.h>
#include <cmd/cmd.h>
#include <cmd/load.h>
#include <jansson.h>
#include <read/collect/collect.h>
#include <read/collect/procfs.h>
#include <read/recording/recording.h>
#include <show/text/write.h>
#include <stdio.h>
#include <symbol/symbol.h>

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

int gp_load_json(const char *command, json_t *object)
{
    int rc = gp_json_print(stdout, object, false);
    if (rc == -ENOMEM)
        return gp_memory_error(command);
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

/* ---- a file ------------------------------------------------------------------------------------------------------ */

int gp_load(struct gp_loaded *loaded, const struct gp_load_options *o, int i)
{
    struct gp_recording *recording = NULL;
    const struct gp_load_view view = {.part = o->part,
                                      .step = o->step,
                                      .symfs = o->symfs,
                                      .plain = o->plain,
                                      .nameless = o->nameless,
                                      .listed = o->listed};
    if (!o->target.pid_count)
        return gp_load_file(loaded, o->target.command, o->files[i], &view);
    *loaded = (struct gp_loaded){.command = o->target.command};
    gp_load_root(loaded->root, sizeof(loaded->root), o->target.pids[0]); /* first: the process may end meanwhile */
    int rc = load_live(&recording, o);
    return rc ? rc : gp_load_recording(loaded, recording, "", &view);
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
        rc = gp_memory_error(loaded.command);
    else if (o->json)
        rc = gp_load_json(loaded.command, json(&loaded.report));
    else
        text(&page, &loaded.report);
    gp_load_free(&loaded);
    return rc;
}
