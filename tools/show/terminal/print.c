/* SPDX-License-Identifier: MIT
 * print.c: prints the rows of processes, as a table and as JSON; see print.h.
 */
#include <show/terminal/print.h>
#include <show/text/forecast.h>

#include <limits.h>
#include <math.h>
#include <show/terminal/column.h>
#include <show/terminal/grid.h>
#include <show/terminal/model.h>
#include <show/terminal/outlook.h>
#include <show/text/text.h>
#include <show/text/write.h>
#include <string.h>

/* ---- the rows of processes --------------------------------------------------------------------------------------- */

/* Prints at most `most` columns of text.  tools/read/collect has already made the strings of other
 * processes harmless; only the character set is left to fit. */
static void print_field(FILE *out, const char *text, const struct gp_column *column, int most, bool utf8)
{
    int pad = column->print_width - gp_grid_width(text), used = 0;
    uint32_t code;
    if (gp_column_right(column) && pad > 0)
        fprintf(out, "%*s", pad, "");
    for (int bytes; (bytes = gp_grid_decode(text, &code)) > 0; text += bytes) {
        used += gp_grid_code_width(code);
        if (used > most)
            return;
        if (code < 0x20 || code == 0x7f || (code >= 0x80 && !utf8))
            fputc('?', out);
        else
            fwrite(text, 1, (size_t)bytes, out);
    }
    if (!gp_column_right(column) && pad > 0)
        fprintf(out, "%*s", pad, "");
}

/* On a terminal, the name of a program comes before its folders, as on the screen. */
static enum gp_text_form print_text(const struct gp_print_form *form)
{
    return form->width > 0 ? GP_TEXT_SHORT : GP_TEXT_WHOLE;
}

static bool print_is_empty(enum gp_column_id id, const struct gp_model *model, const struct gp_row *rows, int count)
{
    char text[512];
    for (int i = 0; i < count; i++) {
        gp_column_text(id, &rows[i], model, GP_TEXT_SHORT, true, text, sizeof(text));
        if (strcmp(text, "-") != 0)
            return false;
    }
    return true;
}

void gp_print_rows(FILE *out, const struct gp_model *model, const struct gp_row *rows, int count, bool sites,
                   const struct gp_print_form *form)
{
    struct gp_column_choice choice = {.sites = sites, .printed = true};
    enum gp_column_id ids[GP_COLUMNS];
    char text[2048];
    int rest, columns, width = form->width > 0 ? form->width : INT_MAX;
    for (int i = 0; i < GP_COLUMNS; i++)
        choice.empty[i] = gp_columns[i].shown == GP_SHOWN_ROWS && gp_columns[i].print_width &&
                          print_is_empty((enum gp_column_id)i, model, rows, count);
    choice.empty[GP_COLUMN_PID] = sites; /* there is one process */
    columns = gp_columns_fit(INT_MAX, &choice, ids, &rest);
    if (gp_columns_fit(width, &choice, ids, &rest) < columns) {
        for (int i = 0; i < GP_COLUMNS; i++)
            choice.empty[i] |= gp_column_in((enum gp_column_id)i, sites) && gp_columns[i].print_width &&
                               print_is_empty((enum gp_column_id)i, model, rows, count);
        columns = gp_columns_fit(width, &choice, ids, &rest);
    }
    for (int line = -1; line < count; line++) {
        for (int i = 0; i < columns; i++) {
            const struct gp_column *column = &gp_columns[ids[i]];
            if (line < 0)
                snprintf(text, sizeof(text), "%s", column->name);
            else
                gp_column_text(ids[i], &rows[line], model, print_text(form), true, text, sizeof(text));
            if (i > 0)
                fputc(' ', out);
            print_field(out, text, column, column->print_width ? INT_MAX : rest, form->utf8);
        }
        fputc('\n', out);
    }
}

void gp_print_table(FILE *out, const struct gp_model *model, const struct gp_row_list *list,
                    const struct gp_print_form *form)
{
    gp_print_rows(out, model, list->rows, list->count, false, form);
}

/* ---- JSON ---------------------------------------------------------------------------------------------------- */

static json_t *json_rate(double rate)
{
    return isnan(rate) ? json_null() : json_real(rate);
}

/* Null without the agent, whose maps have the id. */
static json_t *json_cgroup(uint64_t cgroup_id)
{
    return cgroup_id ? json_integer((json_int_t)(cgroup_id & INT64_MAX)) : json_null();
}

static json_t *json_device(const struct gp_model *model, int device)
{
    return device >= 0 && device < model->gpu_count ? json_integer(model->gpus[device].index) : json_null();
}

/* Adds the five sizes that all rows share to `object`, and returns it. */
static json_t *json_bytes(json_t *object, const struct gp_row *row)
{
    json_object_set_new(object, "allocated_bytes", gp_json_known(row->allocated));
    json_object_set_new(object, "allocated_peak_bytes", gp_json_known(row->allocated_peak));
    json_object_set_new(object, "reserved_bytes", gp_json_known(row->reserved));
    json_object_set_new(object, "reserved_peak_bytes", gp_json_known(row->reserved_peak));
    json_object_set_new(object, "asleep_bytes", gp_json_known(row->asleep));
    return object;
}

static json_t *json_forecast(const struct gp_outlook *outlook)
{
    json_t *object = outlook ? gp_forecast_json(&outlook->result) : json_null();
    bool grows = outlook && outlook->result.verdict == GP_FORECAST_GROWS;
    if (object && outlook) {
        json_object_set_new(object, "owner", gp_json_text(grows ? outlook->grows : ""));
        json_object_set_new(object, "site", gp_json_text(grows ? outlook->site : ""));
    }
    return object;
}

static json_t *json_process(const struct gp_model *model, const struct gp_row *row)
{
    const struct gp_process *process = row->process;
    json_t *object = json_object();
    json_object_set_new(object, "pid", json_integer(process->pid));
    json_object_set_new(object, "comm", json_string(process->comm));
    json_object_set_new(object, "ray_job", gp_json_text(process->ray_job));
    json_object_set_new(object, "user", gp_json_text(process->user));
    json_object_set_new(object, "container", gp_json_text(process->container));
    json_object_set_new(object, "cgroup_id", json_cgroup(process->cgroup_id));
    json_object_set_new(object, "cgroup_memory", gp_cgroup_json(process));
    json_object_set_new(object, "device", json_device(model, row->id.device));
    json_bytes(object, row);
    json_object_set_new(object, "allocs_per_s", json_rate(row->allocs_per_s));
    json_object_set_new(object, "frees_per_s", json_rate(row->frees_per_s));
    json_object_set_new(object, "lost_events", gp_json_known(row->lost));
    json_object_set_new(object, "untracked_bytes", gp_json_known(row->untracked));
    /* 0 where gpuprof was there from the start. */
    if (row->device && row->members == 1)
        json_object_set_new(object, "before_attach_bytes", gp_json_known(row->device->before.bytes));
    json_object_set_new(object, "state", json_string(gp_model_process_word(process)));
    json_object_set_new(object, "ooms", json_integer((json_int_t)(process->oom.count & INT64_MAX)));
    json_object_set_new(object, "estimated", json_boolean(row->estimated));
    json_object_set_new(object, "forecast", json_forecast(row->outlook));
    return object;
}

static json_t *json_container(const struct gp_model *model, const struct gp_row *row)
{
    json_t *object = json_object();
    json_object_set_new(object, "container", json_string(row->id.container));
    json_object_set_new(object, "cgroup_id", json_cgroup(row->id.cgroup_id));
    json_object_set_new(object, "device", json_device(model, row->id.device));
    json_bytes(object, row);
    json_object_set_new(object, "processes", json_integer(row->members));
    return object;
}

static json_t *json_owner(const struct gp_model *model, const struct gp_row *row)
{
    json_t *object = json_object();
    json_object_set_new(object, "owner", json_string(row->id.owner));
    json_object_set_new(object, "device", json_device(model, row->id.device));
    json_bytes(object, row);
    json_object_set_new(object, "processes", json_integer(row->members));
    return object;
}

static json_t *json_gpu(const struct gp_model *model, const struct gp_row *row)
{
    const struct gp_gpu *gpu = &model->gpus[row->id.device];
    json_t *object = json_object();
    json_object_set_new(object, "device", json_integer(gpu->index));
    json_object_set_new(object, "uuid", gp_json_text(gpu->uuid));
    json_object_set_new(object, "name", gp_json_text(gpu->name));
    json_object_set_new(object, "total_bytes", gp_json_known(gpu->total_bytes));
    json_object_set_new(object, "limit_bytes", gp_json_known(gpu->limit_bytes > 0 ? gpu->limit_bytes : -1));
    json_object_set_new(object, "used_bytes", gp_json_known(gpu->used_bytes));
    return json_bytes(object, row);
}

/* The state of the agent, which says how far its sums can be trusted. */
static json_t *json_agent(const struct gp_agent *agent)
{
    if (!agent->present)
        return json_null();
    return json_pack("{s:i,s:b,s:I,s:b,s:I,s:I,s:I,s:I}", "pid", agent->pid, "alive", agent->alive, "silent_ns",
                     (json_int_t)(agent->silent_ns & INT64_MAX), "processes_hidden", agent->processes_hidden,
                     "refused_batches", (json_int_t)(agent->refused & INT64_MAX), "map_full",
                     (json_int_t)(agent->map_full & INT64_MAX), "ring_dropped",
                     (json_int_t)(agent->dropped & INT64_MAX), "gap_batches", (json_int_t)(agent->gaps & INT64_MAX));
}

json_t *gp_print_json(const struct gp_model *model, const struct gp_row_list *list, uint64_t time_ns)
{
    json_t *top = json_object(), *processes = json_array(), *containers = json_array(), *devices = json_array(),
           *owners = json_array();
    for (int i = 0; i < list->count; i++) {
        if (list->rows[i].id.kind == GP_ROW_PAIR && list->rows[i].id.device != GP_MODEL_HOST)
            json_array_append_new(processes, json_process(model, &list->rows[i]));
    }
    for (int i = 0; i < model->lists[GP_LIST_CONTAINERS].count; i++) {
        const struct gp_row *row = &model->lists[GP_LIST_CONTAINERS].rows[i];
        if (row->id.container[0] && row->id.device >= 0)
            json_array_append_new(containers, json_container(model, row));
    }
    for (int i = 0; i < model->lists[GP_LIST_DEVICES].count; i++)
        json_array_append_new(devices, json_gpu(model, &model->lists[GP_LIST_DEVICES].rows[i]));
    for (int i = 0; i < model->lists[GP_LIST_OWNERS].count; i++) {
        if (model->lists[GP_LIST_OWNERS].rows[i].id.device >= 0)
            json_array_append_new(owners, json_owner(model, &model->lists[GP_LIST_OWNERS].rows[i]));
    }
    json_object_set_new(top, "schema", json_string("gpuprof.top/1"));
    json_object_set_new(top, "time_ns", json_integer((json_int_t)time_ns));
    json_object_set_new(top, "system", json_boolean(model->system->agent.present));
    json_object_set_new(top, "agent", json_agent(&model->system->agent));
    /* jansson refuses NULL (out of memory) at every level, so one check at the end is enough. */
    int err = json_object_set_new(top, "processes", processes) | json_object_set_new(top, "containers", containers) |
              json_object_set_new(top, "devices", devices) | json_object_set_new(top, "owners", owners);
    if (err) {
        json_decref(top);
        return NULL;
    }
    return top;
}
