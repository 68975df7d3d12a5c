/* SPDX-License-Identifier: MIT
 * siteview.c: see siteview.h. */
#define _GNU_SOURCE /* qsort_r */
#include <show/terminal/siteview.h>

#include <errno.h>
#include <math.h>
#include <read/collect/collect.h>
#include <show/terminal/column.h>
#include <show/terminal/model.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the sites of a process -------------------------------------------------------------------------------------- */
/* The samples, rows and rates of call sites. */

/* ---- rows ------------------------------------------------------------------------------------------------------ */

static void site_rates(const struct gp_site_model *model, struct gp_site_row *row)
{
    row->calls_per_s = row->delta_per_s = NAN;
    if (!model->before_ns || model->sites->time_ns <= model->before_ns)
        return;
    double seconds = (double)(model->sites->time_ns - model->before_ns) / 1e9;
    row->calls_per_s = (double)(row->calls - row->calls_before) / seconds;
    row->delta_per_s = (double)(row->live - row->live_before) / seconds;
}

static void site_row_begin(struct gp_site_model *model, uint32_t index, struct gp_site_row *row)
{
    const struct gp_rec_site *site = &model->sites->sites[index];
    *row = (struct gp_site_row){
        .site = index,
        .name = gp_symbols_name(model->symbols, index),
        .operation = gp_symbols_operation(model->symbols, index),
        .device = model->numbers[site->device],
        .kind = site->kind,
    };
}

/* A site that the last sample lacks held nothing then. */
static void site_row_add(const struct gp_site_model *model, uint32_t index, struct gp_site_row *row)
{
    const struct gp_rec_site *site = &model->sites->sites[index];
    struct gp_site_before none = {0, 0}, *before = index < model->before_count ? &model->before[index] : &none;
    row->sites++;
    row->live += site->live_bytes;
    row->count += site->live_count;
    row->peak += site->peak_bytes;
    row->at_peak += site->at_peak_bytes;
    row->allocated += site->allocated_bytes;
    row->calls += site->calls;
    row->calls_before += before->calls;
    row->live_before += before->live;
}

static void site_row_end(const struct gp_site_model *model, struct gp_site_row *row)
{
    int64_t peak = model->sites->devices[model->sites->sites[row->site].device].peak_bytes;
    row->share = peak > 0 ? (double)row->at_peak / (double)peak : NAN;
    site_rates(model, row);
}

static int site_by_number(const void *site, const void *row)
{
    uint32_t one = *(const uint32_t *)site, other = ((const struct gp_site_row *)row)->site;
    return one < other ? -1 : one > other;
}

/* The row of a site, or of the lower one that is the same line of source. Rows are by number here. */
static struct gp_site_row *site_row_of(struct gp_site_model *model, uint32_t index)
{
    uint32_t twin = gp_symbols_twin(model->symbols, index);
    struct gp_site_row *found =
        twin == index ? NULL : bsearch(&twin, model->rows, model->row_count, sizeof(*model->rows), site_by_number);
    if (found)
        return found;
    site_row_begin(model, index, &model->rows[model->row_count]);
    return &model->rows[model->row_count++];
}

static int site_remember(struct gp_site_model *model)
{
    const struct gp_sites *sites = model->sites;
    struct gp_site_before *before = realloc(model->before, (sites->site_count + 1ul) * sizeof(*before));
    if (!before)
        return -ENOMEM;
    for (uint32_t i = 0; i < sites->site_count; i++)
        before[i] = (struct gp_site_before){sites->sites[i].calls, sites->sites[i].live_bytes};
    model->before = before;
    model->before_count = sites->site_count;
    model->before_ns = sites->time_ns;
    return 0;
}

static int site_find_callers(struct gp_site_model *model)
{
    uint32_t *sites = calloc(model->row_count + 1ul, sizeof(*sites));
    const struct gp_frame_text **callers = calloc(2 * (model->row_count + 1ul), sizeof(*callers));
    const struct gp_frame_text **callees = callers + model->row_count;
    bool ok = sites && callers;
    for (uint32_t i = 0; ok && i < model->row_count; i++)
        sites[i] = model->rows[i].site;
    if (ok) {
        gp_symbols_callers(model->symbols, sites, model->row_count, callers);
        gp_symbols_callees(model->symbols, sites, model->row_count, callees);
    }
    for (uint32_t i = 0; ok && i < model->row_count; i++) {
        model->rows[i].caller = callers[i];
        model->rows[i].callee = callees[i];
    }
    free(sites);
    free(callers);
    return ok ? 0 : -ENOMEM;
}

int gp_site_model_count(struct gp_site_model *model)
{
    const struct gp_sites *sites = model->sites;
    struct gp_symbol_source source = GP_SYMBOL_SOURCE(sites, sites->root);
    int rc = model->symbols ? gp_symbols_update(model->symbols, &source) : gp_symbols_new(&model->symbols, &source);
    struct gp_site_row *rows = rc ? NULL : realloc(model->rows, (sites->site_count + 1ul) * sizeof(*rows));
    if (!rows)
        return -ENOMEM;
    model->rows = rows;
    model->row_count = 0;
    model->live_bytes = model->host_bytes = 0;
    for (uint32_t i = 1; i < sites->site_count; i++) {
        const struct gp_rec_site *site = &sites->sites[i];
        if (site->calls == 0 && site->live_bytes == 0)
            continue;
        site_row_add(model, i, site_row_of(model, i));
        *(site->device == GP_WIRE_HOST ? &model->host_bytes : &model->live_bytes) += site->live_bytes;
    }
    for (uint32_t i = 0; i < model->row_count; i++)
        site_row_end(model, &model->rows[i]);
    rc = site_find_callers(model);
    gp_site_model_sort(model, model->sort, model->ascending);
    return rc ? rc : site_remember(model);
}

/* ---- order ----------------------------------------------------------------------------------------------------- */

static int site_compare(const void *left, const void *right, void *argument)
{
    const struct gp_site_model *model = argument;
    const struct gp_site_row *a = left, *b = right;
    const struct gp_row row_a = {.id.pid = model->pid, .site = a}, row_b = {.id.pid = model->pid, .site = b};
    int unknown, order = gp_column_compare(model->sort, &row_a, &row_b, NULL, &unknown);
    if (unknown == 1 || unknown == 2) /* unknown values are last in either order */
        return unknown == 1 ? 1 : -1;
    if (!order)
        return (a->site > b->site) - (a->site < b->site);
    return model->ascending ? order : -order;
}

void gp_site_model_sort(struct gp_site_model *model, enum gp_column_id column, bool ascending)
{
    model->sort = column;
    model->ascending = ascending;
    if (model->row_count > 1)
        qsort_r(model->rows, model->row_count, sizeof(*model->rows), site_compare, model);
}

/* ---- samples --------------------------------------------------------------------------------------------------- */

/* Sets the name and the devices' numbers from a sample of the process; NULL: it has ended. */
static void site_model_process(struct gp_site_model *model, const struct gp_process *process)
{
    model->ended = !process || process->closed;
    if (!process)
        return;
    model->start_time = process->start_time;
    memcpy(model->comm, process->comm, sizeof(model->comm));
    for (int i = 0; i < process->device_count; i++) {
        const struct gp_device_view *device = &process->devices[i];
        if (device->index >= 0 && device->index < (int)GP_WIRE_DEVICES)
            model->numbers[device->index] = gp_device_number(device);
    }
}

/* If the process does not answer, its name and the numbers of its devices stay as they are. */
static void site_process(struct gp_site_model *model)
{
    /* A running process answers in microseconds; a stopped one must not block the screen for
     * long. */
    struct gp_collect_options options = {
        .pids = &model->pid, .pid_count = 1, .exact = true, .deadline_ns = 50000000ull};
    struct gp_system *system;
    if (gp_collect(&options, &system) != 0)
        return;
    site_model_process(model, system->process_count ? &system->processes[0] : NULL);
    gp_system_free(system);
}

int gp_site_model_open(struct gp_site_model *model, pid_t pid, char problem[GP_PROBLEM_BYTES])
{
    *model = (struct gp_site_model){.pid = pid, .sort = GP_COLUMN_LIVE};
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++)
        model->numbers[i] = i == GP_WIRE_HOST ? (int)GP_WIRE_HOST : -1;
    site_process(model); /* first: it asks the process for its numbers, and "before stacks" is corrected then */
    int rc = gp_sites_open(&model->sites, pid, problem);
    if (rc)
        return rc;
    rc = gp_site_model_count(model);
    if (rc)
        gp_site_model_close(model);
    return rc;
}

/* Takes the next sample.  When the process has ended, the last values stay and `ended` is set.  0,
 * -EPROTO, -errno. */
static int site_model_update(struct gp_site_model *model, char problem[GP_PROBLEM_BYTES])
{
    int rc = gp_sites_update(model->sites, problem);
    model->ended |= model->sites->ended;
    return rc ? rc : gp_site_model_count(model);
}

int gp_site_model_ask(struct gp_site_model *model, char problem[GP_PROBLEM_BYTES])
{
    site_process(model);
    return site_model_update(model, problem);
}

void gp_site_model_close(struct gp_site_model *model)
{
    gp_symbols_free(model->symbols);
    gp_sites_close(model->sites);
    free(model->rows);
    free(model->before);
    *model = (struct gp_site_model){0};
}

/* ---- the processes on the screen --------------------------------------------------------------------------------- */
/* The processes whose call sites are on the screen.  Called by screen.c. */

#define GP_SITE_RETRY 5 /* samples until a process without call sites is tried again */

/* ---- scope ----------------------------------------------------------------------------------------------------- */

bool gp_site_in_scope(const struct gp_model *model, const struct gp_row_id *scope, pid_t pid, uint64_t start_time)
{
    if (!scope)
        return true;
    if (scope->pid > 0)
        return scope->pid == pid && scope->start_time == start_time;
    const struct gp_row group = {.id = *scope};
    const struct gp_row_list *list = &model->lists[scope->owner[0] ? GP_LIST_SHARES : GP_LIST_PAIRS];
    for (int i = 0; i < list->count; i++) {
        const struct gp_row *row = &list->rows[i];
        if (row->id.pid == pid && row->id.start_time == start_time && gp_model_row_contains(&group, row))
            return true;
    }
    return false;
}

static struct gp_site_refusal *set_refusal(const struct gp_site_set *set, const struct gp_process *process)
{
    for (int i = 0; i < set->refusal_count; i++) {
        if (set->refusals[i].pid == process->pid && set->refusals[i].start_time == process->start_time)
            return &set->refusals[i];
    }
    return NULL;
}

int gp_site_refused(const struct gp_site_set *set, const struct gp_model *model, const struct gp_row_id *scope,
                    bool for_stacks)
{
    int count = 0;
    for (int i = 0; model->system && i < model->system->process_count; i++) {
        const struct gp_process *process = &model->system->processes[i];
        const struct gp_site_refusal *refusal = set_refusal(set, process);
        if (refusal && (refusal->error == -ENOENT) == for_stacks &&
            gp_site_in_scope(model, scope, process->pid, process->start_time))
            count++;
    }
    return count;
}

int gp_site_shown(const struct gp_site_set *set, const struct gp_model *model, const struct gp_row_id *scope)
{
    int count = 0;
    for (int i = 0; i < set->count; i++)
        count += gp_site_in_scope(model, scope, set->models[i]->pid, set->models[i]->start_time);
    return count;
}

/* ---- processes ------------------------------------------------------------------------------------------------- */

const struct gp_site_model *gp_site_set_find(const struct gp_site_set *set, pid_t pid, uint64_t start_time)
{
    for (int i = 0; i < set->count; i++) {
        if (set->models[i]->pid == pid && set->models[i]->start_time == start_time)
            return set->models[i];
    }
    return NULL;
}

static void set_drop(struct gp_site_set *set, int index)
{
    gp_site_model_close(set->models[index]);
    free(set->models[index]);
    set->models[index] = set->models[--set->count];
}

static int set_refuse(struct gp_site_set *set, const struct gp_process *process, unsigned generation, int error)
{
    struct gp_site_refusal *refusal = set_refusal(set, process);
    if (!refusal && set->refusal_count == set->refusal_room) {
        int room = set->refusal_room ? 2 * set->refusal_room : 16;
        struct gp_site_refusal *more = realloc(set->refusals, (size_t)room * sizeof(*more));
        if (!more)
            return -ENOMEM;
        set->refusals = more;
        set->refusal_room = room;
    }
    if (!refusal)
        refusal = &set->refusals[set->refusal_count++];
    *refusal = (struct gp_site_refusal){process->pid, process->start_time, generation, error};
    return 0;
}

static void set_forget(struct gp_site_set *set, const struct gp_process *process)
{
    struct gp_site_refusal *refusal = set_refusal(set, process);
    if (refusal)
        *refusal = set->refusals[--set->refusal_count];
}

/* Removes the refusals of processes that have ended. */
static void set_sweep(struct gp_site_set *set, const struct gp_system *system)
{
    for (int i = set->refusal_count - 1; i >= 0; i--) {
        bool found = false;
        for (int p = 0; p < system->process_count && !found; p++)
            found = set_refusal(set, &system->processes[p]) == &set->refusals[i];
        if (!found)
            set->refusals[i] = set->refusals[--set->refusal_count];
    }
}

/* A process that has ended keeps its last values if it is the whole scope. */
static void set_update(struct gp_site_set *set, const struct gp_model *model, const struct gp_row_id *scope)
{
    char problem[GP_PROBLEM_BYTES] = "";
    set->problem[0] = '\0';
    for (int i = set->count - 1; i >= 0; i--) {
        struct gp_site_model *one = set->models[i];
        const struct gp_process *process = NULL;
        for (int p = 0; p < model->system->process_count && !process; p++) {
            const struct gp_process *candidate = &model->system->processes[p];
            if (candidate->pid == one->pid && candidate->start_time == one->start_time)
                process = candidate;
        }
        site_model_process(one, process);
        if (!process && !(scope && scope->pid == one->pid)) {
            set_drop(set, i);
            continue;
        }
        int err = site_model_update(one, problem);
        if (err)
            snprintf(set->problem, sizeof(set->problem), "cannot read the call sites of pid %d: %s", (int)one->pid,
                     problem[0] ? problem : strerror(-err));
    }
    set_sweep(set, model->system);
}

/* The process that holds most among those that are to be opened, because the user looks for it. */
static const struct gp_process *set_next(struct gp_site_set *set, const struct gp_model *model,
                                         const struct gp_row_id *scope)
{
    const struct gp_process *best = NULL;
    int64_t most = -1;
    bool full = set->count == GP_SITE_PROCESSES;
    set->pending = set->beyond = 0;
    for (int i = 0; i < model->system->process_count; i++) {
        const struct gp_process *process = &model->system->processes[i];
        const struct gp_site_refusal *refusal = set_refusal(set, process);
        int64_t bytes = 0;
        if (!gp_model_process_readable(process) || process->closed || process->from_agent ||
            gp_site_set_find(set, process->pid, process->start_time) ||
            (refusal && model->generation - refusal->generation < GP_SITE_RETRY) ||
            !gp_site_in_scope(model, scope, process->pid, process->start_time))
            continue;
        if (full) {
            set->beyond++;
            continue;
        }
        for (int d = 0; d < process->device_count; d++)
            bytes += process->devices[d].wire.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current;
        set->pending++;
        if (bytes > most || !best) {
            best = process;
            most = bytes;
        }
    }
    return best;
}

static int set_open(struct gp_site_set *set, const struct gp_model *model, const struct gp_process *process)
{
    char problem[GP_PROBLEM_BYTES] = "";
    struct gp_site_model *one = calloc(1, sizeof(*one));
    if (!one)
        return -ENOMEM;
    int err = gp_site_model_open(one, process->pid, problem);
    if (err) {
        free(one);
        return err == -ENOMEM ? err : set_refuse(set, process, model->generation, err);
    }
    site_model_process(one, process);
    set_forget(set, process);
    set->models[set->count++] = one;
    return 0;
}

int gp_site_set_step(struct gp_site_set *set, const struct gp_model *model, const struct gp_row_id *scope)
{
    if (!model->system)
        return 0;
    if (set->generation != model->generation)
        set_update(set, model, scope);
    set->generation = model->generation;
    if (scope) /* room for it */
        gp_site_set_trim(set, model, scope, GP_SITE_PROCESSES - 1);
    const struct gp_process *next = set_next(set, model, scope);
    if (!next)
        return 0;
    set->pending--;
    return set_open(set, model, next);
}

void gp_site_set_trim(struct gp_site_set *set, const struct gp_model *model, const struct gp_row_id *scope, int most)
{
    for (int i = set->count - 1; i >= 0 && set->count > most; i--) {
        if (!gp_site_in_scope(model, scope, set->models[i]->pid, set->models[i]->start_time))
            set_drop(set, i);
    }
}

void gp_site_set_close(struct gp_site_set *set)
{
    while (set->count)
        set_drop(set, set->count - 1);
    free(set->refusals);
    *set = (struct gp_site_set){0};
}
