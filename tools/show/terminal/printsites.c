/* SPDX-License-Identifier: MIT
 *
 * printsites.c: writes call sites as a table and as JSON; see print.h.  Pure.
 */
#include <show/terminal/print.h>

#include <base/numbers.h>
#include <errno.h>
#include <math.h>
#include <show/terminal/model.h>
#include <show/terminal/siteview.h>
#include <show/text/write.h>
#include <stdlib.h>

bool gp_site_note(const struct gp_site_model *model, uint32_t i, char *out, size_t out_bytes)
{
    const struct gp_sites *s = model->sites;
    if (!s->modes) {
        if (i == 0) {
            snprintf(out, out_bytes, "stacks are off: new memory is \"before stacks\" until 'gpuprof stacks all -p %d'",
                     (int)model->pid);
            return true;
        }
        i--;
    }
    if (s->lost_rows + s->lost_frames + s->lost_strings) {
        if (i == 0) {
            snprintf(out, out_bytes,
                     "tables of sites are full: %llu allocations without a site, %llu with a short stack, %llu unnamed",
                     (unsigned long long)s->lost_rows, (unsigned long long)s->lost_frames,
                     (unsigned long long)s->lost_strings);
            return true;
        }
        i--;
    }
    if (s->modules_truncated) {
        if (i == 0) {
            snprintf(out, out_bytes, "too many mapped files: some functions are shown as addresses");
            return true;
        }
        i--;
    }
    const char *note = gp_symbols_note(model->symbols, i);
    if (note)
        snprintf(out, out_bytes, "%s", note);
    return note != NULL;
}

int gp_site_print(FILE *out, const struct gp_site_model *model, const struct gp_print_form *form)
{
    struct gp_row *rows = calloc(model->row_count + 1ul, sizeof(*rows));
    if (!rows)
        return -ENOMEM;
    for (uint32_t i = 0; i < model->row_count; i++)
        rows[i].site = &model->rows[i];
    gp_print_rows(out, NULL, rows, (int)model->row_count, true, form);
    free(rows);
    return 0;
}

static json_t *site_rate(double rate)
{
    return isnan(rate) || isinf(rate) ? json_null() : json_real(rate);
}

static json_t *site_row_json(const struct gp_site_model *model, const struct gp_site_row *row)
{
    const struct gp_frame_text *frames;
    char label[1024];
    json_t *stack = json_array();
    uint32_t count = gp_symbols_site(model->symbols, row->site, &frames);
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(stack, json_pack("{s:s,s:o,s:o,s:o,s:b,s:b,s:s,s:b}", "function", frames[i].function,
                                               "file", gp_json_text(frames[i].file), "line",
                                               frames[i].line ? json_integer(frames[i].line) : json_null(), "module",
                                               gp_json_text(frames[i].module), "python", (int)frames[i].python,
                                               "inlined", (int)frames[i].inlined, "role",
                                               gp_frame_role_name(frames[i].role), "folded", (int)frames[i].folded));
    gp_caller_line(row->name, row->operation, row->caller, row->callee, label, sizeof(label));
    return json_pack(
        "{s:i,s:i,s:i,s:s,s:o,s:s,s:o,s:o,s:o,s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:o,s:o,s:o}", "site", (int)row->site,
        "sites", (int)row->sites, "frame", (int)(row->name - frames), "name", label, "operation",
        gp_json_text(row->operation->text), "function", row->name->function, "file", gp_json_text(row->name->file),
        "line", row->name->line ? json_integer(row->name->line) : json_null(), "kind",
        gp_json_text(row->kind == GP_KIND_NONE ? NULL : gp_kind_name(row->kind)), "device",
        row->device == (int)GP_WIRE_HOST ? json_string("host")
        : row->device < 0                ? json_null()
                                         : json_integer(row->device),
        "live_bytes", (json_int_t)row->live, "live_count", (json_int_t)row->count, "peak_bytes", (json_int_t)row->peak,
        "at_peak_bytes", (json_int_t)row->at_peak, "allocated_bytes", (json_int_t)row->allocated, "calls",
        (json_int_t)row->calls, "share_of_peak", site_rate(row->share), "calls_per_s", site_rate(row->calls_per_s),
        "delta_bytes_per_s", site_rate(row->delta_per_s), "frames", stack);
}

json_t *gp_site_json(const struct gp_site_model *model)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < model->row_count; i++)
        json_array_append_new(array, site_row_json(model, &model->rows[i]));
    return array;
}
