/* SPDX-License-Identifier: MIT
 * load.c: see load.h. */
#include <cmd/load.h>
#include <cmd/progress.h>
#include <write/write.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <langinfo.h>
#include <record/format.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Steps of most programs take a second or two at most: several of them. */
#define GP_LOAD_SECONDS 10

enum { GP_LOAD_DURATION = 256, GP_LOAD_OLDER, GP_LOAD_EXITCODE, GP_LOAD_JSON };

static int load_number(const struct gp_load_options *o, const char *name, int64_t high, int64_t *value)
{
    if (gp_parse_number(optarg, name[0] == 'd', high, value) == 0)
        return GP_EXIT_OK;
    return gp_usage_error(o->target.command, "--%s %s: not a whole number from %d to %lld", name, optarg,
                          name[0] == 'd', (long long)high);
}

static int load_option(struct gp_load_options *o, int c)
{
    switch (c) {
    case 'p':
        return gp_target_pids(&o->target, optarg);
    case 'o':
        o->output = optarg;
        return GP_EXIT_OK;
    case GP_LOAD_DURATION:
        o->timed = true;
        return load_number(o, "duration", 1000000, &o->seconds);
    case GP_LOAD_OLDER:
        return load_number(o, "older", 1000000000, &o->older_seconds);
    case GP_LOAD_EXITCODE:
        return load_number(o, "error-exitcode", 255, &o->error_exitcode);
    case GP_LOAD_JSON:
        o->json = true;
        return GP_EXIT_OK;
    default:
        o->help = true;
        return GP_EXIT_OK;
    }
}

static int load_check(struct gp_load_options *o)
{
    const char *command = o->target.command;
    bool live = o->target.pid_count > 0;
    if (o->target.pid_count > 1)
        return gp_usage_error(command, "-p: one process at a time");
    if (live && o->file_count)
        return gp_usage_error(command, "%s: a recording or -p, not both", o->files[0]);
    if (o->timed && !live)
        return gp_usage_error(command, "--duration: only a running process (-p PID) is recorded for a time");
    if (o->file_count < o->file_limit && !live && o->live)
        return gp_usage_error(command,
                              "which recording?  Name a file ('gpuprof record' and 'gpuprof run --record' make "
                              "one), or a running process with -p PID");
    if (o->file_count < o->file_limit && !live)
        return gp_usage_error(command, o->file_limit == 2 ? "two recordings are needed: the one before, the one after"
                                                          : "which recording?  Name a file ('gpuprof record' and "
                                                            "'gpuprof run --record' make one)");
    return GP_EXIT_OK;
}

int gp_load_parse(struct gp_load_options *o, const char *command, unsigned takes, int argc, char **argv)
{
    /* In the order of the table, what a command does not take is cut off its end or its begin. */
    static const struct option all[] = {{"error-exitcode", required_argument, NULL, GP_LOAD_EXITCODE},
                                        {"older", required_argument, NULL, GP_LOAD_OLDER},
                                        {"json", no_argument, NULL, GP_LOAD_JSON},
                                        {"help", no_argument, NULL, 'h'},
                                        {"pid", required_argument, NULL, 'p'},
                                        {"duration", required_argument, NULL, GP_LOAD_DURATION},
                                        {"output", required_argument, NULL, 'o'},
                                        {NULL, 0, NULL, 0}};
    struct option options[GP_COUNT(all)];
    bool live = !(takes & (GP_LOAD_DIFF | GP_LOAD_OUTPUT));
    int count = 0, c, rc = GP_EXIT_OK;
    *o = (struct gp_load_options){.target = GP_TARGET_INIT(command),
                                  .file_limit = takes & GP_LOAD_DIFF ? 2 : 1,
                                  .live = live,
                                  .seconds = GP_LOAD_SECONDS,
                                  .older_seconds = -1,
                                  .error_exitcode = -1};
    for (size_t i = 0; i < GP_COUNT(all); i++) {
        bool leaks = all[i].val == GP_LOAD_EXITCODE || all[i].val == GP_LOAD_OLDER;
        bool process = all[i].val == 'p' || all[i].val == GP_LOAD_DURATION;
        if ((leaks && !(takes & GP_LOAD_LEAKS)) || (process && !live) ||
            (all[i].val == 'o' && !(takes & GP_LOAD_OUTPUT)))
            continue;
        options[count++] = all[i];
    }
    optind = 0;
    opterr = 0;
    const char *letters = takes & GP_LOAD_OUTPUT ? ":o:h" : live ? ":p:h" : ":h";
    while (!rc && (c = getopt_long(argc, argv, letters, options, NULL)) != -1) {
        if (c == '?' || c == ':')
            return gp_option_error(command, c, argv, optind, optopt);
        rc = load_option(o, c);
        if (o->help)
            return GP_EXIT_OK;
    }
    for (; !rc && optind < argc; optind++) {
        if (o->file_count == o->file_limit)
            return gp_usage_error(command, "%s: unexpected argument", argv[optind]);
        o->files[o->file_count++] = argv[optind];
    }
    return rc ? rc : load_check(o);
}

void gp_load_end(struct gp_load_options *o)
{
    gp_target_free(&o->target);
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
    if (rc)
        gp_error(command, "stdout: cannot be written: %s", strerror(-rc));
    return rc ? GP_EXIT_FAILED : GP_EXIT_OK;
}

/* ---- a running process ------------------------------------------------------------------------------------------- */

/* `gpuprof record` with the memory file for its stdout; ^C ends it, and not us. */
static int load_record(const struct gp_load_options *o, int fd)
{
    char pid[24], seconds[24];
    char *argv[] = {"gpuprof", "record", "-p", pid, "-q", "-o", "-", "--duration", seconds, NULL};
    snprintf(pid, sizeof(pid), "%d", (int)o->target.pids[0]);
    snprintf(seconds, sizeof(seconds), "%lld", (long long)o->seconds);
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
    gp_error(o->target.command, "cannot record pid %s: %s", pid, child < 0 ? strerror(errno) : "the recorder died");
    return GP_EXIT_FAILED;
}

static int load_live(struct gp_recording **recording, const struct gp_load_options *o)
{
    char path[64], why[256] = "";
    if (gp_explain_pid(o->target.pids[0], why, sizeof(why)) != GP_PID_OK) {
        gp_error(o->target.command, "pid %d: %s", (int)o->target.pids[0], why);
        return GP_EXIT_NO_PROCESS;
    }
    why[0] = '\0';
    int fd = memfd_create("gpuprof-recording", MFD_CLOEXEC);
    if (fd < 0) {
        gp_error(o->target.command, "no memory for a recording: %s", strerror(errno));
        return GP_EXIT_FAILED;
    }
    fprintf(stderr, "gpuprof: %s: recording pid %d for %lld s, until it ends, or ^C\n", o->target.command,
            (int)o->target.pids[0], (long long)o->seconds);
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
    struct stat there;
    bool empty = stat(path, &there) == 0 && S_ISREG(there.st_mode) && there.st_size == 0;
    /* It ends the line that says what a recording is not. */
    const char *way = rc == -EPROTO && strstr(why, "not a recording")
                          ? ": 'gpuprof record' and 'gpuprof run --record' make them"
                          : "";
    gp_error(command, "%s: %s%s", path, empty ? "the file is empty" : why[0] ? why : strerror(-rc), way);
    return GP_EXIT_FAILED;
}

bool gp_load_overwrites(const char *command, const char *output)
{
    char magic[sizeof(GP_RECORD_MAGIC) - 1];
    struct stat status;
    int fd = output && strcmp(output, "-") != 0 ? open(output, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    bool recording = fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
                     read(fd, magic, sizeof(magic)) == (ssize_t)sizeof(magic) &&
                     memcmp(magic, GP_RECORD_MAGIC, sizeof(magic)) == 0;
    if (fd >= 0)
        close(fd);
    if (recording)
        gp_error(command, "-o %s: there is a recording of that name, and it would be lost: choose another", output);
    return recording;
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

/* A process in a container names its objects as it sees them. One that sees what we see may end meanwhile. */
static void load_root(char *root, size_t bytes, pid_t pid)
{
    char path[64];
    struct stat theirs, ours;
    snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
    if (stat(path, &theirs) == 0 && stat("/proc/self/ns/mnt", &ours) == 0 && theirs.st_ino != ours.st_ino)
        snprintf(root, bytes, "/proc/%d/root", (int)pid);
}

int gp_load(struct gp_loaded *loaded, const struct gp_load_options *o, int i)
{
    *loaded = (struct gp_loaded){.command = o->target.command};
    bool live = o->target.pid_count > 0;
    if (live)
        load_root(loaded->root, sizeof(loaded->root), o->target.pids[0]); /* before: it may have ended afterwards */
    int rc = live ? load_live(&loaded->recording, o) : load_file(&loaded->recording, o, o->files[i]);
    if (rc)
        return rc;
    const struct gp_recording *r = loaded->recording;
    struct gp_symbol_source source = {.sites = r->sites,
                                      .frames = r->frames,
                                      .modules = r->modules,
                                      .strings = r->strings,
                                      .site_count = r->site_count,
                                      .frame_count = r->frame_count,
                                      .module_count = r->module_count,
                                      .root = loaded->root};
    if (gp_symbols_new(&loaded->symbols, &source) == 0 &&
        gp_report_init(&loaded->report, r, loaded->symbols, live ? "" : o->files[i]) == 0)
        return GP_EXIT_OK;
    gp_load_free(loaded);
    return gp_load_memory(o->target.command);
}

void gp_load_free(struct gp_loaded *loaded)
{
    const char *note;
    for (uint32_t i = 0; loaded->symbols && (note = gp_symbols_note(loaded->symbols, i)); i++)
        gp_error(loaded->command, "%s", note);
    gp_report_fini(&loaded->report);
    gp_symbols_free(loaded->symbols);
    gp_recording_free(loaded->recording);
}

/* ---- what is printed on ------------------------------------------------------------------------------------------ */

struct gp_text_page gp_load_page(void)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    struct winsize size;
    bool tty = isatty(STDOUT_FILENO);
    struct gp_text_page page = {.out = stdout, .width = 100, .utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0};
    if (tty && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col)
        page.width = size.ws_col;
    page.colour = tty && !(no_color && no_color[0]) && term && strcmp(term, "dumb") != 0;
    return page;
}

int gp_load_command(const char *command, const char *help, int argc, char **argv, unsigned parts,
                    json_t *json(const struct gp_report *report),
                    void text(const struct gp_text_page *page, const struct gp_report *report))
{
    struct gp_load_options o;
    struct gp_loaded loaded;
    int rc = gp_load_parse(&o, command, 0, argc, argv);
    if (!rc && o.help) {
        fputs(help, stdout);
    } else if (!rc) {
        rc = gp_load(&loaded, &o, 0);
        struct gp_text_page page = gp_load_page();
        if (!rc) {
            if (gp_report_run(&loaded.report, parts, o.json ? GP_DETAIL_PLOT : GP_DETAIL_TABLE) != 0)
                rc = gp_load_memory(command);
            else if (o.json)
                rc = gp_load_json(command, json(&loaded.report));
            else
                text(&page, &loaded.report);
            gp_load_free(&loaded);
        }
    }
    gp_load_end(&o);
    return rc;
}
