/* SPDX-License-Identifier: MIT
 *
 * historyjson.c: what was live when, in the document of schema gpuprof.report/1; see
 * reportjson.h and docs/analyses.md.
 */
#include <analyze/report.h>
#include <base/numbers.h>
#include <jansson.h>
#include <show/text/reportjson.h>
#include <show/text/reportparts.h>

static json_t *history_use(uint8_t use)
{
    return use < GP_USE_UNKNOWN ? json_string(gp_use_name((enum gp_use)use)) : json_null();
}

static json_t *history_lives(const struct gp_report *report, const struct gp_past *history)
{
    json_t *rows = json_array(), *uses = json_array();
    for (uint32_t i = 0; i < history->life_count; i++) {
        const struct gp_life *life = &history->lives[i];
        json_array_append_new(uses, history_use(life->use));
        json_array_append_new(rows,
                              json_pack("[I,o,I,I,s]", gp_report_since(report, life->from_ns),
                                        life->live ? json_null() : json_integer(gp_report_since(report, life->to_ns)),
                                        (json_int_t)life->bytes, (json_int_t)life->site, gp_kind_name(life->kind)));
    }
    return json_pack("{s:b,s:I,s:o,s:o}", "complete", history->complete, "blocks", (json_int_t)history->blocks, "rows",
                     rows, "uses", uses);
}

/* [t, bytes, other bytes, other blocks, and for each part that changed its number, bytes and
 * blocks] */
static json_t *history_moment(const struct gp_report *report, const struct gp_past *history, uint32_t i)
{
    const struct gp_moment *moment = &history->moments[i];
    size_t end = i + 1 < history->moment_count ? moment[1].first_cell : history->cell_count;
    json_t *row = json_pack("[I,I,I,I]", gp_report_since(report, moment->time_ns), (json_int_t)moment->bytes,
                            (json_int_t)moment->other_bytes, (json_int_t)moment->other_count);
    for (size_t k = moment->first_cell; row && k < end; k++) {
        json_array_append_new(row, json_integer(history->cells[k].part));
        json_array_append_new(row, json_integer(history->cells[k].bytes));
        json_array_append_new(row, json_integer(history->cells[k].count));
    }
    return row;
}

static json_t *history_moments(const struct gp_report *report, const struct gp_past *history)
{
    if (history->complete)
        return json_null();
    json_t *parts = json_array(), *uses = json_array(), *rows = json_array();
    for (uint32_t i = 0; i < history->part_count; i++) {
        json_array_append_new(
            parts, json_pack("[I,s]", (json_int_t)history->parts[i].site, gp_kind_name(history->parts[i].kind)));
        json_array_append_new(uses, history_use(history->parts[i].use));
    }
    for (uint32_t i = 0; i < history->moment_count; i++)
        json_array_append_new(rows, history_moment(report, history, i));
    return json_pack("{s:I,s:o,s:o,s:o}", "stretch_ns", (json_int_t)history->stretch_ns, "parts", parts, "uses", uses,
                     "rows", rows);
}

/* What the memory of the device is for, with the words and the confidence that all texts have. */
static json_t *history_uses(const struct gp_use_table *table)
{
    int64_t bytes[GP_USES] = {0};
    uint64_t blocks[GP_USES] = {0};
    char words[GP_USE_WORDS];
    json_t *uses = json_object();
    for (uint32_t i = 0; i < GP_USE_RULES; i++) {
        bytes[table->rows[i].use] += table->rows[i].at_peak_bytes;
        blocks[table->rows[i].use] += table->rows[i].count;
    }
    for (unsigned use = 0; use < GP_USE_UNKNOWN; use++) {
        double sure = gp_use_sure(table, (enum gp_use)use);
        if (blocks[use])
            json_object_set_new(uses, gp_use_name((enum gp_use)use),
                                json_pack("{s:s,s:o,s:I}", "text", gp_use_words(words, (enum gp_use)use, sure),
                                          "confidence", sure > 0 ? json_real(sure) : json_null(), "at_peak_bytes",
                                          (json_int_t)bytes[use]));
    }
    return uses;
}

bool gp_report_add_history(const struct gp_report *report, uint32_t device, json_t *object)
{
    const struct gp_past *history = report->devices[device].history;
    const struct gp_use_table *uses = report->devices[device].uses;
    return json_object_set_new(object, "uses", uses ? history_uses(uses) : json_null()) == 0 &&
           json_object_set_new(object, "lifetimes", history_lives(report, history)) == 0 &&
           json_object_set_new(object, "moments", history_moments(report, history)) == 0;
}
