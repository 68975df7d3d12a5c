/* SPDX-License-Identifier: MIT
 *
 * top.c: `gpuprof top`: options, and the choice between the screen, the printed table and JSON.
 * Called by commands.c.
 */
#include <cmd/cmd.h>

#include <agent/maps/maps.h>
#include <base/numbers.h>
#include <errno.h>
#include <show/terminal/column.h>
#include <show/terminal/grid.h>
#include <show/terminal/model.h>
#include <show/terminal/outlook.h>
#include <show/terminal/print.h>
#include <show/terminal/siteview.h>
#include <show/terminal/term.h>
#include <show/terminal/ui.h>
#include <show/text/write.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A running process answers in microseconds; a stopped one delays every frame by this. */
#define GP_TOP_ANSWER_NS 100000000ull

struct gp_top {
    struct gp_target target; /* -p */
    struct gp_ui ui;
    const char *sort; /* NULL: not given */
    int by;           /* enum gp_by */
    int interval_ms;
    int64_t samples; /* 0: not given */
    const char *pins;
    bool once, json, system, by_site;
    struct gp_site_model sites; /* with by_site */
    struct gp_growth growth;
};

/* ---- options ------------------------------------------------------------------------------------------------- */

static int top_delay(void *options, const struct gp_command_option *option, const char *text)
{
    struct gp_top *top = options;
    char *end;
    double seconds = strtod(text, &end);
    (void)option;
    if (end == text || *end || !(seconds >= 0.1 && seconds <= 3600))
        return gp_usage_error("top", "--delay=%s: not a number of seconds from 0.1 to 3600", text);
    top->interval_ms = (int)(seconds * 1000 + 0.5);
    return GP_EXIT_OK;
}

/* The columns that --sort takes: those of processes, then those that only sites have. */
static const char *top_column(unsigned i)
{
    for (int k = 0; k < GP_COLUMNS; k++) {
        bool of_processes = gp_column_sorts((enum gp_column_id)k, false);
        bool known = !of_processes && gp_column_find(gp_columns[k].name, false) != GP_COLUMNS;
        if ((of_processes || gp_column_sorts((enum gp_column_id)k, true)) && !known && i-- == 0)
            return gp_columns[k].name;
    }
    return NULL;
}

/* Processes and sites have columns of their own. */
static int top_sort(struct gp_top *top)
{
    char names[256] = "";
    enum gp_column_id column = gp_column_find(top->sort, top->by_site);
    if (column != GP_COLUMNS) {
        *(top->by_site ? &top->ui.site_sort : &top->ui.sort) = column;
        *(top->by_site ? &top->ui.site_ascending : &top->ui.ascending) = gp_column_ascends(column);
        return GP_EXIT_OK;
    }
    for (int i = 0; i < (int)GP_COLUMNS; i++) {
        size_t used = strlen(names);
        if (gp_column_sorts((enum gp_column_id)i, top->by_site))
            snprintf(names + used, sizeof(names) - used, "%s%s", used ? ", " : "", gp_columns[i].name);
    }
    return gp_usage_error("top", "--sort=%s: no such column: choose one of %s", top->sort, names);
}

static int top_check(void *options)
{
    struct gp_top *top = options;
    gp_ui_init(&top->ui);
    top->ui.interval_ms = top->interval_ms;
    top->by_site = top->by == GP_BY_SITE;
    top->ui.by = (enum gp_by)top->by;
    int rc = top->sort ? top_sort(top) : GP_EXIT_OK;
    if (rc)
        return rc;
    if (top->once && top->samples > 1)
        return gp_usage_error("top", "--once and --samples=%lld: one or the other", (long long)top->samples);
    if (top->system && top->by_site)
        return gp_usage_error("top", "--system and --by=site: call sites are known for one process alone");
    if (top->pins && !top->system)
        return gp_usage_error("top", "--pins %s: it goes with --system", top->pins);
    return GP_EXIT_OK;
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
        gp_error("top", "%llu events lost: %s: 'gpuprof stat' shows which process lost them",
                 (unsigned long long)model->lost_total, causes);
}

/* Reports problems of the agent, with --system.  With JSON too, where "agent" has the same
 * facts. */
static void top_agent(const struct gp_agent *agent)
{
    char age[16];
    if (!agent->present)
        return;
    if (!agent->alive)
        gp_error("top",
                 "--system: the agent has not reported for %s and these numbers are not updated: start it as root with "
                 "'gpuprof agent' or 'systemctl start gpuprof-agent'",
                 gp_grid_duration((double)agent->silent_ns / 1e9, age, sizeof(age)));
    if (agent->processes_hidden)
        gp_error("top", "--system: processes of other users are in the sums of containers and GPUs (--by container, "
                        "--by device), but only root may see them one by one");
    if (agent->map_full || agent->refused)
        gp_error("top",
                 "--system: not counted: %llu updates, because the agent's tables were full, and %llu refused batches",
                 (unsigned long long)agent->map_full, (unsigned long long)agent->refused);
}

static void top_notes(const struct gp_model *model)
{
    const struct gp_agent *agent = &model->system->agent;
    top_agent(agent);
    if (model->system->process_count == 0 && !agent->processes_hidden)
        gp_error("top", "no profiled process: start one with 'gpuprof run CMD...'");
    if (model->system->denied_count > 0 && !agent->present)
        gp_error("top", "%d processes of other users cannot be read: run as root to see them",
                 model->system->denied_count);
    if (model->system->unsearched_count > 0)
        gp_error("top",
                 "%d processes have more open files than could be looked at in time: their sessions may be missing "
                 "here; -p PID searches one of them for longer",
                 model->system->unsearched_count);
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

/* Prints one sample of the call sites; opening them took the first.  0 or -errno. */
static int top_print_sites(struct gp_top *top, bool first)
{
    char note[512];
    int err = first ? 0 : gp_site_model_ask(&top->sites, note);
    if (err || top->json)
        return err;
    if (!first)
        putchar('\n');
    const struct gp_print_form form = {gp_term_utf8(), gp_term_width()};
    err = gp_site_print(stdout, &top->sites, &form);
    for (uint32_t i = 0; first && gp_site_note(&top->sites, i, note, sizeof(note)); i++)
        gp_error("top", "%s", note);
    return fflush(stdout) == 0 ? 0 : -errno;
}

/* Prints one sample.  0 or -errno. */
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
        gp_outlook_growth_look(&top->growth, model);
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
    const struct gp_print_form form = {gp_term_utf8(), gp_term_width()};
    gp_print_table(stdout, model, list, &form);
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
        top->ui.by = GP_BY_PROCESS; /* the JSON object has all groups */
    for (int64_t i = 0; i < samples && !err; i++) {
        if (i > 0)
            nanosleep(&pause, NULL);
        err = top_print_one(top, options, &model, &list, i == 0);
    }
    gp_rows_fini(&list);
    gp_outlook_growth_fini(&top->growth);
    gp_model_fini(&model);
    if (!err)
        return GP_EXIT_OK;
    if (err == -EPIPE)
        return gp_write_error("top", NULL, EPIPE);
    gp_error("top", "cannot print: %s", strerror(-err));
    return GP_EXIT_FAILED;
}

/* ---- command ------------------------------------------------------------------------------------------------- */

/* Opens the call sites of the one process of --by=site. */
static int top_open_sites(struct gp_top *top)
{
    char problem[GP_PROBLEM_BYTES], why[256];
    struct gp_system *system;
    int rc = gp_target_collect(&top->target, false, false, &system);
    if (rc)
        return rc;
    gp_system_free(system);
    if (top->target.pid_count != 1)
        return gp_usage_error("top", "--by=site shows one process: name it with -p PID");
    pid_t pid = top->target.pids[0];
    int err = gp_site_model_open(&top->sites, pid, problem);
    if (err == -ENOENT) {
        gp_error("top",
                 "pid %d: it runs without stacks, so its call sites are unknown: " GP_SITE_HINT " (or python, or all)",
                 (int)pid);
        return GP_EXIT_FAILED;
    }
    if (err) {
        if (!problem[0] && gp_collect_explain_pid(pid, why, sizeof(why)) == GP_PID_OK)
            snprintf(why, sizeof(why), "%s", strerror(-err));
        gp_error("top", "pid %d: %s", (int)pid, problem[0] ? problem : why);
        return err == -ESRCH || err == -EACCES ? GP_EXIT_NO_PROCESS : GP_EXIT_FAILED;
    }
    gp_site_model_sort(&top->sites, top->ui.site_sort, top->ui.site_ascending);
    return GP_EXIT_OK;
}

static int top_screen(struct gp_top *top, const struct gp_collect_options *options)
{
    int number = 0;
    int err = gp_screen_run(options, &top->ui, top->samples, &number);
    if (err == -ENOTTY) {
        gp_error("top", "TERM=%s is unknown here: printing one table", getenv("TERM"));
        int rc = top->by_site ? top_open_sites(top) : GP_EXIT_OK;
        return rc ? rc : top_print(top, options);
    }
    if (number) { /* end by the signal itself, so that its sender sees it */
        signal(number, SIG_DFL);
        raise(number);
    }
    if (!err)
        return GP_EXIT_OK;
    gp_error("top", "the screen ended: %s", strerror(-err));
    return GP_EXIT_FAILED;
}

/* A pid of -p that cannot be shown ends the command before anything is printed. */
static int top_check_pids(const struct gp_top *top)
{
    int rc = GP_EXIT_OK;
    for (int i = 0; i < top->target.pid_count; i++) {
        char why[256];
        if (gp_collect_explain_pid(top->target.pids[i], why, sizeof(why)) == GP_PID_OK)
            continue;
        gp_error("top", "pid %d: %s", (int)top->target.pids[i], why);
        rc = GP_EXIT_NO_PROCESS;
    }
    return rc;
}

/* Reports a missing agent before the screen opens. */
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

static int top_run(void *options)
{
    struct gp_top *top = options;
    const char *pins = !top->system ? NULL : top->pins ? top->pins : GP_MAPS_PINS;
    int rc = pins ? top_check_agent(pins) : top_check_pids(top);
    struct gp_collect_options collect = {.pids = top->target.pids,
                                         .pid_count = top->target.pid_count,
                                         .exact = true,
                                         .with_nvml = true,
                                         .pins = pins,
                                         .deadline_ns = GP_TOP_ANSWER_NS};
    bool screen = !top->once && !top->json && gp_term_usable();
    /* A named process whose call sites are unknown is an error; the screen says it of the others. */
    if (!rc && top->by_site && (!screen || top->target.pid_count == 1))
        rc = top_open_sites(top);
    if (screen) /* it opens them itself */
        gp_site_model_close(&top->sites);
    if (!rc)
        rc = screen ? top_screen(top, &collect) : top_print(top, &collect);
    gp_site_model_close(&top->sites);
    return rc;
}

static const struct gp_command_option top_options[] = {
    {.name = "delay",
     .letter = 'd',
     .argument = "SECS",
     .help = "time between two samples, 0.1 to 3600 (default 1)",
     .type = GP_ARG_TEXT,
     .parse = top_delay},
    GP_OPTION(struct gp_top, samples, 'n', "samples", "N", GP_ARG_NUMBER, "end after N samples", .low = 1),
    GP_FLAG(struct gp_top, once, '1', "once", "print one table and end; rates need two samples and are '-'"),
    GP_FLAG(struct gp_top, json, 0, "json",
            "print an object of schema gpuprof.top/1 per sample; with -n, one per line"),
    GP_OPTION_PIDS(struct gp_top),
    GP_OPTION(struct gp_top, by, 0, "by", "WHAT", GP_ARG_INDEX,
              "the meaning of a row: 'owner' is the library that asked the driver, 'site' is a call site, on the "
              "screen of all processes, else of the one of -p",
              .words = GP_LIST("process", "device", "container", "owner", "site")),
    GP_OPTION(struct gp_top, sort, 0, "sort", "COLUMN", GP_ARG_CHOICE, "sort by this column", .choice = top_column,
              .any_case = true),
    GP_FLAG(struct gp_top, system, 0, "system", "show the whole machine, as 'gpuprof agent' counts it"),
    GP_OPTION_PINS(struct gp_top),
    {0}};

const struct gp_command_spec gp_command_top = {
    .name = "top",
    .summary = "watch which processes hold which GPU memory, live",
    .group = GP_GROUP_WATCH,
    .usage = GP_LIST("[-d SECS] [-n N] [-1] [--json] [-p PID,..] [--by=WHAT] [--sort=COLUMN] [--system [--pins=DIR]]"),
    .about = GP_LIST(
        "Shows the GPU memory of processes, devices, containers and owners (PyTorch, NCCL, the program ...), live. "
        "Without a terminal it prints one table. On the screen, F3 goes from processes to GPUs, containers, owners and "
        "call sites, s to the call sites of the "
        "selected row, and the key h lists the keys.",
        "'-' (null in JSON) means unknown, '~' that the number contains estimates. Peaks of a process are exact. The "
        "peak of a GPU or a container is not the sum of the peaks of its processes: '>=' marks the highest sum that "
        "this command has seen, or the highest peak of one process, if that is more.",
        "With '--system' the numbers cover the processes of all users, containers and GPUs, with exact peaks. Without "
        "root, the processes of other users may appear in the sums only. '--by=site' needs a process that takes "
        "stacks: 'gpuprof stacks' switches them on."),
    .details = GP_LIST(
        "A table that is printed on a terminal has the terminal's width: lines are cut, and a narrow table has fewer "
        "columns. In a pipe or a file it has every column and whole lines.",
        "The rows of '--by=site' show the memory of each call site now, at its own peak and at the peak of the device, "
        "and how fast it changes.",
        "The peaks of '--system' include processes that have ended. A user without access to the agent's table of "
        "processes sees all sums, only his own processes, and a message. An agent that has not reported for 5 seconds "
        "is reported as gone, and its numbers are not updated. If no agent has pinned tables, the exit status is 77."),
    .options = top_options,
    .examples =
        GP_EXAMPLES({"gpuprof top", "Watch your profiled processes, or with root those of all users."},
                    {"gpuprof top --by site -p 1234", "Watch which call sites of a process hold its memory."},
                    {"gpuprof top --system --by container --once", "Print the GPU memory of each container once."}),
    GP_DEFAULTS(struct gp_top, .target = GP_TARGET_INIT("top"), .interval_ms = 1000),
    .surplus = "processes are named with -p",
    .check = top_check,
    .run = top_run,
};
