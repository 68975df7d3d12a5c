/* SPDX-License-Identifier: MIT
 * column.c: see column.h. */
#include <show/terminal/column.h>

#include <base/numbers.h>
#include <math.h>
#include <show/terminal/grid.h>
#include <show/terminal/model.h>
#include <show/terminal/outlook.h>
#include <show/terminal/siteview.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <symbol/symbol.h>

/* ---- values ------------------------------------------------------------------------------------------------------ */

static double known(int64_t number)
{
    return number < 0 ? NAN : (double)number;
}

static double value_pid(const struct gp_row *row)
{
    return row->id.pid > 0 ? row->id.pid : NAN;
}

/* A site that runs on no known device is last. */
static double value_device(const struct gp_row *row)
{
    return known(row->site ? row->site->device : row->id.device);
}

static double value_allocated(const struct gp_row *row)
{
    return known(row->allocated);
}

static double value_peak(const struct gp_row *row)
{
    return known(row->allocated_peak);
}

static double value_reserved(const struct gp_row *row)
{
    return known(row->reserved);
}

static double value_reserved_peak(const struct gp_row *row)
{
    return known(row->reserved_peak);
}

static double value_asleep(const struct gp_row *row)
{
    return row->asleep > 0 ? (double)row->asleep : NAN;
}

/* Neither host memory nor a sum over GPUs has a total. */
static double value_total(const struct gp_row *row)
{
    return row->id.device >= 0 && row->allocated >= 0 && row->total > 0 ? (double)row->total : NAN;
}

static double value_allocs(const struct gp_row *row)
{
    return row->allocs_per_s;
}

static double value_frees(const struct gp_row *row)
{
    return row->frees_per_s;
}

static double value_lost(const struct gp_row *row)
{
    return known(row->lost);
}

static double value_untracked(const struct gp_row *row)
{
    return known(row->untracked);
}

static double value_before(const struct gp_row *row)
{
    return known(row->before);
}

/* Only a pair has a forecast. */
static double value_headroom(const struct gp_row *row)
{
    return row->outlook && row->id.kind == GP_ROW_PAIR ? known(row->outlook->result.headroom_bytes) : NAN;
}

static double value_oom(const struct gp_row *row)
{
    double seconds = row->outlook && row->id.kind == GP_ROW_PAIR ? row->outlook->result.seconds_to_oom : -1;
    return seconds < 0 ? NAN : seconds;
}

/* These are of a call site, or of the process that sums its call sites in the tree. */
static double value_live(const struct gp_row *row)
{
    return row->site ? (double)row->site->live : known(row->allocated);
}

static double value_site_peak(const struct gp_row *row)
{
    return row->site ? (double)row->site->peak : known(row->allocated_peak);
}

static double value_at_peak(const struct gp_row *row)
{
    return row->site ? (double)row->site->at_peak : NAN;
}

static double value_share(const struct gp_row *row)
{
    return row->site ? row->site->share : NAN;
}

static double value_calls(const struct gp_row *row)
{
    return row->site ? row->site->calls_per_s : row->allocs_per_s;
}

static double value_delta(const struct gp_row *row)
{
    return row->site ? row->site->delta_per_s : NAN;
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

#define TEXT_ARGS                                                                                                      \
    __attribute__((unused)) double value, __attribute__((unused)) const struct gp_row *row,                            \
        __attribute__((unused)) const struct gp_column_say *say, char *out, size_t out_bytes

static void text_none(TEXT_ARGS)
{
    if (out_bytes)
        out[0] = '\0';
}

/* -1: unknown. What a hostile process claims may not fit. */
static int64_t text_whole(double value)
{
    return isnan(value) ? -1 : value < 0x1p63 ? (int64_t)value : INT64_MAX;
}

static void text_bytes(TEXT_ARGS)
{
    gp_grid_bytes(text_whole(value), say->form, out, out_bytes);
}

static void text_marked(const char *mark, TEXT_ARGS)
{
    char number[32];
    text_bytes(value, row, say, number, sizeof(number));
    snprintf(out, out_bytes, "%s%s", isnan(value) ? "" : mark, number);
}

/* "~": the value contains estimates. */
static void text_sum(TEXT_ARGS)
{
    text_marked(row->estimated ? "~" : "", value, row, say, out, out_bytes);
}

/* ">=": what the program had before an attach is not in it. */
static void text_least(TEXT_ARGS)
{
    if (row->late)
        text_marked(say->ascii ? ">=" : "\u2265", value, row, say, out, out_bytes);
    else
        text_sum(value, row, say, out, out_bytes);
}

/* ">=": also for the highest sum that this viewer saw, a lower bound of the peak. */
static void text_peak(TEXT_ARGS)
{
    if (row->seen_peak || row->late)
        text_marked(say->ascii ? ">=" : "\u2265", value, row, say, out, out_bytes);
    else
        text_sum(value, row, say, out, out_bytes);
}

static void text_signed(TEXT_ARGS)
{
    char number[32];
    double size = fabs(value);
    if (isnan(value) || size < 1) {
        snprintf(out, out_bytes, isnan(value) ? "-" : "0");
        return;
    }
    gp_grid_bytes(text_whole(size), say->form, number, sizeof(number));
    snprintf(out, out_bytes, "%c%s", value < 0 ? '-' : '+', number);
}

static void text_rate(TEXT_ARGS)
{
    gp_grid_rate(value, out, out_bytes);
}

static void text_count(TEXT_ARGS)
{
    gp_grid_count(text_whole(value), out, out_bytes);
}

static void text_share(TEXT_ARGS)
{
    snprintf(out, out_bytes, isnan(value) ? "-" : "%.1f", 100 * value);
}

static void text_duration(TEXT_ARGS)
{
    if (isnan(value))
        snprintf(out, out_bytes, "-");
    else
        gp_grid_duration(value, out, out_bytes);
}

static void text_pid(TEXT_ARGS)
{
    snprintf(out, out_bytes, row->id.pid > 0 ? "%d" : "-", (int)row->id.pid);
}

static void text_user(TEXT_ARGS)
{
    snprintf(out, out_bytes, "%s", row->process && row->process->user[0] ? row->process->user : "-");
}

static void text_device(TEXT_ARGS)
{
    const struct gp_model *model = say->model;
    if (row->site && row->site->device >= 0 && row->site->device != (int)GP_WIRE_HOST)
        snprintf(out, out_bytes, "%d", row->site->device);
    else if (row->site && row->site->device == (int)GP_WIRE_HOST)
        snprintf(out, out_bytes, "host");
    else if (row->id.device == GP_MODEL_HOST)
        snprintf(out, out_bytes, "host");
    else if (row->id.device >= 0 && row->id.device < model->gpu_count &&
             !gp_model_gpu_known(&model->gpus[row->id.device]))
        snprintf(out, out_bytes, "?");
    else if (row->id.device >= 0 && row->id.device < model->gpu_count)
        snprintf(out, out_bytes, "%d", model->gpus[row->id.device].index);
    else if (row->id.kind == GP_ROW_PROCESS && row->members > 1)
        snprintf(out, out_bytes, "%dx", row->members);
    else
        snprintf(out, out_bytes, "-");
}

/* The screen leaves out the folders of the program's path, so that its name comes first. */
static const char *text_program(const struct gp_process *process, enum gp_text_form form)
{
    const char *line = process->cmdline[0] ? process->cmdline : process->comm;
    if (form != GP_TEXT_SHORT || line[0] == '[') /* a kernel thread: "[kworker/0:1]" */
        return line;
    const char *end = line + strcspn(line, " "), *name = end;
    while (name > line && name[-1] != '/')
        name--;
    return name < end ? name : line;
}

static void text_command(TEXT_ARGS)
{
    const struct gp_model *model = say->model;
    bool is_gpu = row->id.kind == GP_ROW_DEVICE && row->id.device >= 0 && row->id.device < model->gpu_count;
    const struct gp_gpu *gpu = is_gpu ? &model->gpus[row->id.device] : NULL;
    const char *name = row->id.container[0] ? row->id.container : "(no container)";
    if (gpu)
        name = gp_model_gpu_label(gpu);
    else if (row->id.owner[0])
        name = row->id.owner;
    if (row->process)
        snprintf(out, out_bytes, "%s%s%s", text_program(row->process, say->form),
                 row->process->ray_job[0] ? "  job " : "", row->process->ray_job);
    else if (say->form == GP_TEXT_SHORT)
        snprintf(out, out_bytes, "%s (%d)", name, row->members);
    else
        snprintf(out, out_bytes, "%s: %d %s", name, row->members, row->members == 1 ? "process" : "processes");
}

static void text_container(TEXT_ARGS)
{
    snprintf(out, out_bytes, "%s",
             row->process && row->process->container[0] ? row->process->container
             : row->id.container[0]                     ? row->id.container
                                                        : "-");
}

/* Out of memory is about the program, so it comes before the words about the profiler. */
static void text_state(TEXT_ARGS)
{
    const struct gp_process *process = row->process;
    snprintf(out, out_bytes, "%s",
             process && process->oom.count && gp_model_process_live(process) ? "oom" : gp_model_process_word(process));
}

static void text_kind(TEXT_ARGS)
{
    bool one = row->site && row->site->kind != GP_KIND_NONE; /* else before stacks: any */
    const char *kind = one ? gp_kind_name(row->site->kind) : NULL;
    snprintf(out, out_bytes, "%s", kind ? kind : "-");
}

static void text_site(TEXT_ARGS)
{
    if (row->site)
        gp_caller_line(row->site->name, row->site->operation, row->site->caller, row->site->callee, out, out_bytes);
    else
        text_command(value, row, say, out, out_bytes);
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

const struct gp_column gp_columns[GP_COLUMNS] = {
#define GP_COLUMN(_id, _name, _width, _print_width, _in, _form, _keep, _value, _text, _style, _shown, _what)           \
    [GP_COLUMN_##_id] = {                                                                                              \
        _name, _width, _print_width, _in, GP_FORM_##_form, _keep, _value, _text, GP_STYLE_##_style, GP_SHOWN_##_shown, \
        _what},
#include <show/terminal/column.def>
};

bool gp_column_in(enum gp_column_id id, bool sites)
{
    return gp_columns[id].in & (sites ? GP_IN_SITES : GP_IN_PROCESSES);
}

bool gp_column_sorts(enum gp_column_id id, bool sites)
{
    return gp_columns[id].form != GP_FORM_DRAWN && gp_column_in(id, sites);
}

enum gp_column_id gp_column_find(const char *name, bool sites)
{
    for (int i = 0; i < GP_COLUMNS; i++)
        if (gp_column_sorts((enum gp_column_id)i, sites) && strcasecmp(gp_columns[i].name, name) == 0)
            return (enum gp_column_id)i;
    return GP_COLUMNS;
}

bool gp_column_ascends(enum gp_column_id id)
{
    return gp_columns[id].form != GP_FORM_NUMBER;
}

double gp_column_value(enum gp_column_id id, const struct gp_row *row)
{
    return gp_columns[id].value ? gp_columns[id].value(row) : NAN;
}

const char *gp_column_text(enum gp_column_id id, const struct gp_row *row, const struct gp_model *model,
                           enum gp_text_form form, bool ascii, char *out, size_t out_bytes)
{
    const struct gp_column_say say = {model, form, ascii};
    (gp_columns[id].text ? gp_columns[id].text : text_bytes)(gp_column_value(id, row), row, &say, out, out_bytes);
    return out;
}

static int column_unknown(bool a, bool b)
{
    return (a ? 1 : 0) | (b ? 2 : 0);
}

int gp_column_compare(enum gp_column_id id, const struct gp_row *a, const struct gp_row *b,
                      const struct gp_model *model, int *unknown)
{
    *unknown = 0;
    if (gp_columns[id].value) {
        double x = gp_columns[id].value(a), y = gp_columns[id].value(b);
        *unknown = column_unknown(isnan(x), isnan(y));
        return *unknown ? 0 : (x > y) - (x < y);
    }
    if (id == GP_COLUMN_SITE && a->site && b->site) /* labels are long, and most differ in the function */
        return strcmp(a->site->name->function, b->site->name->function);
    char left[512], right[512];
    gp_column_text(id, a, model, GP_TEXT_SHORT, true, left, sizeof(left));
    gp_column_text(id, b, model, GP_TEXT_SHORT, true, right, sizeof(right));
    *unknown = column_unknown(strcmp(left, "-") == 0, strcmp(right, "-") == 0);
    return *unknown ? 0 : strcasecmp(left, right);
}

/* The narrowest last column of use.  12 columns show the first word of most commands, and 24 often
 * the argument in which they differ.  Containers and GPUs differ in long ids, and a pod's name has
 * two parts.  A call site has a function and a line. */
static int columns_last(int width, const struct gp_column_choice *choice)
{
    int command = width < 60 ? 12 : width < 100 ? 16 : 24;
    if (choice->groups)
        return 30;
    if (choice->sites)
        return width < 60 ? 12 : 34;
    return command;
}

static int column_width(const struct gp_column_choice *choice, int i)
{
    return choice->printed ? gp_columns[i].print_width : gp_columns[i].width;
}

int gp_columns_fit(int width, const struct gp_column_choice *choice, enum gp_column_id ids[GP_COLUMNS], int *rest)
{
    const enum gp_column_id last = choice->sites ? GP_COLUMN_SITE : GP_COLUMN_COMMAND;
    const int least = columns_last(width, choice);
    bool dropped[GP_COLUMNS];
    for (int i = 0; i < GP_COLUMNS; i++)
        dropped[i] = i != (int)last && (choice->empty[i] || !column_width(choice, i) ||
                                        !gp_column_in((enum gp_column_id)i, choice->sites) ||
                                        (choice->groups && gp_columns[i].in & GP_IN_ROWS));
    for (;;) {
        int used = least, lowest = -1;
        for (int i = 0; i < GP_COLUMNS; i++) {
            if (dropped[i] || i == (int)last)
                continue;
            used += column_width(choice, i) + 1;
            if (i != GP_COLUMN_PID && (lowest < 0 || gp_columns[i].keep < gp_columns[lowest].keep))
                lowest = i;
        }
        if (used <= width || lowest < 0) {
            *rest = width - (used - least);
            break;
        }
        dropped[lowest] = true;
    }
    int count = 0;
    for (int i = 0; i < GP_COLUMNS; i++) {
        if (!dropped[i])
            ids[count++] = (enum gp_column_id)i;
    }
    if (*rest < 0)
        *rest = 0;
    return count;
}
