/* SPDX-License-Identifier: MIT
 *
 * top.c: `gpuprof top`: options, and the choice between the screen, the printed table and JSON.  Called by main.c.
 */
#include <cmd/cmd.h>

#include <errno.h>
#include <getopt.h>
#include <maps/maps.h>
#include <maps/sample.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <view/print.h>
#include <view/screen.h>
#include <view/siteview.h>
#include <view/term.h>
#include <write/stats.h>
#include <write/write.h>

static const char top_help[] =
    "usage: gpuprof top [-d SECS] [-n N] [-1|--once] [--json] [-p PID,..] [--by process|device|container|site] "
    "[--sort COLUMN]\n                   [--system [--pins DIR]]\n"
    "\n"
    "Shows who holds which GPU memory, live.  Without a terminal it prints one plain table.\n"
    "\n"
    "  -d, --delay SECS   between two samples, 0.1 to 3600 (1)\n"
    "  -n, --samples N    end after N samples\n"
    "  -1, --once         print one plain table and end; rates take two samples and are '-'\n"
    "      --json         one object of schema gpuprof.top/1 a sample, each on its own line with -n\n"
    "  -p, --pid PID,..   these processes alone\n"
    "      --by WHAT      rows by process, device or container; or site: where one process asked for its memory, if "
    "it\n"
    "                     runs with stacks ('gpuprof run --stacks=all', GPUPROF_STACKS=all)\n"
    "      --sort COLUMN  one of the headers\n"
    "      --system       the whole machine as 'gpuprof agent' sees it: every user's processes, containers and GPUs "
    "with\n"
    "                     exact peaks.  Without root other users' processes may be summed and not named\n"
    "      --pins DIR     where that agent pins its maps (" GP_MAPS_PINS ")\n"
    "\n"
    "'-' (null in JSON) is unknown.  '~' contains estimates.  Peaks of a process are exact.  Peaks of a GPU or a "
    "container\n"
    "do not add up from those of its processes: '>=' (and the number in JSON) is the highest sum that this command "
    "saw,\n"
    "at least the highest peak of one member.  h on the screen lists the keys.\n";

#define GP_TOP_ANSWER_NS                                                                                               \
    100000000ull /* a running process answers in microseconds; a stopped one delays every frame                        \
                  */

struct gp_top {
    struct gp_target target; /* -p */
    struct gp_ui ui;
    const char *sort; /* NULL: not said */
    int64_t samples;  /* 0: not said */
    const char *pins;
    bool once, json, help, system, by_site;
    struct gp_site_model sites; /* with by_site */
};

/* ---- options ------------------------------------------------------------------------------------------------- */

static int top_delay(struct gp_top *top, const char *text)
{
    char *end;
    double seconds = strtod(text, &end);
    if (end == text || *end || !(seconds >= 0.1 && seconds <= 3600))
        return gp_usage_error("top", "-d %s: not a number of seconds from 0.1 to 3600", text);
    top->ui.interval_ms = (int)(seconds * 1000 + 0.5);
    return GP_EXIT_OK;
}

static int top_samples(struct gp_top *top, const char *text)
{
    if (gp_parse_number(text, 1, INT64_MAX, &top->samples) != 0)
        return gp_usage_error("top", "-n %s: not a number of samples from 1", text);
    return GP_EXIT_OK;
}

static int top_by(struct gp_top *top, const char *text)
{
    static const char *const names[GP_BYS] = {"process", "device", "container"};
    for (int i = 0; i < GP_BYS; i++) {
        if (strcmp(names[i], text) == 0) {
            top->ui.by = (enum gp_by)i;
            return GP_EXIT_OK;
        }
    }
    if (strcmp(text, "site") == 0) {
        top->by_site = true;
        return GP_EXIT_OK;
    }
    return gp_usage_error("top", "--by %s: must be process, device, container or site", text);
}

/* Processes and sites have columns of their own. */
static int top_sort(struct gp_top *top)
{
    char names[256] = "";
    enum gp_column_id column = top->by_site ? GP_COLUMNS : gp_column_find(top->sort);
    if (column != GP_COLUMNS) {
        top->ui.sort = column;
        top->ui.ascending = !gp_columns[column].numeric;
        return GP_EXIT_OK;
    }
    if (top->by_site && gp_site_column_find(top->sort) != GP_SITE_COLUMNS)
        return GP_EXIT_OK;
    for (int i = 0; i < (top->by_site ? (int)GP_SITE_COLUMNS : (int)GP_COLUMNS); i++) {
        size_t used = strlen(names);
        if (top->by_site || i != GP_COLUMN_BAR)
            snprintf(names + used, sizeof(names) - used, "%s%s", used ? ", " : "",
                     top->by_site ? gp_site_columns[i].name : gp_columns[i].name);
    }
    return gp_usage_error("top", "--sort %s: no such column: choose one of %s", top->sort, names);
}

enum { GP_TOP_JSON = 256, GP_TOP_SYSTEM, GP_TOP_PINS, GP_TOP_BY, GP_TOP_SORT };

static int top_option(struct gp_top *top, int code, char **argv)
{
    switch (code) {
    case 'd':
        return top_delay(top, optarg);
    case 'n':
        return top_samples(top, optarg);
    case '1':
        top->once = true;
        return GP_EXIT_OK;
    case 'p':
        return gp_target_pids(&top->target, optarg);
    case 'h':
        top->help = true;
        return GP_EXIT_OK;
    case GP_TOP_JSON:
        top->json = true;
        return GP_EXIT_OK;
    case GP_TOP_SYSTEM:
        top->system = true;
        return GP_EXIT_OK;
    case GP_TOP_PINS:
        top->pins = optarg;
        return GP_EXIT_OK;
    case GP_TOP_BY:
        return top_by(top, optarg);
    case GP_TOP_SORT:
        top->sort = optarg;
        return GP_EXIT_OK;
    default:
        return gp_option_error("top", code, argv, optind, optopt);
    }
}

static int top_parse(int argc, char **argv, struct gp_top *top)
{
    static const struct option options[] = {{"delay", required_argument, NULL, 'd'},
                                            {"samples", required_argument, NULL, 'n'},
                                            {"once", no_argument, NULL, '1'},
                                            {"pid", required_argument, NULL, 'p'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"json", no_argument, NULL, GP_TOP_JSON},
                                            {"system", no_argument, NULL, GP_TOP_SYSTEM},
                                            {"pins", required_argument, NULL, GP_TOP_PINS},
                                            {"by", required_argument, NULL, GP_TOP_BY},
                                            {"sort", required_argument, NULL, GP_TOP_SORT},
                                            {NULL, 0, NULL, 0}};
    int code, rc = GP_EXIT_OK;
    optind = 0;
    opterr = 0;
    while (!rc && !top->help && (code = getopt_long(argc, argv, ":d:n:1p:h", options, NULL)) != -1)
        rc = top_option(top, code, argv);
    if (!rc && !top->help && optind < argc)
        rc = gp_usage_error("top", "%s: unexpected argument (processes are named with -p)", argv[optind]);
    if (!rc && !top->help && top->sort)
        rc = top_sort(top);
    if (!rc && top->once && top->samples > 1)
        rc = gp_usage_error("top", "--once and -n %lld: one or the other", (long long)top->samples);
    if (!rc && !top->help && top->system && top->by_site)
        rc = gp_usage_error("top", "--system and --by site: sites are known of one process alone");
    if (!rc && !top->help && top->pins && !top->system)
        rc = gp_usage_error("top", "--pins %s: it goes with --system", top->pins);
    return rc;
}

/* ---- printed ------------------------------------------------------------------------------------------------- */

static void top_note_losses(const struct gp_model *model)
{
    char causes[256] = "";
    for (unsigned i = 0; i < GP_LOSTS; i++) {
        size_t used = strlen(causes);
        if (model->lost[i])
            snprintf(causes + used, sizeof(causes) - used, "%s%s %llu", used ? ", " : "",
                     gp_lost_name(i) ? gp_lost_name(i) : "other", (unsigned long long)model->lost[i]);
    }
    if (model->lost_total)
        gp_error("top", "%llu events lost: %s: 'gpuprof stat' says by which process",
                 (unsigned long long)model->lost_total, causes);
}

/* Of --system: what its sums are worth.  Also beside JSON, which says the same in "agent". */
static void top_agent(const struct gp_agent *agent)
{
    char age[16];
    if (!agent->present)
        return;
    if (!agent->alive)
        gp_error("top",
                 "--system: the agent has given no sign of life for %s: these numbers stand still: start it as root: "
                 "'gpuprof agent', or 'systemctl start gpuprof-agent'",
                 gp_text_duration((double)agent->silent_ns / 1e9, age, sizeof(age)));
    if (agent->processes_hidden)
        gp_error("top", "--system: processes of other users are in the sums of containers and GPUs (--by container, "
                        "--by device), but only root may see them one by one");
    if (agent->map_full || agent->refused)
        gp_error("top", "--system: not counted: %llu updates without room in the agent's tables, %llu batches refused",
                 (unsigned long long)agent->map_full, (unsigned long long)agent->refused);
}

static void top_notes(const struct gp_model *model)
{
    const struct gp_agent *agent = &model->system->agent;
    top_agent(agent);
    if (model->system->process_count == 0 && !agent->processes_hidden)
        gp_error("top", "no profiled process: start one with 'gpuprof run CMD...'");
    if (model->system->denied_count > 0 && !agent->present)
        gp_error("top", "%d processes of other users cannot be looked at: run as root to see them",
                 model->system->denied_count);
    top_note_losses(model);
}

static int top_json(const struct gp_top *top, const struct gp_model *model, const struct gp_row_list *list, bool line)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t time_ns = (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
    json_t *object = gp_print_json(model, list, time_ns);
    if (object && top->by_site && json_object_set_new(object, "sites", gp_site_json(&top->sites)) != 0) {
        json_decref(object);
        object = NULL;
    }
    return gp_json_print(stdout, object, line);
}

/* Of sites, one sample printed; the first was taken when they were opened.  0 or -errno. */
static int top_print_sites(struct gp_top *top, bool first)
{
    char note[512];
    int err = first ? 0 : gp_site_model_update(&top->sites, note);
    if (err || top->json)
        return err;
    if (!first)
        putchar('\n');
    gp_site_print(stdout, &top->sites, gp_term_utf8());
    for (uint32_t i = 0; first && gp_site_note(&top->sites, i, note, sizeof(note)); i++)
        gp_error("top", "%s", note);
    return fflush(stdout) == 0 ? 0 : -errno;
}

/* One sample printed.  0 or -errno. */
static int top_print_one(struct gp_top *top, const struct gp_collect_options *options, struct gp_model *model,
                         struct gp_row_list *list, bool first)
{
    struct gp_system *system;
    int err = top->by_site ? top_print_sites(top, first) : 0;
    if (err || (top->by_site && !top->json))
        return err;
    err = gp_system_sample(options, &system, NULL, 0);
    if (!err)
        err = gp_model_update(model, system);
    if (!err)
        err = gp_rows_build(model, &top->ui, list);
    if (err)
        return err;
    if (top->json && first)
        top_agent(&model->system->agent);
    if (top->json)
        return top_json(top, model, list, top->samples > 0);
    if (!first)
        putchar('\n');
    gp_print_table(stdout, model, list, gp_term_utf8());
    if (first)
        top_notes(model);
    return fflush(stdout) == 0 ? 0 : -errno;
}

static int top_print(struct gp_top *top, const struct gp_collect_options *options)
{
    struct gp_model model;
    struct gp_row_list list = {0};
    int64_t samples = top->samples > 0 ? top->samples : 1;
    struct timespec pause = {top->ui.interval_ms / 1000, top->ui.interval_ms % 1000 * 1000000L};
    int err = 0;
    gp_model_init(&model);
    if (top->json)
        top->ui.by = GP_BY_PROCESS; /* the object has all of them */
    for (int64_t i = 0; i < samples && !err; i++) {
        if (i > 0)
            nanosleep(&pause, NULL);
        err = top_print_one(top, options, &model, &list, i == 0);
    }
    gp_rows_fini(&list);
    gp_model_fini(&model);
    if (!err)
        return GP_EXIT_OK;
    gp_error("top", "cannot print: %s", strerror(-err));
    return GP_EXIT_FAILED;
}

/* ---- command ------------------------------------------------------------------------------------------------- */

static int top_screen(struct gp_top *top, const struct gp_collect_options *options)
{
    int number = 0;
    int err = top->by_site ? gp_site_screen(&top->sites, top->ui.interval_ms, top->samples, &number)
                           : gp_screen_run(options, &top->ui, top->samples, &number);
    if (err == -ENOTTY) {
        gp_error("top", "TERM=%s is unknown here: printing one table", getenv("TERM"));
        return top_print(top, options);
    }
    if (number) { /* whoever sent it sees that it was heeded */
        signal(number, SIG_DFL);
        raise(number);
    }
    if (!err)
        return GP_EXIT_OK;
    gp_error("top", "the screen ended: %s", strerror(-err));
    return GP_EXIT_FAILED;
}

/* Pids that were asked for and cannot be shown end the command before anything is shown. */
static int top_check_pids(const struct gp_top *top)
{
    int rc = GP_EXIT_OK;
    for (int i = 0; i < top->target.pid_count; i++) {
        char why[256];
        if (gp_explain_pid(top->target.pids[i], why, sizeof(why)) == GP_PID_OK)
            continue;
        gp_error("top", "pid %d: %s", (int)top->target.pids[i], why);
        rc = GP_EXIT_NO_PROCESS;
    }
    return rc;
}

/* The one process whose sites are shown. */
static int top_open_sites(struct gp_top *top)
{
    char problem[GP_PROBLEM_BYTES], why[256];
    struct gp_system *system;
    int rc = gp_target_collect(&top->target, false, false, &system);
    if (rc)
        return rc;
    gp_system_free(system);
    if (top->target.pid_count != 1)
        return gp_usage_error("top", "--by site: shows one process: name one with -p PID");
    pid_t pid = top->target.pids[0];
    int err = gp_site_model_open(&top->sites, pid, problem);
    if (err == -ENOENT) {
        gp_error("top",
                 "pid %d: it runs without stacks, so that its call sites are not known: start it with 'gpuprof run "
                 "--stacks=all CMD...' (or native, or python), or with GPUPROF_STACKS=all in its environment",
                 (int)pid);
        return GP_EXIT_FAILED;
    }
    if (err) {
        if (!problem[0] && gp_explain_pid(pid, why, sizeof(why)) == GP_PID_OK)
            snprintf(why, sizeof(why), "%s", strerror(-err));
        gp_error("top", "pid %d: %s", (int)pid, problem[0] ? problem : why);
        return err == -ESRCH || err == -EACCES ? GP_EXIT_NO_PROCESS : GP_EXIT_FAILED;
    }
    if (top->sort) {
        enum gp_site_column column = gp_site_column_find(top->sort);
        gp_site_model_sort(&top->sites, column, column == GP_SITE_SITE || column <= GP_SITE_KIND);
    }
    return GP_EXIT_OK;
}

/* Whether there is anything to show is said before the screen opens. */
static int top_check_agent(const char *pins)
{
    struct gp_system_view *view;
    char why[GP_SYSTEM_WHY];
    if (gp_system_view_read(&view, pins, why, sizeof(why)) != 0) {
        gp_error("top", "--system: %s", why);
        return GP_EXIT_IMPOSSIBLE;
    }
    gp_system_view_free(view);
    return GP_EXIT_OK;
}

int gp_cmd_top(int argc, char **argv)
{
    struct gp_top top = {.target = GP_TARGET_INIT("top")};
    gp_ui_init(&top.ui);
    int rc = top_parse(argc, argv, &top);
    if (!rc && top.help) {
        fputs(top_help, stdout);
    } else if (!rc) {
        const char *pins = !top.system ? NULL : top.pins ? top.pins : GP_MAPS_PINS;
        rc = pins ? top_check_agent(pins) : top_check_pids(&top);
        struct gp_collect_options options = {.pids = top.target.pids,
                                             .pid_count = top.target.pid_count,
                                             .exact = true,
                                             .with_nvml = true,
                                             .pins = pins,
                                             .deadline_ns = GP_TOP_ANSWER_NS};
        if (!rc && top.by_site)
            rc = top_open_sites(&top);
        if (!rc)
            rc = top.once || top.json || !gp_term_usable() ? top_print(&top, &options) : top_screen(&top, &options);
    }
    gp_site_model_close(&top.sites);
    gp_target_free(&top.target);
    return rc;
}
