/* SPDX-License-Identifier: MIT
 * formats.c: the table of formats; see formats.h.  Called by `gpuprof export`. */
#include <convert/export/formats.h>

#include <base/compiler.h>
#include <string.h>

static const struct gp_export_format format_table[] = {
    {"pprof", "with 'go tool pprof -http=:' or in speedscope.app", true, true, gp_export_pprof, NULL},
    {"chrome", "in ui.perfetto.dev", false, false, gp_export_chrome, NULL},
    {"collapsed", "in speedscope.app, or give it to flamegraph.pl", false, true, gp_export_collapsed, NULL},
    {"csv", "with any spreadsheet or DuckDB", false, false, gp_export_csv, NULL},
    {"jsonl", "with jq or DuckDB", false, false, gp_export_jsonl, NULL},
    {"sqlite", "with sqlite3", true, false, NULL, gp_export_sqlite},
    {"arrow", "with ClickHouse, polars or pyarrow", true, false, gp_export_arrow, NULL},
};

static const char *const weights[GP_EXPORT_WEIGHTS] = {"live", "peak", "allocated", "leaked"};

const struct gp_export_format *gp_export_format_at(unsigned index)
{
    return index < GP_COUNT(format_table) ? &format_table[index] : NULL;
}

const struct gp_export_format *gp_export_format_find(const char *name)
{
    for (size_t i = 0; i < GP_COUNT(format_table); i++) {
        if (strcmp(format_table[i].name, name) == 0)
            return &format_table[i];
    }
    return NULL;
}

const char *gp_export_weight_name(unsigned weight)
{
    return weight < GP_EXPORT_WEIGHTS ? weights[weight] : NULL;
}
