/* SPDX-License-Identifier: MIT
 * column.c: see column.h. */
#include <view/column.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <view/outlook.h>
#include <view/siteview.h>
#include <view/state.h>
#include <write/stats.h>

/* A width of 7 holds "~99.9G", or "1023M" after a mark; a printed width of 9 holds ">=1023MiB". */
const struct gp_column gp_columns[GP_COLUMNS] = {
    [GP_COLUMN_PID] = {"PID", 7, 7, true, false, 100, "process id"},
    [GP_COLUMN_USER] = {"USER", 8, 8, false, false, 60, "owner"},
    [GP_COLUMN_DEV] = {"DEV", 4, 4, true, false, 85, "GPU, or host memory"},
    [GP_COLUMN_ALLOC] = {"ALLOC", 7, 9, true, true, 99, "allocated now"},
    [GP_COLUMN_PEAK] = {"PEAK", 7, 9, true, true, 95, "peak of allocated"},
    [GP_COLUMN_RESERVED] = {"RESERVED", 8, 9, true, true, 90, "reserved from the driver now"},
    [GP_COLUMN_RPEAK] = {"R-PEAK", 7, 9, true, true, 80, "peak of reserved"},
    [GP_COLUMN_BAR] = {"OF TOTAL", 14, 0, false, true, 52, "allocated and reserved within the GPU"},
    [GP_COLUMN_ALLOCS] = {"ALLOC/S", 7, 8, true, true, 51, "allocations per second"},
    [GP_COLUMN_FREES] = {"FREE/S", 7, 8, true, true, 50, "frees per second"},
    [GP_COLUMN_LOST] = {"LOST", 6, 6, true, true, 75, "events lost"},
    [GP_COLUMN_UNTRACKED] = {"UNTRACKED", 9, 9, true, true, 30, "held on the GPU beyond the profiled calls"},
    [GP_COLUMN_HEADROOM] = {"HEADROOM", 8, 0, true, true, 55, "what the process can still allocate"},
    [GP_COLUMN_BEFORE] = {"BEFORE", 7, 0, true, true, 88, "from before the attach, in no other number"},
    [GP_COLUMN_OOM_IN] = {"OOM IN", 7, 0, true, true, 94, "time until the memory runs out, where it is certain"},
    [GP_COLUMN_CONTAINER] = {"CONTAINER", 20, 12, false, false, 20, "container id"},
    [GP_COLUMN_STATE] = {"STATE", 8, 8, false, false, 70, "live, stale, damaged, foreign, ..."},
    [GP_COLUMN_COMMAND] = {"COMMAND", 0, 0, false, false, 101, "command line"},
    [GP_COLUMN_KIND] = {"KIND", 10, 10, false, false, 80, "kind of memory"},
    [GP_COLUMN_LIVE] = {"LIVE", 8, 10, true, true, 99, "bytes held now"},
    [GP_COLUMN_SITE_PEAK] = {"PEAK", 8, 10, true, true, 70, "most bytes held at one time"},
    [GP_COLUMN_AT_PEAK] = {"AT-PEAK", 8, 10, true, true, 50, "bytes held at the peak of the device"},
    [GP_COLUMN_SHARE] = {"%PEAK", 6, 6, true, true, 60, "share of the peak of the device"},
    [GP_COLUMN_CALLS] = {"CALLS/S", 8, 8, true, true, 40, "allocations per second"},
    [GP_COLUMN_DELTA] = {"DELTA/S", 9, 11, true, true, 65, "bytes gained or lost per second"},
    [GP_COLUMN_SITE] = {"SITE", 0, 0, false, false, 101, "function, file and line"},
};

/* The columns of call sites begin with two that processes have too. */
bool gp_column_in(enum gp_column_id id, bool sites)
{
    return id < GP_COLUMN_KIND ? !sites || id == GP_COLUMN_PID || id == GP_COLUMN_DEV : sites;
}

enum gp_column_id gp_column_find(const char *name, bool sites)
{
    for (int i = 0; i < GP_COLUMNS; i++) {
        if (i != GP_COLUMN_BAR && gp_column_in((enum gp_column_id)i, sites) &&
            strcasecmp(gp_columns[i].name, name) == 0)
            return (enum gp_column_id)i;
    }
    return GP_COLUMNS;
}

bool gp_column_ascends(enum gp_column_id id)
{
    return !gp_columns[id].numeric;
}

static int64_t column_integer(enum gp_column_id id, const struct gp_row *row)
{
    switch (id) {
    case GP_COLUMN_PID:
        return row->id.pid > 0 ? row->id.pid : -1;
    case GP_COLUMN_ALLOC:
        return row->allocated;
    case GP_COLUMN_PEAK:
        return row->allocated_peak;
    case GP_COLUMN_RESERVED:
        return row->reserved;
    case GP_COLUMN_RPEAK:
        return row->reserved_peak;
    case GP_COLUMN_LOST:
        return row->lost;
    case GP_COLUMN_UNTRACKED:
        return row->untracked;
    case GP_COLUMN_BEFORE:
        return row->before;
    default:
        return -1;
    }
}

static const char *column_device(const struct gp_row *row, const struct gp_model *model, char *out, size_t out_bytes)
{
    if (row->site && row->site->device >= 0 && row->site->device != (int)GP_WIRE_HOST)
        snprintf(out, out_bytes, "%d", row->site->device);
    else if (row->site && row->site->device == (int)GP_WIRE_HOST)
        snprintf(out, out_bytes, "host");
    else if (row->id.device == GP_MODEL_HOST)
        snprintf(out, out_bytes, "host");
    else if (row->id.device >= 0 && row->id.device < model->gpu_count && !gp_gpu_known(&model->gpus[row->id.device]))
        snprintf(out, out_bytes, "?");
    else if (row->id.device >= 0 && row->id.device < model->gpu_count)
        snprintf(out, out_bytes, "%d", model->gpus[row->id.device].index);
    else if (row->id.kind == GP_ROW_PROCESS && row->members > 1)
        snprintf(out, out_bytes, "%dx", row->members);
    else
        snprintf(out, out_bytes, "-");
    return out;
}

/* The screen leaves out the folders of the program's path, so that its name comes first. */
static const char *column_program(const struct gp_process *process, enum gp_text_form form)
{
    const char *line = process->cmdline[0] ? process->cmdline : process->comm;
    if (form != GP_TEXT_SHORT || line[0] == '[') /* a kernel thread: "[kworker/0:1]" */
        return line;
    const char *end = line + strcspn(line, " "), *name = end;
    while (name > line && name[-1] != '/')
        name--;
    return name < end ? name : line;
}

/* Only a pair has a forecast; -1: unknown. */
static int64_t column_headroom(const struct gp_row *row)
{
    return row->outlook && row->id.kind == GP_ROW_PAIR ? row->outlook->result.headroom_bytes : -1;
}

static double column_oom(const struct gp_row *row)
{
    double seconds = row->outlook && row->id.kind == GP_ROW_PAIR ? row->outlook->result.seconds_to_oom : -1;
    return seconds < 0 ? NAN : seconds;
}

static const char *column_command(const struct gp_row *row, const struct gp_model *model, enum gp_text_form form,
                                  char *out, size_t out_bytes)
{
    bool is_gpu = row->id.kind == GP_ROW_DEVICE && row->id.device >= 0 && row->id.device < model->gpu_count;
    const struct gp_gpu *gpu = is_gpu ? &model->gpus[row->id.device] : NULL;
    const char *name = gpu                    ? gp_gpu_label(gpu)
                       : row->id.owner[0]     ? row->id.owner
                       : row->id.container[0] ? row->id.container
                                              : "(no container)";
    if (row->process)
        snprintf(out, out_bytes, "%s", column_program(row->process, form));
    else if (form == GP_TEXT_SHORT)
        snprintf(out, out_bytes, "%s (%d)", name, row->members);
    else
        snprintf(out, out_bytes, "%s: %d %s", name, row->members, row->members == 1 ? "process" : "processes");
    return out;
}

/* "~": the value contains estimates.  ">=": the highest sum that this viewer saw, a lower bound of
 * the peak. */
static const char *column_bytes(enum gp_column_id id, const struct gp_row *row, enum gp_text_form form, bool ascii,
                                char *out, size_t out_bytes)
{
    int64_t bytes = column_integer(id, row);
    bool peak = id == GP_COLUMN_PEAK || id == GP_COLUMN_RPEAK;
    const char *mark = bytes < 0 ? "" : peak && row->seen_peak ? (ascii ? ">=" : "\u2265") : row->estimated ? "~" : "";
    char number[32];
    snprintf(out, out_bytes, "%s%s", mark, gp_text_bytes(bytes, form, number, sizeof(number)));
    return out;
}

static const char *column_signed(double bytes, enum gp_text_form form, char *out, size_t out_bytes)
{
    char number[32];
    double size = fabs(bytes);
    if (isnan(bytes) || size < 1) {
        snprintf(out, out_bytes, isnan(bytes) ? "-" : "0");
        return out;
    }
    gp_text_bytes((int64_t)(size < 9e18 ? size : 9e18), form, number, sizeof(number));
    snprintf(out, out_bytes, "%c%s", bytes < 0 ? '-' : '+', number);
    return out;
}

/* A number of a call site, or of the process that sums its call sites in the tree; NaN: unknown. */
static double column_real(enum gp_column_id id, const struct gp_row *row)
{
    const struct gp_site_row *site = row->site;
    switch (id) {
    case GP_COLUMN_LIVE:
        return site ? (double)site->live : row->allocated < 0 ? NAN : (double)row->allocated;
    case GP_COLUMN_SITE_PEAK:
        return site ? (double)site->peak : row->allocated_peak < 0 ? NAN : (double)row->allocated_peak;
    case GP_COLUMN_AT_PEAK:
        return site ? (double)site->at_peak : NAN;
    case GP_COLUMN_SHARE:
        return site ? site->share : NAN;
    case GP_COLUMN_CALLS:
        return site ? site->calls_per_s : row->allocs_per_s;
    case GP_COLUMN_DELTA:
        return site ? site->delta_per_s : NAN;
    default:
        return NAN;
    }
}

static const char *column_site_text(enum gp_column_id id, const struct gp_row *row, const struct gp_model *model,
                                    enum gp_text_form form, char *out, size_t out_bytes)
{
    const char *kind =
        row->site && row->site->kind != GP_KIND_NONE ? gp_kind_name(row->site->kind) : NULL; /* before stacks: any */
    double number = column_real(id, row);
    switch (id) {
    case GP_COLUMN_KIND:
        snprintf(out, out_bytes, "%s", kind ? kind : "-");
        return out;
    case GP_COLUMN_SHARE:
        snprintf(out, out_bytes, isnan(number) ? "-" : "%.1f", 100 * number);
        return out;
    case GP_COLUMN_CALLS:
        return gp_text_rate(number, out, out_bytes);
    case GP_COLUMN_DELTA:
        return column_signed(number, form, out, out_bytes);
    case GP_COLUMN_SITE:
        if (!row->site)
            return column_command(row, model, form, out, out_bytes);
        gp_site_text(row->site->name, row->site->caller, row->site->callee, out, out_bytes);
        return out;
    default:
        return gp_text_bytes(isnan(number) ? -1 : (int64_t)number, form, out, out_bytes);
    }
}

const char *gp_column_text(enum gp_column_id id, const struct gp_row *row, const struct gp_model *model,
                           enum gp_text_form form, bool ascii, char *out, size_t out_bytes)
{
    const struct gp_process *process = row->process;
    switch (id) {
    case GP_COLUMN_PID:
        snprintf(out, out_bytes, row->id.pid > 0 ? "%d" : "-", (int)row->id.pid);
        return out;
    case GP_COLUMN_USER:
        snprintf(out, out_bytes, "%s", process && process->user[0] ? process->user : "-");
        return out;
    case GP_COLUMN_DEV:
        return column_device(row, model, out, out_bytes);
    case GP_COLUMN_ALLOC:
    case GP_COLUMN_PEAK:
    case GP_COLUMN_RESERVED:
    case GP_COLUMN_RPEAK:
    case GP_COLUMN_UNTRACKED:
    case GP_COLUMN_BEFORE:
        return column_bytes(id, row, form, ascii, out, out_bytes);
    case GP_COLUMN_HEADROOM:
        return gp_text_bytes(column_headroom(row), form, out, out_bytes);
    case GP_COLUMN_OOM_IN:
        if (isnan(column_oom(row)))
            snprintf(out, out_bytes, "-");
        else
            gp_text_duration(column_oom(row), out, out_bytes);
        return out;
    case GP_COLUMN_ALLOCS:
        return gp_text_rate(row->allocs_per_s, out, out_bytes);
    case GP_COLUMN_FREES:
        return gp_text_rate(row->frees_per_s, out, out_bytes);
    case GP_COLUMN_LOST:
        return gp_text_count(row->lost, out, out_bytes);
    case GP_COLUMN_CONTAINER:
        snprintf(out, out_bytes, "%s",
                 process && process->container[0] ? process->container
                 : row->id.container[0]           ? row->id.container
                                                  : "-");
        return out;
    case GP_COLUMN_STATE:
        /* Out of memory is about the program, so it comes before the words about the profiler. */
        snprintf(out, out_bytes, "%s",
                 process && process->oom.count && gp_process_live(process) ? "oom" : gp_process_word(process));
        return out;
    case GP_COLUMN_COMMAND:
        return column_command(row, model, form, out, out_bytes);
    case GP_COLUMN_BAR:
        out[0] = '\0';
        return out;
    default:
        return column_site_text(id, row, model, form, out, out_bytes);
    }
}

static int column_order(double a, double b)
{
    return a < b ? -1 : a > b;
}

/* The numbers of call sites, and rates, are real.  A site that runs on no known device is last. */
static bool column_reals(enum gp_column_id id, const struct gp_row *a, const struct gp_row *b, double *x, double *y)
{
    if (id == GP_COLUMN_ALLOCS || id == GP_COLUMN_FREES) {
        *x = id == GP_COLUMN_ALLOCS ? a->allocs_per_s : a->frees_per_s;
        *y = id == GP_COLUMN_ALLOCS ? b->allocs_per_s : b->frees_per_s;
        return true;
    }
    if (id == GP_COLUMN_HEADROOM) {
        *x = column_headroom(a) < 0 ? NAN : (double)column_headroom(a);
        *y = column_headroom(b) < 0 ? NAN : (double)column_headroom(b);
        return true;
    }
    if (id == GP_COLUMN_OOM_IN) {
        *x = column_oom(a);
        *y = column_oom(b);
        return true;
    }
    if (id == GP_COLUMN_DEV) {
        *x = a->site ? a->site->device : a->id.device;
        *y = b->site ? b->site->device : b->id.device;
        *x = *x < 0 ? NAN : *x;
        *y = *y < 0 ? NAN : *y;
        return true;
    }
    *x = column_real(id, a);
    *y = column_real(id, b);
    return id > GP_COLUMN_KIND && id < GP_COLUMN_SITE;
}

int gp_column_compare(enum gp_column_id id, const struct gp_row *a, const struct gp_row *b,
                      const struct gp_model *model, int *unknown)
{
    double real_a, real_b;
    *unknown = 0;
    if (column_reals(id, a, b, &real_a, &real_b)) {
        *unknown = (isnan(real_a) ? 1 : 0) | (isnan(real_b) ? 2 : 0);
        return *unknown ? 0 : column_order(real_a, real_b);
    }
    if (gp_columns[id].numeric || id == GP_COLUMN_PID) {
        int64_t x = column_integer(id, a), y = column_integer(id, b);
        *unknown = (x < 0 ? 1 : 0) | (y < 0 ? 2 : 0);
        return *unknown ? 0 : (x > y) - (x < y);
    }
    if (id == GP_COLUMN_SITE && a->site && b->site) /* labels are long, and most differ in the function */
        return strcmp(a->site->name->function, b->site->name->function);
    char left[512], right[512];
    gp_column_text(id, a, model, GP_TEXT_SHORT, true, left, sizeof(left));
    gp_column_text(id, b, model, GP_TEXT_SHORT, true, right, sizeof(right));
    *unknown = (strcmp(left, "-") == 0 ? 1 : 0) | (strcmp(right, "-") == 0 ? 2 : 0);
    return *unknown ? 0 : strcasecmp(left, right);
}

/* The narrowest last column of use.  12 columns show the first word of most commands, and 24 often
 * the argument in which they differ.  Containers and GPUs differ in long ids, and a pod's name has
 * two parts.  A call site has a function and a line. */
static int columns_last(int width, const struct gp_column_choice *choice)
{
    int command = width < 60 ? 12 : width < 100 ? 16 : 24;
    return choice->groups ? 30 : !choice->sites ? command : width < 60 ? 12 : 34;
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
                                        !gp_column_in((enum gp_column_id)i, choice->sites));
    if (choice->groups)
        dropped[GP_COLUMN_PID] = dropped[GP_COLUMN_USER] = dropped[GP_COLUMN_CONTAINER] = dropped[GP_COLUMN_STATE] =
            true;
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
