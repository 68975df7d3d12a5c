/* SPDX-License-Identifier: MIT
 * sitemodel.c: the samples, rows and rates of call sites; see siteview.h. */
#define _GNU_SOURCE /* qsort_r */
#include <show/terminal/siteview.h>

#include <errno.h>
#include <math.h>
#include <read/collect/collect.h>
#include <stdlib.h>
#include <string.h>

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

void gp_site_model_process(struct gp_site_model *model, const struct gp_process *process)
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
    gp_site_model_process(model, system->process_count ? &system->processes[0] : NULL);
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

int gp_site_model_ask(struct gp_site_model *model, char problem[GP_PROBLEM_BYTES])
{
    site_process(model);
    return gp_site_model_update(model, problem);
}

int gp_site_model_update(struct gp_site_model *model, char problem[GP_PROBLEM_BYTES])
{
    int rc = gp_sites_update(model->sites, problem);
    model->ended |= model->sites->ended;
    return rc ? rc : gp_site_model_count(model);
}

void gp_site_model_close(struct gp_site_model *model)
{
    gp_symbols_free(model->symbols);
    gp_sites_close(model->sites);
    free(model->rows);
    free(model->before);
    *model = (struct gp_site_model){0};
}
